// The page: what is chosen, what runs, and what is drawn of it.

const find = (id) => document.getElementById(id);
const SLIDERS = {
  gamma: ["γ", "discount", "what a reward one step later counts", [0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1]],
  alpha: ["α", "step size", "how far an update moves", [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1]],
  epsilon: ["ε", "exploration", "how often an action is random", [0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1]],
  decay: ["", "ε falls to 0", "in how many steps ε falls to 0", [0, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]],
  lambda: ["λ", "traces", "how slowly they fade", [0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1]],
  planning: ["n", "planning", "remembered steps after each step", [0, 1, 2, 5, 10, 20, 50]],
  simulations: ["N", "simulations", "how many before a move", [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]],
  c: ["c", "exploration", "how much an action counts that was seldom tried", [0, 0.05, 0.1, 0.2, 0.4, 0.7, 1, 1.4, 3]],
  rollout: ["", "rollout", "random moves after a new node", [1, 2, 5, 10, 20, 50, 100]],
  reuse: ["", "keep the tree", "whether the next search goes on with what this one knows", [0, 1]],
  slip: ["", "slip", "how often a move goes sideways", [0, 0.05, 0.1, 0.2, 0.3, 0.5, 2 / 3, 0.8, 1]],
};
const TOOLS = {
  look: ["look", "Click a cell to see its numbers. Drag S to move the start."],
  [WALL]: ["wall", "Click or drag to build walls, and again to take them away."],
  [GOAL]: ["goal", "Click a cell to make it a goal, or to take the goal away."],
  [PIT]: ["pit", "A pit ends the episode. Click a cell."],
  [CLIFF]: ["cliff", "The cliff sends the agent back to the start. Click a cell."],
  reward: ["reward", "Click a cell to pay this number whenever it is entered; again to take it away:"],
};
const PRICES = { step: "a step", bump: "a bump", goal: "the goal", pit: "a pit", cliff: "the cliff", limit: "steps at most", rows: "rows", columns: "columns" };
const SAID = { decay: (value) => value === 0 ? "never" : `in ${value} steps`, reuse: (value) => value ? "yes" : "no" };
const DEFAULT_ALPHA = { reinforce: 0.001 };
const MOST = 20;                             // rows and columns at most

let run, best, board, optimalBoard, description, settings = { ...SETTINGS }, seed = 1;
let tool = "look", cursor = null, selected = null, dragged = null, paints = null, curve = [], timer = null, goal = null, owed = 0, before = 0, stale = true;

// Worlds

function describe(world) {
  const { map, step, bump, goal, pit, cliff, slip, limit, rewards } = { ...PLAIN, ...world };
  return { map: map.replace(/^[\r\n]+|[\r\n]+$/g, "").replaceAll(" ", FREE), step, bump, goal, pit, cliff, slip, limit, rewards: { ...rewards } };
}

// Another world. What was learned stays where only cells or numbers have changed.
function setWorld(next, { keep = false } = {}) {
  const world = makeWorld(next);
  description = describe(next);
  const same = keep && world.rows === run.world.rows && world.columns === run.world.columns;
  if (same) changeWorld(run, world);
  findBest(world);
  if (!same) {
    selected = cursor = null;
    begin(world);
  }
  board = makeBoard(find("learned"), world);
  optimalBoard = makeBoard(find("optimal"), world);
  showWorld();
  show();
}

// V*, its policy and what that pays, or why there is no V*.
function findBest(world) {
  best = optimum(world, settings.gamma);
  best.pays = best.actions && expectedReturn(world, always(best.actions));
}

function begin(world) {
  pause();
  run = startRun(world, run?.method ?? "q_learning", settings, seed);
  curve = [];
  stale = true;
}

function withCell(state, cell) {
  const { columns } = run.world, cells = [...run.world.cells];
  if (cell === START) cells[run.world.start] = FREE;
  cells[state] = cell;
  return { ...description, map: cells.join("").match(new RegExp(`.{${columns}}`, "g")).join("\n") };
}

function resized(rows, columns) {
  const lines = description.map.split("\n"), { start } = run.world;
  const cells = Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => lines[row]?.[column] ?? FREE));
  if (!cells.some((line) => line.includes(START))) cells[Math.min(rows - 1, Math.floor(start / run.world.columns))][Math.min(columns - 1, start % run.world.columns)] = START;
  const rewards = Object.fromEntries(Object.entries(description.rewards).filter(([place]) => place.split(",").every((at, axis) => at < [rows, columns][axis])));
  return { ...description, map: cells.map((line) => line.join("")).join("\n"), rewards };
}

