"""Finding the answer in a text, and comparing it with the right one. These are 1 where it is right
and 0 where it is not."""

from __future__ import annotations

import re
from fractions import Fraction

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.rewards.verifiers import right_answer
from rlbook.llm.tasks.reasoning import final_answer

LONGEST = 400  # characters of a number
_PLAIN = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_SIGN = r"(?:(?<![\w)\]}.])[-+])?"  # a minus behind a number is a difference
NUMBER = re.compile(
    rf"{_SIGN}(?:\\[dt]?frac\{{\s*(-?\d+)\s*\}}\{{\s*(-?\d+)\s*\}}|({_PLAIN})\s*/\s*(\d+)|({_PLAIN})(\s*\\?%)?)"
)


def numeric(completion: Completion, *, after: str = "", tolerance: float = 0.0) -> float:
    """1 where the last number that was written is the answer: 1,000 is 1000.0, 1/2 is 0.5, and 50%
    is too.

    Args:
        completion: what was written.
        after: the number counts only behind the last place where this stands, such as "####".
        tolerance: how far the number may be from the answer, relative to the answer.
    """
    wanted = number(right_answer(completion))
    if wanted is None:
        raise ValueError(f"the answer {completion.answer!r} is no number")
    _, found, text = completion.text.rpartition(after) if after else ("", "", completion.text)
    if after and not found:
        return 0.0
    written = last_number(text)
    return float(written is not None and abs(written - wanted) <= Fraction(tolerance) * abs(wanted))


def boxed(completion: Completion, *, modulo: int | None = None) -> float:
    r"""1 where the last \boxed{…} holds the answer, as a number or as a text without its spaces.

    Args:
        completion: what was written.
        modulo: whole numbers are compared by their remainders of a division by this.
    """
    return _holds(last_boxed(completion.text), completion, modulo)


def tagged(completion: Completion, *, tag: str = "answer", modulo: int | None = None) -> float:
    """1 where what stands between the last <answer> and its </answer> is the answer; otherwise as
    `boxed`."""
    return _holds(text_between(completion.text, tag), completion, modulo)


def is_number(completion: Completion) -> float:
    """1 where a number was written and nothing else, followed by an end: a form, whatever the
    number."""
    return float(completion.ended and number(completion.text) is not None)


def _holds(written: str | None, completion: Completion, modulo: int | None) -> float:
    answer = right_answer(completion)
    if written is None:
        return 0.0
    if modulo is not None:
        left, right = remainder(written, modulo), remainder(answer, modulo)
        if left is not None and right is not None:
            return float(left == right)
    return float(is_same_answer(written, answer))


def remainder(text: str, modulo: int) -> int | None:
    """The remainder of the whole number that a text is, from 0 to modulo - 1; None where it is
    none."""
    value = number(text)
    return value.numerator % modulo if value is not None and value.denominator == 1 else None


def given_answer(completion: Completion, *, last: bool = False) -> str | None:
    r"""The answer that a finished text gives, so written that equal answers are equal texts; None
    where it gives none.

    It is what stands in the last \boxed{…}, else between <answer> tags, else what stands behind the
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
    r"""What stands in the last \boxed{…} of a text, braces within it matched; None where there is
    none, or where it never closes.

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
    """What stands between the last <tag> and the </tag> behind it; None where there are no such
    two."""
    _, opened, behind = text.rpartition(f"<{tag}>")
    inside, closed, _ = behind.partition(f"</{tag}>")
    return inside if opened and closed else None


def is_same_answer(written: str, answer: str) -> bool:
    """Whether two texts are the same number, or, where one of them is none, the same characters
    apart from spaces."""
    left, right = number(written), number(answer)
    if left is not None and right is not None:
        return left == right
    return "".join(written.split()) == "".join(answer.split())


def number(text: str) -> Fraction | None:
    """The number that a text is, exactly; dollar signs around it and a full stop behind it do not
    count. None where it is none."""
    text = text.strip().strip("$").removesuffix(".").strip()
    match = NUMBER.fullmatch(text) if len(text) <= LONGEST else None
    return None if match is None else _value(match)


def last_number(text: str) -> Fraction | None:
    """The last number in a text, exactly; None where there is none."""
    match = None
    for match in NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return None if match is None or len(match.group()) > LONGEST else _value(match)


def _value(match: re.Match[str]) -> Fraction | None:
    above, below, dividend, divisor, plain, percent = match.groups()
    sign = -1 if match.group().startswith("-") else 1
    if plain is not None:
        return sign * _plain(plain) / (100 if percent else 1)
    top = Fraction(int(above)) if above is not None else _plain(dividend)
    bottom = int(below if below is not None else divisor)
    return None if bottom == 0 else sign * top / bottom


def _plain(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))
