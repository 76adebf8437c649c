"""A gradient step that several processes take together, each with its own rows of the minibatch.

    g = Σ_p c_p ∇L(rows of process p),   c_p = n_p / n where L is a mean over rows,
                                         c_p = 1   where the rows of L have their shares already

A loss with shares is a sum Σ_i w_i l_i whose weights were computed for the whole minibatch, as for
micro-batches; so a mean over tokens stays that mean, whichever process has the longer texts. The
gradient is summed before it is clipped, and every process takes the same step with its own
optimiser.

Source: Li et al. 2020, arXiv:2006.15704, section 3 (data parallel, gradients reduced before the
step). Difference: the sum is over the whole gradient at once, after the backward pass.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.data.replay import Transitions
from rlbook.interaction.process_group import ProcessGroup
from rlbook.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.data.rollout import Batch
    from rlbook.networks.policy import Policy

R = TypeVar("R")
Observations = NDArray[np.number] | dict[str, NDArray[np.number]]
_summing: tuple[ProcessGroup, float] | None = None


class Actor(Protocol):
    """The acting interface of a policy or a teacher."""

    def act(
        self,
        obs: Any,
        rng: np.random.Generator | None,
        state: Any = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]: ...


class Portion(NamedTuple):
    """The rows of a minibatch that a process backpropagates."""

    rows: slice  # never empty
    share: float  # n_p / n; 0 for a process that has none and computes a row of no weight


def portion(group: ProcessGroup, count: int) -> Portion:
    """This process's rows of `count`."""
    rows = group.rows(count)
    if rows.start == rows.stop:
        return Portion(slice(0, 1), 0.0)
    return Portion(rows, (rows.stop - rows.start) / count)


@contextlib.contextmanager
def summed_gradients(group: ProcessGroup, share: float) -> Iterator[None]:
    """Within the context, an optimiser uses the sum of the gradients of all processes, this one's
    times `share`."""
    global _summing
    before, _summing = _summing, (group, share)
    try:
        yield
    finally:
        _summing = before


def sum_gradient(gradient: Tensor) -> None:
    """Replaces a gradient by the sum over all processes, within `summed_gradients`; elsewhere it is
    not changed. Optimisers call it before clipping."""
    if _summing is not None:
        group, share = _summing
        if share != 1.0:
            gradient.mul_(share)
        group.sum_(gradient)


def sum_gradients(gradients: list[Tensor]) -> None:
    """`sum_gradient` of several tensors of one type and device, in one message."""
    if _summing is None:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    sum_gradient(flat)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
        gradient.copy_(summed.view_as(gradient))


def split_step(
    group: ProcessGroup, step: Callable[[R], dict[str, Tensor]], batch: R
) -> dict[str, Tensor]:
    """A gradient step on a batch, with this process's rows of it.

    Args:
        group: the processes.
        step: on some rows: clears the gradient, backpropagates, calls the optimiser.
        batch: the rows of all processes.

    Returns:
        The metrics of the whole batch.
    """
    count = count_rows(batch)
    rows, share = portion(group, count)
    weight = float(share > 0) if getattr(batch, "adds_up", False) else share
    with summed_gradients(group, weight):
        metrics = step(take_rows(batch, rows))
    return sum_metrics(group, metrics, weight, count)


def sum_metrics(
    group: ProcessGroup, metrics: dict[str, Tensor], weight: float, count: int
) -> dict[str, Tensor]:
    """The metrics of some rows combined into those of all: scalars are summed with their weights,
    vectors [n] become [count]. "grad_norm" is already that of all."""
    found = dict(metrics)
    names = [name for name, value in metrics.items() if name != "grad_norm" and not value.dim()]
    told = [metrics[name].detach().double().cpu() * weight for name in names]
    numbers = group.sum_numbers(torch.stack(told) if told else torch.zeros(0))
    for name, number in zip(names, numbers, strict=True):
        found[name] = number.to(metrics[name].dtype)
    for name, value in metrics.items():
        if value.dim():
            found[name] = group.gather_rows(value[: len(value) if weight else 0], count)
    return found


