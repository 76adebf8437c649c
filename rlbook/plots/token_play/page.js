/* The page: what is shown, and what the buttons do. transformer.js and learning.js stand above. */

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

/* Part 1 */

const text = { prompt: "", ids: [], written: [] };
const ended = () => text.written.at(-1) === tokenizer.eos || text.written.length === book.limit;
const logitsOf = (of) => [...row(of.forward([...text.ids, ...text.written]), text.ids.length + text.written.length - 1)];

function setPrompt(prompt) {
  Object.assign(text, { ids: tokenizer.encode(prompt), prompt, written: [] });
  find("prompt").value = prompt;
  drawText();
}

function choose(token) {
  if (ended()) return;
  text.written.push(token);
  drawText();
}

function drawToken() {
  const logits = logitsOf(model);
  choose(state.temperature === 0 ? likeliest(logits) : drawn(scores(logits, state), random.next()));
}

function finish() {
  while (!ended()) drawToken();
}

function next() {
  const logits = logitsOf(model), probabilities = [...distribution(logits, state)];
  return { text: text.prompt + tokenizer.decode(text.written), logits, probabilities, before: before && [...distribution(logitsOf(before), state)] };
}

function verdict() {
  const over = text.written.at(-1) === tokenizer.eos, answer = sumOf(text.prompt);
  if (!ended() || answer === null) return null;
  const said = tokenizer.decode(over ? text.written.slice(0, -1) : text.written);
  return { text: said, ended: over, answer, ...rewarded({ text: said, ended: over, ids: text.written, answer, limit: book.limit }, state.rewards) };
}

function drawText() {
  const given = text.ids.map((id) => make("span", { class: "token given" }, id === tokenizer.bos ? "start" : named(id)));
  find("text").replaceChildren(...given, ...text.written.map((id) => make("span", { class: "token" }, named(id))));
  const over = ended(), found = verdict(), answer = sumOf(text.prompt);
  for (const name of ["draw", "best", "finish"]) find(name).disabled = over;
  for (const name of ["back", "again"]) find(name).disabled = text.written.length === 0;
  find("problem").textContent = answer === null ? "This is no sum of two numbers, so no answer to it can be paid. A sum looks like 12+34="
    : /^\d\d\+\d\d=$/.test(text.prompt) ? "" : "The model has only seen sums of two numbers with two digits.";
  find("bars").replaceChildren(...(over ? [] : bars()));
  find("was").hidden = over || !before;
  find("verdict").replaceChildren(...(found ? judged(found) : []));
  find("sample").disabled = state.busy || answer === null || state.temperature === 0;
  find("groupNote").textContent = state.temperature === 0 ? "At temperature 0 all answers would be the same."
    : `to ${text.prompt} at temperature ${state.temperature}`;
}

/* The digits and the end stand alone; the others, which the model hardly ever writes, follow by probability where they have any. */
function bars() {
  const { probabilities, before: was } = next(), order = [...probabilities.keys()];
  const alone = order.filter((id) => /\d/.test(tokenizer.tokens[id])).concat(tokenizer.eos);
  const rest = order.filter((id) => !alone.includes(id) && probabilities[id] > 0.005).sort((a, b) => probabilities[b] - probabilities[a]);
  const count = order.length - alone.length - rest.length, small = 1 - [...alone, ...rest].reduce((sum, id) => sum + probabilities[id], 0);
  const shown = [...alone, ...rest].map((id) => {
    const track = make("span", { class: "track" }, make("i", { style: `width: ${100 * probabilities[id]}%` }));
    if (was) track.append(make("u", { style: `left: calc(${100 * was[id]}% - 1.5px)` }));
    const label = (was ? `${percent(was[id]).replace(" %", "")} → ` : "") + percent(probabilities[id]);
    return make("button", { class: "bar", onclick: () => choose(id), "aria-label": `choose ${named(id)}, ${label}` }, make("b", {}, named(id)), track, make("span", {}, label));
  });
  return [...shown, make("p", { class: "faint" }, `${count} other tokens together: ${percent(Math.max(small, 0))}`)];
}

