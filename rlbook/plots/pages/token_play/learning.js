/* What GRPO needs around the model: tokens, drawing, rewards, advantages, one gradient step, and the sums.

   Each function is the counterpart of one of rlbook's, which its comment names; tests/equivalence/test_token_play.py compares them. */

/* rlbook.llm.tokenizers.tokenizer: one token a character, and PAD, BOS, EOS, UNKNOWN in front; a prompt begins with BOS. */
class Tokenizer {
  constructor(tokens) {
    this.tokens = tokens;
    this.ids = Object.fromEntries(tokens.map((token, id) => [token, id]));
    this.bos = this.ids["<bos>"];
    this.eos = this.ids["<eos>"];
  }

  encode(text) {
    const strange = [...text].find((character) => !(character in this.ids));
    if (strange !== undefined) throw new Error(`the vocabulary has no token for "${strange}"; it has 0 to 9, + = and a to j`);
    return [this.bos, ...[...text].map((character) => this.ids[character])];
  }

  decode(ids) {
    return ids.map((id) => this.tokens[id]).join("");
  }
}

/* Uniform numbers in [0, 1) that follow from a seed: mulberry32. */
class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  }

  below(count) {
    return Math.floor(this.next() * count);
  }
}

/* rlbook.llm.generation.sampling.Sampling: the logits that a token is drawn from, -∞ for tokens that are left out. Temperature 0: the likeliest. */
function scores(logits, { temperature = 1, topK = 0, topP = 1 } = {}) {
  if (temperature === 0) return logits.slice();
  let kept = logits.map((logit) => logit / temperature);
  if (topK) {
    const least = [...kept].sort((a, b) => b - a)[Math.min(topK, kept.length) - 1];
    kept = kept.map((score) => (score < least ? -Infinity : score));
  }
  if (topP < 1) {
    const probability = softmax(kept), ascending = [...kept.keys()].sort((a, b) => kept[a] - kept[b]);
    let mass = 0;
    for (const token of ascending.slice(0, -1)) {
      mass += probability[token];
      if (mass <= 1 - topP) kept[token] = -Infinity;
    }
  }
  return kept;
}

/* The probabilities of `scores`; at temperature 0 the likeliest token has them all. */
function distribution(logits, sampling) {
  if (sampling.temperature === 0) {
    const best = likeliest(logits);
    return logits.map((_, token) => Number(token === best));
  }
  return softmax(scores(logits, sampling));
}

function likeliest(logits) {
  let best = 0;
  for (let token = 1; token < logits.length; token++) if (logits[token] > logits[best]) best = token;
  return best;
}

/* rlbook.networks.distributions.sample_categorical: the token whose slice of the cumulative distribution holds `uniform`. */
function drawn(logits, uniform) {
  const top = Math.max(...logits), raised = logits.map((logit) => Math.exp(logit - top));
  let left = uniform * raised.reduce((sum, value) => sum + value, 0), token = 0;
  while (token < logits.length - 1 && left >= raised[token]) left -= raised[token++];
  return token;
}

const row = (matrix, i) => matrix.data.slice(i * matrix.columns, (i + 1) * matrix.columns);

/* rlbook.llm.generation.generate.generate, for several completions of one prompt, which is read once. Without `random`, the likeliest tokens.
   Returns for each {ids, logProbs, ended}; a log-probability is that under the temperature. */
function write(model, prompt, { count = 1, limit, eos, temperature = 1, random = null }) {
  const read = [], first = model.forward(prompt, read), behind = row(first, prompt.length - 1);
  return Array.from({ length: count }, () => {
    const cache = [...read], ids = [], logProbs = [];
    for (let logits = behind; ; logits = row(model.forward([ids.at(-1)], cache), 0)) {
      const token = random ? drawn(scores(logits, { temperature }), random.next()) : likeliest(logits);
      ids.push(token);
      logProbs.push(Math.log(softmax(scores(logits, { temperature: temperature || 1 }))[token]));
      if (token === eos || ids.length === limit) return { ids, logProbs, ended: token === eos };
    }
  });
}

