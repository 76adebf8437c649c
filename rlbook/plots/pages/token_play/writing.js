/* Part 1 of the page: the text so far, and the probabilities of the next token. */

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
  find("groupNote").textContent = answer === null ? "Write a sum above: only answers to a sum can be paid." : state.temperature === 0 ? "At temperature 0 all answers would be the same."
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
