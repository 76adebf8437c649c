// Planning: the model is known, so values are computed and nothing is tried.

// r + γ V(s'), averaged over what the action may lead to; V(s') counts as 0 where the episode ends.
function backup(world, V, gamma, state, action) {
  let value = 0;
  for (const { probability, next, reward, terminated } of outcomes(world, state, action))
    value += probability * (reward + (terminated ? 0 : gamma * V[next]));
  return value;
}

function backups(world, V, gamma, state) {
  return MOVES.map((_, action) => backup(world, V, gamma, state, action));
}

// One sweep of value iteration: V(s) ← max_a [ r + γ V(s') ] for all states at once.
function valueIterationSweep(world, V, gamma) {
  return V.map((_, state) => Math.max(...backups(world, V, gamma, state)));
}

// V of a policy [S][A], exactly: the solution of V = r_π + γ P_π V over the states of `counted` [S]; the others count as 0.
function policyValues(world, policy, gamma, counted = world.terminal.map((terminal) => !terminal)) {
  const states = world.cells.map((_, state) => state).filter((state) => counted[state]);
  const place = new Map(states.map((state, index) => [state, index]));
  const rows = states.map((state, index) => {
    const row = new Float64Array(states.length + 1);
    row[index] = 1;
    policy[state].forEach((share, action) => {
      if (share > 0) for (const { probability, next, reward, terminated } of outcomes(world, state, action)) {
        row[states.length] += share * probability * reward;
        if (!terminated && place.has(next)) row[place.get(next)] -= gamma * share * probability;
      }
    });
    return row;
  });
  const solved = solve(rows), V = new Array(world.numStates).fill(0);
  states.forEach((state, index) => { V[state] = solved[index]; });
  return V;
}

// Gaussian elimination with row exchange; each row holds the coefficients and, last, the right-hand side.
function solve(rows) {
  const size = rows.length;
  for (let column = 0; column < size; column++) {
    let pivot = column;
    for (let row = column + 1; row < size; row++) if (Math.abs(rows[row][column]) > Math.abs(rows[pivot][column])) pivot = row;
    [rows[column], rows[pivot]] = [rows[pivot], rows[column]];
    for (let row = column + 1; row < size; row++) {
      const factor = rows[row][column] / rows[column][column];
      if (factor) for (let k = column; k <= size; k++) rows[row][k] -= factor * rows[column][k];
    }
  }
  const solution = new Float64Array(size);
  for (let row = size - 1; row >= 0; row--) {
    let rest = rows[row][size];
    for (let k = row + 1; k < size; k++) rest -= rows[row][k] * solution[k];
    solution[row] = rest / rows[row][row];
  }
  return solution;
}

// A policy that takes one action in each state, as probabilities [S][A].
const always = (actions) => actions.map((chosen) => MOVES.map((_, action) => Number(action === chosen)));
const firstBest = (values) => values.indexOf(Math.max(...values));

// Policy iteration begins with what pays most at once, which is greedy by V = 0; with γ = 1, with a policy that comes to an end (`endless.js`).
function firstPolicy(world, gamma) {
  if (gamma === 1) return endingPolicy(world);
  const nothing = new Array(world.numStates).fill(0);
  return { actions: nothing.map((_, state) => firstBest(backups(world, nothing, 0, state))), endless: null };
}

// One round: evaluate the policy, then improve it where another action is better, and not where one is equally good.
// With γ = 1, `counted` says which states are solved for: those that can be reached and where the policy does not rest.
function policyIterationRound(world, { actions, counted }, gamma) {
  const V = policyValues(world, always(actions), gamma, counted);
  const slack = 64 * 2 ** -52 * Math.max(1, ...V.map(Math.abs)), known = gamma === 1 ? reached(world) : null;
  const better = (values, state) => (known === null || known[state]) && Math.max(...values) > V[state] + slack;
  const improves = [], improved = actions.map((action, state) => {
    const values = backups(world, V, gamma, state);
    improves[state] = !world.terminal[state] && better(values, state);
    return improves[state] ? firstBest(values) : action;
  });
  const round = { V, actions: improved, counted: counted && counted.map((is, state) => is || improves[state]), changed: improves.filter(Boolean).length };
  return { ...round, endless: gamma === 1 && !comesToRest(world, round) ? INFINITE : null };
}

// V* and an optimal policy: policy iteration until nothing changes. Where there are none, `endless` says why.
// With γ < 1 it may begin with any policy, such as the best one of a world that differs little.
function optimum(world, gamma, actions = null) {
  let round = actions && gamma < 1 ? { actions, endless: null, changed: 1 } : { ...firstPolicy(world, gamma), changed: 1 };
  for (let count = 0; round.changed && !round.endless && count < 1000; count++) round = policyIterationRound(world, round, gamma);
  return round.endless ? { V: null, actions: null, endless: round.endless } : { V: round.V, actions: round.actions, endless: null };
}

// What an episode of a policy pays on average, undiscounted, from the start to its end or to the time limit.
function expectedReturn(world, policy) {
  const chain = policy.map((shares, state) => {
    const leads = [];
    let pays = 0;
    shares.forEach((share, action) => {
      if (share > 0) for (const { probability, next, reward, terminated } of outcomes(world, state, action)) {
        pays += share * probability * reward;
        if (!terminated) leads.push([next, share * probability]);
      }
    });
    return { pays, leads };
  });
  let V = new Array(world.numStates).fill(0);
  for (let left = 0; left < world.limit; left++) V = chain.map(({ pays, leads }) => leads.reduce((sum, [next, share]) => sum + share * V[next], pays));
  return V[world.start];
}
