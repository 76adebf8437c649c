"""Sums in several steps: "47+86+25+93=" is answered by "251", which is rarely right without written steps.

With them it reads "<think>133,158,251</think>251": the sum so far behind each term, between the tags, and then the answer.
"""

from __future__ import annotations

from itertools import accumulate

from rlbook.checks import boolean, check
from rlbook.llm.tasks.task import Task, drawn, whole

COUNT = 8192
OPEN, CLOSE = "<think>", "</think>"


class ReasoningTask(Task):
    """8 192 different sums of numbers from 10 to 99.

    What stands before `</think>` counts for nothing, right or wrong: the answer is what stands behind it, or the whole text where there is
    no scratchpad. Each tag is one token, as in the vocabularies of reasoning models. Spelled in characters the two would be half of what
    is written, and a model that has never seen them would never find them by chance.

    Args:
        terms: how many numbers are added, 2 to 5.
        steps: whether a demonstration has the scratchpad, or the answer alone.
    """

    name = "reasoning"
    characters = "0123456789+=,"
    words = (OPEN, CLOSE)

    def __init__(self, terms: int = 4, steps: bool = True) -> None:
        check("terms", terms, whole(2, 5))
        check("steps", steps, boolean)
        self.terms, self.steps = terms, steps
        super().__init__()

    def all_prompts(self) -> list[str]:
        count = min(COUNT, 90**self.terms)
        return ["+".join(str(10 + i // 90**place % 90) for place in range(self.terms)) + "=" for i in drawn(90**self.terms, count)]

    def answer(self, prompt: str) -> str:
        return str(sum(_terms(prompt)))

    def demonstration(self, prompt: str) -> str:
        if not self.steps:
            return self.answer(prompt)
        return f"{OPEN}{','.join(map(str, list(accumulate(_terms(prompt)))[1:]))}{CLOSE}{self.answer(prompt)}"

    def score(self, prompt: str, text: str) -> float:
        return float(final_answer(text) == self.answer(prompt))


def final_answer(text: str) -> str:
    """What stands behind the scratchpad; the whole text where there is none, and nothing where it is not closed."""
    _, close, answer = text.rpartition(CLOSE)
    return answer.strip() if close or OPEN not in text else ""


def _terms(prompt: str) -> list[int]:
    return [int(term) for term in prompt.rstrip("=").split("+")]
