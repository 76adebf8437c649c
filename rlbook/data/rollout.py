"""Rollouts [T, N] as collected, and the batches that a policy is trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypedDict

import numpy as np
import torch
from torch import Tensor

from rlbook.agent import State, Step
from rlbook.functional.averages import Average, Weighting, per_token


class Share(TypedDict, total=False):
    """The weighting of the elements in a mean, as keyword arguments; empty for equal weights."""

    mask: Tensor
    average: Average


class StateMemory(Protocol):
    """The interface of a memory of the episodes in progress."""

    before: Tensor | None
    """[N, S], the recurrent state from which the last action was chosen."""


@dataclasses.dataclass
class Batch:
    """The rows that a policy is trained on: [B] steps, or [B, T] episodes. A field that the
    algorithm does not use is None."""

    obs: Any  # [B, O] or [B, T, O]; a dict of tensors for a sequence model
    action: Tensor  # [B], [B, A], [B, T] or [B, T, A]
    log_prob: Tensor  # log π_old(a|s), in nats
    mask: Tensor  # bool; True marks the elements that count
    value: Tensor | None = None  # V_old(s), in reward units
    advantage: Tensor | None = None  # in reward units
    target: Tensor | None = None  # the value target, in reward units
    reference_log_prob: Tensor | None = None  # log π_ref(a|s), in nats
    weight: Tensor | None = None  # share of each element in the average
    # importance weight, if another program sampled the actions
    importance: Tensor | None = None
    score: Tensor | None = None  # [B], the score of each episode, in reward units
    reward: Tensor | None = None  # [B, T], the reward of each step, in reward units
    # bool, shaped like mask; True marks the non-padding tokens, where not all of them count
    token_mask: Tensor | None = None
    action_mask: Tensor | None = None  # bool, [B, A] or [B, T, A]; True marks the allowed actions
    step_weight: Tensor | None = None  # share of each element in a mean over steps; None: `weight`
    # of sequences [B, T] that were cut out of a rollout: what a recurrent network remembered before
    # each of them, [B, S], and where in them an episode starts, [B, T] bool
    state: Tensor | None = None
    starts: Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)

    @property
    def share(self) -> Share:
        """Which elements count in a mean, and their weights: keyword arguments for
        `rlbook.functional.averages.weighted_sum` and for losses."""
        if self.weight is None:
            return {}
        return {"mask": self.mask, "average": self.weight}

    def weigh(self, average: Weighting) -> Batch:
        """The same rows, with the weight of each element in the loss and in the metrics."""
        plain = None if average is per_token else per_token(self.mask)
        return dataclasses.replace(self, weight=average(self.mask), step_weight=plain)

    @property
    def adds_up(self) -> bool:
        """Whether the losses of some rows add up to the loss of all, because each has its share."""
        return self.weight is not None

    @property
    def real_mask(self) -> Tensor:
        """bool, shaped like mask: False marks padding only."""
        return self.mask if self.token_mask is None else self.token_mask

    def __getitem__(self, rows: Any) -> Batch:
        return self._map_tensors(lambda value: value[rows])

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to each of its tensors."""
        changed: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, dict):
                changed[name] = {key: change(item) for key, item in value.items()}
            else:
                changed[name] = None if value is None else change(value)
        return Batch(**changed)

    def pad_to(self, length: int) -> Batch:
        """Pads the episodes [B, T] to this length, which is at least T."""
        longer = {
            field.name: _pad_time(getattr(self, field.name), length)
            for field in dataclasses.fields(self)
        }
        if longer["action_mask"] is not None:  # in padding nobody acts, and everything is allowed
            longer["action_mask"][:, self.mask.shape[1] :] = True
        return Batch(**longer)

    def to(self, device: torch.device | str) -> Batch:
        """Moves the batch to a device; tensors that are already there are not copied."""
        return self._map_tensors(lambda value: to_device(value, device))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Concatenates batches of episodes, padded with 0 to the longest and masked."""
    length = max(batch.mask.shape[1] for batch in batches)
    rows = [batch.pad_to(length) for batch in batches]
    masked = next((batch.action_mask for batch in rows if batch.action_mask is not None), None)
    if masked is not None:
        rows = [
            (
                batch
                if batch.action_mask is not None
                else dataclasses.replace(
                    batch, action_mask=masked.new_ones(*batch.mask.shape, masked.shape[-1])
                )
            )
            for batch in rows
        ]
    return Batch(
        **{
            field.name: _concatenate_field([getattr(batch, field.name) for batch in rows])
            for field in dataclasses.fields(Batch)
        }
    )


def _concatenate_field(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: torch.cat([value[key] for value in values]) for key in values[0]}
    return None if values[0] is None else torch.cat(values)


def _pad_time(value: Any, length: int) -> Any:
    """Pads [B, T, ...] to [B, length, ...]; fields without a time axis, such as prompts and scores,
    are unchanged."""
    if not isinstance(value, Tensor) or value.dim() < 2 or value.shape[1] == length:
        return value
    return torch.cat(
        [value, value.new_zeros(len(value), length - value.shape[1], *value.shape[2:])], dim=1
    )


def to_device(numbers: Tensor | np.ndarray, device: torch.device | str) -> Tensor:
    """A tensor, or an array as one, on a device; not copied if it is there.

    To a GPU it goes through pinned memory, which the GPU reads by itself while the CPU goes on.
    torch keeps that memory until it has been read.
    """
    tensor = numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers)
    if torch.device(device).type != "cuda" or not tensor.is_cpu:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def minibatches(batch: Batch, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Splits the shuffled rows into minibatches of `size`, the last of which may be smaller. If
    they fit one minibatch, they are not shuffled.

    The size counts steps, or whole episodes. Sequences stay whole: a minibatch has as many as have
    so many steps, and at least one.
    """
    if batch.starts is not None:
        size = max(1, size // batch.starts.shape[1])
    if size >= len(batch):
        yield dataclasses.replace(batch)
        return
    order = torch.from_numpy(rng.permutation(len(batch)))
    for start in range(0, len(batch), size):
        yield batch[order[start : start + size]]


class Rollout:
    """T vector steps of N environments in order: as arrays, and as tensors on the training device.

    Args:
        stores: which observations are kept, as in `Policy.stores`.
        device: where the tensors are to be.
        state_size: S, the numbers that a recurrent network remembers; 0: it is none.
    """

    def __init__(
        self, stores: str = "all", device: torch.device | str = "cpu", state_size: int = 0
    ) -> None:
        self.stores, self.device, self.state_size = stores, device, state_size
        self.clear()

    def clear(self) -> None:
        self.steps: list[Step] = []
        self.log_probs: list[np.ndarray] = []
        self.states: list[Tensor] = []

    def add(self, step: Step, log_prob: np.ndarray, memory: StateMemory | None = None) -> None:
        """Adds a step: its actions' log-probability [N], and the recurrent state before it, which
        its memory still has."""
        if self.stores == "first" and self.steps:
            step = step._replace(obs=None)
            self.steps[-1] = self.steps[-1]._replace(next_obs=None)
        final_reward = step.final_reward
        # in the log by now; a NaN, for no number, cannot be saved
        if step.info is not None or step.next_action_mask is not None or final_reward is not None:
            step = step._replace(info=None, next_action_mask=None, final_reward=None)
        self.steps.append(step)
        self.log_probs.append(log_prob)
        if memory is not None:
            assert memory.before is not None
            self.states.append(memory.before)
        if final_reward is not None:  # [N], of each episode's last step; NaN: it has not ended
            last = np.sum([step.valid for step in self.steps], axis=0) - 1
            for time in np.unique(last[~np.isnan(final_reward)]):
                there = (last == time) & ~np.isnan(final_reward)
                paid = np.where(there, final_reward, self.steps[time].reward)
                self.steps[time] = self.steps[time]._replace(reward=paid)

    def tensor(self, name: str) -> Tensor:
        """One field of all steps as a tensor, [T, N, ...]; "log_prob" is log π(a|s) at the time of
        sampling, in nats. Steps without an "action_mask" allow everything, if others have one."""
        rows = (
            self.log_probs if name == "log_prob" else [getattr(step, name) for step in self.steps]
        )
        if name == "action_mask":
            every = np.ones_like(next(mask for mask in rows if mask is not None))
            rows = [every if mask is None else mask for mask in rows]
        return to_device(np.stack(rows), self.device)

    def state(self) -> Tensor:
        """The recurrent state before each step: [T, N, S]."""
        return torch.stack(self.states)

    def state_dict(self) -> State:
        # not written where there are none
        masks = {"action_mask", "next_action_mask", "final_reward"}
        steps = [
            {
                name: item
                for name, item in step._asdict().items()
                if name not in masks or item is not None
            }
            for step in self.steps
        ]
        states = {"states": list(self.states)} if self.state_size else {}
        return {"steps": steps, "log_probs": list(self.log_probs), **states}

    def load_state_dict(self, state: State) -> None:
        self.steps = [Step(**fields) for fields in state["steps"]]
        self.log_probs = list(state["log_probs"])
        self.states = list(state.get("states", ()))
        shapes = {tuple(one.shape) for one in self.states}
        shape = (len(self.log_probs[0]), self.state_size) if self.states else ()
        if self.state_size and (len(self.states) != len(self.steps) or not shapes <= {shape}):
            raise ValueError("the saved states must be rows for each environment and step")