function judged({ answer, parts, reward }) {
  const lines = Object.entries(parts).map(([name, value]) => make("tr", {}, make("td", {}, name), make("td", { class: "number" }, digits(value, 2)), make("td", { class: "number" }, `× ${state.rewards[name]}`)));
  const table = make("table", {}, ...lines, make("tr", {}, make("td", {}, make("b", {}, "reward R")), make("td", { class: "number" }, make("b", {}, digits(reward, 2))), make("td")));
  const wrong = parts.exact ? "The answer is right." : text.written.at(-1) === tokenizer.eos ? `The answer is wrong: right is ${answer} and then the end.` : `The answer was cut off after ${book.limit} tokens: right is ${answer} and then the end.`;
  return [make("p", {}, wrong), table];
}

/* Part 2 */

function sample() {
  const answer = sumOf(text.prompt);
  if (answer === null) throw new Error("the prompt is no sum, so its answers cannot be paid");
  if (state.temperature === 0) throw new Error("at temperature 0 all answers of a group would be the same");
  group = sampleGroup(model, tokenizer, text.prompt, answer, { ...state, limit: book.limit }, random);
  group.updates = 0;
  showGroup(strongest(group));
}

/* The token whose gradient is largest before an update, |A| (1 - π): the one worth looking at first. */
function strongest({ answers }) {
  const places = answers.flatMap(({ ids }, i) => ids.map((_, t) => [i, t]));
  const pull = ([i, t]) => (Math.abs(answers[i].advantage) + 1e-9) * (1 - Math.exp(answers[i].logProbs[t]));
  return places.reduce((best, place) => (pull(place) > pull(best) ? place : best));
}

function showGroup(at) {
  for (const answer of group.answers) answer.now = logProbs(model, group.prompt, answer.ids, group.temperature);
  chosen = at ?? chosen;
  drawGroup();
}

function comparedAgain() {
  if (!group) return;
  for (const answer of group.answers) answer.reward = Object.entries(state.rewards).reduce((sum, [name, weight]) => sum + weight * answer.parts[name], 0);
  compare(group, state);
  drawGroup();
}

function drawGroup() {
  const there = Boolean(group);
  for (const name of ["compared", "inside"]) find(name).hidden = !there;
  find("update").disabled = state.busy || !there;
  if (!there) return find("answers").replaceChildren();
  find("compared").replaceChildren(...comparison().map((line) => make("div", {}, line)));
  find("answers").replaceChildren(...group.answers.map(drawAnswer));
  find("inside").replaceChildren(...insideOf(...chosen).map((line) => make("div", {}, line)));
}

function comparison() {
  const rewards = group.answers.map(({ reward }) => reward), G = rewards.length, sum = rewards.reduce((a, b) => a + b, 0);
  const [first] = group.answers, spread = Math.sqrt(rewards.reduce((s, r) => s + (r - sum / G) ** 2, 0) / (G - 1));
  const others = state.baseline === "leave-one-out", base = others ? (sum - first.reward) / (G - 1) : sum / G;
  const lines = [`right answer: ${group.answer}   rewards: ${rewards.map((r) => digits(r, 2)).join(", ")}`,
    `baseline of answer 1 = mean of ${others ? "the others" : "all"} = ${digits(base)}${state.scale === "std" ? `,   standard deviation s = ${digits(spread)}` : ""}`];
  const divisor = state.scale === "std" ? ` / (s + 0.0001)` : "", number = state.scale === "std" ? ` / ${digits(spread + 1e-4, 4)}` : "";
  lines.push(`A of answer 1 = (R − baseline)${divisor} = (${digits(first.reward, 2)} − ${digits(base)})${number} = ${digits(first.advantage)}`);
  if (spread < 1e-12) lines.push("All rewards are equal, so every advantage and the gradient are 0; only the momentum of earlier updates still moves the weights. Draw another group, or pay for parts of the answer (prefix).");
  return lines;
}

/* Part 3 */

