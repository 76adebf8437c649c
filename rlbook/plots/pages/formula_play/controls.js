// Sliders, and the chart that follows them.
function startPage(page, place) {
  const values = Object.fromEntries(page.controls.map(({ name, first }) => [name, first]));
  const svg = place.querySelector("svg"), said = place.querySelector(".said"), key = place.querySelector(".keys");
  const show = () => {
    const { chart, said: sentence, key: colours = [] } = page.draw(values);
    drawChart(svg, chart);
    said.textContent = sentence;
    key.replaceChildren(...colours.map(([colour, words]) => {
      const entry = document.createElement("span"), patch = document.createElement("i");
      patch.style.background = `var(--${colour})`;
      entry.append(patch, words);
      return entry;
    }));
  };
  place.querySelector(".sliders").replaceChildren(...page.controls.map(({ name, label, low, high, step }) => {
    const line = document.createElement("label"), slider = document.createElement("input"), shown = document.createElement("output");
    Object.assign(slider, { type: "range", min: low, max: high, step, value: values[name] });
    const digits = step >= 1 ? 0 : 2;
    shown.textContent = number(values[name], digits);
    slider.oninput = () => {
      values[name] = Number(slider.value);
      shown.textContent = number(values[name], digits);
      show();
    };
    line.append(label, slider, shown);
    return line;
  }));
  new ResizeObserver(show).observe(svg);
  show();
}

startPage(PAGES[document.body.dataset.page], document.querySelector("main"));
