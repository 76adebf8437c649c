"""Agents with networks on an environment that stops whoever takes a forbidden action: they train, are evaluated and taken up again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near
from random_masks import RandomMasks

import rlbook
from rlbook.fast_forms import plain_forms
from rlbook.interaction.action_masks import UNUSED
from rlbook.runs.interrupts import Interrupted
from rlbook.runs.state_encoding import encode

ENV = "tests/RandomMasks-v0"
SMALL: dict[str, Any] = {"hidden_sizes": (8,)}
DQN: dict[str, Any] = SMALL | {"learning_starts": 50, "batch_size": 16, "train_every": 4, "buffer_size": 200}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", DQN | {"double": False}),
    "double": ("dqn", DQN | {"double": True}),
    "rainbow": ("dqn", DQN | {"dueling": True, "prioritized": True, "n_step": 3, "noisy": True, "distributional": True, "num_atoms": 11}),
    "world_model": ("world_model", SMALL | {
        "learning_starts": 50, "train_every": 100, "gradient_steps": 5, "candidates": 10, "elites": 3, "iterations": 2, "horizon": 3,
    }),
}


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ENV, entry_point=RandomMasks)
    yield
    del gymnasium.registry[ENV]


def weights_of(run: Any) -> list[np.ndarray]:
    network = getattr(run.agent, "q", None) or getattr(run.agent, "policy", None) or getattr(run.agent, "model", None) or run.agent.actor
    return [p.detach().numpy().copy() for p in network.parameters()]


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("name", AGENTS)
def test_no_forbidden_action_is_taken_in_training_or_evaluation(name: str, num_envs: int) -> None:
    algorithm, settings = AGENTS[name]
    run = rlbook.train(algorithm, ENV, steps=600, num_envs=num_envs, eval_every=300, eval_episodes=5, seed=2, **settings)
    assert run.steps >= 600 and UNUSED not in run.notes
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20
    assert all(np.isfinite(array).all() for array in weights_of(run))


def interrupt(run: rlbook.Run) -> None:
    if run.steps >= 244:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_with_masks_that_is_taken_up_again_has_the_same_bytes(name: str, tmp_path: Path) -> None:
    algorithm, settings = AGENTS[name]
    chosen: dict[str, Any] = {"steps": 480, "num_envs": 4, "seed": 3, "eval_every": 0} | settings
    whole = rlbook.train(algorithm, ENV, **chosen)
    with pytest.raises(Interrupted):
        rlbook.train(algorithm, ENV, folder=tmp_path / "parts", on_report=interrupt, **chosen)
    resumed = rlbook.load(tmp_path / "parts")
    assert 0 < resumed.steps < 480
    resumed = resumed.resume()
    assert resumed.steps == whole.steps == 480
    (one, arrays), (other, others) = (encode(run.agent.state_dict()) for run in (whole, resumed))
    assert one == other
    assert {name: array.tobytes() for name, array in arrays.items()} == {name: array.tobytes() for name, array in others.items()}


@pytest.mark.parametrize("name", AGENTS)
def test_without_the_fast_forms_the_run_is_the_same(name: str) -> None:
    """One training run each; the actions that are drawn agree, so the rounding of the weights is all that differs."""
    algorithm, settings = AGENTS[name]
    runs = []
    for plain in (False, True):
        with plain_forms(plain):
            runs.append(rlbook.train(algorithm, ENV, steps=300, num_envs=4, seed=4, eval_every=0, **settings))
    fast, plainly = runs
    assert fast.episode_returns == plainly.episode_returns
    for one, other in zip(weights_of(fast), weights_of(plainly), strict=True):
        assert_near(one, other, terms=8 * 600, size=1.0)
