"""Multi-step sums: "4+7+8+5+9+6=" asks for the last digit of 39, which a model rarely gets right
without writing out the steps.

With them it reads "<think>4,1,9,4,3,9</think>9": the last digit of the sum so far after each term,
between the tags, and then the answer. Each step needs the digit before it and one term, where the
answer alone needs all terms at once.

Steps may also be written in letters, the Latin a to j or the Greek α to κ for 0 to 9:
"<think>e,b,j,e,d,j</think>9". Right is right in either script; which of the two a model writes is
then a matter of its language alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rlbook.checks import boolean, check, one_of
from rlbook.llm.tasks.task import Task, draw_numbers, integer_kind

COUNT = 8192
OPEN, CLOSE = "<think>", "</think>"
DIGITS = "0123456789"
SCRIPTS = {"digits": DIGITS, "latin": "abcdefghij", "greek": "αβγδεζηθικ"}
"""The characters for the digits 0 to 9."""
TO_DIGITS = {
    ord(letter): digit
    for letters in SCRIPTS.values()
    for letter, digit in zip(letters, DIGITS, strict=True)
}
"""A letter of any script → its digit."""


class ReasoningTask(Task):
    """8 192 distinct sums (or all, if there are fewer), each asking for the last digit.

    What stands before `</think>` counts for nothing, right or wrong: the answer is what
    follows it, or the whole text where there is no scratchpad. Each tag is one token, as in the
    vocabularies of reasoning models. Spelled in characters the two would be more than half of
    what is written, and a model that has never seen them would never find them by chance.

    Args:
        terms: how many numbers are added, 3 to 8.
        digits: how many digits each number and the answer have, 1 or 2.
        steps: whether a demonstration has the scratchpad, or the answer alone.
        script: what the steps of a demonstration are written with, a name of `SCRIPTS`. Unless it
            is "digits", the vocabulary has the letters of both other scripts.
    """

    name = "reasoning"
    characters = "0123456789+=,"
    words = (OPEN, CLOSE)

    def __init__(
        self, terms: int = 6, digits: int = 1, steps: bool = True, script: str = "digits"
    ) -> None:
        check("terms", terms, integer_kind(3, 8))
        check("digits", digits, integer_kind(1, 2))
        check("steps", steps, boolean)
        check("script", script, one_of(*SCRIPTS))
        self.terms, self.digits, self.steps, self.script = terms, digits, steps, script
        if script != "digits":
            self.characters += SCRIPTS["latin"] + SCRIPTS["greek"]
        super().__init__()

    def all_prompts(self) -> list[str]:
        count = 10 ** (self.digits * self.terms)
        rows = [f"{i:0{self.digits * self.terms}d}" for i in draw_numbers(count, min(COUNT, count))]
        return [
            "+".join(row[k : k + self.digits] for k in range(0, len(row), self.digits)) + "="
            for row in rows
        ]

    def answer(self, prompt: str) -> str:
        return self._last_digits(sum(_terms(prompt)))

    def demonstration(self, prompt: str) -> str:
        if not self.steps:
            return self.answer(prompt)
        return self.worked_answer(prompt, [self.script] * self.terms)

    def worked_answer(self, prompt: str, scripts: Sequence[str]) -> str:
        """The answer after its intermediate steps, each written in one of `scripts`."""
        sums = map(self._last_digits, accumulate(_terms(prompt)))
        steps = [
            step.translate(str.maketrans(DIGITS, SCRIPTS[script]))
            for step, script in zip(sums, scripts, strict=True)
        ]
        return f"{OPEN}{','.join(steps)}{CLOSE}{self.answer(prompt)}"

    @staticmethod
    def score_recorded(prompt: str, answer: str, text: str) -> float:
        return float(final_answer(text) == answer)

    def judge_steps(self, prompt: str, text: str) -> list[tuple[int, float]]:
        """A step is one sum, with the comma or tag after it; it is right if it is the sum of so
        many terms, whatever precedes it. The answer is the last step."""
        thoughts, close, _ = text.partition(CLOSE)
        sums = [self._last_digits(number) for number in accumulate(_terms(prompt))]
        found: list[tuple[int, float]] = []
        if close or thoughts.startswith(OPEN):
            end = len(OPEN) if thoughts.startswith(OPEN) else 0
            steps = thoughts[end:].split(",")
            for place, step in enumerate(steps):
                last = place == len(steps) - 1
                end += len(step) + (len(close) if last else 1)
                right = sums[place] if place < len(sums) else None
                found.append((end, float(step.translate(TO_DIGITS) == right)))
        if close or not found:
            found.append((len(text), self.score(prompt, text)))
        return [step for step in found if step[0] > 0]

    def _last_digits(self, number: int) -> str:
        return f"{number % 10**self.digits:0{self.digits}d}"


def final_answer(text: str) -> str:
    """The text after the scratchpad; the whole text without one, and "" if it is not closed."""
    _, close, answer = text.rpartition(CLOSE)
    return answer.strip() if close or OPEN not in text else ""


def _terms(prompt: str) -> list[int]:
    return [int(term) for term in prompt.rstrip("=").split("+")]
