"""A network's parameters in one flat tensor: one clip and one fused Adam call, however many layers there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from rlbook.agent import State


class FlatAdam:
    """Adam over all trainable parameters of some modules, which become views into one tensor.

    Args:
        modules: the networks to train; a parameter shared between them counts once.
        learning_rate: Adam's step size.
        eps: Adam's ε; PPO uses 1e-5 (detail 3 of the 37).
        weight_decay: decoupled (AdamW).

    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1. The flat layout is ours and changes no number but the norm's rounding.
    """

    def __init__(self, modules: Iterable[nn.Module], learning_rate: float, *, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        parameters = list(dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad))
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
        self.flat.grad = torch.zeros_like(self.flat)
        start = 0
        for p in parameters:
            span = slice(start, start + p.numel())
            p.data = self.flat.data[span].view_as(p)
            p.grad = self.flat.grad[span].view_as(p)
            start = span.stop
        self.adam = torch.optim.AdamW([self.flat], lr=learning_rate, eps=eps, weight_decay=weight_decay, fused=True)

    def step(self, losses: Tensor | Iterable[Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Minimises the sum of `losses` by one Adam step. Several losses are micro-batches: each is backpropagated in turn.

        Returns:
            The gradient's L2 norm before clipping, a scalar tensor.
        """
        grad = self.gradient([losses] if isinstance(losses, Tensor) else losses)
        norm = torch.linalg.vector_norm(grad)
        if max_grad_norm is not None:
            grad.mul_((max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._adam_step()
        return norm

    def gradient(self, losses: Iterable[Tensor]) -> Tensor:
        """The gradient of the sum of `losses`, flat; valid until the next call."""
        grad = self.flat.grad
        assert grad is not None
        grad.zero_()
        for loss in losses:
            loss.backward()
        return grad

    def _adam_step(self) -> None:
        self.adam.step()

    def set_learning_rate(self, learning_rate: float) -> None:
        self.adam.param_groups[0]["lr"] = learning_rate

    def state_dict(self) -> State:
        """Adam's moments, and the parameters themselves."""
        moments = self.adam.state.get(self.flat, {})
        return {"parameters": self.flat.detach().clone(), **{name: value.clone() for name, value in moments.items()}}

    def load_state_dict(self, state: State) -> None:
        with torch.no_grad():
            self.flat.copy_(state["parameters"])
        moments = {name: value.clone() for name, value in state.items() if name != "parameters"}
        if moments:
            self.adam.state[self.flat] = moments


def micro_batches(rows: int, size: int | None, loss: Callable[[slice], Tensor]) -> Iterable[Tensor]:
    """`loss` of consecutive slices of at most `size` rows, one at a time; all rows at once where `size` is None."""
    size = size or rows
    return (loss(slice(start, start + size)) for start in range(0, rows, size))
