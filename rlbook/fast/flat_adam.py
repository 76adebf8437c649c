"""A network's parameters in one flat tensor: one clip and one fused Adam step, however many layers there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from rlbook.agent import State

fused_adamw = torch.ops.aten._fused_adamw_.default


class FlatAdam:
    """Adam over all trainable parameters of some modules, which become views into one tensor.

    m ← β₁ m + (1-β₁) g,   v ← β₂ v + (1-β₂) g²,   θ ← θ (1 - η w) - η m̂ / (√v̂ + ε),   m̂ = m / (1-β₁ᵗ),   v̂ = v / (1-β₂ᵗ)

    Args:
        modules: the networks to train; a parameter shared between them counts once.
        learning_rate: η.
        eps: ε, added to √v̂; PPO uses 1e-5 (detail 3 of the 37).
        weight_decay: w, decoupled (AdamW).

    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
    The step is torch's kernel; going through its optimiser object would cost a second of imports, and 45 µs more a step.
    """

    def __init__(
        self, modules: Iterable[nn.Module], learning_rate: float, *, eps: float = 1e-8, betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        parameters = list(dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad))
        self.learning_rate, self.eps, self.betas, self.weight_decay = learning_rate, eps, betas, weight_decay
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.grad = torch.zeros_like(self.flat)
        self.mean, self.square, self.steps = torch.zeros_like(self.flat), torch.zeros_like(self.flat), torch.zeros(())
        start = 0
        for p in parameters:
            span = slice(start, start + p.numel())
            p.data = self.flat[span].view_as(p)
            p.grad = self.grad[span].view_as(p)
            start = span.stop

    def step(self, losses: Tensor | Iterable[Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Minimises the sum of `losses` by one Adam step. Several losses are micro-batches: each is backpropagated in turn.

        Returns:
            The gradient's L2 norm before clipping, a scalar tensor.
        """
        self.grad.zero_()
        for loss in [losses] if isinstance(losses, Tensor) else losses:
            loss.backward()
        norm = torch.linalg.vector_norm(self.grad)
        if max_grad_norm is not None and (length := norm.item()) > max_grad_norm:
            self.grad.mul_(max_grad_norm / (length + 1e-6))
        self._descend()
        return norm

    def _descend(self) -> None:
        self.steps += 1
        fused_adamw(
            [self.flat], [self.grad], [self.mean], [self.square], [], [self.steps], amsgrad=False, maximize=False,
            lr=self.learning_rate, beta1=self.betas[0], beta2=self.betas[1], eps=self.eps, weight_decay=self.weight_decay,
        )  # fmt: skip

    def state_dict(self) -> State:
        """The moments. The parameters belong to their modules."""
        return {"mean": self.mean.clone(), "square": self.square.clone(), "steps": self.steps.clone()}

    def load_state_dict(self, state: State) -> None:
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps.copy_(state["steps"])


def micro_batches(rows: int, size: int | None, loss: Callable[[slice], Tensor]) -> Iterable[Tensor]:
    """`loss` of consecutive slices of at most `size` rows, one at a time; all rows at once where `size` is None."""
    size = size or rows
    return (loss(slice(start, start + size)) for start in range(0, rows, size))
