// The small pages. Each has controls (name, label, range, first value), a chart for their values, and a sentence with the numbers.
const number = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
const range = (low, high, count) => Array.from({ length: count + 1 }, (_, i) => low + ((high - low) * i) / count);

const PAGES = {
  clip: {
    controls: [
      { name: "ratio", label: "ratio ρ", low: 0, high: 2, step: 0.01, first: 1.35 },
      { name: "advantage", label: "advantage A", low: -2, high: 2, step: 0.1, first: 1 },
      { name: "epsilon", label: "clip range ε", low: 0.05, high: 0.5, step: 0.01, first: 0.2 },
    ],
    draw: ({ ratio, advantage, epsilon }) => {
      const at = r => clippedSurrogate(r, advantage, epsilon, epsilon);
      const slope = clippedSlope(ratio, advantage, epsilon, epsilon);
      return {
        chart: {
          x: [0, 2], y: advantage < 0 ? [2.2 * Math.min(advantage, -0.5), 0.5] : [-0.5, 2.2 * Math.max(advantage, 0.5)], labels: ["ratio ρ", "objective of this action"], rules: [1 - epsilon, 1 + epsilon],
          lines: [
            { from: range(0, 2, 2).map(r => [r, r * advantage]), colour: "faint", dashed: true },
            { from: range(0, 2, 400).map(r => [r, at(r)]), colour: "blue" },
          ],
          points: [{ at: ratio, value: at(ratio), colour: "orange" }],
        },
        said: `min(ρA, clip(ρ)A) = ${number(at(ratio))}, and its slope is ${number(slope)}: ` + (slope
          ? `the gradient makes the action ${advantage > 0 ? "likelier" : "less likely"}.`
          : advantage === 0 ? "an action that is as good as expected teaches nothing."
          : `no gradient. The action is ${advantage > 0 ? "likely" : "unlikely"} enough already.`),
      };
    },
  },
  gae: {
    controls: [
      { name: "lambda", label: "λ", low: 0, high: 1, step: 0.01, first: 0.9 },
      { name: "gamma", label: "discount γ", low: 0.5, high: 1, step: 0.01, first: 0.99 },
    ],
    draw: ({ lambda, gamma }) => {
      const { errors, advantages } = gae([0, 0, 0, 0, 0, 0, 0, 1], [0.1, 0.2, 0.3, 0.2, 0.5, 0.4, 0.7, 0.8], gamma, lambda);
      const limit = Math.max(1, ...advantages.map(Math.abs));
      return {
        chart: {
          x: [-0.6, 7.6], y: [-0.4, 1.05 * limit], labels: ["step t of an episode; the last one pays 1", "reward units"],
          bars: errors.flatMap((error, t) => [
            { at: t - 0.2, value: error, wide: 0.36, colour: "pale" },
            { at: t + 0.2, value: advantages[t], wide: 0.36, colour: "blue" },
          ]),
        },
        key: [["pale", "TD error δ"], ["blue", "advantage A"]],
        said: `A₀ = ${errors.slice(0, 3).map((error, k) => `${number((gamma * lambda) ** k)} · ${number(error)}`).join(" + ")} + … = ${number(advantages[0])}. `
          + `In the λ-return of step 0 the one-step return counts ${number(lambdaWeights(lambda, 8)[0])}, the whole return ${number(lambdaWeights(lambda, 8)[7])}.`,
      };
    },
  },
  kl: {
    controls: [
      { name: "mean", label: "mean of q", low: -4, high: 4, step: 0.05, first: 0 },
      { name: "deviation", label: "deviation of q", low: 0.3, high: 4, step: 0.05, first: 1 },
    ],
    draw: ({ mean, deviation }) => {
      const { grid, p, q, forward, reverse } = twoPeaks(mean, deviation);
      const density = mass => mass.map((value, i) => [grid[i], value / (grid[1] - grid[0])]).filter(([at]) => Math.abs(at) <= 6);
      return {
        chart: {
          x: [-6, 6], y: [0, 1], labels: ["outcome", "density"],
          lines: [{ from: density(p), colour: "faint" }, { from: density(q), colour: "blue" }],
        },
        key: [["faint", "p, the target"], ["blue", "q, which you move"]],
        said: `KL(p‖q) = ${number(forward)} nats (forward), KL(q‖p) = ${number(reverse)} nats (reverse).`,
      };
    },
  },
  softmax: {
    controls: [
      { name: "temperature", label: "temperature", low: 0.05, high: 3, step: 0.05, first: 1 },
      ...[2, 1, 0, -1].map((first, i) => ({ name: `z${i}`, label: `logit ${"ABCD"[i]}`, low: -3, high: 3, step: 0.1, first })),
    ],
    draw: ({ temperature, ...logits }) => {
      const p = softmax(Object.values(logits), temperature);
      return {
        chart: {
          x: [-0.6, 3.6], y: [0, 1], labels: ["token", "probability"], names: [..."ABCD"],
          bars: p.map((value, at) => ({ at, value, wide: 0.7, colour: "blue" })),
        },
        said: `${p.map((value, i) => `${"ABCD"[i]} ${number(value)}`).join(", ")}. The entropy is ${number(entropy(p))} of at most ${number(Math.log(4))} nats.`,
      };
    },
  },
  belief: {
    controls: [
      { name: "quality", label: "reads right: q", low: 0.5, high: 0.99, step: 0.01, first: 0.8 },
      { name: "ups", label: "looks up", low: 0, high: 6, step: 1, first: 2 },
      { name: "downs", label: "looks down", low: 0, high: 6, step: 1, first: 1 },
      { name: "corridor", label: "corridor steps", low: 1, high: 10, step: 1, first: 5 },
      { name: "memory", label: "memory k", low: 1, high: 22, step: 1, first: 4 },
    ],
    draw: ({ quality, ups, downs, corridor, memory }) => {
      const looks = Array.from({ length: ups + downs }, (_, t) => t < ups), last = looks.length + corridor - 1;
      const whole = signBeliefs(looks, quality, corridor, Infinity), short = signBeliefs(looks, quality, corridor, memory);
      const [b, forgotten] = [whole[last], short[last]], price = 0.1 * Math.max(0, looks.length - 1);
      const earned = value => `${number(Math.max(value, 1 - value))} − ${number(Math.min(value, 1 - value))} = ${number(Math.abs(2 * value - 1))}`;
      const powers = [[quality, ups, downs], [1 - quality, ups, downs]].map(([right, same, other]) => `${number(right)}${superscript(same)} · ${number(1 - right)}${superscript(other)}`);
      return {
        chart: {
          x: [0, Math.max(last, 1)], y: [0, 1], labels: ["step; the last one is the junction", "belief that the prize is up"], rules: looks.length ? [looks.length - 1] : [],
          lines: [{ from: [...whole.entries()], colour: "blue" }, { from: [...short.entries()], colour: "orange", dashed: true }],
          points: [{ at: last, value: b, colour: "blue" }, { at: last, value: forgotten, colour: "orange" }],
        },
        key: [["blue", "all that was seen"], ["orange", `the last ${memory} observation${memory === 1 ? "" : "s"}`]],
        said: `b = ${powers[0]} / (${powers[0]} + ${powers[1]}) = ${number(b)}. At the junction the better arm pays ${earned(b)} on average`
          + (price ? `, and the looks after the first one have cost ${number(price)}` : "") + `. With the last ${memory} alone b = ${number(forgotten)}, and it pays ${earned(forgotten)}.`,
      };
    },
  },
  bandits: {
    controls: [
      { name: "epsilon", label: "ε of ε-greedy", low: 0, high: 0.5, step: 0.01, first: 0.1 },
      { name: "confidence", label: "c of UCB", low: 0, high: 4, step: 0.1, first: 1 },
      { name: "alpha", label: "α of gradient", low: 0.01, high: 1, step: 0.01, first: 0.1 },
      { name: "seed", label: "seed", low: 0, high: 20, step: 1, first: 0 },
    ],
    draw: ({ epsilon, confidence, alpha, seed }) => {
      const size = { steps: 400, problems: 200, seed };
      const curves = { orange: banditRace("greedy", epsilon, size), blue: banditRace("ucb", confidence, size), green: banditRace("gradient", alpha, size) };
      const late = curve => curve.slice(-50).reduce((sum, x) => sum + x / 50, 0);
      return {
        chart: {
          x: [0, 400], y: [0, 1], labels: ["pull", "share of best pulls"],
          lines: Object.entries(curves).map(([colour, curve]) => ({ colour, from: smoothed(curve, 10) })),
        },
        key: [["orange", "ε-greedy"], ["blue", "UCB"], ["green", "gradient"]],
        said: `Best machine in the last 50 of 400 pulls, 200 problems of ten machines: ε-greedy ${number(late(curves.orange))}, UCB ${number(late(curves.blue))}, gradient ${number(late(curves.green))}.`,
      };
    },
  },
};

const superscript = power => [...String(power)].map(digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

// A target with peaks at −2 and 2, and a normal distribution.
function twoPeaks(mean, deviation) {
  const grid = range(-12, 12, 960);
  const [left, right] = [-2, 2].map(peak => logNormalOnGrid(grid, peak, 0.5));
  const p = left.map((logP, i) => (Math.exp(logP) + Math.exp(right[i])) / 2);
  const logQ = logNormalOnGrid(grid, mean, deviation), q = logQ.map(Math.exp);
  return { grid, p, q, forward: kl(p, logQ), reverse: kl(q, p.map(Math.log)) };
}

function smoothed(curve, width) {
  return curve.flatMap((_, i) => (i % width ? [] : [[i + width / 2, curve.slice(i, i + width).reduce((sum, x) => sum + x / width, 0)]]));
}
