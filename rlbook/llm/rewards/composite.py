"""A weighted sum of named rewards.

    R = Σ_k w_k r_k     over the rewards that apply

One that does not apply to a completion (None) adds nothing. Where none applies, R is 0: in a group
of which no completion is judged all returns are equal, and so their advantages are 0.

Source: the sum is TRL's (`GRPOTrainer`, `scale_rewards` "group" and "batch"). Difference: TRL
leaves a completion that no reward judges out of its group's mean; here it counts as 0, which
differs where the others of its group are judged.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import (
    Kind,
    at_least,
    boolean,
    check,
    did_you_mean,
    finite,
    non_negative,
    non_negative_int,
    one_of,
    optional,
    positive,
    positive_int,
)
from rlbook.interaction.guards import BadAnswer
from rlbook.llm.rewards.answers import boxed, is_number, numeric, tagged
from rlbook.llm.rewards.code import code
from rlbook.llm.rewards.completion import Completion
from rlbook.llm.rewards.formats import form, language, tags, think
from rlbook.llm.rewards.judge import check_judge_reward, judge
from rlbook.llm.rewards.lengths import length, overlong, repetition
from rlbook.llm.rewards.passages import grounding, squad_em, squad_f1
from rlbook.llm.rewards.rubric import check_rubric_reward, rubric
from rlbook.llm.rewards.sequence_classifier import check_reward_model, reward_model
from rlbook.llm.rewards.shots import coherence, diversity, downstream
from rlbook.llm.rewards.trl_and_verl import DIALECTS, import_reward, trl_reward, verl_reward
from rlbook.llm.rewards.verifiers import correct, edit, exact, judged, prefix

REWARDS: dict[str, Callable[..., Any]] = {
    "exact": exact,
    "correct": correct,
    "prefix": prefix,
    "edit": edit,
    "numeric": numeric,
    "boxed": boxed,
    "answer": tagged,
    "code": code,
    "number": is_number,
    "format": form,
    "tags": tags,
    "think": think,
    "language": language,
    "length": length,
    "overlong": overlong,
    "repetition": repetition,
    "judged": judged,
    "coherence": coherence,
    "diversity": diversity,
    "downstream": downstream,
    "squad_em": squad_em,
    "squad_f1": squad_f1,
    "grounding": grounding,
    "rubric": rubric,
    "judge": judge,
    "reward_model": reward_model,
}
"""Name → a `Reward` or a `BatchedReward`; its keyword arguments are its options."""
CHECKS: dict[Callable[..., Any], Callable[[dict[str, Any]], None]] = {
    judge: check_judge_reward,
    rubric: check_rubric_reward,
    reward_model: check_reward_model,
}
"""The rewards that ask a model → what else their options must be, beyond the kind of each."""
NEED_AN_ANSWER = (correct, exact, prefix, edit, numeric, boxed, tagged)
"""The rewards that do not apply to an example without an answer."""
RIGHT_OR_WRONG = (correct, exact, numeric, boxed, tagged, code, squad_em)
"""The rewards that are 1 if a completion is correct, and less otherwise."""
texts = Kind(
    "a list of names",
    lambda value: (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(item, str) for item in value)
    ),
)
word = Kind("a text", lambda value: isinstance(value, str))
mapping = Kind(
    "a mapping",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
two_numbers = Kind(
    "two numbers",
    lambda value: (
        isinstance(value, list | tuple) and len(value) == 2 and all(map(finite.allows, value))
    ),
)
url = Kind(
    "a URL such as http://127.0.0.1:8000/v1",
    lambda value: isinstance(value, str) and re.fullmatch(r"https?://[^\s/]\S*", value) is not None,
)
OPTIONS: dict[str, Kind] = {
    "after": word,
    "tolerance": non_negative,
    "tag": word,
    "names": texts,
    "script": word,
    "buffer": positive_int,
    "limit": optional(positive_int),
    "factor": finite,
    "bounded": boolean,
    "n": positive_int,
    "seconds": positive,
    "modulo": optional(positive_int),
    "memory_mb": at_least(64),
    "jobs": positive_int,
    "isolate": boolean,
    "quotes": boolean,
    "criteria": optional(mapping),
    "server": optional(url),
    "folder": optional(word),
    "model": optional(word),
    "mode": word,
    "template": optional(word),
    "scale": two_numbers,
    "swap": boolean,
    "opponents": positive_int,
    "max_tokens": positive_int,
    "timeout": positive,
    "retries": non_negative_int,
    "cache": optional(word),
}
"""The allowed values of the built-in rewards' options."""
LOGGED = "reward/"
"""The prefix of a reward's name in the log."""
MODEL = "model"
"""The name of the run's reward model among the rewards."""
Asked = Any
"""A name, a function, a list of those, or a mapping: name → weight, or name → {weight, function,
and the function's options}."""


