// A chart in SVG that is as wide as its place and is drawn anew when that changes, so that its letters keep their size.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 300, LEFT = 52, RIGHT = 12, TOP = 12, BOTTOM = 40;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// About five round numbers between two others.
function ticks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(x => x * power).find(x => x >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

// The ranges x and y ([low, high]) with their labels, names in the place of the numbers 0, 1, … on x, and marks: lines, bars, points,
// and rules across.
function drawChart(svg, { x, y, labels, names, lines = [], bars = [], points = [], rules = [] }) {
  const width = Math.max(280, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren();
  const across = value => LEFT + ((value - x[0]) / (x[1] - x[0])) * (width - LEFT - RIGHT);
  const up = value => HEIGHT - BOTTOM - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - TOP - BOTTOM);
  const add = (...made) => svg.append(element(...made));
  for (const value of ticks(...y)) {
    add("line", { x1: LEFT, x2: width - RIGHT, y1: up(value), y2: up(value), class: value === 0 ? "zero" : "grid" });
    add("text", { x: LEFT - 6, y: up(value) + 4, "text-anchor": "end" }, value);
  }
  for (const value of names ? names.keys() : ticks(...x))
    add("text", { x: across(value), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, names ? names[value] : value);
  add("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, labels[0]);
  add("text", { transform: `translate(13 ${(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)`, "text-anchor": "middle" }, labels[1]);
  for (const at of rules) add("line", { x1: across(at), x2: across(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "rule" });
  for (const { at, value, wide, colour } of bars) {
    const [top, foot] = [Math.max(value, 0), Math.min(value, 0)].map(up);
    add("rect", { x: across(at - wide / 2), width: across(at + wide / 2) - across(at - wide / 2), y: top, height: Math.max(foot - top, 0.5), fill: `var(--${colour})` });
  }
  for (const { from, colour, dashed } of lines)
    add("polyline", { points: from.map(([a, b]) => `${across(a)},${up(Math.min(Math.max(b, y[0]), y[1]))}`).join(" "), stroke: `var(--${colour})`, class: dashed ? "curve dashed" : "curve" });
  for (const { at, value, colour } of points) add("circle", { cx: across(at), cy: up(value), r: 6, fill: `var(--${colour})` });
}
