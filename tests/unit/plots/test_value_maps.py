"""Value maps: numbers and arrows are the agent's, whatever the layout, the observation and the kind
of agent."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near, widths
from matplotlib.quiver import Quiver

import rlbook
from rlbook.envs.gridworlds.layouts import MOVES
from rlbook.errors import RequestError
from rlbook.plots.map_drawing import plot_value_map
from rlbook.plots.terminal import Terminal, nearest_256, value_map_text
from rlbook.plots.value_map import number, value_map

MAZE = "rlbook/Maze-v0"
START = 0  # the state in which the default maze begins


def planned(**kwargs: Any) -> Any:
    return rlbook.train("value_iteration", MAZE, env_kwargs=kwargs)


def test_the_values_and_arrows_are_the_tables() -> None:
    run = planned()
    chart = value_map(run)
    assert (
        chart.is_decision.sum() == 18
    )  # 19 cells can be reached, and at the goal nothing is decided
    np.testing.assert_array_equal(
        chart.values[chart.is_decision], run.agent.values()[chart.is_decision]
    )
    np.testing.assert_array_equal(
        chart.policy[chart.is_decision], run.agent.greedy_policy()[chart.is_decision]
    )
    assert np.isnan(chart.values[~chart.is_decision]).all()


def cells_of(arrows: Quiver) -> list[tuple[int, int]]:
    """The cell of the middle of each arrow, (row, column)."""
    x, y = (
        np.asarray(arrows.X) + np.asarray(arrows.U) / 2,
        np.asarray(arrows.Y) + np.asarray(arrows.V) / 2,
    )
    return [(round(float(row)), round(float(column))) for row, column in zip(y, x, strict=True)]


def test_the_figure_shows_exactly_these_arrows_and_numbers() -> None:
    chart = value_map(planned())
    axes = plot_value_map(chart).axes[0]
    arrows = [part for part in axes.collections if isinstance(part, Quiver)]
    ways = [
        (place, way)
        for part in arrows
        for place, way in zip(cells_of(part), zip(part.V, part.U, strict=True), strict=True)
    ]
    drawn = {(*place, *np.sign(way)) for place, way in ways}
    state, action = np.nonzero(chart.best)
    assert drawn == {
        (*divmod(s, 5), *MOVES[a]) for s, a in zip(state.tolist(), action.tolist(), strict=True)
    }
    written = [text.get_text() for text in axes.texts]
    assert sorted(written) == sorted(
        [number(value) for value in chart.values[chart.is_decision]] + ["S", "G"]
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.527, "2.53"), (-12.4, "−12.4"), (-300.0, "−300"), (-0.001, "0.00"), (12345.6, "12346")],
)
def test_a_number_in_a_cell_has_five_characters_where_that_is_possible(
    value: float, text: str
) -> None:
    assert number(value) == text


def test_a_maze_that_changes_is_drawn_as_it_was_at_the_runs_end() -> None:
    maze: Any = {"env_kwargs": {"variant": "blocking", "change_at": 20}, "eval_every": 0}
    before, after = (
        value_map(rlbook.train("q_learning", "DynaMaze-v0", steps=steps, **maze)).board.walls
        for steps in (10, 30)
    )
    assert (before != after).sum() == 2  # one way is closed, another opens


def test_a_value_outside_of_a_given_span_is_at_its_end() -> None:
    chart = replace(value_map(planned(layout="S..G")), values=np.array([-1.0, 0.5, 2.0, np.nan]))
    np.testing.assert_array_equal(chart.shares((0.0, 1.0)), [0.0, 0.5, 1.0, np.nan])
    np.testing.assert_array_equal(chart.shares(), [0.0, 0.5, 1.0, np.nan])


def test_the_colour_scale_has_its_unit() -> None:
    assert plot_value_map(planned()).axes[1].get_ylabel() == "value V(s) (reward units)"


@pytest.mark.parametrize("layout", ["S.G", "S..\n.#.\n..G", "#####\n#S.G#\n#####", "S#.\n.G#"])
def test_any_layout_is_drawn(layout: str) -> None:
    chart = value_map(planned(layout=layout))
    start, goal = chart.board.texts.index("S"), chart.board.texts.index("G")
    assert (
        chart.is_decision[start]
        and not chart.is_decision[goal]
        and not chart.is_decision[chart.board.walls.ravel()].any()
    )
    assert plot_value_map(chart).axes


def test_cells_that_cannot_be_reached_are_left_empty() -> None:
    chart = value_map(planned(layout="S.G#."))
    np.testing.assert_array_equal(chart.is_decision, [True, True, False, False, False])


def test_a_table_over_coordinates_is_read_by_its_own_numbering() -> None:
    by_index, by_coordinates = (
        value_map(planned()),
        value_map(rlbook.train("q_learning", MAZE, env_kwargs={"observation": "coordinates"})),
    )
    # bound: V*(start), to what is left to learn after 500 episodes; the values of cells nearby are
    # 1 away
    assert by_coordinates.values[START] == pytest.approx(2.527, rel=0, abs=0.3)
    assert by_coordinates.policy[0] == by_index.policy[0]


@pytest.mark.parametrize("observation", ["index", "coordinates", "onehot", "local"])
def test_a_critics_values_and_an_actors_arrows_are_the_networks(observation: str) -> None:
    run = rlbook.train("ppo", MAZE, steps=1, eval_every=0, env_kwargs={"observation": observation})
    chart, tables = value_map(run), rlbook.make(MAZE, observation=observation).unwrapped.tables  # type: ignore[attr-defined]
    for state in np.flatnonzero(chart.is_decision):
        seen = tables.observe(np.array([state]))
        value, terms = float(run.agent.value(seen)[0]), widths(run.agent.policy)  # type: ignore[attr-defined]
        assert chart.values[state] == near(value, dtype="float32", terms=terms, size=1.0)
        assert (
            chart.policy[state]
            == run.agent.act(run.agent.adapt_observations(seen), explore=False)[0]
        )


def test_a_q_networks_value_is_its_best_action_value() -> None:
    run = rlbook.train("dqn", MAZE, steps=200, eval_every=0)
    chart = value_map(run)
    action_values = run.agent.action_values(np.arange(25))  # type: ignore[attr-defined]
    terms = widths(run.agent.q)  # type: ignore[attr-defined]
    assert_near(
        chart.values[chart.is_decision],
        action_values.max(axis=1)[chart.is_decision],
        dtype="float32",
        terms=terms,
    )
    np.testing.assert_array_equal(
        chart.policy[chart.is_decision], action_values.argmax(axis=1)[chart.is_decision]
    )


def test_an_agent_without_values_is_shown_with_the_return_that_it_really_earns() -> None:
    run = rlbook.train("grpo", MAZE, steps=1, eval_every=0)
    chart = value_map(run)
    assert chart.meaning == "return of the greedy policy (reward units)"
    assert chart.values[START] == near(rlbook.evaluate(run, episodes=1).mean, terms=100)


def test_an_agent_alone_needs_an_environment_and_any_agent_a_board() -> None:
    run = planned()
    np.testing.assert_array_equal(value_map(run.agent, MAZE).policy, value_map(run).policy)
    with pytest.raises(RequestError, match="give env"):
        value_map(run.agent)
    with pytest.raises(RequestError, match="Taxi-v4 is none"):
        value_map(rlbook.train("value_iteration", "Taxi-v4"))


# In the terminal


class FakeTerminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_the_text_has_the_policys_arrows_in_their_places() -> None:
    chart = value_map(planned())
    lines = value_map_text(chart, Terminal(io.StringIO())).split("\n")
    for state in range(25):
        row, column = divmod(state, 5)
        cell = [line[7 * column : 7 * column + 7] for line in lines[3 * row : 3 * row + 3]]
        if chart.is_decision[state]:
            assert (
                "↑↓←→"[chart.policy[state]] in cell[0]
                and number(chart.values[state]) == cell[1].strip()
            )
        else:
            assert ("#######" in cell) == bool(chart.board.walls.flat[state])


def test_a_wide_map_shows_arrows_alone() -> None:
    chart = value_map(planned(size=20))  # 39 columns, 273 characters with values, and 100 fit
    lines = value_map_text(chart, Terminal(io.StringIO())).split("\n")
    assert len(lines) == 39 and {len(line) for line in lines} == {2 * 39}
    state = START
    assert lines[0][0] == "↑↓←→"[chart.policy[state]]


@pytest.mark.parametrize(("encoding", "arrows"), [("utf-8", "↑↓←→"), ("ascii", "^v<>")])
def test_a_terminal_that_cannot_write_arrows_gets_letters(encoding: str, arrows: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal = Terminal(stream)
    assert terminal.arrows[:4] == arrows
    terminal.write(value_map_text(value_map(planned()), terminal))


def test_colour_needs_a_terminal_and_a_user_who_has_nothing_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    chart = value_map(planned())
    assert "\x1b[" in value_map_text(chart, Terminal(FakeTerminal()))
    assert "\x1b[" not in value_map_text(chart, Terminal(io.StringIO()))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in value_map_text(chart, Terminal(FakeTerminal()))
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[" not in value_map_text(chart, Terminal(FakeTerminal()))


@pytest.mark.parametrize(
    ("colour", "index"),
    [
        ((0, 0, 95), 16 + 1),
        ((95, 135, 175), 16 + 36 * 1 + 6 * 2 + 3),
        ((128, 128, 128), 232 + 12),  # 8 + 10 · 12
        ((38, 50, 66), 232 + 4),  # (38 + 50 + 66) / 3 = 51 ≈ 8 + 10 · 4
        ((255, 255, 255), 231),
    ],
)
def test_colours_are_found_among_the_256(colour: tuple[int, int, int], index: int) -> None:
    # The cube's levels are 0, 95, 135, 175, 215, 255, numbered 16 + 36 r + 6 g + b; the greys 8 +
    # 10 i, numbered 232 + i.
    assert nearest_256(colour) == index