def count_rows(batch: object) -> int:
    """The number of rows, B."""
    each: Any = batch
    return len(each.reward) if isinstance(batch, Transitions) else len(each)


def take_rows(batch: R, rows: slice) -> R:
    """The given rows of a batch."""
    whole: Any = batch
    return (
        whole.map_fields(operator.itemgetter(rows))
        if isinstance(batch, Transitions)
        else whole[rows]
    )


def map_rows(function: Callable[[R], Tensor], batch: R) -> Tensor:
    """Computes a function of each row of a batch, [B, ...], with each process computing its own
    rows; without gradients."""
    group = ProcessGroup.training
    if group is None:
        return function(batch)
    count = count_rows(batch)
    rows, share = portion(group, count)
    found = function(take_rows(batch, rows))
    return group.gather_rows(found if share else found[:0], count)


def outputs_of_rows(function: Callable[[R], Tensor], batch: R) -> Tensor:
    """Computes a function of each row of a batch, [B, ...], for a loss that compares rows. Each
    process computes its own rows with gradients and receives the others' without: the loss is then
    the same in all of them, and its weight gradients sum to those of one process.
    """
    if _summing is None:
        return function(batch)
    group, _ = _summing
    count = count_rows(batch)
    rows, share = portion(group, count)
    own = function(take_rows(batch, rows))
    told = group.gather_rows(own.detach() if share else own.detach()[:0], count)
    if not share:
        return told + 0.0 * own.sum()  # a gradient of 0, where it has no rows
    return torch.cat([told[: rows.start], own, told[rows.stop :]])


def log_prob_by_rows(policy: Policy, batch: Batch) -> Tensor:
    """log π(a|s) of a batch without gradients, shaped like `batch.mask`, in nats; for a large
    policy each process computes its own rows."""
    if ProcessGroup.training is None or not policy.splits:
        return policy.evaluate(batch, entropy=False)[0]
    with torch.no_grad():
        return map_rows(lambda rows: policy.evaluate(rows, entropy=False)[0], batch)


def act_on_rows(
    policy: Actor,
    obs: Observations,
    rng: np.random.Generator,
    state: object,
    action_mask: NDArray[np.bool_] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """`policy.act` in training; for a large policy each process acts for its own rows. If another
    program samples, the leader asks it for all of them."""
    group = ProcessGroup.training
    if group is not None and getattr(state, "remote", False):
        *found, after = group.run_on_leader(
            lambda: (*policy.act(obs, rng, state, action_mask), rng_state(rng))
        )
        set_rng_state(rng, after)
        return found[0], found[1]
    if group is None or not getattr(policy, "splits", False) or not isinstance(obs, dict):
        return policy.act(obs, rng, state, action_mask)
    count = len(next(iter(obs.values())))
    rows = group.rows(count)
    mine: Any = ShardGenerator(rng, count, rows)
    own = {name: part[rows] for name, part in obs.items()}
    found = None
    if rows.start < rows.stop:
        found = policy.act(own, mine, state, action_mask)
    else:
        mine.random(0)
    parts = [part for part in group.gather(found) if part is not None]
    action, log_prob = (np.concatenate(column) for column in zip(*parts, strict=True))
    return action, log_prob


class ShardGenerator:
    """A random generator that draws for all rows and returns those of one process, so a row's
    numbers do not depend on the number of processes.

    Args:
        rng: the generator.
        count: rows in all.
        rows: those of this process.
    """

    def __init__(self, rng: np.random.Generator, count: int, rows: slice) -> None:
        self.rng, self.count, self.rows = rng, count, rows

    def random(self, size: int) -> np.ndarray:
        """Uniform numbers in [0, 1), one for each of this process's `size` rows."""
        assert size == self.rows.stop - self.rows.start
        return self.rng.random(self.count)[self.rows]