function drawAnswer(answer, i) {
  const side = answer.advantage > 0 ? "up" : answer.advantage < 0 ? "down" : "", after = group.updates > 0;
  const chips = answer.ids.map((id, t) => {
    const old = Math.exp(answer.logProbs[t]), now = Math.exp(answer.now[t]), tall = (p) => `height: ${Math.max(100 * p, 3)}%`;
    const pair = make("span", { class: "pair" }, make("i", { style: tall(old) }), ...(after ? [make("i", { style: tall(now) })] : []));
    const numbers = [make("small", {}, percent(old)), ...(after ? [make("small", {}, make("b", {}, percent(now)))] : [])];
    const shown = chosen[0] === i && chosen[1] === t ? " shown" : "";
    const label = `token ${t + 1} of answer ${i + 1}, ${named(id)}, probability ${percent(old)}${after ? `, now ${percent(now)}` : ""}`;
    return make("button", { class: `chip${shown}`, "aria-label": label, onclick: () => { chosen = [i, t]; drawGroup(); } }, make("b", {}, named(id)), pair, ...numbers);
  });
  const head = make("p", {}, `${i + 1}.  R = ${digits(answer.reward, 2)},  A = `, make("b", {}, (answer.advantage > 0 ? "+" : "") + digits(answer.advantage, 2)));
  const whole = `the whole answer: ${percent(total(answer.logProbs))}${after ? ` → ${percent(total(answer.now))}` : ""}`;
  return make("div", { class: `answer ${side}` }, head, make("div", { class: "tokens" }, ...chips), make("p", { class: "faint" }, whole));
}

const total = (logs) => Math.exp(logs.reduce((sum, value) => sum + value, 0));

/* The loss of one token with its numbers. */
function insideOf(i, t) {
  const answer = group.answers[i], A = answer.advantage, low = 1 - state.clip, high = 1 + state.clip;
  const { ratio, stopped, gain } = clippedGain(answer.now[t], answer.logProbs[t], A, state.clip), bounded = Math.min(Math.max(ratio, low), high);
  return [
    `token "${named(answer.ids[t])}" (place ${t + 1} of answer ${i + 1}):   log π_old = ${digits(answer.logProbs[t])},   log π = ${digits(answer.now[t])}`,
    `ρ = π / π_old = exp(${digits(answer.now[t])} − ${digits(answer.logProbs[t])}) = ${digits(ratio)}`,
    `min(ρ A, clip(ρ, ${digits(low, 1)}, ${digits(high, 1)}) A) = min(${digits(ratio * A)}, ${digits(bounded * A)}) = ${digits(gain)}`,
    stopped ? "The clip holds: this token gives the next update no gradient." : A === 0 ? "A = 0: this token gives no gradient." : `The next update makes this token ${A > 0 ? "more" : "less"} likely, as far as the other tokens allow.`,
  ];
}

const stepSettings = () => ({ ...state, averageDivisor: book.limit, maxGradNorm: book.maxGradNorm });

function remember(kind, rewards, share = null) {
  records.push({ update: adam.steps, kind, meanReward: rewards.length ? mean(rewards) : null, heldOut: share });
}

async function update() {
  if (!group) throw new Error("there is no group yet");
  return alone(async () => {
    const start = performance.now();
    before = model.copy();
    const step = grpoStep(model, adam, [group], stepSettings()), took = performance.now() - start;
    group.updates += 1;
    showGroup();
    drawText();
    remember("group", group.answers.map(({ reward }) => reward), await evaluate());
    drawCurve();
    find("updateNote").textContent = `Update ${adam.steps}: loss ${digits(step.loss)}, gradient norm ${digits(step.gradNorm, 2)}, ${percent(step.stoppedShare)} of the tokens stopped by the clip, ${took.toFixed(0)} ms.`;
    return step;
  });
}

/* Part 4 */

/* One thing at a time; buttons wait. */
async function alone(work) {
  if (state.busy) throw new Error("an update is being made");
  state.busy = true;
  for (const name of ["update", "sample", "reset"]) find(name).disabled = true;
  await settled();
  try {
    return await work();
  } finally {
    state.busy = state.stopping = false;
    find("reset").disabled = false;
    find("train").textContent = "train";
    drawText();
    drawGroup();
  }
}

async function evaluate() {
  const parts = [];
  for (let i = 0; i < held.length; i += 16) {
    parts.push(shareRight(model, tokenizer, held.slice(i, i + 16), book.limit));
    await settled();
  }
  return mean(parts);
}

