"use strict";
// What the model expects next, beside what the language says.

function drawNext(box, view, time) {
  const row = view.first === null ? -1 : time - view.first;
  if (!view.predictions || row < 0) {
    const text = view.predictions ? view.notes.before || "Nothing is predicted before the first step." : view.accepted ? "It accepts this string." : "It rejects this string.";
    box.replaceChildren(html("p", { class: "note" }, text));
    return;
  }
  const model = view.predictions[row];
  const truth = view.truth && (view.decides || view.truth[row].some((p) => p > 0)) ? view.truth[row] : null;
  const order = model.map((_, place) => place);
  const most = 14;
  if (order.length > most) {
    order.sort((a, b) => Math.max(model[b], truth ? truth[b] : 0) - Math.max(model[a], truth ? truth[a] : 0));
    order.length = most;
  }
  const tall = truth ? 34 : 24, left = clamp(12 + Math.max(...order.map((o) => textWidth(visible(view.outputs[o])))), 40, 130);
  const width = Math.max(240, box.clientWidth), room = width - left - 62;
  const drawing = svg("svg", { width, height: order.length * tall + 4, role: "img", "aria-label": inWords(view, model, truth) });
  const after = view.inputs[time];
  order.forEach((output, place) => {
    const y = place * tall + 2, name = view.outputs[output];
    const follows = time === view.inputs.length ? output === view.outputs.length - 1 : name === after;
    const tip = `${visible(name)}\nmodel: ${number(model[output])}${truth ? `\nlanguage: ${number(truth[output])}` : ""}`
      + (follows && time < view.inputs.length ? "\nthis is what follows in the string" : "");
    drawing.append(svg("text", {
      x: left - 10, y: y + tall / 2 + 2, "text-anchor": "end", class: follows ? "mono strong" : "mono",
    }, fitted(visible(name), left - 14)));
    drawing.append(nextBar(left, y + 3, room, model[output], "positive", tip));
    if (truth) drawing.append(nextBar(left, y + 16, room, truth[output], "truth", tip));
  });
  const legend = html("div", { class: "legend" }, html("span", {}, html("i", { class: "positive" }), "model"));
  if (truth) legend.append(html("span", {}, html("i", { class: "truth" }), "language"));
  legend.append(html("span", {}, `${view.outputs.at(-1)}: the string ${view.decides ? "is in the language" : "ends here"}`));
  if (model.length > most) legend.append(html("span", {}, `the ${most} most probable of ${model.length}`));
  box.replaceChildren(drawing, legend);
}

const nextTitle = (view) => (view.decides ? "Decision" : view.written === null ? "Next symbol" : "Next symbol of the output");

/** What to say above the bars. */
function nextNote(view, time) {
  const row = time - view.first;
  const nowhere = view.truth && !view.decides && row >= 0 && !view.truth[row].some((p) => p > 0);
  return nowhere ? view.notes.nowhere : view.notes.next || "";
}

function nextBar(x, y, room, p, kind, tip) {
  return svg("g", { tip },
    svg("rect", { x, y, width: room, height: 11, rx: 3, class: "cell" }),
    svg("rect", { x, y, width: Math.max(p > 0 ? 1 : 0, room * p), height: 11, rx: 3, class: kind }),
    svg("text", { x: x + room + 8, y: y + 9.5, class: "small" }, number(p)));
}

function inWords(view, model, truth) {
  return model.map((p, place) =>
    `${view.outputs[place]}: ${number(p)}${truth ? ` (language ${number(truth[place])})` : ""}`).join("; ");
}
