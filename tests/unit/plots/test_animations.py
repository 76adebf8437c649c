"""Animations of values: every moment is there, in a GIF and in a page that loads nothing and can be
played, stepped and slowed down."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import assert_near
from PIL import Image, ImageFont

import rlbook
from rlbook.agent import Planner
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.tabular.tabular_agent import TableAgent
from rlbook.algorithms.value.linear import LinearAgent
from rlbook.errors import RequestError
from rlbook.plots import animate, animate_learning, animate_planning
from rlbook.plots.figure import narrow_column
from rlbook.plots.films import film_gif, gif_writer
from rlbook.plots.films.animation import picture
from rlbook.plots.films.episode_frames import Frame
from rlbook.plots.films.film import EMPTY, GOAL, HOLE, WALL, arrow_outline, thin_stills
from rlbook.plots.value_map import number
from rlbook.registry import ALGORITHMS, agent_class


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r"const data = (\{.*\}), last", page.read_text())
    assert found is not None
    return json.loads(found.group(1))


def last_picture(data: dict[str, Any]) -> dict[int, list[Any]]:
    """What stands in each cell after all changes: index → ground, value, best, taken, mark."""
    return {change[0]: change[1:] for changes in data["changes"] for change in changes}


def test_n_sweeps_make_n_plus_1_frames_in_a_gif_and_in_a_page(tmp_path: Path) -> None:
    sweeps = rlbook.train("value_iteration", "Maze-v0").metrics[-1]["sweep"]
    with Image.open(animate_planning("value_iteration", "Maze-v0", out=tmp_path / "a.gif")) as film:
        assert film.n_frames == sweeps + 1  # type: ignore[attr-defined]
    data = data_of(animate_planning("value_iteration", "Maze-v0", out=tmp_path / "a.html"))
    assert len(data["changes"]) == len(data["captions"]) == sweeps + 1
    assert data["captions"][0] == "before the first sweep" and data["captions"][1].startswith(
        "sweep 1 · largest change 10"
    )
    assert len(data["changes"][0]) == 25  # every cell at first, then those that change
    assert all(len(changes) < 25 for changes in data["changes"][1:])


def test_the_first_picture_knows_nothing_and_the_last_is_the_value_map(tmp_path: Path) -> None:
    data = data_of(
        animate_planning("value_iteration", "Maze-v0", out=tmp_path / "a.html", gamma=0.9)
    )
    chart = rlbook.plots.value_map.value_map(rlbook.train("value_iteration", "Maze-v0", gamma=0.9))
    assert {change[2] for change in data["changes"][0]} == {"0.00", ""}
    for state, (_, value, best, taken, _) in last_picture(data).items():
        assert value == (number(chart.values[state]) if chart.is_decision[state] else "")
        assert best == np.flatnonzero(chart.best[state]).tolist() and taken == chart.policy[state]


def test_a_page_has_its_controls_and_loads_nothing(tmp_path: Path) -> None:
    page = animate_planning("value_iteration", "Maze-v0", out=tmp_path / "a.html").read_text()
    for control in ("play", "back", "next", "at", "speed"):
        assert re.search(rf'<(?:button|input) id="{control}"[^>]*aria-label="[^"]+"', page), control
    assert "ArrowLeft" in page and "ArrowRight" in page and 'role="img"' in page
    assert not re.findall(r"(?:src|href)=|url\(|import |fetch\(|XMLHttpRequest", page)
    # SVG's name, not an address to load
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert len(page) < 400_000


def test_a_learners_last_picture_is_what_train_ends_with(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"episodes": 40, "seed": 3, "alpha": 0.5}
    data = data_of(
        animate_learning(
            "q_learning", "CliffWalking-v1", out=tmp_path / "a.html", frames=12, **settings
        )
    )
    run = rlbook.train("q_learning", "CliffWalking-v1", eval_every=0, **settings)
    assert len(data["captions"]) == 12
    assert data["captions"][0] == "before the first step" and data["captions"][-1].startswith(
        f"step {run.steps:,} · 40 episodes"
    )
    values = run.agent.values()  # type: ignore[attr-defined]
    assert {state: entry[1] for state, entry in last_picture(data).items() if entry[1]} == {
        state: number(values[state])
        for state in [*range(37)]  # 3 rows of 12, and the start
    }


def test_an_agent_that_learns_from_data_alone_is_not_animated(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match="behavior_cloning does not learn from an environment step by step"
    ):
        animate("behavior_cloning", "Maze-v0", out=tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_walls_goals_holes_and_cells_out_of_reach_have_grounds_of_their_own(tmp_path: Path) -> None:
    lake = last_picture(
        data_of(animate("value_iteration", "FrozenLake-v1", out=tmp_path / "a.html", frames=3))
    )
    marks = "SFFFFHFHFFFHHFFG"  # the default 4 × 4 map
    assert [lake[state][0] for state in range(16) if marks[state] in "HG"] == [
        HOLE,
        HOLE,
        HOLE,
        HOLE,
        GOAL,
    ]
    assert all(0 <= lake[state][0] <= 100 for state in range(16) if marks[state] in "SF")
    maze = last_picture(
        data_of(
            animate(
                "value_iteration",
                "Maze-v0",
                out=tmp_path / "b.html",
                env_kwargs={"layout": "S.G#."},
            )
        )
    )
    assert [maze[state][0] for state in (2, 3, 4)] == [GOAL, WALL, EMPTY]


def test_equally_good_actions_all_have_arrows_and_the_agents_own_is_told_apart(
    tmp_path: Path,
) -> None:
    data = data_of(animate("value_iteration", "GridWorld-v0", out=tmp_path / "a.html", gamma=1.0))
    cells = last_picture(data)
    assert data["moves"] == [[-1, 0], [1, 0], [0, -1], [0, 1]]
    # figure 4.1, the last policy
    assert cells[1][2] == [2] and cells[3][2] == [1, 2] and cells[6][2] == [0, 1, 2, 3]
    assert all(entry[3] in entry[2] for entry in cells.values() if entry[2])


def test_a_maze_that_changes_shows_its_walls_as_they_are(tmp_path: Path) -> None:
    settings = {"env_kwargs": {"variant": "blocking", "change_at": 300}, "steps": 600}
    data = data_of(animate("q_learning", "DynaMaze-v0", out=tmp_path / "a.html", **settings))
    first, last = {change[0]: change[1] for change in data["changes"][0]}, last_picture(data)
    assert [state for state in range(54) if first[state] == WALL] == [*range(27, 35)]  # ########.
    assert [state for state in range(54) if last[state][0] == WALL] == [*range(28, 36)]  # .########


def test_numbers_and_letters_stand_for_actions_that_are_no_directions(tmp_path: Path) -> None:
    cells = last_picture(
        data_of(
            animate("value_iteration", "CarRental-v0", out=tmp_path / "a.html", gamma=0.9, frames=2)
        )
    )
    # figure 4.2: from (20, 0), from (0, 20)
    assert cells[20 * 21][3] == "5" and cells[20][3] == "−4"
    data = data_of(
        animate("mc_control", "Blackjack-v1", out=tmp_path / "b.html", episodes=50, frames=2)
    )
    assert len(data["places"]) == 200 and {entry[3] for entry in last_picture(data).values()} <= {
        "S",
        "H",
    }


def test_at_most_so_many_frames_the_first_and_the_last_among_them() -> None:
    for count in (2, 5, 60, 61, 500):
        for early in (False, True):
            chosen = thin_stills(list(range(count)), 60, early=early)
            assert (
                len(chosen) <= 60
                and chosen[0] == 0
                and chosen[-1] == count - 1
                and chosen == sorted(set(chosen))
            )
            assert len(chosen) == min(count, 60)


def test_an_arrow_ends_where_it_points() -> None:
    corners = arrow_outline(1.0, 2.0, 3.0, 0.0, 0.5)
    assert corners[3] == (4.0, 2.0) and len(corners) == 7
    # the shaft: 0.5 wide around y = 2
    assert_near(np.array([corners[0], corners[-1]]), [(1.0, 2.25), (1.0, 1.75)], terms=2)


WRONG: dict[str, tuple[tuple[str, str], dict[str, Any], str]] = {
    "suffix": (
        ("value_iteration", "Maze-v0"),
        {"out": "film.mp4"},
        r"must end in \.gif or \.html, got 'film\.mp4'",
    ),
    "algorithm": (("value_iteratoin", "Maze-v0"), {}, "did you mean 'value_iteration'"),
    "hyper-parameter": (("q_learning", "Maze-v0"), {"alhpa": 0.5}, "alhpa"),
    "frames": (("q_learning", "Maze-v0"), {"frames": 1}, "frames must be .* at least 2, got 1"),
    "no board": (("q_learning", "CartPole-v1"), {}, "CartPole-v1 is none of these"),
    "a curve": (
        ("value_iteration", "Gambler-v0"),
        {"gamma": 1.0},
        "Gambler-v0 is drawn as a curve",
    ),
    "frames of a search": (("mcts", "Maze-v0"), {"frames": 9}, "a frame for each simulation"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_one_sentence_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, options, message = WRONG[name]
    with pytest.raises(RequestError, match=message):
        animate(*names, **{"out": "film.html"} | options)
    assert list(tmp_path.iterdir()) == []


def test_a_search_has_a_frame_for_each_simulation(tmp_path: Path) -> None:
    assert (
        len(
            data_of(
                animate("mcts", "Maze-v0", out=tmp_path / "search.html", simulations=7, seed=3)
            )["changes"]
        )
        == 7
    )


@pytest.mark.parametrize(
    ("env", "simulations", "frames"), [("Maze-v0", 9, 9), ("Blackjack-v1", 40, 12)]
)
def test_the_tree_of_a_search_becomes_a_gif(
    env: str, simulations: int, frames: int, tmp_path: Path
) -> None:
    path = animate("mcts", env, out=tmp_path / "search.gif", simulations=simulations, frames=12)
    with Image.open(path) as film:
        assert film.n_frames == frames  # type: ignore[attr-defined]


def test_planners_and_learners_are_not_taken_for_each_other(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="animate_learning"):
        animate_planning("q_learning", "Maze-v0", out=tmp_path / "a.gif")
    with pytest.raises(RequestError, match="animate_planning"):
        animate_learning("value_iteration", "Maze-v0", out=tmp_path / "a.gif")


TABLES = [
    name
    for name in ALGORITHMS
    if issubclass(agent_class(name), TableAgent | TablePlanner | LinearAgent)
] + ["certainty_equivalence"]


@pytest.mark.parametrize("algorithm", [*TABLES, "bandit", "mcts"])
def test_every_tabular_method_has_its_animation(algorithm: str, tmp_path: Path) -> None:
    env = "TenArmedTestbed-v0" if algorithm == "bandit" else "Maze-v0"
    plans = issubclass(agent_class(algorithm), Planner)
    options: dict[str, Any] = (
        {"simulations": 5}
        if algorithm == "mcts"
        else {"frames": 4} | ({} if plans else {"steps": 60})
    )
    page = animate(algorithm, env, out=tmp_path / "page.html", **options).read_text()
    assert page.startswith("<!doctype html>") and (algorithm in page or algorithm == "mcts")


def test_a_bandits_film_shows_its_estimates() -> None:
    from rlbook.interaction.environments import EnvRecipe
    from rlbook.plots.boards import boards_of
    from rlbook.plots.value_map import board_maps

    run = rlbook.train("bandit", "TenArmedTestbed-v0", steps=200, eval_every=0)
    (chart,) = board_maps(
        boards_of(EnvRecipe("rlbook/TenArmedTestbed-v0")), run.agent, run.request.recipe, "bandit"
    )
    np.testing.assert_array_equal(chart.values, run.agent.action_values())
    assert chart.policy.argmax() == chart.values.argmax() and (chart.policy == 0).sum() == 1
    assert (chart.board.rows, chart.board.columns) == (2, 5)  # cells wide enough for their numbers
    assert chart.board.texts == tuple("0123456789")


def test_a_long_caption_has_as_many_lines_as_the_board_is_narrow() -> None:
    letters = gif_writer.font(13)
    caption = "step 14,924 · 500 episodes finished · largest change since the last picture 0.181"
    wide = film_gif._lines(caption, letters, 1_000)
    narrow = film_gif._lines(caption, letters, 320)
    assert wide == [caption]
    assert narrow == [
        "step 14,924 · 500 episodes finished",
        "largest change since the last picture 0.181",
    ]
    assert all(letters.getlength(line) <= 320 for line in narrow)


def test_a_film_for_a_phone_has_letters_that_can_be_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def font(size: int) -> ImageFont.FreeTypeFont:
        written.append(size)
        return gif_writer.font(size)

    monkeypatch.setattr(film_gif, "font", font)
    cliff: dict[str, Any] = {"episodes": 3, "frames": 3}
    with narrow_column():
        animate("q_learning", "CliffWalking-v1", out=tmp_path / "narrow.gif", **cliff)
    with Image.open(tmp_path / "narrow.gif") as film:
        assert film.width <= 2 * 358  # half as large in the column of a phone
    assert min(written) >= 2 * 10
    written.clear()
    animate("q_learning", "CliffWalking-v1", out=tmp_path / "wide.gif", **cliff)
    assert min(written) < 2 * 10  # its numbers, which the narrow form leaves out


@pytest.mark.parametrize(("width", "letters"), [(320, 13), (600, 18)])
def test_the_line_below_a_wide_picture_is_as_legible_as_below_a_small_one(
    width: int, letters: int
) -> None:
    frame = Frame(np.zeros((100, width, 3), dtype=np.uint8), None, 1, 7, None, 0.0, 1.5, over=True)
    found = picture(frame)
    assert found.size == (width, 100 + 2 * letters)
    line = np.asarray(found.convert("L"))[100:]
    rows = np.nonzero((line < 128).any(axis=1))[0]
    assert 0.6 * letters < np.ptp(rows) + 1 < 1.1 * letters
