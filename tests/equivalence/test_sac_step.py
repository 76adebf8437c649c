"""SAC's gradient step written out by hand is the step of the book, or leaves the work to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from closeness import rounding_bound
from torch import Tensor
from torch.testing import assert_close

from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import SAC, SACConfig, Temperature
from rlbook.data.replay import Transitions
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.optimizer import Group, LossOutput, adam

pytestmark = pytest.mark.fast_form

ROWS = 33
RATE, EPS = 1e-2, 1e-3


def agent_with(env: str, kind: type[SAC] = SAC, **settings: Any) -> Any:
    config = SACConfig(**({"hidden_sizes": (7, 5), "buffer_size": 10} | settings))
    agent: Any = kind(adapted_vector(kind, EnvRecipe.from_env(env), 1, config), config, seed=1)
    for network in agent.networks().values():
        network.double()
    return with_optimizers(agent)


def with_optimizers(agent: Any) -> Any:
    """The agent with optimisers of the networks as they are now."""
    agent.critic_optimizer = adam([Group([agent.critics])], RATE, eps=EPS)
    agent.actor_optimizer = adam([Group([agent.actor, agent.temperature])], RATE, eps=EPS)
    return agent


def minibatch(agent: Any) -> Minibatch:
    generator = torch.Generator().manual_seed(0)
    size, actions = agent.replay.observation_size, 0 if agent.discrete else agent.num_actions
    shapes = (ROWS, size), (ROWS,), (ROWS, size), (ROWS, actions), (ROWS, actions)
    obs, reward, next_obs, noise, next_noise = (
        2.0 * torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    if agent.discrete:
        action = torch.randint(agent.num_actions, (ROWS,), generator=generator)
    else:
        action = 2.0 * torch.rand(ROWS, actions, generator=generator, dtype=torch.float64) - 1.0
    terminated = torch.rand(ROWS, generator=generator) < 0.2
    return Minibatch(Transitions(obs, action, reward, next_obs, terminated), noise, next_noise)


def masked_minibatch(agent: Any) -> Minibatch:
    """The same, each action forbidden in s and in s' with probability ½, but not all and not the
    one that was taken."""
    batch, generator = minibatch(agent), torch.Generator().manual_seed(1)
    masks = torch.rand(2, ROWS, agent.num_actions, generator=generator) < 0.5
    masks[0, torch.arange(ROWS), batch.rows.action] = True
    masks[1, :, 0] |= ~masks[1].any(1)
    return replace(batch, rows=batch.rows._replace(action_mask=masks[0], next_action_mask=masks[1]))


def steps(
    agent: Any, batch: Minibatch, count: int = 3
) -> tuple[list[dict[str, Tensor]], Tensor, bool]:
    """The metrics of some gradient steps, all weights, and whether a graph was recorded."""
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        metrics = [agent.train_on(batch) for _ in range(count)]
    weights = [
        p.detach().reshape(-1)
        for network in agent.networks().values()
        for p in network.parameters()
    ]
    return metrics, torch.cat(weights), bool(saved)


def both(
    make: Callable[[], Any], size: float = 100.0, rows: Callable[[Any], Minibatch] = minibatch
) -> bool:
    """Whether the fast step recorded a graph; it must do what the plain one does.

    Gradients are sums of numbers up to `size`, over the rows and over layers of 4, 7 and 5, there
    and back. A step of η g / (|g| + ε) makes η / ε of what is rounded in g.
    """
    rounding = rounding_bound("float64", terms=ROWS + 2 * (4 + 7 + 5), size=size) * RATE / EPS
    batch = rows(make())
    metrics, weights, recorded = steps(make(), batch)
    with use_plain_forms():
        expected, plain_weights, plainly = steps(make(), batch)
    assert plainly
    assert_close(weights, plain_weights, atol=rounding, rtol=rounding)
    for ours, theirs in zip(metrics, expected, strict=True):
        assert ours.keys() == theirs.keys() == SAC.METRICS.keys()
        assert_close(
            {name: x.double() for name, x in ours.items()}, theirs, atol=rounding, rtol=rounding
        )
    return recorded


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"hidden_sizes": ()},
    {"activation": "tanh"},
    {"target_entropy": -0.5, "tau": 1.0, "gamma": 0.5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_the_step_without_a_graph_is_the_books(env: str, settings: dict[str, Any]) -> None:
    assert not both(lambda: agent_with(env, **settings))


@pytest.mark.parametrize(
    "settings",
    [{}, {"initial_temperature": 3.0}, {"temperature": 3.0}, {"target_entropy": 0.5}],
    ids=str,
)
@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1"])
def test_with_action_masks_the_step_without_a_graph_is_the_books(
    env: str, settings: dict[str, Any]
) -> None:
    """α above 1 too, where α times the least finite number is no number."""
    assert not both(lambda: agent_with(env, **settings), rows=masked_minibatch)
    agents = [agent_with(env, **settings) for _ in range(2)]
    ours, theirs = (
        steps(agent, rows(agent), 1)[1]
        for agent, rows in zip(agents, (masked_minibatch, minibatch), strict=True)
    )
    assert (ours - theirs).abs().max() > 1e-3


def change_log_std(agent: Any) -> None:
    with torch.no_grad():
        agent.actor.layers[-1].bias[1] = 2.0  # about half of the rows are cut at log σ = 2


def make_equal(agent: Any) -> None:
    agent.critics.networks[1].load_state_dict(agent.critics.networks[0].state_dict())


@pytest.mark.parametrize("change", [change_log_std, make_equal])
def test_the_kinks_of_its_functions_are_the_books(change: Callable[[Any], None]) -> None:
    """Where log σ is cut, and where both critics agree."""

    def changed() -> Any:
        agent = agent_with("Pendulum-v1")
        change(agent)
        return agent

    assert not both(changed, size=100.0 * 6 * math.e**2)  # σ ε in ∂a/∂log σ


CHANGES: dict[str, Callable[[Any], object]] = {
    "a hook on a layer": lambda agent: agent.actor.layers[0].register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on the critics": lambda agent: agent.critics.register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on the target": lambda agent: agent.target.networks[0].register_forward_hook(
        lambda module, inputs, out: 2 * out
    ),
    "a hook on a gradient": lambda agent: agent.actor.weights[0].register_hook(
        lambda gradient: 2 * gradient
    ),
    "a frozen layer": lambda agent: (
        agent.actor.layers[0].requires_grad_(False),
        with_optimizers(agent),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_put_into_the_networks_counts(change: str) -> None:
    def changed() -> Any:
        agent = agent_with("Pendulum-v1")
        CHANGES[change](agent)
        return agent

    assert both(changed)


@pytest.mark.parametrize("name", ["critic_loss", "actor_loss"])
def test_a_loss_of_ones_own_counts(name: str) -> None:
    calls: list[int] = []

    def counting(networks: Any, batch: Minibatch, **options: Any) -> LossOutput:
        calls.append(len(batch.rows.reward))
        return getattr(SAC, name)(networks, batch, **options)

    for kind in (SAC, type("OwnLoss", (SAC,), {name: staticmethod(counting)})):
        agent = agent_with("Pendulum-v1", kind)
        if kind is SAC:
            setattr(agent, name, counting)
        agent.train_on(minibatch(agent))
    assert calls == [ROWS] * 2


def test_a_temperature_of_ones_own_counts() -> None:
    """Twice α in everything that the temperature is asked for."""

    class Hot(Temperature):
        @property
        def alpha(self) -> Tensor:
            return 2 * self.log_alpha.detach().exp()

    def changed() -> Any:
        agent = agent_with("Pendulum-v1")
        agent.temperature = Hot(agent.config, agent.num_actions, discrete=False).double()
        return with_optimizers(agent)

    assert both(changed)


def test_a_row_that_is_not_finite_spoils_the_same_weights() -> None:
    agents = [agent_with("Pendulum-v1") for _ in range(2)]
    batch = minibatch(agents[0])
    batch.rows.reward[3] = math.nan
    agents[0].train_on(batch)
    with use_plain_forms():
        agents[1].train_on(batch)
    for one, other in zip(*(list(agent.networks().values()) for agent in agents), strict=True):
        assert all(
            torch.equal(p.isnan(), q.isnan())
            for p, q in zip(one.parameters(), other.parameters(), strict=True)
        )