async function train(rounds = state.rounds) {
  return alone(async () => {
    before = model.copy();
    find("train").textContent = "stop";
    for (let done = 1; done <= rounds && !state.stopping; done++) {
      const groups = Array.from({ length: state.prompts }, () => {
        const prompt = training[random.below(training.length)];
        return sampleGroup(model, tokenizer, prompt, sumOf(prompt), { ...state, temperature: state.temperature || 1, limit: book.limit }, random);
      });
      await settled();
      const step = grpoStep(model, adam, groups, stepSettings()), last = done === rounds || state.stopping;
      const silent = groups.filter(({ answers }) => answers.every(({ advantage }) => advantage === 0)).length;
      remember("round", groups.flatMap(({ answers }) => answers.map(({ reward }) => reward)), done % 5 === 0 || last ? await evaluate() : null);
      find("trainNote").textContent = `Round ${done} of ${rounds}: mean reward ${digits(records.at(-1).meanReward)}, ${silent} of ${groups.length} groups had equal rewards and taught nothing, gradient norm ${digits(step.gradNorm, 2)}.`;
      drawCurve();
      await settled();
    }
    if (group) showGroup();
    return records;
  });
}

function drawCurve() {
  const svg = (kind, attributes, said = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = said;
    return element;
  };
  const rewards = records.filter(({ meanReward }) => meanReward !== null), shares = records.filter(({ heldOut }) => heldOut !== null);
  const low = Math.min(0, ...rewards.map(({ meanReward }) => meanReward)), high = Math.max(1, ...rewards.map(({ meanReward }) => meanReward));
  const wide = Math.max(find("curve").clientWidth, 300), right = wide - 16;
  const end = Math.max(10, records.at(-1).update), x = (update) => 44 + (update / end) * (right - 44), y = (value) => 215 - ((value - low) / (high - low)) * 200;
  const marks = [low, ...[0.25, 0.5, 0.75].map((share) => low + share * (high - low)), high];
  const parts = marks.flatMap((value) => [svg("line", { x1: 44, x2: right, y1: y(value), y2: y(value) }), svg("text", { x: 38, y: y(value) + 4, "text-anchor": "end" }, digits(value, 2))]);
  for (const update of [0, Math.round(end / 2), end]) parts.push(svg("text", { x: x(update), y: 234, "text-anchor": update === end ? "end" : "middle" }, update));
  parts.push(svg("text", { x: (44 + right) / 2, y: 254, "text-anchor": "middle" }, "updates"));
  parts.push(svg("polyline", { points: rewards.map(({ update, meanReward }) => `${x(update)},${y(meanReward)}`).join(" "), fill: "none", stroke: "var(--blue)", "stroke-width": 2 }));
  if (rewards.length === 1) parts.push(svg("circle", { cx: x(rewards[0].update), cy: y(rewards[0].meanReward), r: 3, fill: "var(--blue)" }));
  for (const { update, heldOut } of shares) parts.push(svg("circle", { cx: x(update), cy: y(heldOut), r: 5, fill: "var(--orange)" }));
  const last = shares.at(-1);
  if (last) parts.push(svg("text", { x: Math.min(x(last.update) + 9, right - 44), y: y(last.heldOut) - 8, style: "fill: var(--orange)" }, percent(last.heldOut)));
  find("curve").setAttribute("viewBox", `0 0 ${wide} 260`);
  find("curve").replaceChildren(...parts);
  find("curve").setAttribute("aria-label", `after ${records.at(-1).update} updates ${last ? percent(last.heldOut) : "not yet measured"} of the held-out sums are right`);
}

async function reset() {
  if (state.busy) throw new Error("an update is being made");
  model = shipped.copy();
  adam = new Adam(model);
  [before, group, chosen, records] = [null, null, [0, 0], [{ update: 0, kind: "start", meanReward: null, heldOut: null }]];
  random = new Random(state.seed);
  find("updateNote").textContent = "First draw a group.";
  find("trainNote").textContent = "";
  drawGroup();
  setPrompt(text.prompt || book.prompt);
  drawCurve();
  await alone(async () => { records[0].heldOut = await evaluate(); });
  drawCurve();
}

/* The controls */

