/* Parts 2 and 3 of the page: a group, its rewards and advantages, and an update with the probabilities before and after. */

function sample() {
  const answer = sumOf(text.prompt);
  if (answer === null) throw new Error("the prompt is no sum, so its answers cannot be paid");
  if (state.temperature === 0) throw new Error("at temperature 0 all answers of a group would be the same");
  group = sampleGroup(model, tokenizer, text.prompt, answer, { ...state, limit: book.limit }, random);
  group.updates = 0;
  showGroup(strongest(group));
}

/* The token whose gradient is largest before an update, |A| (1 - π): the one worth looking at first. */
function strongest({ answers }) {
  const places = answers.flatMap(({ ids }, i) => ids.map((_, t) => [i, t]));
  const pull = ([i, t]) => (Math.abs(answers[i].advantage) + 1e-9) * (1 - Math.exp(answers[i].logProbs[t]));
  return places.reduce((best, place) => (pull(place) > pull(best) ? place : best));
}

function showGroup(at) {
  for (const answer of group.answers) answer.now = logProbs(model, group.prompt, answer.ids, group.temperature);
  chosen = at ?? chosen;
  drawGroup();
}

function comparedAgain() {
  if (!group) return;
  for (const answer of group.answers) answer.reward = Object.entries(state.rewards).reduce((sum, [name, weight]) => sum + weight * answer.parts[name], 0);
  compare(group, state);
  drawGroup();
}

function drawGroup() {
  const there = Boolean(group);
  for (const name of ["compared", "inside"]) find(name).hidden = !there;
  find("update").disabled = state.busy || !there;
  if (!there) return ["paid", "answers"].forEach((name) => find(name).replaceChildren());
  const several = distinct(group.answers);
  find("paid").replaceChildren(...paid(several));
  find("compared").replaceChildren(...comparison().map((line) => make("div", {}, line)));
  find("answers").replaceChildren(...several.map(drawAnswer));
  find("inside").replaceChildren(...insideOf(...chosen).map((line) => make("div", {}, line)));
}

/* Equal answers have one card: for each kind of answer the places where it stands in the group. */
function distinct(answers) {
  const places = new Map();
  answers.forEach(({ ids }, i) => places.set(ids.join(), [...(places.get(ids.join()) ?? []), i]));
  return [...places.values()];
}

function paid(several) {
  const asked = Object.keys(REWARDS).filter((name) => state.rewards[name]), cell = (value) => make("td", { class: "number" }, value);
  const head = make("tr", {}, ...["answer", "drawn", "R", "A"].map((name, i) => make("th", i ? { class: "number" } : {}, name)));
  const rows = several.map((places) => {
    const { text: said, ended: over, parts, reward, advantage } = group.answers[places[0]], side = advantage > 0 ? "up" : advantage < 0 ? "down" : "";
    const each = asked.length > 1 ? [make("small", {}, asked.map((name) => `${name} ${digits(parts[name], 2)}`).join(", "))] : [];
    return make("tr", { class: side }, make("td", {}, make("code", {}, said), over ? " end" : " (cut off)", ...each), cell(`${places.length} ×`), cell(digits(reward, 2)),
      cell(make("b", {}, signed(advantage))));
  });
  return [make("p", {}, `To ${group.text} the right answer is ${group.answer} and then the end. Drawn were:`), make("table", {}, head, ...rows)];
}

const signed = (value) => (value > 0 ? "+" : "") + digits(value, 2);

function comparison() {
  const rewards = group.answers.map(({ reward }) => reward), G = rewards.length, sum = rewards.reduce((a, b) => a + b, 0);
  const [first] = group.answers, spread = Math.sqrt(rewards.reduce((s, r) => s + (r - sum / G) ** 2, 0) / (G - 1));
  const others = state.baseline === "leave-one-out", base = others ? (sum - first.reward) / (G - 1) : sum / G;
  const lines = [`rewards R: ${rewards.map((r) => digits(r, 2)).join(", ")}`, `baseline of answer 1 = mean of ${others ? "the others" : "all"} = ${digits(base)}`];
  if (state.scale === "std") lines.push(`standard deviation s = ${digits(spread)}`);
  const divisor = state.scale === "std" ? ` / (s + 0.0001)` : "", number = state.scale === "std" ? ` / ${digits(spread + 1e-4, 4)}` : "";
  lines.push(`A of answer 1 = (R − baseline)${divisor} = (${digits(first.reward, 2)} − ${digits(base)})${number} = ${digits(first.advantage)}`);
  if (spread < 1e-12) lines.push("All rewards are equal, so every advantage and the gradient are 0; only the momentum of earlier updates still moves the weights. Draw another group, or pay for parts of the answer (prefix).");
  return lines;
}

