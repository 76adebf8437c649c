"""What a completion is worth: pure functions of its text, the right answer, and whether it ended with EOS. All in [0, 1]; 1 is right."""

from __future__ import annotations

from collections.abc import Callable


def exact(text: str, answer: str, ended: bool) -> float:
    """1 for exactly the right answer followed by EOS, 0 otherwise: its mean is the exact match."""
    return float(ended and text == answer)


def prefix(text: str, answer: str, ended: bool) -> float:
    """The share of the answer (EOS counts as its last character) that is right before the first mistake."""
    right = next((i for i, (a, b) in enumerate(zip(text, answer, strict=False)) if a != b), min(len(text), len(answer)))
    return (right + float(ended and text == answer)) / (len(answer) + 1)


def edit(text: str, answer: str, ended: bool) -> float:
    """1 - the Levenshtein distance to the answer divided by the longer length, EOS counting as a last character.

    Source: Levenshtein 1966; the row-by-row recursion is Wagner & Fischer 1974.
    """
    written, wanted = [*text, *([""] if ended else [])], [*answer, ""]
    row = list(range(len(wanted) + 1))
    for i, a in enumerate(written, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(wanted, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return 1.0 - row[-1] / max(len(written), len(wanted))


REWARDS: dict[str, Callable[[str, str, bool], float]] = {"exact": exact, "prefix": prefix, "edit": edit}
