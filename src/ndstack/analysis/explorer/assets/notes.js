"use strict";
// What the page says in words about a view.

/** Whether a recogniser accepts the string and, if not, why. */
function verdict(view, automaton) {
  if (view.accepted === null || view.decides) return ""; // decisions are in the notes, with their probability
  if (view.accepted) return "It accepts this string.";
  if (!automaton || !automaton.accept) return "It rejects this string.";
  if (automaton.accepting) return "It rejects this string: not every grammar of the intersection has a run that accepts it.";
  const states = automaton.accept.map((state) => automaton.states[state]).join(" or ");
  return `It rejects this string: at its end, no run is in an accepting state (${states}) with nothing but the bottom ${automaton.symbols[0]} on its stack.`;
}

/** What to say above the bands. */
function timeNote(view, stack, automaton) {
  if (!stack) return [view.notes.stack, view.notes.string].filter(Boolean).join(" ");
  const parts = [`${stack.where}: ${stack.kind} stack.`, verdict(view, automaton), view.notes.string];
  if (automaton && automaton.entropy !== null) {
    parts.push(`Entropy over ${automaton.accepting ? "accepting runs" : "runs"}: ${number(automaton.entropy)} nats.`);
  }
  if (automaton && !automaton.runs.length) parts.push("No run survives the whole string.");
  if (!automaton) parts.push("It has no runs: its stack is one blend of vectors, so there are no single stacks, no stack WFA and no parse.");
  return parts.filter(Boolean).join(" ");
}

const runText = (automaton, run) =>
  `probability ${number(run.probability)} among ${automaton.accepting ? "accepting runs" : "all runs"}`;

/** What a run is: the best of those that accept, or else of those that are left. */
function runCaption(automaton, run) {
  const text = `of the runs on the whole string: its stack at each time, top above, and its state; ${runText(automaton, run)}`;
  if (!automaton.accept || automaton.accepting) return text;
  const last = automaton.states[run.moves.length ? run.moves.at(-1)[3] : 0];
  const trapped = last === "trap" ? ", here in state trap, which survives on every string" : "";
  return `no run accepts, so this is only the most probable of the runs that are left${trapped}; ${text}`;
}

const WEIGHTS = {
  nondeterministic: "the weights of all pushes that the network offers at a step, divided by those of all actions, whether a run can use them or not; the same for replace and pop",
  superposition: "the probabilities that the network gives",
  stratification: "the strengths that the network gives",
};
const READINGS = "what the network sees: the weight of all runs in a state with a symbol on top, divided by the weight of all runs";

const PLACES = ["best", "second best", "third best"];

/** Runs that have the same tree, together: [numbers of the runs]. */
function sameTrees(runs) {
  const groups = new Map();
  runs.forEach(({ tree }, place) => {
    const key = JSON.stringify(tree);
    groups.set(key, [...(groups.get(key) || []), place]);
  });
  return [...groups.values()];
}

function runOption(runs, group) {
  const names = group.map((place) => PLACES[place]).join(" and ");
  const [first, last] = [runs[group[0]], runs[group.at(-1)]].map((run) => number(run.probability));
  return group.length === 1 ? `${names}, ${first}`
    : `${names}: ${group.length} runs, one tree, ${first === last ? `${first} each` : `${first} to ${last}`}`;
}