/* rlbook.llm.rewards: of a completion {text (without EOS), ended, ids, answer, limit}. */
const REWARDS = {
  exact: ({ text, ended, answer }) => Number(ended && text === answer),
  prefix: (completion) => {
    const { text, answer } = completion;
    let right = 0;
    while (right < Math.min(text.length, answer.length) && text[right] === answer[right]) right++;
    return (right + REWARDS.exact(completion)) / (answer.length + 1);
  },
  number: ({ text, ended }) => Number(ended && /^[-+]?\d+$/.test(text)),
  length: ({ ids, limit }) => -ids.length / limit,
};

/* R = Σ w_k r_k, as rlbook.llm.rewards.Rewards adds them; and each r_k by its name. */
function rewarded(completion, weights) {
  const parts = mapped(REWARDS, (reward) => reward(completion));
  return { parts, reward: Object.entries(weights).reduce((sum, [name, weight]) => sum + weight * parts[name], 0) };
}

/* rlbook.functional.advantages.group_advantage, of one group. Taken from the first reward, so that equal rewards give exactly 0. */
function groupAdvantage(rewards, { scale = "std", baseline = "mean", eps = 1e-4 } = {}) {
  const G = rewards.length, shifted = rewards.map((reward) => reward - rewards[0]);
  const mean = shifted.reduce((sum, r) => sum + r, 0) / G;
  const others = baseline === "leave-one-out" ? G / (G - 1) : 1;
  const spread = Math.sqrt(shifted.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (G - 1));
  return shifted.map((r) => others * (r - mean) / (scale === "std" ? spread + eps : 1));
}

/* rlbook.functional.averages: what a token of each completion counts, for the lengths of all completions. */
const AVERAGES = {
  token: (lengths) => lengths.map(() => 1 / lengths.reduce((sum, length) => sum + length, 0)),
  sequence: (lengths) => lengths.map((length) => 1 / (length * lengths.length)),
  constant: (lengths, divisor) => lengths.map(() => 1 / (lengths.length * divisor)),
};

/* rlbook.functional.policy_losses.clipped_surrogate_loss, of one token: min(ρ A, clip(ρ, 1-ε, 1+ε) A) and its derivative by log π. */
function clippedGain(logProb, oldLogProb, advantage, clip) {
  const ratio = Math.exp(Math.min(logProb - oldLogProb, 20)), bounded = Math.min(Math.max(ratio, 1 - clip), 1 + clip);
  const stopped = bounded * advantage < ratio * advantage;
  return { ratio, stopped, gain: stopped ? bounded * advantage : ratio * advantage, slope: stopped ? 0 : ratio * advantage };
}

/* rlbook.networks.optimizer.Adam, for all weights of a model. */
class Adam {
  constructor(model, { beta1 = 0.9, beta2 = 0.999, eps = 1e-8 } = {}) {
    Object.assign(this, { model, beta1, beta2, eps, steps: 0 });
    this.moments = mapped(model.weights, (w) => ({ mean: new Float64Array(w.data.length), square: new Float64Array(w.data.length) }));
  }

  /* One step down the gradients, which are then 0 again. Returns their norm before they are clipped. */
  step(learningRate, maxGradNorm) {
    const { beta1, beta2, eps, moments } = this, weights = Object.entries(this.model.weights);
    const norm = Math.sqrt(weights.reduce((sum, [, w]) => sum + dot(w.gradient, 0, w.gradient, 0, w.gradient.length), 0));
    const scale = norm > maxGradNorm ? maxGradNorm / (norm + 1e-6) : 1;
    this.steps += 1;
    const bias1 = 1 - beta1 ** this.steps, bias2 = 1 - beta2 ** this.steps;
    for (const [name, w] of weights) {
      const { mean, square } = moments[name], gradient = w.gradient;
      for (let i = 0; i < gradient.length; i++) {
        const g = gradient[i] * scale;
        mean[i] += (1 - beta1) * (g - mean[i]);
        square[i] = beta2 * square[i] + (1 - beta2) * g * g;
        w.data[i] -= learningRate * (mean[i] / bias1) / (Math.sqrt(square[i] / bias2) + eps);
      }
      w.slope = null;
    }
    return norm;
  }
}

