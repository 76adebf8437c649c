// What the page says: each method's idea and rule, and the rule again with the numbers of the step just made.

const number = (value, digits = 2) => (Object.is(Math.round(value * 10 ** digits), -0) ? 0 : value).toFixed(digits).replace("-", "−");
const short = (value) => number(value, 4).replace(/\.?0+$/, "");
// Two decimals; of a small number that is not 0, so many that its first two digits are seen.
const precise = (value) => number(value, value === 0 ? 2 : Math.min(8, Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value))))));
// A number before and after an update: two decimals, or up to four where the change needs them to be seen.
function moved(before, after) {
  const change = Math.abs(after - before), digits = change < 5e-5 ? 2 : Math.max(2, Math.min(4, Math.ceil(-Math.log10(change))));
  return [number(before, digits), number(after, digits)];
}
const inside = (value, digits) => value < 0 ? `(${number(value, digits)})` : number(value, digits);
const placeOf = (world, state) => `(${Math.floor(state / world.columns)}, ${state % world.columns})`;
const pair = (world, state, action) => `Q(${placeOf(world, state)}, ${ACTIONS[action]})`;

const WORDS = {
  value_iteration: {
    name: "value iteration", unit: "sweep", chapter: ["Planning", "planning"], uses: ["gamma"],
    idea: "The model is known. Each sweep sets every V(s) to the best that one action can reach by the present V. What the goal pays spreads from cell to cell until nothing changes.",
    rule: "V(s) ← max<sub>a</sub> Σ<sub>s′</sub> P(s′ | s, a) [ r + γ V(s′) ]",
  },
  policy_iteration: {
    name: "policy iteration", unit: "round", chapter: ["Planning", "planning"], uses: ["gamma"],
    idea: "The model is known. Each round computes exactly what the present policy is worth, a system of linear equations, and then changes the policy wherever another action is better.",
    rule: "V = r<sub>π</sub> + γ P<sub>π</sub> V, solved; &nbsp; π(s) ← argmax<sub>a</sub> Σ<sub>s′</sub> P(s′ | s, a) [ r + γ V(s′) ]",
  },
  mc_control: {
    name: "Monte Carlo", unit: "step", chapter: ["Monte Carlo", "monte-carlo"], uses: ["gamma", "alpha", "epsilon", "decay"],
    idea: "It plays an episode to its end, and only then moves the value of each action towards the return G that followed its first use. No estimate is built on another estimate.",
    rule: "Q(s, a) ← Q(s, a) + α [ G − Q(s, a) ], &nbsp; G = r + γ r′ + γ² r″ + …",
  },
  sarsa: {
    name: "SARSA", unit: "step", chapter: ["Temporal difference", "temporal-difference"], uses: ["gamma", "alpha", "epsilon", "decay"],
    idea: "After each step it moves Q towards the reward and the value of the action it takes next. So it learns what its own behaviour is worth, random actions included.",
    rule: "Q(s, a) ← Q(s, a) + α [ r + γ Q(s′, a′) − Q(s, a) ]",
  },
  q_learning: {
    name: "Q-learning", unit: "step", chapter: ["Temporal difference", "temporal-difference"], uses: ["gamma", "alpha", "epsilon", "decay"],
    idea: "After each step it moves Q towards the reward and the value of the best next action, whichever it takes. So it learns what acting optimally is worth, while it explores.",
    rule: "Q(s, a) ← Q(s, a) + α [ r + γ max<sub>a′</sub> Q(s′, a′) − Q(s, a) ]",
  },
  dyna_q: {
    name: "Dyna-Q", unit: "step", chapter: ["Learning a model", "model-based"], uses: ["gamma", "alpha", "epsilon", "decay", "planning"],
    idea: "Q-learning that remembers what each action led to. After each step it repeats the same update n times on remembered steps, so one reward spreads far in one step.",
    rule: "Q-learning on the step, then n times on (s, a, r, s′) from the model",
  },
  sarsa_lambda: {
    name: "SARSA(λ), that is TD(λ) for control", unit: "step", chapter: ["n steps and λ", "n-step-and-lambda"], uses: ["gamma", "alpha", "epsilon", "decay", "lambda"],
    idea: "Each pair of state and action that was visited keeps a trace e, which fades by γλ a step. One TD error δ moves all pairs that have a trace, the recent ones most. λ = 0 is SARSA.",
    rule: "δ = r + γ Q(s′, a′) − Q(s, a), &nbsp; e(s, a) ← α; &nbsp; for all x, b: Q(x, b) ← Q(x, b) + δ e(x, b), &nbsp; e(x, b) ← γλ e(x, b)",
  },
  reinforce: {
    name: "policy gradient (REINFORCE)", unit: "step", chapter: ["Policy gradient", "policy-gradient"], uses: ["gamma", "alpha"],
    idea: "It has no table of action values. A softmax of preferences H gives the probability of each action. After an episode, actions become likelier if their return was better than the baseline v(s), and less likely if it was worse.",
    rule: "H(s, ·) ← H(s, ·) + α γ<sup>t</sup> [ G − v(s) ] ∇ log π(a | s), &nbsp; v(s) ← v(s) + 0.1 [ G − v(s) ]",
  },
  mcts: {
    name: "Monte Carlo tree search", unit: "simulation", chapter: ["Trees", "trees"], uses: ["gamma", "simulations", "c", "rollout", "reuse"],
    idea: "Before each move it simulates many games from where it stands, more of those that went well, and then makes the move it tried most. There is no table: what it knows is the tree under the present state.",
    rule: "a = argmax<sub>a</sub> Q(s, a) + c √( ln N(s) / N(s, a) ), &nbsp; then Q(s, a) ← Q(s, a) + [ G − Q(s, a) ] / N(s, a)",
  },
};

