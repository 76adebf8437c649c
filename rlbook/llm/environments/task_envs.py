"""The other built-in tasks as environments, each with a vector form; `Addition` and `Reverse` are
in `token_env`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Unpack

from rlbook.checks import check, one_of
from rlbook.llm.environments.token_env import (
    TokenEnv,
    TokenOptions,
    TokenVectorEnv,
    describe_task,
)
from rlbook.llm.tasks import (
    TASKS,
    CountdownTask,
    MixtureTask,
    ModularTask,
    ReasoningTask,
    SortingTask,
    TaggedCopyTask,
)
from rlbook.llm.tasks.task import Task, build_task


class Sorting(TokenEnv):
    __doc__ = describe_task("""
    The task: eight digits in ascending order, "72905314=" is answered by "01234579" and EOS; 7 680 training and 512 held-out prompts. V is
    26, a prompt has 10 tokens (BOS first), `max_new_tokens` is 10 and L is 20. Optimal return: 1.0. No weights ship for it.
    """)

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(SortingTask), **kwargs)


class SortingVector(TokenVectorEnv):
    """`Sorting` for N environments."""

    single = Sorting


class ModularArithmetic(TokenEnv):
    __doc__ = describe_task("""
    The task: a remainder, "58*77%10=" is answered by "6" and EOS; 15 872 training and 512 held-out prompts with +, - and * of two numbers
    of two digits. V is 19, a prompt has 10 tokens (BOS first), `max_new_tokens` is 3 and L is 13. Optimal return: 1.0. No weights
    ship for it.

    One more argument:
    * `modulus`: what is divided by, 2 to 99 (10).
    """)

    def __init__(self, *, modulus: int = 10, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(ModularTask, modulus), **kwargs)


class ModularArithmeticVector(TokenVectorEnv):
    """`ModularArithmetic` for N environments."""

    single = ModularArithmetic


class TaggedCopy(TokenEnv):
    __doc__ = describe_task("""
    The task: copying by a rule, for formats. The word between the tags in capital letters and in brackets: "ab<cde>fgh=" is answered by
    "[CDE]" and EOS; 7 680 training and 512 held-out prompts. V is 29, a prompt has 12 tokens (BOS first), `max_new_tokens` is 9 and L is
    21. Optimal return: 1.0. No weights ship for it.
    """)

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(TaggedCopyTask), **kwargs)


class TaggedCopyVector(TokenVectorEnv):
    """`TaggedCopy` for N environments."""

    single = TaggedCopy


class Countdown(TokenEnv):
    __doc__ = describe_task("""
    The task: an expression of three numbers, each once, that comes to a target: "2,3,7:13=" is answered by "2*3+7" and EOS, and every
    other right expression counts too. A parser of its own reads it with + - * / and parentheses, in fractions. 7 675 training and 512
    held-out prompts. V is 23, a prompt has 9 to 13 tokens (BOS first), `max_new_tokens` is 12 and L is 25. Optimal return: 1.0. No
    weights ship for it.
    """)

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(build_task(CountdownTask), **kwargs)


class CountdownVector(TokenVectorEnv):
    """`Countdown` for N environments."""

    single = Countdown


class Reasoning(TokenEnv):
    __doc__ = describe_task("""
    The task: sums in several steps. Asked is the last digit of the sum: "4+7+8+5+9+6=" is answered by "9" and EOS, with a scratchpad before
    it or without. Demonstrations have one, "<think>4,1,9,4,3,9</think>9": the last digit of the sum so far after each term. Only what
    follows the scratchpad is scored. 7 680 training and 512 held-out prompts. V is 19 (each tag is one token), a prompt has 13
    tokens (BOS first), `max_new_tokens` is 16 and L is 29. Optimal return: 1.0; of answers without steps about one in ten is right by
    chance. No weights ship for it.

    Four more arguments:
    * `terms`: how many numbers are added, 3 to 8 (6).
    * `digits`: how many digits each number and the answer have, 1 or 2 (1).
    * `steps`: whether demonstrations have the scratchpad (true).
    * `script`: what the steps are written with, "digits" (the default), "latin" or "greek" letters; V is 39 with letters.
    """)

    def __init__(
        self,
        *,
        terms: int = 6,
        digits: int = 1,
        steps: bool = True,
        script: str = "digits",
        **kwargs: Unpack[TokenOptions],
    ) -> None:
        super().__init__(build_task(ReasoningTask, terms, digits, steps, script), **kwargs)


class ReasoningVector(TokenVectorEnv):
    """`Reasoning` for N environments."""

    single = Reasoning


TWO: dict[str, dict[str, Any]] = {"reasoning": {"terms": 4, "script": "latin"}, "tagged_copy": {}}
"""The default tasks of a `Mixture`."""


class Mixture(TokenEnv):
    __doc__ = describe_task("""
    The task: several at once, by default sums of four terms with steps in Latin letters ("4+7+8+5=" is answered by
    "<think>e,b,j,e</think>4") and `TaggedCopy-v0`'s copies. Each prompt is judged by the task that it comes from, whose name rewards see as
    the column "task". The vocabulary and the limits are those of all of them: of the default, 15 360 training and 1 024 held-out prompts,
    V is 53, a prompt has 9 or 12 tokens (BOS first), `max_new_tokens` is 12 and L is 24. Optimal return: 1.0. No weights ship for it.

    Two more arguments:
    * `tasks`: name → the arguments of the task, such as {reasoning: {terms: 5}, reverse: {}}.
    * `only`: the one task whose prompts are shown, so that a stage trains on it, or an evaluation counts it; all by default.
    """)

    def __init__(
        self,
        *,
        tasks: Mapping[str, Mapping[str, Any]] = TWO,
        only: str | None = None,
        **kwargs: Unpack[TokenOptions],
    ) -> None:
        super().__init__(mixture(tasks, only), **kwargs)


class MixtureVector(TokenVectorEnv):
    """`Mixture` for N environments."""

    single = Mixture


def mixture(tasks: Mapping[str, Mapping[str, Any]], only: str | None = None) -> MixtureTask:
    """The task of `Mixture`. Raises ValueError for an unknown task or arguments that it does not
    accept."""
    if not isinstance(tasks, Mapping) or not all(
        isinstance(arguments, Mapping) for arguments in tasks.values()
    ):
        raise ValueError(
            "tasks must be names with their arguments, such as {reasoning: {terms: 5},"
            f" addition: {{}}}}, got {tasks!r}"
        )
    found: dict[str, Task] = {}
    for name, arguments in tasks.items():
        check("tasks", name, one_of(*TASKS))
        known = inspect.signature(TASKS[name]).parameters
        for argument in arguments:
            check(f"an argument of task {name!r}", argument, one_of(*known))
        found[name] = build_task(TASKS[name], **arguments)
    return build_task(MixtureTask, tuple(found.items()), only)
