"use strict";
// The band of one run: its stack and its state at each time.

/** Draw the stacks of a run as blocks from push to pop, the bottom below, and a row of its states. */
function drawRun(timeline, run, automaton, text) {
  const stacks = stacksOf(run), deepest = Math.max(...stacks.map((stack) => stack.length));
  const tall = clamp(Math.floor(220 / deepest), 2, 20), high = deepest * tall + 6, row = 18;
  timeline.caption("Best run", text);
  const [gutter, plot] = timeline.band(high + row, "The stack of the run at each time, top above, and its state");
  const label = (y, name) => gutter.append(svg("text", { x: GUTTER - 10, y, "text-anchor": "end", class: "small soft" }, name));
  label(14, "top");
  if (deepest * tall > 30) label(high - 6, "bottom");
  label(high + 12, "state");
  for (let depth = 0; depth < deepest; depth++) {
    for (let time = 0; time < stacks.length; ) {
      const element = stacks[time][depth];
      let end = time + 1;
      if (!element) { time = end; continue; }
      while (end < stacks.length && stacks[end][depth] && stacks[end][depth].written === element.written) end++;
      drawBlock(timeline, plot, automaton, { stacks, depth, from: time, to: end }, (deepest - 1 - depth) * tall + 3, tall);
      time = end;
    }
  }
  drawStates(timeline, plot, run, automaton, high, row);
}

function drawBlock(timeline, plot, automaton, { stacks, depth, from, to }, y, tall) {
  const { w } = timeline, element = stacks[from][depth], name = automaton.symbols[element.symbol];
  const width = (to - from) * w - Math.min(1.5, w / 4), left = timeline.x(from) - w / 2 + Math.min(0.75, w / 8);
  const end = stacks[to] ? `${stacks[to][depth] ? "replaced" : "popped"} at step ${to}` : null;
  plot.append(svg("rect", {
    x: left, y: y + (tall > 3 ? 0.5 : 0), width, height: tall > 3 ? tall - 1 : tall, rx: Math.min(4, tall / 4),
    class: `f${tone(element.symbol)}`, "fill-opacity": 0.88, tip: `${name}\n${lifeOf(element, end)}`,
  }));
  if (tall >= 13) {
    plot.append(svg("text", {
      x: left + width / 2, y: y + tall / 2 + 4, "text-anchor": "middle", class: "small strong inverse", "pointer-events": "none",
    }, fitted(name, width - 2, 11)));
  }
}

/** When a symbol came onto the stack and when it left it, in words. */
function lifeOf({ pushed, written }, end) {
  const begin = !written ? "the initial bottom" : written === pushed ? `pushed at step ${pushed}`
    : `written at step ${written}, in place of ${pushed ? `what was pushed at step ${pushed}` : "the initial bottom"}`;
  return `${begin}, ${end || "still there at the end"}`;
}

/** The state at each time: its name where there is room, and always on hovering. */
function drawStates(timeline, plot, run, automaton, y, row) {
  const states = [0, ...run.moves.map(([, , , target]) => target)], { w } = timeline;
  for (let time = 0; time < states.length; ) {
    let end = time + 1;
    while (end < states.length && states[end] === states[time]) end++;
    const name = automaton.states[states[time]], width = (end - time) * w - Math.min(2, w / 4), left = timeline.x(time) - w / 2 + 0.5;
    const tip = `state ${name} from time ${time} to ${end - 1}`;
    plot.append(svg("rect", { x: left, y: y + 1, width, height: row - 3, rx: 4, class: "cell", tip }));
    if (width > textWidth(name, 11)) {
      plot.append(svg("text", { x: left + width / 2, y: y + 12, "text-anchor": "middle", class: "small", "pointer-events": "none" }, name));
    }
    time = end;
  }
}

/** The stack at each time of a run: elements with their symbol, the step that pushed their place, the step that wrote them. */
function stacksOf(run) {
  let stack = [{ symbol: 0, pushed: 0, written: 0 }];
  const found = [stack];
  run.moves.forEach(([action, , symbol, , pushed], step) => {
    const top = stack.at(-1);
    if (action === 0) stack = [...stack, { symbol: pushed, pushed: step + 1, written: step + 1 }];
    else if (action === 1) {
      const same = symbol === pushed; // nothing changes
      stack = [...stack.slice(0, -1), { symbol: pushed, pushed: top.pushed, written: same ? top.written : step + 1 }];
    } else stack = stack.slice(0, -1);
    found.push(stack);
  });
  return found;
}
