"""A network's parameters in one flat tensor: one clip and one step of Adam or RMSprop, however many
layers there are.

The fast forms of `rlbook.networks.optimizer.adam` and `rmsprop`, equal to them up to rounding.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.errors import TrainingError
from rlbook.fast.matrix_product import LIBRARY
from rlbook.fast.modules import iterate_modules
from rlbook.networks import optimizer
from rlbook.networks.data_parallel import sum_gradient
from rlbook.networks.optimizer import REPLACED, Adam, Group, Optimizer, trainable

FUSED_ADAMW = getattr(torch.ops.aten, "_fused_adamw_", None)
"""torch's kernel of a whole AdamW step, a private function. Going through `torch.optim.AdamW` would
cost a second of imports, and 45 µs more a step; without the kernel the plain optimiser runs."""


def adam(
    groups: Sequence[Group],
    learning_rate: float,
    *,
    eps: float = 1e-8,
    betas: tuple[float, float] = (0.9, 0.999),
    warmup_steps: int = 0,
) -> Optimizer:
    """`FlatAdam` if all parameters have the same floating-point type and are on the CPU, otherwise
    the plain optimiser."""
    if FUSED_ADAMW is None or not _have_one_kind(groups):
        plain = optimizer.adam.plain  # type: ignore[attr-defined]
        return plain(groups, learning_rate, eps=eps, betas=betas, warmup_steps=warmup_steps)
    return FlatAdam(groups, learning_rate, eps=eps, betas=betas, warmup_steps=warmup_steps)


def rmsprop(
    groups: Sequence[Group],
    learning_rate: float,
    *,
    eps: float = 1e-5,
    decay: float = 0.99,
    warmup_steps: int = 0,
) -> Optimizer:
    """`FlatRMSprop` where `adam` returns `FlatAdam`."""
    if not _have_one_kind(groups):
        plain = optimizer.rmsprop.plain  # type: ignore[attr-defined]
        return plain(groups, learning_rate, eps=eps, decay=decay, warmup_steps=warmup_steps)
    return FlatRMSprop(
        groups, learning_rate, eps=eps, betas=(0.0, decay), warmup_steps=warmup_steps
    )


def _have_one_kind(groups: Sequence[Group]) -> bool:
    """Whether all parameters have the same floating-point type and are on the CPU."""
    kinds = {(type(p), p.dtype, p.device.type) for p in trainable(groups)}
    return len(kinds) == 1 and kinds <= {
        (nn.Parameter, dtype, "cpu") for dtype in (torch.float32, torch.float64)
    }


class FlatAdam:
    """Adam over all trainable parameters of some modules, which become views into one tensor; see
    `rlbook.networks.optimizer`.

    Args:
        groups: the networks to train, and how; a parameter shared between them counts once.
        learning_rate: η.
        eps, betas: ε and (β₁, β₂).
        warmup_steps: steps in which the rate rises linearly from 0 to η.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("mean", "square", "steps")
    """The names of its state in a checkpoint."""

    def __init__(
        self,
        groups: Sequence[Group],
        learning_rate: float,
        *,
        eps: float = 1e-8,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
    ) -> None:
        self.warmup_steps = warmup_steps
        self.learning_rate, self.eps, self.betas = learning_rate, eps, betas
        owners = trainable(groups)
        self.parameters = list(owners)
        ends = itertools.accumulate(parameter.numel() for parameter in self.parameters)
        self.spans = _spans([*zip(ends, owners.values(), strict=True)])
        self._flatten()
        self.mean, self.square, self.steps = (
            torch.zeros_like(self.flat),
            torch.zeros_like(self.flat),
            torch.zeros(()),
        )
        self._split_groups()
        self._watched = _ModuleSnapshot(
            [module for group in groups for module in group.modules], self.parameters
        )

    def _flatten(self) -> None:
        """Puts all parameters into one tensor, and makes room for their gradients in another."""
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.grad = torch.zeros_like(self.flat)
        self.views: list[Tensor] = []
        start = 0
        for parameter in self.parameters:
            span = slice(start, start + parameter.numel())
            parameter.data = self.flat[span].view_as(parameter)
            self.views.append(self.grad[span].view_as(parameter))
            parameter.grad = self.views[-1]
            start = span.stop
        self._lent: list[weakref.ref[Tensor]] = []  # moments that a saved state shares

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: what `_flatten` makes is left out, because a pickle does not
        keep that tensors share their memory."""
        made = ("flat", "grad", "views", "pieces", "_lent")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._flatten()
        self._split_groups()
        self._watched.remember()

    def _split_groups(self) -> None:
        """The tensors group by group."""
        self.pieces = [
            (group, *(x[span] for x in (self.flat, self.grad, self.mean, self.square)))
            for span, group in self.spans
        ]

    def step(self, losses: Tensor | Iterable[Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Minimises the sum of `losses` by one Adam step. Several losses are micro-batches: each is
        backpropagated in turn.

        Returns:
            The gradient's L2 norm before clipping, a scalar tensor.

        Raises:
            TrainingError: the parameters of the networks are no longer those that this optimiser
                holds.
        """
        self.clear_gradient()
        for loss in [losses] if isinstance(losses, Tensor) else losses:
            loss.backward()
        return self.descend(max_grad_norm)

    def clear_gradient(self) -> None:
        """Sets the gradient to 0, ready to be written into `views`. Raises what `step` raises."""
        self._watched.check()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is not view:  # after zero_grad(), which sets it to None
                parameter.grad = view
        self.grad.zero_()

    def descend(self, max_grad_norm: float | None = None) -> Tensor:
        """One Adam step down the gradient that was written. Returns what `step` returns."""
        sum_gradient(self.grad)
        norm = torch.linalg.vector_norm(self.grad)
        if max_grad_norm is not None and (length := norm.item()) > max_grad_norm:
            self.grad.mul_(max_grad_norm / (length + 1e-6))
        if self._lent:
            self._detach_saved()
        self._descend()
        return norm

    step_size = Adam.step_size

    def _descend(self) -> None:
        assert FUSED_ADAMW is not None
        step_size = self.step_size
        self.steps += 1
        for group, theta, gradient, mean, square in self.pieces:
            FUSED_ADAMW.default(
                [theta],
                [gradient],
                [mean],
                [square],
                [],
                [self.steps],
                amsgrad=False,
                maximize=False,
                lr=step_size * group.rate,
                beta1=self.betas[0],
                beta2=self.betas[1],
                eps=self.eps,
                weight_decay=group.weight_decay,
            )
        # whoever remembers weights can see it
        torch.autograd.graph.increment_version(self.parameters)

    def state_dict(self) -> State:
        """The moments, and which library multiplied the matrices. The parameters belong to their
        modules.

        The moments are copied where somebody still has these when they are about to change, and not
        before: writing a checkpoint of a large model takes no second copy of them.
        """
        shared = {name: getattr(self, name).detach() for name in self.NAMES}
        self._lent += map(weakref.ref, shared.values())
        return {**shared, "matrix_library": LIBRARY}

    def _detach_saved(self) -> None:
        """Leaves the moments to the saved states that share them, and continues with copies."""
        if any(shared() is not None for shared in self._lent):
            for name in self.NAMES:
                setattr(self, name, getattr(self, name).clone())
            self._split_groups()
        self._lent = []

    def load_state_dict(self, state: State) -> None:
        self._detach_saved()
        for name in self.NAMES:
            getattr(self, name).copy_(state[name])


