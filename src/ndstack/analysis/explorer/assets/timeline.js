"use strict";
// Bands over one time axis: column j is the time after j steps; column 0 is before the first.

const GUTTER = 104;
const LEFT = 22; // room for the root of the stack WFA, under time 0

class Timeline {
  constructor(box, view, stack, onPick) {
    this.view = view;
    this.stack = stack;
    this.inputs = view.inputs;
    this.steps = view.inputs.length;
    this.box = box;
    this.onPick = onPick;
    const widest = Math.min(92, Math.max(...this.inputs.map((one) => textWidth(visible(one))), 3) + 6);
    const room = box.clientWidth - GUTTER - LEFT - 6;
    this.w = clamp(room / (this.steps + 1), Math.max(12, widest), 120);
    this.width = LEFT + (this.steps + 1) * this.w + 6;
    this.fits = GUTTER + this.width <= box.clientWidth + 1;
    this.cursors = [];
    this.updates = [];
    box.replaceChildren();
  }

  x(time) { return LEFT + (time + 0.5) * this.w; }

  caption(title, text) {
    this.box.append(html("div", { class: "caption", "data-band": title }, html("b", {}, title), text ? ` — ${text}` : ""));
  }

  /** A band; returns the drawing for labels and the one over time. */
  band(height, label) {
    const gutter = svg("svg", { class: "gutter", width: GUTTER, height, "aria-hidden": "true" });
    const plot = svg("svg", { width: this.width, height, role: "img", "aria-label": label });
    const cursor = svg("rect", { class: "cursor", y: 0, width: this.w, height, rx: 3 });
    plot.append(cursor);
    this.cursors.push(cursor);
    this.box.append(html("div", { class: "band" }, gutter, plot));
    return [gutter, plot];
  }

  /** Move to a time. */
  show(time) {
    for (const cursor of this.cursors) cursor.setAttribute("x", this.x(time) - this.w / 2);
    for (const update of this.updates) update(time);
    const x = this.x(time), box = this.box;
    const seen = box.clientWidth - GUTTER;
    if (x < box.scrollLeft + this.w || x > box.scrollLeft + seen - this.w) box.scrollLeft = x - seen / 2;
  }

  tape() {
    const [gutter, plot] = this.band(34, `The string: ${this.inputs.join(" ")}`);
    gutter.append(svg("text", { x: GUTTER - 10, y: 22, "text-anchor": "end", class: "soft" }, "read"));
    const cells = [];
    for (let time = 0; time <= this.steps; time++) {
      const symbol = time ? visible(this.inputs[time - 1]) : "·";
      const tip = time ? `step ${time}: reads ${symbol}` : "before the first step";
      const rect = svg("rect", {
        x: this.x(time) - this.w / 2 + 0.5, y: 4, width: this.w - 1, height: 26, rx: Math.min(6, this.w / 4), tip,
        class: "tape hit",
      });
      const text = svg("text", { x: this.x(time), y: 21.5, "text-anchor": "middle", "pointer-events": "none" },
        fitted(symbol, this.w - 3));
      rect.addEventListener("click", () => this.onPick(time));
      plot.append(rect, text);
      cells.push([rect, text]);
    }
    this.updates.push((now) => cells.forEach(([rect, text], time) => {
      rect.setAttribute("class", `tape hit ${time === now ? "current" : time < now ? "read" : ""}`);
      text.setAttribute("class", time === now ? "current" : time > now ? "unread" : "");
    }));
  }

  /** Arcs from the step just read to what is on top of the stack, wider for more; earlier ones faint. */
  arcs() {
    const { attention, kind } = this.stack;
    const height = clamp(30 + this.steps * 5, 46, 104);
    const empty = kind === "nondeterministic" ? "the initial bottom" : "an empty stack";
    this.caption("Attention", `how probably the top of the stack was pushed at each step; column · is ${empty}`);
    const [, plot] = this.band(height, "Arcs from the current step to the steps that pushed what is on top");
    const faint = svg("g", { opacity: 0.16, "pointer-events": "none" }), bold = svg("g", {});
    plot.append(faint, bold);
    const arc = (from, to) => {
      const a = this.x(from), b = this.x(to), base = height - 1;
      if (from === to) {
        const s = Math.min(9, this.w / 2.2);
        return `M${a - s / 2} ${base}c${-s} ${-3.2 * s} ${2 * s} ${-3.2 * s} ${s} 0`;
      }
      const rise = 12 + (height - 18) * Math.sqrt(Math.abs(from - to) / Math.max(this.steps, 1));
      return `M${a} ${base}C${a} ${base - 1.3 * rise} ${b} ${base - 1.3 * rise} ${b} ${base}`;
    };
    const past = attention.map((row, step) => {
      const best = row.indexOf(Math.max(...row));
      return svg("path", { class: "arc", d: arc(step + 1, best), "stroke-width": 0.6 + 1.6 * row[best] });
    });
    this.updates.push((now) => {
      faint.replaceChildren(...past.slice(0, Math.max(0, now - 1)));
      bold.replaceChildren();
      if (!now) return;
      attention[now - 1].forEach((share, to) => {
        if (share < 0.004) return;
        const where = to ? `pushed at step ${to} (${visible(this.inputs[to - 1])})` : empty;
        bold.append(svg("path", {
          class: "arc", d: arc(now, to), "stroke-width": 0.8 + 4.2 * share, "stroke-opacity": 0.25 + 0.75 * share,
          tip: `after step ${now}\non top: ${where}\n${number(share)}`,
        }));
      });
    });
  }

