"""Grid worlds and windy grids: what their docstrings state, against dense solves and against rules
written out again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near

from rlbook.envs import TabularMDP
from rlbook.envs.gridworlds.gridworld import GridWorld, GridWorldVector
from rlbook.envs.gridworlds.windy_gridworld import WIND, WindyGridWorld, WindyGridWorldVector
from rlbook.envs.rendering import COLOURS

UP, DOWN, LEFT, RIGHT = range(4)


def dense(model: TabularMDP) -> tuple[np.ndarray, np.ndarray]:
    """P(s'|s, a) without what ends the episode [S, A, S], and r(s, a) [S, A], added up outcome by
    outcome."""
    outcomes, size = model.outcomes, (model.num_states, model.num_actions)
    going, reward = np.zeros((*size, model.num_states)), np.zeros(size)
    for row in range(size[0] * size[1]):
        before = 0.0
        for k in range(outcomes.first[row], outcomes.first[row + 1]):
            probability, before = outcomes.cumulative[k] - before, outcomes.cumulative[k]
            going[*divmod(row, size[1]), outcomes.successor[k]] += probability * (
                not outcomes.ends[k]
            )
            reward[*divmod(row, size[1])] += probability * outcomes.reward[k]
    return going, reward


def dense_values(model: TabularMDP, policy: np.ndarray, gamma: float) -> np.ndarray:
    """(I - γ P_π)⁻¹ r_π for π [S, A]; where every action ends for nothing, 0."""
    going, reward = dense(model)
    chain = np.einsum("sa,sat->st", policy, going)
    return np.linalg.solve(np.eye(len(chain)) - gamma * chain, (policy * reward).sum(axis=1))


def dense_optimum(model: TabularMDP, gamma: float) -> np.ndarray:
    """V*: the solved values of a policy, certified by Bellman's optimality equation."""
    going, reward = dense(model)
    values = np.zeros(model.num_states)
    for _ in range(2000):
        values = (reward + gamma * going @ values).max(axis=1)
    best = (reward + gamma * going @ values).argmax(axis=1)
    values = dense_values(model, np.eye(model.num_actions)[best], gamma)
    assert_near((reward + gamma * going @ values).max(axis=1), values, terms=len(values))
    return values


def uniform(model: TabularMDP) -> np.ndarray:
    return np.full((model.num_states, model.num_actions), 1 / model.num_actions)


def test_uniformly_random_moves_have_the_values_of_figure_4_1() -> None:
    values = dense_values(GridWorld().model(), uniform(GridWorld().model()), 1.0)
    expected = [[0, -14, -20, -22], [-14, -18, -20, -20], [-20, -20, -18, -14], [-22, -20, -14, 0]]
    # a rounding is carried on until the end, for 22 steps on average at most
    assert_near(values.reshape(4, 4), expected, terms=16, size=22 * 22)
    for row in expected:
        assert f"{' '.join(f'{value:3d}' for value in row)}\n" in (GridWorld.__doc__ or "")


def test_the_sweeps_of_figure_4_1_are_those_of_the_book() -> None:
    """Synchronously after 2, 3 and 10 sweeps; a corner's neighbour: -1 + (0 - 1 - 1 - 1) / 4 =
    -1.75 after 2."""
    model, values, seen = GridWorld().model(), np.zeros(16), {}
    for sweep in range(1, 11):
        values = model.backup(values, 1.0).mean(axis=1)
        seen[sweep] = values.reshape(4, 4)
    assert seen[2][0, 1] == -1.75
    assert seen[3][0].tolist() == [0, -2.4375, -2.9375, -3.0]
    assert seen[3][1, 1] == -2.875
    assert_near(seen[10][0], [0, -6.1380, -8.3524, -8.9673], decimals=4)
    assert_near(seen[10][1, 1:3], [-7.7374, -8.4278], decimals=4)


def test_the_nearer_corner_is_the_optimum_of_the_small_grid() -> None:
    row, column = np.divmod(np.arange(16), 4)
    steps = np.minimum(row + column, 6 - row - column)
    values = dense_optimum(GridWorld().model(), 1.0)
    assert_near(values, -steps, terms=16, size=3 * 3)
    assert GridWorld().model().initial @ values == near(-2.0, terms=16)
    assert "-2 on average over the starts" in " ".join((GridWorld.__doc__ or "").split())


def test_the_teleports_have_the_values_of_figures_3_2_and_3_5() -> None:
    model, doc = GridWorld("5x5").model(), GridWorld.__doc__ or ""
    values, best = (
        dense_values(model, uniform(model), 0.9).reshape(5, 5),
        dense_optimum(model, 0.9).reshape(5, 5),
    )
    assert_near(values[0], [3.3090, 8.7893, 4.4276, 5.3224, 1.4922], decimals=4)
    assert_near(values[4], [-1.8577, -1.3452, -1.2293, -1.4229, -1.9752], decimals=4)
    assert_near(best[0], [21.9775, 24.4194, 21.9775, 19.4194, 17.4775], decimals=4)
    assert_near(best[1], [19.7797, 21.9775, 19.7797, 17.8018, 16.0216], decimals=4)
    assert_near(best[4], [14.4194, 16.0216, 14.4194, 12.9775, 11.6797], decimals=4)
    for row in (values[0], best[0]):
        assert " ".join(f"{value:7.4f}" for value in row) in doc


@pytest.mark.parametrize(
    ("state", "destination", "paid"), [(1, 21, 10.0), (3, 13, 5.0), (0, 0, -1.0), (12, 7, 0.0)]
)
def test_a_step_up_in_the_grid_with_teleports(state: int, destination: int, paid: float) -> None:
    env = GridWorld("5x5")
    env.reset(seed=0)
    env.restore(env.snapshot() | {"state": state})
    assert env.step(UP)[:3] == (destination, paid, False)


def test_episodes_of_the_small_grid_begin_anywhere_but_in_a_corner_and_end_in_one() -> None:
    """14 cells alike: of 2000 starts each gets 143 ± 4 · 11.5."""
    env = GridWorldVector(2000)
    counts = np.bincount(env.reset(seed=0)[0], minlength=16)
    assert counts[[0, 15]].tolist() == [0, 0]
    assert (np.abs(counts[1:15] - 2000 / 14) < 4 * np.sqrt(2000 / 14 * 13 / 14)).all()
    one = GridWorld()
    one.reset(seed=0)
    one.restore(one.snapshot() | {"state": 4})
    assert one.step(UP)[:3] == (0, -1.0, True)


def windy_step(state: int, move: tuple[int, int], wind: int) -> int:
    """The rule in the book's words: the move and the wind, and then the edge."""
    row, column = divmod(state, 10)
    row, column = row + move[0] - wind, column + move[1]
    return max(0, min(row, 6)) * 10 + max(0, min(column, 9))


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize(("moves", "count"), [("four", 4), ("king", 8), ("king+stay", 9)])
def test_the_wind_carries_the_agent_up(moves: str, count: int, stochastic: bool) -> None:
    offsets = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0)][:count]
    model = WindyGridWorld(moves, stochastic).model()
    assert (model.num_states, model.num_actions) == (70, count)
    for state in set(range(70)) - {37}:
        mean = [0, 0, 0, 1, 1, 1, 2, 2, 1, 0][state % 10]
        for action, move in enumerate(offsets):
            expected = np.zeros(70)
            for change in (-1, 0, 1) if stochastic and mean else (0,):
                expected[windy_step(state, move, mean + change)] += (
                    1 / 3 if stochastic and mean else 1
                )
            found = model.transitions[[state * count + action]].toarray()[0]
            assert_near(found, expected, terms=3, size=1.0)
            assert model.ends[state, action] == near(expected[37], terms=3, size=1.0)
            assert model.rewards[state, action] == near(-1, terms=3)