CALLED = (
    "; a reward is called with one Completion, whose text is completion.text, and one written for"
    " TRL is named 'trl:module:function'"
)


class Part(NamedTuple):
    """One term of the sum."""

    name: str
    weight: float
    function: Callable[..., Any] | None  # None: the run's reward model
    batched: bool = False
    compares: bool = False  # whether it applies to examples with an answer alone
    judged: bool = False  # or with a task that judges a text
    where: tuple[tuple[str, tuple[object, ...]], ...] = ()  # and to those whose columns say so


CORRECT = Part("correct", 1.0, correct, compares=True, judged=True)


class Rewards:
    """The rewards of a run.

    Args:
        specification: "exact"; a function; a list of names and functions, each with weight 1; or a
            mapping such as {"exact": 1.0, "mine": {"function": f, "weight": 0.2}}.
        allow_import: let a reward of the form "module:function" import that module, and `code` run
            what a model has written.

    Raises:
        ValueError: one sentence: what, which value, what is allowed.
    """

    def __init__(self, specification: Asked, *, allow_import: bool = False) -> None:
        self.alone = callable(specification) or isinstance(specification, str)
        """Whether it is one reward, whose number is the return and needs no name in the log."""
        parts = _parts(specification, allow_import)
        self.parts = [part for part in parts if part.function is not None]
        self.model_weight = next((part.weight for part in parts if part.function is None), None)
        """Of the run's reward model beside these; None where it is not one of them."""

    def __str__(self) -> str:
        """The sum as it is written, such as "correct + 0.2 edit"."""
        terms = [(part.name, part.weight) for part in self.parts]
        if self.model_weight is not None:
            terms.append((MODEL, self.model_weight))
        return " + ".join(name if weight == 1.0 else f"{weight:g} {name}" for name, weight in terms)

    @property
    def verifier(self) -> Part | None:
        """The first reward that is a verifier."""
        return next(
            (part for part in self.parts if inspect.unwrap(given_function(part)) in RIGHT_OR_WRONG),
            None,
        )

    def __call__(
        self, completions: Sequence[Completion]
    ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """The total rewards of N completions: [N], and name → [N] of each reward, NaN where it does
        not apply.

        Raises:
            BadAnswer: a reward failed, or returned something else than numbers or None; the
                sentence names it and the completion.
        """
        total: NDArray[np.float64] | None = None
        named: dict[str, NDArray[np.float64]] = {}
        for part in self.parts:
            found = _values(part, completions)
            if {*map(type, found)} == {float} and all(map(math.isfinite, found)):
                values = earned = np.array(found)
                if self.alone:
                    return values, named
            else:
                numbers = [_value(part, *both) for both in zip(found, completions, strict=True)]
                values = np.array(numbers, dtype=np.float64)  # None becomes NaN
                earned = np.nan_to_num(values)
                named |= _detail_columns(LOGGED + part.name, found)
            if not self.alone:
                named[LOGGED + part.name] = values
            weighed = earned if part.weight == 1.0 else part.weight * earned
            total = weighed if total is None else total + weighed
        return np.zeros(len(completions)) if total is None else total, named


def given_function(part: Part) -> Callable[..., Any]:
    """The reward's function; None for the run's reward model."""
    assert part.function is not None
    return part.function


def verifier_results(part: Part, completions: Sequence[Completion]) -> NDArray[np.float64]:
    """A verifier's result for N completions: [N], 1 for correct and 0 for incorrect ones, NaN where
    it does not apply."""
    values = np.array(
        [_value(part, *both) for both in zip(_values(part, completions), completions, strict=True)],
        dtype=np.float64,
    )
    return np.where(np.isnan(values), np.nan, values >= 1.0)


def _values(part: Part, completions: Sequence[Completion]) -> list[Any]:
    """The reward's value for each completion, None where it does not apply."""
    if part.batched:
        return _values_at_once(part, completions)
    found: list[Any] = []
    function = given_function(part)
    try:
        for completion in completions:
            found.append(
                function(completion)
                if (completion.answer is not None and not part.where)
                or _is_applicable(part, completion)
                else None
            )
    except Exception as error:  # whatever the user's function does
        raise BadAnswer(
            f"reward {part.name!r} failed on {_shorten(completions[len(found)])}:"
            f" {_error_text(error)}{CALLED if 'Completion' in str(error) else ''}"
        ) from error
    return found


def _values_at_once(part: Part, completions: Sequence[Completion]) -> list[Any]:
    """The same for a batched reward."""
    there = [_is_applicable(part, completion) for completion in completions]
    asked = [completion for completion, applies in zip(completions, there, strict=True) if applies]
    try:
        found = list(given_function(part)(asked)) if asked else []
    except Exception as error:  # whatever the user's function does
        raise BadAnswer(
            f"reward {part.name!r} failed on {len(asked)} completions: {_error_text(error)}"
        ) from error
    if len(found) != len(asked):
        raise BadAnswer(
            f"reward {part.name!r} must return {len(asked)} numbers, one a completion, got"
            f" {len(found)}"
        )
    each = iter(found)
    return [next(each) if applies else None for applies in there]


def _is_applicable(part: Part, completion: Completion) -> bool:
    """Whether the reward applies: one that compares with the answer needs an answer, unless a task
    scores the text; and one for some prompts needs one of these."""
    columns = completion.columns
    if any(columns.get(name, None) not in values for name, values in part.where):
        return False
    return (
        not part.compares
        or completion.answer is not None
        or (part.judged and completion.judge is not None)
    )


def _detail_columns(name: str, found: Sequence[object]) -> dict[str, NDArray[np.float64]]:
    """The further numbers of rewards that return mappings: name/KEY → [N], NaN where there is
    none."""
    keys = {key for value in found if isinstance(value, Mapping) for key in value if key != "score"}
    columns = {
        key: [value.get(key) if isinstance(value, Mapping) else None for value in found]
        for key in sorted(map(str, keys))
    }
    numbers = {
        key: [float(value) if isinstance(value, int | float) else math.nan for value in column]
        for key, column in columns.items()
    }
    return {
        f"{name}/{key}": np.array(column)
        for key, column in numbers.items()
        if not all(map(math.isnan, column))
    }


def _value(part: Part, value: Any, completion: Completion) -> float | None:
    """A reward's return value as a number, or None."""
    shown: Any = value["score"] if isinstance(value, Mapping) and "score" in value else value
    if shown is None:
        return None
    try:
        number = float(shown) if not isinstance(shown, str) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadAnswer(
            f"reward {part.name!r} must return a finite number or None, got {shown!r} for"
            f" {_shorten(completion)}"
        )
    return number


def _shorten(completion: Completion) -> str:
    text, prompt = (
        part if len(part) <= 60 else part[:57] + "..."
        for part in (completion.text, completion.prompt)
    )
    return f"the completion {text!r} of {prompt!r}"


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _parts(specification: Asked, allow_import: bool) -> list[Part]:
    """The user's specification as parts with unique names."""
    if callable(specification) or isinstance(specification, str):
        specification = [specification]
    entries = list(specification.items()) if isinstance(specification, Mapping) else specification
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(
            "reward must be a name, a function, a list of those or a mapping of names to weights,"
            f" got {specification!r}"
        )
    pairs = entries if isinstance(specification, Mapping) else [(entry, 1.0) for entry in entries]
    parts = [_part(key, value, allow_import) for key, value in pairs]
    names = [part.name for part in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"reward names {twice!r} twice; give a mapping with two names")
    return parts


def _part(key: object, value: object, allow_import: bool) -> Part:
    """One entry of the specification: a name or a function, and its weight or a mapping with its
    options."""
    options: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"weight": value}
    weight, source = options.pop("weight", 1.0), options.pop("function", key)
    name = key if isinstance(key, str) else getattr(key, "__name__", type(key).__name__)
    name = name.rpartition(":")[2]
    check(f"the weight of reward {name!r}", weight, finite)
    if source == MODEL and not options:
        return Part(name, float(weight), None)
    where = _columns_of(name, options.pop("where", {}))
    function = _find_function(name, source, options, allow_import)
    plain = inspect.unwrap(function)
    return Part(
        name,
        float(weight),
        function,
        getattr(function, "batched", False),
        plain in NEED_AN_ANSWER,
        plain is correct,
        where,
    )


