/* What the buttons do, and `window.rlbookPlay`, by which a script does the same. */

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
