"use strict";
// The guided tour: each step shows a model on a string at a time, and highlights a part of the page.

const MARGIN = 8; // around what is highlighted, in pixels
const GROWS = 540; // the height to which the card of the stacks grows while it plays
const TOUR_PACE = 1800; // milliseconds per step, so that one can follow

const Tour = {
  steps: [],
  at: -1, // the number of the step that is shown; -1 if the tour is closed

  start(steps) {
    this.steps = steps;
    $("tour-open").hidden = !steps.length;
    $("tour-open").addEventListener("click", () => (this.at < 0 ? this.go(0) : this.close()));
    $("tour-back").addEventListener("click", () => this.back());
    $("tour-next").addEventListener("click", () => this.next());
    $("tour-close").addEventListener("click", () => this.close());
    $("tour-play").addEventListener("click", () => { pause(); go(0); play(TOUR_PACE); });
    $("tour-fold").addEventListener("click", () => this.fold(!$("tour").classList.contains("folded")));
    $("tour-dots").replaceChildren(...steps.map((step, place) => {
      const dot = html("button", { type: "button", title: step.title, "aria-label": `Step ${place + 1}: ${step.title}` }, `${place + 1}`);
      dot.addEventListener("click", () => this.go(place));
      return dot;
    }));
  },

  next() { return this.at + 1 < this.steps.length ? this.go(this.at + 1) : this.close(); },
  back() { return this.go(this.at - 1); },

  /** Hide the text of the tour in a small window, or show it again. */
  fold(folded) {
    $("tour").classList.toggle("folded", folded);
    $("tour-fold").textContent = folded ? "Show text" : "Hide text";
    $("tour-fold").setAttribute("aria-expanded", String(!folded));
    this.room();
    this.reveal();
  },

  /** Show a step, and the view that it is about. */
  async go(place, view = {}) {
    this.at = clamp(place, 0, this.steps.length - 1);
    const step = this.steps[this.at], last = this.at + 1 === this.steps.length;
    $("tour").hidden = $("skip-tour").hidden = false;
    $("tour-play").hidden = !step.play;
    $("tour-title").textContent = step.title;
    $("tour-text").replaceChildren(...(step.text + (source === Published ? step.published : "")).split("**").map((part, odd) => (odd % 2 ? html("b", {}, part) : part)));
    $("tour-back").disabled = this.at === 0;
    $("tour-next").textContent = last ? "End" : "Next";
    [...$("tour-dots").children].forEach((dot, number) => {
      if (number === this.at) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    this.room();
    pause();
    await choose(step.model, step.string, { ...view, t: view.t ?? (step.play ? 0 : step.t) });
    if (this.steps[this.at] !== step) return; // another step was chosen meanwhile
    this.reveal();
  },

  close() {
    const inside = $("tour").contains(document.activeElement);
    this.at = -1;
    $("tour").hidden = $("skip-tour").hidden = true;
    if (inside) $("tour-open").focus({ preventScroll: true });
    pause();
    this.room();
    this.light();
    if (view) show();
  },

  /** Keep the player below the panel while the page scrolls, or keep room for the panel below the page. */
  room() {
    const { position } = getComputedStyle($("tour")), height = $("tour").hidden ? 0 : $("tour").offsetHeight;
    const { style } = document.documentElement;
    style.setProperty("--tour", position === "sticky" ? `${height}px` : "0px");
    style.setProperty("--below", position === "fixed" ? `${height}px` : "0px");
  },

  /** Highlight the part that the step is about; drawings that are made again lose it. */
  light() {
    const part = this.at < 0 ? null : this.steps[this.at].part;
    for (const old of document.querySelectorAll(".lit")) old.classList.remove("lit");
    const found = part && ($(part) || document.querySelector(`[data-band="${part}"]`));
    if (found) found.classList.add("lit");
    return found;
  },

  /** Scroll until the part can be seen. Only this document scrolls: it may be embedded in another one. */
  reveal() {
    const part = this.light(), page = document.scrollingElement;
    if (!part) return;
    const box = part.getBoundingClientRect(), style = getComputedStyle(document.documentElement);
    const px = (name) => parseFloat(style.getPropertyValue(name)) || 0;
    const player = document.querySelector(".player");
    const above = px("--tour") + (getComputedStyle(player).position === "sticky" ? player.offsetHeight : 0) + MARGIN;
    const below = innerHeight - px("--below") - MARGIN;
    const { play } = this.steps[this.at], height = play ? Math.max(box.height, GROWS) : box.height;
    let by = 0;
    if (part.closest("header")) by = -page.scrollTop;
    else if (box.top < above || height > below - above) by = box.top - above;
    else if (box.top + height > below) by = box.top + height - below;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (by) page.scrollTo({ top: page.scrollTop + by, behavior: still ? "auto" : "smooth" });
  },
};