// Drawing on the map

function apply(state, dragging) {
  cursor = selected = state;
  if (tool === "look") return show();
  const { world } = run, cell = world.cells[state];
  if (cell === START) return show();
  if (tool === "reward") {
    const place = `${Math.floor(state / world.columns)},${state % world.columns}`, rewards = { ...description.rewards };
    const pays = Number(find("pays").value);
    if (rewards[place] === pays || !Number.isFinite(pays)) delete rewards[place];
    else rewards[place] = pays;
    return setWorld({ ...description, rewards }, { keep: true });
  }
  if (!dragging) paints = cell === tool ? FREE : tool;
  if (cell !== paints) setWorld(withCell(state, paints), { keep: true });
}

function moveStart(state) {
  if (state < 0 || ![FREE, CLIFF].includes(run.world.cells[state])) return;
  setWorld(withCell(state, START), { keep: true });
}

find("learned").addEventListener("pointerdown", (event) => {
  const state = cellAt(board, event);
  if (state < 0 || event.button !== 0) return;
  dragged = run.world.cells[state] === START ? "start" : tool === WALL ? "wall" : null;
  if (dragged !== null) find("learned").setPointerCapture(event.pointerId);
  apply(state, false);
});
find("learned").addEventListener("pointermove", (event) => {
  const state = dragged === null ? -1 : cellAt(board, event);
  if (state < 0 || state === cursor) return;
  if (dragged === "wall") apply(state, true);
  else moveStart(cursor = state);
});
find("learned").addEventListener("touchstart", (event) => {     // a finger that drags something does not scroll the page
  if (dragged !== null) event.preventDefault();
}, { passive: false });
for (const name of ["pointerup", "pointercancel"]) find("learned").addEventListener(name, () => { dragged = null; });

// Running

function advance(count) {
  for (let i = 0; i < count; i++) {
    stepRun(run);
    if (METHODS[run.method].kind === "planner") curve.push(expectedReturn(run.world, always(greedyActions(knowledge(run).best))));
    if (run.last.done || (run.method === "value_iteration" && run.last.change < 1e-9)) return pause();
  }
  stale = true;
}

// Runs as fast as it can until `reached()`: a move of a search, or the end of an episode. Long ones leave the page time to be drawn.
function runUntil(reached) {
  pause();
  goal = reached;
  toGoal();
  if (goal !== null) play();
  else show();
}

function toGoal() {
  const end = performance.now() + 30;
  while (goal !== null && performance.now() < end) {
    advance(1);
    if (goal?.()) pause();
  }
}

const perSecond = () => 2 ** Number(find("speed").value);

function play() {
  before = performance.now();
  owed = 1;
  timer = requestAnimationFrame(frame);
  find("run").textContent = "pause";
}

function pause() {
  cancelAnimationFrame(timer);
  timer = goal = null;
  find("run").textContent = "run";
}

function frame(time) {
  owed = Math.min(owed + (time - before) / 1000 * perSecond(), perSecond() / 4 + 1);
  before = time;
  timer = requestAnimationFrame(frame);
  if (goal !== null) {
    toGoal();
    return show();
  }
  const steps = Math.floor(owed), end = performance.now() + 30;
  if (steps === 0) return;
  owed -= steps;
  for (let i = 0; i < steps && timer !== null && performance.now() < end; i++) advance(1);
  show();
}

// Showing

function show() {
  const { world, method, last, memory } = run, known = knowledge(run), { kind } = METHODS[method];
  const reachable = reached(world), inPlay = (best.V ?? known.V).filter((_, state) => reachable[state] && !world.terminal[state]);
  const range = [Math.min(...inPlay), Math.max(...inPlay)];
  const arrows = known.policy ?? known.best.map((actions) => ACTIONS.map((_, action) => actions.length < 4 && actions.includes(action) ? 1 / actions.length : 0));
  const most = memory.trace ? Math.max(...memory.trace.flat()) : 0;
  draw(board, {
    V: known.V, arrows, range, cursor,
    traces: most > 0 ? memory.trace.map((row) => Math.max(...row) / most) : null,
    dim: known.nodes ? known.nodes.map((node) => node === null) : null,
    agent: kind === "planner" ? null : run.state, updated: kind === "learner" && last ? last.state : null,
    way: kind === "search" ? last?.path : null,
  });
  const V = best.V ?? world.cells.map(() => 0), bestActions = world.cells.map((_, state) => nearlyBest(backups(world, V, settings.gamma, state)));
  const dim = settings.gamma === 1 ? reachable.map((is) => !is || !best.V) : null;
  draw(optimalBoard, { V, arrows: bestActions.map((actions) => ACTIONS.map((_, action) => actions.includes(action) ? 1 / actions.length : 0)), range, cursor: selected, dim });
  find("endless").textContent = best.endless ?? (settings.gamma === 1 ? wordsOfRest(world) : "");
  find("low").textContent = number(range[0]);
  find("high").textContent = number(range[1]);
  find("learned").setAttribute("aria-label", `map of ${world.rows} rows and ${world.columns} columns, ${WORDS[method].name}; ${cellText(cursor ?? run.state)}`);
  find("equation").innerHTML = `<p class="rule">${WORDS[method].rule}</p>${told(run, selected ?? world.start, best)}`;
  showCell(known);
  if (stale || timer === null) showQuality(known, reachable);
  stale = timer === null || run.steps % 8 === 0;
}