// The lines of the present step, as HTML.
function told(run, selected, optimal) {
  const { last, world } = run;
  if (last?.endless) return `<p>${last.endless} Policy iteration needs a policy whose values are finite, and stops here.</p>`;
  if (last === null) return `<p class="faint">Nothing yet. Press step.</p>`;
  const tell = { value_iteration: tellSweep, policy_iteration: tellRound, mcts: tellSearch, mc_control: tellMonteCarlo, reinforce: tellGradient }[run.method] ?? tellUpdate;
  return tell(run, last, world, run.method === "mcts" ? optimal : selected);
}

const now = (text) => `<p class="now">${text}</p>`;

function tellMove(run, { state, action, taken, reward, next, terminated, truncated }, world) {
  const slipped = taken === action ? "" : `, slipped ${ACTIONS[taken]}`;
  const where = next === state ? "stays there" : `is in ${placeOf(world, next)}`;
  const end = terminated ? " The episode ends here, so nothing follows: what comes next counts as 0." : truncated ? ` After ${world.limit} steps the episode is cut. The world would have gone on, so the value of the next state still counts.` : "";
  return `<p>In ${placeOf(world, state)} it goes ${ACTIONS[action]}${slipped}, is paid ${short(reward)} and ${where}.${end}</p>`;
}

function tellUpdate(run, last, world) {
  const { alpha, gamma, lambda } = run.settings, { state, action, reward, next, bootstrap, error, before, after, nextAction, terminated } = last;
  const follows = terminated ? "0" : `${short(gamma)} · ${inside(bootstrap)}`;
  const source = terminated ? "" : nextAction === undefined
    ? `, where ${number(bootstrap)} is the largest Q in ${placeOf(world, next)}` : `, where ${number(bootstrap)} is ${pair(world, next, nextAction)}, the action it will take`;
  const delta = `${short(reward)} + ${follows} − ${inside(before)}`, [was, is] = moved(before, after);
  if (run.method === "sarsa_lambda") return tellMove(run, last, world)
    + now(`δ = ${delta} = ${number(error)}${source}`)
    + now(`${pair(world, state, action)} ← ${was} + ${inside(error)} · ${short(alpha)} = <b>${is}</b>`)
    + `<p>The same δ moved ${last.reached === 1 ? "this pair only" : `${last.reached} pairs, each by its trace`}. Traces then fade by γλ = ${short(gamma)} · ${short(lambda)} = ${precise(gamma * lambda)}.</p>`;
  return tellMove(run, last, world)
    + now(`${pair(world, state, action)} ← ${was} + ${short(alpha)} [ ${delta} ] = ${was} + ${short(alpha)} · ${inside(error)} = <b>${is}</b>`)
    + `<p>The bracket is the TD error${source}.</p>${last.planned ? tellPlanned(last.planned, world) : ""}`;
}

