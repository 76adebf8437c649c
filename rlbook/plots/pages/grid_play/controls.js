// The controls: sliders, buttons, tools, keys, the address, and what programs may call.

const sliders = {}, priceInputs = {};

function makeControls() {
  for (const name of [...Object.keys(PRESETS), "your own"]) find("preset").add(new Option(name));
  for (const name of Object.keys(METHODS)) find("method").add(new Option(WORDS[name].name, name));
  for (const [name, [sign, title, meaning, values]] of Object.entries(SLIDERS)) {
    const label = document.createElement("label");
    label.innerHTML = `<span><b>${sign}</b> ${title}</span> <input type="range" min="0" max="${values.length - 1}" step="1"> <output></output>`;
    label.title = meaning;
    const [, input, output] = label.children;
    input.setAttribute("aria-label", `${sign} ${title}: ${meaning}`);
    input.oninput = () => set(name, values[input.value]);
    sliders[name] = { label, input, output };
    find("sliders").append(label);
  }
  for (const [key, [name]] of Object.entries(TOOLS)) {
    const button = document.createElement("button");
    button.textContent = name;
    button.setAttribute("role", "radio");
    button.onclick = () => setTool(key);
    button.dataset.tool = key;
    find("tools").append(button);
  }
  for (const [name, meaning] of Object.entries(PRICES)) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "number", step: "any" });
    input.onchange = () => attempt(() => changePrice(name, input.valueAsNumber));
    label.append(meaning, input);
    priceInputs[name] = input;
    find("prices").append(label);
  }
  makeLegend();
}

function makeLegend() {
  const rect = (fill) => `<svg viewBox="0 0 24 24"><rect x="1" y="1" width="22" height="22" fill="${fill}" stroke="var(--line)"/></svg>`;
  const items = [
    [`<svg viewBox="-15 -10 30 20"><path d="M-14 -2.5H3V-8L14 0L3 8V2.5H-14Z" fill="var(--ink)"/></svg>`, "best action; several arrows: equally good, or a policy's probabilities"],
    [`<svg viewBox="0 0 24 24"><circle cx="12" cy="12" r="8" fill="var(--agent)"/></svg>`, "the agent; orange frame: the state just updated"],
    [`<svg viewBox="0 0 24 24"><circle cx="12" cy="12" r="8" fill="none" stroke="var(--trace)" stroke-width="3"/></svg>`, "trace (λ); line: a simulation (tree search)"],
    [rect("var(--wall)"), "wall"],
    [rect("color-mix(in srgb, var(--good) 35%, var(--paper))"), "goal G"],
    [rect("color-mix(in srgb, var(--bad) 45%, var(--paper))"), "pit P, paler: cliff C"],
  ];
  find("legend").innerHTML = items.map(([picture, text]) => `<div><dt>${picture}</dt><dd>${text}</dd></div>`).join("");
}

function set(name, value) {
  if (name === "slip") return setWorld({ ...description, slip: value }, { keep: true });
  settings[name] = run.settings[name] = value;
  if (name === "gamma") findBest(run.world);
  showSliders();
  showCommand();
  stale = true;
  show();
}

function setTool(key) {
  tool = key;
  for (const button of find("tools").children) button.setAttribute("aria-checked", String(button.dataset.tool === key));
  find("learned").classList.toggle("draws", key !== "look");
  find("toolHelp").innerHTML = TOOLS[key][1] + (key === "reward" ? ` <input id="pays" type="number" step="any" value="-3" aria-label="reward">` : "");
}

function setMethod(method) {
  run.method = method;
  settings.alpha = DEFAULT_ALPHA[method] ?? SETTINGS.alpha;
  begin(run.world);
  showMethod();
  show();
}

function changePrice(name, value) {
  if (Number.isNaN(value)) throw new Error(`${PRICES[name]} must be a number`);
  const size = { rows: run.world.rows, columns: run.world.columns, [name]: value };
  if (name !== "rows" && name !== "columns") return setWorld({ ...description, [name]: value }, { keep: true });
  if (!Number.isInteger(value) || value < 1 || value > MOST) throw new Error(`${name} must be a whole number from 1 to ${MOST}, got ${value}`);
  setWorld(resized(size.rows, size.columns));
}

// Does it, or says why not.
function attempt(action) {
  try {
    action();
    find("said").textContent = "";
  } catch (error) {
    find("said").textContent = error.message;
    find("seed").value = seed;
    showWorldNumbers();
  }
}

function showWorldNumbers() {
  for (const [name, input] of Object.entries(priceInputs)) input.value = description[name] ?? run.world[name];
}

function restart() {
  begin(run.world);
  show();
}

const stepOnce = () => { pause(); advance(1); show(); };
const oneMove = () => { const at = () => `${run.returns.length} ${run.time}`, before = at(); runUntil(() => at() !== before); };
const oneEpisode = () => { const episodes = run.returns.length; runUntil(() => run.returns.length > episodes); };
const runOrPause = () => { if (timer === null) play(); else { pause(); show(); } };

