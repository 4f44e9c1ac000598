"use strict";
// A run as a tree: a node is a place on the stack, a leaf a symbol that is read.

class TreeDrawing {
  /** `fit` scales the tree down to the width of the box. */
  constructor(box, run, automaton, inputs, fit = false) {
    this.box = box;
    this.automaton = automaton;
    this.inputs = inputs;
    this.moves = run.moves;
    this.parts = []; // [element, first step, last step]
    this.next = 10;
    this.deepest = 0;
    const steps = inputs.length;
    this.row = depthBelow(run.tree) > 24 ? 27 : 38;
    this.leaves = []; // [middle, half of the room, height] of each
    const group = svg("g", {});
    this.lines = svg("g", {});
    this.nodes = group;
    const root = this.lay(run.tree, 0);
    root.from = 0;
    root.to = steps;
    const width = Math.max(this.next + 10, 60), height = (this.deepest + 1) * this.row + 10;
    this.fits = width <= box.clientWidth;
    this.scale = fit ? clamp(box.clientWidth / width, 0.2, 1) : 1;
    this.drawing = svg("svg", {
      width: width * this.scale, height: height * this.scale, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Tree of the run: ${this.bracketed(run.tree)}`,
    }, this.lines, this.nodes);
    box.replaceChildren(this.drawing);
  }

  /** Place a node and what is under it; returns where it is and which steps it spans. */
  lay(node, depth) {
    const y = depth * this.row + 20;
    this.deepest = Math.max(this.deepest, depth);
    if (typeof node === "number") {
      const symbol = visible(this.inputs[node - 1]), width = Math.max(20, textWidth(symbol) + 12);
      const x = this.next + width / 2;
      this.next += width;
      this.leaves[node] = [x, width / 2 + 10, y];
      const text = svg("text", { x, y: y + 4, "text-anchor": "middle", class: "mono", tip: `step ${node} reads ${symbol}` }, symbol);
      this.nodes.append(text);
      this.parts.push([text, node, node]);
      return { x, y, from: node, to: node };
    }
    const start = this.next;
    const children = node.children.map((child) => this.lay(child, depth + 1));
    const width = Math.max(26, textWidth(node.label, 12) + 14);
    if (!children.length) this.next += width + 6;
    else if (this.next - start < width + 4) this.next = start + width + 4;
    const x = children.length ? (children[0].x + children.at(-1).x) / 2 : start + width / 2;
    const from = children.length ? children[0].from : 0, to = children.length ? children.at(-1).to : 0;
    this.drawNode(node, x, y, width, from, to, depth);
    for (const child of children) {
      const line = svg("path", { class: "branch", d: `M${x} ${y + 11}C${x} ${y + 24} ${child.x} ${child.y - 24} ${child.x} ${child.y - 11}` });
      this.lines.append(line);
      this.parts.push([line, child.from, child.to]);
    }
    return { x, y, from, to };
  }

  drawNode(node, x, y, width, from, to, depth) {
    const last = node.label.split("→").at(-1), kind = tone(this.automaton.symbols.indexOf(last));
    const tip = depth ? `${node.label}\npushed at step ${from}, ${this.lastOf(node, to)}` : `${node.label}\nthe initial bottom`;
    const box = svg("g", { tip },
      svg("rect", { x: x - width / 2, y: y - 11, width, height: 22, rx: 7, class: `paper k${kind}`, "stroke-width": 1.6 }),
      svg("text", { x, y: y + 4, "text-anchor": "middle", class: "small strong" }, node.label));
    this.nodes.append(box);
    this.parts.push([box, depth ? from : 0, to]);
  }

  /** How a place on the stack ended: the moves tell whether its last leaf was read by a pop. */
  lastOf(node, to) {
    const own = node.children.at(-1) === to;
    return own && this.moves[to - 1][0] === 2 ? `popped at step ${to}` : "still there at the end";
  }

  bracketed(node) {
    if (typeof node === "number") return this.inputs[node - 1];
    return `(${[node.label, ...node.children.map((child) => this.bracketed(child))].join(" ")})`;
  }

  /** Fade what has not been read yet, and keep the current leaf in sight. */
  show(time) {
    for (const [element, from] of this.parts) element.classList.toggle("later", from > time);
    const [x, half, y] = (this.leaves[time] || [0, 0, 0]).map((one) => one * this.scale), { box } = this;
    if (x < box.scrollLeft + half || x > box.scrollLeft + box.clientWidth - half) box.scrollLeft = x - box.clientWidth / 2;
    if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - 20) box.scrollTop = y - box.clientHeight / 2;
  }
}

const depthBelow = (node) => (typeof node === "number" ? 0 : 1 + Math.max(0, ...node.children.map(depthBelow)));
