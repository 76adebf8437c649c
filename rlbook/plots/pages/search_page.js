function put(item, visits, value, fill, ink) {
  const mark = find("m" + item), line = find("l" + item), [count, mean] = mark.querySelectorAll("text");
  mark.setAttribute("opacity", visits > 0 ? 1 : 0);
  mark.firstElementChild.setAttribute("fill", fill);
  count.textContent = visits;
  count.setAttribute("fill", ink);
  mean.textContent = value;
  if (line) {
    line.setAttribute("opacity", visits > 0 ? 1 : 0);
    line.dataset.visits = visits;
  }
}

function reset() {
  for (let item = 0; item < data.items; item++) put(item, 0, "", data.pale, "#263242");
}

function shown(simulation) {
  const touched = new Set(data.changes[simulation - 1].map((change) => change[0]));
  for (let item = 0; item < data.items; item++) {
    const line = find("l" + item);
    find("m" + item).classList.toggle("now", touched.has(item));
    if (!line) continue;
    line.classList.toggle("now", touched.has(item));
    line.querySelector("line").setAttribute("stroke-width", 1 + (data.widest - 1) * (line.dataset.visits || 0) / simulation);
  }
  return "simulation " + simulation + " of " + last;
}

addEventListener("load", () => {             // where there is no room for the whole tree, its root is in the middle
  const picture = document.querySelector(".picture"), root = find("m0").getBoundingClientRect();
  picture.scrollLeft = root.left + root.width / 2 - picture.clientWidth / 2;
});
