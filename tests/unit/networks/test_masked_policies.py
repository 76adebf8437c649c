"""Action masks where a policy is learned: probabilities, entropies, divergences and their
gradients, by hand; rollouts that carry masks."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near
from gymnasium import spaces
from steps import actor_loss_of, critic_loss_of

from rlbook.agent import Step
from rlbook.algorithms.imitation.teacher import SoftActionValues
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import SAC, TARGET_SHARE, SACConfig
from rlbook.data.refill import Refill
from rlbook.data.replay import Transitions
from rlbook.data.rollout import Batch, Rollout, concatenate
from rlbook.functional.maximum_entropy import expected_soft_value
from rlbook.functional.natural_gradient import fisher_vector_product, flat_gradient
from rlbook.functional.post_training.distillation_losses import DIVERGENCES, divergence
from rlbook.networks.mlp import MLPPolicy

INF = math.inf
LOGITS = torch.tensor(
    [[math.log(3.0), 7.0, 0.0], [2.0, 2.0, 2.0], [0.5, 9.0, 9.0]], dtype=torch.float64
)
MASK = torch.tensor([[True, False, True], [True, True, True], [True, False, False]])
"""Over the allowed actions the probabilities are ¾, ¼; ⅓, ⅓, ⅓; and 1."""
ENTROPY = [0.75 * math.log(4 / 3) + 0.25 * math.log(4.0), math.log(3.0), 0.0]


def policy_of(logits: torch.Tensor = LOGITS) -> Any:
    """A policy on one-hot states whose logits are a table."""
    policy = MLPPolicy(
        len(logits),
        spaces.Discrete(logits.shape[1]),
        torch.Generator().manual_seed(0),
        critic=False,
        hidden_sizes=(),
    )
    policy.double()
    with torch.no_grad():
        policy.actor.weights[0].copy_(logits.T)
        policy.actor.weights[1].zero_()
    return policy


def batch_of(mask: torch.Tensor | None = MASK, action: tuple[int, ...] = (0, 2, 0)) -> Batch:
    return Batch(
        torch.eye(3, dtype=torch.float64),
        torch.tensor(action),
        torch.zeros(3),
        torch.ones(3, dtype=torch.bool),
        action_mask=mask,
    )


def table_gradient(policy: Any) -> torch.Tensor:
    """∂/∂ logits: [S, A]."""
    return policy.actor.weights[0].grad.T


def test_log_probabilities_and_entropies_are_over_the_allowed_actions() -> None:
    log_prob, entropy, _ = policy_of().evaluate(batch_of())
    assert log_prob.tolist() == near([math.log(0.75), -math.log(3.0), 0.0], terms=3, size=10.0)
    assert entropy.tolist() == near(ENTROPY, terms=3, size=10.0)


def test_forbidden_logits_have_no_gradient_and_the_others_the_softmaxs() -> None:
    """∂log π(a)/∂z_j = 1[j = a] - π_j;   ∂H/∂z_j = -π_j (log π_j + H), 0 for what is forbidden."""
    policy = policy_of()
    log_prob, entropy, _ = policy.evaluate(batch_of())
    (log_prob.sum() + 0.5 * entropy.sum()).backward()
    found, pi = (
        table_gradient(policy),
        torch.tensor([[0.75, 0.0, 0.25], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]]),
    )
    taken = torch.eye(3)[[0, 2, 0]]
    spread = -torch.xlogy(pi, pi) - pi * torch.tensor(ENTROPY)[:, None]
    assert_near(found, (taken - pi + 0.5 * spread).double(), dtype="float32", terms=6)
    assert (found[~MASK] == 0.0).all() and found.isfinite().all()


def test_the_divergence_is_over_the_allowed_actions_with_its_gradients() -> None:
    """KL of (¾, ¼) to (½, ½); its second derivatives, as TRPO's products need them, are finite
    too."""
    policy, other = policy_of(), policy_of(torch.zeros(3, 3))
    batch = batch_of()
    with torch.no_grad():
        old = policy.distributions(batch)
    kl = old.kl(other.distributions(batch))
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert kl.tolist() == near([expected, 0.0, 0.0], terms=3, size=10.0)
    parameters = list(other.parameters())
    gradient = flat_gradient(kl.sum(), parameters, create_graph=True)
    product = fisher_vector_product(gradient, parameters, torch.ones_like(gradient), damping=0.0)
    assert gradient.isfinite().all() and product.isfinite().all()
    assert (gradient[:9].view(3, 3).T[~MASK] == 0.0).all()


def test_what_is_drawn_and_what_is_likeliest_is_allowed() -> None:
    policy, obs = policy_of().float(), np.eye(3, dtype=np.float32)
    greedy, log_prob = policy.act(obs, None, None, MASK.numpy())
    assert greedy.tolist() == [0, 0, 0]
    assert log_prob.tolist() == near(
        [math.log(0.75), -math.log(3.0), 0.0], dtype="float32", terms=3, size=10.0
    )
    many = np.repeat(obs[:1], 4_000, axis=0)
    drawn, log_prob = policy.act(
        many, np.random.default_rng(0), None, np.repeat(MASK[:1].numpy(), 4_000, axis=0)
    )
    assert set(drawn.tolist()) == {0, 2}
    assert abs((drawn == 0).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4_000)
    assert log_prob[drawn == 2].tolist() == near(
        [math.log(0.25)] * int((drawn == 2).sum()), dtype="float32", terms=3, size=10.0
    )


@pytest.mark.parametrize("noise", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_noise_draw_allowed_actions_too(noise: float) -> None:
    class Always:
        def random(self, size: int) -> np.ndarray:
            return np.full(size, noise)

    mask = np.array([[False, True, False, True, False]])
    policy = MLPPolicy(
        1, spaces.Discrete(5), torch.Generator().manual_seed(0), critic=False, hidden_sizes=()
    )
    rng: Any = Always()
    action, log_prob = policy.act(np.ones((1, 1), np.float32), rng, None, mask)
    assert action.tolist() == [1 if noise == 0.0 else 3] and np.isfinite(log_prob).all()


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_a_students_divergence_from_its_teacher_is_over_the_allowed_actions(kind: str) -> None:
    """As without the forbidden columns, and their gradient is 0 and no NaN."""
    student = LOGITS.clone().requires_grad_()
    teacher = torch.tensor(
        [[0.0, 50.0, 1.0], [0.0, 1.0, 2.0], [0.0, 3.0, 3.0]], dtype=torch.float64
    )
    found = divergence(student.masked_fill(~MASK, -INF), teacher.masked_fill(~MASK, -INF), kind)
    alone = divergence(LOGITS[:1, [0, 2]], teacher[:1, [0, 2]], kind)
    assert found[0].item() == near(alone.item(), terms=6, size=10.0)
    assert found[2].item() == near(0.0, terms=6, size=10.0)
    found.sum().backward()
    assert (
        student.grad is not None
        and student.grad.isfinite().all()
        and (student.grad[~MASK] == 0.0).all()
    )


def test_a_teacher_that_learned_action_values_keeps_to_the_mask() -> None:
    network = policy_of().float().actor
    teacher, obs = SoftActionValues(network, 1.0), np.eye(3, dtype=np.float32)
    batch = dataclasses.replace(batch_of(), obs=torch.eye(3))
    assert teacher.distributions(batch).log_probs[0].exp().tolist() == near(
        [0.75, 0.0, 0.25], dtype="float32", terms=3, size=10.0
    )
    drawn, _ = teacher.act(obs, np.random.default_rng(0), None, MASK.numpy())
    assert MASK[range(3), drawn].all()


# ---- SAC


class Spaces:
    single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    single_action_space, num_envs = spaces.Discrete(3), 1


def sac(**settings: Any) -> Any:
    """SAC on one-hot states whose policy has the table of logits, and whose two critics say a - 1
    and 100 of forbidden actions."""
    env: Any = Spaces()
    agent: Any = SAC(env, SACConfig(hidden_sizes=(), buffer_size=10, **settings))
    values = torch.arange(3.0).expand(3, 3).masked_fill(~MASK, 100.0)
    tables = [(agent.actor, LOGITS.float())]
    tables += [
        (network, values + k)
        for critics in (agent.critics, agent.target)
        for k, network in enumerate(critics.networks)
    ]
    for network, table in tables:
        with torch.no_grad():
            network.weights[0].copy_(table.T)
            network.weights[1].zero_()
    return agent


def sac_batch(masks: bool = True) -> Minibatch:
    """From each state to itself."""
    states, flags = torch.eye(3), torch.tensor([False, False, True])
    rows = Transitions(
        states, torch.tensor([0, 2, 0]), torch.tensor([1.0, 2.0, 3.0]), states, flags
    )
    if masks:
        rows = rows._replace(action_mask=MASK, next_action_mask=MASK)
    return Minibatch(rows, torch.zeros(3, 0), torch.zeros(3, 0))


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_sacs_targets_are_over_the_allowed_actions(alpha: float) -> None:
    """V(s) = Σ π Q + α H with Q = (0, 1, 2): of the first state ¼ · 2, of the second 1, of the
    third, which ended, nothing."""
    agent = sac(temperature=alpha, gamma=0.5)
    target = [1.0 + 0.5 * (0.5 + alpha * ENTROPY[0]), 2.0 + 0.5 * (1.0 + alpha * ENTROPY[1]), 3.0]
    q = [0.0, 2.0, 0.0]
    loss = sum(0.5 * (q[i] + k - target[i]) ** 2 / 3 for i in range(3) for k in (0, 1))
    assert float(critic_loss_of(agent, sac_batch()).loss.detach()) == near(
        loss, dtype="float32", terms=12, size=100.0
    )


def test_sacs_policy_has_no_gradient_in_forbidden_logits() -> None:
    """∂V/∂z_a = π(a) (Q(a) - α log π(a) - V) over the allowed actions."""
    agent, alpha = sac(temperature=3.0), 3.0
    loss = actor_loss_of(agent, sac_batch())
    loss.loss.backward()
    found = agent.actor.weights[0].grad.T
    pi = torch.tensor([[0.75, 0.0, 0.25], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])
    q, log_pi = torch.arange(3.0), torch.xlogy(pi.sign(), pi)
    value = (pi * (q - alpha * log_pi)).sum(1, keepdim=True)
    assert_near(found, -(pi * (q - alpha * log_pi - value)) / 3, terms=12, size=100.0)
    assert (found[~MASK] == 0.0).all()
    assert float(loss.metrics["entropy"]) == near(
        sum(ENTROPY) / 3, dtype="float32", terms=6, size=10.0
    )


def test_sacs_target_entropy_counts_the_allowed_actions() -> None:
    agent = sac()
    actor_loss_of(agent, sac_batch()).loss.backward()
    gap = (sum(ENTROPY) - TARGET_SHARE * (math.log(2.0) + math.log(3.0) + 0.0)) / 3
    assert float(agent.temperature.log_alpha.grad) == near(gap, dtype="float32", terms=6, size=10.0)
    fixed = sac(target_entropy=0.25)
    actor_loss_of(fixed, sac_batch()).loss.backward()
    assert float(fixed.temperature.log_alpha.grad) == near(
        sum(ENTROPY) / 3 - 0.25, dtype="float32", terms=6, size=10.0
    )
    unmasked = sac()
    assert unmasked.temperature.target_entropy(None) == near(TARGET_SHARE * math.log(3.0))


def test_a_soft_value_is_finite_at_every_temperature() -> None:
    """α times the least finite number is infinite for α > 1, and 0 · ∞ is no number."""
    log_probs = torch.tensor([[math.log(0.5), -INF, math.log(0.5)]], requires_grad=True)
    value = expected_soft_value(torch.tensor([[1.0, 100.0, 2.0]]), log_probs, 5.0)
    value.backward()
    assert value.item() == near(1.5 + 5.0 * math.log(2.0), dtype="float32", terms=6)
    assert log_probs.grad is not None and log_probs.grad.isfinite().all()


# ---- rollouts and batches


def vector_step(
    number: int, masks: list[list[bool]] | None, valid: tuple[bool, bool] = (True, True)
) -> Step:
    """A step of two environments."""
    obs, flags = np.full((2, 1), number, np.float32), np.zeros(2, bool)
    mask = None if masks is None else np.array(masks)
    return Step(
        obs,
        np.zeros(2, int),
        np.zeros(2, np.float32),
        obs,
        flags,
        flags,
        np.array(valid),
        None,
        mask,
        mask,
    )


def test_a_rollout_carries_masks_from_the_first_on_and_writes_none_without() -> None:
    rollout, log_prob = Rollout(), np.zeros(2, np.float32)
    rollout.add(vector_step(0, None), log_prob)
    policy = MLPPolicy(1, spaces.Discrete(2), torch.Generator().manual_seed(0), critic=False)
    assert policy.batch(rollout).action_mask is None
    assert {"action_mask", "next_action_mask"}.isdisjoint(rollout.state_dict()["steps"][0])
    rollout.add(vector_step(1, [[True, False], [False, True]]), log_prob)
    found = rollout.tensor("action_mask")
    assert found.tolist() == [[[True, True], [True, True]], [[True, False], [False, True]]]
    other = Rollout()
    other.load_state_dict(rollout.state_dict())
    assert torch.equal(other.tensor("action_mask"), found)


def test_a_policys_rows_have_their_masks_as_steps_and_as_episodes() -> None:
    policy = MLPPolicy(1, spaces.Discrete(2), torch.Generator().manual_seed(0), critic=False)
    rollout, log_prob = Rollout(), np.zeros(2, np.float32)
    rollout.add(vector_step(0, [[True, False], [False, True]]), log_prob)
    rollout.add(vector_step(1, [[True, True], [False, True]], valid=(True, False)), log_prob)
    steps, episodes = policy.batch(rollout, "step"), policy.batch(rollout, "episode")
    assert steps.action_mask.tolist() == [[True, False], [False, True], [True, True]]
    assert episodes.action_mask.tolist() == [
        [[True, False], [True, True]],
        [[False, True], [False, True]],
    ]
    assert steps[torch.tensor([2])].action_mask.tolist() == [[True, True]]


def episodes_of(length: int, mask: torch.Tensor | None) -> Batch:
    ones = torch.ones(1, length, dtype=torch.bool)
    return Batch(
        torch.zeros(1, length, 3),
        torch.zeros(1, length, dtype=torch.int64),
        torch.zeros(1, length),
        ones,
        action_mask=mask,
    )


def test_in_padding_everything_is_allowed() -> None:
    """So that no row of logits is forbidden altogether, which would be no distribution."""
    only = torch.tensor([[[True, False, False]]])
    batch = concatenate([episodes_of(1, only), episodes_of(3, None)])
    assert batch.action_mask is not None
    assert batch.action_mask.tolist() == [
        [[True, False, False], [True] * 3, [True] * 3],
        [[True] * 3] * 3,
    ]
    log_prob, entropy, _ = policy_of().float().evaluate(batch)
    assert log_prob.isfinite().all() and entropy.isfinite().all()
    assert concatenate([episodes_of(1, None), episodes_of(3, None)]).action_mask is None


def test_what_a_refill_keeps_is_written_with_masks_only_where_there_are_some() -> None:
    for mask in (None, torch.tensor([[[True, False, False]]])):
        refill = Refill(1, 3)
        refill.kept = [episodes_of(1, mask)]
        (kept,) = refill.state_dict()["kept"]
        assert ("action_mask" in kept) == (mask is not None)
        again = Refill(1, 3)
        again.load_state_dict(refill.state_dict())
        assert (again.kept[0].action_mask is None) == (mask is None)
