"""REINFORCE: the returns it learns from, its baselines, and that its gradient is that of the
expected return."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths
from flat_parameters import flat_gradient
from gymnasium import spaces
from steps import loss_of
from torch import Tensor

import rlbook
from rlbook.algorithms.policy.reinforce import baseline
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.storage.state_encoding import encode

Make = Callable[..., Any]
BASELINES = ["none", "leave-one-out", "learned"]


class Counting(gymnasium.Env):
    """Pays 1, 2, 3 for the three steps of an episode, whatever is done."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.taken = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        return self.taken % 3, float(self.taken), self.taken == 3, False, {}


class TwoSteps(gymnasium.Env):
    """From state 0, action a pays FIRST[a] and leads to state 1 + a; there, action b pays
    SECOND[a][b], and the episode is over."""

    FIRST, SECOND = (1.0, 0.0), ((0.0, 2.0), (5.0, -3.0))
    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        state, self.state = self.state, 1 + int(action)
        if state == 0:
            return self.state, self.FIRST[int(action)], False, False, {}
        return state, self.SECOND[state - 1][int(action)], True, False, {}


def gradient_of(agent: Any, loss: Tensor) -> Tensor:
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, agent.policy.actor.weights)])


# ---- returns and baselines


def test_each_step_learns_from_the_discounted_return_that_followed_it(
    stage: Make, fixtures: dict[str, Any]
) -> None:
    """Rewards 1, 2, 3 and γ = .9: 3, then 2 + .9 · 3 = 4.7, then 1 + .9 · 4.7 = 5.23."""
    case = fixtures["losses"]["returns"]
    theatre = stage("reinforce", Counting(), num_envs=2, gamma=0.9, baseline="none")
    theatre.round()
    batch = theatre.agent.prepare()
    assert_near(
        batch.advantage.view(3, 2), np.repeat(np.array(case["G"]), 2).reshape(3, 2), terms=3
    )
    assert case["G"] == near([1 + 0.9 * (2 + 0.9 * 3), 2 + 0.9 * 3, 3], terms=3)
    assert torch.equal(batch.target, batch.advantage)


@pytest.mark.parametrize(
    ("group_size", "others"),
    [(1, [(2 + 3 + 7) / 3, (1 + 3 + 7) / 3, (1 + 2 + 7) / 3, (1 + 2 + 3) / 3]), (2, [2, 1, 7, 3])],
)
def test_the_mean_of_the_others_is_of_the_round_or_of_the_group(
    stage: Make, group_size: int, others: list[float]
) -> None:
    theatre = stage(
        "reinforce", Counting(), num_envs=4, group_size=group_size, baseline="leave-one-out"
    )
    returns = torch.tensor([[1.0, 2.0, 3.0, 7.0], [9.0, 9.0, 9.0, 9.0]])
    agent = theatre.agent
    assert_near(
        baseline(agent.policy, agent.rollout_data, returns, agent.config),
        [others, others],
        terms=4,
        size=13.0,
    )


def test_a_learned_baseline_is_the_critics_value_and_the_critic_regresses_on_the_return(
    stage: Make,
) -> None:
    theatre = stage(
        "reinforce", Counting(), num_envs=2, gamma=0.9, baseline="learned", learning_rate=2e-2
    )
    theatre.round()
    agent, batch = theatre.agent, theatre.agent.prepare()
    value = agent.policy.values(agent.rollout_data)[0]
    expected = torch.tensor([5.23, 4.7, 3.0])[:, None] - value
    assert_near(batch.advantage.view(3, 2), expected, terms=3 + widths(agent.policy))
    agent.rollout_data.clear()
    learned = theatre.learn(80)
    assert learned[0]["value_loss"] > 1.0 and learned[-1]["value_loss"] < 0.1
    assert learned[-1]["advantage_std"] < 0.5 < learned[0]["advantage_std"]  # what it is there for
    assert stage("reinforce", Counting(), num_envs=2, baseline="none").agent.policy.critic is None


def test_one_episode_has_no_others(stage: Make) -> None:
    with pytest.raises(
        ValueError, match="baseline = leave-one-out needs num_envs of at least 2, got 1"
    ):
        stage("reinforce", Counting(), num_envs=1, baseline="leave-one-out")


# ---- the gradient


