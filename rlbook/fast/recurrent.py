"""A recurrent core over whole sequences as one node of autograd's graph.

An LSTM is PyTorch's own. PyTorch's GRU records a dozen nodes for each step on the CPU; so here is
one with its gradient through time written out. Each sequence is cut where an episode starts. The
pieces, of any lengths, go through side by side: step k of all pieces of more than k steps is one
product. Where episodes are short there are fewer such steps than the sequence has. What the gradient
needs of each gate is a factor that is computed for all steps at once; so a step back through time
is four operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlbook.fast.modules import is_default_context, is_unmodified
from rlbook.networks.recurrent import RecurrentCore


def forward(
    core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """The fast form of `RecurrentCore.forward`."""
    if not _is_known(core, features, state, starts):
        return RecurrentCore.forward.plain(core, features, state, starts)  # type: ignore[attr-defined]
    return (_gru if core.kind == "gru" else _lstm)(core, features, state, starts)


def _gru(
    core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """A GRU: each sequence is cut where an episode starts, and the pieces are processed in
    parallel."""
    packing = Packing(starts)
    seen = torch.nn.functional.linear(features, core.input_weight, core.input_bias)
    packed = seen.flatten(0, 1)[packing.order]
    before = state.masked_fill(starts[0][:, None], 0.0)
    begun = before.new_zeros(packing.count, state.shape[1])
    begun = begun.index_copy(0, packing.first, before)  # what begins later remembers nothing
    found = _Gru.apply(packed, begun, core.state_weight, core.state_bias, packing.sizes)
    outputs = found[packing.place].view(*starts.shape, core.hidden)
    return outputs, outputs[-1]


class Packing:
    """The place of each step of sequences [T, B] after they are cut where an episode starts.

    `order` [T·B] and its inverse `place`: first the first step of all pieces, the longest piece
    first, then their second step, and so on. `sizes`: the pieces of more than k steps, for each k.
    `first` [B]: the pieces that the sequences begin with, of `count`.
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
        along = (since * self.count + rank[piece]).argsort()
        self.order = (time * rows + row).reshape(-1)[along]
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(steps * rows)
        self.sizes: list[int] = since.bincount().tolist()
        self.first = rank[piece[::steps]]


