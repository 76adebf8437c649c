"""TRPO: the Fisher matrix by hand, the step whose predicted KL is the bound, and a line search that
never crosses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths

from rlbook.algorithms.policy import trpo
from rlbook.fast_forms import use_plain_forms
from rlbook.functional.natural_gradient import (
    conjugate_gradient,
    fisher_vector_product,
    flat_gradient,
    trust_region_step,
)
from rlbook.networks.distributions import Categorical

Make = Callable[..., Any]
FORMS = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])


def weights(agent: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in trpo.policy_parameters(agent.policy)])


def explicit_fisher(agent: Any, batch: Any) -> torch.Tensor:
    """mean over states of Σ_a π(a|s) ∇log π(a|s) ∇log π(a|s)ᵀ: [P, P], from the definition, one
    gradient after the other."""
    matrix, parameters = 0.0, trpo.policy_parameters(agent.policy)
    for obs in batch.obs:
        log_probs = agent.policy.distribution(obs[None]).log_probs[0]
        scores = torch.stack([flat_gradient(log_prob, parameters) for log_prob in log_probs])
        matrix = matrix + (scores.T * log_probs.detach().exp()) @ scores / len(batch)
    return matrix


def kl_gradient(agent: Any, batch: Any) -> torch.Tensor:
    with torch.no_grad():
        old = agent.policy.distributions(batch)
    return flat_gradient(
        trpo.trpo_objective(agent.policy, batch, old)[1],
        trpo.policy_parameters(agent.policy),
        create_graph=True,
    )


def opinionated(theatre: Any) -> Any:
    """The agent in double precision, with a policy far from uniform, and a full rollout."""
    theatre.agent.policy.double()
    with torch.no_grad():
        theatre.agent.policy.actor.weights[-2].normal_(generator=torch.Generator().manual_seed(1))
    theatre.collect(theatre.agent.config.rollout_steps)
    return theatre.agent


def test_the_fisher_matrix_of_three_logits_is_diag_p_minus_ppt() -> None:
    """∇log π(a) = e_a - p, so F = Σ_a p_a (e_a - p)(e_a - p)ᵀ = diag(p) - p pᵀ; with damping c, c
    more on the diagonal."""
    theta = torch.tensor([0.5, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    p = theta.detach().softmax(0)
    kl = Categorical(theta.detach()).kl(Categorical(theta))
    gradient = flat_gradient(kl, [theta], create_graph=True)
    fisher = torch.stack(
        [
            fisher_vector_product(gradient, [theta], row, damping=0.25)
            for row in torch.eye(3, dtype=torch.float64)
        ]
    )
    assert_near(
        fisher,
        torch.diag(p) - torch.outer(p, p) + 0.25 * torch.eye(3, dtype=torch.float64),
        terms=9,
    )
    assert_near(gradient, torch.zeros(3), dtype="float64", terms=9, size=1.0)


@FORMS
@pytest.mark.parametrize("hidden_sizes", [(), (4,)], ids=str)
def test_fisher_vector_products_of_a_network_are_those_of_the_explicit_matrix(
    stage: Make, scripted: Make, hidden_sizes: tuple[int, ...], plain: bool
) -> None:
    with use_plain_forms(plain):
        agent = opinionated(stage("trpo", scripted(), rollout_steps=6, hidden_sizes=hidden_sizes))
        batch, _ = agent.prepare()
        fisher, gradient = explicit_fisher(agent, batch), kl_gradient(agent, batch)
        for number in range(3):
            vector = torch.randn(
                len(fisher), generator=torch.Generator().manual_seed(number), dtype=torch.float64
            )
            product = fisher_vector_product(gradient, trpo.policy_parameters(agent.policy), vector)
            size = float((fisher.abs() @ vector.abs()).max())
            assert_near(product, fisher @ vector, dtype="float32", size=size)  # the mean's weights


def test_conjugate_gradients_solve_a_system_of_p_equations_in_p_steps_and_leave_0_at_0() -> None:
    """A = [[4, 1], [1, 3]], b = (1, 2): x = (1/11, 7/11). After one step x = b bᵀb / bᵀA b = 5/20
    b."""
    a, b = (
        torch.tensor([[4.0, 1.0], [1.0, 3.0]], dtype=torch.float64),
        torch.tensor([1.0, 2.0], dtype=torch.float64),
    )
    assert_near(
        conjugate_gradient(lambda v: a @ v, b, iterations=2), [1 / 11, 7 / 11], terms=16, size=2.0
    )
    assert_near(conjugate_gradient(lambda v: a @ v, b, iterations=1), 0.25 * b, terms=8)
    assert not conjugate_gradient(lambda v: a @ v, 0 * b, iterations=2).any()


def test_the_pages_example_of_two_actions() -> None:
    """p = (½, ½), A = (1, -1): g = (½, -½), F = ¼ [[1, -1], [-1, 1]], s = 2 g, sᵀFs = 1, d = √.02
    (1, -1); the KL is .00997."""
    theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    gradient = flat_gradient((theta.softmax(0) * torch.tensor([1.0, -1.0])).sum(), [theta])
    kl = flat_gradient(
        Categorical(theta.detach()).kl(Categorical(theta)), [theta], create_graph=True
    )
    image = lambda v: fisher_vector_product(kl, [theta], v)  # noqa: E731
    direction = conjugate_gradient(image, gradient, iterations=2)
    step = trust_region_step(direction, image(direction), 0.01)
    assert_near(direction, [1.0, -1.0], terms=16)
    assert step.tolist() == near([0.141, -0.141], decimals=3)
    assert float(Categorical(theta.detach()).kl(Categorical(step))) == near(0.00997, decimals=5)
    assert float(step.softmax(0)[0]) == near(0.570, decimals=3)


def test_the_step_is_as_long_as_the_bound_allows() -> None:
    """s = (1, 2), F s = (3, 1): sᵀFs = 5, and √(2 · 0.1 / 5) = 0.2. A direction that is 0 stays
    0."""
    s, image = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    assert_near(trust_region_step(s, image, 0.1), [0.2, 0.4], terms=4)
    assert not trust_region_step(0 * s, 0 * image, 0.1).any()


@FORMS
def test_the_agents_step_is_the_natural_gradient_and_its_predicted_kl_is_max_kl(
    stage: Make, scripted: Make, plain: bool
) -> None:
    """d is parallel to (F + cI)⁻¹ g: F d is g, up to a factor, as nearly as conjugate gradients
    look; and ½ dᵀ (F + cI) d = δ."""
    with use_plain_forms(plain):
        agent = opinionated(
            stage(
                "trpo",
                scripted(),
                rollout_steps=6,
                hidden_sizes=(),
                max_kl=0.02,
                cg_iterations=40,
                cg_damping=1e-3,
            )
        )
        batch, _ = agent.prepare()
        # at ρ = 1, ∇ mean ρ A = mean A ∇log π
        surrogate = -(batch.advantage * -agent.policy.evaluate(batch)[0]).mean()
        gradient = flat_gradient(surrogate, trpo.policy_parameters(agent.policy))
        step = trpo.natural_step(
            gradient, kl_gradient(agent, batch), trpo.policy_parameters(agent.policy), agent.config
        )
    fisher = explicit_fisher(agent, batch) + 1e-3 * torch.eye(len(step), dtype=torch.float64)
    # the mean's weights
    assert float(0.5 * step @ fisher @ step) == near(0.02, dtype="float32", terms=len(step))
    image = fisher @ step
    residual = gradient - (gradient @ image) / (image @ image) * image
    assert residual.norm() <= 1e-5 < 1e-3 * gradient.norm()  # the square root of their tolerance


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("max_kl", [1e-3, 0.05, 1.0])
def test_no_update_moves_the_policy_further_than_max_kl(
    stage: Make, scripted: Make, continuous: bool, max_kl: float
) -> None:
    """KL(π_old ‖ π) is computed here anew from the two policies. A large bound is where the
    quadratic model errs most."""
    theatre = stage(
        "trpo",
        scripted(continuous),
        rollout_steps=16,
        max_kl=max_kl,
        value_epochs=1,
        hidden_sizes=(8,),
    )
    agent, fractions = theatre.agent, []
    for _ in range(6):
        theatre.collect(16)
        batch, _ = agent.prepare()
        with torch.no_grad():
            old = agent.policy.distributions(batch)
        metrics = trpo.trpo_update(agent.policy, batch, agent.config)
        with torch.no_grad():
            kl = old.kl(agent.policy.distributions(batch)).mean().item()
        # of log-probabilities
        rounded: Any = {
            "dtype": "float32",
            "terms": len(batch) + widths(agent.policy),
            "size": 1.0,
        }
        assert kl == near(metrics["kl"], **rounded) and kl <= max_kl + rounding_bound(**rounded)
        assert metrics["improvement"] > 0 or metrics["step_fraction"] == 0
        fractions.append(metrics["step_fraction"])
        agent.rollout_data.clear()
    assert max(fractions) > 0


def test_a_step_that_helps_nowhere_is_not_taken(stage: Make, scripted: Make) -> None:
    """Downhill no length is good enough: the weights are what they were, to the bit, and every
    length was tried."""
    theatre = stage("trpo", scripted(), line_search_steps=5, rollout_steps=8)
    theatre.collect(8)
    agent, (batch, _) = theatre.agent, theatre.agent.prepare()
    with torch.no_grad():
        old = agent.policy.distributions(batch)
    surrogate, *_ = trpo.trpo_objective(agent.policy, batch, old)
    gradient, before = (
        flat_gradient(surrogate, trpo.policy_parameters(agent.policy)),
        weights(agent),
    )
    metrics = trpo.line_search(
        agent.policy, batch, old, -1e-3 * gradient, surrogate.item(), agent.config
    )
    assert torch.equal(weights(agent), before)
    assert (metrics["step_fraction"], metrics["line_search_steps"]) == (0.0, 5.0)
    nothing = near(0.0, dtype="float32", terms=len(batch) + widths(agent.policy), size=1.0)
    assert metrics["kl"] == nothing and metrics["improvement"] == nothing


def test_the_line_search_shortens_a_step_until_the_kl_is_within_the_bound(
    stage: Make, scripted: Make
) -> None:
    """With α = ½, from a step uphill that is too long: the length before the one that was taken
    breaks the bound."""
    theatre = stage(
        "trpo",
        scripted(),
        line_search_steps=30,
        line_search_decay=0.5,
        rollout_steps=64,
        hidden_sizes=(),
    )
    theatre.collect(64)
    agent, (batch, _) = theatre.agent, theatre.agent.prepare()
    with torch.no_grad():
        old = agent.policy.distributions(batch)
    surrogate, *_ = trpo.trpo_objective(agent.policy, batch, old)
    step, before = (
        100.0 * flat_gradient(surrogate, trpo.policy_parameters(agent.policy)),
        weights(agent),
    )
    metrics = trpo.line_search(agent.policy, batch, old, step, surrogate.item(), agent.config)
    assert 0 < metrics["step_fraction"] == 0.5 ** (metrics["line_search_steps"] - 1) < 1
    assert_near(weights(agent), before + metrics["step_fraction"] * step, terms=2)
    trpo.set_parameters(
        [p.data for p in trpo.policy_parameters(agent.policy)],
        before + 2 * metrics["step_fraction"] * step,
    )
    doubled, kl, _ = trpo.trpo_objective(agent.policy, batch, old)
    assert kl > 0.01 or doubled < surrogate


def test_equal_advantages_move_nothing(stage: Make, arms: Make) -> None:
    """Every arm pays the same, so that g = 0: no step, and no NaN from 0 / 0."""
    theatre = stage("trpo", arms((1.0, 1.0, 1.0)), rollout_steps=4, num_envs=8)
    before = weights(theatre.agent)
    (metrics,) = theatre.learn(1)
    assert torch.equal(weights(theatre.agent), before)
    assert metrics["step_fraction"] == 0 and np.isfinite(list(metrics.values())).all()


def test_fitting_v_leaves_the_policy_alone_and_the_policys_step_leaves_v_alone(
    stage: Make, scripted: Make
) -> None:
    theatre = stage("trpo", scripted(), rollout_steps=8)
    theatre.collect(8)
    agent, (batch, _) = theatre.agent, theatre.agent.prepare()
    of_value = lambda: torch.cat([p.detach().reshape(-1) for p in agent.policy.value_parameters()])  # noqa: E731
    policy, value = weights(agent), of_value()
    trpo.trpo_update(agent.policy, batch, agent.config)
    assert not torch.equal(weights(agent), policy) and torch.equal(of_value(), value)
    policy = weights(agent)
    metrics = trpo.fit_value(agent.policy, agent.optimizer, batch, agent.config, agent.shuffling)
    assert torch.equal(weights(agent), policy) and not torch.equal(of_value(), value)
    assert metrics["value_loss"] < 0.5 * (batch.target**2).mean()


def test_what_is_frozen_is_no_part_of_the_step(stage: Make, scripted: Make) -> None:
    theatre = stage("trpo", scripted(), rollout_steps=8)
    theatre.collect(8)
    agent, (batch, _) = theatre.agent, theatre.agent.prepare()
    frozen = agent.policy.actor.layers[0].requires_grad_(False)
    before, own = frozen.weight.clone(), weights(agent)
    trpo.trpo_update(agent.policy, batch, agent.config)
    assert torch.equal(frozen.weight, before) and not torch.equal(weights(agent), own)


def test_a_gaussian_policys_fisher_matrix_of_its_deviation_is_2(
    stage: Make, scripted: Make
) -> None:
    """KL(N(μ, σ) ‖ N(μ, σe^x)) = x + (e^(-2x) - 1) / 2 = x² + …: the second derivative by log σ is
    2 for each component."""
    theatre = stage("trpo", scripted(True), rollout_steps=4)
    agent = opinionated(theatre)
    batch, _ = agent.prepare()
    parameters = trpo.policy_parameters(agent.policy)
    vector = torch.cat(
        [
            torch.full((p.numel(),), float(p is agent.policy.log_std), dtype=torch.float64)
            for p in parameters
        ]
    )
    product = fisher_vector_product(kl_gradient(agent, batch), parameters, vector)
    assert_near(product, 2.0 * vector, dtype="float32")  # the mean's weights
