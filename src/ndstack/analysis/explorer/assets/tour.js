"use strict";
// The guided tour: each step shows a model on a string at a time, and highlights a part of the page.

const Tour = {
  steps: [],
  at: -1, // the number of the step that is shown; -1 if the tour is closed

  start(steps) {
    this.steps = steps;
    $("tour-open").hidden = !steps.length;
    $("tour-open").addEventListener("click", () => (this.at < 0 ? this.go(0) : this.close()));
    $("tour-back").addEventListener("click", () => this.go(this.at - 1));
    $("tour-next").addEventListener("click", () => (this.at + 1 < this.steps.length ? this.go(this.at + 1) : this.close()));
    $("tour-close").addEventListener("click", () => this.close());
    $("tour-dots").replaceChildren(...steps.map((step, place) => {
      const dot = html("button", { type: "button", title: step.title, "aria-label": `Step ${place + 1}: ${step.title}` }, `${place + 1}`);
      dot.addEventListener("click", () => this.go(place));
      return dot;
    }));
  },

  /** Show a step, and the view that it is about. */
  async go(place, view = {}) {
    this.at = clamp(place, 0, this.steps.length - 1);
    const step = this.steps[this.at], last = this.at + 1 === this.steps.length;
    $("tour").hidden = false;
    $("tour-title").textContent = step.title;
    $("tour-text").replaceChildren(...step.text.split("**").map((part, odd) => (odd % 2 ? html("b", {}, part) : part)));
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
    if (step.play && view.t === undefined) play();
  },

  close() {
    this.at = -1;
    $("tour").hidden = true;
    this.room();
    this.light();
    if (view) show();
  },

  /** Keep the player below the panel while the page scrolls. */
  room() {
    const sticky = getComputedStyle($("tour")).position === "sticky" && !$("tour").hidden;
    document.documentElement.style.setProperty("--tour", sticky ? `${$("tour").offsetHeight}px` : "0px");
  },

  /** Highlight the part that the step is about; drawings that are made again lose it. */
  light() {
    const part = this.at < 0 ? null : this.steps[this.at].part;
    for (const old of document.querySelectorAll(".lit")) old.classList.remove("lit");
    const found = part && ($(part) || document.querySelector(`[data-band="${part}"]`));
    if (found) found.classList.add("lit");
    return found;
  },

  reveal() {
    const part = this.light();
    if (part) part.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  },
};