class _Gru(torch.autograd.Function):
    """h of a GRU at all M packed steps; see `rlbook.functional.recurrent_cells.gru_cell`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, seen: Tensor, begun: Tensor, weight: Tensor, bias: Tensor, sizes: list[int]
    ) -> Tensor:
        """seen [M, 3H]: W x + b; begun [P, H]; weight and bias of U h; sizes: see `Packing`."""
        units = weight.shape[1]
        gates, new = seen[:, : 2 * units].contiguous(), seen[:, 2 * units :].contiguous()
        gates += bias[: 2 * units]
        into_gates, into_new = weight[: 2 * units].t(), weight[2 * units :].t()
        offset, outputs, from_state = (
            bias[2 * units :],
            torch.empty_like(new),
            torch.empty_like(new),
        )
        every = (gates, gates[:, :units], gates[:, units:], new, from_state, outputs)
        before = begun
        for both, reset, update, n, s, h in zip(
            *(item.split(sizes) for item in every), strict=True
        ):
            before = before[: len(n)]
            both.addmm_(before, into_gates).sigmoid_()
            torch.addmm(offset, before, into_new, out=s)
            n.addcmul_(reset, s).tanh_()
            before = torch.lerp(n, before, update, out=h)
        befores = torch.cat([begun, *_previous_outputs(outputs, sizes)])
        ctx.save_for_backward(gates, new, from_state, befores, weight)
        ctx.sizes = sizes
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gates, new, from_state, befores, weight = ctx.saved_tensors
        reset, update = gates.chunk(2, -1)
        # ∂h'/∂(what goes into n, r and z), and into what r is multiplied with
        for_new = (1.0 - update) * (1.0 - new.square())
        for_reset = for_new * from_state * reset * (1.0 - reset)
        for_update = (befores - new) * update * (1.0 - update)
        factors = torch.stack([for_reset, for_update, for_new * reset], 1)  # [M, 3, H]
        into, through = torch.empty_like(factors), slope.clone()
        carry: Tensor | None = None
        parts = (part.split(ctx.sizes) for part in (through, factors, into, update))
        for dh, factor, found, kept in reversed(list(zip(*parts, strict=True))):
            if carry is not None:
                dh[: len(carry)] += carry
            torch.mul(dh[:, None], factor, out=found)
            carry = torch.addmm(dh * kept, found.flatten(1), weight)
        from_h = into.flatten(1)  # [M, 3H]
        seen = torch.cat([from_h[:, : 2 * new.shape[1]], through * for_new], -1)
        return seen, carry, from_h.t() @ befores, from_h.sum(0), None


def _previous_outputs(outputs: Tensor, sizes: list[int]) -> list[Tensor]:
    """The outputs [M, H] that are followed by a further step, step after step."""
    parts = outputs.split(sizes)[:-1]
    return [part[:size] for part, size in zip(parts, sizes[1:], strict=True)]


def _lstm(
    core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """PyTorch's own LSTM, which on the CPU is oneDNN's. It has no resets; so where an episode
    starts, a step is inserted whose input closes all gates and leaves h = 0 and c = 0. Shorter rows
    are padded with steps whose input keeps c. State: see `RecurrentCore`."""
    before = state.masked_fill(starts[0][:, None], 0.0)
    weights: list[Tensor] = [core.input_weight, core.state_weight, core.input_bias, core.state_bias]
    settings = (True, 1, 0.0, False, False, False)  # biases, one layer, no dropout, one way
    hidden = [part[None].contiguous() for part in before.chunk(2, -1)]
    if not starts[1:].any():
        outputs, h, c = torch.lstm(features, hidden, weights, *settings)
        return outputs, torch.cat([h[0], c[0]], -1)
    (steps, rows), width = starts.shape, features.shape[-1]
    wiped = torch.cat([torch.zeros_like(starts[:1]), starts[1:]]).cumsum(0)  # [T, B], so far
    most = int(wiped[-1].max())
    place = (torch.arange(steps)[:, None] + wiped) * rows + torch.arange(rows)
    inputs = features.new_zeros(steps + most, rows, width + 2)
    beyond = torch.arange(steps + most)[:, None] >= steps + wiped[-1]
    inputs[..., width], inputs[..., width + 1] = ~beyond, beyond
    seen = torch.cat([features, features.new_zeros(steps, rows, 2)], -1)
    inputs = inputs.flatten(0, 1).index_copy(0, place.flatten(), seen.flatten(0, 1))
    closing = _gates(core, WIPE, features), _gates(core, KEEP, features)
    weights[0] = torch.cat([core.input_weight, *closing], -1)
    inputs = inputs.view(steps + most, rows, width + 2)
    outputs, _, c = torch.lstm(inputs, hidden, weights, *settings)
    outputs = outputs.flatten(0, 1)[place.flatten()].view(steps, rows, core.hidden)
    return outputs, torch.cat([outputs[-1], c[0]], -1)


WIPE, KEEP = (-1e4, -1e4, 0.0, -1e4), (-1e4, 1e4, 0.0, 0.0)
"""The inputs of the gates i, f, g and o: σ of them is 0 or 1 in single and in double precision."""


def _gates(core: RecurrentCore, values: tuple[float, ...], like: Tensor) -> Tensor:
    """The weights [4H, 1] of an input that sets the gates."""
    return like.new_tensor(values).repeat_interleave(core.hidden)[:, None]


def _is_known(core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor) -> bool:
    """Whether the core's own loop would compute the same."""
    weights = list(core._parameters.values())
    plain = type(core) is RecurrentCore and is_unmodified(core) and "step" not in core.__dict__
    return (
        plain
        and is_default_context()
        and len(weights) == 4
        and all(type(weight) is torch.nn.Parameter for weight in weights)
        and all(
            tensor is not None and tensor.is_cpu and tensor.dtype is features.dtype
            for tensor in (features, state, *weights)
        )
        and features.dtype in (torch.float32, torch.float64)
        and starts.dtype is torch.bool
        and starts.is_cpu
        and len(features) > 0
    )
