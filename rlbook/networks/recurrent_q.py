"""A Q-network with a memory: Q of the observations so far in the episode, instead of Q(s, ·).

    x_t = torso(o_t)              hidden layers, or the filters of images
    h_t = core(x_t, h_{t-1})      a GRU or an LSTM; what is remembered is 0 where an episode starts
    Q(h_t, ·)                     a layer, or the two streams of a dueling network; hidden layers
                                  before them if asked for

Source: Hausknecht & Stone 2015 (DRQN), arXiv:1507.06527, figure 2; burn-in: Kapturowski et al. 2019
(R2D2), section 3.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.data.sequence_replay import Sequences
from rlbook.errors import RequestError
from rlbook.networks.cnn import value_filters
from rlbook.networks.mlp import ACTIVATIONS, MLP
from rlbook.networks.model_spec import Named
from rlbook.networks.q_network import QNetwork, QSettings
from rlbook.networks.recurrent import NEEDS_MEMORY, RecurrentCore
from rlbook.networks.recurrent_memory import RecurrentMemory
from rlbook.networks.values import ActionValue


class RecurrentQ(nn.Module):
    """Q(h_t, ·) for observations, one step at a time or in whole sequences.

    Args:
        space: of the observations.
        num_actions: A.
        hidden_sizes: units of the torso's layers; the core has as many as the last of them.
        generator: draws the weights.
        settings: `recurrent` names the core, `post_hidden_sizes` the hidden layers after it;
            `dueling` the streams that follow.
        network: the filters by name, or a network of one's own; see `rlbook.networks.cnn`.
        activation: of the torso's layers, one of `ACTIVATIONS`.

    Raises:
        ValueError: there is no hidden layer.
    """

    def __init__(
        self,
        space: spaces.Space,
        num_actions: int,
        hidden_sizes: tuple[int, ...],
        generator: torch.Generator,
        settings: QSettings,
        network: Named | None = None,
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        assert settings.recurrent is not None
        if not hidden_sizes:
            raise ValueError("hidden_sizes must name a layer with recurrent, got none")
        hidden = hidden_sizes[-1]
        self.filters, inputs = value_filters(space, generator, network)
        sizes = (inputs, *hidden_sizes)
        self.torso = MLP(sizes, generator, activation=activation, orthogonal=False)
        self.core = RecurrentCore(settings.recurrent, hidden, hidden, generator, orthogonal=False)
        remembered = spaces.Box(-1.0, 1.0, (hidden,))
        self.head = QNetwork(
            remembered,
            num_actions,
            settings.post_hidden_sizes,
            generator,
            QSettings(dueling=settings.dueling),
            activation=activation,
        )

    @property
    def state_size(self) -> int:
        """S, the size of the recurrent state."""
        return self.core.state_size

    def features(self, obs: Tensor) -> Tensor:
        """The input of the core: [..., O] → [..., F]."""
        seen = obs if self.filters is None else self.filters.features(obs)
        return ACTIVATIONS[self.torso.activation](self.torso(seen))

    def initial_state(self) -> RecurrentMemory:
        """The recurrent state at the start of an episode: zeros."""
        return RecurrentMemory(self.core.initial_state(1)[0])

    def step(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step: observations [N, ...] and the state before them [N, S] → Q [N, A], in reward
        units, and the state after them [N, S]."""
        output, state = self.core.step(self.features(obs), state)
        return self.head(output), state

    def forward(self, sequences: Sequences) -> Tensor:
        """Q(h_t, ·) after the burn-in: B sequences of L + 1 observations → [B, L + 1, A], in reward
        units. The burn-in recomputes the stored state with the current weights, without
        gradient."""
        obs, starts, burn_in = sequences.obs, sequences.starts.T, sequences.burn_in
        state = sequences.state
        if burn_in:
            with torch.no_grad():
                seen = self.features(obs[:, :burn_in]).transpose(0, 1)  # [burn_in, B, F]
                _, state = self.core(seen, state, starts[:burn_in])
        seen = self.features(obs[:, burn_in:]).transpose(0, 1)  # [L + 1, B, F]
        outputs, _ = self.core(seen, state, starts[burn_in:])
        return self.head(outputs.transpose(0, 1))

    def heads(self) -> list[nn.Parameter]:
        """The parameters of the output layers."""
        return self.head.heads()


@torch.inference_mode()
def acting_values(
    network: ActionValue,
    obs: Tensor,
    rng: np.random.Generator | None = None,
    memory: RecurrentMemory | None = None,
) -> Tensor:
    """Q of the current observations, [N, ...] → [N, A], in reward units, without gradient.

    Args:
        network: of a `RecurrentQ` the memory goes on by this step.
        obs: the observations.
        rng: of a noisy network; None for no noise.
        memory: what a `RecurrentQ` remembers of the N episodes.

    Raises:
        RequestError: a network that remembers was given no memory.
    """
    if not isinstance(network, RecurrentQ):
        return network(obs) if rng is None else network(obs, rng)  # type: ignore[call-arg]
    if memory is None:
        raise RequestError(NEEDS_MEMORY)
    before = memory.rows(len(obs))
    values, after = network.step(obs, before)
    memory.advance(before, after)
    return values
