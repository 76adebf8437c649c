const find = (name) => document.getElementById(name);
const names = Object.keys(data.meaning), last = data.moments.length - 1;
const SIGNED = { advantage: 0, ratio: 1, value: 0 };
let now = 0, by = names.includes("advantage") ? "advantage" : names[0], place = [0, 0];

function make(kind, text, attributes = {}) {
  const element = document.createElement(kind);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const digits = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : Number(value.toPrecision(3)).toString();
const printed = (token) => token === "" ? "∅" : token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));

// The largest distance from the middle, or the largest value, of each quantity in all of training: a colour means the same at every step.
const reach = {};
for (const name of names) {
  let most = 0;
  for (const moment of data.moments) for (const episode of moment.episodes) for (const value of episode[name] || []) {
    if (value === null) continue;
    const far = name === "ratio" ? Math.abs(Math.log(Math.max(value, 1e-6))) : Math.abs(value);
    if (far > most) most = far;
  }
  reach[name] = name === "probability" || name === "reference" ? 1 : name === "ratio" ? Math.min(most, Math.log(4)) || 1 : most || 1;
}

const triple = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
const mix = (from, to, share) => from.map((part, i) => Math.round(part + (to[i] - part) * share));

function share(name, value) {
  if (value === null || value === undefined) return null;
  if (name === "ratio") return Math.max(-1, Math.min(1, Math.log(Math.max(value, 1e-6)) / reach[name]));
  return Math.max(-1, Math.min(1, value / reach[name]));
}

function colours(part) {
  const paper = part === null ? triple("--none") : mix(triple("--low"), triple(part < 0 ? "--minus" : "--high"), Math.abs(part));
  const light = (channel) => (channel /= 255) <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  const bright = 0.2126 * light(paper[0]) + 0.7152 * light(paper[1]) + 0.0722 * light(paper[2]);
  return { background: `rgb(${paper.join(",")})`, color: bright > 0.18 ? "#111" : "#fff" };
}

function told(episode, t) {
  return names.map((name) => [name, digits((episode[name] || [])[t])]);
}

function token(episode, row, t) {
  const value = (episode[by] || [])[t];
  const element = make("span", printed(episode.tokens[t]), { class: "token", tabindex: row === place[0] && t === place[1] ? "0" : "-1", role: "img" });
  const where = episode.states ? `, ${episode.states[t]}` : "";
  element.setAttribute("aria-label", `${printed(episode.tokens[t])}${where}: ` + told(episode, t).map((pair) => pair.join(" ")).join(", "));
  Object.assign(element.style, colours(share(by, value)));
  if (find("numbers").checked) element.append(make("small", digits(value)));
  element.dataset.row = row;
  element.dataset.t = t;
  return element;
}

function draw() {
  const moment = data.moments[now], samples = data.samples, main = find("episodes"), table = find("table");
  main.replaceChildren();
  table.replaceChildren();
  place[0] = Math.min(place[0], moment.episodes.length - 1);
  place[1] = Math.min(place[1], moment.episodes[place[0]].tokens.length - 1);
  const head = table.insertRow();
  for (const name of ["episode", "action", ...names]) head.append(make("th", name, { scope: "col" }));
  data.prompts.forEach((prompt, index) => {
    const title = make("h2", prompt.text);
    if (prompt.answer !== null) title.append(make("span", `   right: ${prompt.answer}`, { class: "answer" }));
    main.append(title);
    moment.episodes.slice(index * samples, (index + 1) * samples).forEach((episode, sample) => {
      const row = index * samples + sample, line = make("div", "", { class: "episode", role: "group", "aria-label": `episode ${row + 1}, reward ${digits(episode.reward)}` });
      const reward = make("span", `reward ${digits(episode.reward)}`, { class: "reward" });
      for (const [name, value] of Object.entries(episode.rewards)) reward.append(make("small", `${name.replace("reward/", "")} ${digits(value)}`));
      const tokens = make("span", "", { class: "tokens" });
      episode.tokens.forEach((text, t) => {
        tokens.append(token(episode, row, t));
        const cells = table.insertRow();
        for (const cell of [`${row + 1}`, printed(text), ...told(episode, t).map((pair) => pair[1])]) cells.insertCell().textContent = cell;
      });
      line.append(reward, tokens);
      main.append(line);
    });
  });
  const mean = moment.episodes.reduce((sum, episode) => sum + episode.reward, 0) / moment.episodes.length;
  find("count").textContent = `step ${moment.step.toLocaleString("en")}, record ${now + 1} of ${last + 1}, mean reward ${digits(mean)}`;
  find("at").value = now;
  find("at").setAttribute("aria-valuetext", find("count").textContent);
  find("meaning").textContent = `${by}: ${data.meaning[by]}` + (by === "ratio" && now === last ? ". No update has followed the last record." : "");
  const signed = by in SIGNED && (by !== "value" || data.negative), middle = triple("--low").join(",");
  find("low").textContent = by === "ratio" ? digits(Math.exp(-reach[by])) : signed ? digits(-reach[by]) : "0";
  find("high").textContent = by === "ratio" ? digits(Math.exp(reach[by])) : digits(reach[by]);
  find("scale").style.background = `linear-gradient(to right, ${signed ? `rgb(${triple("--minus").join(",")}),` : ""} rgb(${middle}), rgb(${triple("--high").join(",")}))`;
  marker();
}

