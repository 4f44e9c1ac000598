"use strict";
// A run as a tree: a node is a place on the stack, a leaf a symbol that is read.

class TreeDrawing {
  constructor(box, run, automaton, inputs) {
    this.box = box;
    this.automaton = automaton;
    this.inputs = inputs;
    this.parts = []; // [element, first step, last step]
    this.next = 10;
    this.deepest = 0;
    const steps = inputs.length;
    this.leaves = []; // [middle, half of the room] of each
    const group = svg("g", {});
    this.lines = svg("g", {});
    this.nodes = group;
    const root = this.lay(run.tree, 0);
    root.from = 0;
    root.to = steps;
    this.drawing = svg("svg", {
      width: Math.max(this.next + 10, 60), height: (this.deepest + 1) * 38 + 10, role: "img",
      "aria-label": `Tree of the run: ${this.bracketed(run.tree)}`,
    }, this.lines, this.nodes);
    box.replaceChildren(this.drawing);
  }

  /** Place a node and what is under it; returns where it is and which steps it spans. */
  lay(node, depth) {
    const y = depth * 38 + 20;
    this.deepest = Math.max(this.deepest, depth);
    if (typeof node === "number") {
      const symbol = visible(this.inputs[node - 1]), width = Math.max(20, textWidth(symbol) + 12);
      const x = this.next + width / 2;
      this.next += width;
      this.leaves[node] = [x, width / 2 + 10];
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
    const tip = depth ? `${node.label}: on the stack from step ${from} to ${to}` : `${node.label}: the initial bottom`;
    const box = svg("g", { tip },
      svg("rect", { x: x - width / 2, y: y - 11, width, height: 22, rx: 7, class: `paper k${kind}`, "stroke-width": 1.6 }),
      svg("text", { x, y: y + 4, "text-anchor": "middle", class: "small strong" }, node.label));
    this.nodes.append(box);
    this.parts.push([box, depth ? from : 0, to]);
  }

  bracketed(node) {
    if (typeof node === "number") return this.inputs[node - 1];
    return `(${[node.label, ...node.children.map((child) => this.bracketed(child))].join(" ")})`;
  }

  /** Fade what has not been read yet, and keep the current leaf in sight. */
  show(time) {
    for (const [element, from] of this.parts) element.classList.toggle("later", from > time);
    const [x, half] = this.leaves[time] || [0, 0], { box } = this;
    if (x < box.scrollLeft + half || x > box.scrollLeft + box.clientWidth - half) box.scrollLeft = x - box.clientWidth / 2;
  }
}
