"""The input of a reward: a finished completion, and the task's metadata for its prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar


@dataclass(slots=True)  # not frozen: that would take longer to make than most rewards take
class Completion:
    """A finished completion, and the task's metadata for its prompt."""

    prompt: str
    answer: str | None  # the right one; None where the example has none
    text: str  # the generated text, without EOS
    ended: bool  # whether EOS was written; False: cut off by the limit
    # what else the example says, by name
    columns: Mapping[str, object] = field(default_factory=dict)
    messages: Sequence[Mapping[str, Any]] | None = None  # the prompt as a chat, where it is one
    # the generated token ids, EOS included
    ids: Sequence[int] = field(default=(), compare=False)
    # the task's verdict on a text: 1 if it is correct
    judge: Callable[[str], float] | None = field(default=None, compare=False)
    # the largest possible number of ids
    limit: int | None = field(default=None, compare=False)
    # the special tokens of the tokenizer, such as "<pad>", which `text` shows where they were sampled
    special: Sequence[str] = field(default=(), compare=False)


Reward = Callable[[Completion], float | None]
"""A function of one finished completion, in reward units; None where it does not apply."""
BatchedReward = Callable[[Sequence[Completion]], Sequence[float | None]]
"""The same of N completions at once: [N] numbers or None. Marked by `mark_batched`."""
Batched = TypeVar("Batched", bound=Callable[..., Any])


def mark_batched(function: Batched) -> Batched:
    """Marks a reward as batched: it takes a list of N completions, all those of a round where the
    agent learns from whole rounds, and returns N numbers or None. Those of one prompt are
    neighbours."""
    function.batched = True  # type: ignore[attr-defined]
    return function
