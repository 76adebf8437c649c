"""PPO's and A2C's gradient steps written out by hand are the steps of the book, or leave the work
to it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from closeness import assert_near, rounding_bound, widths
from steps import train_on
from torch import Tensor, nn
from torch.testing import assert_close

from rlbook.algorithms.policy.a2c import A2C, A2CConfig
from rlbook.algorithms.policy.ppo import PPO, PPOConfig, ppo_loss
from rlbook.data.rollout import Batch
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.optimizer import Group, adam, rmsprop

pytestmark = pytest.mark.fast_form

ROWS = 33
RATE, EPS = 1e-2, 1e-3
# Sums of numbers up to 100, over the rows and over layers of 4, 7 and 5, there and back. A step of
# η g / (|g| + ε) makes η / ε of what is rounded in g.
ROUNDING = rounding_bound("float64", terms=ROWS + 2 * (4 + 7 + 5), size=100.0) * RATE / EPS


def agent_with(kind: Any = PPO, **settings: Any) -> Any:
    """CartPole's agent in double precision, whose policy has opinions."""
    made = A2CConfig if kind is A2C else PPOConfig
    config = made(**({"hidden_sizes": (7, 5), "anneal_learning_rate": False} | settings))
    agent: Any = kind(
        adapted_vector(kind, EnvRecipe.from_env("CartPole-v1"), 1, config), config, seed=1
    )
    agent.policy.double()
    with torch.no_grad():
        agent.policy.actor.weights[-2].mul_(100)
    if isinstance(agent.policy.normalizer, Normalizer):
        agent.policy.normalizer.update(1.0 + 2.0 * rows().obs)
    return with_optimizer(agent)


def with_optimizer(agent: Any) -> Any:
    """The agent with an optimiser of the network as it is now."""
    make = rmsprop if getattr(agent.config, "optimizer", "adam") == "rmsprop" else adam
    agent.optimizer = make([Group([agent.policy])], RATE, eps=EPS)
    return agent


def rows() -> Batch:
    """Ratios on both sides of the clip, advantages of both signs, one of them 0."""
    generator = torch.Generator().manual_seed(0)
    obs, old, advantage, target = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((ROWS, 4), (ROWS,), (ROWS,), (ROWS,))
    )
    advantage[0] = 0.0
    action = torch.randint(2, (ROWS,), generator=generator)
    mask = torch.ones(ROWS, dtype=torch.bool)
    return Batch(
        obs, action, 0.5 * old - 0.7, mask, value=target + 0.1, advantage=advantage, target=target
    )


def steps(
    agent: Any, batch: Batch, count: int = 3
) -> tuple[list[dict[str, Tensor]], Tensor, Tensor, bool]:
    """The metrics of some gradient steps, the last gradient, the weights, and whether a graph was
    recorded."""
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        if isinstance(agent, A2C):
            metrics = [train_on(agent, batch) for _ in range(count)]
        else:
            metrics = [
                train_on(agent, batch, diagnose=diagnose)
                for diagnose in [False, *[True] * (count - 1)]
            ]
    parameters = torch.cat([p.detach().reshape(-1) for p in agent.policy.parameters()])
    gradients = [
        torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters()
    ]
    return metrics, torch.cat([g.reshape(-1) for g in gradients]), parameters, bool(saved)


