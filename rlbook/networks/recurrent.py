"""Recurrent networks: they remember what they saw earlier in an episode.

    x_t = torso(o_t)                    the hidden layers of an MLP, or the filters of images
    h_t = core(x_t, h_{t-1})            a GRU or an LSTM; h is 0 where an episode starts
    π(·|h_t), V(h_t)                    the output layers

A network is computed in two ways, which a test holds equal: a `step` at a time, where it acts, and
`forward` through whole sequences, where it learns and the gradient flows back through time.

Shapes: T steps, B rows (environments, or sequences of a minibatch), F features, H units, S numbers
that are remembered: h of a GRU, or h and c of an LSTM side by side. The state before the first step
of an episode is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbook.checks import check_memory
from rlbook.fast_forms import has_fast_form
from rlbook.functional.recurrent_cells import gru_cell, lstm_cell

GATES = {"gru": 3, "lstm": 4}
"""Kind of a core → parts of H numbers that its weights compute, in the order of the cell."""


class RecurrentCore(nn.Module):
    """[T, B, F] → [T, B, H]: a GRU or an LSTM, which may start anew at any step.

    Args:
        kind: "gru" or "lstm".
        inputs: F.
        hidden: H.
        generator: draws the weights.
        orthogonal: orthogonal weights and zero biases; false: uniform in ±1/√H, as in torch.

    Source: `rlbook.functional.recurrent_cells`; resets inside a sequence as in "The 37
    Implementation Details of PPO", LSTM details 2 and 5, the initial weights in detail 1.
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

    def initial_state(self, batch: int) -> Tensor:
        """What is remembered before the first step of an episode: zeros [B, S]."""
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
        """Whole sequences.

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
