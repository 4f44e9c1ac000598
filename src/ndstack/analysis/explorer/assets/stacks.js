"use strict";
// The most probable stacks before and after the current step; between them, where runs fork and merge.

const ACTION = { 1: "push", 0: "replace", "-1": "pop" };

function drawStacks(box, automaton, time) {
  const now = automaton.times[time], before = time ? automaton.times[time - 1] : null;
  const columns = Math.max(now.stacks.length, before ? before.stacks.length : 0, 1);
  const w = clamp((box.clientWidth - 50) / columns, 48, 118), left = 48;
  const head = headHeight(automaton, [now, ...(before ? [before] : [])], w);
  const upper = before ? stackShape(before.stacks, head, 15, 7) : null;
  const lower = stackShape(now.stacks, head, 21, 12);
  const gap = 74, base = before ? upper.height + gap : 0;
  const height = base + lower.height + 4;
  const width = left + columns * w;
  const drawing = svg("svg", { width, height, role: "img", "aria-label": stacksInWords(automaton, time) });
  const label = (text, y) => drawing.append(svg("text", { x: 0, y, class: "small soft" }, text));
  const x = (place) => left + (place + 0.5) * w;
  if (before) {
    label(`time ${time - 1}`, upper.height - 4);
    before.stacks.forEach((one, place) => {
      drawing.append(oneStack(one, automaton, x(place), upper.height - upper.sizes[place], w, head, 15, 7));
    });
    for (const [from, to, p] of now.flows) {
      const y1 = upper.height + 3, y2 = base - 3, middle = (y1 + y2) / 2;
      const action = ACTION[now.stacks[to][1].length - before.stacks[from][1].length];
      drawing.append(svg("path", {
        d: `M${x(from)} ${y1}C${x(from)} ${middle} ${x(to)} ${middle} ${x(to)} ${y2}`, class: `flow ${action}`,
        "stroke-width": 1 + 15 * p, "stroke-opacity": 0.3 + 0.4 * p, "stroke-linecap": "butt",
        tip: `${action} at step ${time}\nruns that have both stacks: ${percent(p)}`,
      }));
    }
  }
  label(`time ${time}`, base + 14);
  now.stacks.forEach((one, place) => drawing.append(oneStack(one, automaton, x(place), base, w, head, 21, 12)));
  box.replaceChildren(drawing);
  if (before) {
    box.append(html("div", { class: "legend" }, ...["push", "replace", "pop"].map((name) =>
      html("span", {}, html("i", { class: name }), name))));
  }
}

const wideOf = (w) => Math.min(w - 10, 84);

/** Room for state and probability: one line, or two if states have long names. */
function headHeight(automaton, times, w) {
  const names = times.flatMap((time) => time.stacks.map(([state]) => automaton.states[state]));
  return Math.max(0, ...names.map((name) => textWidth(name, 11))) > wideOf(w) - 42 ? 35 : 22;
}

/** The heights of stacks as drawn: state and probability, then boxes from the top down. */
function stackShape(stacks, head, tall, most) {
  const sizes = stacks.map(([, stack, , whole]) => head + tall * (Math.min(stack.length, most) + (whole ? 0 : 0.7)));
  return { sizes, height: Math.max(head, ...sizes) };
}

function oneStack([state, stack, p, whole], automaton, x, y, w, head, tall, most) {
  const names = stack.map((symbol) => automaton.symbols[symbol]);
  const text = `${whole ? "" : "… "}${names.join(" ")}`;
  const tip = `state ${automaton.states[state]}\nstack, top last: ${text}`
    + `\n${whole ? "probability" : "all stacks with this upper part"}: ${number(p)}`;
  const group = svg("g", { tip, opacity: tall < 20 ? 0.75 : 1 });
  const wide = wideOf(w), line = y + head - 6;
  group.append(
    svg("rect", { x: x - wide / 2, y: line, width: wide, height: 3, rx: 1.5, class: "cell" }),
    svg("rect", { x: x - wide / 2, y: line, width: Math.max(1, wide * p), height: 3, rx: 1.5, class: "positive" }),
    svg("text", { x: x - wide / 2, y: y + 11, class: "small soft" },
      fitted(automaton.states[state], head > 22 ? wide : wide - 40, 11)),
    svg("text", { x: x + wide / 2, y: line - 5, class: "small strong", "text-anchor": "end" }, percent(p)),
  );
  const shown = stack.length <= most ? stack.map((symbol) => ({ symbol }))
    : [{ symbol: stack[0] }, { gap: stack.length - most + 1 }, ...stack.slice(2 - most).map((symbol) => ({ symbol }))];
  shown.reverse().forEach((item, place) => {
    const top = y + head + place * tall;
    if (item.gap) {
      group.append(svg("text", { x, y: top + tall / 2 + 4, "text-anchor": "middle", class: "small soft" }, `⋮ ${item.gap} more`));
      return;
    }
    group.append(
      svg("rect", { x: x - wide / 2, y: top + 0.5, width: wide, height: tall - 1.5, rx: 4, class: `f${tone(item.symbol)}`,
        "fill-opacity": 0.88 }),
      svg("text", { x, y: top + tall / 2 + 3.6, "text-anchor": "middle", class: "small strong inverse" },
        fitted(automaton.symbols[item.symbol], wide - 6, 11)),
    );
  });
  if (!whole) {
    group.append(svg("text", { x, y: y + head + shown.length * tall + 9, "text-anchor": "middle", class: "soft" }, "⋮"));
  }
  return group;
}

function stacksInWords(automaton, time) {
  const one = ([state, stack, p]) =>
    `${automaton.states[state]}: ${stack.map((symbol) => automaton.symbols[symbol]).join(" ")}, ${percent(p)}`;
  return `Stacks at time ${time}: ${automaton.times[time].stacks.map(one).join("; ")}`;
}

/** What to say above the stacks. */
function stacksNote(automaton, time) {
  const { stacks } = automaton.times[time];
  if (!stacks.length) return "No run survives to this time, so there are no stacks.";
  const sum = stacks.reduce((total, [, , p]) => total + p, 0);
  const cut = stacks.some(([, , , whole]) => !whole);
  let text = `Top of the stack above. Those shown have ${percent(Math.min(1, sum))} of the probability.`;
  if (cut) text += " The distribution is flat: ⋮ under an upper part stands for all that can be under it.";
  if (automaton.window) text += ` The stack has a window of ${automaton.window} steps: forks and merges are not drawn.`;
  return text;
}
