"""Format rewards, independent of the content: tags, their order, the script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rlbook.llm.rewards.completion import Completion


def tags(completion: Completion, *, names: Sequence[str] = ("think", "answer")) -> float:
    """The fraction of the tags <name> and </name> that occur exactly once in the text."""
    wanted = [tag for name in names for tag in (f"<{name}>", f"</{name}>")]
    return sum(completion.text.count(tag) == 1 for tag in wanted) / len(wanted)


def form(completion: Completion, *, names: Sequence[str] = ("think", "answer")) -> float:
    """1 if the text is <name>…</name> for each name, in this order, each tag once, with only
    whitespace in between.

    Source: the template of R1-Zero, DeepSeek-AI 2025, arXiv:2501.12948, table 1.
    """
    pattern = r"\s*".join(rf"<{re.escape(name)}>.*?</{re.escape(name)}>" for name in names)
    once = tags(completion, names=names) == 1.0
    return float(once and re.fullmatch(pattern, completion.text.strip(), re.DOTALL) is not None)


def think(completion: Completion) -> float:
    """1 if the text starts with <think>, which occurs once, and </think> occurs after it. TRL's
    `think_format_reward`."""
    text = completion.text
    return float(text.startswith("<think>") and text.count("<think>") == 1 and "</think>" in text)


def language(
    completion: Completion, *, script: str = "latin", names: Sequence[str] = ("think", "answer")
) -> float | None:
    """The fraction of letters that belong to one script, such as latin, cyrillic, greek, arabic or
    cjk; None if there are no letters.

    A script is the first word of a letter's name in Unicode. The tags <name> and </name> and the
    tokenizer's special tokens, such as <pad>, are of no language, and do not count.

    Source: DeepSeek-AI 2025, arXiv:2501.12948, section 2.3.2. Difference: there it is the share of
    words.
    """
    of_none = [tag for name in names for tag in (f"<{name}>", f"</{name}>")]
    of_none += completion.special
    text = re.sub("|".join(map(re.escape, of_none)), "", completion.text)
    letters = [unicodedata.name(character, "?") for character in text if character.isalpha()]
    wanted = script.upper()
    return sum(name.split()[0] == wanted for name in letters) / len(letters) if letters else None
