"""The diagrams are well-formed, legible on a telephone, and say what the library computes."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path

import pytest
import torch

from rlbook.functional.advantages import group_advantage

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "ext"))
import drawings  # noqa: E402

STEPS = range(1, len(drawings.MINIBATCHES) + 1)
ALL = {name: draw() for name, (_, draw) in drawings.DRAWINGS.items()} | {
    "backups": drawings.backups([*drawings.BACKUPS]),
    **{f"step {step}": drawings.replay_frame(step) for step in STEPS},
}


def rectangle(x: float, y: float, anchor: str, text: str) -> tuple[float, float, float, float]:
    """About where words stand: left, top, right, bottom."""
    width = 0.55 * drawings.LETTERS * len(text)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return left, y - 0.75 * drawings.LETTERS, left + width, y + 0.2 * drawings.LETTERS


@pytest.mark.parametrize("name", ALL)
def test_words_lie_within_the_drawing_and_beside_each_other(name: str) -> None:
    drawing = ALL[name]
    assert drawing.width <= 360, "a telephone would shrink its letters"
    places = [rectangle(*words) for words in drawing.words]
    for (left, top, right, bottom), words in zip(places, drawing.words, strict=True):
        assert left >= -1 and top >= 0, words
        assert right <= drawing.width + 1 and bottom <= drawing.height, words
    for (a, first), (b, second) in combinations(zip(places, drawing.words, strict=True), 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (first, second)


@pytest.mark.parametrize("name", [*drawings.DRAWINGS, "backups"])
def test_a_diagram_is_well_formed_and_says_what_it_shows(name: str) -> None:
    more = drawings.BACKUPS if name == "backups" else ()
    svg = ElementTree.fromstring(drawings.diagram(name, *more))
    title = svg.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and title.text and title.text.endswith(".")


@pytest.mark.parametrize("step", STEPS)
def test_the_film_holds_the_last_steps_and_learns_from_two_of_them(step: int) -> None:
    words = [text for *_, text in drawings.replay_frame(step).words]
    kept = {int(text) for text in words if text.isdecimal()}
    assert kept == {*range(max(1, step - drawings.ROWS + 1), step + 1)}
    assert {*drawings.MINIBATCHES[step - 1]} <= kept
    copied = max(range(0, step + 1, drawings.COPIED_EVERY))
    assert f"copied after step {copied}" in words


def test_each_frame_of_a_film_is_shown_once_and_the_last_one_stays_where_nothing_moves() -> None:
    svg = ElementTree.fromstring(drawings.diagram("replay-film"))
    space = {"svg": "http://www.w3.org/2000/svg"}
    frames = svg.findall("svg:g", space)
    assert [frame.get("visibility") for frame in frames] == ["hidden"] * (len(STEPS) - 1) + [
        "visible"
    ]
    shown = []
    for frame in frames:
        move = frame.find("svg:animate", space)
        assert move is not None
        times = [float(time) for time in move.attrib["keyTimes"].split(";")]
        values = move.attrib["values"].split(";")
        assert times[0] == 0 and len(times) == len(values)
        begin = values.index("visible")
        shown += [(times[begin], times[begin + 1])]
    assert shown[0][0] == 0 and shown[-1][1] == 1
    assert all(before[1] == after[0] for before, after in pairwise(shown))


def test_the_advantages_of_the_group_are_the_librarys() -> None:
    words = [text for *_, text in ALL["grpo-group"].words]
    rewards = torch.tensor([float(text) for text in words if text in ("0", "1")])
    expected = [f"{a:+.2f}".replace("-", "−") for a in group_advantage(rewards, 4).tolist()]
    assert [text for text in words if re.fullmatch(r"[+−]\d\.\d\d", text)] == expected
    assert f"mean {rewards.mean():.1f}, standard deviation {rewards.std():.2f}" in words
