"use strict";
// Bands over one time axis: column j is the time after j steps; column 0 is before the first.

const GUTTER = 104;
const LEFT = 22; // room for the root of the stack WFA, under time 0

class Timeline {
  /** `fit` squeezes the columns until all of them can be seen. */
  constructor(box, view, stack, onPick, fit = false) {
    this.view = view;
    this.stack = stack;
    this.inputs = view.inputs;
    this.steps = view.inputs.length;
    this.box = box;
    this.onPick = onPick;
    this.widest = Math.min(92, Math.max(...this.inputs.map((one) => textWidth(visible(one))), 3) + 6);
    const room = box.clientWidth - GUTTER - LEFT - 6;
    this.w = clamp(room / (this.steps + 1), fit ? 2 : Math.max(12, this.widest), 120);
    this.width = LEFT + (this.steps + 1) * this.w + 6;
    this.gap = Math.min(1, this.w / 6); // between columns
    this.fits = GUTTER + this.width <= box.clientWidth + 1;
    this.cursors = [];
    this.updates = [];
    this.part = box; // the caption and the bands that belong together
    box.style.setProperty("--seen", `${box.clientWidth}px`); // the width of captions, which do not scroll
    box.replaceChildren();
  }

  x(time) { return LEFT + (time + 0.5) * this.w; }

  caption(title, text) {
    this.part = html("div", { class: "part", "data-band": title },
      html("div", { class: "caption" }, html("b", {}, title), text ? ` — ${text}` : ""));
    this.box.append(this.part);
  }

  /** A band; returns the drawing for labels and the one over time. */
  band(height, label) {
    const gutter = svg("svg", { class: "gutter", width: GUTTER, height, "aria-hidden": "true" });
    const plot = svg("svg", { width: this.width, height, role: "img", "aria-label": label });
    const cursor = svg("rect", { class: "cursor", y: 0, width: this.w, height, rx: 3 });
    plot.append(cursor);
    this.cursors.push(cursor);
    this.part.append(html("div", { class: "band" }, gutter, plot));
    return [gutter, plot];
  }

  /** Move to a time. */
  show(time) {
    for (const cursor of this.cursors) cursor.setAttribute("x", this.x(time) - this.w / 2);
    for (const update of this.updates) update(time);
    const x = this.x(time), box = this.box;
    const seen = box.clientWidth - GUTTER, margin = this.w + LEFT;
    if (x < box.scrollLeft + margin || x > box.scrollLeft + seen - margin) box.scrollLeft = x - seen / 2;
  }

  tape() {
    const [gutter, plot] = this.band(34, `The string: ${this.inputs.join(" ")}`);
    gutter.append(svg("text", { x: GUTTER - 10, y: 22, "text-anchor": "end", class: "soft" }, "read"));
    const cells = [];
    for (let time = 0; time <= this.steps; time++) {
      const symbol = time ? visible(this.inputs[time - 1]) : "·";
      const tip = time ? `step ${time}: reads ${symbol}` : "before the first step";
      const rect = svg("rect", {
        x: this.x(time) - this.w / 2 + this.gap / 2, y: 4, width: this.w - this.gap, height: 26, rx: Math.min(6, this.w / 4), tip,
        class: "tape hit",
      });
      const text = svg("text", { x: this.x(time), y: 21.5, "text-anchor": "middle", "pointer-events": "none" },
        this.w >= 12 ? fitted(symbol, this.w - 3) : this.w >= 5 && symbol.length === 1 ? symbol : "");
      rect.addEventListener("click", () => this.onPick(time));
      plot.append(rect, text);
      cells.push([rect, text]);
    }
    this.updates.push((now) => cells.forEach(([rect, text], time) => {
      rect.setAttribute("class", `tape hit ${time === now ? "current" : time < now ? "read" : ""}`);
      text.setAttribute("class", `${this.w < 12 ? "tiny" : ""} ${time === now ? "current" : time > now ? "unread" : ""}`);
    }));
  }

  /** Arcs from the step just read to what is on top of the stack, wider for more; earlier ones faint. */
  arcs() {
    const { attention, kind } = this.stack;
    const height = clamp(30 + this.steps * 5, 46, 104);
    const empty = kind === "nondeterministic" ? "the initial bottom" : "an empty stack";
    this.caption("Attention", `how probably the top of the stack was pushed at each step; column · is ${empty}`);
    const [, plot] = this.band(height, "Arcs from the current step to the steps that pushed what is on top");
    const faint = svg("g", { class: "faint" }), bold = svg("g", {});
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
          class: "arc", d: arc(now, to), "stroke-width": 0.8 + 4.2 * share, "stroke-opacity": 0.4 + 0.6 * share,
          tip: `after step ${now}\non top: ${where}\n${number(share)}`,
        }));
      });
    });
  }

  /** Rows over time; positive numbers in one colour, negative in another; `full` colour is 1, or the largest. */
  heat(title, text, names, rows, full = 1) {
    const tall = names.length <= 14 ? 18 : names.length <= 32 ? 13 : clamp(Math.floor(420 / names.length), 3, 13);
    const most = full || Math.max(1e-6, ...rows.map((row) => Math.max(...row.map(Math.abs))));
    this.caption(title, full ? text : `${text}; full colour is ${number(most)}`);
    const [gutter, plot] = this.band(names.length * tall + 4, `${title}: ${text}`);
    const every = Math.ceil(13 / tall);
    names.forEach((name, row) => {
      if (row % every === 0) {
        gutter.append(svg("text", {
          x: GUTTER - 10, y: row * tall + tall / 2 + 6, "text-anchor": "end", class: "small soft", tip: name,
        }, fitted(name, GUTTER - 14, 11)));
        if (MARKED.includes(name)) gutter.append(actionMark(name, 4, row * tall + tall / 2 + 2));
      }
      rows.forEach((values, step) => {
        const value = values[row];
        const place = {
          x: this.x(step + 1) - this.w / 2 + this.gap / 2, y: row * tall + 2 + 0.5, width: this.w - this.gap, height: Math.max(1, tall - 1),
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
}