const cellText = (state) => `${placeOf(run.world, state)} ${{ [WALL]: "wall", [START]: "start", [GOAL]: "goal", [PIT]: "pit", [CLIFF]: "cliff" }[run.world.cells[state]] ?? "free"}`;

function showCell(known) {
  const { world } = run;
  if (selected === null) return void (find("cell").innerHTML = `<p class="faint">Click a cell of the map to see all its numbers.</p>`);
  if (world.terminal[selected]) return void (find("cell").innerHTML = `<p>Cell ${cellText(selected)}: nothing is learned here, since no action is taken here.</p>`);
  const row = (action) => {
    const shown = known.policy ? `π = ${number(known.policy[selected][action])}` : known.nodes?.[selected] === null ? "not in the tree" : `Q = ${number(known.Q[selected][action])}`;
    return `<tr class="${known.best[selected].includes(action) ? "best" : ""}"><th>${ACTIONS[action]}</th><td>${shown}</td><td>${best.V ? `Q* = ${number(backup(world, best.V, settings.gamma, selected, action))}` : ""}</td></tr>`;
  };
  find("cell").innerHTML = `<p>Cell ${cellText(selected)}: V = ${number(known.V[selected])}${best.V ? `, V* = ${number(best.V[selected])}` : ""}</p><table>${[0, 1, 2, 3].map(row).join("")}</table>`;
}

const count = (amount, thing) => `${amount} ${thing}${amount === 1 ? "" : "s"}`;

// How the agent acts now, exploring: π [S][A]; null where it does not learn by acting.
function acting(known) {
  const { world, method } = run, epsilon = epsilonNow(run);
  if (METHODS[method].kind !== "learner" || known.policy) return known.policy ?? null;
  return world.cells.map((_, state) => ACTIONS.map((_, action) => epsilon / 4 + (known.best[state].includes(action) ? (1 - epsilon) / known.best[state].length : 0)));
}

// How far V is from V* and what its greedy policy is worth, both exact; null where that is not defined.
function quality(known, reachable) {
  const { world, method } = run, policy = acting(known);
  const counted = reachable.map((is, state) => is && !world.terminal[state]), gaps = best.V && known.V.map((value, state) => Math.abs(value - best.V[state])).filter((_, state) => counted[state]);
  const greedyReturn = method === "mcts" ? null : expectedReturn(world, always(greedyActions(known.best)));
  const ends = counted.some((is, state) => is && world.next[state].some((next) => world.terminal[next]));
  return {
    largestError: gaps && Math.max(...gaps), meanError: gaps && gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length, greedyReturn, optimalReturn: best.pays,
    actingReturn: policy && expectedReturn(world, policy),
    actingValue: policy && best.V && (settings.gamma < 1 || (ends && policy.flat().every((share) => share > 1e-6))) ? policyValues(world, policy, settings.gamma, counted)[world.start] : null,
  };
}

