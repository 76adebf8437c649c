// The curve of returns: a dot an episode, their running mean as a line, and the optimum dashed.

const WINDOW = 20;                           // episodes of the running mean

function drawCurve(svg, points, optimal, { unit, mean }) {
  svg.replaceChildren();
  svg.setAttribute("aria-label", points.length ? `curve: the last return is ${number(points.at(-1))}${optimal === null ? "" : `, the best possible ${number(optimal)}`}` : "no return yet");
  const best = optimal ?? points.at(-1) ?? 0;
  const wide = svg.clientWidth || 640;         // letters keep their size, however narrow the page is
  svg.setAttribute("viewBox", `0 0 ${wide} 200`);
  const [left, right, top, bottom] = [72, wide - 12, 12, 168];
  const sorted = [...points].sort((a, b) => a - b);
  const low = Math.min(best, sorted.length ? sorted[Math.floor(0.05 * sorted.length)] : best), high = Math.max(best, sorted.at(-1) ?? best);
  const margin = 0.08 * (high - low) || 1, [lowest, highest] = [low - margin, high + margin];
  const x = (place) => left + (right - left) * (points.length > 1 ? place / (points.length - 1) : 0.5);
  const y = (value) => bottom - (bottom - top) * (Math.max(lowest, value) - lowest) / (highest - lowest);
  const text = (words, attributes) => { make("text", { "font-size": 13, fill: "var(--faint)", "font-family": "DejaVu Sans, sans-serif", ...attributes }, svg).textContent = words; };
  make("path", { d: `M${left} ${top}V${bottom}H${right}`, fill: "none", stroke: "var(--line)" }, svg);
  if (optimal !== null) make("path", { d: `M${left} ${y(best)}H${right}`, stroke: "var(--good)", "stroke-width": 2, "stroke-dasharray": "7 5" }, svg);
  text(number(best), { x: left - 6, y: y(best) + 4, "text-anchor": "end", fill: "var(--good)" });
  if (y(low) - y(best) > 16) text(number(low), { x: left - 6, y: y(low) + 4, "text-anchor": "end" });
  text(points.length ? `${unit} 1` : "", { x: left, y: bottom + 18 });
  text(points.length > 1 ? String(points.length) : "", { x: right, y: bottom + 18, "text-anchor": "end" });
  const every = Math.max(1, Math.ceil(points.length / 600));
  points.forEach((value, place) => {
    if (place % every === 0) make("circle", { cx: x(place), cy: y(value), r: mean ? 2 : 3.5, fill: "var(--dot)", opacity: mean ? 0.5 : 1 }, svg);
  });
  if (mean && points.length > WINDOW) {
    const line = [];
    let sum = 0;
    points.forEach((value, place) => {
      sum += value - (place >= WINDOW ? points[place - WINDOW] : 0);
      if (place >= WINDOW - 1 && place % every === 0) line.push(`${x(place).toFixed(1)} ${y(sum / WINDOW).toFixed(1)}`);
    });
    make("path", { d: `M${line.join("L")}`, fill: "none", stroke: "var(--agent)", "stroke-width": 2.5 }, svg);
  }
}
