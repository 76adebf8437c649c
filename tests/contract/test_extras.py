"""Environments of packages that are extras: named where they are missing, and trained, resumed and
shared out where they are there."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import near
from gymnasium import spaces

import rlbook
from rlbook.cli import main as cli
from rlbook.errors import RequestError
from rlbook.interaction.spaces import channels_first, image_size, is_image
from rlbook.networks.cnn import FeatureNetwork

GRID, GAME, PENDULUM = "MiniGrid-Empty-5x5-v0", "MinAtar/Breakout-v1", "InvertedPendulum-v5"
PACKAGES = {GRID: "minigrid", GAME: "minatar", PENDULUM: "mujoco"}
RAM = {"obs_type": "ram"}
SUITED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("Box2D", "dqn", "LunarLander-v3", {}),
    ("Box2D", "ppo", "LunarLander-v3", {}),
    ("Box2D", "sac", "LunarLander-v3", {"continuous": True}),
    ("Box2D", "td3", "BipedalWalker-v3", {}),
    ("mujoco", "sac", "Hopper-v5", {}),
    ("mujoco", "ppo", "HalfCheetah-v5", {}),
    ("mujoco", "ppo", "Ant-v5", {}),
    ("minigrid", "ppo", "MiniGrid-DoorKey-5x5-v0", {}),
    ("minigrid", "dqn", "MiniGrid-FourRooms-v0", {}),
    ("minigrid", "ppo", "BabyAI-GoToObj-v0", {}),
    ("minatar", "dqn", "MinAtar/Freeway-v1", {}),
    *(
        ("minatar", "ppo", f"MinAtar/{game}-v1", {})
        for game in ("Breakout", "Asterix", "Seaquest", "SpaceInvaders")
    ),
    ("ale_py", "dqn", "ALE/Pong-v5", RAM),
    ("ale_py", "ppo", "ALE/Breakout-v5", RAM),
]
"""Package, algorithm, environment and its arguments."""


@pytest.fixture
def env(request: pytest.FixtureRequest) -> str:
    """The environment, where its package is installed."""
    pytest.importorskip(PACKAGES[request.param])
    return request.param


FAMILIES = {
    GRID: "MiniGrid",
    "MinAtar/Freeway-v1": "MinAtar",
    "Hopper-v5": "MuJoCo",
    "LunarLander-v3": "Box2D",
    "ALE/Pong-v5": "Atari",
}


@pytest.mark.parametrize(("env_id", "family"), FAMILIES.items())
def test_a_missing_package_is_named_with_its_extra(
    env_id: str,
    family: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for module in ("minigrid", "minatar", "minatar.gym", "mujoco", "imageio", "Box2D", "ale_py"):
        monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["train", "ppo", env_id, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert (
        f'{family} environments need `pip install "rlbook[{family.lower()}]"`' in said
        and not (tmp_path / "run").exists()
    )


def test_a_package_that_breaks_when_it_is_imported_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As MuJoCo does where MUJOCO_GL names a library that is not there."""
    (tmp_path / "imageio.py").write_text("None.glGetError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imageio", raising=False)
    assert cli.main(["train", "sac", "Hopper-v5", "--out", str(tmp_path / "run")]) == 2
    assert "imageio cannot be imported here: AttributeError: 'NoneType'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_mujoco_warns_once_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HalfCheetah's model has a deprecated attribute, of which every `make` would tell."""
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        rlbook.make("HalfCheetah-v5").close()
        mujoco.get_mju_user_warning()("The simulation is unstable. Time = 0.5")
        mujoco.get_mju_user_warning()("The simulation is unstable. Time = 0.7")
    assert capsys.readouterr().err == "MuJoCo warns: The simulation is unstable.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "default::UserWarning:gymnasium"
)  # their own checks of their own spaces
@pytest.mark.parametrize(
    ("package", "algorithm", "env_id", "arguments"),
    SUITED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_environment_of_another_package_trains_for_20_000_steps(
    package: str,
    algorithm: str,
    env_id: str,
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing ends it; what it says of bounds that are not kept is one sentence; and the folder is
    evaluated afterwards."""
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into a file
    run = rlbook.train(
        algorithm, env_id, steps=20_000, eval_every=0, out=tmp_path / "run", env_kwargs=arguments
    )
    assert 20_000 <= run.steps < 20_000 + 16 * 128
    assert len([note for note in run.notes if "outside its bounds" in note]) <= 1
    assert np.isfinite(rlbook.evaluate(tmp_path / "run", episodes=1).mean)


def test_two_equal_axes_are_the_sides_of_an_image() -> None:
    shapes = {
        (7, 7, 20): False,
        (20, 7, 7): True,
        (3, 84, 84): True,
        (84, 84, 3): False,
        (3, 84, 96): True,
        (84, 96, 3): False,
    }
    for shape, first in shapes.items():
        space = spaces.Box(0, 1, shape, np.bool_)
        assert is_image(space) and channels_first(space) is first
        assert image_size(space)[2] == {3: 3, 20: 20}[shape[0] if first else shape[2]]


def test_filters_see_truth_values_as_0_and_1() -> None:
    boxes = spaces.Box(0, 1, (10, 10, 4), np.bool_), spaces.Box(0, 255, (10, 10, 4), np.uint8)
    network, of_bytes = (
        FeatureNetwork(box, (3,), torch.Generator().manual_seed(0)) for box in boxes
    )
    planes = torch.rand(5, 10, 10, 4, generator=torch.Generator().manual_seed(1)) > 0.5
    assert torch.equal(network(planes), of_bytes(planes.to(torch.uint8) * 255)) and torch.equal(
        network(planes), network(planes.float())
    )


@pytest.mark.parametrize("env", [GRID], indirect=True)
def test_a_minigrid_is_shown_as_planes_or_as_it_is(env: str) -> None:
    planes, image = rlbook.make(env), rlbook.make(env, view="image")
    seen, raw = planes.reset(seed=0)[0], image.reset(seed=0)[0]
    assert (
        planes.observation_space.contains(seen)
        and image.observation_space.contains(raw)
        and raw.shape == (7, 7, 3)
    )
    assert (seen.sum(-1) == 3).all()  # a kind of thing, a colour and a state in each cell
    for first, last, channel in ((0, 11, 0), (11, 17, 1), (17, 20, 2)):
        assert (seen[..., first:last].argmax(-1) == raw[..., channel]).all()
    with pytest.raises(RequestError, match="view must be one of planes, image, got 'words'"):
        rlbook.make(env, view="words")
    run = rlbook.train("ppo", env, steps=8, num_envs=1, rollout_steps=8, eval_every=0)
    with pytest.raises(ValueError, match=rf"use run.make_env\(\).* as rlbook.make\('{env}'\) does"):
        run.predict(gymnasium.make(env).reset(seed=0)[0])
    assert planes.action_space.contains(run.predict(seen))
    run = rlbook.train(
        "ppo", rlbook.make(env, view="image"), steps=64, num_envs=2, rollout_steps=16, eval_every=0
    )
    assert run.request.recipe.name == env and any(
        "7 x 7 pixels and 3 channels" in note for note in run.notes
    )


@pytest.mark.parametrize("env", [GAME], indirect=True)
def test_a_game_is_taken_up_again_within_an_episode(env: str) -> None:
    for name in ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders"):
        one, other = (rlbook.make(f"MinAtar/{name}-v1").unwrapped for _ in range(2))
        rng = np.random.default_rng(0)
        one.reset(seed=1)

        for _ in range(200):
            if one.step(int(rng.integers(one.action_space.n)))[2]:
                one.reset()
        other.reset(seed=2)
        other.restore(one.snapshot())
        actions = rng.integers(one.action_space.n, size=60)
        np.testing.assert_equal(
            [other.step(action) for action in actions], [one.step(action) for action in actions]
        )
        np.testing.assert_equal(other.reset(), one.reset())


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("ppo", GRID, {"rollout_steps": 16, "steps": 240}),
        ("dqn", GAME, {"learning_starts": 50, "steps": 240}),
        ("sac", PENDULUM, {"learning_starts": 50, "steps": 120}),
    ],
    indirect=["env"],
)
def test_a_run_is_resumed_and_shared_out_to_the_byte(
    algorithm: str, env: str, options: dict[str, Any], tmp_path: Path
) -> None:
    def stop(run: rlbook.Run) -> None:
        if run.steps >= options["steps"] / 2:
            signal.raise_signal(signal.SIGTERM)

    options = {"num_envs": 2, "eval_episodes": 2, **options}
    rlbook.train(algorithm, env, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        rlbook.train(algorithm, env, out=tmp_path / "parts", **options, on_report=stop)
    rlbook.train(algorithm, env, out=tmp_path / "parts", **options, resume=True, workers=2)
    whole, parts = (
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix != ".png"
        }
        for folder in (tmp_path / "whole", tmp_path / "parts")
    )
    assert {name for name in whole if whole[name] != parts.get(name)} <= {"seconds.json"}


@pytest.mark.slow
@pytest.mark.parametrize("env", [GRID], indirect=True)
def test_ppo_finds_the_shortest_way_through_a_minigrid(env: str) -> None:
    settings = {
        "steps": 30_000,
        "learning_rate": 1e-3,
        "entropy_coef": 0.01,
        "gamma": 0.95,
        "eval_every": 0,
    }
    run = rlbook.train("ppo", env, **settings)
    # two ahead, a turn, two ahead
    assert rlbook.evaluate(run, episodes=5).returns == near([1 - 0.9 * 5 / 100] * 5, terms=3)
