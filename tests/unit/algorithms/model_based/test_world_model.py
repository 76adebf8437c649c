"""The cross-entropy method on problems with known answers; the learned model and the plans in
it."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near

import rlbook
from rlbook.algorithms.model_based import world_model
from rlbook.algorithms.model_based.cross_entropy import (
    CategoricalPlans,
    GaussianPlans,
    cross_entropy_method,
)
from rlbook.algorithms.model_based.world_model import imagined_return
from rlbook.data.replay import Transitions
from rlbook.networks.dynamics import (
    BatchedEnsemble,
    Prediction,
    WorldModel,
    one_step_errors,
    rollout_errors,
)
from rlbook.runs.request import Request
from rlbook.runs.run import Run


def gaussian(count: int, steps: int, bound: float) -> GaussianPlans:
    size = torch.full((1,), bound)
    return GaussianPlans(
        torch.zeros(count, steps, 1), torch.full((count, steps, 1), bound), -size, size
    )


@pytest.mark.parametrize("seed", range(100, 110))
def test_the_search_finds_the_best_plan_of_a_quadratic_score_in_each_environment(seed: int) -> None:
    """-|plan - goal|²; the goal of the second environment lies outside the box, whose edge is then
    best."""
    goal = torch.tensor([[0.5, -1.0], [0.3, 9.0]])[:, None, :, None]
    found = cross_entropy_method(
        lambda plans: -(plans - goal).square().sum((-1, -2)),
        gaussian(2, 2, 2.0),
        np.random.default_rng(seed),
        candidates=200,
        elites=20,
        iterations=15,
    )
    # The error in these ten seeds is 3e-5 to 6e-4, where the elites of the last round differ by
    # 4e-4.
    assert_near(found.mode()[..., 0], [[0.5, -1.0], [0.3, 2.0]], decimals=2)


def test_the_search_finds_the_best_of_all_discrete_plans() -> None:
    """Only one plan of 3^4 pays more than the number of its actions that agree with it, so that
    parts of it are good too."""
    best = torch.tensor([2, 0, 1, 2])
    agrees = lambda plans: (plans.argmax(-1) == best).float().sum(-1)  # noqa: E731
    start = CategoricalPlans(torch.full((1, 4, 3), 1 / 3))
    found = cross_entropy_method(
        agrees, start, np.random.default_rng(0), candidates=60, elites=6, iterations=6
    )
    assert found.mode().argmax(-1).tolist() == [best.tolist()]


def test_new_plans_are_drawn_from_the_elites_mean_and_standard_deviation() -> None:
    elites = torch.tensor([1.0, 3.0]).view(1, 2, 1, 1)
    refitted = gaussian(1, 1, 5.0).refit(elites)
    assert (refitted.mean.item(), refitted.std.item()) == (2.0, 1.0)  # √(((1-2)² + (3-2)²) / 2)
    discrete = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])[None, :, None]
    categorical = CategoricalPlans(torch.full((1, 1, 2), 0.5), floor=0.1).refit(discrete)
    assert_near(categorical.probability, [[[0.9 * 0.75 + 0.05, 0.9 * 0.25 + 0.05]]], terms=4)


def test_discrete_plans_are_drawn_with_their_probabilities() -> None:
    """50 000 draws; each share within four standard errors."""
    probability = torch.tensor([[[0.2, 0.0, 0.8]]])
    drawn = CategoricalPlans(probability).sample(50_000, np.random.default_rng(1)).mean(1)
    assert (
        (drawn - probability).abs() <= 4 * (probability * (1 - probability) / 50_000).sqrt()
    ).all()


def test_a_score_that_is_no_number_is_the_worst() -> None:
    score = lambda plans: torch.where(plans[..., 0, 0] > 0, torch.nan, plans[..., 0, 0])  # noqa: E731
    found = cross_entropy_method(
        score, gaussian(1, 1, 2.0), np.random.default_rng(0), candidates=50, elites=5, iterations=8
    )
    assert -0.1 < found.mode().item() <= 0


class Known(torch.nn.Module):
    """s' = s + a, r = s, log-odds of a termination as given; the second member finds each reward 1
    higher."""

    def __init__(self, odds: float) -> None:
        super().__init__()
        self.odds, self.members = odds, 2

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> Prediction:
        more = torch.tensor([0.0, 1.0])[:, None]
        return Prediction(obs + actions, obs[..., 0] + more, torch.full(obs.shape[:-1], self.odds))


def test_an_imagined_return_is_the_discounted_sum_weighted_by_the_probability_of_getting_there() -> (
    None
):
    """s = 2, actions 3, 5 and 1, γ = .5, a termination with probability ¼ at each step: rewards 2, 5
    and 10; mean over members ½ higher each."""
    plans = torch.tensor([[[[3.0], [5.0], [1.0]], [[0.0]] * 3]])  # [N = 1, C = 2, H = 3, A = 1]
    model: Any = Known(math.log(0.25 / 0.75))
    found = imagined_return(model, torch.tensor([[2.0]]), plans, gamma=0.5)
    discount = 0.5 * 0.75
    first = 2.5 + discount * 5.5 + discount**2 * 10.5
    assert_near(found, [[first, 2.5 * (1 + discount + discount**2)]], terms=12)


def test_the_members_of_an_ensemble_are_networks_of_their_own() -> None:
    """Each equals a plain network with its weights, and has no gradient from another's output."""
    ensemble = BatchedEnsemble(3, (2, 8, 1), torch.Generator().manual_seed(0))
    x = torch.randn(3, 5, 2)
    out = ensemble(x)
    for k in range(3):
        hidden = torch.nn.functional.silu(x[k] @ ensemble.weight[0][k] + ensemble.bias[0][k])
        assert_near(out[k], hidden @ ensemble.weight[1][k] + ensemble.bias[1][k], terms=2 + 8 + 2)
    out[1].sum().backward()
    assert all(
        (p.grad[[0, 2]] == 0).all() and (p.grad[1] != 0).any()
        for p in ensemble.parameters()
        if p.grad is not None
    )


