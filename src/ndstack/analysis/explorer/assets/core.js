"use strict";
// Small things that all drawings use. Scripts are plain and share one scope, so that a saved page needs no modules.

const $ = (id) => document.getElementById(id);

/** An element of HTML or SVG with attributes and children; `tip` is what hovering shows. */
function make(space, tag, attributes = {}, ...children) {
  const element = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    element.setAttribute(name === "tip" ? "data-tip" : name, value);
  }
  element.append(...children);
  return element;
}
const html = (tag, attributes, ...children) => make("http://www.w3.org/1999/xhtml", tag, attributes, ...children);
const svg = (tag, attributes, ...children) => make("http://www.w3.org/2000/svg", tag, attributes, ...children);

const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

/** A probability or weight, short. */
function number(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 0.9995 && size < 1 && x > 0) return "0.999…";
  return size >= 0.001 && size < 1e4 ? String(Number(x.toFixed(3))) : power(x);
}
function power(x) {
  const [digits, exponent] = x.toExponential(1).split("e");
  return `${digits}·10${[...exponent].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || (c === "-" ? "⁻" : "")).join("")}`;
}
function percent(x) {
  if (x > 0 && x < 0.001) return "<0.1%";
  return `${(100 * x).toFixed(x >= 0.9995 ? 0 : 1)}%`;
}

/** A symbol so that it can be seen. */
const visible = (symbol) => (symbol === " " ? "␣" : symbol);

/** Classes for the colour of the stack symbol with this number; the bottom is grey. */
const tone = (index) => (index <= 0 ? 0 : 1 + ((index - 1) % 7));

/** Actions are told apart by their lines, because colours are for stack symbols; the styles are in style.css. */
const MARKED = ["push", "replace", "pop"];
const actionMark = (name, x, y) => svg("path", { class: `flow ${name}`, d: `M${x} ${y}h26`, "stroke-width": 3 });

const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text, size = 12) {
  ruler.font = `${size}px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif`;
  return ruler.measureText(text).width;
}
/** Text cut to a width. */
function fitted(text, width, size = 12) {
  if (textWidth(text, size) <= width) return text;
  let short = text;
  while (short.length > 1 && textWidth(`${short}…`, size) > width) short = short.slice(0, -1);
  return short.length ? `${short}…` : "";
}

const Tip = {
  start() {
    const tip = $("tip");
    const hide = () => { tip.hidden = true; };
    document.addEventListener("pointermove", (event) => {
      const owner = event.target.closest && event.target.closest("[data-tip]");
      if (!owner) return hide();
      tip.textContent = owner.dataset.tip;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${clamp(event.clientX + 14, 4, innerWidth - box.width - 4)}px`;
      const under = event.clientY + 18;
      tip.style.top = `${under + box.height > innerHeight - 4 ? event.clientY - box.height - 12 : under}px`;
    });
    document.addEventListener("pointerleave", hide);
    document.addEventListener("scroll", hide, true);
  },
};

const Theme = {
  start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let chosen = null;
    try { chosen = localStorage.getItem("ndstack-theme"); } catch { /* a saved page may not keep anything */ }
    const apply = () => {
      document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    };
    this.toggle = () => {
      chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("ndstack-theme", chosen); } catch { /* the same */ }
      apply();
    };
    dark.addEventListener("change", apply);
    $("theme").addEventListener("click", this.toggle);
    apply();
  },
};
