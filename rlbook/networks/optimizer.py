"""torch's Adam and RMSprop, the gradient step, and a loss's output with its metrics.

    m ← β₁ m + (1-β₁) g,   v ← β₂ v + (1-β₂) g²,   θ ← θ (1 - η w) - η m̂ / (√v̂ + ε)
    m̂ = m / (1-β₁ᵗ),   v̂ = v / (1-β₂ᵗ)

Weights of 16 bits have a float32 copy, which is what is stepped, and float32 moments; they are that
copy, rounded. bfloat16 has 8 significant bits: a step smaller than 1/512 of a weight would round
to nothing, and with η = 1e-6 nearly all are.

Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; the decay w apart from the gradient:
Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.errors import TrainingError
from rlbook.fast_forms import has_fast_form
from rlbook.interaction.process_group import ProcessGroup
from rlbook.networks.data_parallel import split_step, sum_gradients, summed_gradients


class LossOutput(NamedTuple):
    """The result of an agent's `loss` on a batch of rows."""

    loss: Tensor  # a scalar, minimised
    metrics: dict[str, Tensor]  # scalars without gradient, by name; those of micro-batches add up


class Group(NamedTuple):
    """Parameters that share their optimiser settings."""

    modules: Sequence[nn.Module]
    rate: float = 1.0  # multiplies the learning rate
    weight_decay: float = 0.0  # w, share of the weights taken off per unit of learning rate


class Optimizer(Protocol):
    """The optimiser interface that `gradient_step` needs."""

    learning_rate: float

    @property
    def step_size(self) -> float: ...

    def step(
        self, losses: Tensor | Iterable[Tensor], max_grad_norm: float | None = None
    ) -> Tensor: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Rows(Protocol):
    """The part of a batch's interface that splitting it needs."""

    def __len__(self) -> int: ...


R = TypeVar("R", bound=Rows)
Split = Literal["rows", "outputs", "nothing"]


@has_fast_form
def gradient_step(
    optimizer: Optimizer,
    loss: Callable[[R], LossOutput],
    batch: R,
    *,
    micro_batch_size: int | None = None,
    max_grad_norm: float | None = None,
    split: Split = "rows",
) -> dict[str, Tensor]:
    """One gradient step on the loss of a batch. Where torchrun has started several processes, each
    backpropagates its own rows; see `rlbook.networks.data_parallel`.

    Args:
        optimizer: of the parameters that the loss depends on.
        loss: of some rows; the losses of all micro-batches add up to that of the batch.
        batch: the rows.
        micro_batch_size: rows backpropagated at once; affects memory, not the gradient.
            None takes all.
        max_grad_norm: the gradient's L2 norm is clipped to this.
        split: what several processes have of the step. "rows": the loss is a mean over rows, or a
            sum of their shares, and each process has that of its own rows. "outputs": it is
            computed in each from the network's outputs for all rows, which `outputs_of_rows`
            gathers. "nothing": each process computes all of it.

    Returns:
        The loss's metrics, and "grad_norm", the gradient's L2 norm before clipping.
    """
    group = ProcessGroup.training
    if group is not None and split != "nothing":
        own = partial(
            gradient_step,
            optimizer,
            loss,
            micro_batch_size=micro_batch_size,
            max_grad_norm=max_grad_norm,
            split="nothing",
        )
        if split == "rows":
            return split_step(group, own, batch)
        with summed_gradients(group, 1.0):
            return own(batch)
    metrics: dict[str, Tensor] = {}
    if micro_batch_size is None or micro_batch_size >= len(batch):
        total, metrics = loss(batch)
        return {**metrics, "grad_norm": optimizer.step(total, max_grad_norm)}

    def losses() -> Iterable[Tensor]:
        for start in range(0, len(batch), micro_batch_size):
            output = loss(batch[start : start + micro_batch_size])  # type: ignore[index]
            for name, value in output.metrics.items():
                metrics[name] = metrics[name] + value if name in metrics else value
            yield output.loss

    metrics["grad_norm"] = optimizer.step(losses(), max_grad_norm)
    return metrics