def walk(length: int, ends: tuple[int, ...] = ()) -> tuple[Transitions, torch.Tensor]:
    """One environment: s' = s + a. After an end the next episode starts at 100."""
    rng = np.random.default_rng(0)
    obs, rows, s = [], [], 0.0
    actions = rng.normal(size=length).astype(np.float32)
    for t in range(length):
        obs.append(s)
        rows.append(s + actions[t])
        s = 100.0 if t in ends else rows[-1]
    column = lambda x: torch.tensor(x, dtype=torch.float32)[:, None]  # noqa: E731
    state, after = column(obs), column(rows)
    terminated = torch.zeros(length, dtype=torch.bool)
    return (
        Transitions(state, torch.from_numpy(actions), state[:, 0], after, terminated),
        torch.from_numpy(actions)[:, None],
    )


class Drifting(WorldModel):
    """Right about everything, but for a difference that is `drift` too large."""

    drift = 0.0

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> Prediction:
        after = (obs + actions + self.drift).expand(2, -1, -1)
        return Prediction(after, obs[..., 0].expand(2, -1), obs[..., 0])


@pytest.mark.parametrize("ends", [(), (9, 14)])
def test_the_errors_are_those_of_a_model_with_a_known_drift(ends: tuple[int, ...]) -> None:
    """One step is off by d, H steps by H d; rollouts across the end of an episode would be off by
    100."""
    rows, actions = walk(30, ends)
    model = Drifting(1, 1, 2, (4,), torch.Generator().manual_seed(0))
    model.standardise(rows, actions)
    model.drift = 0.25
    errors = one_step_errors(model, rows, actions) | rollout_errors(model, rows, actions, 1, 4)
    spread, level = actions.std(correction=0).item(), rows.obs.std(correction=0).item()
    expected = {
        "one_step_error": 0.25 / spread,
        "reward_error": 0.0,
        "rollout_error": 4 * 0.25 / level,
    }
    size = float(rows.obs.abs().max()) / min(spread, level)  # differences of states of this size
    assert errors == near(expected, dtype="float32", terms=len(actions), size=size)
    assert rollout_errors(model, rows, actions, 1, 31) == {}
    given = rollout_errors(model, rows, actions, 1, 4, unit=torch.tensor([0.5]))
    assert given == near(
        {"rollout_error": 4 * 0.25 / 0.5}, dtype="float32", terms=len(actions), size=2 * size
    )


@pytest.mark.thorough
def test_new_steps_are_predicted_and_so_are_terminations() -> None:
    """The pole: 600 steps at random, then 200 new ones, of which the model has not seen any when
    its errors are measured."""
    search = {"horizon": 5, "candidates": 20, "elites": 4, "iterations": 1}
    run = rlbook.train(
        "world_model",
        "CartPole-v1",
        steps=800,
        learning_starts=600,
        num_envs=4,
        eval_every=0,
        **search,
    )
    found = run.metrics[-1]
    assert found["one_step_error"] < 0.15 and found["rollout_error"] < 0.3
    agent: Any = run.agent
    rows = agent.replay.rows_at(np.arange(agent.replay.size))
    odds = agent.model(rows.obs, agent.model.encode_action(rows.action)).terminated.mean(0)
    assert rows.terminated.sum() > 20 and ((odds > 0) == rows.terminated).float().mean() > 0.98


def test_an_unbounded_box_of_actions_is_refused() -> None:
    class Unbounded(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with pytest.raises(rlbook.RequestError, match="bounded"):
        rlbook.train("world_model", Unbounded(), steps=10)


def test_it_plans_once_the_steps_of_chance_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    agent: Any = Run(
        Request.build("world_model", "Pendulum-v1", hyperparameters={"learning_starts": 8})
    ).agent
    planned: list[int] = []

    def plan(model: object, obs: object, plans: Any, *_: object) -> Any:
        planned.append(agent.steps)
        return plans

    monkeypatch.setattr(world_model, "plan_in_model", plan)
    for agent.steps in (7, 8):
        agent.act(np.zeros((1, 3), np.float32))
    assert planned == [8]


def test_more_elites_than_candidates_are_refused() -> None:
    with pytest.raises(rlbook.RequestError, match="elites must be at most candidates 5, got 6"):
        rlbook.train("world_model", "Pendulum-v1", candidates=5, elites=6, steps=10)
