"""Verifiers: functions that compare one finished completion with the reference answer. Values are
in [0, 1]; 1 is correct."""

from __future__ import annotations

from rlbook.llm.rewards.completion import Completion


def correct(completion: Completion) -> float:
    """The task's verdict: 1 for a correct answer followed by EOS; without a task that scores texts,
    the text must equal `answer`."""
    if not completion.ended:
        return 0.0
    if completion.text == completion.answer:
        return 1.0
    return 0.0 if completion.judge is None else completion.judge(completion.text)


def judged(completion: Completion) -> float:
    """The task's graded score, and 0 without EOS; for tasks in which answers can be partially
    correct."""
    return (
        completion.judge(completion.text)
        if completion.ended and completion.judge is not None
        else 0.0
    )


def exact(completion: Completion) -> float:
    """1 for exactly the reference answer followed by EOS, 0 otherwise; its mean is the exact-match
    rate."""
    return float(completion.ended and completion.text == completion.answer)


def prefix(completion: Completion) -> float:
    """The fraction of the answer (EOS counts as its last character) before the first mistake."""
    text, answer = completion.text, right_answer(completion)
    right = next(
        (i for i, (a, b) in enumerate(zip(text, answer, strict=False)) if a != b),
        min(len(text), len(answer)),
    )
    return (right + exact(completion)) / (len(answer) + 1)


def edit(completion: Completion, *, after: str = "") -> float:
    """1 - the Levenshtein distance to the answer divided by the longer length, with EOS as a last
    character.

    Args:
        completion: what was written.
        after: only what follows the last place of this is compared, such as "</think>"; all
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
    """The reference answer of the prompt. Raises ValueError if the example has none."""
    if completion.answer is None:
        raise ValueError("the example has no answer to compare with")
    return completion.answer