def both(make: Callable[[], Any], batch: Batch) -> bool:
    """Whether the fast step recorded a graph; it must do what the plain one does."""
    agent, other = make(), make()
    before = torch.cat([p.detach().reshape(-1) for p in agent.policy.parameters()])
    metrics, gradient, weights, recorded = steps(agent, batch)
    with use_plain_forms():
        expected, plain_gradient, plain_weights, plainly = steps(other, batch)
    assert plainly and (weights - before).abs().max() > 0.01
    assert_close(gradient, plain_gradient, atol=ROUNDING, rtol=ROUNDING)
    assert_close(weights, plain_weights, atol=ROUNDING, rtol=ROUNDING)
    for ours, theirs in zip(metrics, expected, strict=True):
        assert_close(ours, theirs, atol=ROUNDING, rtol=ROUNDING)
    return recorded


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "relu"},
        {"entropy_coef": 0.1},
        {"temperature": 0.6, "entropy_coef": 0.1},
        {"clip": 0.3, "clip_high": 0.05},
        {"value_coef": 0.3, "max_grad_norm": 1e9},
        {"normalize_observation": True},
        {"hidden_sizes": (6,)},
    ],
    ids=str,
)
def test_the_step_without_a_graph_is_the_books(settings: dict[str, Any]) -> None:
    assert not both(lambda: agent_with(**settings), rows())


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "moves"),
    [
        (0.1, 1.0, True),
        (0.1, -1.0, True),
        (0.1, 0.0, False),
        (3.0, 1.0, False),
        (3.0, -1.0, True),
        (-3.0, 1.0, True),
        (-3.0, -1.0, False),
        (19.0, -1e-6, True),
        (21.0, -1e-6, False),
        (40.0, -1e-6, False),
        (21.0, 1e-6, False),
        (-40.0, 1.0, False),
    ],
)
def test_at_the_kinks_of_the_clip_the_gradient_is_the_books(
    log_ratio: float, advantage: float, moves: bool
) -> None:
    """Outside of the clip on the side that pays there's none; beyond the largest log ρ, 20, there
    is none although A < 0 isn't clipped."""
    batch = rows()[torch.tensor([1])]
    found = []
    for plain in (False, True):
        agent = agent_with(value_coef=0.0, max_grad_norm=1e9)
        with use_plain_forms(plain), torch.no_grad():
            batch.log_prob = agent.policy.evaluate(batch)[0] - log_ratio
        batch.advantage = torch.full((1,), advantage, dtype=torch.float64)
        with use_plain_forms(plain):
            found.append(steps(agent, batch, 1)[1])
    assert_close(*found, atol=ROUNDING, rtol=ROUNDING)
    assert bool(found[0].abs().max() > ROUNDING) == moves


def weighted_rows(*, unmasked: int = ROWS) -> Batch:
    """`rows` with unequal shares in the loss, as A2C's are given."""
    batch = rows()
    batch.mask[unmasked:] = False
    batch.weight = (
        torch.rand(ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        / ROWS
        * batch.mask
    )
    return batch


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "relu"},
        {"entropy_coef": 0.1},
        {"temperature": 0.6, "entropy_coef": 0.1},
        {"value_coef": 0.3, "max_grad_norm": 1e9},
        {"optimizer": "rmsprop"},
        {"normalize_observation": True},
    ],
    ids=str,
)
def test_a2cs_step_without_a_graph_is_the_books(settings: dict[str, Any]) -> None:
    assert not both(lambda: agent_with(A2C, **settings), weighted_rows())


def masked(batch: Batch) -> Batch:
    """The same rows, of which a third forbids the first action and a third the second; none forbids
    the one that was taken."""
    batch.action_mask = torch.ones(ROWS, 2, dtype=torch.bool)
    batch.action_mask[torch.arange(ROWS), torch.arange(ROWS) % 3 - 1] = torch.arange(ROWS) % 3 == 2
    batch.action_mask[torch.arange(ROWS), batch.action] = True
    assert 8 <= (~batch.action_mask.all(1)).sum() <= 20
    return batch


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6, "entropy_coef": 0.1}], ids=str)
@pytest.mark.parametrize("kind", [PPO, A2C])
def test_with_action_masks_the_step_without_a_graph_is_the_books(
    kind: Any, settings: dict[str, Any]
) -> None:
    batch = masked(weighted_rows() if kind is A2C else rows())
    assert not both(lambda: agent_with(kind, **settings), batch)
    unmasked = weighted_rows() if kind is A2C else rows()
    ours, theirs = (steps(agent_with(kind, **settings), each, 1)[1] for each in (batch, unmasked))
    assert (ours - theirs).abs().max() > 1e3 * ROUNDING


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_mask_of_another_shape_is_refused_by_either_form(kind: Any) -> None:
    batch = weighted_rows() if kind is A2C else rows()
    batch.action_mask = torch.ones(ROWS, 3, dtype=torch.bool)
    for plain in (False, True):
        with use_plain_forms(plain), pytest.raises(ValueError, match="action_mask"):
            steps(agent_with(kind), batch, 1)


def test_a2cs_other_networks_and_rows_are_left_to_the_book() -> None:
    assert both(lambda: agent_with(A2C, separate_networks=False), weighted_rows())
    assert both(lambda: agent_with(A2C, micro_batch_size=10), weighted_rows())
    assert both(lambda: agent_with(A2C), weighted_rows(unmasked=20))


