"""The picture of a search tree says what the tree says, nothing lies on top of anything else, and
the frames end where the search ends."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from closeness import near, rounding_bound

import rlbook
from rlbook.algorithms.planning.search.mcts import MCTS, MCTSConfig
from rlbook.errors import RequestError
from rlbook.plots.search_layout import ACROSS, DOWN, item_statistics, lay_out
from rlbook.plots.search_tree import search_frames, search_tree_svg

SVG = "{http://www.w3.org/2000/svg}"
WORLDS = [("Maze-v0", {}), ("FrozenLake-v1", {}), ("CartPole-v1", {}), ("Blackjack-v1", {})]


def searching(name: str, simulations: int = 150, **settings: Any) -> tuple[MCTS, Any]:
    """An agent after one search, and what it saw."""
    env = rlbook.make(name)
    agent = MCTS(env, MCTSConfig(simulations=simulations, **settings), seed=0)
    observation, _ = env.reset(seed=0)
    agent.act(observation)
    return agent, observation


def texts(svg: str) -> dict[str, list[str]]:
    """What is written at each circle and diamond, by the mark's id."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return {
        group.attrib["id"]: [text.text or "" for text in group.iter(f"{SVG}text")]
        for group in groups
    }


@pytest.mark.parametrize(("name", "settings"), WORLDS)
def test_no_two_circles_of_a_level_are_too_near_and_parents_stand_in_the_middle(
    name: str, settings: dict[str, Any]
) -> None:
    tree = searching(name, **settings)[0].tree
    assert tree is not None
    items = lay_out(tree, 80, None)
    levels: dict[float, list[float]] = {}
    for item in items:
        levels.setdefault(item.y, []).append(item.x)
        if item.children:
            assert item.x == near((item.children[0].x + item.children[-1].x) / 2, terms=2)
            assert all(child.y == item.y + DOWN for child in item.children)
    rounding = rounding_bound("float64", terms=len(items), size=max(item.x for item in items))
    for row in levels.values():
        row.sort()
        assert all(right - left >= ACROSS - rounding for left, right in pairwise(row))


@pytest.mark.parametrize(
    ("name", "settings"), [*WORLDS, ("FrozenLake-v1", {"stochastic": "open-loop"})]
)
def test_the_visits_of_what_follows_add_up(name: str, settings: dict[str, Any]) -> None:
    """After an action's diamond to its own, after a state to one less: the simulation that added it
    went no further."""
    tree = searching(name, **settings)[0].tree
    assert tree is not None
    for item in lay_out(tree, 10_000, None):
        visits, below = (
            item_statistics(tree, item)[0],
            sum(item_statistics(tree, child)[0] for child in item.children),
        )
        assert visits > 0
        if item.node < 0 or item.parent is None:
            assert below == visits
        elif settings.get("stochastic") != "open-loop" and item.children:
            assert below == visits - 1


def test_a_picture_shows_the_visits_and_values_of_the_tree(tmp_path: Path) -> None:
    agent, _ = searching("Maze-v0")
    path = search_tree_svg(agent, tmp_path / "tree.svg", most=5, actions="↑↓←→")
    tree, shown = agent.tree, texts(path.read_text())
    assert tree is not None and len([name for name in shown if name.startswith("m")]) == 5
    assert shown["m0"][0] == "150"
    first_moves = {shown[f"m{i}"][0]: shown[f"m{i}"][1] for i in range(1, 5)}
    assert first_moves == {
        str(n): f"{q:.3g}".replace("-", "−")
        for n, q in zip(tree.counts(), tree.values(), strict=True)
    }
    assert {shown[f"l{i}"][0] for i in range(1, 5)} == set("↑↓←→")


@pytest.mark.parametrize(("name", "settings"), WORLDS)
def test_there_is_a_frame_for_each_simulation_and_the_last_is_the_search(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    agent, observation = searching(name, simulations=12, **settings)
    before = repr(agent.state_dict())
    search_frames(agent, observation, tmp_path / "frames", seed=3)
    frames = sorted((tmp_path / "frames").iterdir())
    assert [frame.name for frame in frames] == [f"frame_{number:04}.svg" for number in range(1, 13)]
    assert [texts(frame.read_text())["m0"][0] for frame in frames] == [
        str(number) for number in range(1, 13)
    ]
    whole = agent.search(observation, np.random.default_rng(3))
    assert frames[-1].read_bytes() == search_tree_svg(whole, tmp_path / "whole.svg").read_bytes()
    assert repr(agent.state_dict()) == before


def test_what_the_first_search_of_an_agent_shows_adds_up(tmp_path: Path) -> None:
    """It learns only while it searches that the cards are drawn at random, and begins again
    then."""
    agent = MCTS(env := rlbook.make("Blackjack-v1"), MCTSConfig(simulations=40), seed=0)
    observation, _ = env.reset(seed=0)
    search_frames(agent, observation, tmp_path / "frames", most=10_000)
    last = texts((tmp_path / "frames" / "frame_0040.svg").read_text())
    assert last["m0"][0] == "40"
    assert sum(int(last[f"m{number}"][0]) for number in (1, 2)) == 40  # stick and hit
    shown = re.findall(
        r'id="m\d+" opacity="(\d)"', (tmp_path / "frames" / "frame_0001.svg").read_text()
    )
    assert shown.count("1") <= 3  # the root, an action, and what came of it


def test_a_page_holds_everything_it_needs_and_all_frames(tmp_path: Path) -> None:
    agent, observation = searching("Maze-v0", simulations=20)
    page = search_frames(agent, observation, tmp_path / "search.html").read_text()
    assert not re.findall(r"(?:src|href)=|url\(|import |fetch\(", page)
    data = json.loads(re.search(r"const data = (\{.*\}), last", page).group(1))  # type: ignore[union-attr]
    assert len(data["changes"]) == 20
    counts: dict[int, int] = {}
    for number, frame in enumerate(data["changes"], start=1):
        counts |= {index: visits for index, visits, *_ in frame}
        assert counts[0] == number
    drawn = texts(page.split('<div class="picture">')[1].split("</div>")[0])
    assert {f"m{index}": str(visits) for index, visits in counts.items()} == {
        name: drawn[name][0] for name in drawn if name[0] == "m"
    }


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    agent = MCTS(rlbook.make("Maze-v0"), MCTSConfig())
    with pytest.raises(RequestError, match="has not searched yet"):
        search_tree_svg(agent, tmp_path / "tree.svg")
    with pytest.raises(RequestError, match=r"must end in \.svg"):
        search_tree_svg(searching("Maze-v0")[0], tmp_path / "tree.png")
