// The page: what is chosen, what is drawn on the map, and what runs.

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
  findBest(world, same ? best.actions : null);
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
function findBest(world, nearby = null) {
  best = optimum(world, settings.gamma, nearby);
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

// In a frame of another page: that page makes the frame as tall as this one.
if (parent !== window) new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.body);
