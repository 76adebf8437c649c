// What is shown of a run: the maps, the numbers of the last step, how good it is, and the settings.

function show() {
  const { world, method, last, memory } = run, known = knowledge(run), { kind } = METHODS[method];
  const reachable = reached(world), inPlay = (best.V ?? known.V).filter((_, state) => reachable[state] && !world.terminal[state]);
  const range = [Math.min(...inPlay), Math.max(...inPlay)];
  const arrows = known.policy ?? known.best.map((actions) => ACTIONS.map((_, action) => actions.length < 4 && actions.includes(action) ? 1 / actions.length : 0));
  const most = memory.trace ? Math.max(...memory.trace.flat()) : 0;
  draw(board, {
    V: known.V, arrows, range, cursor,
    traces: most > 0 ? memory.trace.map((row) => Math.max(...row) / most) : null,
    dim: known.nodes ? known.nodes.map((node) => node === null) : null,
    agent: kind === "planner" ? null : run.state, updated: kind === "learner" && last ? last.state : null,
    way: kind === "search" ? last?.path : null,
  });
  const V = best.V ?? world.cells.map(() => 0), bestActions = world.cells.map((_, state) => nearlyBest(backups(world, V, settings.gamma, state)));
  const dim = settings.gamma === 1 ? reachable.map((is) => !is || !best.V) : null;
  draw(optimalBoard, { V, arrows: bestActions.map((actions) => ACTIONS.map((_, action) => actions.includes(action) ? 1 / actions.length : 0)), range, cursor: selected, dim });
  find("endless").textContent = best.endless ?? (settings.gamma === 1 ? wordsOfRest(world) : "");
  find("low").textContent = number(range[0]);
  find("high").textContent = number(range[1]);
  find("learned").setAttribute("aria-label", `map of ${world.rows} rows and ${world.columns} columns, ${WORDS[method].name}; ${cellText(cursor ?? run.state)}`);
  find("equation").innerHTML = `<p class="rule">${WORDS[method].rule}</p>${told(run, selected ?? world.start, best)}`;
  showCell(known);
  if (stale || timer === null) showQuality(known, reachable);
  stale = timer === null || run.steps % 8 === 0;
}

const cellText = (state) => `${placeOf(run.world, state)} ${{ [WALL]: "wall", [START]: "start", [GOAL]: "goal", [PIT]: "pit", [CLIFF]: "cliff" }[run.world.cells[state]] ?? "free"}`;

function showCell(known) {
  const { world } = run;
  if (selected === null) return void (find("cell").innerHTML = `<p class="faint">Click a cell of the map to see all its numbers.</p>`);
  if (world.terminal[selected]) return void (find("cell").innerHTML = `<p>Cell ${cellText(selected)}: nothing is learned here, since no action is taken here.</p>`);
  const row = (action) => {
    const shown = known.policy ? `π = ${number(known.policy[selected][action])}` : known.nodes?.[selected] === null ? "not in the tree" : `Q = ${number(known.Q[selected][action])}`;
    return `<tr class="${known.best[selected].includes(action) ? "best" : ""}"><th>${ACTIONS[action]}</th><td>${shown}</td><td>${best.V ? `Q* = ${number(backup(world, best.V, settings.gamma, selected, action))}` : ""}</td></tr>`;
  };
  find("cell").innerHTML = `<p>Cell ${cellText(selected)}: V = ${number(known.V[selected])}${best.V ? `, V* = ${number(best.V[selected])}` : ""}</p><table>${[0, 1, 2, 3].map(row).join("")}</table>`;
}

const count = (amount, thing) => `${amount} ${thing}${amount === 1 ? "" : "s"}`;

// How the agent acts now, exploring: π [S][A]; null where it does not learn by acting.
function acting(known) {
  const { world, method } = run, epsilon = epsilonNow(run);
  if (METHODS[method].kind !== "learner" || known.policy) return known.policy ?? null;
  return world.cells.map((_, state) => ACTIONS.map((_, action) => epsilon / 4 + (known.best[state].includes(action) ? (1 - epsilon) / known.best[state].length : 0)));
}

// How far V is from V* and what its greedy policy is worth, both exact; null where that is not defined.
function quality(known, reachable) {
  const { world, method } = run, policy = acting(known);
  const counted = reachable.map((is, state) => is && !world.terminal[state]), gaps = best.V && known.V.map((value, state) => Math.abs(value - best.V[state])).filter((_, state) => counted[state]);
  const greedyReturn = method === "mcts" ? null : expectedReturn(world, always(greedyActions(known.best)));
  const ends = counted.some((is, state) => is && world.next[state].some((next) => world.terminal[next]));
  return {
    largestError: gaps && Math.max(...gaps), meanError: gaps && gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length, greedyReturn, optimalReturn: best.pays,
    actingReturn: policy && expectedReturn(world, policy),
    actingValue: policy && best.V && (settings.gamma < 1 || (ends && policy.flat().every((share) => share > 1e-6))) ? policyValues(world, policy, settings.gamma, counted)[world.start] : null,
  };
}

