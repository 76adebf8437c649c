// The formulas of the small pages, written a second time: a test holds each equal to the Python function that its comment names.

// rlbook.functional.policy_losses.clipped_surrogate_loss, as an objective for one action: min(ρ A, clip(ρ) A).
function clippedSurrogate(ratio, advantage, low, high) {
  const clipped = Math.min(Math.max(ratio, 1 - low), 1 + high);
  return Math.min(ratio * advantage, clipped * advantage);
}

// Its derivative with respect to ρ: A, or 0 where the clipped product is the smaller one.
function clippedSlope(ratio, advantage, low, high) {
  const switchedOff = advantage > 0 ? ratio > 1 + high : ratio < 1 - low;
  return switchedOff ? 0 : advantage;
}

// rlbook.functional.advantages.gae of one episode that terminates: the TD errors, and the advantages.
function gae(rewards, values, gamma, lambda) {
  const errors = rewards.map((reward, t) => reward + gamma * (values[t + 1] ?? 0) - values[t]);
  const advantages = new Array(rewards.length);
  let following = 0;
  for (let t = rewards.length - 1; t >= 0; t--) advantages[t] = following = errors[t] + gamma * lambda * following;
  return { errors, advantages };
}

// How much the n-step return counts in the λ-return of an episode of `length` steps, n = 1, 2, …, length.
function lambdaWeights(lambda, length) {
  return Array.from({ length }, (_, k) => (k < length - 1 ? 1 - lambda : 1) * lambda ** k);
}

// rlbook.functional.bandits.softmax of the logits divided by the temperature.
function softmax(logits, temperature = 1) {
  const largest = Math.max(...logits);
  const odds = logits.map(z => Math.exp((z - largest) / temperature));
  const total = odds.reduce((sum, x) => sum + x, 0);
  return odds.map(x => x / total);
}

// In nats; what has the probability 0 adds nothing.
function entropy(p) {
  return -p.reduce((sum, x) => sum + (x > 0 ? x * Math.log(x) : 0), 0);
}

// rlbook.functional.post_training.distillation_losses.forward_kl with p as the teacher: KL(p ‖ q), in nats. It takes log q, because a
// small q may be 0 as a number where its logarithm is finite.
function kl(p, logQ) {
  return p.reduce((sum, x, i) => sum + (x > 0 ? x * (Math.log(x) - logQ[i]) : 0), 0);
}

// The logarithm of a normal density at the points of a grid, scaled so that it adds up to 1 there.
function logNormalOnGrid(grid, mean, deviation) {
  const logits = grid.map(x => -(((x - mean) / deviation) ** 2) / 2), largest = Math.max(...logits);
  const logTotal = largest + Math.log(logits.reduce((sum, z) => sum + Math.exp(z - largest), 0));
  return logits.map(z => z - logTotal);
}

// rlbook.functional.bandits.upper_confidence_bound; an action that was never tried comes first.
function upperConfidenceBound(values, counts, confidence) {
  const time = 1 + counts.reduce((sum, n) => sum + n, 0);
  return values.map((value, a) => (counts[a] ? value + confidence * Math.sqrt(Math.log(time) / counts[a]) : Infinity));
}

// rlbook.functional.bandits.preference_gradient: (r - baseline) ([b = a] - π(b)).
function preferenceGradient(preferences, action, reward, baseline) {
  return softmax(preferences).map((p, b) => (reward - baseline) * ((b === action) - p));
}

// rlbook.book.exercises.part_two_memory.next_belief: the belief [S] after a step with the probabilities P [S, S], and what was seen [S].
function nextBelief(belief, P, seen) {
  const joint = seen.map((chance, next) => chance * belief.reduce((sum, b, state) => sum + b * P[state][next], 0));
  const total = joint.reduce((sum, x) => sum + x, 0);
  return joint.map(x => x / total);
}

// In a T-maze whose sign is read rightly with a probability: the belief that the prize is up, at each step, where the last `memory`
// observations count. First come the looks (true: the sign seemed to point up), then the corridor, which says nothing.
function signBeliefs(looks, quality, corridor, memory) {
  const stays = [[1, 0], [0, 1]], seen = looks.map(up => (up ? [quality, 1 - quality] : [1 - quality, quality]));
  seen.push(...Array.from({ length: corridor }, () => [1, 1]));
  return seen.map((_, t) => seen.slice(Math.max(0, t + 1 - memory), t + 1).reduce((belief, one) => nextBelief(belief, stays, one), [0.5, 0.5])[0]);
}

// Numbers from 0 to 1 that a seed fixes (mulberry32).
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

// One standard normal number (Box and Muller).
function normalNumber(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

function argmaxAtRandom(scores, random) {
  const best = Math.max(...scores);
  const ties = scores.flatMap((score, a) => (score === best ? [a] : []));
  return ties[Math.floor(random() * ties.length)];
}

// The share of pulls of the best of ten machines at each step, over many problems: q(a) ~ N(0, 1), rewards ~ N(q(a), 1).
function banditRace(method, parameter, { steps, problems, seed }) {
  const random = randomNumbers(seed);
  const best = new Array(steps).fill(0);
  for (let problem = 0; problem < problems; problem++) {
    const means = Array.from({ length: 10 }, () => normalNumber(random));
    const right = means.indexOf(Math.max(...means));
    const values = new Array(10).fill(0), counts = new Array(10).fill(0), preferences = new Array(10).fill(0);
    let average = 0;
    for (let step = 0; step < steps; step++) {
      const action = chooseMachine(method, parameter, { values, counts, preferences }, random);
      const reward = means[action] + normalNumber(random);
      if (step === 0) average = reward;
      if (method === "gradient")
        preferenceGradient(preferences, action, reward, average).forEach((change, b) => { preferences[b] += parameter * change; });
      average += (reward - average) / (step + 1);
      counts[action] += 1;
      values[action] += (reward - values[action]) / counts[action];
      if (action === right) best[step] += 1 / problems;
    }
  }
  return best;
}

function chooseMachine(method, parameter, { values, counts, preferences }, random) {
  if (method === "ucb") return argmaxAtRandom(upperConfidenceBound(values, counts, parameter), random);
  if (method === "greedy") return random() < parameter ? Math.floor(random() * 10) : argmaxAtRandom(values, random);
  let rest = random();
  const chances = softmax(preferences);
  const drawn = chances.findIndex(p => (rest -= p) < 0);
  return drawn < 0 ? chances.length - 1 : drawn;
}
