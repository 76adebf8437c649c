"""What a completion is worth: pure functions of a finished completion and the example it answers. These are in [0, 1]; 1 is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Completion(NamedTuple):
    """What was written to a prompt, and what the task says about the prompt."""

    prompt: str
    answer: str                              # the right one
    text: str                                # what was written, without EOS
    ended: bool                              # whether EOS was written; False: cut off by the limit


Reward = Callable[[Completion], float]
"""Any function of a finished completion, in reward units."""


def exact(completion: Completion) -> float:
    """1 for exactly the right answer followed by EOS, 0 otherwise: its mean is the exact match."""
    return float(completion.ended and completion.text == completion.answer)


def prefix(completion: Completion) -> float:
    """The share of the answer (EOS counts as its last character) that is right before the first mistake."""
    text, answer = completion.text, completion.answer
    right = next((i for i, (a, b) in enumerate(zip(text, answer, strict=False)) if a != b), min(len(text), len(answer)))
    return (right + exact(completion)) / (len(answer) + 1)


def edit(completion: Completion) -> float:
    """1 - the Levenshtein distance to the answer divided by the longer length, EOS counting as a last character.

    Source: Levenshtein 1966; the row-by-row recursion is Wagner & Fischer 1974.
    """
    written, wanted = [*completion.text, *([""] if completion.ended else [])], [*completion.answer, ""]
    row = list(range(len(wanted) + 1))
    for i, a in enumerate(written, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(wanted, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return 1.0 - row[-1] / max(len(written), len(wanted))


REWARDS: dict[str, Reward] = {"exact": exact, "prefix": prefix, "edit": edit}
