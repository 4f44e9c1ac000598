"use strict";
// The most probable stacks before and after the current step; between them, where runs fork and merge.

const SMALL = 700; // in a window that is less high, the stacks are drawn smaller
const ACTION = { 1: "push", 0: "replace", "-1": "pop" };

function drawStacks(box, automaton, time) {
  const now = automaton.times[time], before = time ? automaton.times[time - 1] : null;
  const columns = Math.max(now.stacks.length, before ? before.stacks.length : 0, 1);
  const left = textWidth(`time ${time}`, 11) + 6, w = clamp((box.clientWidth - left) / columns, 48, 118);
  const small = innerHeight < SMALL, [tall, less] = small ? [17, 12] : [21, 15];
  const head = headHeight(automaton, [now, ...(before ? [before] : [])], w);
  const upper = before ? stackShape(before.stacks, head, less, 7) : null;
  const lower = stackShape(now.stacks, head, tall, 12);
  const gap = small ? 44 : 74, base = before ? upper.height + gap : 0;
  const height = base + lower.height + 4;
  const width = left + columns * w;
  const drawing = svg("svg", { width, height, role: "img", "aria-label": stacksInWords(automaton, time) });
  const label = (text, y) => drawing.append(svg("text", { x: 0, y, class: "small soft" }, text));
  const x = (place) => left + (place + 0.5) * w;
  if (before) {
    label(`time ${time - 1}`, upper.height - 4);
    before.stacks.forEach((one, place) => {
      drawing.append(oneStack(one, automaton, x(place), upper.height - upper.sizes[place], w, head, less, 7));
    });
    for (const [from, to, p] of now.flows) {
      const y1 = upper.height + 3, y2 = base - 3, middle = (y1 + y2) / 2;
      const action = ACTION[now.stacks[to][1].length - before.stacks[from][1].length];
      drawing.append(svg("path", {
        d: `M${x(from)} ${y1}C${x(from)} ${middle} ${x(to)} ${middle} ${x(to)} ${y2}`, class: `flow ${action}`,
        "stroke-width": 1.4 + 10 * p, tip: `${action} at step ${time}\n${percent(p)} of the runs that are alive go this way`,
      }));
    }
  }
  const accepts = (one) => time === automaton.times.length - 1 && isAccepting(automaton, one);
  label(`time ${time}`, base + 14);
  now.stacks.forEach((one, place) => drawing.append(oneStack(one, automaton, x(place), base, w, head, tall, 12, accepts)));
  box.replaceChildren(drawing);
  if (before) {
    box.append(html("div", { class: "legend" }, ...["push", "replace", "pop"].map((name) =>
      html("span", {}, svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, actionMark(name, 0, 4)), name))));
  }
}

const wideOf = (w) => Math.min(w - 4, 84);

/** Whether a run that ends with this stack accepts: an accepting state, and the bottom alone. */
const isAccepting = (automaton, [state, stack, , whole]) =>
  Boolean(automaton.accept) && automaton.accept.includes(state) && whole && stack.length === 1;

/** Room for state and probability: one line, or two if states have long names. */
function headHeight(automaton, times, w) {
  const widths = times.flatMap((time) => time.stacks.map((one) =>
    textWidth(automaton.states[one[0]], 11) + 1.08 * textWidth(percent(one[2]), 11)));
  return Math.max(0, ...widths) > wideOf(w) - 2 ? 35 : 22;
}

/** The heights of stacks as drawn: state and probability, then boxes from the top down. */
function stackShape(stacks, head, tall, most) {
  const sizes = stacks.map(([, stack, , whole]) => head + tall * (Math.min(stack.length, most) + (whole ? 0 : 0.7)));
  return { sizes, height: Math.max(head, ...sizes) };
}

function oneStack(one, automaton, x, y, w, head, tall, most, accepts = () => false) {
  const [state, stack, p, whole] = one, accepting = accepts(one);
  const names = stack.map((symbol) => automaton.symbols[symbol]);
  const text = `${whole ? "" : "… "}${names.join(" ")}`;
  const tip = `state ${automaton.states[state]}\nstack, top last: ${text}`
    + `\n${whole ? "its probability, as a share of the runs alive" : "all stacks with this upper part"}: ${number(p)}`
    + (accepting ? "\nits runs accept the string" : "");
  const group = svg("g", { tip, opacity: most < 12 ? 0.75 : 1 });
  const wide = wideOf(w), line = y + head - 6;
  group.append(
    svg("rect", { x: x - wide / 2, y: line, width: wide, height: 3, rx: 1.5, class: "cell" }),
    svg("rect", { x: x - wide / 2, y: line, width: Math.max(1, wide * p), height: 3, rx: 1.5, class: "positive" }),
    svg("text", { x: x - wide / 2, y: y + 11, class: "small soft" },
      fitted(automaton.states[state], wide, 11)),
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
        fitted(`${automaton.symbols[item.symbol]}${accepting ? " ✓" : ""}`, wide - 6, 11)),
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

/** What the stacks have to do with the string: only what has been read counts. */
function afterPrefix(time, steps) {
  if (time === steps) return "Stacks after the whole string.";
  const read = time ? `the first ${time} of ${steps} steps` : "anything is read";
  return `Stacks ${time ? "after" : "before"} ${read}, whatever comes later; Best run is chosen for the whole string, so it need not be among the first here.`;
}

/** What to say above the stacks. */
function stacksNote(automaton, time) {
  const { stacks } = automaton.times[time];
  if (!stacks.length) return "No run survives to this time, so there are no stacks.";
  const sum = stacks.reduce((total, [, , p]) => total + p, 0);
  const cut = stacks.some(([, , , whole]) => !whole);
  const parts = [afterPrefix(time, automaton.times.length - 1), "Percentages are shares among the runs that are alive at this time; when runs die, the others share out their part."];
  if (sum < 0.9995) parts.push(`The stacks shown have ${percent(sum)} together.`);
  if (cut) parts.push("⋮ under the upper part of a stack stands for all that can be below, where there are too many stacks to list.");
  if (time === automaton.times.length - 1 && automaton.accepting) {
    parts.push("Only the runs with ✓ accept: Best run and Actions count them alone, so a run with a small share here can have probability 1 there.");
  }
  if (automaton.window) parts.push(`The stack has a window of ${automaton.window} steps: forks and merges are not drawn.`);
  return parts.join(" ");
}
