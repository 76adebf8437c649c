"""What the grid world's page shows: its numbers, and in Chromium where things stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import Any, NamedTuple

import pytest
from javascript import returned

from rlbook.plots.pages.grid_page import page
from rlbook.plots.pages.templates import text_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
METHODS = ("q_learning", "value_iteration", "mcts", "dyna_q")
WORLDS = ("Maze-v0", "CliffWalking", "FrozenLake", "open room")
BEGUN = ("q_learning", "value_iteration", "reinforce")


class Asked(NamedTuple):
    """The body of a function that a page runs, and the frame in which the page stands."""

    script: str
    width: int = 1280
    height: int = 800
    address: str = ""


BOX = """
const box = (part) => { const { left, right, top, bottom } = part.getBoundingClientRect(); return { left, right, top, bottom }; };
const drawn = (cell, kind) => [...cell.querySelectorAll(kind)].filter((part) => part.getBoundingClientRect().width > 0);
"""
PLACES = """
rlbookPlay.step(10);
return ["learned", "tools", "toolHelp", "equation"].map((name) => box(find(name)));
"""
WIDTH = "rlbookPlay.step(10); return document.documentElement.scrollWidth;"
TIES = """
rlbookPlay.load({ map: "S....\\n.....\\n....G" }, { settings: { gamma: 1 } });
const cells = [...document.querySelectorAll("#optimal > g")].filter((cell) => drawn(cell, "path").length > 1);
const numbers = (cell) => drawn(cell, "text").filter((part) => /\\d/.test(part.textContent));
return cells.map((cell) => ({ numbers: numbers(cell).map(box), arrows: drawn(cell, "path").map(box) }));
"""
VALUES = """
rlbookPlay.load({ map: "S...G", step: -250, goal: 5000 }, { method: "value_iteration" });
rlbookPlay.step(4);
const free = [...document.querySelectorAll("#learned > g")].slice(0, 4);
return free.map((cell) => {
  const [square, value] = ["rect", "text"].map((kind) => cell.querySelector(kind));
  return { square: box(square), value: box(value), text: value.textContent };
});
"""
FACTS = """
const before = find("facts").textContent;
rlbookPlay.step(1);
const after = find("facts").textContent;
find("reset").click();
return [before, after, find("facts").textContent];
"""
ASKED = {
    **{f"places {name}": Asked(PLACES, address=f"#method={name}") for name in METHODS},
    **{
        f"width {name}": Asked(WIDTH, 390, 844, f"#preset={name.replace(' ', '+')}")
        for name in WORLDS
    },
    "ties": Asked(TIES),
    "values": Asked(VALUES),
    **{f"facts {name}": Asked(FACTS, address=f"#method={name}") for name in BEGUN},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each page of `ASKED` returns; one browser opens them all."""
    if BROWSER is None:
        pytest.skip("needs Chromium")
    folder, frames = tmp_path_factory.mktemp("pages"), []
    for number, (name, asked) in enumerate(ASKED.items()):
        tell = f"""
          let found;
          try {{ found = (() => {{ {BOX} {asked.script} }})(); }} catch (error) {{ found = String(error); }}
          parent.postMessage({{ name: {json.dumps(name)}, found }}, "*");
        """
        (folder / f"{number}.html").write_text(
            f"{page()}<script>addEventListener('load', () => {{ {tell} }});</script>",
            encoding="utf-8",
        )
        style = f"border: 0; width: {asked.width}px; height: {asked.height}px"
        frames.append(f'<iframe style="{style}" src="{number}.html{asked.address}"></iframe>')
    around = folder / "around.html"
    around.write_text(
        """<!doctype html><meta charset="utf-8"><pre></pre><script>
        const all = {};
        onmessage = ({ data }) => {
          if (!data.name) return;
          all[data.name] = data.found;
          document.querySelector("pre").textContent = JSON.stringify(all);
        };
        </script>"""
        + "".join(frames),
        encoding="utf-8",
    )
    command = [BROWSER, "--headless", "--no-sandbox", "--window-size=1400,1000", "--dump-dom"]
    command += ["--virtual-time-budget=10000", around.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, encoding="utf-8")
    told = re.search(r"<pre>(.*?)</pre>", done.stdout, flags=re.DOTALL)
    assert told is not None, done.stdout[:500]
    found = json.loads(unescape(told[1]))
    assert found.keys() == ASKED.keys()
    return found


@pytest.mark.parametrize("method", METHODS)
def test_the_map_the_tools_and_what_happened_are_in_view_together(
    method: str, seen: dict[str, Any]
) -> None:
    board, tools, tool_help, equation = seen[f"places {method}"]
    assert 0 < board["top"] < board["bottom"] <= tools["top"] and tool_help["bottom"] <= 800
    assert equation["left"] >= board["right"] and equation["bottom"] <= 800


@pytest.mark.parametrize("world", WORLDS)
def test_a_phone_shows_the_page_without_scrolling_to_the_side(
    world: str, seen: dict[str, Any]
) -> None:
    assert seen[f"width {world}"] <= 390


def test_arrows_of_actions_that_are_equally_good_stay_off_the_numbers(seen: dict[str, Any]) -> None:
    # right and down are equally good where neither the last row nor the last column is reached
    assert len(seen["ties"]) == 2 * 4
    for cell in seen["ties"]:
        (number,) = cell["numbers"]
        # the box of a line of text has room above its digits, a tenth of its height
        digits = number["top"] + 0.1 * (number["bottom"] - number["top"])
        assert len(cell["arrows"]) == 2
        assert all(arrow["bottom"] <= digits for arrow in cell["arrows"])


def test_every_value_has_two_decimals_and_stays_in_its_cell(seen: dict[str, Any]) -> None:
    values = [5000.0]
    while len(values) < 4:  # of the cells from the goal back to the start
        values.insert(0, -250 + 0.99 * values[0])
    assert [cell["text"] for cell in seen["values"]] == [f"{value:.2f}" for value in values]
    for cell in seen["values"]:
        assert cell["square"]["left"] <= cell["value"]["left"]
        assert cell["value"]["right"] <= cell["square"]["right"]


@pytest.mark.parametrize("method", BEGUN)
def test_nothing_is_said_to_be_paid_before_the_first_step(
    method: str, seen: dict[str, Any]
) -> None:
    before, after, again = seen[f"facts {method}"]
    assert "nothing is learned yet; the best possible is 3.00" in before and "pays" not in before
    assert "pays" in after and again == before


def test_a_number_has_two_decimals_unless_they_would_hide_it() -> None:
    words = text_of("pages/grid_play/words.js").split("const WORDS")[0]
    script = """
      const pairs = [[0, 0.1], [1, 1.002], [0.25, 0.2499], [4, 4.000001], [3, 3]];
      return [[0, -0.5, 12.345, 0.0123, -0.00049].map(precise), pairs.map((pair) => moved(...pair))];
    """
    single, pairs = returned(words, script)
    assert single == ["0.00", "−0.50", "12.35", "0.012", "−0.00049"]
    assert pairs == [
        ["0.00", "0.10"],
        ["1.000", "1.002"],
        ["0.2500", "0.2499"],
        ["4.00", "4.00"],
        ["3.00", "3.00"],
    ]
