"use strict";
// The stack WFA: a node is a configuration type at a time, a path from the root to the current time is a stack.

function drawWFA(timeline, automaton) {
  const { states, symbols, times } = automaton;
  const kinds = new Set(times.flatMap((time) => time.nodes.map(([at, q, x]) => (at < 0 ? null : `${q}, ${x}`))));
  const rows = states.flatMap((q) => symbols.map((x) => `${q}, ${x}`)).filter((kind) => kinds.has(kind));
  const row = new Map(rows.map((kind, place) => [kind, place]));
  const tall = rows.length > 16 ? 20 : 28, top = 14;
  const height = top + rows.length * tall + 6;
  timeline.caption("Stack WFA", "all stacks at once: each path from the left to the current column is one; wider is more probable");
  const [gutter, plot] = timeline.band(height, "The stack WFA at the current time");
  const y = (kind) => top + (row.get(kind) + 0.5) * tall;
  for (const kind of rows) {
    gutter.append(svg("text", { x: GUTTER - 10, y: y(kind) + 4, "text-anchor": "end", class: "small soft" },
      fitted(kind, GUTTER - 14, 11)));
    plot.append(svg("line", { class: "grid", x1: LEFT, x2: timeline.width, y1: y(kind), y2: y(kind), opacity: 0.5 }));
  }
  const drawing = svg("g", {});
  plot.append(drawing);
  const place = ([at, q, x]) => (at < 0 ? [9, height / 2] : [timeline.x(at), y(`${q}, ${x}`)]);
  timeline.updates.push((now) => {
    const { nodes, edges } = times[now];
    const largest = clamp(timeline.w / 2.4, 3.2, 8);
    drawing.replaceChildren(
      ...edges.map((edge) => wfaEdge(edge, nodes, place, symbols)),
      ...nodes.map((node) => {
        const [at, q, x, p] = node, [cx, cy] = place(node);
        const current = at === now;
        const tip = at < 0 ? "below the bottom, where every path begins"
          : `at time ${at} in state ${q} with ${x} on top\n${percent(p)} of the runs have been here, and ${x} is still on their stacks`;
        return svg("circle", {
          cx, cy, r: Math.max(2, largest * (0.35 + 0.65 * Math.sqrt(p))), tip, "stroke-width": current ? 2.2 : 1.2,
          class: `k${tone(symbols.indexOf(x))} ${current ? "paper" : `f${tone(symbols.indexOf(x))}`}`,
        });
      }),
    );
  });
}

function wfaEdge([from, to, symbol, log, p], nodes, place, symbols) {
  const [x1, y1] = place(nodes[from]), [x2, y2] = place(nodes[to]);
  const span = nodes[to][0] - nodes[from][0];
  const bow = Math.abs(y1 - y2) < 1 && span > 1 ? Math.min(26, 5 + 2.5 * span) : 0;
  const bend = Math.max(6, 0.45 * (x2 - x1));
  const [at, q, x] = nodes[from], below = at < 0 ? "the initial bottom" : `in the place that was pushed at step ${at + 1}, in state ${q}, onto ${x}`;
  const tip = `${symbol}, ${below}\non the stacks of ${percent(p)} of the runs`
    + `\nlog of the weight of all ways from there to here: ${number(log)}`;
  return svg("path", {
    d: `M${x1} ${y1}C${x1 + bend} ${y1 - bow} ${x2 - bend} ${y2 - bow} ${x2} ${y2}`, tip,
    class: `edge k${tone(symbols.indexOf(symbol))}`, "stroke-width": 0.7 + 5.3 * p,
    "stroke-opacity": 0.35 + 0.6 * p,
  });
}
