"""Answers that are taken from a passage: SQuAD's two metrics, and whether the answer occurs in it.

    exact match   1 if the two texts are the same after normalisation
    F1            2 P R / (P + R); of the words that both have, P is the share of the written ones and R
                  that of the right ones; a word counts as often as it stands in both

Normalisation: lower case, without punctuation, without the articles a, an and the, single spaces.
Several right answers: the best one counts. Where the right answer is none (SQuAD 2.0), so must the
written one be.

Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 4.1, and 2018, arXiv:1806.03822; the
official evaluation script 2.0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.tasks.reasoning import final_answer

PASSAGES = ("passage", "context")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_em(completion: Completion) -> float | None:
    """1 if the answer after the steps is one of the correct ones, after SQuAD's normalisation.

    The right ones are the column "answers", a list or SQuAD's {"text": [...]}, or else the answer;
    None where there is neither.
    """
    right = right_texts(completion)
    return (
        None if right is None else max(exact_match(_answer_text(completion), one) for one in right)
    )


def squad_f1(completion: Completion) -> float | None:
    """The F1 between its words and those of the closest correct answer, as for `squad_em`."""
    right = right_texts(completion)
    return None if right is None else max(word_f1(_answer_text(completion), one) for one in right)


def grounding(completion: Completion, *, quotes: bool = False) -> float | None:
    """1 if the answer occurs in the passage word for word, after SQuAD's normalisation, otherwise
    0.

    The passage is the column "passage" or "context"; None where there is none. An answer without
    words stands nowhere.

    Args:
        completion: what was written.
        quotes: the share of its quotations "…" that stand there, 0 where it quotes nothing.
    """
    name = next((name for name in PASSAGES if name in completion.columns), None)
    if name is None:
        return None
    passage = f" {normalize_answer(str(completion.columns[name]))} "
    text = _answer_text(completion)
    parts = re.findall(r"[\"“]([^\"”]+)[\"”]", text) if quotes else [text]
    words = [normalize_answer(part) for part in parts]
    return sum(bool(one) and f" {one} " in passage for one in words) / max(1, len(words))


def normalize_answer(text: str) -> str:
    """A text in lower case, without punctuation, articles and extra spaces."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def exact_match(written: str, right: str) -> float:
    """1 if both texts are equal after normalisation, otherwise 0."""
    return float(normalize_answer(written) == normalize_answer(right))


def word_f1(written: str, right: str) -> float:
    """The F1 of the words of two texts after normalisation; if either is empty, whether both
    are."""
    one, other = normalize_answer(written).split(), normalize_answer(right).split()
    common = sum((Counter(one) & Counter(other)).values())
    if not one or not other:
        return float(one == other)
    return 2 * common / (len(one) + len(other))


def right_texts(completion: Completion) -> list[str] | None:
    """The correct answers of an example; [""] if the correct one is none."""
    given = completion.columns.get("answers")
    if isinstance(given, Mapping):
        given = given.get("text")
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [str(one) for one in given if normalize_answer(str(one))] or [""]
    return None if completion.answer is None else [completion.answer]


def _answer_text(completion: Completion) -> str:
    return final_answer(completion.text)
