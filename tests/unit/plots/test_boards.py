"""Boards: every environment whose states have places is drawn in them, with its own actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.algorithms.tabular.q_learning import QLearning, QLearningConfig
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe, environments
from rlbook.plots.boards import DRAWN, boards_of
from rlbook.plots.colours import GREEN, INK, PALE, RED
from rlbook.plots.map_drawing import arrows_of, cell_colours, plot_value_map
from rlbook.plots.value_map import value_map, value_maps

BOARDS: dict[str, tuple[str, dict[str, Any], tuple[int, int], int]] = {
    # environment, arguments, rows and columns, cells in which an agent acts
    "4x4": ("GridWorld-v0", {}, (4, 4), 14),  # 16 without two corners
    "5x5": ("GridWorld-v0", {"layout": "5x5"}, (5, 5), 25),
    "walk": ("RandomWalk-v0", {"length": 7}, (1, 9), 7),
    "corridor": ("ShortCorridor-v0", {"observable": True}, (1, 4), 3),
    "Dyna": ("DynaMaze-v0", {}, (6, 9), 46),  # 54 without 7 walls and the goal
    "cliff": ("CliffWalking-v1", {}, (4, 12), 37),  # 3 rows of 12, and the start
    "lake": ("FrozenLake-v1", {}, (4, 4), 11),  # 16 without 4 holes and the goal
    "rental": ("CarRental-v0", {}, (21, 21), 441),
    "gambler": ("Gambler-v0", {}, (1, 101), 99),
    "maze": ("Maze-v0", {}, (5, 5), 18),
}


def planned(env: str, **options: Any) -> Any:
    kwargs = {
        name: options.pop(name)
        for name in ("layout", "moves", "observable", "variant", "is_slippery", "length")
        if name in options
    }
    return rlbook.train("value_iteration", env, env_kwargs=kwargs, eval_every=0, **options)


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_has_its_shape_and_its_cells(name: str) -> None:
    env, kwargs, shape, decided = BOARDS[name]
    (board,) = boards_of(EnvRecipe.from_env(env, kwargs=kwargs))
    assert (board.rows, board.columns) == shape and board.decided.sum() == decided


@pytest.mark.thorough
def test_the_list_of_boards_is_the_truth() -> None:
    shipped = [
        name
        for name, spec in environments().items()
        if str(spec.entry_point).startswith(("rlbook.", "gymnasium."))
    ]
    assert {*DRAWN} <= {*shipped}
    for name in shipped:  # other tests register environments of their own
        if name in DRAWN:
            assert boards_of(EnvRecipe.from_env(name))
        else:
            with pytest.raises(RequestError, match=f"{name} is none of these"):
                boards_of(EnvRecipe.from_env(name))


def test_an_arrow_points_where_its_action_leads() -> None:
    for env, kwargs in (
        ("GridWorld-v0", {}),
        ("CliffWalking-v1", {}),
        ("FrozenLake-v1", {"is_slippery": False}),
        ("DynaMaze-v0", {}),
    ):
        (board,) = boards_of(EnvRecipe.from_env(env, kwargs=kwargs))
        model: Any = board.model
        assert board.moves is not None
        # each has one
        successor = np.asarray(model.transitions.argmax(axis=1)).reshape(
            board.num_states, model.num_actions
        )
        for state, action in np.argwhere(
            board.decided[:, None] & (successor != np.arange(board.num_states)[:, None])
        ):
            target = successor[state, action]
            if board.texts[target] != "S":  # off the cliff one falls back to the start
                np.testing.assert_array_equal(
                    np.subtract(divmod(target, board.columns), divmod(state, board.columns)),
                    board.moves[action],
                )


def test_a_kings_moves_are_diagonal_and_staying_is_a_dot() -> None:
    chart = value_map(planned("WindyGridWorld-v0", moves="king+stay"))
    assert chart.board.moves is not None and chart.board.moves.tolist()[4:] == [
        [-1, -1],
        [-1, 1],
        [1, -1],
        [1, 1],
        [0, 0],
    ]
    state = 5 * 10 + 7  # two below the goal, where the wind carries the agent up by 2
    assert chart.policy[state] == 8
    (arrow,) = (arrow for arrow in arrows_of(chart, numbered=True) if arrow.state == state)
    assert (arrow.right, arrow.down, arrow.taken, arrow.alone) == (0.0, 0.0, True, True)


def test_all_best_actions_are_shown_in_the_4x4_grid() -> None:
    chart = value_map(planned("GridWorld-v0", gamma=1.0))
    up, down, left, right = np.moveaxis(chart.best.reshape(4, 4, 4), 2, 0)
    # figure 4.1, the last policy: left along the top,
    assert left[0].tolist() == [
        False,
        True,
        True,
        True,
    ]
    assert up[:, 0].tolist() == [False, True, True, True]  # up along the left edge,
    assert down[:, 3].tolist() == [True, True, True, False]  # down along the right one,
    assert right[3].tolist() == [True, True, True, False]  # right along the bottom
    assert (
        chart.best.sum(axis=1).reshape(4, 4)
        == [[0, 1, 1, 2], [1, 2, 4, 1], [1, 4, 2, 1], [2, 1, 1, 0]]
    ).all()


def test_an_untrained_table_prefers_nothing() -> None:
    chart = value_map(QLearning(rlbook.make("GridWorld-v0"), QLearningConfig()), "GridWorld-v0")
    assert chart.best[chart.is_decision].all() and (chart.values[chart.is_decision] == 0).all()


@pytest.mark.thorough
def test_an_agent_that_only_predicts_has_values_and_no_arrows() -> None:
    chart = value_map(rlbook.train("td_prediction", "RandomWalk-v0", eval_every=0))
    assert (
        (chart.policy == -1).all()
        and not chart.best.any()
        and not np.isnan(chart.values[chart.is_decision]).any()
    )
    figure = plot_value_map(chart)
    assert [text.get_text() for text in figure.axes[0].texts][-2:] == ["T", "T"] and len(
        figure.axes[0].texts
    ) == 5 + 2


def test_walls_ends_and_cells_out_of_reach_have_colours_of_their_own() -> None:
    chart = value_map(planned("Maze-v0", layout="S.G#."))
    assert (
        cell_colours(chart, chart.range)[2:] == [GREEN, INK, PALE]
        and np.isnan(chart.shares()[2:]).all()
    )
    lake = value_map(planned("FrozenLake-v1"))
    assert [colour == RED for colour in cell_colours(lake, lake.range)] == [
        mark == "H" for mark in "SFFFFHFHFFFHHFFG"
    ]


def test_a_maze_that_has_changed_is_drawn_as_it_is_now() -> None:
    before = rlbook.train(
        "q_learning", "DynaMaze-v0", env_kwargs={"variant": "blocking"}, steps=900, eval_every=0
    )
    after = rlbook.train(
        "q_learning", "DynaMaze-v0", env_kwargs={"variant": "blocking"}, steps=1_100, eval_every=0
    )
    assert [value_map(run).board.walls[3].tolist() for run in (before, after)] == [
        [True] * 8 + [False],
        [False] + [True] * 8,
    ]
    assert value_map(after).title.endswith("map 2 of 2")


def test_car_rental_is_drawn_as_numbers_of_cars() -> None:
    chart = value_map(planned("CarRental-v0", gamma=0.9))
    cars = [
        chart.board.action_text(state, int(chart.policy[state]))
        for state in (20 * 21, 20, 10 * 21 + 10)
    ]
    # the docstring's policy: from (20, 0), from (0, 20), from (10, 10)
    assert cars == [
        "5",
        "−4",
        "0",
    ]
    axes = plot_value_map(chart).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), len(axes.texts)) == (
        "cars on the second lot",
        "cars on the first lot",
        441,
    )
    assert axes.get_ylim()[0] < axes.get_ylim()[1]  # none at the bottom, 20 at the top


def test_the_gamblers_values_are_a_curve_over_the_capital_and_stakes_below() -> None:
    chart = value_map(planned("Gambler-v0", gamma=1.0))
    top, bottom = plot_value_map(chart).axes
    # 0.4², 0.4, 0.4 + 0.6 · 0.4, as far off as value iteration's tolerance allows
    np.testing.assert_allclose(
        top.lines[0].get_ydata()[[24, 49, 74]], [0.16, 0.4, 0.64], rtol=0, atol=1e-8
    )
    assert (bottom.get_xlabel(), bottom.get_ylabel()) == ("capital", "stake")
    assert bottom.lines[1].get_ydata()[[24, 49, 74]].tolist() == [25, 50, 25]
    assert {(51, 1), (51, 49)} <= set(
        zip(*np.asarray(bottom.lines[0].get_data()).astype(int).tolist(), strict=True)
    )


def test_blackjack_has_a_panel_with_and_one_without_a_usable_ace() -> None:
    run = rlbook.train("mc_control", "Blackjack-v1", episodes=200, eval_every=0)
    charts = value_maps(run)
    assert [chart.board.title for chart in charts] == ["usable ace", "no usable ace"]
    agent: Any = run.agent
    for ace, chart in zip((1, 0), charts, strict=True):
        seen = agent.adapt_observations((np.array([14]), np.array([10]), np.array([ace])))[0]
        assert chart.values[2 * 10 + 9] == agent.values()[seen]  # the row of 14, the column of 10
    figure = plot_value_map(charts)
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert titles == [
        "mc_control on Blackjack-v1, usable ace",
        "mc_control on Blackjack-v1, no usable ace",
    ]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        "A",
        *map(str, range(2, 11)),
    ]


def test_actions_are_called_by_their_names_while_watching() -> None:
    import io

    from rlbook.plots import watch

    stream = io.StringIO()
    watch(planned("GridWorld-v0", gamma=1.0), stream=stream)
    assert any(f"action {name}" in stream.getvalue() for name in ("up", "down", "left", "right"))
