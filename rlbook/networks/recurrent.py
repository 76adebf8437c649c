"""Recurrent networks: they remember earlier observations of an episode.

    x_t = torso(o_t)                    the hidden layers of an MLP, or the filters of images
    h_t = core(x_t, h_{t-1})            a GRU or an LSTM; h is 0 where an episode starts
    π(·|h_t), V(h_t)                    the output layers, after further hidden layers if asked for

A network is computed in two ways, which a test holds equal: a `step` at a time, where it acts, and
`forward` through whole sequences, where it learns and the gradient flows back through time.

Shapes: T steps, B rows (environments, or sequences of a minibatch), F features, H units, S numbers
that are remembered: h of a GRU, or h and c of an LSTM side by side. The state before the first step
of an episode is 0.
"""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.checks import check_memory
from rlbook.data.rollout import Batch, Rollout, to_device
from rlbook.errors import RequestError
from rlbook.fast_forms import has_fast_form
from rlbook.functional.recurrent_cells import gru_cell, lstm_cell
from rlbook.networks.cnn import FeatureNetwork
from rlbook.networks.distributions import Distribution
from rlbook.networks.mlp import ACTIVATIONS, MLP, MLPPolicy
from rlbook.networks.policy import Policy, Unit, as_array
from rlbook.networks.recurrent_memory import RecurrentMemory

GATES = {"gru": 3, "lstm": 4}
"""Kind of core → number of blocks of size H that its weights compute, in the order of the cell."""


KEEP_BIAS = 1.0
"""What is added to the initial bias of the gate that keeps (f of an LSTM, z of a GRU).

At 0 a unit would lose half of what it remembers at each step, and the gradient through time, too.
Source: Jozefowicz, Zaremba & Sutskever 2015, proceedings.mlr.press/v37/jozefowicz15.html.
"""


