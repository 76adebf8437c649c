// A method at work in a world: `startRun`, then `stepRun` as often as one likes. Each returns what happened, with its numbers.

const SETTINGS = { gamma: 0.99, alpha: 0.1, epsilon: 0.1, decay: 0, lambda: 0.9, planning: 10, simulations: 2000, c: 0.7, rollout: 10, reuse: 1, beta: 0.1 };
const LARGEST = { gamma: 1, alpha: 1, epsilon: 1, lambda: 1, beta: 1, reuse: 1 };
const WHOLE = { decay: 0, planning: 0, simulations: 1, rollout: 1, reuse: 0 };         // and the smallest they may be

function checkSettings(settings) {
  for (const [name, value] of Object.entries(settings)) {
    if (!(name in SETTINGS)) throw new Error(`a setting must be one of ${Object.keys(SETTINGS).join(", ")}, got ${name}`);
    const most = LARGEST[name] ?? Infinity, least = WHOLE[name] ?? 0, kind = name in WHOLE ? "a whole number" : "a number";
    if (!Number.isFinite(value) || value < least || value > most || (name in WHOLE && !Number.isInteger(value)))
      throw new Error(`${name} must be ${kind} ${most === Infinity ? `of at least ${least}` : `in [${least}, ${most}]`}, got ${value}`);
  }
}

const learner = (update, begin, choose) => ({ kind: "learner", update, begin, choose: choose ?? epsilonGreedyChoice });
const epsilonGreedyChoice = (memory, state, { epsilon }, random) => epsilonGreedy(memory.q, state, epsilon, random);
const pendingOrNew = (memory, state, settings, random) => memory.pending ?? epsilonGreedyChoice(memory, state, settings, random);

// By rlbook's names; `begin` makes the memory before the first step.
const METHODS = {
  value_iteration: {
    kind: "planner",
    begin: (world) => ({ V: new Array(world.numStates).fill(0), sweep: 0 }),
    step: sweepStep,
  },
  policy_iteration: {
    kind: "planner",
    begin: (world, { gamma }) => ({ V: new Array(world.numStates).fill(0), ...firstPolicy(world, gamma), sweep: 0 }),
    step: roundStep,
  },
  mc_control: learner(monteCarloUpdate, (world) => ({ q: numbers(world), episode: [] })),
  sarsa: learner(sarsaUpdate, (world) => ({ q: numbers(world), pending: null }), pendingOrNew),
  q_learning: learner((memory, step, settings) => qLearningUpdate(memory.q, step, settings), (world) => ({ q: numbers(world) })),
  dyna_q: learner(dynaUpdate, (world) => ({ q: numbers(world), model: world.cells.map(() => []), states: [], tried: world.cells.map(() => []) })),
  sarsa_lambda: learner(sarsaLambdaUpdate, (world) => ({ q: numbers(world), trace: numbers(world), pending: null }), pendingOrNew),
  reinforce: learner(
    reinforceUpdate,
    (world) => ({ H: numbers(world), v: new Array(world.numStates).fill(0), episode: [] }),
    (memory, state, _, random) => sample(softmax(memory.H[state]), random),
  ),
  mcts: { kind: "search", begin: (world) => ({ tree: makeTree(world.start) }), step: searchStep },
};

function startRun(world, method, settings, seed) {
  if (!(method in METHODS)) throw new Error(`the method must be one of ${Object.keys(METHODS).join(", ")}, got ${method}`);
  checkSettings(settings);
  const all = { ...SETTINGS, ...settings };
  return {
    world, method, settings: all, random: mulberry32(seed), memory: METHODS[method].begin(world, all),
    state: world.start, time: 0, steps: 0, total: 0, returns: [], visits: numbers(world), last: null,
  };
}

// One sweep, one round, one step in the world, or one simulation.
function stepRun(run) {
  const method = METHODS[run.method];
  run.last = method.kind === "learner" ? learnerStep(run, method) : method.step(run);
  run.steps += 1;
  return run.last;
}

function sweepStep({ world, memory, settings }) {
  const before = memory.V;
  memory.V = valueIterationSweep(world, before, settings.gamma);
  memory.sweep += 1;
  return { before, change: Math.max(...memory.V.map((value, state) => Math.abs(value - before[state]))), done: false };
}

function roundStep({ world, memory, settings }) {
  if (settings.gamma === 1 ? !memory.counted : memory.counted) Object.assign(memory, { counted: undefined }, firstPolicy(world, settings.gamma));
  if (memory.endless) return { endless: memory.endless, changed: 0, done: true };
  const before = memory.actions, { changed, ...round } = policyIterationRound(world, memory, settings.gamma);
  Object.assign(memory, round);
  memory.sweep += 1;
  return { before, changed, endless: round.endless, done: changed === 0 || round.endless !== null };
}

