"""The Dyna mazes: their shortest ways, and that the walls change when they should, for one agent
and for many."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs.gridworlds.dyna_maze import DynaMaze, DynaMazeVector
from rlbook.envs.gridworlds.layouts import distances
from rlbook.envs.tabular.mdp import TabularMDP

CHANGING = ("blocking", "shortcut")
START, GOAL = 5 * 9 + 3, 8
RIGHT_WAY = [3] * 5 + [0] * 5  # around the wall on the right
LEFT_WAY = [2] * 3 + [0] * 5 + [3] * 8  # and on the left


def walls(env: DynaMaze) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in np.argwhere(env.grid_walls)]


def optimum(model: TabularMDP, gamma: float) -> np.ndarray:
    values = np.zeros(model.num_states)
    for _ in range(model.num_states):
        values = model.backup(values, gamma).max(axis=1)
    return values


def test_the_docstring_states_the_known_answer() -> None:
    doc = inspect.getdoc(DynaMaze) or ""
    text = " ".join(doc.split())
    fixed = DynaMaze()
    lengths = [int(distances(fixed.grid_walls, 18)[GOAL])]
    for variant in CHANGING:
        lengths += [
            int(distances(DynaMaze(variant, changed=changed).grid_walls, START)[GOAL])
            for changed in (False, True)
        ]
    assert lengths == [14, 10, 16, 16, 10]
    assert (
        'has 14 steps in `"fixed"`; it has 10 and then 16 in `"blocking"`, 16 and then 10 in'
        ' `"shortcut"`' in text
    )
    values = [
        optimum(fixed.model(), 0.95)[18],
        *(optimum(model, 0.95)[START] for _, model in DynaMaze("blocking").phases),
    ]
    assert values == near([0.95**13, 0.95**9, 0.95**15], terms=15)
    assert "0.95¹³ = {:.6f}, 0.95⁹ = {:.6f} or 0.95¹⁵ = {:.6f}".format(*values) in text
    headings = [line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")]
    assert headings[:6] == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
    ]
    assert headings[6:] == ["Arguments", "Known answer", "Version History"]
    mazes = [
        DynaMaze(),
        *(DynaMaze(variant, changed=changed) for variant in CHANGING for changed in (False, True)),
    ]
    maps = [maze.draw_text(0) for maze in mazes]
    for line in range(1, 5):
        assert "    ".join(text.splitlines()[line] for text in maps) in doc


def test_the_walls_stand_where_the_figures_show_them() -> None:
    assert walls(DynaMaze()) == [(0, 7), (1, 2), (1, 7), (2, 2), (2, 7), (3, 2), (4, 5)]
    assert walls(DynaMaze("blocking")) == [(3, column) for column in range(8)]
    assert walls(DynaMaze("blocking", changed=True)) == [(3, column) for column in range(1, 9)]
    assert walls(DynaMaze("shortcut")) == [(3, column) for column in range(1, 9)]
    assert walls(DynaMaze("shortcut", changed=True)) == [(3, column) for column in range(1, 8)]
    assert all(DynaMaze(variant).grid_shape == (6, 9) for variant in ("fixed", *CHANGING))


def follow(env: DynaMaze, way: list[int]) -> list[tuple[int, float, bool]]:
    env.reset()
    return [env.step(action)[:3] for action in way]


def test_only_the_goal_pays() -> None:
    models = [DynaMaze().model(), *(model for _, model in DynaMaze("blocking").phases)]
    assert [np.flatnonzero(model.terminal).tolist() for model in models] == [[GOAL]] * 3
    steps = follow(DynaMaze("blocking"), RIGHT_WAY)
    assert [reward for _, reward, _ in steps] == [0.0] * 9 + [1.0]
    assert [terminated for *_, terminated in steps] == [False] * 9 + [True]
    env = DynaMaze()
    env.reset(seed=0)
    assert env.step(2)[:3] == (18, 0.0, False), "off the map"
    env.restore(env.snapshot() | {"state": 19})
    assert env.step(3)[:3] == (19, 0.0, False), "a wall"


@pytest.mark.parametrize(
    ("variant", "change_at", "open_before", "open_after"),
    [
        ("blocking", 1000, [RIGHT_WAY], [LEFT_WAY]),
        ("shortcut", 3000, [LEFT_WAY], [LEFT_WAY, RIGHT_WAY]),
    ],
)
def test_the_walls_change_after_so_many_steps_of_all_episodes(
    variant: str, change_at: int, open_before: Any, open_after: Any
) -> None:
    env = DynaMaze(variant)
    while env.steps < change_at - 48:
        for way in (RIGHT_WAY, LEFT_WAY):
            assert (
                follow(env, way)[-1] == (GOAL, 1.0, True)
                if way in open_before
                else follow(env, way)[-1][1] == 0.0
            )
    while env.steps < change_at:
        assert env.grid_walls[3, 8] == (variant == "shortcut")
        env.step(1)
    assert env.grid_walls[3, 8] == (variant == "blocking") and env.grid_walls[3, 0] == 0
    for seed in (None, 0):
        env.reset(seed=seed)
        for way in (RIGHT_WAY, LEFT_WAY):
            assert (follow(env, way)[-1] == (GOAL, 1.0, True)) == (way in open_after)


def test_an_agent_can_leave_the_cell_in_which_a_wall_comes_up() -> None:
    env = DynaMaze("blocking", change_at=7)
    assert [state for state, *_ in follow(env, RIGHT_WAY[:7])][-1] == 3 * 9 + 8
    assert env.grid_walls[3, 8]
    assert env.step(2)[0] == 3 * 9 + 8, "the wall beside it is still one"
    assert env.step(0)[0] == 2 * 9 + 8
    assert env.step(1)[0] == 2 * 9 + 8, "and there is no way back"


@pytest.mark.parametrize("variant", CHANGING)
def test_a_snapshot_keeps_the_age(variant: str) -> None:
    env, other = DynaMaze(variant, change_at=100), DynaMaze(variant, change_at=100)
    many, others = (DynaMazeVector(3, 25, variant=variant, change_at=100) for _ in range(2))
    actions = np.random.default_rng(1).choice(4, p=[0.35, 0.1, 0.1, 0.45], size=(300, 3))
    for kept in (150, 60):  # forth from the first map, and back to it
        env.reset(seed=0)
        many.reset(seed=0)
        for row in actions[:kept]:
            env.step(row[0])
        shown_by(many, actions[:kept])
        taken = env.snapshot(), many.snapshot(), env.steps, many.ages.copy()
        future = [env.step(row[0])[:3] for row in actions[kept:]], shown_by(many, actions[kept:])
        other.restore(taken[0])
        others.restore(taken[1])
        assert other.steps == taken[2] == kept and other.grid_walls[3, 8] == (
            (kept < 100) == (variant == "shortcut")
        )
        np.testing.assert_array_equal(others.ages, taken[3])
        assert [other.step(row[0])[:3] for row in actions[kept:]] == future[0]
        np.testing.assert_array_equal(shown_by(others, actions[kept:]), future[1])
        env.steps, many.ages[:] = 0, 0


def shown_by(many: DynaMazeVector, actions: np.ndarray) -> np.ndarray:
    """[T, 4, N]: observations, rewards and flags; what has ended begins again."""
    shown = []
    for row in actions:
        shown.append(np.array(many.step(row)[:4], dtype=float))
        many.reset(options={"reset_mask": many._terminated | many._truncated})
    return np.array(shown)


@pytest.mark.parametrize("variant", ["fixed", *CHANGING])
def test_each_stream_ages_by_its_own_steps(variant: str) -> None:
    """Mazes side by side against single ones; the first one waits at the goal without growing
    older."""
    options: dict[str, Any] = {"variant": variant} | (
        {} if variant == "fixed" else {"change_at": 150}
    )
    many, single = DynaMazeVector(4, **options), [DynaMaze(**options) for _ in range(4)]
    actions = np.random.default_rng(2).choice(4, p=[0.35, 0.1, 0.1, 0.45], size=(600, 4))
    shown = many.reset(seed=0)[0]
    assert shown.tolist() == [env.reset(seed=0)[0] for env in single]
    over = np.zeros(4, dtype=bool)
    for time, row in enumerate(actions):
        before, (shown, reward, terminated, _, _) = shown, many.step(row)
        for i, env in enumerate(single):
            expected = (before[i], 0.0, True) if over[i] else env.step(row[i])[:3]
            assert (shown[i], reward[i], terminated[i]) == expected
        over = terminated.copy()
        if time % 5 == 0:
            shown = many.reset(options={"reset_mask": over})[0]
            assert [
                env.reset()[0] for env, ended in zip(single, over, strict=True) if ended
            ] == shown[over].tolist()
            over[:] = False
    assert many.ages.tolist() == [env.steps for env in single]
    assert many.ages.max() <= 600 and (variant == "fixed" or many.ages.min() > 150)


def test_a_maze_that_changes_is_no_single_model() -> None:
    for variant, change_at in (("blocking", 1000), ("shortcut", 3000)):
        env = DynaMaze(variant)
        assert env.changes and [until for until, _ in env.phases] == [change_at, None]
        for (_, model), changed in zip(env.phases, (0, 1), strict=True):
            grid_walls = env._grids[changed].walls
            assert (
                optimum(model, 1.0)[START] == 1.0
                and not model.reachable()[grid_walls.ravel()].any()
            )
        with pytest.raises(
            ValueError,
            match=rf"^DynaMaze changes after {change_at} steps, so it is not a single model",
        ):
            env.model()
        later = DynaMaze(variant, changed=True)
        assert not later.changes
        np.testing.assert_array_equal(
            later.model().transitions.toarray(), env.phases[1][1].transitions.toarray()
        )
    fixed = DynaMaze()
    assert not fixed.changes and fixed.phases == [(None, fixed.model())]


def test_agents_learn_in_a_maze_that_changes_and_are_judged_by_how_it_ends() -> None:
    """Q-learning forgets the way that was closed: 16 steps around the left, to the goal's reward of
    1."""
    options = {"variant": "blocking", "change_at": 1_000}
    run = rlbook.train(
        "q_learning",
        "DynaMaze-v0",
        env_kwargs=options,
        steps=40_000,
        gamma=0.95,
        alpha=0.5,
        eval_every=0,
    )
    evaluation = rlbook.evaluate(run, episodes=5)
    assert evaluation.returns.tolist() == [1.0] * 5 and evaluation.lengths.tolist() == [16] * 5


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"variant": "moving"}, "variant must be one of fixed, blocking, shortcut, got 'moving'."),
        (
            {"variant": "blocking", "change_at": 0},
            "change_at must be an integer of at least 1, got 0.",
        ),
        (
            {"variant": "blocking", "change_at": 1.5},
            "change_at must be an integer of at least 1, got 1.5.",
        ),
        ({"variant": "blocking", "changed": "yes"}, "changed must be true or false, got 'yes'."),
        (
            {"change_at": 5},
            "variant='fixed' never changes, so change_at and changed must be left out.",
        ),
        (
            {"changed": True},
            "variant='fixed' never changes, so change_at and changed must be left out.",
        ),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError) as error:
        DynaMaze(**options)
    assert str(error.value) == complaint


def test_drawings_show_the_walls_of_the_moment() -> None:
    env = DynaMaze("blocking", change_at=3, render_mode="ansi")
    pictures = DynaMazeVector(2, variant="blocking", change_at=3, render_mode="rgb_array")
    env.reset(seed=0)
    pictures.reset(seed=0)
    rows = []
    for _ in range(4):
        env.step(1)
        pictures.step(np.array([1, 1]))
        rows.append(env.render().splitlines()[3])
        assert (pictures.render()[1][3 * 48 + 24, 8 * 48 + 24] < 80).all() == (rows[-1][8] == "#")  # type: ignore[index]
    assert rows == ["########."] * 2 + [".########"] * 2