class RecurrentCore(nn.Module):
    """[T, B, F] → [T, B, H]: a GRU or an LSTM, which may be reset at any step.

    Args:
        kind: "gru" or "lstm".
        inputs: F.
        hidden: H.
        generator: draws the weights.
        orthogonal: orthogonal weights and zero biases; false: uniform in ±1/√H, as in torch. To
            either comes `KEEP_BIAS`.

    Source: `rlbook.functional.recurrent_cells`; the initial weights, and resets inside a sequence:
    Huang et al. 2022, "The 37 Implementation Details of PPO", the five details for LSTMs.
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        hidden: int,
        generator: torch.Generator,
        *,
        orthogonal: bool = True,
    ) -> None:
        super().__init__()
        rows = GATES[kind] * hidden
        check_memory("the number of a recurrent network's weights", rows * (inputs + hidden), 16)
        self.kind, self.hidden = kind, hidden
        self.state_size = hidden if kind == "gru" else 2 * hidden
        self.input_weight = nn.Parameter(torch.zeros(rows, inputs))
        self.state_weight = nn.Parameter(torch.zeros(rows, hidden))
        self.input_bias = nn.Parameter(torch.zeros(rows))
        self.state_bias = nn.Parameter(torch.zeros(rows))
        for weight in self.parameters():
            if not orthogonal:
                nn.init.uniform_(weight, -(hidden**-0.5), hidden**-0.5, generator=generator)
            elif weight.dim() == 2:
                nn.init.orthogonal_(weight, generator=generator)
        with torch.no_grad():
            self.state_bias[hidden : 2 * hidden] += KEEP_BIAS

    def initial_state(self, batch: int) -> Tensor:
        """The recurrent state before the first step of an episode: zeros [B, S]."""
        return self.state_weight.new_zeros(batch, self.state_size)

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step: features [B, F] and the state before it [B, S] → outputs [B, H] and the state
        after it [B, S]."""
        features, state = features.to(self.input_weight), state.to(self.state_weight)
        h = state[:, : self.hidden]
        from_input = nn.functional.linear(features, self.input_weight, self.input_bias)
        from_state = nn.functional.linear(h, self.state_weight, self.state_bias)
        if self.kind == "gru":
            h = gru_cell(from_input, from_state, h)
            return h, h
        h, c = lstm_cell(from_input, from_state, state[:, self.hidden :])
        return h, torch.cat([h, c], -1)

    @has_fast_form
    def forward(self, features: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Processes whole sequences.

        Args:
            features: [T, B, F].
            state: [B, S], before the first step.
            starts: [T, B] bool; True where an episode starts, before which nothing is remembered.

        Returns:
            The outputs [T, B, H], and the state after the last step [B, S].
        """
        outputs = []
        for seen, start in zip(features, starts, strict=True):
            state = state.masked_fill(start[:, None], 0.0)
            output, state = self.step(seen, state)
            outputs.append(output)
        return torch.stack(outputs), state


class RecurrentPolicy(MLPPolicy):
    """π and V with a memory: the networks of a policy without one, with a recurrent core between
    their layers. Separate actor and critic networks have separate memories.

    Args:
        policy: an `MLPPolicy` or an `FeaturePolicy`, whose layers it takes over.
        kind: "gru" or "lstm"; each core has as many units as the layer before it.
        after: the last `after` hidden layers follow the core.
        generator: draws the cores' weights.
        sequence_length: steps of a sequence through which the gradient flows; None: all that a
            rollout has of an environment.
    """

    unit: ClassVar[Unit] = "sequence"

    def __init__(
        self,
        policy: MLPPolicy,
        kind: str,
        generator: torch.Generator,
        sequence_length: int | None = None,
        *,
        after: int = 0,
    ) -> None:
        Policy.__init__(self)
        self.idle, self.discrete, self.temperature = (
            policy.idle,
            policy.discrete,
            policy.temperature,
        )
        self.actor, self.critic, self.value_head = policy.actor, policy.critic, policy.value_head
        self.log_std, self.normalizer = policy.log_std, policy.normalizer
        self.place = -1 - after
        networks = [self.actor] if self.critic is None else [self.actor, self.critic]
        widths = [cast(nn.Linear, network.layers[self.place]).in_features for network in networks]
        cores = [RecurrentCore(kind, width, width, generator) for width in widths]
        self.cores, self.state_size = nn.ModuleList(cores), sum(core.state_size for core in cores)
        self.sequence_length = sequence_length

    def step(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """One step: observations [B, ...] and the state before them [B, S] → the actor's outputs
        [B, A], V [B] if there is a critic, and the state after them [B, S]."""
        parts = zip(self._cores(), self._torsos(obs), self._split(state), strict=True)
        hidden, after = zip(*(core.step(*part) for core, *part in parts), strict=True)
        return (*self._heads(*hidden), torch.cat(after, -1))

    def forward(
        self, obs: Tensor, state: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Whole sequences: observations [T, B, ...], the state before the first ones [B, S], and
        where episodes start, [T, B] bool → outputs [T, B, A], V [T, B], and the state after the
        last ones [B, S]."""
        parts = zip(self._cores(), self._torsos(obs), self._split(state), strict=True)
        hidden, after = zip(*(core(*part, starts) for core, *part in parts), strict=True)
        return (*self._heads(*hidden), torch.cat(after, -1))

    def _cores(self) -> list[RecurrentCore]:
        return list(self.cores)  # type: ignore[arg-type]

    def _split(self, state: Tensor) -> list[Tensor]:
        """The state [..., S] of all cores split into that of each."""
        return list(state.split([core.state_size for core in self._cores()], -1))

    def _torsos(self, obs: Tensor) -> list[Tensor]:
        """The input of each core, computed from observations [..., O]."""
        seen = self.normalizer(obs)
        networks = [self.actor] if self.critic is None else [self.actor, self.critic]
        return [network.forward(seen, self.place) for network in networks]

    def _heads(self, hidden: Tensor, critic: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The actor's outputs and V, from the cores' outputs [..., H]."""
        hidden = self._later_features(self.actor, hidden)
        output = self.actor.layers[-1](hidden)
        if self.value_head is not None:
            return output, self.value_head(hidden).squeeze(-1)
        if self.critic is None or critic is None:
            return output, None
        return output, self.critic.layers[-1](self._later_features(self.critic, critic)).squeeze(-1)

    def _later_features(self, network: MLP | FeatureNetwork, hidden: Tensor) -> Tensor:
        """The output layer's input, from a core's outputs [..., H]."""
        for layer in list(network.layers)[self.place : -1]:
            hidden = ACTIVATIONS[network.activation](layer(hidden))
        return hidden

    def initial_state(self) -> RecurrentMemory:
        return RecurrentMemory(torch.cat([core.initial_state(1)[0] for core in self._cores()]))

    def act(
        self,
        obs: NDArray[np.float32],
        rng: np.random.Generator | None,
        state: object = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64] | NDArray[np.float32], NDArray[np.float32]]:
        if not isinstance(state, RecurrentMemory):
            raise RequestError(NEEDS_MEMORY)
        before = state.rows(len(obs))
        with torch.inference_mode():
            # a copy: how a product is rounded may depend on where in memory its factors begin, and
            # NumPy's arrays begin elsewhere after a resume
            output, _, after = self.step(torch.from_numpy(obs).clone(), before)
        state.advance(before, after)
        return self.choose(as_array(output), rng, action_mask)

    def distribution(self, obs: Tensor, action_mask: Tensor | None = None) -> Distribution:
        raise RequestError(NEEDS_MEMORY)

    def value(self, obs: Tensor) -> Tensor:
        raise RequestError(NEEDS_MEMORY)

    def distributions(self, batch: Batch) -> Distribution:
        return self._forward(batch)[0]

    def _forward(self, batch: Batch) -> tuple[Distribution, Tensor | None]:
        """π(·|h) and V(h) [B, T] along the sequences of a batch."""
        assert batch.state is not None and batch.starts is not None
        output, value, _ = self(batch.obs.transpose(0, 1), batch.state, batch.starts.t())
        distribution = self._distribution(output.transpose(0, 1), batch.action_mask)
        return distribution, None if value is None else value.t()

    def batch(self, rollout: Rollout, unit: Unit | None = None, /, **fields: Tensor) -> Batch:
        """The rollout as sequences [B, T, ...] with the recurrent state before each of them."""
        length = self.sequence_length or len(rollout.steps)
        ended = rollout.tensor("terminated") | rollout.tensor("truncated")
        fields["starts"] = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]])
        episodes = vars(super().batch(rollout, "episode", **fields))
        rows = {
            name: cut_sequences(value.transpose(0, 1), length)
            for name, value in episodes.items()
            if value is not None
        }
        state = rollout.state()[::length].transpose(0, 1).flatten(0, 1)  # [B, S]
        if "action_mask" in rows:  # in padding nobody acts, and everything is allowed
            rows["action_mask"] |= ~rows["mask"][..., None]
        return Batch(**rows, state=state)

    @torch.inference_mode()
    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """V of each step and of its true successor: one network step each, from the stored state
        before the step and from the state after it; the last observation of a truncated episode is
        included."""
        obs, state = rollout.tensor("obs"), rollout.state()
        _, value, after = self.step(obs.flatten(0, 1), state.flatten(0, 1))
        assert value is not None
        value, after = value.unflatten(0, obs.shape[:2]), after.unflatten(0, obs.shape[:2])
        last = self._value_after(rollout, -1, after[-1])  # [N]
        next_value = torch.cat([value[1:], last[None]])
        truncated = rollout.tensor("truncated")
        for time in truncated[:-1].any(1).nonzero()[:, 0].tolist():  # another episode's row follows
            final = self._value_after(rollout, time, after[time])
            next_value[time] = torch.where(truncated[time], final, next_value[time])
        return value.clone(), next_value.clone()

    def _value_after(self, rollout: Rollout, time: int, after: Tensor) -> Tensor:
        """V [N] of the observation after a step, from the states [N, S] after it."""
        value = self.step(to_device(rollout.steps[time].next_obs, rollout.device), after)[1]
        assert value is not None
        return value

    def value_parameters(self) -> list[nn.Parameter]:
        own = super().value_parameters()
        return own if self.critic is None else [*own, *self.cores[1].parameters()]


NEEDS_MEMORY = (
    "this agent remembers what it saw before (recurrent), so one observation alone does not "
    "determine its action or value"
)


def cut_sequences(value: Tensor, length: int) -> Tensor:
    """A rollout's steps [T, N, ...] as sequences [N · ⌈T / L⌉, L, ...], the last ones of each
    environment padded with 0 (False)."""
    lacking = -len(value) % length
    padded = torch.cat([value, value.new_zeros(lacking, *value.shape[1:])])
    parts = padded.unflatten(0, (-1, length))  # [⌈T / L⌉, L, N, ...]
    return parts.movedim(2, 0).flatten(0, 1)