def test_with_equal_weights_the_smaller_precision_rounds_and_no_more() -> None:
    """Float32, the default: gradients are sums over 33 rows, through three layers and back."""
    agent = agent_with(max_grad_norm=1e9)
    agent.policy.float()
    other = copy.deepcopy(with_optimizer(agent))
    with_optimizer(other)
    batch = rows()
    single = Batch(
        **{
            name: x.float() if isinstance(x, Tensor) and x.is_floating_point() else x
            for name, x in vars(batch).items()
        }
    )
    _, gradient, _, recorded = steps(agent, single, 1)
    with use_plain_forms():
        _, expected, _, _ = steps(other, single, 1)
    assert not recorded
    assert_near(gradient, expected, terms=ROWS + 2 * widths(agent.policy))


def adapted(agent: Any) -> None:
    class Beside(nn.Module):
        def __init__(self, linear: nn.Module) -> None:
            super().__init__()
            self.linear, self.more = linear, nn.Linear(7, 5, dtype=torch.float64)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + self.more(x)

    torch.manual_seed(0)
    agent.policy.critic.layers[1] = Beside(agent.policy.critic.layers[1])
    with_optimizer(agent)


def own_loss(agent: Any) -> None:
    agent.loss = lambda policy, batch, *, config, diagnose=True: ppo_loss(
        policy, batch, config=config
    )  # type: ignore[method-assign]


CHANGES: dict[str, Callable[[Any], object]] = {
    "an adapter": adapted,
    "a hook on a layer": lambda agent: agent.policy.critic.layers[0].register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on a network": lambda agent: agent.policy.actor.register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on a gradient": lambda agent: agent.policy.actor.weights[0].register_hook(
        lambda gradient: 2 * gradient
    ),
    "a frozen layer": lambda agent: (
        with_optimizer(agent) if agent.policy.actor.layers[0].requires_grad_(False) else None
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [PPO, A2C])
def test_what_is_put_into_the_networks_counts(kind: Any, change: str) -> None:
    def changed() -> Any:
        agent = agent_with(kind)
        CHANGES[change](agent)
        return agent

    assert both(changed, rows() if kind is PPO else weighted_rows())


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_an_optimiser_of_ones_own_takes_the_step(kind: Any) -> None:
    """It inherits everything but how it steps."""
    agent, batch = agent_with(kind), rows() if kind is PPO else weighted_rows()
    taken: list[float] = []

    class Counting(FlatAdam):
        def step(self, losses: Any, max_grad_norm: float | None = None) -> Tensor:
            taken.append(1.0)
            return super().step(losses, max_grad_norm)

    agent.optimizer = Counting([Group([agent.policy])], 1e-2)
    assert steps(agent, batch, 1)[3] and taken == [1.0]


def test_a_loss_of_ones_own_counts() -> None:
    agent = agent_with()
    own_loss(agent)
    assert set(train_on(agent, rows(), diagnose=False)) > {"grad_norm"}


@pytest.mark.parametrize(
    "settings",
    [
        {"dual_clip": 1.5},
        {"clip_value": 0.05},
        {"separate_networks": False},
        {"micro_batch_size": 10},
    ],
    ids=str,
)
def test_other_losses_and_networks_are_left_to_the_book(settings: dict[str, Any]) -> None:
    batch = rows()
    if "micro_batch_size" in settings:
        batch.weight = torch.full((ROWS,), 1.0 / ROWS, dtype=torch.float64)
    assert both(lambda: agent_with(**settings), batch)


def test_a_penalty_in_the_loss_is_left_to_the_book_and_one_in_the_reward_is_not() -> None:
    batch = rows()
    batch.reference_log_prob = batch.log_prob.flip(0)
    assert both(lambda: agent_with(kl_coef=0.5, kl_in="loss", kl_estimator="k2"), batch)
    assert not both(lambda: agent_with(kl_coef=0.5), batch)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_row_that_is_not_finite_is_left_to_the_book(kind: Any) -> None:
    agent, batch = agent_with(kind), weighted_rows()
    if kind is PPO:
        batch.weight = None
    assert batch.target is not None
    assert not steps(agent, batch, 1)[3]
    batch.target[3] = math.nan
    assert steps(agent, batch, 1)[3]
    assert not torch.isfinite(agent.optimizer.grad).all()


def test_rows_of_another_shape_are_refused() -> None:
    agent, batch = agent_with(), rows()
    assert batch.advantage is not None
    batch.advantage = batch.advantage[:, None]
    with pytest.raises(ValueError, match="advantage must have the shape of log_prob"):
        train_on(agent, batch)
