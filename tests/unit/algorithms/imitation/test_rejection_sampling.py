"""Rejection sampling: what is kept, by hand; one class on the maze and on texts; and the bytes of a
run that was cut."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from steps import loss_of

import rlbook
from rlbook.algorithms.imitation.rejection_sampling import RejectionSampling, select_best
from rlbook.data import Episode, Episodes
from rlbook.errors import RequestError
from rlbook.functional.policy_losses import policy_gradient_loss
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

RETURNS = torch.tensor([1.0, 3.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("keep", "least", "expected"),
    [
        (1, None, [1, 4]),
        (2, None, [1, 3, 4, 5]),
        (None, 2.0, [1, 2, 3]),
        (1, 2.0, [1]),
        (4, None, list(range(8))),
        (None, 4.0, []),
    ],
)
def test_what_is_kept_by_hand(keep: int | None, least: float | None, expected: list[int]) -> None:
    """Two groups of four; of equal returns the first is kept."""
    assert select_best(RETURNS, 4, keep=keep, least=least).tolist() == expected


def agent_for(env: str, **settings: Any) -> RejectionSampling:
    config = RejectionSampling.Config(group_size=2, **settings)
    return RejectionSampling(
        adapted_vector(RejectionSampling, EnvRecipe.from_env(env), 2, config), config
    )


def test_the_maze_agent_and_the_token_agent_are_of_one_class() -> None:
    maze, tokens = agent_for("Maze-v0"), agent_for("Addition-v0")
    assert type(maze) is type(tokens) is rlbook.algorithms()["rejection_sampling"]
    assert rlbook.registry.agent_class("rft") is RejectionSampling


def test_with_rewards_of_0_and_1_it_is_reinforce_without_a_baseline() -> None:
    """Cloning the right half is the policy gradient with R as advantage, but for the mean: over 2
    episodes of 3 actions, not over 4."""
    agent = agent_for("Maze-v0", keep=None, threshold=1.0)
    states = np.eye(25, dtype=np.float32)
    episodes = Episodes(
        [Episode(states[i : i + 3], np.array([i % 4, 1, 2])) for i in range(4)], unit="episode"
    )
    batch, returns = episodes[np.arange(4)], torch.tensor([1.0, 0.0, 1.0, 0.0])
    right = batch[select_best(returns, 2, keep=None, least=1.0)]
    right.weight = agent.config.averaging()(right.mask)
    log_prob, _, _ = agent.policy.evaluate(batch, entropy=False)
    gradient = policy_gradient_loss(log_prob, returns[:, None].expand(4, 3), mask=batch.mask)
    assert_near(loss_of(agent, right).loss, 2 * gradient, terms=4 * 3 + widths(agent.policy))


def test_a_round_of_which_nothing_is_kept_changes_nothing() -> None:
    run = rlbook.train(
        "rejection_sampling",
        "Maze-v0",
        steps=400,
        num_envs=4,
        group_size=2,
        keep=None,
        threshold=1000.0,
        eval_every=0,
    )
    assert run.agent.optimizer.steps == 0  # type: ignore[attr-defined]
    assert run.metrics[-1]["kept"] == 0.0 and "loss" not in run.metrics[-1]


def test_settings_that_reject_nothing_or_too_much_are_refused() -> None:
    with pytest.raises(RequestError, match="both none, so nothing would be rejected"):
        rlbook.train("rejection_sampling", "Maze-v0", keep=None)
    with pytest.raises(RequestError, match="keep must be at most group_size 4, got 5"):
        rlbook.train("rejection_sampling", "Maze-v0", group_size=4, keep=5)
    with pytest.raises(RequestError, match="did you mean 'threshold'"):
        rlbook.train("rejection_sampling", "Maze-v0", treshold=1.0)


@pytest.mark.parametrize(
    ("env", "steps"),
    [pytest.param("Maze-v0", 1500, marks=pytest.mark.slow), ("Addition-v0", 100)],
)
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(
    tmp_path: Path, env: str, steps: int
) -> None:
    settings: dict[str, Any] = {
        "num_envs": 4,
        "group_size": 2,
        "keep": 1,
        "threshold": None,
        "batch_size": 1,
        "eval_every": 0,
    }
    whole = rlbook.train("rejection_sampling", env, steps=steps, **settings)

    def stop(run: Run) -> None:
        if run.agent.optimizer.steps:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train(
            "rejection_sampling",
            env,
            steps=steps,
            out=tmp_path / "run",
            on_report=stop,
            **settings,
        )
    resumed = rlbook.load(tmp_path / "run").resume()
    assert resumed.steps == whole.steps and whole.agent.optimizer.steps > 4  # type: ignore[attr-defined]
    for ours, theirs in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


def test_the_best_third_of_its_walks_is_enough_for_the_maze() -> None:
    run = rlbook.train("rejection_sampling", "Maze-v0", seed=0, eval_every=0)
    assert rlbook.evaluate(run, episodes=3).mean == 3.0


@pytest.mark.slow
def test_it_is_so_from_every_one_of_ten_seeds() -> None:
    """With the best walk of eight, four of them learned to bump into walls; with the preset none of
    25 others did."""
    runs = [
        rlbook.train("rejection_sampling", "Maze-v0", seed=seed, eval_every=0)
        for seed in range(10, 20)
    ]
    assert [rlbook.evaluate(run, episodes=3).mean for run in runs] == [3.0] * 10


@pytest.mark.slow
def test_right_answers_of_its_own_take_the_shipped_model_from_52_to_75_percent() -> None:
    """Over three seeds it came to .81, .81 and .82."""
    run = rlbook.train("rejection_sampling", "Addition-v0", seed=0, eval_every=0)
    assert rlbook.evaluate(run, episodes=512).mean >= 0.75
