"""Extracts the answer from a text and compares it with the reference answer: 1 if correct, 0
otherwise."""

from __future__ import annotations

import re
from fractions import Fraction

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.rewards.verifiers import right_answer
from rlbook.llm.tasks.reasoning import final_answer

LONGEST = 400  # characters of a number
_PLAIN = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_SIGN = r"(?:(?<![\w)\]}.])[-+])?"  # a minus after a number is a difference
NUMBER = re.compile(
    rf"{_SIGN}(?:\\[dt]?frac\{{\s*(-?\d+)\s*\}}\{{\s*(-?\d+)\s*\}}|({_PLAIN})\s*/\s*(\d+)|({_PLAIN})(\s*\\?%)?)"
)


def numeric(completion: Completion, *, after: str = "", tolerance: float = 0.0) -> float:
    """1 if the last number in the text equals the answer: 1,000 is 1000.0, 1/2 is 0.5, and 50% is
    too.

    Args:
        completion: what was written.
        after: the number counts only after the last place where this stands, such as "####".
        tolerance: how far the number may be from the answer, relative to the answer.
    """
    wanted = number(right_answer(completion))
    if wanted is None:
        raise ValueError(f"the answer {completion.answer!r} is not a number")
    _, found, text = completion.text.rpartition(after) if after else ("", "", completion.text)
    if after and not found:
        return 0.0
    written = last_number(text)
    return float(written is not None and abs(written - wanted) <= Fraction(tolerance) * abs(wanted))


def boxed(completion: Completion, *, modulo: int | None = None) -> float:
    r"""1 if the last \boxed{…} contains the answer, compared as a number, or else as text without
    spaces.

    Args:
        completion: what was written.
        modulo: whole numbers are compared by their remainders of a division by this.
    """
    return _score_match(last_boxed(completion.text), completion, modulo)


def tagged(completion: Completion, *, tag: str = "answer", modulo: int | None = None) -> float:
    """1 if the text between the last <answer> and its </answer> is the answer; without tags, as
    `boxed`."""
    return _score_match(text_between(completion.text, tag), completion, modulo)


def is_number(completion: Completion) -> float:
    """1 if the text is a single number followed by EOS: a format reward, whatever the number."""
    return float(completion.ended and number(completion.text) is not None)


def _score_match(written: str | None, completion: Completion, modulo: int | None) -> float:
    answer = right_answer(completion)
    if written is None:
        return 0.0
    if modulo is not None:
        left, right = remainder(written, modulo), remainder(answer, modulo)
        if left is not None and right is not None:
            return float(left == right)
    return float(is_same_answer(written, answer))


def remainder(text: str, modulo: int) -> int | None:
    """A whole number given as text, modulo `modulo`, from 0 to modulo - 1; None if it is not a
    whole number."""
    value = number(text)
    return value.numerator % modulo if value is not None and value.denominator == 1 else None


def given_answer(completion: Completion, *, last: bool = False) -> str | None:
    r"""The answer given by a finished text, normalised so that equal answers are equal strings;
    None without one.

    It is what stands in the last \boxed{…}, else between <answer> tags, else what follows the
    scratchpad.

    Args:
        completion: what was written. One that was cut off gives no answer.
        last: where nothing is marked, the answer is the last number.
    """
    if not completion.ended:
        return None
    text = completion.text
    marked = next(
        (found for found in (last_boxed(text), text_between(text, "answer")) if found is not None),
        None,
    )
    if marked is None and last:
        value = last_number(text)
        return None if value is None else str(value)
    text = final_answer(text) if marked is None else marked
    value = number(text)
    return ("".join(text.split()) or None) if value is None else str(value)


def last_boxed(text: str) -> str | None:
    r"""The content of the last \boxed{…} of a text, with braces matched; None if there is none or
    it is not closed.

    Source: Hendrycks et al. 2021, arXiv:2103.03874, `last_boxed_only_string` of its code.
    """
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    start += len(r"\boxed{")
    open_braces = 1
    for end in range(start, len(text)):
        open_braces += (text[end] == "{") - (text[end] == "}")
        if open_braces == 0:
            return text[start:end]
    return None


def text_between(text: str, tag: str) -> str | None:
    """The content between the last <tag> and the next </tag>; None without such a pair."""
    _, opened, rest = text.rpartition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside if opened and closed else None


def is_same_answer(written: str, answer: str) -> bool:
    """Whether two texts are the same number, or else the same characters apart from spaces."""
    left, right = number(written), number(answer)
    if left is not None and right is not None:
        return left == right
    return "".join(written.split()) == "".join(answer.split())


def number(text: str) -> Fraction | None:
    """The exact value of a text that is a number, ignoring surrounding dollar signs and a final
    full stop; None if it is not a number."""
    text = text.strip().strip("$").removesuffix(".").strip()
    match = NUMBER.fullmatch(text) if len(text) <= LONGEST else None
    return None if match is None else _value(match)


def last_number(text: str) -> Fraction | None:
    """The exact value of the last number in a text; None without one."""
    match = None
    for match in NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return None if match is None or len(match.group()) > LONGEST else _value(match)


def _value(match: re.Match[str]) -> Fraction | None:
    above, below, dividend, divisor, plain, percent = match.groups()
    sign = -1 if match.group().startswith("-") else 1
    if plain is not None:
        return sign * _parse_decimal(plain) / (100 if percent else 1)
    top = Fraction(int(above)) if above is not None else _parse_decimal(dividend)
    bottom = int(below if below is not None else divisor)
    return None if bottom == 0 else sign * top / bottom


def _parse_decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))
