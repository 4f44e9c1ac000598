"use strict";
// The page: what is asked for, what is shown, and keys. A saved page has its view inside and asks for nothing.

const saved = $("saved") ? JSON.parse($("saved").textContent) : null;
const state = { model: "", text: "", t: 0, stack: 0, run: 0, fit: null }; // fit: null until it is chosen
const SHORT = 16; // up to so many steps, the cards stand beside the time axis
const PACE = 650; // milliseconds per step
let computing = null; // what ends the work that is under way
let view = null, timeline = null, tree = null, player = null, drawn = 0;

const stackNow = () => (view && view.stacks[state.stack]) || null;
const runNow = () => {
  const stack = stackNow();
  return stack && stack.automaton ? stack.automaton.runs[state.run] || null : null;
};

function say(text, error = false) {
  $("message").textContent = text;
  $("message").className = error ? "error" : "";
}

/** Do what asks the server: say so if it takes a while, and let it be stopped. Newer work supersedes it. */
async function work(job) {
  if (computing) computing.abort();
  const own = computing = new AbortController(), began = Date.now();
  const current = () => computing === own;
  const slow = setInterval(() => {
    if (!current()) return;
    const seconds = Math.floor((Date.now() - began) / 1000);
    say(seconds ? `computing … ${seconds} s` : "computing …");
    $("stop").hidden = false;
    $("main").setAttribute("aria-busy", "true");
  }, 250);
  try {
    await job(own.signal);
  } catch (error) {
    if (!current()) return;
    say(own.signal.aborted ? "Stopped." : error.message, true);
    outdate();
  } finally {
    clearInterval(slow);
    if (current()) {
      computing = null;
      $("stop").hidden = true;
      $("main").removeAttribute("aria-busy");
    }
  }
}

/** Dim what is shown if it is not what is typed. */
function outdate() {
  if (!view || (view.text === $("text").value.trim() && view.model.id === state.model)) return;
  $("main").classList.add("stale");
  $("stale").textContent = `Below is still ${view.text ? fitted(view.text, 160) : "the empty string"}.`;
}

/** Ask for a string and show it; what was typed stays if it is wrong. */
const look = (place = {}) => work((signal) => read(signal, place));

async function read(signal, place) {
  state.text = $("text").value;
  const found = await source.look(state.model, state.text, signal);
  signal.throwIfAborted();
  say("");
  present(found, place);
}

/** End the work under way, here and in the server. */
function stopComputing() {
  if (computing) computing.abort();
  source.stop();
}

/** Take the tape of the chosen stack: an encoder and a decoder read different strings. */
function takeTape() {
  const { inputs, first } = stackNow() || view;
  Object.assign(view, { inputs, first });
  $("slider").max = inputs.length;
  return inputs.length;
}

function present(found, place) {
  view = { ...found };
  $("main").classList.remove("stale");
  $("stale").textContent = "";
  state.stack = clamp(place.stack || 0, 0, Math.max(0, view.stacks.length - 1));
  const steps = takeTape();
  state.t = clamp(place.t === undefined ? steps : place.t, 0, steps);
  state.run = 0;
  const runs = stackNow() && stackNow().automaton ? stackNow().automaton.runs.length : 0;
  state.run = clamp(place.run || 0, 0, Math.max(0, runs - 1));
  $("main").hidden = false;
  $("stack").replaceChildren(...view.stacks.map((stack, i) => html("option", { value: i }, `${stack.where}: ${stack.kind}`)));
  $("stack").value = state.stack;
  $("stack-label").hidden = view.stacks.length < 2;
  draw();
}

/** Everything that does not change with time, then what does. */
function draw() {
  if (!view) return;
  const stack = stackNow(), automaton = stack && stack.automaton, run = runNow();
  drawn = $("main").clientWidth; // before a scroll bar may come
  layOut(stack);
  if (stack) timeline.arcs();
  timeline.tape();
  if (stack) drawStack(stack, automaton, run);
  $("time-note").textContent = timeNote(view, stack, automaton);
  $("stacks-title").textContent = automaton ? "Most probable stacks" : "Stacks";
  drawTreeCard(automaton, run);
  $("fit").hidden = !timeline.long && (!tree || tree.fits);
  $("fit").textContent = timeline.fitted || (tree && tree.scale < 1) ? "Full size" : "Fit to width";
  Tour.light();
  show();
}

