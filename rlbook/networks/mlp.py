"""A small multi-layer perceptron as the policy, and another as its critic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.checks import check_memory
from rlbook.data.rollout import Batch, Rollout
from rlbook.fast_forms import has_fast_form
from rlbook.functional.action_masks import masked_logits
from rlbook.networks.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    mode_categorical,
    sample_categorical,
)
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.policy import Policy, Unit, as_array, to_full_precision

ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "elu": nn.functional.elu,
    "leaky_relu": nn.functional.leaky_relu,
}
"""The functions by the names of `Activation`, with torch's defaults: the exact GELU, a slope of
0.01."""


class MLP(nn.Module):
    """[..., in] → [..., out] through hidden layers with one of the `ACTIVATIONS`."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        generator: torch.Generator,
        *,
        activation: str = "tanh",
        orthogonal: bool = True,
        out_gain: float = 1.0,
    ) -> None:
        super().__init__()
        weights = sum((i + 1) * o for i, o in pairwise(sizes))
        check_memory("hidden_sizes: the number of weights", weights, 16)  # Adam keeps three more
        layers = [cast(nn.Linear, nn.utils.skip_init(nn.Linear, i, o)) for i, o in pairwise(sizes)]
        self.activation = activation
        for layer in layers:
            gain = out_gain if layer is layers[-1] else 2**0.5
            initialise(layer, generator, gain=gain if orthogonal else None)
        self.layers = nn.ModuleList(layers)

    @property
    def weights(self) -> list[nn.Parameter]:
        """The weight [out, in] and the bias [out] of each layer in order."""
        return [getattr(layer, name) for layer in self.layers for name in ("weight", "bias")]

    @has_fast_form
    def forward(self, x: Tensor, end: int | None = None) -> Tensor:
        """The outputs [..., out], or what the layer numbered `end` reads: [..., H]."""
        phi, last = ACTIVATIONS[self.activation], self.layers[-1]
        x = x.to(next(self.parameters()))  # to the weights' type and device
        for layer in list(self.layers)[:end]:
            x = layer(x) if layer is last else phi(layer(x))
        return x


@has_fast_form
def apply_networks(networks: Sequence[MLP], x: Tensor) -> list[Tensor]:
    """The outputs [..., out] of several networks for the same input x [..., in]."""
    return [network(x) for network in networks]


@has_fast_form
def apply_two_heads(network: MLP, head: MLP, x: Tensor) -> tuple[Tensor, Tensor]:
    """The network's output, and the output of a second head on its last hidden layer."""
    return network(x), head(network.forward(x, end=-1))


@torch.no_grad()
def initialise(
    layer: nn.Linear | nn.Conv2d, generator: torch.Generator, gain: float | None
) -> None:
    """Orthogonal weights scaled by `gain`, and zero biases; each output's weights are one row.

    Where `gain` is None: uniform in ±1/√fan_in, torch's default for Linear.
    """
    assert layer.bias is not None
    if gain is None:
        bound = layer.weight[0].numel() ** -0.5
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        layer.bias.zero_()


