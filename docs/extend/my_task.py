"""A task of one's own: write three digits in order. "725=" is answered by "257", and "752" is right
too."""

from itertools import product

import gymnasium

from rlbook.llm.environments.token_env import TokenEnv, TokenVectorEnv
from rlbook.llm.tasks import Task


class SortTask(Task):
    name = "sort"

    def all_prompts(self):
        return ["".join(digits) + "=" for digits in product("0123456789", repeat=3)]

    def answer(self, prompt):
        return "".join(sorted(prompt.rstrip("=")))

    def score(self, prompt, text):
        return float(text in (self.answer(prompt), self.answer(prompt)[::-1]))


gymnasium.register(
    "Sort-v0", entry_point=TokenEnv, vector_entry_point=TokenVectorEnv, kwargs={"task": SortTask()}
)


def digits_in_place(completion):
    """A reward: the share of the digits that stand where they should."""
    return sum(a == b for a, b in zip(completion.text, completion.answer, strict=False)) / 3