// ε now: it falls on a straight line to 0 in `decay` steps, or stays where `decay` is 0.
function epsilonNow({ settings: { epsilon, decay }, steps }) {
  return decay === 0 ? epsilon : (1 - Math.min(steps / decay, 1)) * epsilon;
}

function learnerStep(run, method) {
  const { world, memory, random, state } = run, settings = { ...run.settings, epsilon: epsilonNow(run) };
  const action = method.choose(memory, state, settings, random);
  const { taken, next, reward, terminated } = sampleOutcome(world, state, action, random);
  const truncated = !terminated && run.time + 1 >= world.limit;
  const step = { state, action, reward, next, terminated, truncated };
  const learned = method.update(memory, step, settings, random);
  run.visits[state][action] += 1;
  moveOn(run, step);
  return { ...step, taken, epsilon: settings.epsilon, ...learned };
}

// The agent stands in the next state; after the end of an episode, at the start again.
function moveOn(run, { reward, next, terminated, truncated }) {
  run.total += reward;
  run.time += 1;
  run.state = next;
  if (terminated || truncated) {
    run.returns.push(run.total);
    Object.assign(run, { total: 0, time: 0, state: run.world.start });
  }
}

// A simulation; or, after as many as are asked for, the move that was tried most often.
function searchStep(run) {
  const { world, memory, settings, random, state } = run, { tree } = memory;
  if (tree.simulations < settings.simulations) return simulate(tree, world, settings, random);
  const best = mostVisited(tree.root), action = best.length === 1 ? best[0] : best[Math.floor(random() * best.length)];
  const { taken, next, reward, terminated } = sampleOutcome(world, state, action, random);
  const step = { state, action, reward, next, terminated, truncated: !terminated && run.time + 1 >= world.limit };
  moveOn(run, step);
  memory.tree = settings.reuse && run.time > 0 ? treeAfter(tree, action, next) : makeTree(run.state);
  return { ...step, taken, searched: tree };
}

// What is known so far: V [S], Q [S][A] or null, and the best actions of each state, [] where nothing is known.
function knowledge(run) {
  const { world, memory, settings } = run;
  const over = (values) => values.map((value, state) => world.terminal[state] ? 0 : value);
  if (run.method === "reinforce") return { V: over(memory.v), Q: null, policy: memory.H.map(softmax), best: memory.H.map(bestActions) };
  if (run.method === "mcts") return searched(world, memory.tree);
  if (memory.q) return { V: over(memory.q.map((row) => Math.max(...row))), Q: memory.q, best: memory.q.map(bestActions) };
  const Q = memory.V.map((_, state) => backups(world, memory.V, settings.gamma, state)), V = over(memory.V);
  return { V, Q, best: memory.actions ? memory.actions.map((action) => [action]) : Q.map(nearlyBest) };
}

// What a tree says of each state it has met: of several nodes, the one that was visited most.
function searched(world, tree) {
  const known = world.cells.map(() => null), open = [tree.root];
  for (const node of open) {
    if (!node.terminated && node.visits > (known[node.state]?.visits ?? 0)) known[node.state] = node;
    open.push(...node.children.flatMap((children) => Object.values(children)));
  }
  const best = known.map((node) => node ? mostVisited(node) : []);
  return { V: known.map((node, state) => node ? node.mean[best[state][0]] : 0), Q: known.map((node) => node?.mean ?? [0, 0, 0, 0]), best, nodes: known };
}

// Planned values differ in the last digits where they should be equal.
const nearlyBest = (row) => [0, 1, 2, 3].filter((action) => row[action] >= Math.max(...row) - 1e-9 * Math.max(1, ...row.map(Math.abs)));

// The action that is taken in each state without exploring: of several best ones always the same.
const greedyActions = (best) => best.map((actions, state) => actions.length ? actions[state % actions.length] : 0);

// Puts another world of the same size under a run: what was learned stays, the episode begins again.
function changeWorld(run, world) {
  const { memory } = run;
  Object.assign(run, { world, total: 0, time: 0, state: world.start, last: null });
  if ("pending" in memory) memory.pending = null;
  if ("trace" in memory) memory.trace = numbers(world);
  if ("episode" in memory) memory.episode = [];
  if ("tree" in memory) memory.tree = makeTree(world.start);
  if (memory.counted || memory.endless) Object.assign(memory, firstPolicy(world, run.settings.gamma));
}