function set(name, value) {
  if (name === "seed") random = new Random(value);
  else if (!(name in SETTINGS)) throw new Error(`no setting is called ${name}; there are seed, ${Object.keys(SETTINGS).join(", ")}`);
  const input = find(name), taken = WORDS.has(name) ? String(value) : Number(value), least = Number(input.min || -Infinity), most = Number(input.max || Infinity);
  const options = input.options && [...input.options].map((option) => option.value);
  if (options ? !options.some((option) => (WORDS.has(name) ? option === taken : Number(option) === taken)) : !(taken >= least && taken <= most))
    throw new Error(`${name} must be ${options ? `one of ${options.join(", ")}` : `from ${least} to ${most}`}, got ${value}`);
  state[name] = taken;
  input.value = value;
  const output = input.parentElement.querySelector("output");
  if (output) output.textContent = name === "topK" && taken === 0 ? "all" : name === "topP" || name === "temperature" ? taken.toFixed(name === "topP" ? 2 : 1) : taken;
  drawText();
  ["baseline", "scale"].includes(name) ? comparedAgain() : drawGroup();
}

function setReward(name, weight) {
  if (!(name in REWARDS)) throw new Error(`no reward is called ${name}; there are ${Object.keys(REWARDS).join(", ")}`);
  state.rewards = { ...state.rewards, [name]: Number(weight) };
  find(`reward-${name}`).value = String(weight);
  drawText();
  comparedAgain();
}

for (const name of Object.keys(REWARDS)) {
  const select = make("select", { id: `reward-${name}`, onchange: (event) => setReward(name, event.target.value) }, ...[0, 0.1, 0.2, 0.5, 1].map((weight) => make("option", {}, weight)));
  select.value = String(state.rewards[name]);
  find("weights").append(make("label", {}, `${name} ×`, select));
}
for (const rate of [3e-5, 1e-4, 3e-4, 1e-3, 3e-3]) find("learningRate").append(make("option", { value: rate }, String(rate)));
for (const name of ["seed", ...Object.keys(SETTINGS)]) find(name)[find(name).type === "range" ? "oninput" : "onchange"] = (event) => {
  try { set(name, event.target.value); } catch (error) { event.target.value = state[name]; find("problem").textContent = error.message; }
};
const tried = (prompt) => { try { setPrompt(prompt); } catch (error) { find("problem").textContent = error.message; } };
find("prompt").oninput = (event) => tried(event.target.value);
find("another").onclick = () => setPrompt(held[random.below(held.length)]);
find("draw").onclick = drawToken;
find("best").onclick = () => choose(likeliest(logitsOf(model)));
find("finish").onclick = finish;
find("back").onclick = () => { text.written.pop(); drawText(); };
find("again").onclick = () => { text.written = []; drawText(); };
find("sample").onclick = () => { sample(); find("updateNote").textContent = "The group is new: every ratio is 1."; };
find("update").onclick = () => update();
find("train").onclick = () => { if (!state.busy) train(); else state.stopping = true; };
find("reset").onclick = () => reset();
window.onresize = () => drawCurve();
find("heldCount").textContent = held.length;
const size = Object.values(shipped.weights).reduce((sum, w) => sum + w.data.length, 0).toLocaleString("en").replace(",", " ");
for (const place of [find("size"), document.querySelector(".size")]) place.textContent = size;

const plain = (value) => JSON.parse(JSON.stringify(value, (_, inner) => (ArrayBuffer.isView(inner) ? [...inner] : inner)));
window.rlbookPlay = {
  set, setReward, setPrompt, choose, drawToken, finish, reset,
  tokens: book.tokens,
  next: () => plain(next()),
  verdict: () => plain(verdict()),
  sampleGroup: () => { sample(); return plain(group); },
  update: async () => plain({ ...(await update()), group }),
  train: async (rounds) => plain(await train(rounds)),
  evaluate,
  state: () => plain({ ...state, prompt: text.prompt, written: text.written, updates: adam.steps, group, records }),
};
random = new Random(0);
[model, before] = [shipped.copy(), null];
text.prompt = book.prompt;
window.rlbookPlay.ready = reset().then(() => { for (const name of Object.keys(SETTINGS)) set(name, state[name]); });