function tellPlanned(planned, world) {
  if (planned.length === 0) return "<p>n = 0: it remembers, but repeats nothing. This is Q-learning.</p>";
  const changed = planned.filter(({ before, after }) => Math.abs(after - before) >= 0.005);
  const shown = changed.slice(0, 4).map(({ state, action, before, after }) => `${pair(world, state, action)}: ${number(before)} → <b>${number(after)}</b>`);
  return `<p>Then ${planned.length} remembered steps, of which ${changed.length} changed something${shown.length ? ":" : "."}</p>${shown.map(now).join("")}`;
}

function tellMonteCarlo(run, last, world) {
  const { alpha, gamma } = run.settings;
  if (last.updates.length === 0) return tellMove(run, last, world) + `<p>This is step ${run.time} of the episode. Nothing is learned before its end.</p>`;
  const lines = last.updates.slice(-5).map(({ state, action, time, G, before, after }) => {
    const [was, is] = moved(before, after);
    return now(`t = ${time}: &nbsp; ${pair(world, state, action)} ← ${was} + ${short(alpha)} [ ${number(G)} − ${inside(before)} ] = <b>${is}</b>`);
  });
  return tellMove(run, last, world) + `<p>The episode had ${last.length} steps. Backwards from its end, G = r + γ G with γ = ${short(gamma)}. The last of ${last.updates.length} updates:</p>${lines.join("")}`;
}

function tellGradient(run, last, world) {
  const { alpha, gamma } = run.settings;
  if (last.updates.length === 0) return tellMove(run, last, world) + `<p>This is step ${run.time} of the episode. Nothing is learned before its end.</p>`;
  const lines = last.updates.slice(0, 4).map(({ state, action, time, G, baseline, before, after }) => {
    const [was, is] = moved(before, after);
    return now(`t = ${time}: &nbsp; α γ<sup>t</sup> [ G − v ] = ${short(alpha)} · ${precise(gamma ** time)} · [ ${number(G)} − ${inside(baseline)} ] = ${precise(alpha * gamma ** time * (G - baseline))}; &nbsp; π(${ACTIONS[action]} | ${placeOf(world, state)}): ${was} → <b>${is}</b>`);
  });
  return tellMove(run, last, world) + `<p>The episode had ${last.length} steps. The first of its updates; a probability stands for all visits of its state in the episode:</p>${lines.join("")}`;
}

// One action's backup in words: Σ P [ r + γ V(s′) ] with its numbers.
function backupTerms(world, V, gamma, state, action) {
  return outcomes(world, state, action).map(({ probability, next, reward, terminated }) => {
    const term = `${short(reward)} + ${terminated ? "0" : `${short(gamma)} · ${inside(V[next])}`}`;
    return probability === 1 ? term : `${short(probability)} [ ${term} ]`;
  }).join(" + ");
}

function tellActions(run, V, state) {
  const { world, settings: { gamma } } = run, values = backups(world, V, gamma, state), best = nearlyBest(values);
  const rows = values.map((value, action) => `<tr class="${best.includes(action) ? "best" : ""}"><th>${ACTIONS[action]}</th><td>${backupTerms(world, V, gamma, state, action)} = ${number(value)}</td></tr>`);
  return `<table>${rows.join("")}</table>`;
}

