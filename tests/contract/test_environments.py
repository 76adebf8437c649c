"""Every registered environment keeps gymnasium's contract; native vector forms keep ours."""

from __future__ import annotations

import inspect
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array
from warm_process import run_python

import rlbook
from rlbook.envs.registration import register

register()
# cannot be made without the name of a data set, nor without its package
NAMED_FIRST = {"rlbook/ReasoningGym-v0"}
OURS = sorted(
    name for name in gymnasium.registry if name.startswith("rlbook/") and name not in NAMED_FIRST
)
OBSERVATIONS = ("index", "coordinates", "onehot", "local")


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env_id", OURS)
def test_gymnasium_finds_nothing_to_complain_about(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array", "human"])
def test_every_view_and_drawing_of_the_maze_passes_the_checker(
    observation: str, render_mode: str | None
) -> None:
    check_env(
        gymnasium.make(
            "rlbook/Maze-v0", observation=observation, slip=0.3, render_mode=render_mode
        ).unwrapped
    )


def test_registering_twice_changes_nothing() -> None:
    before = dict(gymnasium.registry)
    register()
    assert gymnasium.registry == before


def test_importing_the_environments_loads_no_torch() -> None:
    code = (
        "import sys, gymnasium, rlbook.envs.registration as r; r.register();"
        "from rlbook.envs import Maze, MazeVector, TabularMDP;"
        "TabularMDP.from_env(gymnasium.make('rlbook/Maze-v0'));"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def random_episodes(env: gymnasium.Env, actions: np.ndarray, seed: int) -> list[tuple[Any, ...]]:
    """What one stream shows for a given list of actions: at an end it waits, as the vector form
    does, and is then reset."""
    shown = [(env.reset(seed=seed)[0], 0.0, False, False)]
    ended = False
    for time, action in enumerate(actions):
        if ended:
            shown.append((shown[-1][0], 0.0, *shown[-1][2:]))
        else:
            observation, reward, terminated, truncated, _ = env.step(action)
            shown.append((observation, reward, terminated, truncated and not terminated))
            ended = terminated or truncated
        if ended and time % 3 == 0:
            shown.append((env.reset()[0], 0.0, False, False))
            ended = False
    return shown


SECTIONS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Rewards",
    "Starting State",
    "Episode End",
    "Arguments",
    "Known answer",
    "Version History",
]


@pytest.mark.parametrize("env_id", OURS)
def test_a_docstring_has_the_fixed_sections(env_id: str) -> None:
    doc = inspect.getdoc(type(gymnasium.make(env_id).unwrapped)) or ""
    assert [
        line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")
    ] == SECTIONS


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env_id", OURS)
def test_side_by_side_each_stream_shows_what_it_would_alone(env_id: str) -> None:
    seeds = [3, 3, 1, 4]
    many, alone = gymnasium.make_vec(env_id, num_envs=4), [gymnasium.make(env_id) for _ in seeds]
    shown = many.reset(seed=seeds)[0]  # type: ignore[arg-type]
    assert same(
        shown,
        batched(
            alone[0], [env.reset(seed=seed)[0] for env, seed in zip(alone, seeds, strict=True)]
        ),
    )
    many.action_space.seed(0)
    for _ in range(300):
        actions = many.action_space.sample()
        shown, rewards, terminated, truncated, _ = many.step(actions)
        steps = [env.step(action) for env, action in zip(alone, actions, strict=True)]
        assert same(shown, batched(alone[0], [step[0] for step in steps]))
        assert rewards.tolist() == [step[1] for step in steps]
        assert terminated.tolist() == [step[2] for step in steps]
        assert truncated.tolist() == [step[3] and not step[2] for step in steps]
        over = terminated | truncated
        if over.any():
            shown = many.reset(options={"reset_mask": over})[0]
            expected = [
                env.reset()[0] if ended else step[0]
                for env, step, ended in zip(alone, steps, over, strict=True)
            ]
            assert same(shown, batched(alone[0], expected))


@pytest.mark.parametrize("env_id", OURS)
def test_a_snapshot_brings_back_the_same_future(env_id: str) -> None:
    one, fresh = gymnasium.make(env_id).unwrapped, gymnasium.make(env_id).unwrapped
    many, others = gymnasium.make_vec(env_id, num_envs=5), gymnasium.make_vec(env_id, num_envs=5)
    for single, vector in ((one, many), (fresh, others)):
        single.action_space.seed(1)
        vector.action_space.seed(1)
    single_future(one, 27, seed=6)
    vector_future(many, 27, seed=6)
    single_future(fresh, 27, seed=7)
    vector_future(others, 27, seed=7)
    fresh.restore(one.snapshot())  # type: ignore[attr-defined]
    others.restore(many.snapshot())  # type: ignore[attr-defined]
    assert same(single_future(fresh, 60), single_future(one, 60))
    assert same(vector_future(others, 60), vector_future(many, 60))


def single_future(env: Any, count: int, seed: int | None = None) -> list[Any]:
    """What random actions show, one episode after the other."""
    shown: list[Any] = [] if seed is None else [env.reset(seed=seed)[0]]
    for _ in range(count):
        shown.append(env.step(env.action_space.sample())[:3])
        if shown[-1][2]:
            shown.append(env.reset()[0])
    return shown


def vector_future(envs: Any, count: int, seed: int | None = None) -> list[Any]:
    """The same side by side; streams that have ended wait for each other, three at most."""
    shown: list[Any] = [] if seed is None else [envs.reset(seed=seed)[0]]
    for _ in range(count):
        shown.append(envs.step(envs.action_space.sample())[:4])
        over = shown[-1][2] | shown[-1][3]
        if over.sum() >= 3:
            shown.append(envs.reset(options={"reset_mask": over})[0])
    return shown


def batched(env: Any, observations: list[Any]) -> Any:
    """Observations of single environments as a vector environment shows them."""
    space = env.observation_space
    return concatenate(space, observations, create_empty_array(space, len(observations)))


def same(one: Any, other: Any) -> bool:
    """Equal in every number."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("slip", [0.0, 0.3])
@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("rewards", ["standard", "shaped"])
def test_single_and_vector_mazes_agree_step_by_step(
    slip: float, observation: str, rewards: str
) -> None:
    options: dict[str, Any] = {
        "slip": slip,
        "observation": observation,
        "rewards": rewards,
        "max_episode_steps": 20,
    }
    rng = np.random.default_rng(0)
    num_envs, seeds = 7, [3, 3, 1, 4, 1, 5, 9]
    actions = rng.choice(4, size=(400, num_envs), p=[0.1, 0.3, 0.1, 0.5])
    many = gymnasium.make_vec("rlbook/Maze-v0", num_envs=num_envs, **options)
    expected = [
        random_episodes(gymnasium.make("rlbook/Maze-v0", **options), actions[:, i], seeds[i])
        for i in range(num_envs)
    ]

    shown: list[list[tuple[Any, ...]]] = [[] for _ in range(num_envs)]
    observations, _ = many.reset(seed=seeds)  # type: ignore[arg-type]
    for stream in range(num_envs):
        shown[stream].append((observations[stream], 0.0, False, False))
    for time, row in enumerate(actions):
        observations, reward, terminated, truncated, _ = many.step(row)
        for stream in range(num_envs):
            shown[stream].append(
                (observations[stream], reward[stream], terminated[stream], truncated[stream])
            )
        mask = (terminated | truncated) & (time % 3 == 0)
        if mask.any():
            observations, _ = many.reset(options={"reset_mask": mask})
            for stream in np.flatnonzero(mask):
                shown[stream].append((observations[stream], 0.0, False, False))

    flags = np.array([[step[2:] for step in stream] for stream in shown[:1]])
    assert flags.any(axis=(0, 1)).any(), "some episodes must have ended for this to be a test"
    for one, other in zip(shown, expected, strict=True):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left[0], right[0])
            assert left[1:] == right[1:]


def vector_maze(num_envs: int = 5, **options: Any) -> Any:
    return gymnasium.make_vec("rlbook/Maze-v0", num_envs=num_envs, **options)


RIGHT_WAY = [3, 3, 1, 1, 3, 3, 0, 0]


def test_the_vector_maze_leaves_resets_to_the_loop() -> None:
    assert vector_maze().metadata["autoreset_mode"] is AutoresetMode.DISABLED


def test_an_ended_stream_ignores_its_action_until_it_is_reset() -> None:
    envs = vector_maze(2)
    envs.reset(seed=0)
    for action in RIGHT_WAY:
        observation, reward, terminated, truncated, _ = envs.step(np.array([action, 0]))
    assert (observation.tolist(), reward.tolist(), terminated.tolist()) == (
        [4, 0],
        [10.0, -5.0],
        [True, False],
    )
    for action in (1, 2, 3):
        observation, reward, terminated, truncated, _ = envs.step(np.array([action, 3]))
    assert (observation.tolist(), reward.tolist()) == ([4, 2], [0.0, -5.0])
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert envs.reset(options={"reset_mask": np.array([True, False])})[0].tolist() == [0, 2]
    assert envs.step(np.array([3, 3]))[0].tolist() == [1, 2]


def test_a_truncated_stream_keeps_its_flag_and_its_observation() -> None:
    envs = vector_maze(2, max_episode_steps=3)
    envs.reset(seed=0)
    for time in range(1, 6):
        observation, reward, terminated, truncated, _ = envs.step(np.array([3, 1]))
        assert truncated.tolist() == [time >= 3] * 2
        assert not terminated.any()
    assert (observation.tolist(), reward.tolist()) == ([2, 15], [0.0, 0.0])
    envs.reset(options={"reset_mask": np.array([False, True])})
    assert [envs.step(np.array([0, 1]))[3].tolist() for _ in range(3)] == [
        [True, False],
        [True, False],
        [True, True],
    ]


def test_reaching_the_goal_with_the_last_step_allowed_is_a_termination() -> None:
    envs = vector_maze(1, max_episode_steps=8)
    envs.reset(seed=0)
    for action in RIGHT_WAY:
        _, reward, terminated, truncated, _ = envs.step(np.array([action]))
    assert (reward[0], terminated[0], truncated[0]) == (10.0, True, False)


def test_equal_seeds_start_equal_streams_and_an_integer_counts_up() -> None:
    envs, others = vector_maze(3, slip=0.5), vector_maze(3, slip=0.5)
    envs.reset(seed=[8, 8, 9])
    others.reset(seed=8)
    actions = np.random.default_rng(1).integers(4, size=50)
    walks = np.array([envs.step(np.full(3, action))[0] for action in actions])
    counted = np.array([others.step(np.full(3, action))[0] for action in actions])
    assert (walks[:, 0] == walks[:, 1]).all()
    assert (walks[:, 1] != walks[:, 2]).any()
    np.testing.assert_array_equal(counted[:, :2], walks[:, [0, 2]])


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_observations_once_returned_are_never_changed(observation: str) -> None:
    envs = vector_maze(4, observation=observation)
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for action in (*RIGHT_WAY, 1, 1):
        kept.append(envs.step(np.full(4, action))[0])
        copies.append(kept[-1].copy())
    kept.append(envs.reset(options={"reset_mask": np.array([True, False, True, False])})[0])
    np.testing.assert_array_equal(np.array(kept[:-1]), np.array(copies))


@pytest.mark.parametrize("slip", [0.0, 0.4])
def test_a_snapshot_taken_in_the_middle_of_an_episode_brings_back_the_same_future(
    slip: float,
) -> None:
    one: Any = gymnasium.make("rlbook/Maze-v0", slip=slip).unwrapped
    many = vector_maze(6, slip=slip, max_episode_steps=30)
    actions = np.random.default_rng(2).integers(4, size=(60, 6))
    one.reset(seed=4)
    many.reset(seed=4)
    for row in actions[:25]:
        one.step(row[0])
        many.step(row)
    snapshots = one.snapshot(), many.snapshot()
    futures = (
        [one.step(row[0])[:3] for row in actions[25:]],
        [many.step(row)[:4] for row in actions[25:]],
    )
    fresh: Any = gymnasium.make("rlbook/Maze-v0", slip=slip).unwrapped
    others = vector_maze(6, slip=slip, max_episode_steps=30)
    fresh.restore(snapshots[0])
    others.restore(snapshots[1])
    assert [fresh.step(row[0])[:3] for row in actions[25:]] == futures[0]
    for row, expected in zip(actions[25:], futures[1], strict=True):
        for left, right in zip(others.step(row)[:4], expected, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("actions", "complaint"),
    [
        ([0, 1], "actions must be 5 integers, got an array of shape (2,) and type int64."),
        ([0.0] * 5, "actions must be 5 integers, got an array of shape (5,) and type float64."),
        ([0, 1, 2, 3, 4], "actions must be 0, 1, 2 or 3, got values from 0 to 4."),
        ([0, 1, 2, 3, -1], "actions must be 0, 1, 2 or 3, got values from -1 to 3."),
    ],
)
def test_the_vector_maze_refuses_impossible_actions(actions: list[Any], complaint: str) -> None:
    envs = vector_maze(5)
    envs.reset(seed=0)
    with pytest.raises(ValueError) as error:
        envs.step(np.array(actions))
    assert str(error.value) == complaint


@pytest.mark.parametrize("package", ["rlbook", "rlbook.envs"])
def test_gymnasium_alone_can_make_the_maze(package: str) -> None:
    code = (
        f"import gymnasium; assert gymnasium.make('{package}:rlbook/Maze-v0').reset(seed=0)[0] == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


HALL = """\
import gymnasium
from rlbook.envs.gridworlds.maze import Maze
gymnasium.register("Hall-v0", lambda **kwargs: Maze("S..G", **kwargs), max_episode_steps=9)
"""


@pytest.mark.slow
def test_a_run_remembers_the_module_of_its_environment_and_imports_it_only_if_allowed(
    tmp_path: Path,
) -> None:
    (tmp_path / "hall_of_mazes.py").write_text(HALL)
    words = ["train", "q_learning", "hall_of_mazes:Hall-v0", "--episodes", "20", "--out", "a run"]
    assert command(words, tmp_path).returncode == 2 and not (tmp_path / "a run").exists()
    trained = command([*words, "--allow-import"], tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "env: hall_of_mazes:Hall-v0" in (tmp_path / "a run" / "config.yaml").read_text()
    refused = command(["evaluate", "a run"], tmp_path)
    assert refused.returncode == 2 and "would import the module 'hall_of_mazes'" in refused.stderr
    shown = next(line for line in trained.stdout.splitlines() if "rlbook evaluate" in line)
    assert shlex.split(shown) == [
        "rlbook",
        "evaluate",
        "a run",
        "--allow-import",
    ], "what is printed can be pasted"
    assert command(shlex.split(shown)[1:], tmp_path).returncode == 0


@pytest.mark.parametrize("code", ["1 / 0", "not python"])
def test_a_module_that_cannot_be_imported_is_one_sentence(code: str, tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text(code)
    result = command(["train", "q_learning", "broken_module:Any-v0", "--allow-import"], tmp_path)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert "environment module 'broken_module' cannot be imported" in result.stderr


def command(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(Path(rlbook.__file__).parents[1])])
    options: dict[str, Any] = {
        "cwd": folder,
        "env": os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    }
    return run_python(["-m", "rlbook", *words], **options)


@pytest.mark.parametrize(
    "imports",
    [
        "import gymnasium, rlbook",
        "import rlbook, gymnasium",
        "import rlbook, gymnasium.envs",
        "import rlbook.agent, gymnasium",
        (
            "import rlbook, importlib.util as i; i.find_spec('gymnasium');"
            " i.find_spec('gymnasium'); import gymnasium"
        ),
    ],
)
def test_gymnasium_knows_the_ids_once_rlbook_is_imported(imports: str, tmp_path: Path) -> None:
    code = (
        imports
        + "; import sys; print(gymnasium.make('rlbook/Maze-v0').spec.id, {'torch', 'transformers'}"
        " & set(sys.modules));print(gymnasium.make_vec('rlbook/Maze-v0', num_envs=2).num_envs)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["rlbook/Maze-v0", "set()", "2"]


def test_gymnasium_that_is_not_installed_is_missed_as_ever(tmp_path: Path) -> None:
    """A hook that looks for gymnasium must not hide that there is none."""
    code = (
        "import sys; sys.path = [{!r}, *(p for p in sys.path if 'site-packages' not in p)]; import"
        " rlbook, gymnasium"
    )
    code = code.format(str(Path(rlbook.__file__).parents[1]))
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'gymnasium'"


def test_an_environment_of_an_older_version_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run makes it several times; what changes a filter in between makes Python forget that it
    has warned."""
    for version in (0, 1):
        gymnasium.register(f"Aged-v{version}", "rlbook.envs:Maze", max_episode_steps=9)
    monkeypatch.setattr(rlbook.interaction.environments, "_known_ages", set())
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            rlbook.train("q_learning", "Aged-v0", steps=20)
        assert sum("out of date" in str(warning.message) for warning in said) == 1
    finally:
        for version in (0, 1):
            del gymnasium.registry[f"Aged-v{version}"]
