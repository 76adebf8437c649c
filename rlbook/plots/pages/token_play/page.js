/* What all parts of the page share. transformer.js and learning.js stand above. */

const find = (name) => document.getElementById(name);
const tokenizer = new Tokenizer(book.tokens);
const shipped = new Transformer(book.sizes, readSafetensors(Uint8Array.from(atob(book.weights), (character) => character.charCodeAt(0))));
const held = book.heldOut.slice(0, book.shown), training = trainingSums(book.heldOut);
const SETTINGS = { temperature: 1, topK: 0, topP: 1, groupSize: 8, baseline: "mean", scale: "std", learningRate: 1e-4, clip: 0.2, average: "token", prompts: 16, rounds: 20 };
const WORDS = new Set(["baseline", "scale", "average"]);
const state = { ...SETTINGS, rewards: { exact: 1, prefix: 0, number: 0, length: 0 }, seed: 0, busy: false };
let model, adam, before, random, group, chosen, records;
/* before: the model as it was before the last update; null where there was none. chosen: [answer, place] of the token in the equation. */

function make(kind, attributes = {}, ...inside) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) name.startsWith("on") ? (element[name] = value) : element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

const digits = (value, places = 3) => value.toFixed(places).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
const percent = (p) => (p >= 0.9995 || p === 0 ? (100 * p).toFixed(0) : p < 0.001 ? "<0.1" : (100 * p).toFixed(1)) + " %";
const named = (id) => (id === tokenizer.eos ? "end" : tokenizer.tokens[id]);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));
