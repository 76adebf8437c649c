"""A recurrent core over whole sequences in one call of PyTorch's own loop.

That loop has no resets. So each sequence is cut where an episode starts; the pieces, of any
lengths, go through side by side, as PyTorch packs them: step k of all pieces of more than k steps
is one product. Where episodes are short there are fewer such steps than the sequence has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.fast.modules import is_unmodified, ordinary
from rlbook.networks.recurrent import RecurrentCore


def forward(
    core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """The fast form of `RecurrentCore.forward`."""
    if not _is_known(core, features, state, starts):
        return RecurrentCore.forward.plain(core, features, state, starts)  # type: ignore[attr-defined]
    weights: list[Tensor] = [core.input_weight, core.state_weight, core.input_bias, core.state_bias]
    steps, rows, _ = features.shape
    packing = Packing(starts)
    packed = features.reshape(steps * rows, -1)[packing.order]
    before = state.masked_fill(starts[0][:, None], 0.0)
    begun = before.new_zeros(packing.count, state.shape[1])
    begun = begun.index_copy(0, packing.first, before)  # what begins later remembers nothing
    # biases, one layer, no dropout, not training, one direction
    settings = (weights, True, 1, 0.0, False, False)
    if core.kind == "gru":
        found, h = torch.gru(packed, packing.sizes, begun[None], *settings)
        after = h[0]
    else:
        parts = [part[None].contiguous() for part in begun.split(core.hidden, dim=1)]
        found, h, c = torch.lstm(packed, packing.sizes, parts, *settings)
        after = torch.cat([h[0], c[0]], -1)
    outputs = found[packing.place].view(steps, rows, core.hidden)
    return outputs, after[packing.last]


class Packing:
    """Where each step of sequences [T, B] lies when they are cut where an episode starts.

    `order` [T·B] and its inverse `place`: the steps as PyTorch packs them, first the first step of
    all pieces, the longest piece first. `sizes`: pieces of more than k steps, for each k. `first`
    and `last` [B]: the pieces in which the sequences begin and end, of `count`.
    """

    def __init__(self, starts: Tensor) -> None:
        steps, rows = starts.shape
        begins = starts.t().clone()
        begins[:, 0] = True  # [B, T]
        piece = begins.reshape(-1).cumsum(0) - 1  # of each step, sequence after sequence
        length = piece.bincount()
        self.count = len(length)
        since = torch.arange(steps * rows) - (length.cumsum(0) - length)[piece]
        rank = torch.empty_like(length)
        rank[length.argsort(descending=True, stable=True)] = torch.arange(self.count)
        row, time = torch.arange(rows)[:, None], torch.arange(steps)
        step_at = (time * rows + row).reshape(-1)  # its row in [T·B]
        along = (since * self.count + rank[piece]).argsort()
        self.order = step_at[along]
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(steps * rows)
        self.sizes = since.bincount()
        ends = rank[piece].view(rows, steps)
        self.first, self.last = ends[:, 0], ends[:, -1]


def _is_known(core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor) -> bool:
    """Whether PyTorch's loop computes what the core's own would."""
    weights = list(core._parameters.values())
    plain = type(core) is RecurrentCore and is_unmodified(core) and "step" not in core.__dict__
    return (
        plain
        and ordinary()
        and len(weights) == 4
        and all(type(weight) is torch.nn.Parameter for weight in weights)
        and all(tensor.is_cpu for tensor in (features, starts))
        and all(
            tensor is not None and tensor.is_cpu and tensor.dtype is features.dtype
            for tensor in (state, *weights)
        )
        and features.dtype in (torch.float32, torch.float64)
        and starts.dtype is torch.bool
        and len(features) > 0
    )