  /** Rows over time; positive numbers in one colour, negative in another; `full` colour is 1, or the largest. */
  heat(title, text, names, rows, full = 1) {
    const tall = names.length <= 14 ? 18 : clamp(Math.floor(260 / names.length), 3, 18);
    const most = full || Math.max(1e-6, ...rows.map((row) => Math.max(...row.map(Math.abs))));
    this.caption(title, full ? text : `${text}; full colour is ${number(most)}`);
    const [gutter, plot] = this.band(names.length * tall + 4, `${title}: ${text}`);
    const every = Math.ceil(13 / tall);
    names.forEach((name, row) => {
      if (row % every === 0) {
        gutter.append(svg("text", {
          x: GUTTER - 10, y: row * tall + tall / 2 + 6, "text-anchor": "end", class: "small soft", tip: name,
        }, fitted(name, GUTTER - 14, 11)));
      }
      rows.forEach((values, step) => {
        const value = values[row];
        const place = {
          x: this.x(step + 1) - this.w / 2 + 0.5, y: row * tall + 2 + 0.5, width: this.w - 1, height: Math.max(1, tall - 1),
          rx: Math.min(3, tall / 5),
        };
        const tip = `step ${step + 1}, reads ${visible(this.inputs[step])}\n${name}: ${number(value)}`;
        plot.append(svg("rect", { ...place, class: "cell hit", tip }));
        if (Math.abs(value) / most > 0.004) {
          plot.append(svg("rect", {
            ...place, class: value < 0 ? "negative" : "positive", "fill-opacity": (Math.abs(value) / most).toFixed(3),
            "pointer-events": "none",
          }));
        }
      });
    });
    const cursor = this.cursors.at(-1);
    cursor.setAttribute("class", "outline");
    plot.append(cursor);
    plot.addEventListener("click", (event) => {
      const x = event.clientX - plot.getBoundingClientRect().left;
      this.onPick(clamp(Math.floor((x - LEFT) / this.w), 0, this.steps));
    });
  }

  /** The stacks of one run as blocks from push to pop, the bottom below. */
  blocks(run, automaton, text) {
    const stacks = stacksOf(run);
    const deepest = Math.max(...stacks.map((stack) => stack.length));
    const tall = clamp(Math.floor(220 / deepest), 5, 20);
    this.caption("Best run", text);
    const [gutter, plot] = this.band(deepest * tall + 6, "The stack of the best run at each time, top above");
    gutter.append(svg("text", { x: GUTTER - 10, y: 14, "text-anchor": "end", class: "small soft" }, "top"));
    if (deepest * tall > 30) {
      gutter.append(svg("text", { x: GUTTER - 10, y: deepest * tall, "text-anchor": "end", class: "small soft" }, "bottom"));
    }
    for (let depth = 0; depth < deepest; depth++) {
      for (let time = 0; time < stacks.length; ) {
        const element = stacks[time][depth];
        let end = time + 1;
        if (!element) { time = end; continue; }
        const same = (other) => other && other.pushed === element.pushed && other.symbol === element.symbol;
        while (end < stacks.length && same(stacks[end][depth])) end++;
        this.block(plot, element, automaton, time, end, (deepest - 1 - depth) * tall + 3, tall);
        time = end;
      }
    }
  }

  block(plot, element, automaton, from, to, y, tall) {
    const name = automaton.symbols[element.symbol], width = (to - from) * this.w - 1.5;
    const since = element.pushed ? `pushed at step ${element.pushed}` : "the initial bottom";
    const tip = `${name}, ${since}\non the stack from time ${from} to ${to - 1}`;
    plot.append(svg("rect", {
      x: this.x(from) - this.w / 2 + 0.75, y: y + 0.5, width, height: tall - 1, rx: Math.min(4, tall / 4),
      class: `f${tone(element.symbol)}`, "fill-opacity": 0.82, tip,
    }));
    if (tall >= 13) {
      plot.append(svg("text", {
        x: this.x(from) - this.w / 2 + width / 2, y: y + tall / 2 + 4, "text-anchor": "middle",
        class: "small strong inverse", "pointer-events": "none",
      }, fitted(name, width - 2, 11)));
    }
  }
}

/** The stack at each time of a run: elements with their symbol and the step that pushed them. */
function stacksOf(run) {
  let stack = [{ symbol: 0, pushed: 0 }];
  const found = [stack];
  run.moves.forEach(([action, , , , pushed], step) => {
    if (action === 0) stack = [...stack, { symbol: pushed, pushed: step + 1 }];
    else if (action === 1) stack = [...stack.slice(0, -1), { symbol: pushed, pushed: stack.at(-1).pushed }];
    else stack = stack.slice(0, -1);
    found.push(stack);
  });
  return found;
}