/** Find the widths of columns: beside the cards, above them, or, for a long string, squeezed until all can be seen. */
function layOut(stack) {
  const place = (short, fit) => {
    $("main").classList.toggle("short", short);
    return new Timeline($("time"), view, stack, go, fit);
  };
  timeline = place(view.inputs.length <= SHORT, false);
  if (!timeline.fits) timeline = place(false, false);
  timeline.long = !timeline.fits;
  timeline.fitted = timeline.long && (state.fit ?? timeline.widest < 20);
  if (timeline.fitted) timeline = Object.assign(place(false, true), { long: true, fitted: true });
}

function drawStack(stack, automaton, run) {
  if (run) drawRun(timeline, run, automaton, runCaption(automaton, run));
  if (automaton && automaton.posterior) {
    const among = automaton.accepting ? "the accepting runs" : "all runs";
    timeline.heat("Actions", `what ${among} on the whole string do at each step, as shares of them`, MARKED, automaton.posterior);
  }
  timeline.heat(automaton ? "Weights" : "Actions", WEIGHTS[stack.kind], stack.action_names, stack.actions);
  const meaning = automaton ? READINGS : "the vector that the network reads";
  const shares = stack.readings.every((row) => row.every((x) => x >= 0 && x < 1.001))
    && !stack.reading_names.some((name) => /(^|, )v\d+$/.test(name));
  const used = stack.reading_names.map((_, row) => row)
    .filter((row) => stack.reading_names.length <= 14 || stack.readings.some((now) => Math.abs(now[row]) > 1e-6));
  const left = used.length < stack.reading_names.length ? `${meaning}; rows that are always 0 are left out` : meaning;
  timeline.heat("Readings", left, used.map((row) => stack.reading_names[row]),
    stack.readings.map((now) => used.map((row) => now[row])), shares ? 1 : 0);
  if (automaton) drawWFA(timeline, automaton);
}

function drawTreeCard(automaton, run) {
  const some = Boolean(run && view.inputs.length);
  const groups = some ? sameTrees(automaton.runs) : [];
  $("run-label").hidden = groups.length < 2;
  tree = null;
  if (!some) {
    const none = !stackNow() ? "A model without a stack has no parse."
      : !automaton ? `A ${stackNow().kind} stack has no runs, so there is no parse.`
      : view.inputs.length ? "No run survives, so there is no parse." : "Nothing has been read, so there is nothing to parse.";
    $("tree").replaceChildren(html("p", { class: "note" }, none));
    $("tree-note").textContent = "";
    return;
  }
  $("run").replaceChildren(...groups.map((group) => html("option", { value: group[0] }, runOption(automaton.runs, group))));
  $("run").value = groups.find((group) => group.includes(state.run))[0];
  $("tree-note").textContent = `A node is a place on the stack: its first leaf was read when it was pushed, its last when it was popped. `
    + `This run: ${runText(automaton, run)}.`
    + (automaton.accept && !automaton.accepting ? " No run accepts, so this tree is not a parse of the string." : "");
  const fit = state.fit ?? Math.max(...view.inputs.map((one) => one.length)) === 1;
  tree = new TreeDrawing($("tree"), run, automaton, view.inputs, fit);
}

