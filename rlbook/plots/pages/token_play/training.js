/* Part 4 of the page: rounds of updates, the share of held-out sums, and the curve. */

/* One thing at a time; buttons wait. */
async function alone(work) {
  if (state.busy) throw new Error("an update is being made");
  state.busy = true;
  for (const name of ["update", "sample", "reset"]) find(name).disabled = true;
  await settled();
  try {
    return await work();
  } finally {
    state.busy = state.stopping = false;
    find("reset").disabled = false;
    find("train").textContent = "train";
    drawText();
    drawGroup();
  }
}

async function evaluate() {
  const parts = [];
  for (let i = 0; i < held.length; i += 16) {
    parts.push(shareRight(model, tokenizer, held.slice(i, i + 16), book.limit));
    await settled();
  }
  return mean(parts);
}

async function train(rounds = state.rounds) {
  return alone(async () => {
    before = model.copy();
    find("train").textContent = "stop";
    for (let done = 1; done <= rounds && !state.stopping; done++) {
      const groups = Array.from({ length: state.prompts }, () => {
        const prompt = training[random.below(training.length)];
        return sampleGroup(model, tokenizer, prompt, sumOf(prompt), { ...state, temperature: state.temperature || 1, limit: book.limit }, random);
      });
      await settled();
      const step = grpoStep(model, adam, groups, stepSettings()), last = done === rounds || state.stopping;
      const silent = groups.filter(({ answers }) => answers.every(({ advantage }) => advantage === 0)).length;
      remember("round", groups.flatMap(({ answers }) => answers.map(({ reward }) => reward)), done % 5 === 0 || last ? await evaluate() : null);
      find("trainNote").textContent = `Round ${done} of ${rounds}: mean reward ${digits(records.at(-1).meanReward)}, ${silent} of ${groups.length} groups had equal rewards and taught nothing, gradient norm ${digits(step.gradNorm, 2)}.`;
      drawCurve();
      await settled();
    }
    if (group) showGroup();
    return records;
  });
}

function drawCurve() {
  const svg = (kind, attributes, said = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = said;
    return element;
  };
  const rewards = records.filter(({ meanReward }) => meanReward !== null), shares = records.filter(({ heldOut }) => heldOut !== null);
  const low = Math.min(0, ...rewards.map(({ meanReward }) => meanReward)), high = Math.max(1, ...rewards.map(({ meanReward }) => meanReward));
  const wide = Math.max(find("curve").clientWidth, 300), right = wide - 16;
  const end = Math.max(10, records.at(-1).update), x = (update) => 44 + (update / end) * (right - 44), y = (value) => 215 - ((value - low) / (high - low)) * 200;
  const marks = [low, ...[0.25, 0.5, 0.75].map((share) => low + share * (high - low)), high];
  const parts = marks.flatMap((value) => [svg("line", { x1: 44, x2: right, y1: y(value), y2: y(value) }), svg("text", { x: 38, y: y(value) + 4, "text-anchor": "end" }, digits(value, 2))]);
  for (const update of [0, Math.round(end / 2), end]) parts.push(svg("text", { x: x(update), y: 234, "text-anchor": update === end ? "end" : "middle" }, update));
  parts.push(svg("text", { x: (44 + right) / 2, y: 254, "text-anchor": "middle" }, "updates"));
  parts.push(svg("polyline", { points: rewards.map(({ update, meanReward }) => `${x(update)},${y(meanReward)}`).join(" "), fill: "none", stroke: "var(--blue)", "stroke-width": 2 }));
  if (rewards.length === 1) parts.push(svg("circle", { cx: x(rewards[0].update), cy: y(rewards[0].meanReward), r: 3, fill: "var(--blue)" }));
  for (const { update, heldOut } of shares) parts.push(svg("circle", { cx: x(update), cy: y(heldOut), r: 5, fill: "var(--orange)" }));
  const last = shares.at(-1);
  if (last) parts.push(svg("text", { x: Math.min(x(last.update) + 9, right - 44), y: y(last.heldOut) - 8, style: "fill: var(--orange)" }, percent(last.heldOut)));
  find("curve").setAttribute("viewBox", `0 0 ${wide} 260`);
  find("curve").replaceChildren(...parts);
  find("curve").setAttribute("aria-label", `after ${records.at(-1).update} updates ${last ? percent(last.heldOut) : "not yet measured"} of the held-out sums are right`);
}

async function reset() {
  if (state.busy) throw new Error("an update is being made");
  model = shipped.copy();
  adam = new Adam(model);
  [before, group, chosen, records] = [null, null, [0, 0], [{ update: 0, kind: "start", meanReward: null, heldOut: null }]];
  random = new Random(state.seed);
  find("updateNote").textContent = "First draw a group.";
  find("trainNote").textContent = "";
  drawGroup();
  setPrompt(text.prompt || book.prompt);
  drawCurve();
  await alone(async () => { records[0].heldOut = await evaluate(); });
  drawCurve();
}
