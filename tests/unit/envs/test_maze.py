"""The maze: what its docstring states, its options, its drawings."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from closeness import near, rounding_bound

from rlbook.envs import Maze, MazeVector, TabularMDP
from rlbook.envs.gridworlds.layouts import distances, parse_layout, perfect_maze
from rlbook.envs.rendering import COLOURS

RIGHT_WAY = [3, 3, 1, 1, 3, 3, 0, 0]


RANDOM = np.full((25, 4), 0.25)
PRINTED = 5e-11  # half a unit of the last of ten decimals


def solving(gamma: float, size: float) -> float:
    """What rounding does to a solution of (I - γ P) v = r of that size."""
    model = Maze().model()
    chain = model.chain(RANDOM)[0].toarray() * ~model.terminal
    condition = np.linalg.cond(np.eye(25) - gamma * chain)
    return rounding_bound("float64", terms=25, size=condition * size)


def optimal_values(model: TabularMDP, gamma: float) -> np.ndarray:
    """By brute force: sweeps until nothing changes."""
    values = np.zeros(model.num_states)
    while True:
        new = model.backup(values, gamma).max(axis=1)
        if (new == values).all():
            return values
        values = new


def test_the_docstring_states_the_known_answer() -> None:
    doc = inspect.getdoc(Maze) or ""
    text = " ".join(doc.split())
    model = Maze().model()
    assert f"{model.reachable().sum()} states are reachable" in text
    layout = Maze().tables.layout
    assert (
        f"only shortest path has {distances(layout.walls, layout.start)[layout.goal]} moves" in text
    )
    assert f"{optimal_values(model, 1.0)[0]:.1f} = 7 · (-1) + 10" in text
    assert f"{optimal_values(Maze(rewards='shaped').model(), 1.0)[0]:.1f} = 8 · (-0.1) + 10" in text
    assert (
        f"{optimal_values(model, 0.99)[0]:.10f} and"
        f" {optimal_values(Maze(rewards='shaped').model(), 0.99)[0]:.10f} for γ = 0.99" in text
    )
    assert f"{model.expected_steps(np.full((25, 4), 0.25))[0]:.5f} steps on average" in text
    headings = [line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")]
    assert headings[:4] == ["Description", "Action Space", "Observation Space", "Rewards"]
    assert headings[4:] == [
        "Starting State",
        "Episode End",
        "Arguments",
        "Known answer",
        "Version History",
    ]


@pytest.mark.parametrize(
    ("rewards", "optimum"), [("standard", 7 * -1 + 10), ("shaped", 8 * -0.1 + 10)]
)
def test_the_shortest_way_earns_the_optimal_return(rewards: str, optimum: float) -> None:
    env = Maze(rewards=rewards)
    env.reset(seed=0)
    steps = [env.step(action) for action in RIGHT_WAY]
    assert sum(step[1] for step in steps) == near(optimum, terms=8, size=17)
    assert [step[2] for step in steps] == [False] * 7 + [True]


@pytest.mark.parametrize(("rewards", "bump"), [("standard", -5.0), ("shaped", -0.1 - 1)])
@pytest.mark.parametrize(("state", "action"), [(0, 0), (0, 2), (2, 3), (1, 1), (24, 1), (24, 3)])
def test_a_bump_stays_put_and_hurts(rewards: str, bump: float, state: int, action: int) -> None:
    env = Maze(rewards=rewards)
    env.reset(seed=0)
    env.restore(env.snapshot() | {"state": state})
    assert env.step(action)[:3] == (state, bump, False)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
def test_the_model_has_the_recorded_values(
    fixtures: dict[str, Any], name: str, gamma: float
) -> None:
    expected = fixtures["maze5x5"][f"{name}_gamma{gamma}"]
    model = Maze(rewards={"A": "standard", "B": "shaped"}[name]).model()
    values = optimal_values(model, gamma)
    for state, value in enumerate(value for row in expected["V"] for value in row):
        assert value is None or values[state] == pytest.approx(value, rel=0, abs=PRINTED)
    assert model.backup(values, gamma)[0].tolist() == pytest.approx(
        expected["Q_start_UDLR"], rel=0, abs=PRINTED
    )
    uniform = model.policy_values(RANDOM, gamma)
    rounding = solving(gamma, np.abs(uniform).max())
    assert uniform[0] == pytest.approx(
        expected["uniform_random_V_start"], rel=0, abs=PRINTED + rounding
    )


def test_uniformly_random_moves_take_as_long_as_recorded(fixtures: dict[str, Any]) -> None:
    steps = Maze().model().expected_steps(RANDOM)
    assert steps[0] == pytest.approx(
        fixtures["maze5x5"]["uniform_random_expected_steps_from_start"],
        rel=0,
        abs=PRINTED + solving(1.0, steps.max()),
    )
    assert steps[4] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("slip", [0.0, 0.25, 1.0])
def test_stepping_and_planning_read_the_same_tables(slip: float) -> None:
    """The model's rows against frequencies of 4000 steps; a frequency strays 4.5 standard errors by
    chance once in 10^5."""
    env, model, draws = MazeVector(4000, slip=slip), Maze(slip=slip).model(), 4000
    alive = np.flatnonzero(model.reachable() & ~model.terminal)
    for state in alive[::4]:
        for action in range(4):
            env.reset(seed=int(state))
            env.restore(env.snapshot() | {"place": np.full(draws, state * 4)})
            observations, reward, terminated, _, _ = env.step(np.full(draws, action))
            expected = model.transitions[[state * 4 + action]].toarray()[0]
            frequency = np.bincount(observations, minlength=25) / draws
            rounding = rounding_bound("float64", terms=draws, size=10)
            errors = 4.5 * np.sqrt(expected * (1 - expected) / draws) + rounding
            assert (np.abs(frequency - expected) <= errors).all()
            error = abs(reward.mean() - model.rewards[state, action])
            assert error <= 4.5 * reward.std() / np.sqrt(draws) + rounding
            assert (terminated == (observations == 4)).all()


def test_a_slip_goes_sideways_half_each_and_never_backwards() -> None:
    env = Maze(slip=0.3, layout="S...\n....\n....\n...G")
    up, down, left, right = 1, 9, 4, 6  # the neighbours of state 5, at row 1, column 1
    for action, (ahead, *aside) in enumerate(
        [(up, left, right), (down, left, right), (left, up, down), (right, up, down)]
    ):
        row = env.model().transitions[[5 * 4 + action]].toarray()[0]
        assert row[[ahead, *aside]] == near([0.7, 0.15, 0.15])
        assert row.sum() == near(1.0, terms=3)


def test_the_four_kinds_of_observation_show_the_same_place() -> None:
    seen = {kind: Maze(observation=kind) for kind in ("index", "coordinates", "onehot", "local")}
    shown = {}
    for kind, env in seen.items():
        env.reset(seed=0)
        for action in RIGHT_WAY[:5]:
            shown[kind] = env.step(action)[0]
        assert shown[kind] in env.observation_space
    assert shown["index"] == 2 * 5 + 3
    assert shown["coordinates"].tolist() == [2, 3]
    assert (shown["onehot"].sum(), shown["onehot"][13]) == (1.0, 1.0)
    assert shown["local"].reshape(3, 3).tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]


def test_the_local_view_shows_the_goal_and_counts_the_outside_as_wall() -> None:
    env = Maze(observation="local")
    assert env.reset(seed=0)[0].reshape(3, 3).tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 1]]
    for action in RIGHT_WAY[:7]:
        observation = env.step(action)[0]
    assert observation.reshape(3, 3).tolist() == [[1, 2, 1], [1, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("slip", [0, 1])
def test_a_probability_may_be_0_or_1(slip: int) -> None:
    assert Maze(slip=slip).reset(seed=0)[0] == Maze().reset(seed=0)[0]


def test_free_cells_at_the_ends_of_a_map_may_be_spaces() -> None:
    layout = parse_layout(" S\nG ")
    assert layout.walls.shape == (2, 2) and (layout.start, layout.goal) == (1, 2)


def test_a_space_and_a_dot_are_both_free_and_any_size_will_do() -> None:
    env = Maze(layout="\nS .G\n")
    env.reset(seed=0)
    assert [env.step(3)[:3] for _ in range(3)] == [
        (1, -1.0, False),
        (2, -1.0, False),
        (3, 10.0, True),
    ]


@pytest.mark.parametrize("size", [2, 5, 12])
def test_a_random_maze_is_perfect(size: int) -> None:
    """A tree on n rooms: everything is connected, and there are n - 1 doors, so no way round."""
    layout = parse_layout(perfect_maze(size, seed=7))
    free = int((~layout.walls).sum())
    rooms = size * size
    assert free - rooms == rooms - 1
    assert layout.reachable().sum() == free
    assert (layout.start, layout.goal) == (0, layout.num_states - 1)


def test_random_mazes_depend_on_the_seed_and_on_nothing_else() -> None:
    texts = [perfect_maze(6, seed) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    np.testing.assert_array_equal(
        Maze(size=6).tables.layout.walls, Maze(size=6, seed=0).tables.layout.walls
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"layout": "S.\n.."}, "layout must have exactly one goal 'G', got 0."),
        ({"layout": "..\n.G"}, "layout must have exactly one start 'S', got 0."),
        ({"layout": "SS\n.G"}, "layout must have exactly one start 'S', got 2."),
        ({"layout": "SG\n.G"}, "layout must have exactly one goal 'G', got 2."),
        (
            {"layout": "S#G"},
            (
                "layout must have a goal that can be reached from the start, but G at row 0, column"
                " 2 is walled off."
            ),
        ),
        (
            {"layout": "S..\n.G"},
            "layout must have rows of equal length, but row 1 has 2 cells and row 0 has 3.",
        ),
        (
            {"layout": "S.\nxG"},
            "layout may contain '#', 'S', 'G', '.' and ' ', but row 1, column 0 is 'x'.",
        ),
        ({"layout": ""}, "layout must have at least one row, got an empty string."),
        ({"layout": 5}, "layout must be a string with one line a row, got 5."),
        ({"rewards": "dense"}, "rewards must be one of standard, shaped, got 'dense'."),
        (
            {"observation": "pixels"},
            "observation must be one of index, coordinates, onehot, local, got 'pixels'.",
        ),
        ({"slip": 1.5}, "slip must be a probability in [0, 1], got 1.5."),
        ({"slip": float("nan")}, "slip must be a probability in [0, 1], got nan."),
        ({"slip": "often"}, "slip must be a probability in [0, 1], got 'often'."),
        ({"size": 1}, "size must be an integer from 2 to 500, got 1."),
        ({"size": 5.0}, "size must be an integer from 2 to 500, got 5.0."),
        ({"size": 5, "seed": -1}, "seed must be a non-negative integer, got -1."),
        (
            {"seed": 3},
            "seed=3 chooses a random maze and needs size, the number of rooms along a side.",
        ),
        ({"size": 5, "layout": "SG"}, "size=5 asks for a random maze, so layout must be left out."),
        (
            {"render_mode": "opengl"},
            "render_mode must be None or one of ansi, rgb_array, human, got 'opengl'.",
        ),
    ],
)
@pytest.mark.parametrize("form", [Maze, MazeVector])
def test_a_bad_option_is_answered_in_one_sentence(
    form: Any, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError) as error:
        form(**options)
    assert str(error.value) == complaint


@pytest.mark.parametrize("options", [{"num_envs": 0}, {"num_envs": 2.0}, {"max_episode_steps": 0}])
def test_the_vector_form_refuses_counts_below_one(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=f"{next(iter(options))} must be an integer of at least 1, got"
    ):
        MazeVector(**options)


@pytest.mark.parametrize("action", [-1, 4])
def test_the_maze_refuses_impossible_actions(action: int) -> None:
    env = Maze()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"action must be 0, 1, 2 or 3, got {action}"):
        env.step(action)


def test_drawn_as_text_the_agent_walks_over_the_map() -> None:
    env = Maze(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "A..#G\n.#.#.\n.#...\n...#.\n.#..."
    env.step(3)
    assert env.render() == "SA.#G\n.#.#.\n.#...\n...#.\n.#..."


def test_drawn_as_pixels_each_cell_has_its_colour_and_the_agent_is_a_disc() -> None:
    env = Maze(render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    cell = image.shape[0] // 5
    assert image.shape == (5 * cell, 5 * cell, 3)
    assert image.dtype == np.uint8
    assert tuple(image[0, 3 * cell]) == COLOURS["#"]
    assert tuple(image[0, 4 * cell]) == COLOURS["G"]
    assert tuple(image[0, 0]) == COLOURS["S"]
    assert tuple(image[cell // 2, cell // 2]) == COLOURS["A"]


def test_human_mode_prints_each_frame(capsys: pytest.CaptureFixture[str]) -> None:
    env = Maze(layout="S.G", render_mode="human")
    env.reset(seed=0)
    env.step(3)
    assert capsys.readouterr().out == "A.G\n\nSAG\n\n"
    MazeVector(2, layout="S.G", render_mode="human").reset(seed=0)
    assert capsys.readouterr().out == "A.G\n\nA.G\n\n"


def test_the_vector_form_draws_every_stream() -> None:
    envs = MazeVector(2, layout="S.G", render_mode="ansi")
    envs.reset(seed=0)
    envs.step(np.array([3, 0]))
    assert envs.render() == ("SAG", "A.G")
