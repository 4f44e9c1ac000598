"use strict";
// Where answers come from: the server or, on a published page, files beside the page.

const PAGE = Array.from({ length: 4 }, () => Math.random().toString(36).slice(2, 10)).join(""); // names this page
let asked = 0; // numbers its requests, which may arrive in another order

async function ask(path, body, signal) {
  const post = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { ...post, signal });
  } catch {
    throw new Error("The server does not answer; is ndstack explore still running?");
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({ error: answer.statusText }))).error);
  return answer;
}

const Server = {
  models: async () => (await ask("api/models")).json(),
  tour: async () => (await ask("api/tour")).json(),
  model: async (id, signal) => (await ask(`api/models/${encodeURIComponent(id)}`, null, signal)).json(),
  look: async (model, text, signal) => (await ask("api/look", { model, text, page: PAGE, number: ++asked }, signal)).json(),
  sample: async (model, text, signal) => (await (await ask("api/sample", { model }, signal)).json()).text,
  save: async (place) => (await ask("api/save", place)).blob(),
  stop: () => { ask("api/stop", { page: PAGE, number: ++asked }).catch(() => {}); },
  leave: () => {
    navigator.sendBeacon("api/stop", new Blob([JSON.stringify({ page: PAGE, number: ++asked })], { type: "application/json" }));
  },
};

/** A page without a server: `published` is in catalogue.js, and answers are scripts, which file:// may load, too. */
const arrived = new Map();
const answerIs = (number, view) => arrived.set(number, view); // answers call it

function loaded(number) {
  if (arrived.has(number)) return arrived.get(number);
  return new Promise((done, failed) => {
    const script = html("script", { src: `answers/${number}.js` });
    script.addEventListener("load", () => { script.remove(); done(arrived.get(number)); });
    script.addEventListener("error", () => { script.remove(); failed(new Error(`answers/${number}.js is missing.`)); });
    document.head.append(script);
  });
}

/** The symbols of an alphabet, in one line. */
function listed(alphabet) {
  const separator = alphabet.some((symbol) => symbol.length > 1) ? ", " : " ";
  return [...alphabet.slice(0, 10), ...(alphabet.length > 10 ? ["..."] : [])].join(separator);
}

/** The first part of a typed string that is no symbol, as the server splits it: longest symbols first, at spaces. */
function unknownSymbol(text, alphabet) {
  const known = new Set(alphabet);
  if (alphabet.every((symbol) => symbol.length === 1)) return [...text].find((symbol) => !known.has(symbol));
  const words = text.split(" ").filter(Boolean);
  for (let from = 0; from < words.length; ) {
    let to = words.length;
    while (to > from && !known.has(words.slice(from, to).join(" "))) to--;
    if (to === from) return words[from];
    from = to;
  }
  return undefined;
}

const Published = {
  models: async () => published.models.map((one) => one.id),
  tour: async () => published.tour,
  model: async (id) => {
    const found = published.models.find((one) => one.id === id);
    if (!found) throw new Error(`there is no model '${id}' here`);
    return found;
  },
  look: async (id, text) => {
    const model = await Published.model(id), word = text.trim().replace(/\s+/g, " ");
    if (Object.hasOwn(model.strings, word)) return { ...await loaded(model.strings[word]), model };
    const unknown = unknownSymbol(word, model.alphabet);
    if (unknown !== undefined) throw new Error(`'${unknown}' is not in the alphabet of ${id}: ${listed(model.alphabet)}`);
    const all = model.complete ? `all strings of up to ${model.complete} symbols and a few others` : `${Object.keys(model.strings).length} strings`;
    throw new Error(`This page works without a server and has ${all} for ${id}; ndstack explore reads any string.`);
  },
  sample: async (id, text) => {
    const { members } = await Published.model(id), others = members.filter((one) => one && one !== text);
    if (!others.length) throw new Error(`This page has no other string of the language of ${id}; ndstack explore has more.`);
    return others[Math.floor(Math.random() * others.length)];
  },
  stop: () => {},
  leave: () => {},
};

const source = typeof published === "undefined" ? Server : Published;
