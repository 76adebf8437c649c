"""DQN's gradient step written out by hand is the step of the book, or leaves the work to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import largest, rounding_bound
from steps import train_on
from torch import Tensor
from torch.testing import assert_close

from rlbook.agent import Step
from rlbook.algorithms.value.dqn import DQN, DQNConfig, dqn_loss
from rlbook.data.rainbow_replay import RainbowMinibatch
from rlbook.data.replay import Transitions
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.optimizer import Group, LossOutput, adam

pytestmark = pytest.mark.fast_form

ROWS = 33
RATE, EPS = 1e-2, 1e-3
# Sums of numbers up to 100, over the rows and over layers of 4, 7 and 5, there and back. A step of
# η g / (|g| + ε) makes η / ε of what is rounded in g.
ROUNDING = rounding_bound("float64", terms=ROWS + 2 * (4 + 7 + 5), size=100.0) * RATE / EPS


def agent_with(kind: type[DQN] = DQN, **settings: Any) -> Any:
    chosen: dict[str, Any] = {"hidden_sizes": (7, 5)} | settings
    config = DQNConfig(**chosen)
    agent: Any = kind(
        adapted_vector(kind, EnvRecipe.from_env("CartPole-v1"), 1, config), config, seed=1
    )
    agent.q.double()
    return with_optimizer(agent)


def with_optimizer(agent: Any) -> Any:
    """The agent with an optimiser of the network as it is now."""
    agent.optimizer = adam([Group([agent.q])], RATE, eps=EPS)
    return agent


def minibatch() -> RainbowMinibatch:
    """Errors on both sides of the Huber loss's δ = 1."""
    generator = torch.Generator().manual_seed(0)
    obs, next_obs, reward, next_q = (
        2.0 * torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((ROWS, 4), (ROWS, 4), (ROWS,), (ROWS, 2))
    )
    action = torch.randint(2, (ROWS,), generator=generator)
    terminated = torch.rand(ROWS, generator=generator) < 0.2
    return RainbowMinibatch(Transitions(obs, action, reward, next_obs, terminated), next_q)


def steps(
    agent: Any, batch: RainbowMinibatch, count: int = 3
) -> tuple[list[dict[str, Tensor]], Tensor, bool]:
    """The metrics of some gradient steps, the weights, and whether a graph was recorded."""
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        metrics = [train_on(agent, batch) for _ in range(count)]
    return metrics, torch.cat([p.detach().reshape(-1) for p in agent.q.parameters()]), bool(saved)


def both(make: Callable[[], Any]) -> bool:
    """Whether the fast step recorded a graph; it must do what the plain one does."""
    metrics, weights, recorded = steps(make(), minibatch())
    with use_plain_forms():
        expected, plain_weights, plainly = steps(make(), minibatch())
    assert plainly
    assert_close(weights, plain_weights, atol=ROUNDING, rtol=ROUNDING)
    for ours, theirs in zip(metrics, expected, strict=True):
        assert_close(
            {name: x.double() for name, x in ours.items()}, theirs, atol=ROUNDING, rtol=ROUNDING
        )
    return recorded


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"double": False},
        {"huber": False},
        {"hidden_sizes": ()},
        {"activation": "tanh"},
        {"max_grad_norm": 0.01},
    ],
    ids=str,
)
def test_the_step_without_a_graph_is_the_books(settings: dict[str, Any]) -> None:
    assert not both(lambda: agent_with(**settings))


PARTS: dict[str, dict[str, Any]] = {
    "dueling": {"dueling": True},
    "prioritized": {"prioritized": True},
    "n_step": {"n_step": 3},
    "noisy": {"noisy": True},
    "distributional": {"distributional": True, "v_min": -3.0, "v_max": 3.0},
}
PARTS["all"] = {name: value for part in PARTS.values() for name, value in part.items()}
PARTS["noisy tanh"] = {"noisy": True, "dueling": True, "activation": "tanh"}


def updated(agent: Any, plain: bool) -> tuple[Any, list[Tensor], dict[str, Any], bool]:
    """What two updates from a filled buffer log and leave, and whether they recorded a graph."""
    agent.target.double()
    rng, recorded = np.random.default_rng(0), []
    for _ in range(60):
        obs, next_obs = rng.normal(size=(2, 1, 4))
        ends, cut, valid = rng.random(1) < 0.2, obs[:, 0] > 1, np.ones(1, bool)
        agent.replay.add(
            Step(
                obs, rng.integers(2, size=1), rng.normal(size=1), next_obs, ends, cut & ~ends, valid
            )
        )

    def keep(tensor: Tensor) -> Tensor:
        recorded.append(tensor)
        return tensor

    with (
        use_plain_forms(plain),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        logged = [agent.update() for _ in range(2)]
    return (
        logged,
        [p.detach() for p in agent.q.parameters()],
        agent.replay.state_dict(),
        bool(recorded),
    )


@pytest.mark.parametrize("part", PARTS)
def test_each_of_rainbows_parts_is_the_books_from_the_buffer_to_the_weights(part: str) -> None:
    """Two updates of three minibatches each; n-step targets alone are computed without a graph, the
    other parts with one."""
    found = [
        updated(agent_with(**PARTS[part], batch_size=ROWS, gradient_steps=3), plain)
        for plain in (False, True)
    ]
    (fast, weights, kept, recorded), (plainly, plain_weights, plain_kept, _) = found
    error = ROUNDING
    if "prioritized" in PARTS[part]:  # float32's importance weights
        error = rounding_bound("float32", size=largest(weights)) * RATE / EPS
    assert_close(fast, plainly, atol=error, rtol=error)
    assert_close(weights, plain_weights, atol=error, rtol=error)
    assert_close(
        kept.get("priorities", {}), plain_kept.get("priorities", {}), atol=error, rtol=error
    )
    assert recorded == (part != "n_step")


CHANGES: dict[str, Callable[[Any], object]] = {
    "a hook on a layer": lambda agent: agent.q.layers[0].register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on the network": lambda agent: agent.q.register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on a gradient": lambda agent: agent.q.weights[0].register_hook(
        lambda gradient: 2 * gradient
    ),
    "a frozen layer": lambda agent: (
        with_optimizer(agent) if agent.q.layers[0].requires_grad_(False) else None
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_put_into_the_network_counts(change: str) -> None:
    def changed() -> Any:
        agent = agent_with()
        CHANGES[change](agent)
        return agent

    assert both(changed)


def test_a_loss_of_ones_own_counts() -> None:
    calls: list[int] = []

    def counting(q: Any, batch: RainbowMinibatch, **options: Any) -> LossOutput:
        calls.append(len(batch))
        return dqn_loss(q, batch, **options)

    for kind in (DQN, type("OwnLoss", (DQN,), {"loss": staticmethod(counting)})):
        agent = agent_with(kind)
        agent.target.double()
        if kind is DQN:
            agent.loss = counting
        agent.replay.minibatches = lambda count, *drawn, **options: [minibatch()] * count
        agent.update()
    assert calls == [ROWS] * 2


def test_a_row_that_is_not_finite_is_left_to_the_book() -> None:
    agent, batch = agent_with(), minibatch()
    batch.rows.reward[3] = math.nan
    assert steps(agent, batch, 1)[2]
