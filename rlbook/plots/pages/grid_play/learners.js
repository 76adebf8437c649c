// Learning from steps: what was tried, what it paid, and where it led. A step is { state, action, reward, next, terminated, truncated }.
// Only `terminated` stops bootstrapping: after a time limit the world would have gone on.

const numbers = (world) => world.cells.map(() => [0, 0, 0, 0]);

// A random action with probability ε, otherwise one of the best.
function epsilonGreedy(q, state, epsilon, random) {
  if (random() < epsilon) return Math.floor(random() * ACTIONS.length);
  return greedy(q[state], random);
}

function greedy(row, random) {
  const best = bestActions(row);
  return best.length === 1 ? best[0] : best[Math.floor(random() * best.length)];
}

function bestActions(row) {
  const highest = Math.max(...row);
  return [0, 1, 2, 3].filter((action) => row[action] === highest);
}

// One of the best actions, always the same one.
function settled(row, state) {
  const best = bestActions(row);
  return best[state % best.length];
}

function qLearningUpdate(q, step, { alpha, gamma }) {
  const { state, action, reward, next, terminated } = step, before = q[state][action];
  const bootstrap = terminated ? 0 : Math.max(...q[next]);
  const error = reward + gamma * bootstrap - before;
  q[state][action] += alpha * error;
  return { before, bootstrap, error, after: q[state][action] };
}

// Also draws the next action, which will be taken next: that makes SARSA on-policy.
function sarsaUpdate(memory, step, { alpha, gamma, epsilon }, random) {
  const { state, action, reward, next, terminated, truncated } = step, q = memory.q, before = q[state][action];
  const nextAction = terminated ? null : epsilonGreedy(q, next, epsilon, random);
  const bootstrap = terminated ? 0 : q[next][nextAction];
  const error = reward + gamma * bootstrap - before;
  q[state][action] += alpha * error;
  memory.pending = terminated || truncated ? null : nextAction;
  return { before, bootstrap, nextAction, error, after: q[state][action] };
}

// SARSA(λ) with replacing traces: the error also reaches the pairs before this one, the earlier ones the less.
function sarsaLambdaUpdate(memory, step, { alpha, gamma, lambda, epsilon }, random) {
  const { state, action, reward, next, terminated, truncated } = step, { q, trace } = memory, before = q[state][action];
  const nextAction = terminated ? null : epsilonGreedy(q, next, epsilon, random);
  const bootstrap = terminated ? 0 : q[next][nextAction];
  const error = reward + gamma * bootstrap - before;
  trace[state][action] = alpha;
  let reached = 0;
  for (let s = 0; s < q.length; s++) for (let a = 0; a < 4; a++) if (trace[s][a] > 0) {
    q[s][a] += error * trace[s][a];
    trace[s][a] *= terminated || truncated ? 0 : gamma * lambda;
    reached += 1;
  }
  memory.pending = terminated || truncated ? null : nextAction;
  return { before, bootstrap, nextAction, error, after: q[state][action], reached };
}

// Monte Carlo control: waits for the end of the episode, then learns from the return that followed each first visit.
function monteCarloUpdate(memory, step, { alpha, gamma, epsilon }) {
  memory.episode.push(step);
  if (!step.terminated && !step.truncated) return { updates: [] };
  const { q, episode } = memory, beyond = step.terminated ? 0 : expectedValue(q[step.next], epsilon);
  const G = discountedReturns(episode, gamma, beyond), visited = new Set(), updates = [];
  episode.forEach(({ state, action }, time) => {
    if (visited.has(4 * state + action)) return;
    visited.add(4 * state + action);
    const before = q[state][action];
    q[state][action] += alpha * (G[time] - before);
    updates.push({ state, action, time, G: G[time], before, after: q[state][action] });
  });
  memory.episode = [];
  return { updates, length: episode.length };
}

// G_t = r + γ G_{t+1}, from the last step to the first; `beyond` is what the state is worth in which a time limit cut the episode.
function discountedReturns(episode, gamma, beyond) {
  const G = new Array(episode.length);
  for (let time = episode.length - 1; time >= 0; time--) G[time] = beyond = episode[time].reward + gamma * beyond;
  return G;
}

// Σ_a π(a|s) Q(s, a) under ε-greedy.
function expectedValue(row, epsilon) {
  const best = bestActions(row);
  return row.reduce((sum, value, action) => sum + (epsilon / 4 + (1 - epsilon) * (best.includes(action) ? 1 / best.length : 0)) * value, 0);
}

// Dyna-Q: Q-learning on the step, then n times on steps that the model remembers.
function dynaUpdate(memory, step, settings, random) {
  const { q, model, states, tried } = memory, { state, action } = step;
  const real = qLearningUpdate(q, step, settings);
  if (!model[state][action]) {
    if (tried[state].length === 0) states.push(state);
    tried[state].push(action);
  }
  model[state][action] = step;
  const planned = [];
  for (let count = 0; count < settings.planning; count++) {
    const s = states[Math.floor(random() * states.length)], a = tried[s][Math.floor(random() * tried[s].length)];
    planned.push({ state: s, action: a, ...qLearningUpdate(q, model[s][a], settings) });
  }
  return { ...real, planned };
}

function softmax(preferences) {
  const highest = Math.max(...preferences), weights = preferences.map((preference) => Math.exp(preference - highest));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight) => weight / total);
}

function sample(probabilities, random) {
  let left = random();
  for (let action = 0; action < 4; action++) if ((left -= probabilities[action]) < 0) return action;
  return 3;
}

// REINFORCE with a baseline: H(s, ·) moves along γ^t (G - v(s)) ∇ log π(a|s), where ∂ log π(a|s) / ∂ H(s, b) = 1[a = b] - π(b|s).
// All steps of an episode use the policy that played it; v follows the returns with step size β.
function reinforceUpdate(memory, step, { alpha, gamma, beta }) {
  memory.episode.push(step);
  if (!step.terminated && !step.truncated) return { updates: [] };
  const { H, v, episode } = memory, policy = H.map(softmax);
  const G = discountedReturns(episode, gamma, step.terminated ? 0 : v[step.next]);
  const updates = episode.map(({ state, action }, time) => ({ state, action, time, G: G[time], baseline: v[state], before: policy[state][action] }));
  updates.forEach(({ state, action, time, G, baseline }) => {
    const weight = gamma ** time * (G - baseline);
    for (let b = 0; b < 4; b++) H[state][b] += alpha * weight * (Number(b === action) - policy[state][b]);
    v[state] += beta * (G - v[state]);
  });
  updates.forEach((update) => { update.after = softmax(H[update.state])[update.action]; });
  memory.episode = [];
  return { updates, length: episode.length };
}