function tellSweep(run, last, world, selected) {
  const state = world.terminal[selected] ? world.start : selected;
  return `<p>Sweep ${run.memory.sweep} set all cells at once. In ${placeOf(world, state)}, with the V of the sweep before:</p>${tellActions(run, last.before, state)}`
    + now(`V(${placeOf(world, state)}) ← max = <b>${moved(last.before[state], run.memory.V[state])[1]}</b>, before it was ${moved(last.before[state], run.memory.V[state])[0]}`)
    + `<p>${last.change < 1e-9 ? "No value changes any more: this is V*." : `The largest change of this sweep was ${precise(last.change)}.`} Click a cell to see its numbers.</p>`;
}

function tellRound(run, last, world, selected) {
  const state = world.terminal[selected] ? world.start : selected, { V, actions, sweep } = run.memory, { gamma } = run.settings;
  return `<p>Round ${sweep}. In ${placeOf(world, state)} the policy went ${ACTIONS[last.before[state]]}, and the solved V agrees with itself:</p>`
    + now(`V(${placeOf(world, state)}) = ${backupTerms(world, V, gamma, state, last.before[state])} = <b>${number(V[state])}</b>`)
    + `<p>Improvement looks at all four actions:</p>${tellActions(run, V, state)}`
    + `<p>${last.before[state] === actions[state] ? `It stays ${ACTIONS[actions[state]]}.` : `It becomes <b>${ACTIONS[actions[state]]}</b>.`} ${last.changed === 0 ? "No cell changed: the policy is optimal." : `In this round the policy changed in ${count(last.changed, "cell")}.`}</p>`;
}

function tellSearch(run, last, world, optimal) {
  const tree = last.searched ?? run.memory.tree, { root } = tree, span = returnsRange(tree), { c } = run.settings;
  const rows = ACTIONS.map((name, action) => {
    const bonus = root.count[action] ? span * c * Math.sqrt(Math.log(root.visits) / root.count[action]) : Infinity;
    const score = root.count[action] ? `Q + bonus = ${number(root.mean[action])} + ${number(bonus)} = ${number(root.mean[action] + bonus)}` : "not tried yet: it goes first";
    return `<tr class="${mostVisited(root).includes(action) ? "best" : ""}"><th>${name}</th><td class="count">N = ${root.count[action]}</td><td>${score}</td></tr>`;
  });
  const table = `<p>At the root ${placeOf(world, root.state)}, c = ${short(c)}, returns scaled by their range ${number(span)}:</p><table>${rows.join("")}</table>${tellApart(run, tree, optimal)}`;
  if (last.searched) return `<p>${tree.simulations} simulations are done. It makes the move it tried most: <b>${ACTIONS[last.action]}</b>.</p>${tellMove(run, last, world)}${table}`;
  return `<p>Simulation ${tree.simulations}: through the tree ${last.path.map((state) => placeOf(world, state)).join(" → ")}, then ${last.rollout.length} random moves that pay ${number(last.leaf)}, discounted. On the way back every edge takes its return into its mean; at the root it is <b>${number(last.G)}</b>, for ${ACTIONS[last.action]}.</p>${table}`;
}

// Whether the search can tell the best move from the next one: by how much it is better, and how large the bonus still is.
function tellApart({ world, settings: { gamma, c } }, tree, optimal) {
  const { root } = tree, most = Math.max(...root.count);
  if (!optimal.V || root.count.includes(0)) return "";
  const values = backups(world, optimal.V, gamma, root.state), order = [0, 1, 2, 3].sort((a, b) => values[b] - values[a]);
  const gap = values[order[0]] - values[order[1]], bonus = returnsRange(tree) * c * Math.sqrt(Math.log(root.visits) / most);
  if (gap < 1e-9) return "<p>By Q* more than one move is the best here.</p>";
  return `<p>By Q*, ${ACTIONS[order[0]]} is the best move, by ${number(gap)} before ${ACTIONS[order[1]]}. The bonus of the move that was tried most is still ${number(bonus)}. ${bonus > gap
    ? "While the bonus is larger than the difference, both are tried, bad moves enter the means, and the move made may be wrong: the bonus falls like √(ln N / N), so it takes many simulations."
    : "It is smaller than the difference, so most simulations go to the move that looks best."}</p>`;
}

