"""A small multi-layer perceptron as a policy, with a critic beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.data.rollout import Batch, Rollout, as_rows
from rlbook.fast.matrix_product import product
from rlbook.policies.distributions import Categorical, Distribution, Gaussian, mode_categorical, sample_categorical
from rlbook.policies.policy import Policy, Unit


class MLP(nn.Module):
    """[..., in] → [..., out] through hidden layers of `activation`, "tanh" or "relu"."""

    def __init__(
        self, sizes: tuple[int, ...], generator: torch.Generator, *,
        activation: str = "tanh", orthogonal: bool = True, out_gain: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        layers = [cast(nn.Linear, nn.utils.skip_init(nn.Linear, i, o)) for i, o in pairwise(sizes)]
        self.activation = activation
        for layer in layers:
            gain = out_gain if layer is layers[-1] else 2**0.5
            initialise(layer, generator, gain=gain if orthogonal else None)
        self.layers = nn.ModuleList(layers)
        self.weights: list[Tensor] = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]   # quicker than through modules

    def forward(self, x: Tensor) -> Tensor:
        return side_by_side(x, self.activation, [self.weights])[0]

    def hidden(self, x: Tensor) -> Tensor:
        """What the last layer sees: [..., in] → [..., H]."""
        h = side_by_side(x, self.activation, [self.weights[:-2]])[0]
        return torch.tanh(h) if self.activation == "tanh" else torch.relu(h)


def side_by_side(x: Tensor, activation: str, networks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The outputs [..., out] of networks of equally many layers that see the same x [..., in]."""
    flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        weights = networks[0] if len(networks) == 1 else [tensor for network in networks for tensor in network]
        outputs = Backpropagation.apply(flat, activation, len(networks), *weights)
    else:
        outputs = [forward_pass(flat, activation, network)[-1] for network in networks]
    return [out if x.dim() == 2 else out.view(*x.shape[:-1], out.shape[-1]) for out in outputs]


def forward_pass(x: Tensor, activation: str, weights: Sequence[Tensor]) -> list[Tensor]:
    """x [B, in], then the output of every hidden layer, then the network's. Without gradients."""
    outputs = [x]
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        outputs.append(_activate(product(outputs[-1], weight, bias), activation))
    return [*outputs, product(outputs[-1], weights[-2], weights[-1])]


class Backpropagation(torch.autograd.Function):
    """One or more MLPs as a single node of the graph, their gradient written out: the chain rule, layer by layer.

    h_0 = x,   z_l = h_{l-1} W_lᵀ + b_l,   h_l = φ(z_l),   output z_L
    δ_L = ∂loss/∂z_L,   ∂loss/∂W_l = δ_lᵀ h_{l-1},   ∂loss/∂b_l = Σ δ_l,   δ_{l-1} = (δ_l W_l) φ'(z_{l-1})

    At these sizes autograd spends longer on its nodes than on the arithmetic; one node makes an update of PPO about twice as fast.
    Source: Rumelhart, Hinton & Williams 1986, doi:10.1038/323533a0. Equal to autograd's gradient up to rounding.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: str, networks: int, *weights: Tensor) -> tuple[Tensor, ...]:
        saved, outputs, share = [], [], len(weights) // networks
        for start in range(0, len(weights), share):
            own = weights[start : start + share]
            *inputs, out = forward_pass(x, activation, own)
            saved += [*inputs, *own[::2]]
            outputs.append(out)
        ctx.save_for_backward(*saved)
        ctx.activation = activation
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> Any:
        saved, gradients, for_x = ctx.saved_tensors, [], None
        share = len(saved) // len(deltas)
        for start, delta in zip(range(0, len(saved), share), deltas, strict=True):
            own, first = [], saved[start + share // 2]
            for index in range(share // 2 - 1, -1, -1):
                h, weight = saved[start + index], saved[start + share // 2 + index]
                narrow = h.shape[1] < delta.shape[1]                     # then the transposed product is three times faster
                own += [delta.sum(0), (h.t() @ delta).t() if narrow else product(delta.t(), h.t())]
                if index:
                    delta = _activation_gradient(product(delta, weight.t()), h, ctx.activation)
            gradients += reversed(own)
            if ctx.needs_input_grad[0]:
                for_x = delta @ first if for_x is None else for_x + delta @ first
        return for_x, None, None, *gradients


def _activation_gradient(delta: Tensor, h: Tensor, activation: str) -> Tensor:
    """δ φ'(z), from h = φ(z)."""
    if activation == "tanh":
        return torch.ops.aten.tanh_backward(delta, h)
    return torch.ops.aten.threshold_backward(delta, h, 0)


def _activate(z: Tensor, activation: str) -> Tensor:
    """φ(z), in place. numpy's tanh is ten times faster than torch's here."""
    if activation == "tanh":
        np.tanh(z.numpy(), out=z.numpy())
        return z
    return z.relu_()


@torch.no_grad()
def initialise(layer: nn.Linear, generator: torch.Generator, gain: float | None) -> None:
    """Orthogonal weights scaled by `gain` and zero bias; uniform in ±1/√fan_in (torch's default for Linear) where `gain` is None."""
    if gain is None:
        bound = layer.weight.shape[1] ** -0.5
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        layer.bias.zero_()