function showQuality(known, reachable) {
  const { method, world } = run, { kind } = METHODS[method], found = quality(known, reachable), { unit } = WORDS[method], uses = WORDS[method].uses;
  const done = kind === "planner" ? `${unit} ${run.memory.sweep}` : `${count(run.steps, unit)}, ${count(run.returns.length, "episode")} finished; this one is at step ${run.time}`;
  const decays = uses.includes("decay") && settings.decay > 0 ? `; ε is now ${precise(epsilonNow(run))}` : "";
  const pays = best.V ? `the best possible is ${number(found.optimalReturn)}` : "with γ = 1 no policy is the best one here";
  const solved = best.V && found.greedyReturn !== null && found.greedyReturn >= found.optimalReturn - 1e-6;
  const facts = [["so far", done + decays]], begun = kind === "planner" ? run.memory.sweep > 0 : run.steps > 0;
  if (!begun) facts.push(["greedy episode", `nothing is learned yet; ${pays}`]);
  else facts.push(["greedy episode", method === "mcts" ? `see the curve: the moves that were made; ${pays}` : `pays <b>${number(found.greedyReturn)}</b> on average; ${pays}${solved ? ". Solved" : ""}`]);
  if (begun && found.actingReturn !== null) facts.push([method === "reinforce" ? "its own policy" : "exploring", `an episode as it acts now pays ${number(found.actingReturn)} on average`]);
  if (begun && kind !== "search" && best.V) {
    facts.push(["V at the start", `<b>${number(known.V[world.start])}</b>; V* is ${number(best.V[world.start])}${found.actingValue === null ? "" : `, and the policy that acts is worth ${number(found.actingValue)}`}`]);
    facts.push(["error of V", `at most ${number(found.largestError)}, on average ${number(found.meanError)}, against V* of the cells that can be reached`]);
  }
  const why = begun && whyNotBest(run, solved);
  if (why) facts.push(["why", why]);
  find("facts").innerHTML = facts.map(([term, text]) => `<dt>${term}</dt><dd>${text}</dd>`).join("");
  find("curveTitle").textContent = kind === "planner" ? `return of the greedy policy after each ${unit}; dashed: the best possible`
    : `return of each episode, exploring (dots), the mean of ${WINDOW} (line); dashed: the best possible on average`;
  drawCurve(find("curve"), kind === "planner" ? curve : run.returns, found.optimalReturn, { unit: kind === "planner" ? unit : "episode", mean: kind !== "planner" });
}

function showWorld() {
  find("rules").textContent = rulesOf(run.world);
  find("text").value = JSON.stringify(description, null, 1);
  for (const [name, input] of Object.entries(priceInputs)) input.value = name === "rows" || name === "columns" ? run.world[name] : description[name];
  const at = Object.keys(PRESETS).find((name) => JSON.stringify(describe(PRESETS[name])) === JSON.stringify(description));
  find("preset").value = at ?? "your own";
  showSliders();
  showCommand();
}

// The command that trains on the same world in rlbook, where rlbook's maze can be that world.
function showCommand() {
  const { map, step, bump, goal, slip, limit, rewards } = description, standard = step === -1 && bump === -5 && goal === 10 && limit === 100;
  const maze = standard && !/[PC]/.test(map) && map.split(GOAL).length === 2 && Object.keys(rewards).length === 0;
  const epsilon = settings.decay ? `'linear(${settings.epsilon},0)' --steps ${settings.decay}` : settings.epsilon;
  const chosen = Object.entries({ gamma: settings.gamma, alpha: settings.alpha, epsilon }).map(([name, value]) => `--${name} ${value}`).join(" ");
  const options = ["sarsa", "q_learning", "dyna_q", "mc_control"].includes(run.method) ? ` ${chosen}` : "";
  find("command").innerHTML = maze ? `The same in a terminal: <code>rlbook train ${run.method} Maze-v0 --env.layout $'${map.replaceAll("\n", "\\n")}' --env.slip ${short(slip)}${options}</code>` : "";
}

function showSliders() {
  const shown = [...WORDS[run.method].uses, "slip"];
  for (const [name, { label, input, output }] of Object.entries(sliders)) {
    const value = name === "slip" ? description.slip : settings[name], values = SLIDERS[name].at(-1);
    label.hidden = !shown.includes(name);
    label.style.display = label.hidden ? "none" : "";
    input.value = values.reduce((nearest, item, place) => Math.abs(item - value) < Math.abs(values[nearest] - value) ? place : nearest, 0);
    output.textContent = SAID[name]?.(value) ?? short(value);
    input.setAttribute("aria-valuetext", output.textContent);
  }
}

// Where the book explains the method: a link where this page lies in the book's site, its name elsewhere.
function readOn({ chapter: [name, file] }) {
  const link = document.createElement("a");
  link.textContent = `the chapter “${name}”`;
  if (location.href.includes("/_play/")) Object.assign(link, { href : `../chapters/${file}.html`, target: "_top" });
  return ["More in ", link, "."];
}

function showMethod() {
  const { kind } = METHODS[run.method];
  find("idea").textContent = `${WORDS[run.method].idea} `;
  find("idea").append(...readOn(WORDS[run.method]));
  find("learnedTitle").textContent = { planner: "Computed so far: V", learner: run.method === "reinforce" ? "Learned so far: v and π" : "Learned so far: V(s) = max Q(s, a)", search: "In the present search tree: V" }[kind];
  find("episode").hidden = kind === "planner";
  find("move").hidden = kind !== "search";
  if (kind === "search" && find("speed").value < 9) setSpeed(9);
  find("method").value = run.method;
  showSliders();
  showCommand();
}