class MLPPolicy(Policy):
    """π and V as MLPs over float32 vectors [O].

    Discrete actions are categorical, continuous ones Gaussian.

    Args:
        observation_size: O.
        action_space: Discrete, or Box [A] (the environment side clips; the policy keeps the action
            as drawn).
        critic: whether there is a V.
        hidden_sizes: units in each hidden layer.
        activation: of the hidden layers, one of `ACTIVATIONS`.
        shared: V as a second head on the policy's hidden layers, instead of a network of its own.
        orthogonal: orthogonal weights; false: torch's default for Linear.
        temperature: divides the logits of a discrete policy, when acting and when evaluating.
        normalize_observation: standardise by running mean and variance, clipped to ±10.
    """

    def __init__(
        self,
        observation_size: int,
        action_space: spaces.Space,
        generator: torch.Generator,
        *,
        critic: bool,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        orthogonal: bool = True,
        temperature: float = 1.0,
        normalize_observation: bool = False,
    ) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        actions = action_size(action_space)
        body = (observation_size, *hidden_sizes)
        layers: dict[str, Any] = {"activation": activation, "orthogonal": orthogonal}
        self.actor = MLP((*body, actions), generator, out_gain=0.01, **layers)
        self.log_std = None if self.discrete else nn.Parameter(torch.zeros(actions))
        self.critic = self.value_head = None
        if critic and shared:
            self.value_head = MLP((body[-1], 1), generator, orthogonal=orthogonal)
        elif critic:
            self.critic = MLP((*body, 1), generator, **layers)
        self.temperature = temperature
        if normalize_observation:
            self.normalizer = Normalizer(observation_size)

    def act(
        self,
        obs: NDArray[np.float32],
        rng: np.random.Generator | None,
        state: object = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64] | NDArray[np.float32], NDArray[np.float32]]:
        with torch.inference_mode():
            output = as_array(self.actor(self.normalizer(torch.from_numpy(obs))))
        return self.choose(output, rng, action_mask)

    def choose(
        self,
        output: NDArray[np.float32],
        rng: np.random.Generator | None,
        action_mask: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64] | NDArray[np.float32], NDArray[np.float32]]:
        """An action for each row of the actor's outputs [N, A], as `act` returns it."""
        if self.discrete:
            logits = output if self.temperature == 1.0 else output / self.temperature
            if action_mask is not None:
                logits = np.where(action_mask, logits, -np.inf)
            if rng is None:
                return mode_categorical(logits)
            return sample_categorical(logits, rng.random(len(logits)))
        assert self.log_std is not None
        action = output
        if rng is not None:
            noise = rng.standard_normal(output.shape, dtype=np.float32)
            action = output + noise * np.exp(as_array(self.log_std.detach()))
        with torch.inference_mode():
            gaussian = Gaussian(torch.from_numpy(output), self.log_std.cpu())
            log_prob = gaussian.log_prob(torch.from_numpy(action))
        return action, as_array(log_prob.float())

    def distribution(self, obs: Tensor, action_mask: Tensor | None = None) -> Distribution:
        """π(·|s) for observations [..., O]; actions forbidden by a mask [..., A] have probability
        0, and no gradient flows to their logits."""
        return self._distribution(self.actor(self.normalizer(obs)), action_mask)

    def distributions(self, batch: Batch) -> Distribution:
        return self.distribution(batch.obs, batch.action_mask)

    def batch(self, rollout: Rollout, unit: Unit | None = None, /, **fields: Tensor) -> Batch:
        names = {"obs": "obs", "action": "action", "log_prob": "log_prob", "mask": "valid"}
        if any(step.action_mask is not None for step in rollout.steps):
            names["action_mask"] = "action_mask"
        fields |= {name: rollout.tensor(source) for name, source in names.items()}
        if (unit or self.unit) == "episode":
            return Batch(**{name: value.transpose(0, 1) for name, value in fields.items()})
        return Batch(**{name: value[fields["mask"]] for name, value in fields.items()})

    def evaluate(
        self, batch: Batch, *, entropy: bool = True, entropy_gradient: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        distribution, value = self._forward(batch)
        log_prob = distribution.log_prob(batch.action)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            return log_prob, distribution.entropy() if entropy else None, value

    @torch.inference_mode()
    def value(self, obs: Tensor) -> Tensor:
        """V(s) in reward units: [..., O] → [...]."""
        seen = self.normalizer(obs)
        if self.critic is not None:
            return self.critic(seen).squeeze(-1)
        assert self.value_head is not None
        return self.value_head(self.actor.forward(seen, end=-1)).squeeze(-1)

    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        value = self.value(rollout.tensor("obs"))  # [T, N]
        last = self.value(torch.from_numpy(rollout.steps[-1].next_obs))  # [N]
        next_value = torch.cat([value[1:], last[None]])
        truncated = rollout.tensor("truncated")
        if truncated[:-1].any():  # the next row there is another episode's
            final = np.concatenate([step.next_obs[step.truncated] for step in rollout.steps])
            next_value[truncated] = self.value(torch.from_numpy(final))
        return value.clone(), next_value.clone()

    def value_parameters(self) -> list[nn.Parameter]:
        network = self.value_head if self.critic is None else self.critic
        return [] if network is None else list(network.parameters())

    def heads(self) -> list[nn.Parameter]:
        """The parameters of the output layers, and the Gaussian's log standard deviation."""
        networks = (self.actor, self.critic, self.value_head)
        layers = [network.layers[-1] for network in networks if network is not None]
        deviation = [] if self.log_std is None else [self.log_std]
        return [*deviation, *(parameter for layer in layers for parameter in layer.parameters())]

    def _forward(self, batch: Batch) -> tuple[Distribution, Tensor | None]:
        """π(·|s), and V(s) if there is a critic, for the states of a batch."""
        obs, value = self.normalizer(batch.obs), None
        if self.value_head is not None:
            output, value = apply_two_heads(self.actor, self.value_head, obs)
        elif self.critic is not None:
            output, value = apply_networks([self.actor, self.critic], obs)
        else:
            output = self.actor(obs)
        distribution = self._distribution(output, batch.action_mask)
        return distribution, None if value is None else value.squeeze(-1)

    def _distribution(self, output: Tensor, action_mask: Tensor | None = None) -> Distribution:
        output = to_full_precision(output)
        if self.log_std is None:
            logits = output if self.temperature == 1.0 else output / self.temperature
            return Categorical(masked_logits(logits, action_mask))
        return Gaussian(output, self.log_std.to(output.dtype).expand_as(output))


def action_size(space: spaces.Space) -> int:
    """The number of policy outputs: one per discrete action, or one per component of a box."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return math.prod(space.shape or ())
