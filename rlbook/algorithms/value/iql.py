"""Implicit Q-learning (IQL): learn offline how good the best recorded action is, without ever
asking for the value of an unrecorded one.

    D: recorded transitions (s, a, r, s')
    for each minibatch of D
        minimise  mean L_τ(min_k Q⁻_k(s, a) - V(s))          over V
        w ← min(exp(β (min_k Q⁻_k(s, a) - V(s))), w_max)
        minimise  -mean w log π(a|s)                         over π
        y = r                                                where terminated, else
        y = r + γ V(s')
        minimise  Σ_k ½ mean (Q_k(s, a) - y)²                over Q
        Q⁻_k ← Q⁻_k + κ (Q_k - Q⁻_k)

    L_τ(u) = ½ |τ - 1[u < 0]| u²

V learns an expectile of Q(s, a) over the recorded actions. With τ = ½ that is their mean, so that V
is the value of the behaviour. As τ comes near 1 it rises to the largest of them: V(s) then is the
maximum over the actions that were recorded in s, and y the target of Q-learning restricted to these
actions. No network is asked about an action that nobody has tried, so none can be overrated.

The policy is learned apart, by weighted cloning: a recorded action counts the more, the better it
is than V. β sets how much: 0 clones the behaviour, large values leave the best recorded action.
The actions may be discrete or a box, of which the policy is a Gaussian. Recorded steps come from
`--data`; without it, from uniformly random walks.

Source: Kostrikov, Nair & Levine 2021, arXiv:2110.06169, algorithm 1, eq. 5 to 7; the minimum over
two critics: its section 4.3. Differences: a Gaussian's mean is not squashed by a tanh; the critics'
losses and L_τ have the factor ½; learning rates do not fall along a cosine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from rlbook.agent import Agent, Data, Metrics, Parts, State
from rlbook.checks import (
    non_negative,
    open_unit_interval,
    positive,
    positive_fraction,
    positive_int,
    positive_ints,
    unit_interval,
    value_at,
)
from rlbook.data.replay import Transitions
from rlbook.functional.returns import td_target
from rlbook.functional.schedules import Schedule
from rlbook.functional.score_weights import advantage_weights
from rlbook.functional.value_losses import expectile_loss, squared_value_loss
from rlbook.hyperparameters import Hyperparameters
from rlbook.networks.build import build_layers, make_policy, plain_spec
from rlbook.networks.cnn import FeedForward
from rlbook.networks.critics import Critics
from rlbook.networks.mlp import MLPPolicy
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.networks.policy import as_array
from rlbook.networks.target_network import polyak_update
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


def iql_update(
    networks: IQLNetworks,
    optimizers: dict[str, Optimizer],
    batch: Transitions,
    config: IQLConfig,
    losses: Mapping[str, Callable[..., LossOutput]] | None = None,
) -> dict[str, Tensor]:
    """One gradient step each of V, π and Q, and one update of the target critics.

    Args:
        networks: changed in place.
        optimizers: "value", "policy" and "critics", changed in place.
        batch: recorded transitions.
        config: hyper-parameters.
        losses: of the transitions, by those names and in this order; None: those of this file.
    """
    metrics: dict[str, Tensor] = {}
    for name, loss in (IQL.losses if losses is None else losses).items():
        metrics |= gradient_step(optimizers[name], partial(loss, networks, config=config), batch)
    polyak_update(networks.target, networks.critics, config.tau)
    del metrics["grad_norm"]
    return metrics


def iql_value_loss(networks: IQLNetworks, batch: Transitions, *, config: IQLConfig) -> LossOutput:
    """The error of V(s) against the expectile of Q⁻(s, a) over the recorded actions; lower is
    better."""
    value = networks.value(batch.obs).squeeze(-1)  # [B]
    loss = expectile_loss(value, recorded_q(networks, batch), config.expectile)
    return LossOutput(loss, {"value_loss": loss.detach(), "value": value.detach().mean()})


def iql_policy_loss(networks: IQLNetworks, batch: Transitions, *, config: IQLConfig) -> LossOutput:
    """Minus the log-likelihood of the recorded actions, weighted by their advantages."""
    with torch.no_grad():
        advantage = recorded_q(networks, batch) - networks.value(batch.obs).squeeze(-1)  # [B]
    weight = advantage_weights(advantage, config.inverse_temperature, config.max_weight)
    policy = networks.policy.distribution(batch.obs, batch.action_mask)
    loss = -(weight * policy.log_prob(batch.action)).mean()
    return LossOutput(loss, {"policy_loss": loss.detach(), "weight": weight.mean()})


def iql_critic_loss(networks: IQLNetworks, batch: Transitions, *, config: IQLConfig) -> LossOutput:
    """The error of both critics against r + γ V(s'); lower is better."""
    with torch.no_grad():
        next_value = networks.value(batch.next_obs).squeeze(-1)  # [B]
    target = td_target(batch.reward, batch.terminated, next_value, config.gamma)  # [B]
    q = networks.critics(batch.obs, batch.action)  # [2, B]
    loss = torch.stack([squared_value_loss(each, target) for each in q]).sum()
    return LossOutput(loss, {"critic_loss": loss.detach(), "q": q.detach().mean()})


@torch.no_grad()
def recorded_q(networks: IQLNetworks, batch: Transitions) -> Tensor:
    """min_k Q⁻_k(s, a) of the recorded pairs: [B], in reward units, without gradient."""
    return networks.target(batch.obs, batch.action).amin(0)


@dataclass(frozen=True)
class IQLConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    # τ, expectile that V learns, in (0, 1); 0.5 is the mean over the recorded actions
    expectile: Annotated[float, open_unit_interval] = 0.7
    # β, inverse temperature of the advantage weights, per reward unit; 0 clones the behaviour
    inverse_temperature: Annotated[float, non_negative] = 3.0
    max_weight: Annotated[float, positive] = 100.0  # w_max, largest weight of a recorded action
    # κ, fraction by which the target critics move towards the current ones at each step
    tau: Annotated[float, positive_fraction] = 0.005
    batch_size: Annotated[int, positive_int] = 256  # transitions per minibatch
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    # random walks to record if no data set is given
    walks: Annotated[int, positive_int] = 100
    # units in each hidden layer; none makes all networks linear in the observation
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)