function showQuality(known, reachable) {
  const { method, world } = run, { kind } = METHODS[method], found = quality(known, reachable), { unit } = WORDS[method], uses = WORDS[method].uses;
  const done = kind === "planner" ? `${unit} ${run.memory.sweep}` : `${count(run.steps, unit)}, ${count(run.returns.length, "episode")} finished; this one is at step ${run.time}`;
  const decays = uses.includes("decay") && settings.decay > 0 ? `; ε is now ${number(epsilonNow(run), 3)}` : "";
  const pays = best.V ? `the best possible is ${number(found.optimalReturn)}` : "with γ = 1 no policy is the best one here";
  const solved = best.V && found.greedyReturn !== null && found.greedyReturn >= found.optimalReturn - 1e-6;
  const facts = [["so far", done + decays]];
  facts.push(["greedy episode", method === "mcts" ? `see the curve: the moves that were made; ${pays}` : `pays <b>${number(found.greedyReturn)}</b> on average; ${pays}${solved ? ". Solved" : ""}`]);
  if (found.actingReturn !== null) facts.push([method === "reinforce" ? "its own policy" : "exploring", `an episode as it acts now pays ${number(found.actingReturn)} on average`]);
  if (kind !== "search" && best.V) {
    facts.push(["V at the start", `<b>${number(known.V[world.start])}</b>; V* is ${number(best.V[world.start])}${found.actingValue === null ? "" : `, and the policy that acts is worth ${number(found.actingValue)}`}`]);
    facts.push(["error of V", `at most ${number(found.largestError)}, on average ${number(found.meanError)}, against V* of the cells that can be reached`]);
  }
  const why = whyNotBest(run, solved);
  if (why) facts.push(["why", why]);
  find("facts").innerHTML = facts.map(([term, text]) => `<dt>${term}</dt><dd>${text}</dd>`).join("");
  find("curveTitle").textContent = kind === "planner" ? `return of the greedy policy after each ${unit}; dashed: the best possible`
    : `return of each episode, exploring (dots), the mean of ${WINDOW} (line); dashed: the best possible on average`;
  drawCurve(find("curve"), kind === "planner" ? curve : run.returns, found.optimalReturn, { unit: kind === "planner" ? unit : "episode", mean: kind !== "planner" });
}

function showWorld() {
  find("rules").textContent = rulesOf(run.world);
  find("text").value = JSON.stringify(description, null, 1);
  for (const [name, input] of Object.entries(priceInputs)) input.value = name === "rows" || name === "columns" ? run.world[name] : description[name];
  const at = Object.keys(PRESETS).find((name) => JSON.stringify(describe(PRESETS[name])) === JSON.stringify(description));
  find("preset").value = at ?? "your own";
  showSliders();
  showCommand();
}

// The command that trains on the same world in rlbook, where rlbook's maze can be that world.
function showCommand() {
  const { map, step, bump, goal, slip, limit, rewards } = description, standard = step === -1 && bump === -5 && goal === 10 && limit === 100;
  const maze = standard && !/[PC]/.test(map) && map.split(GOAL).length === 2 && Object.keys(rewards).length === 0;
  const epsilon = settings.decay ? `'linear(${settings.epsilon},0)' --steps ${settings.decay}` : settings.epsilon;
  const chosen = Object.entries({ gamma: settings.gamma, alpha: settings.alpha, epsilon }).map(([name, value]) => `--${name} ${value}`).join(" ");
  const options = ["sarsa", "q_learning", "dyna_q", "mc_control"].includes(run.method) ? ` ${chosen}` : "";
  find("command").innerHTML = maze ? `The same in a terminal: <code>rlbook train ${run.method} Maze-v0 --env.layout $'${map.replaceAll("\n", "\\n")}' --env.slip ${short(slip)}${options}</code>` : "";
}

function showSliders() {
  const shown = [...WORDS[run.method].uses, "slip"];
  for (const [name, { label, input, output }] of Object.entries(sliders)) {
    const value = name === "slip" ? description.slip : settings[name], values = SLIDERS[name].at(-1);
    label.hidden = !shown.includes(name);
    label.style.display = label.hidden ? "none" : "";
    input.value = values.reduce((nearest, item, place) => Math.abs(item - value) < Math.abs(values[nearest] - value) ? place : nearest, 0);
    output.textContent = SAID[name]?.(value) ?? short(value);
    input.setAttribute("aria-valuetext", output.textContent);
  }
}

// Where the book explains the method: a link where this page lies in the book's site, its name elsewhere.
function readOn({ chapter: [name, file] }) {
  const link = document.createElement("a");
  link.textContent = `the chapter “${name}”`;
  if (location.href.includes("/_play/")) Object.assign(link, { href : `../chapters/${file}.html`, target: "_top" });
  return ["More in ", link, "."];
}

function showMethod() {
  const { kind } = METHODS[run.method];
  find("idea").textContent = `${WORDS[run.method].idea} `;
  find("idea").append(...readOn(WORDS[run.method]));
  find("learnedTitle").textContent = { planner: "Computed so far: V", learner: run.method === "reinforce" ? "Learned so far: v and π" : "Learned so far: V(s) = max Q(s, a)", search: "In the present search tree: V" }[kind];
  find("episode").hidden = kind === "planner";
  find("move").hidden = kind !== "search";
  if (kind === "search" && find("speed").value < 9) setSpeed(9);
  find("method").value = run.method;
  showSliders();
  showCommand();
}