@pytest.mark.parametrize(("moves", "steps"), [("four", 15), ("king", 7), ("king+stay", 7)])
def test_the_shortest_way_through_the_wind_is_as_long_as_stated(moves: str, steps: int) -> None:
    # a rounding is carried on for as many steps
    assert dense_optimum(WindyGridWorld(moves).model(), 1.0)[30] == near(
        -steps, terms=70, size=steps**2
    )
    assert f'{steps} with `"{moves}"`' in " ".join((WindyGridWorld.__doc__ or "").split()).replace(
        "15 steps with", "15 with"
    )
    varying = dense_optimum(WindyGridWorld(moves, stochastic=True).model(), 1.0)[30]
    assert f"{varying:.4f}" in (WindyGridWorld.__doc__ or "")


def test_the_way_of_example_6_5_is_walked_in_fifteen_steps() -> None:
    env = WindyGridWorld()
    env.reset(seed=0)
    steps = [env.step(action) for action in [RIGHT] * 9 + [DOWN] * 4 + [LEFT] * 2]
    assert [step[2] for step in steps] == [False] * 14 + [True]
    assert sum(step[1] for step in steps) == -15


@pytest.mark.parametrize(
    ("form", "options", "complaint"),
    [
        (GridWorld, {"layout": "6x6"}, "layout must be one of 4x4, 5x5, got '6x6'."),
        (GridWorldVector, {"layout": 4}, "layout must be one of 4x4, 5x5, got 4."),
        (
            WindyGridWorld,
            {"moves": "queen"},
            "moves must be one of four, king, king+stay, got 'queen'.",
        ),
        (
            WindyGridWorldVector,
            {"stochastic": "often"},
            "stochastic must be true or false, got 'often'.",
        ),
        (
            WindyGridWorld,
            {"render_mode": "opengl"},
            "render_mode must be None or one of ansi, rgb_array, human, got 'opengl'.",
        ),
        (GridWorldVector, {"num_envs": 0}, "num_envs must be an integer of at least 1, got 0."),
    ],
)
def test_a_bad_option_is_answered_in_one_sentence(
    form: Any, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError) as error:
        form(**options)
    assert str(error.value) == complaint