@pytest.mark.thorough
@pytest.mark.parametrize("baseline", BASELINES)
def test_the_gradient_is_that_of_the_expected_return_by_enumeration(
    stage: Make, baseline: str
) -> None:
    """Of 4 096 episodes, within four standard errors; the exact one sums over the four ways
    through, each with its probability.

    The standard error is measured on 64 parts of 64 episodes. A mean over steps in place of a sum
    over them would be half of it.
    """
    theatre = stage(
        "reinforce", TwoSteps(), num_envs=4096, gamma=1.0, baseline=baseline, hidden_sizes=()
    )
    agent, tilt = theatre.agent, torch.tensor([[0.5, -0.3, 0.2], [-0.1, 0.4, 0.0]])
    with torch.no_grad():
        agent.policy.actor.weights[0].copy_(tilt)
    theatre.round()
    batch = agent.prepare()
    parts = []
    episode = torch.arange(4096).repeat(2)  # the rows: step 0 of all episodes, then step 1
    for part in range(64):
        rows = batch[(episode // 64) == part]
        rows.weight = rows.weight * 64
        parts.append(
            gradient_of(
                agent,
                loss_of(agent, rows).loss if baseline != "learned" else policy_part(agent, rows),
            )
        )
    found, error = torch.stack(parts).mean(0), torch.stack(parts).std(0) / 8
    expected = gradient_of(agent, -expected_return(agent))
    assert expected.abs().max() > 0.3
    assert ((found - expected).abs() <= 4 * error + rounding_bound("float32", terms=4096)).all(), (
        found,
        expected,
        error,
    )


def policy_part(agent: Any, rows: Any) -> Tensor:
    rows.target = None  # leaves the critic out
    return loss_of(agent, rows).loss


def expected_return(agent: Any) -> Tensor:
    """J = Σ_a π(a|0) [ FIRST[a] + Σ_b π(b|1+a) SECOND[a][b] ]."""
    weight, bias = agent.policy.actor.weights
    pi = (weight.T + bias).softmax(1)  # [S, A]
    second = torch.tensor(TwoSteps.SECOND)
    return sum(pi[0, a] * (TwoSteps.FIRST[a] + (pi[1 + a] * second[a]).sum()) for a in range(2))


def test_with_groups_it_is_grpo_with_the_mean_of_the_others(stage: Make, arms: Make) -> None:
    """RLOO: one step of one epoch, nothing divided by the deviation, a sum over the steps of each
    episode."""
    gradients = []
    for algorithm, options in (
        ("reinforce", {"gamma": 1.0}),
        ("grpo", {"scale": "none", "average": "constant", "average_divisor": 1}),
    ):
        theatre = stage(
            algorithm,
            arms(),
            num_envs=16,
            group_size=4,
            baseline="leave-one-out",
            max_grad_norm=1e9,
            **options,
        )
        theatre.learn(1)
        gradients.append(flat_gradient(theatre.agent.optimizer))
    assert gradients[0].norm() > 0.1
    assert_near(*gradients, terms=16 + widths(theatre.agent.policy))


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_micro_batches_do_not_change_the_gradient(
    stage: Make, scripted: Make, size: int, baseline: str
) -> None:
    results = []
    for micro in (None, size):
        options = {
            "micro_batch_size": micro,
            "baseline": baseline,
            "entropy_coef": 0.01,
            "max_grad_norm": 1e9,
        }
        theatre = stage("reinforce", scripted(), num_envs=8, group_size=4, **options)
        (metrics,) = theatre.learn(1)
        results.append(
            (torch.tensor(list(metrics.values())), flat_gradient(theatre.agent.optimizer))
        )
    terms = 8 * 9 + widths(theatre.agent.policy)  # 8 episodes of at most 9 steps
    for left, right in zip(*results, strict=True):
        assert_near(left, right, terms=terms)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(
    tmp_path: Path, baseline: str
) -> None:
    """CartPole's random episodes are short: eight of them make the first update within some hundred
    steps."""
    options: dict[str, Any] = {
        "steps": 1_000,
        "num_envs": 8,
        "baseline": baseline,
        "eval_every": 0,
        "seed": 0,
    }

    def stop(run: rlbook.Run) -> None:
        if run.agent.optimizer.steps == 1:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("reinforce", "CartPole-v1", out=tmp_path / "run", on_report=stop, **options)
    cut = rlbook.load(tmp_path / "run")
    assert cut.agent.optimizer.steps == 1  # type: ignore[attr-defined]
    resumed, whole = (
        encode(run.agent.state_dict())[1]
        for run in (cut.resume(), rlbook.train("reinforce", "CartPole-v1", **options))
    )
    assert resumed.keys() == whole.keys() and all(
        np.array_equal(resumed[name], whole[name]) for name in whole
    )
