"""Several rewards, named and weighted, as one.

    R = Σ_k w_k r_k     over the rewards that apply

One that does not apply to a completion (None) adds nothing. Where none applies, R is 0: in a group of which no completion is judged all
returns are equal, and so their advantages are 0.

Source: the sum is TRL's (`GRPOTrainer`, `scale_rewards` "group" and "batch"). Difference: TRL leaves a completion that no reward judges out
of its group's mean; here it counts as 0, which differs where the others of its group are judged.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import check, finite, nearest, one_of
from rlbook.interaction.guards import BadAnswer
from rlbook.llm.rewards.completion import BatchedReward, Completion, Reward
from rlbook.llm.rewards.verifiers import correct, edit, exact, prefix

REWARDS: dict[str, Reward | BatchedReward] = {"correct": correct, "exact": exact, "prefix": prefix, "edit": edit}
"""Name → function; its keyword arguments are its options."""
LOGGED = "reward/"
"""In front of a reward's name in the log."""
Asked = Any
"""A name, a function, a list of those, or a mapping: name → weight, or name → {weight, function, and the function's options}."""


class Part(NamedTuple):
    """One of the rewards."""

    name: str
    weight: float
    function: Callable[..., Any]
    batched: bool


class Rewards:
    """The rewards of a run.

    Args:
        asked: "exact"; a function; a list of names and functions, each with weight 1; or a mapping such as
            {"exact": 1.0, "mine": {"function": f, "weight": 0.2}}.

    Raises:
        ValueError: one sentence: what, which value, what is allowed.
    """

    def __init__(self, asked: Asked) -> None:
        self.alone = callable(asked) or isinstance(asked, str)
        """Whether it is one reward, whose number is the return and needs no name in the log."""
        self.parts = _parts(asked)

    def __call__(self, completions: Sequence[Completion]) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """What N completions earn: [N], and name → [N] of each reward, NaN where it does not apply.

        Raises:
            BadAnswer: a reward failed, or returned something else than numbers or None; the sentence names it and the completion.
        """
        total, named = np.zeros(len(completions)), {}
        for part in self.parts:
            values = np.array(_values(part, completions), dtype=np.float64)          # None becomes NaN
            if not self.alone:
                named[LOGGED + part.name] = values
            total += part.weight * np.nan_to_num(values)
        return total, named


def _values(part: Part, completions: Sequence[Completion]) -> list[float | None]:
    if not part.batched:
        return [_value(part, _asked(part, completion), completion) for completion in completions]
    try:
        found = list(part.function(completions))
    except Exception as error:               # whatever the user's function does
        raise BadAnswer(f"reward {part.name!r} failed on {len(completions)} completions: {_told(error)}") from error
    if len(found) != len(completions):
        raise BadAnswer(f"reward {part.name!r} must return {len(completions)} numbers, one a completion, got {len(found)}")
    return [_value(part, value, completion) for value, completion in zip(found, completions, strict=True)]


def _asked(part: Part, completion: Completion) -> object:
    try:
        return part.function(completion)
    except Exception as error:               # whatever the user's function does
        raise BadAnswer(f"reward {part.name!r} failed on {_shown(completion)}: {_told(error)}") from error


def _value(part: Part, value: Any, completion: Completion) -> float | None:
    if value is None:
        return None
    try:
        number = float(value) if not isinstance(value, str) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadAnswer(f"reward {part.name!r} must return a finite number or None, got {value!r} for {_shown(completion)}")
    return number


def _shown(completion: Completion) -> str:
    text, prompt = (part if len(part) <= 60 else part[:57] + "..." for part in (completion.text, completion.prompt))
    return f"the completion {text!r} of {prompt!r}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _parts(asked: Asked) -> list[Part]:
    """What was asked for, as parts with names of their own."""
    if callable(asked) or isinstance(asked, str):
        asked = [asked]
    entries = list(asked.items()) if isinstance(asked, Mapping) else asked
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"reward must be a name, a function, a list of those or a mapping of names to weights, got {asked!r}")
    parts = [_part(*entry) if isinstance(asked, Mapping) else _part(entry, 1.0) for entry in entries]
    names = [part.name for part in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"reward names {twice!r} twice; give a mapping with two names")
    return parts


def _part(key: object, value: object) -> Part:
    """One entry: a name or a function, and its weight or a mapping with its options."""
    options: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"weight": value}
    weight, source = options.pop("weight", 1.0), options.pop("function", key)
    name = key if isinstance(key, str) else getattr(key, "__name__", type(key).__name__)
    name = name.rpartition(":")[2]
    check(f"the weight of reward {name!r}", weight, finite)
    function = source if callable(source) else _found(source)
    if options:
        _check_options(name, function, options)
        function = functools.wraps(function)(functools.partial(function, **options))
    return Part(name, float(weight), function, getattr(function, "batched", False))


def _found(source: object) -> Callable[..., Any]:
    check("reward", source, one_of(*REWARDS))
    return REWARDS[str(source)]


def _check_options(name: str, function: Callable[..., Any], options: Mapping[str, object]) -> None:
    known = [item.name for item in inspect.signature(function).parameters.values() if item.kind is item.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            match = nearest(option, known)
            hint = f"; did you mean {match!r}?" if match else ""
            raise ValueError(f"reward {name!r} has no option {option!r}{hint} (it has: {', '.join(['weight', *known])})")