class IQLNetworks(NamedTuple):
    """The networks and optimisers that `iql_update` changes."""

    policy: MLPPolicy
    value: FeedForward
    critics: Critics
    target: Critics


class IQL(Agent):
    """Implicit Q-learning; see the module docstring."""

    Config = IQLConfig
    batched = True
    observations = "vector"
    data_kinds = ("Steps",)
    uses = ("model", "device")
    budget = {"passes": 30}
    losses: ClassVar[Mapping[str, Callable[..., LossOutput]]] = {
        "value": iql_value_loss,
        "policy": iql_policy_loss,
        "critics": iql_critic_loss,
    }
    METRICS = {
        "value_loss": "mean L_τ of V(s), in squared reward units",
        "value": "mean V(s) of the recorded states, in reward units",
        "policy_loss": "-mean w log π(a|s) of the recorded actions, in nats",
        "weight": "mean weight w; near w_max, β is too large for the size of the advantages",
        "critic_loss": "Σ_k ½ mean (Q_k(s, a) - y)², in squared reward units",
        "q": "mean Q(s, a) of the recorded pairs, in reward units",
        "learning_rate": "Adam's step size",
    }

    def __init__(
        self, env: VectorEnv, config: IQLConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: IQLConfig = config
        space, actions = env.single_observation_space, env.single_action_space
        spec, hidden = plain_spec(parts.model, space), tuple(config.hidden_sizes)
        rng = torch_generator(rng_for(seed, "initialisation"))
        policy = make_policy(space, actions, rng, spec, critic=False, hidden_sizes=hidden)
        value = build_layers(space, (*hidden, 1), rng, spec)
        critics = Critics(space, actions, rng, count=2, hidden_sizes=hidden, network=spec.network)
        target = copy.deepcopy(critics).requires_grad_(False)
        made: Any = (each.to(parts.device) for each in (policy, value, critics, target))
        self.networks = IQLNetworks(*made)
        rate = value_at(config.learning_rate, 0.0)
        self.optimizers = {
            name: adam([Group([getattr(self.networks, name)])], rate) for name in self.losses
        }
        self.exploration = rng_for(seed, "exploration")

    def act(
        self,
        observation: NDArray[np.float32],
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        self.check_batch(observation)
        rng = self.exploration if explore else None
        return self.networks.policy.act(observation, rng, action_mask=action_mask)[0]

    @torch.inference_mode()
    def value(self, observations: ArrayLike) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        seen = torch.as_tensor(self.adapt_observations(observations), dtype=torch.float32)
        return as_array(self.networks.value(seen).squeeze(-1))

    def fit(self, data: Data) -> Iterator[Metrics]:
        for batch in data.minibatches(self.config.batch_size):
            yield self.train_on(batch.map_fields(lambda field: field.to(self.parts.device)))

    def train_on(self, batch: Transitions) -> Metrics:
        """One gradient step of each network on B recorded transitions."""
        rate = value_at(self.config.learning_rate, self.progress)
        for optimizer in self.optimizers.values():
            optimizer.learning_rate = rate
        step = iql_update(self.networks, self.optimizers, batch, self.config, self.losses)
        return mean_metrics([step]) | {"learning_rate": rate}

    def state_dict(self) -> State:
        networks: dict[str, nn.Module] = self.networks._asdict()
        return {
            "networks": {name: dict(each.state_dict()) for name, each in networks.items()},
            "optimizers": {name: each.state_dict() for name, each in self.optimizers.items()},
            "exploration": rng_state(self.exploration),
        }

    def load_state_dict(self, state: State) -> None:
        for name, network in self.networks._asdict().items():
            network.load_state_dict(state["networks"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        set_rng_state(self.exploration, state["exploration"])
