"""The built-in tasks as environments, beside `Addition` and `Reverse`: each with a vector form."""

from __future__ import annotations

from typing import Unpack

from rlbook.llm.tasks import CountdownTask, ModularTask, ReasoningTask, SortingTask, TaggedCopyTask
from rlbook.llm.tasks.task import built
from rlbook.llm.token_env import TokenEnv, TokenOptions, TokenVectorEnv


class Sorting(TokenEnv):
    __doc__ = f"""{TokenEnv.__doc__}
    The task: eight digits in ascending order, "72905314=" is answered by "01234579" and EOS; 7 680 training and 512 held-out prompts. V is
    26, a prompt has 10 tokens (BOS first), `max_new_tokens` is 10 and L is 20. Optimal return: 1.0. No weights ship for it.
    """

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(SortingTask), **kwargs)


class SortingVector(TokenVectorEnv):
    """`Sorting` for N environments."""

    def __init__(self, num_envs: int = 1, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(SortingTask), num_envs, **kwargs)


class ModularArithmetic(TokenEnv):
    __doc__ = f"""{TokenEnv.__doc__}
    The task: a remainder, "58*77%10=" is answered by "6" and EOS; 15 872 training and 512 held-out prompts with +, - and * of two numbers
    of two digits. V is 19, a prompt has 10 tokens (BOS first), `max_new_tokens` is 3 and L is 13. Optimal return: 1.0. No weights
    ship for it.

    One more argument:
    * `modulus`: what is divided by, 2 to 99 (10).
    """

    def __init__(self, *, modulus: int = 10, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(ModularTask, modulus), **kwargs)


class ModularArithmeticVector(TokenVectorEnv):
    """`ModularArithmetic` for N environments."""

    def __init__(self, num_envs: int = 1, *, modulus: int = 10, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(ModularTask, modulus), num_envs, **kwargs)


class TaggedCopy(TokenEnv):
    __doc__ = f"""{TokenEnv.__doc__}
    The task: copying by a rule, for formats. The word between the tags in capital letters and in brackets: "ab<cde>fgh=" is answered by
    "[CDE]" and EOS; 7 680 training and 512 held-out prompts. V is 29, a prompt has 12 tokens (BOS first), `max_new_tokens` is 9 and L is
    21. Optimal return: 1.0. No weights ship for it.
    """

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(TaggedCopyTask), **kwargs)


class TaggedCopyVector(TokenVectorEnv):
    """`TaggedCopy` for N environments."""

    def __init__(self, num_envs: int = 1, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(TaggedCopyTask), num_envs, **kwargs)


class Countdown(TokenEnv):
    __doc__ = f"""{TokenEnv.__doc__}
    The task: an expression of three numbers, each once, that comes to a target: "2,3,7:13=" is answered by "2*3+7" and EOS, and every
    other right expression counts too. A parser of its own reads it with + - * / and parentheses, in fractions. 7 675 training and 512
    held-out prompts. V is 23, a prompt has 9 to 13 tokens (BOS first), `max_new_tokens` is 12 and L is 25. Optimal return: 1.0. No
    weights ship for it.
    """

    def __init__(self, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(CountdownTask), **kwargs)


class CountdownVector(TokenVectorEnv):
    """`Countdown` for N environments."""

    def __init__(self, num_envs: int = 1, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(CountdownTask), num_envs, **kwargs)


class Reasoning(TokenEnv):
    __doc__ = f"""{TokenEnv.__doc__}
    The task: sums in several steps. Asked is the last digit of the sum: "4+7+8+5+9+6=" is answered by "9" and EOS, with a scratchpad before
    it or without. Demonstrations have one, "<think>4,1,9,4,3,9</think>9": the last digit of the sum so far behind each term. Only what
    stands behind the scratchpad is scored. 7 680 training and 512 held-out prompts. V is 19 (each tag is one token), a prompt has 13
    tokens (BOS first), `max_new_tokens` is 16 and L is 29. Optimal return: 1.0; of answers without steps about one in ten is right by
    chance. No weights ship for it.

    Three more arguments:
    * `terms`: how many numbers are added, 3 to 8 (6).
    * `digits`: how many digits each number and the answer have, 1 or 2 (1).
    * `steps`: whether demonstrations have the scratchpad (true).
    """

    def __init__(self, *, terms: int = 6, digits: int = 1, steps: bool = True, **kwargs: Unpack[TokenOptions]) -> None:
        super().__init__(built(ReasoningTask, terms, digits, steps), **kwargs)


class ReasoningVector(TokenVectorEnv):
    """`Reasoning` for N environments."""

    def __init__(
        self, num_envs: int = 1, *, terms: int = 6, digits: int = 1, steps: bool = True, **kwargs: Unpack[TokenOptions]
    ) -> None:
        super().__init__(built(ReasoningTask, terms, digits, steps), num_envs, **kwargs)
