"""Which of two answers a judge prefers, asked in both orders.

    ask for (A, B)  → v        ask for (B, A)  → v'
    the same answer wins both times: it wins        else: a tie

Models prefer the first of two answers, or the second, whatever is in them; asked twice they cannot.

Source: Zheng et al. 2023, arXiv:2306.05685, section 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlbook.llm.judging.judge_model import JudgeModel
from rlbook.llm.judging.verdicts import PAIR_TEMPLATE, fill_template, parse_choice


class Preference(NamedTuple):
    """A judge's preference between two answers."""

    value: float | None  # of the first one: 1 better, 1/2 a tie, 0 worse; None: no verdict
    consistent: bool | None = None  # whether both orders say the same; None where one was asked
    first_place: float | None = None  # of the answer that was shown first, the mean over orders


def compare_answers(
    judge: JudgeModel,
    pairs: Sequence[tuple[Mapping[str, str], str, str]],
    *,
    template: str | None = None,
    swap: bool = True,
) -> list[Preference]:
    """The preference of each of N pairs.

    Args:
        judge: is asked.
        pairs: the fields of the template other than the answers, such as the prompt; and the two
            answers.
        template: with {first} and {second}; None for the one of MT-Bench's kind.
        swap: ask in both orders.
    """
    asked: list[str] = []
    for fields, one, other in pairs:
        for first, second in ((one, other), (other, one))[: 1 + swap]:
            told = {**fields, "first": first, "second": second}
            asked.append(fill_template(template or PAIR_TEMPLATE, told))
    said = [None if text is None else parse_choice(text) for text in judge.ask(asked)]
    if not swap:
        return [Preference(verdict, None, verdict) for verdict in said]
    return [_combine(*both) for both in zip(said[::2], said[1::2], strict=True)]


def _combine(verdict: float | None, swapped: float | None) -> Preference:
    """The preference that follows from the verdicts in both orders, each on the answer shown
    first."""
    if verdict is None or swapped is None:
        return Preference(None)
    same = verdict == 1.0 - swapped
    return Preference(verdict if same else 0.5, same, (verdict + swapped) / 2)