/** What changes with time. */
function show() {
  const { t } = state, steps = view.inputs.length, automaton = stackNow() && stackNow().automaton;
  $("slider").value = t;
  const symbol = t ? visible(view.inputs[t - 1]) : null;
  $("slider").setAttribute("aria-valuetext", t ? `step ${t} of ${steps}, read ${symbol}` : "before the first step");
  $("now").replaceChildren(`t = ${t} of ${steps}`, ...(t ? [", read ", html("b", {}, symbol)] : []));
  timeline.show(t);
  if (automaton) {
    $("stacks-note").textContent = stacksNote(automaton, t);
    drawStacks($("stacks"), automaton, t);
  } else {
    $("stacks-note").textContent = "";
    $("stacks").replaceChildren(html("p", { class: "note" }, stackNow()
      ? `A ${stackNow().kind} stack is one stack of blended vectors; the attention shows what is on its top.`
      : "This model has no stack."));
  }
  $("next-title").textContent = nextTitle(view);
  $("next-note").textContent = nextNote(view, t);
  drawNext($("next"), view, t);
  if (tree) tree.show(t);
  const hash = new URLSearchParams({ model: state.model, text: view.text, t });
  if (state.stack) hash.set("stack", state.stack);
  if (state.run) hash.set("run", state.run);
  if (Tour.at >= 0) hash.set("tour", Tour.at + 1);
  if (!saved) history.replaceState(null, "", `#${hash}`);
}

function go(time) {
  if (!view) return;
  state.t = clamp(time, 0, view.inputs.length);
  show();
}

const shownAs = (label, shape) => {
  $("play").setAttribute("aria-label", label);
  $("play").querySelector("path").setAttribute("d", shape);
};

function pause() {
  clearInterval(player);
  player = null;
  shownAs("Play", "M4 2.5v11L13 8z");
}

function play(pace = PACE) {
  if (player) return pause();
  if (!view) return;
  if (state.t >= view.inputs.length) go(0);
  shownAs("Pause", "M4 3h3v10H4zM9 3h3v10H9z");
  player = setInterval(() => { go(state.t + 1); if (state.t >= view.inputs.length) pause(); }, pace);
}

const choose = (id, text, place = {}) => work(async (signal) => {
  $("model").value = id;
  try {
    const model = await source.model(id, signal);
    signal.throwIfAborted();
    state.model = model.id;
    describe(model);
    if (text === undefined) text = model.examples[0];
  } finally {
    if ($("model").value === id || !$("model").value) $("model").value = state.model;
  }
  if (text === undefined) await fill(signal);
  else $("text").value = text;
  await read(signal, place);
});

function describe(model) {
  const symbols = model.alphabet.slice(0, 24).flatMap((symbol) => [" ", html("code", {}, visible(symbol))]);
  const comma = model.alphabet.some((symbol) => symbol.length > 1) ? "," : "";
  const listed = symbols.map((one, place) => (one === " " && place ? `${comma} ` : one));
  $("hint").replaceChildren(`${model.label} · reads`, ...listed, model.alphabet.length > 24 ? " …" : "",
    saved || source === Published ? "" : ` · up to ${model.longest} symbols`);
  $("about").textContent = model.about || "";
  $("examples").replaceChildren(...model.examples.map((value) => html("option", { value })));
  $("chips").replaceChildren(...(saved ? [] : model.examples).map((value) => {
    const chip = html("button", { type: "button", title: `Read ${value}` },
      value.length > 30 && !value.includes(" ") ? `${value.slice(0, 10)}… ${value.length} symbols` : value);
    chip.addEventListener("click", () => { $("text").value = value; look(); });
    return chip;
  }));
}

/** Type a string of the language. */
async function fill(signal) {
  const text = await source.sample(state.model, $("text").value, signal);
  signal.throwIfAborted();
  $("text").value = text;
}

const sample = () => work(async (signal) => {
  await fill(signal);
  await read(signal, { t: state.t || undefined });
});

async function save() {
  try {
    const { model, t, stack, run } = state;
    const page = await source.save({ model, text: view.text, t, stack, run });
    const address = URL.createObjectURL(page);
    html("a", { href: address, download: `ndstack-${model.replace(/[^\w.-]/g, "_")}.html` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    say("Saved as one file that works by itself.");
  } catch (error) {
    say(error.message, true);
  }
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link to this view is copied.");
  } catch {
    say(`The link to this view: ${location.href}`);
  }
}

function fromHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const int = (name) => (/^\d+$/.test(hash.get(name) || "") ? Number(hash.get(name)) : undefined);
  return { model: hash.get("model"), text: hash.get("text") ?? undefined, tour: int("tour"),
    place: { t: int("t"), stack: int("stack"), run: int("run") } };
}