def _columns_of(name: str, where: object) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """The columns that a reward is restricted to: name → one value or several."""
    check(f"where of reward {name!r}", where, mapping)
    assert isinstance(where, Mapping)
    return tuple(
        (column, tuple(value) if isinstance(value, list | tuple) else (value,))
        for column, value in where.items()
    )


def _find_function(
    name: str, source: object, options: dict[str, Any], allow_import: bool
) -> Callable[..., Any]:
    """The function of an entry, with its options bound."""
    dialect: str | None = None
    function: Any = source
    if isinstance(source, str) and ":" in source:
        dialect, function = import_reward(source, allow_import=allow_import)
    elif not callable(source):
        check("reward", source, one_of(*REWARDS, MODEL))
        function = REWARDS[str(source)]
    if function is code and not allow_import:
        wanted = "give --allow-import (allow_import=True) if you want that"
        raise ValueError(f"reward {name!r} runs programs that a model has written; {wanted}")
    if dialect in DIALECTS:
        adapter = trl_reward if dialect == "trl" else verl_reward
        _check_options(name, adapter, options)
        try:
            return adapter(function, **options)
        except Exception as error:  # a sentence of ours, or whatever the user's function does
            raise ValueError(
                f"reward {name!r}: {error if isinstance(error, ValueError) else _error_text(error)}"
            ) from error
    assert callable(function)
    _check_options(name, function, options)
    try:
        inspect.signature(function).bind(None, **options)
    except TypeError:
        taken = inspect.signature(function)
        raise ValueError(f"reward {name!r} is a function of {taken}{CALLED}") from None
    if not options:
        return function
    return functools.wraps(function)(functools.partial(function, **options))


def _check_options(name: str, function: Callable[..., Any], options: Mapping[str, object]) -> None:
    given = [
        item
        for item in inspect.signature(function).parameters.values()
        if item.kind is item.KEYWORD_ONLY
    ]
    known = [item.name for item in given]
    for option, value in options.items():
        if option not in known:
            hint = did_you_mean(option, known)
            raise ValueError(
                f"reward {name!r} has no option {option!r}{hint} (it has:"
                f" {', '.join(['weight', *known, 'where'])})"
            )
        if function in REWARDS.values():
            check(f"{option} of reward {name!r}", value, OPTIONS[option])
    missing = next(
        (item.name for item in given if item.default is item.empty and item.name not in options),
        None,
    )
    if missing is not None:
        example = "FOLDER" if missing == "folder" else 16
        raise ValueError(
            f"reward {name!r} needs the option {missing!r}, such as"
            f" {{{name}: {{{missing}: {example}}}}}"
        )
    if function in CHECKS:
        CHECKS[function](dict(options))