function onKey(event) {
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = { ArrowUp: 0, ArrowDown: 1, ArrowLeft: 2, ArrowRight: 3 }, onBoard = event.target === find("learned");
  if (onBoard && event.key in moves) moveCursor(moves[event.key]);
  else if (onBoard && event.key === "Enter") apply(cursor ?? run.world.start, false);
  else if (onBoard && event.key === "s") moveStart(cursor ?? -1);
  else if (event.key === "n") stepOnce();
  else if (event.key === "m" && !find("move").hidden) oneMove();
  else if (event.key === "e" && !find("episode").hidden) oneEpisode();
  else if (event.key === " " && !["BUTTON", "SUMMARY"].includes(event.target.tagName)) runOrPause();
  else if (event.key === "0") restart();
  else return;
  event.preventDefault();
}

function moveCursor(action) {
  const { rows, columns, start } = run.world, state = cursor ?? start;
  const row = Math.min(rows - 1, Math.max(0, Math.floor(state / columns) + MOVES[action][0]));
  const column = Math.min(columns - 1, Math.max(0, state % columns + MOVES[action][1]));
  cursor = selected = row * columns + column;
  show();
}

// The address: #world=JSON&method=NAME&seed=N&gamma=0.9, each part may be left out.
function address() {
  const parts = new URLSearchParams({ world: JSON.stringify(description), method: run.method, seed: String(seed) });
  for (const name of WORDS[run.method].uses) parts.set(name, String(settings[name]));
  return `${location.href.split("#")[0]}#${parts}`;
}

function fromAddress() {
  const parts = new URLSearchParams(location.hash.slice(1)), given = {}, preset = parts.get("preset") ?? "Maze-v0", names = ["world", "preset", "method", "seed", ...Object.keys(SETTINGS)];
  for (const name of parts.keys()) if (!names.includes(name)) throw new Error(`the address may have ${names.join(", ")}, got ${name}`);
  if (!(preset in PRESETS)) throw new Error(`preset must be one of ${Object.keys(PRESETS).join(", ")}, got ${preset}`);
  for (const name of Object.keys(SETTINGS)) if (parts.has(name)) given[name] = Number(parts.get(name));
  const world = parts.has("world") ? parsed(parts.get("world")) : PRESETS[preset];
  load(world, { method: parts.get("method") ?? "q_learning", seed: Number(parts.get("seed") ?? 1), settings: given });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the world is no JSON: ${error.message}`);
  }
}

function setSeed(value) {
  if (!Number.isInteger(value)) throw new Error(`the seed must be a whole number, got ${value}`);
  seed = value;
  restart();
}

function setSpeed(value) {
  find("speed").value = value;
  find("pace").textContent = `${perSecond()} a second`;
}

// Begins in a world, by a method, from a seed.
function load(world, { method = run.method, seed: from = 1, settings: given = {} } = {}) {
  const made = makeWorld(world);
  checkSettings(given);
  if (!Number.isInteger(from)) throw new Error(`the seed must be a whole number, got ${from}`);
  if (!(method in METHODS)) throw new Error(`the method must be one of ${Object.keys(METHODS).join(", ")}, got ${method}`);
  Object.assign(settings, { ...SETTINGS, alpha: DEFAULT_ALPHA[method] ?? SETTINGS.alpha, ...given });
  seed = from;
  run = startRun(made, method, settings, seed);
  setWorld(world);
  find("seed").value = seed;
  showMethod();
}

window.rlbookPlay = {
  presets: PRESETS, methods: Object.keys(METHODS), load,
  step(count = 1) {
    for (let i = 0; i < count; i++) advance(1);
    show();
  },
  read() {
    const { world, method, settings: used, steps, returns, state, last } = run, known = knowledge(run), greedy = greedyActions(known.best), { kind } = METHODS[method];
    const visits = kind === "learner" ? run.visits : kind === "search" ? world.cells.map((_, cell) => known.nodes[cell]?.count ?? [0, 0, 0, 0]) : null;
    return structuredClone({
      world: description, method, settings: used, seed, steps, state, returns, V: known.V, Q: known.Q, H: run.memory.H ?? null, visits, policy: known.policy ?? always(greedy), greedy,
      error: last?.error ?? null, last: last && Object.fromEntries(["state", "action", "taken", "reward", "next", "terminated", "truncated"].map((name) => [name, last[name] ?? null])),
      optimal: { V: best.V, actions: best.actions, endless: best.endless }, ...quality(known, reached(world)),
    });
  },
};

find("step").onclick = stepOnce;
find("move").onclick = oneMove;
find("episode").onclick = oneEpisode;
find("run").onclick = runOrPause;
find("reset").onclick = restart;
find("speed").oninput = () => setSpeed(find("speed").value);
find("seed").onchange = () => attempt(() => setSeed(find("seed").valueAsNumber));
find("preset").onchange = (event) => { if (event.target.value in PRESETS) setWorld(PRESETS[event.target.value]); };
find("method").onchange = (event) => setMethod(event.target.value);
find("load").onclick = () => attempt(() => setWorld(parsed(find("text").value)));
find("link").onclick = async () => {
  history.replaceState(null, "", address());
  try {
    await navigator.clipboard.writeText(address());
    find("said").textContent = "copied";
  } catch {
    find("said").textContent = "the address is in the address bar now";
  }
};
document.addEventListener("keydown", onKey);
addEventListener("resize", () => show());
addEventListener("hashchange", () => attempt(fromAddress));
makeControls();
setTool("look");
setSpeed(3);
load(PRESETS["Maze-v0"], { method: "q_learning" });
if (location.hash.length > 1) attempt(fromAddress);