def test_drawn_as_text_the_agent_stands_on_the_map() -> None:
    env = WindyGridWorld(render_mode="ansi")
    env.reset(seed=0)
    lines = (env.render() or "").splitlines()
    assert lines[3] == "A......G.."
    assert lines[7] == f"{''.join(map(str, WIND))}  strength of the wind"
    env.step(RIGHT)
    assert env.render().splitlines()[3] == "SA.....G.."
    for layout, first in (("4x4", "T..."), ("5x5", ".a.b.")):
        grid = GridWorld(layout)
        assert grid.draw_text(int(grid.observation_space.n) - 2).splitlines()[0] == first
        assert "".join(grid.draw_text(int(grid.observation_space.n) - 2).split())[-2] == "A"


def test_drawn_as_pixels_cells_have_their_colours_and_the_agent_is_a_disc() -> None:
    env = GridWorld("5x5", render_mode="rgb_array")
    env.reset(seed=0)
    env.restore(env.snapshot() | {"state": 12})
    image = env.render()
    cell = image.shape[0] // 5
    middles = image[cell // 2 :: cell, cell // 2 :: cell]
    assert image.shape == (5 * cell, 5 * cell, 3)
    assert tuple(middles[2, 2]) == COLOURS["A"]
    assert (
        len(
            {
                tuple(middles[row, column])
                for row, column in ((0, 0), (0, 1), (0, 3), (4, 1), (2, 3))
            }
        )
        == 5
    )
    assert env.grid_shape == (5, 5)
    assert not env.grid_walls.any()


def test_a_stronger_wind_is_a_deeper_blue() -> None:
    image = WindyGridWorld().draw_pixels(30)
    cell = image.shape[0] // 7
    redness = image[cell // 2, cell // 2 :: cell, 0].astype(int)
    assert (np.diff(redness[np.argsort(WIND, kind="stable")]) <= 0).all()
    assert redness[7] < redness[3] < redness[0]