/* log π(token | text before it) of a completion's tokens under a model; with `back`, a function of (log π, place) → dL / dlog π, the
   gradients of all weights are added up too. */
function logProbs(model, prompt, ids, temperature, back = null) {
  const tape = back ? new Tape() : null, logits = model.forward([...prompt, ...ids.slice(0, -1)], [], tape);
  const found = ids.map((token, t) => {
    const at = prompt.length - 1 + t, probability = softmax(scores(row(logits, at), { temperature })), logProb = Math.log(probability[token]);
    if (back) {
      const slope = back(logProb, t) / temperature;
      probability.forEach((p, other) => { logits.gradient[at * logits.columns + other] = slope * (Number(other === token) - p); });
    }
    return logProb;
  });
  tape?.backward();
  return found;
}

/* One prompt answered G times: the answers with their rewards and advantages. */
function sampleGroup(model, tokenizer, text, answer, settings, random) {
  const { limit, temperature, groupSize, rewards, scale, baseline } = settings, prompt = tokenizer.encode(text);
  const answers = write(model, prompt, { count: groupSize, limit, eos: tokenizer.eos, temperature, random }).map((written) => {
    const said = tokenizer.decode(written.ended ? written.ids.slice(0, -1) : written.ids);
    return { ...written, text: said, ...rewarded({ ...written, text: said, answer, limit }, rewards) };
  });
  const group = { text, answer, prompt, answers, temperature };
  compare(group, { scale, baseline });
  return group;
}

/* Puts the advantages into a group. */
function compare(group, how) {
  const advantages = groupAdvantage(group.answers.map(({ reward }) => reward), how);
  group.answers.forEach((answer, i) => { answer.advantage = advantages[i]; });
}

/* rlbook.algorithms.policy.grpo, one gradient step on some groups: every weight of the model moves. */
function grpoStep(model, adam, groups, { clip, average, averageDivisor, learningRate, maxGradNorm }) {
  const rows = groups.flatMap(({ prompt, answers, temperature }) => answers.map((answer) => ({ prompt, temperature, ...answer })));
  const shares = AVERAGES[average](rows.map(({ ids }) => ids.length), averageDivisor);
  let loss = 0, stoppedShare = 0;
  rows.forEach(({ prompt, temperature, ids, logProbs: old, advantage }, i) => {
    logProbs(model, prompt, ids, temperature, (logProb, t) => {
      const { gain, slope, stopped } = clippedGain(logProb, old[t], advantage, clip);
      loss -= shares[i] * gain;
      stoppedShare += shares[i] * Number(stopped);
      return -shares[i] * slope;
    });
  });
  return { loss, stoppedShare, gradNorm: adam.step(learningRate, maxGradNorm) };
}

/* rlbook.llm.tasks.addition: "12+34=" is answered by "46"; null where the text is no sum. */
function sumOf(prompt) {
  const found = /^(\d+)\+(\d+)=$/.exec(prompt);
  return found ? String(BigInt(found[1]) + BigInt(found[2])) : null;
}

/* All sums of two numbers of two digits that are not held out. */
function trainingSums(heldOut) {
  const kept = new Set(heldOut), sums = [];
  for (let a = 10; a < 100; a++) for (let b = 10; b < 100; b++) if (!kept.has(`${a}+${b}=`)) sums.push(`${a}+${b}=`);
  return sums;
}

/* The share of prompts whose likeliest answer is right. */
function shareRight(model, tokenizer, prompts, limit) {
  const right = prompts.filter((prompt) => {
    const [{ ids, ended }] = write(model, tokenizer.encode(prompt), { limit, eos: tokenizer.eos });
    return ended && tokenizer.decode(ids.slice(0, -1)) === sumOf(prompt);
  });
  return right.length / prompts.length;
}