function drawAnswer(places) {
  const i = places[0], answer = group.answers[i];
  const side = answer.advantage > 0 ? "up" : answer.advantage < 0 ? "down" : "", after = group.updates > 0;
  const chips = answer.ids.map((id, t) => {
    const old = Math.exp(answer.logProbs[t]), now = Math.exp(answer.now[t]), tall = (p) => `height: ${Math.max(100 * p, 3)}%`;
    const pair = make("span", { class: "pair" }, make("i", { style: tall(old) }), ...(after ? [make("i", { style: tall(now) })] : []));
    const numbers = [make("small", {}, percent(old)), ...(after ? [make("small", {}, make("b", {}, percent(now)))] : [])];
    const shown = places.includes(chosen[0]) && chosen[1] === t ? " shown" : "";
    const label = `token ${t + 1} of answer ${i + 1}, ${named(id)}, probability ${percent(old)}${after ? `, now ${percent(now)}` : ""}`;
    return make("button", { class: `chip${shown}`, "aria-label": label, onclick: () => { chosen = [i, t]; drawGroup(); } }, make("b", {}, named(id)), pair, ...numbers);
  });
  const head = make("p", {}, `${places.length > 1 ? "answers" : "answer"} ${places.map((place) => place + 1).join(", ")}:  R = ${digits(answer.reward, 2)},  A = `, make("b", {}, signed(answer.advantage)));
  const whole = `the whole answer: ${percent(total(answer.logProbs))}${after ? ` → ${percent(total(answer.now))}` : ""}`;
  return make("div", { class: `answer ${side}` }, head, make("div", { class: "tokens" }, ...chips), make("p", { class: "faint" }, whole));
}

const total = (logs) => Math.exp(logs.reduce((sum, value) => sum + value, 0));

/* The loss of one token with its numbers. */
function insideOf(i, t) {
  const answer = group.answers[i], A = answer.advantage, low = 1 - state.clip, high = 1 + state.clip;
  const { ratio, stopped, gain } = clippedGain(answer.now[t], answer.logProbs[t], A, state.clip), bounded = Math.min(Math.max(ratio, low), high);
  return [
    `token "${named(answer.ids[t])}" (place ${t + 1} of answer ${i + 1}), A = ${digits(A)}`,
    `log π_old = ${digits(answer.logProbs[t])} and log π = ${digits(answer.now[t])} nats`,
    `ρ = π / π_old = exp(${digits(answer.now[t])} − (${digits(answer.logProbs[t])})) = ${digits(ratio)}`,
    `min(ρ A, clip(ρ, ${digits(low, 1)}, ${digits(high, 1)}) A) = min(${digits(ratio * A)}, ${digits(bounded * A)}) = ${digits(gain)}`,
    stopped ? "The clip holds: this token gives the next update no gradient." : A === 0 ? "A = 0: this token gives no gradient." : `Alone, this token would become ${A > 0 ? "more" : "less"} likely by the next update. The others move the same weights.`,
  ];
}

const stepSettings = () => ({ ...state, averageDivisor: book.limit, maxGradNorm: book.maxGradNorm });

function remember(kind, rewards, share = null) {
  records.push({ update: adam.steps, kind, meanReward: rewards.length ? mean(rewards) : null, heldOut: share });
}

async function update() {
  if (!group) throw new Error("there is no group yet");
  return alone(async () => {
    const start = performance.now();
    before = model.copy();
    const step = grpoStep(model, adam, [group], stepSettings()), took = performance.now() - start;
    group.updates += 1;
    showGroup();
    drawText();
    remember("group", group.answers.map(({ reward }) => reward), await evaluate());
    drawCurve();
    find("updateNote").textContent = `Update ${adam.steps}: loss ${digits(step.loss)}, gradient norm ${digits(step.gradNorm, 2)}, ${percent(step.stoppedShare)} of the tokens stopped by the clip, ${took.toFixed(0)} ms.`;
    return step;
  });
}
