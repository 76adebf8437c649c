const SVG = "http://www.w3.org/2000/svg", SIDE = data.side;
const grounds = { "-1": data.grounds[0], "-2": data.grounds[1], "-3": data.grounds[2], "-4": data.grounds[3] };

function make(kind, attributes, parent) {
  const made = document.createElementNS(SVG, kind);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  return parent.appendChild(made);
}

const cells = data.places.map(([column, row]) => {
  const group = make("g", { transform: `translate(${(column + .5) * SIDE} ${(row + .5) * SIDE})` }, find("board"));
  const half = SIDE / 2 - .8;
  return {
    ground: make("rect", { x: -half, y: -half, width: 2 * half, height: 2 * half }, group),
    faint: make("path", { opacity: .38, class: "action" }, group),
    taken: make("path", { class: "action" }, group),
    word: make("text", { "font-size": .3 * SIDE, "font-weight": "bold", class: "action" }, group),
    value: make("text", { "font-size": .19 * SIDE, class: "value" }, group),
    mark: make("text", { "font-weight": "bold" }, group),
  };
});

function ground(share) {
  if (share < 0) return grounds[share];
  const place = share / 100 * (data.ramp.length - 1), first = Math.min(Math.floor(place), data.ramp.length - 2);
  return data.ramp[first].map((channel, i) => Math.round(channel + (data.ramp[first + 1][i] - channel) * (place - first)));
}

function arrow([down, right], alone, raised) {
  const size = Math.hypot(down, right), y0 = -raised * SIDE;
  if (!size) return `M${-.05 * SIDE} ${y0}a${.05 * SIDE} ${.05 * SIDE} 0 1 0 ${.1 * SIDE} 0a${.05 * SIDE} ${.05 * SIDE} 0 1 0 ${-.1 * SIDE} 0`;
  const length = SIDE * (raised ? (alone ? .36 : .22) : (alone ? .6 : .34)), width = SIDE * (alone ? .07 : .045);
  const tail = alone ? -length / 2 : .06 * SIDE, neck = Math.max(0, length - 2.1 * width), half = width / 2;
  const corners = [[0, half], [neck, half], [neck, 2.2 * half], [length, 0], [neck, -2.2 * half], [neck, -half], [0, -half]];
  const x = right / size, y = down / size;
  return "M" + corners.map(([a, b]) => `${((tail + a) * x - b * y).toFixed(1)} ${(y0 + (tail + a) * y + b * x).toFixed(1)}`).join("L") + "Z";
}

function put(index, share, value, best, taken, mark) {
  const cell = cells[index], colour = ground(share), light = .299 * colour[0] + .587 * colour[1] + .114 * colour[2] > 140;
  const ink = light ? data.ink : "#ffffff", raised = value ? .16 : 0, word = typeof taken === "string" ? taken : "";
  cell.ground.setAttribute("fill", `rgb(${colour})`);
  for (const part of ["faint", "taken", "word", "value", "mark"]) cell[part].setAttribute("fill", ink);
  cell.faint.setAttribute("d", best.filter((action) => action !== taken).map((action) => arrow(data.moves[action], false, raised)).join(""));
  cell.taken.setAttribute("d", best.includes(taken) ? arrow(data.moves[taken], best.length === 1, raised) : "");
  write(cell.word, word, 0, -raised);
  write(cell.value, value, 0, best.length || word ? .26 : 0);
  write(cell.mark, mark, share <= -2 ? 0 : -.36, share <= -2 ? 0 : -.34);
  cell.mark.setAttribute("font-size", (share <= -2 ? .4 : .2) * SIDE);
}

function write(part, text, x, y) {
  part.textContent = text;
  part.setAttribute("x", x * SIDE);
  part.setAttribute("y", y * SIDE);
}

function reset() {}

function shown(frame) {
  const caption = data.captions[frame - 1];
  find("board").setAttribute("aria-label", data.title + ", " + caption);
  return caption;
}