class MLPPolicy(Policy):
    """π and V as MLPs over float32 vectors [O]; discrete actions are categorical, continuous ones Gaussian.

    Args:
        observation_size: O.
        action_space: Discrete, or Box [A] (the environment side clips; the policy keeps the action as drawn).
        critic: whether there is a V.
        shared: V as a second head on the policy's hidden layers, instead of a network of its own.
        temperature: divides the logits of a discrete policy, when acting and when evaluating.
        normalize_observation: standardise by running mean and variance, clipped to ±10.
    """

    def __init__(
        self, observation_size: int, action_space: spaces.Space, generator: torch.Generator, *, critic: bool,
        hidden_sizes: tuple[int, ...] = (64, 64), shared: bool = False, orthogonal: bool = True, temperature: float = 1.0,
        normalize_observation: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        action_size = int(action_space.n) if isinstance(action_space, spaces.Discrete) else math.prod(action_space.shape or ())
        body = (observation_size, *hidden_sizes)
        self.actor = MLP((*body, action_size), generator, orthogonal=orthogonal, out_gain=0.01)
        self.log_std = None if self.discrete else nn.Parameter(torch.zeros(action_size))
        self.critic = MLP((*body, 1), generator, orthogonal=orthogonal, out_gain=1.0) if critic and not shared else None
        self.value_head = MLP((body[-1], 1), generator, orthogonal=orthogonal, out_gain=1.0) if critic and shared else None
        self.temperature = temperature
        if normalize_observation:
            self.normalizer = Normalizer(observation_size)

    def act(self, obs: np.ndarray, rng: np.random.Generator | None, state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            output = self.actor(self._input(torch.from_numpy(obs))).numpy()
        if self.discrete:
            logits = output if self.temperature == 1.0 else output / self.temperature
            return mode_categorical(logits) if rng is None else sample_categorical(logits, rng.random(len(logits)))
        assert self.log_std is not None
        action = output
        if rng is not None:
            noise = rng.standard_normal(output.shape, dtype=np.float32)
            action = output + noise * np.exp(self.log_std.detach().numpy())
        with torch.inference_mode():
            log_prob = Gaussian(torch.from_numpy(output), self.log_std).log_prob(torch.from_numpy(action))
        return action, log_prob.numpy()

    def batch(self, rollout: Rollout, unit: Unit | None = None) -> Batch:
        mask = rollout.tensor("valid")                                                 # [T, N]
        fields = {"obs": rollout.tensor("obs"), "action": rollout.tensor("action"), "log_prob": rollout.log_prob(), "mask": mask}
        return Batch(**{name: as_rows(value, mask, unit or self.unit) for name, value in fields.items()})

    def evaluate(self, batch: Batch, *, entropy: bool = True) -> tuple[Tensor, Tensor | None, Tensor | None]:
        obs = self._input(batch.obs)
        distribution, value = self._forward(obs)
        return distribution.log_prob(batch.action), distribution.entropy() if entropy else None, value

    @torch.inference_mode()
    def value(self, obs: Tensor) -> Tensor:
        """V(s) in reward units: [..., O] → [...]."""
        return self._value(self._input(obs))

    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        value = self.value(rollout.tensor("obs"))                                      # [T, N]
        next_value = torch.cat([value[1:], self.value(torch.from_numpy(rollout.steps[-1].next_obs))[None]])
        truncated = rollout.tensor("truncated")
        if truncated[:-1].any():                                                       # the next row there is another episode's
            final = np.concatenate([step.next_obs[step.truncated] for step in rollout.steps])
            next_value[truncated] = self.value(torch.from_numpy(final))
        return value.clone(), next_value.clone()

    def _input(self, obs: Tensor) -> Tensor:
        return obs if self.normalizer is None else self.normalizer(obs)

    def _forward(self, obs: Tensor) -> tuple[Distribution, Tensor | None]:
        if self.value_head is not None:
            hidden = self.actor.hidden(obs)
            return self._distribution(F.linear(hidden, *self.actor.weights[-2:])), self.value_head(hidden).squeeze(-1)
        if self.critic is None:
            return self._distribution(self.actor(obs)), None
        output, value = side_by_side(obs, self.actor.activation, [self.actor.weights, self.critic.weights])
        return self._distribution(output), value.squeeze(-1)

    def _value(self, obs: Tensor) -> Tensor:
        value = self.critic(obs).squeeze(-1) if self.critic is not None else self._forward(obs)[1]
        assert value is not None
        return value

    def _distribution(self, output: Tensor) -> Distribution:
        if self.log_std is None:
            return Categorical(output if self.temperature == 1.0 else output / self.temperature)
        return Gaussian(output, self.log_std)


class Normalizer(nn.Module):
    """Running mean and variance of observations; frozen except in `update`. Detail 8 of the 9 for continuous control.

    Source: Chan et al. 1979, the parallel update of means and sums of squares.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] → [..., size], within ±10."""
        scale = (self.variance + 1e-8).rsqrt()
        return ((x - self.mean.float()) * scale.float()).clamp(-10.0, 10.0)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Takes in a batch [B, size]."""
        x = x.double()
        count, mean, variance = len(x), x.mean(0), x.var(0, unbiased=False)
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count + delta.square() * self.count * count / total
        self.mean.add_(delta * count / total)
        self.variance.copy_(squares / total)
        self.count.copy_(total)