class FlatRMSprop(FlatAdam):
    """RMSprop as `FlatAdam` is Adam; `mean` stays 0 and is not saved."""

    NAMES: ClassVar[tuple[str, ...]] = ("square", "steps")

    def _descend(self) -> None:
        step_size, decay = self.step_size, self.betas[1]
        self.steps += 1
        for group, theta, gradient, _, square in self.pieces:
            rate = step_size * group.rate
            square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
            if group.weight_decay:
                theta.mul_(1 - rate * group.weight_decay)
            theta.addcdiv_(gradient, square.sqrt().add_(self.eps), value=-rate)
        # whoever remembers weights can see it
        torch.autograd.graph.increment_version(self.parameters)


def _spans(ends: Sequence[tuple[int, Group]]) -> list[tuple[slice, Group]]:
    """The spans of each group's parameters: adjacent groups with the same rate and decay are one
    span. `ends`: where each parameter ends, and its group."""
    spans: list[tuple[slice, Group]] = []
    start = 0
    for end, group in ends:
        if spans and spans[-1][1][1:] == group[1:]:
            spans[-1] = (slice(spans[-1][0].start, end), group)
        else:
            spans.append((slice(start, end), group))
        start = end
    return spans


class _ModuleSnapshot:
    """The modules, and the parameters whose memory an optimiser holds, to check that they are still
    the same."""

    def __init__(self, modules: Sequence[nn.Module], parameters: Sequence[nn.Parameter]) -> None:
        everything = dict.fromkeys(module for root in modules for module in iterate_modules(root))
        self.held = [
            held for module in everything for held in (module._modules, module._parameters) if held
        ]
        self.empty = [
            held
            for module in everything
            for held in (module._modules, module._parameters)
            if not held
        ]
        self.all = [
            p for module in everything for p in module._parameters.values() if p is not None
        ]
        self.parameters = parameters
        self.remember()

    def remember(self) -> None:
        """From now on they are to stay as they are at this moment."""
        self.before = self._identity()

    def _identity(self) -> tuple[list[int], list[bool], list[int]]:
        return (
            [id(value) for held in self.held for value in held.values()],
            [p.requires_grad for p in self.all],
            [p.data_ptr() for p in self.parameters],
        )

    def check(self) -> None:
        """Raises TrainingError if they are not."""
        if self._identity() != self.before or any(self.empty):
            raise TrainingError(REPLACED)