/** Show what the address says, or else a model. */
async function follow(model) {
  const wanted = fromHash();
  if (wanted.tour >= 1 && wanted.tour <= Tour.steps.length) {
    const { string } = Tour.steps[wanted.tour - 1];
    if (wanted.text === undefined || wanted.text === string) return Tour.go(wanted.tour - 1, wanted.place);
  }
  return choose(wanted.model || model, wanted.text, wanted.place);
}

function listen() {
  let waiting = null;
  $("question").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); look(); });
  $("text").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => look(), 450); });
  $("model").addEventListener("change", () => choose($("model").value));
  $("sample").addEventListener("click", sample);
  $("stop").addEventListener("click", stopComputing);
  addEventListener("pagehide", () => {
    if (!saved) source.leave();
  });
  $("save").addEventListener("click", save);
  $("link").addEventListener("click", copyLink);
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  $("start").addEventListener("click", () => go(0));
  $("back").addEventListener("click", () => go(state.t - 1));
  $("forth").addEventListener("click", () => go(state.t + 1));
  $("end").addEventListener("click", () => go(view.inputs.length));
  $("play").addEventListener("click", () => play());
  $("fit").addEventListener("click", () => { state.fit = $("fit").textContent === "Fit to width"; draw(); });
  $("stack").addEventListener("change", () => {
    state.stack = Number($("stack").value);
    state.run = 0;
    const before = view.inputs, steps = takeTape();
    if (view.inputs.join() !== before.join()) state.t = steps;
    draw();
  });
  $("run").addEventListener("change", () => { state.run = Number($("run").value); draw(); });
  document.addEventListener("keydown", keys);
  addEventListener("hashchange", () => { if (!saved && (fromHash().model || fromHash().tour)) follow(); });
  let later = null;
  new ResizeObserver(() => { // of the window, or by a scroll bar
    if ($("main").clientWidth === drawn) return;
    clearTimeout(later);
    later = setTimeout(() => { Tour.room(); draw(); }, 120);
  }).observe($("main"));
}

/** Give something in the header the focus; only this document scrolls, not one that it is embedded in. */
function focusOn(id) {
  document.scrollingElement.scrollTo({ top: 0 });
  $(id).focus({ preventScroll: true });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input[type=text], select");
  if (event.key === "Escape" && typing) return event.target.blur();
  if (typing) return;
  const steps = view ? view.inputs.length : 0;
  const doing = {
    ArrowLeft: () => go(state.t - 1), ArrowRight: () => go(state.t + 1), Home: () => go(0), End: () => go(steps),
    "/": () => { focusOn("text"); $("text").select(); }, m: () => focusOn("model"), d: Theme.toggle,
    s: () => saved || sample(),
  };
  if (Tour.at >= 0) Object.assign(doing, { n: () => Tour.next(), p: () => Tour.back() });
  if (event.key === " " && !event.target.matches("button")) doing[" "] = () => play();
  if (!doing[event.key]) return;
  event.preventDefault();
  doing[event.key]();
}

async function start() {
  Theme.start();
  Tip.start();
  listen();
  if (saved) {
    const { model, text } = saved.view;
    for (const id of ["model", "text", "sample", "save", "link"]) $(id).disabled = true;
    $("question").querySelector("[type=submit]").disabled = true;
    $("model").append(html("option", { value: model.id }, model.id));
    $("text").value = text;
    state.model = model.id;
    describe(model);
    say("A saved view: slide through time; ndstack explore reads other strings.");
    return present(saved.view, saved.place);
  }
  if (source === Published) $("save").hidden = true;
  try {
    const models = await source.models(), { first, steps } = await source.tour();
    $("model").append(...models.map((id) => html("option", { value: id }, id)));
    Tour.start(steps);
    if (first && !fromHash().model && !fromHash().tour) await Tour.go(0);
    else await follow(models[0]);
  } catch (error) {
    say(error.message, true);
  }
}

start();