function show(row, t, focus) {
  const old = document.querySelector(".token.shown"), element = document.querySelector(`.token[data-row="${row}"][data-t="${t}"]`);
  if (old) old.classList.remove("shown");
  if (!element) return;
  for (const one of document.querySelectorAll('.token[tabindex="0"]')) one.setAttribute("tabindex", "-1");
  element.classList.add("shown");
  element.setAttribute("tabindex", "0");
  place = [row, t];
  if (focus) element.focus();
  const episode = data.moments[now].episodes[row], tip = find("tip"), list = make("dl", "");
  const where = episode.states ? ` in ${episode.states[t]}` : "";
  tip.replaceChildren(make("p", `action ${t + 1} of ${episode.tokens.length} of episode ${row + 1}: ${printed(episode.tokens[t])}${where}`), list);
  for (const [name, value] of told(episode, t)) {
    const pair = make("div", "");
    pair.append(make("dt", `${name} `), make("dd", value));
    list.append(pair);
  }
}

function go(moment) {
  now = Math.max(0, Math.min(last, moment));
  const focused = document.activeElement && document.activeElement.classList.contains("token");
  draw();
  if (focused) show(place[0], place[1], true);
}

function trend() {
  const means = data.moments.map((moment) => moment.episodes.reduce((sum, episode) => sum + episode.reward, 0) / moment.episodes.length);
  const low = Math.min(...means), high = Math.max(...means), at = (value) => 36 - (high > low ? (value - low) / (high - low) : 0.5) * 32;
  const svg = (kind, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const points = means.map((value, i) => `${last ? i / last * 1000 : 500},${at(value)}`).join(" ");
  find("trend").append(svg("polyline", { points, fill: "none", stroke: "rgb(var(--high))", "stroke-width": 2, "vector-effect": "non-scaling-stroke" }),
    svg("line", { id: "marker", y1: 0, y2: 40, stroke: "var(--ink)", "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
  find("trend").setAttribute("aria-label", `mean reward over training: ${digits(means[0])} at first, ${digits(means[last])} at the end, from ${digits(low)} to ${digits(high)}`);
}

function marker() {
  const x = last ? now / last * 1000 : 500;
  find("marker").setAttribute("x1", x);
  find("marker").setAttribute("x2", x);
}

for (const name of names) {
  const label = make("label", ""), box = make("input", "", { type: "radio", name: "by", value: name });
  box.checked = name === by;
  box.onchange = () => { by = name; draw(); };
  label.append(box, name);
  find("by").append(label);
  find("glossary").append(make("dt", name), make("dd", data.meaning[name]));
}
for (const [name, reason] of Object.entries(data.absent)) find("glossary").append(make("dt", name), make("dd", `not here: ${reason}`));
for (const note of data.notes) find("glossary").after(make("p", note, { class: "faint" }));

find("at").max = last;
find("at").oninput = (event) => go(Number(event.target.value));
find("back").onclick = () => go(now - 1);
find("next").onclick = () => go(now + 1);
find("numbers").onchange = draw;
find("episodes").onmouseover = find("episodes").onclick = (event) => {
  const target = event.target.closest(".token");
  if (target) show(Number(target.dataset.row), Number(target.dataset.t), event.type === "click");
};
find("episodes").addEventListener("focusin", (event) => {
  if (event.target.classList.contains("token")) show(Number(event.target.dataset.row), Number(event.target.dataset.t), false);
});
document.onkeydown = (event) => {
  if (event.key === "[") return go(now - 1);
  if (event.key === "]") return go(now + 1);
  if (!event.target.classList || !event.target.classList.contains("token")) return;
  const episodes = data.moments[now].episodes, [row, t] = place;
  const moves = { ArrowLeft: [row, t - 1], ArrowRight: [row, t + 1], ArrowUp: [row - 1, t], ArrowDown: [row + 1, t], Home: [row, 0], End: [row, Infinity] };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const to = Math.max(0, Math.min(episodes.length - 1, moves[event.key][0]));
  show(to, Math.max(0, Math.min(episodes[to].tokens.length - 1, moves[event.key][1])), true);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
find("numbers").checked = data.moments[0].episodes.length * data.moments[0].episodes[0].tokens.length <= 400;
trend();
draw();