// Why what was learned need not be the best, said beside the numbers that show it.
function whyNotBest(run, solved) {
  const { method, world, settings: { epsilon, decay, alpha } } = run, own = ["sarsa", "sarsa_lambda", "mc_control"].includes(method);
  if (method === "mcts") return "A search makes its move from means over simulations that end in random moves. Where these pay much less than good play, or never meet the goal, only many simulations show which move is best: compare N = 200 with N = 5000.";
  if (METHODS[method].kind === "planner") return null;
  const parts = [];
  if (method === "reinforce") parts.push("v estimates what the present policy is worth, which still chooses at random, so it stays below V*.");
  if (own && epsilonNow(run) > 0) parts.push(`Of its actions ${number(100 * epsilonNow(run), 0)} % are random, and ${WORDS[method].name.split(",")[0]} learns what acting so is worth, mishaps included. So V stays below V*, and the greedy way may keep away from danger. ${decay
    ? "As ε falls, V comes nearer to the value of the greedy policy; but ways that looked bad while more was random are then hardly tried again." : "Let ε fall to 0, and V comes nearer to V*."}`);
  if (method === "mc_control" && !solved) parts.push(`It learns only when an episode is over: one that walks in circles is cut after ${world.limit} steps, and that says little about each of its actions.`);
  if (!own && method !== "reinforce") parts.push(`It learns the value of the best policy, whatever it does to explore${solved ? "" : "; what was seldom tried is not yet known"}.`);
  if (epsilon === 0 && method !== "reinforce") parts.push("With ε = 0 it tries nothing but what looks best, so it may stay with the first way that it finds.");
  if (world.slip > 0 && method !== "reinforce") parts.push(`The world slips, and with a constant α = ${short(alpha)} the values keep following the last outcomes: they jump about the right ones, the more the larger α is.`);
  if (world.slip > 0 && method === "dyna_q") parts.push("Its model remembers only the last outcome of each action, as if that were certain.");
  return parts.join(" ");
}

// What γ = 1 means in a world where it is defined.
function wordsOfRest(world) {
  const free = world.cells.some((cell, state) => !world.terminal[state] && world.reward[state].includes(0));
  return free ? "γ = 1: all rewards count alike, and moves that pay 0 cost nothing. So many moves can be equally good, and following any of them may lead in circles." : "γ = 1: all rewards count alike, and V* is the best return itself.";
}

// What a step costs and when an episode is cut.
function rulesOf(world) {
  const cells = world.cells, has = (cell) => cells.includes(cell);
  const parts = [`A step pays ${short(world.step)}. A bump into a wall or the edge pays ${short(world.bump)}, and the agent stays where it is.`];
  if (has(GOAL)) parts.push(`Entering the goal G pays ${short(world.goal)} and ends the episode.`);
  if (!reached(world).some((is, state) => is && cells[state] === GOAL)) parts.push("No goal can be reached from the start.");
  if (has(PIT)) parts.push(`A pit P pays ${short(world.pit)} and ends it, too.`);
  if (has(CLIFF)) parts.push(`The cliff C pays ${short(world.cliff)} and puts the agent back to the start; the episode goes on.`);
  if (Object.keys(world.rewards).length) parts.push("A cell with a number pays that number instead, whenever it is entered.");
  if (world.slip > 0) parts.push(`With probability ${short(world.slip)} a move slips to one of its two sides, to each with half of that.`);
  parts.push(`An episode is cut after ${world.limit} steps. That is no ending: the methods go on counting with the value of the state it was cut in.`);
  return parts.join(" ");
}