def mean_metrics(several: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """The mean of each metric over several gradient steps."""
    rows = [torch.stack(list(metrics.values())) for metrics in several]
    return dict(zip(several[0], torch.stack(rows).mean(0).tolist(), strict=True))


@has_fast_form
def adam(
    groups: Sequence[Group],
    learning_rate: float,
    *,
    eps: float = 1e-8,
    betas: tuple[float, float] = (0.9, 0.999),
    warmup_steps: int = 0,
) -> Optimizer:
    """Adam over all trainable parameters in `groups`.

    A parameter that groups share counts once, in the first group that has it.

    Args:
        groups: what to train, and how.
        learning_rate: η.
        eps: ε, added to √v̂; PPO uses 1e-5 (detail 3 of the 37).
        betas: β₁ and β₂.
        warmup_steps: steps in which the rate rises linearly from 0 to η; see `Adam.step_size`.
    """
    return Adam(groups, learning_rate, eps=eps, betas=betas, warmup_steps=warmup_steps)


@has_fast_form
def rmsprop(
    groups: Sequence[Group],
    learning_rate: float,
    *,
    eps: float = 1e-5,
    decay: float = 0.99,
    warmup_steps: int = 0,
) -> Optimizer:
    """As `adam`, with RMSprop.

    Args:
        groups: what to train, and how.
        learning_rate: η.
        eps: ε, added to √v.
        decay: β₂.
        warmup_steps: as in `adam`.
    """
    return RMSprop(groups, learning_rate, eps=eps, decay=decay, warmup_steps=warmup_steps)


class Adam:
    """`torch.optim.AdamW` on the parameters; 16-bit parameters are updated through float32 master
    copies."""

    NAMES: ClassVar[dict[str, str]] = {"mean": "exp_avg", "square": "exp_avg_sq"}
    """The names of each parameter's state in a checkpoint, and in torch."""

    def __init__(
        self,
        groups: Sequence[Group],
        learning_rate: float,
        *,
        eps: float,
        betas: tuple[float, float],
        warmup_steps: int = 0,
    ) -> None:
        columns = self._columns(groups, learning_rate)
        self.warmup_steps = warmup_steps
        self._begin(torch.optim.AdamW(columns, eps=eps, betas=betas, foreach=False))

    def _columns(self, groups: Sequence[Group], learning_rate: float) -> list[dict[str, Any]]:
        """The parameter groups passed to torch's optimiser: one for each parameter."""
        self.groups, self.learning_rate, self.parameters = groups, learning_rate, trainable(groups)
        self.masters = [_master_copy(p) for p in self.parameters]
        self._kinds = {p: (p.dtype, p.device) for p in self.parameters}
        return [
            {"params": [master], "lr": learning_rate, "weight_decay": group.weight_decay}
            for master, group in zip(self.masters, self.parameters.values(), strict=True)
        ]

    def _begin(self, optimizer: torch.optim.Optimizer) -> None:
        self.torch = optimizer
        self.steps = 0
        """The number of steps taken so far."""
        for master in self.masters:
            moments = {name: torch.zeros_like(master) for name in self.NAMES.values()}
            self.torch.state[master] = {"step": torch.tensor(0.0), **moments}

    @property
    def step_size(self) -> float:
        """The learning rate of the next step: η, or η min(1, k / w) after k steps of a warm-up of
        w, whose first step moves nothing.

        Source: Goyal et al. 2017, arXiv:1706.02677, section 2.2, as transformers'
        `get_constant_schedule_with_warmup` and verl's count the steps.
        """
        if not self.warmup_steps:
            return self.learning_rate
        return self.learning_rate * min(1.0, int(self.steps) / self.warmup_steps)

    def step(self, losses: Tensor | Iterable[Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Takes one step on the sum of `losses`.

        Several losses are micro-batches, each backpropagated in turn.

        Returns:
            The gradient's L2 norm before clipping, a scalar.
        """
        modules = [module for group in self.groups for module in group.modules]
        trained = [p for module in modules for p in module.parameters() if p.requires_grad]
        if {p: (p.dtype, p.device) for p in trained} != self._kinds:
            raise TrainingError(REPLACED)
        pairs = list(zip(self.parameters, self.masters, strict=True))
        copies = [(parameter, master) for parameter, master in pairs if master is not parameter]
        for parameter, master in pairs:
            parameter.grad = torch.zeros_like(parameter)
            master.grad = parameter.grad if master is parameter else torch.zeros_like(master)
        for loss in [losses] if isinstance(losses, Tensor) else losses:
            loss.backward()
            for parameter, master in copies:  # added up in float32, which keeps small terms
                assert parameter.grad is not None and master.grad is not None
                master.grad.add_(parameter.grad)
                parameter.grad.zero_()
        if ProcessGroup.training is not None:
            sum_gradients([master.grad for master in self.masters if master.grad is not None])
        limit, rate = math.inf if max_grad_norm is None else max_grad_norm, self.step_size
        norm = nn.utils.clip_grad_norm_(self.masters, limit, foreach=False)
        for settings, group in zip(self.torch.param_groups, self.parameters.values(), strict=True):
            settings["lr"] = rate * group.rate
        with torch.no_grad():
            for parameter, master in copies:
                kept = master.to(parameter.dtype) == parameter  # False where somebody set it
                master.copy_(torch.where(kept, master, parameter.to(master.dtype)))
            self.torch.step()
            for parameter, master in copies:
                parameter.copy_(master)
        self.steps += 1
        return norm

    def state_dict(self) -> State:
        """The moments, flattened and concatenated under the names of the fast form, and the float32
        master copies of 16-bit weights.

        The parameters belong to their modules.
        """
        named = {
            name: torch.cat([self.torch.state[m][theirs].reshape(-1) for m in self.masters])
            for name, theirs in self.NAMES.items()
        }
        copies = [copy.reshape(-1) for copy in self._copies()]
        masters = {"master": torch.cat(copies)} if copies else {}
        steps = torch.tensor(float(self.steps))
        return {**named, **masters, "steps": steps, "matrix_library": "torch"}

    def _copies(self) -> list[Tensor]:
        """The master copies, without the parameters that are their own master."""
        pairs = zip(self.parameters, self.masters, strict=True)
        return [master for parameter, master in pairs if master is not parameter]

    def load_state_dict(self, state: State) -> None:
        sizes = [p.numel() for p in self.parameters]
        for name, theirs in self.NAMES.items():
            for master, saved in zip(self.masters, state[name].split(sizes), strict=True):
                self.torch.state[master][theirs].copy_(saved.view_as(master))
        self.steps = int(state["steps"])
        for master in self.masters:
            self.torch.state[master]["step"].fill_(self.steps)
        copies = self._copies()
        if copies:
            parts = state["master"].split([copy.numel() for copy in copies])
            for copy, saved in zip(copies, parts, strict=True):
                copy.copy_(saved.view_as(copy))


class RMSprop(Adam):
    """`torch.optim.RMSprop`: Adam without the first moment and without bias correction.

    v ← β₂ v + (1-β₂) g²,   θ ← θ (1 - η w) - η g / (√v + ε)

    Source: Hinton 2012, Neural Networks for Machine Learning, lecture 6e; for actor-critics: Mnih
    et al. 2016, arXiv:1602.01783, eq. S2 and S3, where ε stands under the root. torch's own decay w
    would go into the gradient; here it is taken off the weights first, as Adam's is.
    """

    NAMES = {"square": "square_avg"}

    def __init__(
        self,
        groups: Sequence[Group],
        learning_rate: float,
        *,
        eps: float,
        decay: float,
        warmup_steps: int = 0,
    ) -> None:
        self.warmup_steps = warmup_steps
        columns = [
            column | {"weight_decay": 0.0} for column in self._columns(groups, learning_rate)
        ]
        self._begin(torch.optim.RMSprop(columns, eps=eps, alpha=decay, foreach=False))
        self.torch.register_step_pre_hook(lambda *_: self._decay())

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.torch.register_step_pre_hook(lambda *_: self._decay())  # which no pickle keeps

    @torch.no_grad()
    def _decay(self) -> None:
        rate = self.step_size
        for master, group in zip(self.masters, self.parameters.values(), strict=True):
            master.mul_(1 - rate * group.rate * group.weight_decay)


REPLACED = (
    "the network is no longer the one the optimiser was made for: a parameter was replaced, "
    "converted (such as by .double()), frozen, unfrozen or added; make a new optimiser"
)


def _master_copy(parameter: nn.Parameter) -> Tensor:
    """The tensor that the optimiser updates: the parameter, or a float32 master copy of a 16-bit
    one."""
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    return parameter if dtype == parameter.dtype else parameter.detach().to(dtype)


def trainable(groups: Sequence[Group]) -> dict[nn.Parameter, Group]:
    """The trainable parameters in order, each with its group."""
    found: dict[nn.Parameter, Group] = {}
    for group in groups:
        for module in group.modules:
            for parameter in module.parameters():
                if parameter.requires_grad:
                    found.setdefault(parameter, group)
    return found
