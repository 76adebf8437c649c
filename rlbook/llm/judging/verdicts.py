"""The prompts of a judge, and the parsing of its answers.

Source: Zheng et al. 2023, arXiv:2306.05685, appendix A: the double brackets of MT-Bench, and its
regular expressions. Difference: the last verdict of an answer counts, and one without brackets is
read where it stands alone at the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SCORE_TEMPLATE = (
    "Rate the answer to the question on a scale from {low} to {high}, for being right, useful and"
    " complete. Its length does not count.\n\nQuestion: {prompt}\n\nAnswer: {text}\n\nReason"
    " briefly, then end with the rating in double brackets, such as [[{high}]]."
)
VERDICT_TEMPLATE = (
    "Does the answer agree with the reference answer to the question?\n\nQuestion: {prompt}\n\n"
    "Reference answer: {answer}\n\nAnswer: {text}\n\nReason briefly, then end with [[yes]] or"
    " [[no]]."
)
PAIR_TEMPLATE = (
    "Which of the two answers to the question is better? Neither their order nor their length"
    " counts.\n\nQuestion: {prompt}\n\nAnswer A: {first}\n\nAnswer B: {second}\n\nReason briefly,"
    " then end with [[A]], [[B]], or [[C]] for a tie."
)
CRITERION_TEMPLATE = (
    "Does the answer to the question meet the criterion?\n\nQuestion: {prompt}\n\nAnswer: {text}"
    "\n\nCriterion: {criterion}\n\nEnd with [[yes]] or [[no]]."
)
NUMBER = r"-?\d+(?:\.\d+)?"
_MARK = re.compile(r"\[\[\s*([^\[\]]{1,40}?)\s*\]\]")
_FIELD = re.compile(r"\{(\w+)\}")
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
SIDES = {"a": 1.0, "b": 0.0, "c": 0.5, "tie": 0.5}


def fill_template(template: str, fields: Mapping[str, str]) -> str:
    """The template with each {name} of a known field replaced in one pass, so that braces in a
    field's text are kept."""
    return _FIELD.sub(lambda found: fields.get(found[1], found[0]), template)


def parse_score(text: str, low: float, high: float) -> float | None:
    """A rating as a fraction of the scale, in [0, 1]; None if there is none.

    It is the number in the last double brackets, or else the number at the beginning.
    """
    found = re.fullmatch(NUMBER, _last_mark(text) or _leading_match(text, NUMBER) or "")
    if found is None or not low <= float(found[0]) <= high:
        return None
    return (float(found[0]) - low) / (high - low)


def parse_verdict(text: str) -> float | None:
    """1 for yes and 0 for no; None for neither."""
    return WORDS.get((_last_mark(text) or _leading_match(text, r"[A-Za-z]+") or "").lower())


def parse_choice(text: str) -> float | None:
    """1 if A is better, 0 if B is, 1/2 for a tie; None if the answer states neither."""
    return SIDES.get((_last_mark(text) or _leading_match(text, r"[A-Za-z]+") or "").lower())


def _last_mark(text: str) -> str | None:
    """The content of the last double brackets."""
    marks = _MARK.findall(text)
    return marks[-1] if marks else None


def _leading_match(text: str, pattern: str) -> str | None:
    """The word or number that a text begins with."""
    found = re.match(rf"\s*({pattern})(?![\w.]*\w)", text)
    return None if found is None else found[1]
