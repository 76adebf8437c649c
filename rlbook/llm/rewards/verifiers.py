"""Comparing a completion with the right answer: pure functions of one finished completion. They are
in [0, 1]; 1 is right."""

from __future__ import annotations

from rlbook.llm.rewards.completion import Completion


def correct(completion: Completion) -> float:
    """What the task says of the text: 1 for a right answer followed by EOS. Without a task that
    says so, the right one is `answer`."""
    if not completion.ended:
        return 0.0
    if completion.text == completion.answer:
        return 1.0
    return 0.0 if completion.judge is None else completion.judge(completion.text)


def judged(completion: Completion) -> float:
    """What the task says of the text, whatever its scale, and 0 without EOS; for tasks in which
    several answers are good to a degree."""
    return (
        completion.judge(completion.text)
        if completion.ended and completion.judge is not None
        else 0.0
    )


def exact(completion: Completion) -> float:
    """1 for exactly the right answer followed by EOS, 0 otherwise: its mean is the exact match."""
    return float(completion.ended and completion.text == completion.answer)


def prefix(completion: Completion) -> float:
    """The share of the answer (EOS counts as its last character) that is right before the first
    mistake."""
    text, answer = completion.text, right_answer(completion)
    right = next(
        (i for i, (a, b) in enumerate(zip(text, answer, strict=False)) if a != b),
        min(len(text), len(answer)),
    )
    return (right + exact(completion)) / (len(answer) + 1)


def edit(completion: Completion, *, after: str = "") -> float:
    """1 - the Levenshtein distance to the answer divided by the longer length, EOS counting as a
    last character.

    Args:
        completion: what was written.
        after: only what stands behind the last place of this is compared, such as "</think>"; all
            of it where that is nowhere.

    Source: Levenshtein 1966; the row-by-row recursion is Wagner & Fischer 1974.
    """
    text = completion.text.rpartition(after)[2].strip() if after else completion.text
    written, wanted = [*text, *([""] if completion.ended else [])], [*right_answer(completion), ""]
    row = list(range(len(wanted) + 1))
    for i, a in enumerate(written, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(wanted, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return 1.0 - row[-1] / max(len(written), len(wanted))


def right_answer(completion: Completion) -> str:
    """The answer to the prompt. Raises ValueError where the example has none."""
    if completion.answer is None:
        raise ValueError("the example has no answer to compare with")
    return completion.answer
