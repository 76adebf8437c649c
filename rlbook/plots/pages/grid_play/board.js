// A map of values: one square a cell, its colour the value, its arrows the best actions.

const SVG = "http://www.w3.org/2000/svg", SIDE = 60;

function make(kind, attributes, parent) {
  const made = document.createElementNS(SVG, kind);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  return parent.appendChild(made);
}

// Builds the squares of a world in an <svg>; `draw` fills them.
function makeBoard(svg, world) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `-1 -1 ${world.columns * SIDE + 2} ${world.rows * SIDE + 2}`);
  const cells = world.cells.map((_, state) => {
    const [x, y] = [(state % world.columns + 0.5) * SIDE, (Math.floor(state / world.columns) + 0.5) * SIDE];
    const group = make("g", { transform: `translate(${x} ${y})`, "text-anchor": "middle", "font-family": "DejaVu Sans, sans-serif" }, svg);
    return {
      group,
      ground: make("rect", { x: -SIDE / 2, y: -SIDE / 2, width: SIDE, height: SIDE, stroke: "var(--line)" }, group),
      trace: make("circle", { r: 24, fill: "none", stroke: "var(--trace)", "stroke-width": 4 }, group),
      arrows: make("g", {}, group),
      value: make("text", { y: 25 }, group),
      mark: make("text", { x: -22, y: -16, "font-size": 14, "font-weight": "bold" }, group),
      pays: make("text", { x: 28, y: -19, "font-size": 10.5, "text-anchor": "end", "paint-order": "stroke", "stroke-width": 4 }, group),
    };
  });
  const over = make("g", { "pointer-events": "none" }, svg);
  return { svg, world, cells, over };
}

// `view`: V [S], arrows [S][A] in [0, 1], range [low, high], traces [S] or null, dim [S] or null, way [states], agent, updated, cursor.
function draw(board, view) {
  const { world, svg } = board, pixels = svg.getBoundingClientRect().width / world.columns;
  board.cells.forEach((cell, state) => drawCell(cell, state, world, view, pixels >= 44));
  board.over.replaceChildren();
  const centre = (state) => [(state % world.columns + 0.5) * SIDE, (Math.floor(state / world.columns) + 0.5) * SIDE];
  if (view.way?.length > 1)
    make("polyline", { points: view.way.map((state) => centre(state).join(",")).join(" "), fill: "none", stroke: "var(--trace)", "stroke-width": 4, "stroke-linejoin": "round", opacity: 0.75 }, board.over);
  for (const [state, colour, width] of [[view.updated, "var(--agent)", 4], [view.cursor, "var(--ink)", 2]]) {
    if (state === undefined || state === null) continue;
    const [x, y] = centre(state);
    make("rect", { x: x - SIDE / 2 + 2, y: y - SIDE / 2 + 2, width: SIDE - 4, height: SIDE - 4, fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": width === 2 ? "5 4" : "none" }, board.over);
  }
  if (view.agent !== undefined && view.agent !== null) {
    const [x, y] = centre(view.agent);
    make("circle", { cx: x + 19, cy: y - 19, r: 8, fill: "var(--agent)", stroke: "var(--paper)", "stroke-width": 3 }, board.over);
  }
}

function drawCell(cell, state, world, view, roomy) {
  const kind = world.cells[state], terminal = world.terminal[state], [low, high] = view.range;
  const share = terminal ? 0 : Math.min(1, Math.max(0, (view.V[state] - low) / (high - low || 1)));
  const unknown = view.dim?.[state] ?? false, ink = !terminal && !unknown && share > 0.5 ? "var(--on-high)" : "var(--ink)";
  const colour = { [WALL]: "var(--wall)", [GOAL]: "color-mix(in srgb, var(--good) 35%, var(--paper))", [PIT]: "color-mix(in srgb, var(--bad) 45%, var(--paper))" };
  const free = unknown ? "var(--paper)" : `color-mix(in srgb, var(--high) ${(100 * share).toFixed(0)}%, var(--low))`;
  cell.ground.setAttribute("fill", colour[kind] ?? (kind === CLIFF ? "color-mix(in srgb, var(--bad) 25%, var(--paper))" : free));
  const alone = terminal || kind === CLIFF;
  cell.mark.textContent = { [START]: "S", [GOAL]: "G", [PIT]: "P", [CLIFF]: "C" }[kind] ?? "";
  cell.mark.setAttribute("x", alone ? 0 : -21);
  cell.mark.setAttribute("y", alone ? 7 : -15);
  cell.mark.setAttribute("font-size", alone ? 22 : 16);
  cell.group.classList.toggle("grip", kind === START);
  const place = `${Math.floor(state / world.columns)},${state % world.columns}`;
  cell.pays.textContent = place in world.rewards && kind !== WALL ? (world.rewards[place] > 0 ? "+" : "") + short(world.rewards[place]) : "";
  cell.pays.setAttribute("stroke", cell.ground.getAttribute("fill"));
  const value = alone || unknown || !roomy ? "" : number(view.V[state]);
  cell.value.textContent = value;
  cell.value.setAttribute("font-size", Math.min(12.5, (1.6 * SIDE) / (value.length || 1)));
  for (const part of [cell.value, cell.mark, cell.pays]) part.setAttribute("fill", ink);
  const trace = view.traces?.[state] ?? 0;
  cell.trace.setAttribute("opacity", terminal ? 0 : trace);
  drawArrows(cell.arrows, alone || unknown ? [0, 0, 0, 0] : view.arrows[state], ink);
}

// The arrow of each action, as strong as its share; one alone is larger. Shares below 1/20 are not shown. All stay above the number.
function drawArrows(group, shares, ink) {
  const key = shares.join() + ink;
  if (group.dataset.key === key) return;
  group.dataset.key = key;
  group.replaceChildren();
  const alone = shares.filter((share) => share > 0.05).length === 1;
  shares.forEach((share, action) => {
    if (share <= 0.05) return;
    const path = alone ? "M-14 -2.5H3V-8L14 0L3 8V2.5H-14Z" : "M4 -1.8H10V-5.5L17 0L10 5.5V1.8H4Z";
    make("path", { d: path, fill: ink, opacity: alone ? 1 : 0.25 + 0.75 * share, transform: `translate(0 -8) rotate(${[-90, 90, 180, 0][action]})` }, group);
  });
}

// The cell under a pointer, or -1.
function cellAt(board, event) {
  const box = board.svg.getBoundingClientRect(), { world } = board;
  const scale = Math.min(box.width / (world.columns * SIDE + 2), box.height / (world.rows * SIDE + 2));
  const x = (event.clientX - box.left - (box.width - scale * (world.columns * SIDE + 2)) / 2) / scale - 1;
  const y = (event.clientY - box.top - (box.height - scale * (world.rows * SIDE + 2)) / 2) / scale - 1;
  const column = Math.floor(x / SIDE), row = Math.floor(y / SIDE);
  return column < 0 || row < 0 || column >= world.columns || row >= world.rows ? -1 : row * world.columns + column;
}
