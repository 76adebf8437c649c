"""The hyper-parameters that a search varies, and their ranges: derived from their annotations and
from the starting value.

    gamma: Annotated[float, unit_interval] = 0.99          0.9 to 0.999, by the logarithm of 1 - γ
    learning_rate: Annotated[float, positive] = 3e-4       3e-5 to 3e-3, by the logarithm
    batch_size: Annotated[int, positive_int] = 64          16, 32, 64, 128 or 256
    double: bool = True                                    true or false
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rlbook.agent import Agent
from rlbook.checks import Kind
from rlbook.errors import RequestError
from rlbook.functional.schedules import Constant, Cosine, Exponential, Inverse, Linear, Schedule
from rlbook.hyperparameters import as_fields, field_names, field_values, idle_setting, kinds
from rlbook.registry import name_of
from rlbook.runs.other_libraries import unknown_hyperparameter
from rlbook.runs.storage.plain_yaml import parse_yaml

Plain = bool | int | float | str | None
"""A value in YAML's and Optuna's form: a tuple as text such as "64,64", a schedule as text."""

LINEAR, LOG, LOG_OF_REST = "linear", "log", "log of 1 - x"
FACTOR, CLIP_FACTOR, COUNT_FACTOR = 10.0, 4.0, 4
"""The factor by which a range extends on both sides of its starting value."""
FROM_ZERO = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
SHARES_FROM_ZERO = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
SHARES_BELOW_ONE = (0.8, 0.9, 0.95, 0.98, 0.99, 1.0)

USUAL = (
    "learning_rate",
    "alpha",
    "epsilon",
    "planning_steps",
    "n",
    "n_step",
    "trace_decay",
    "gamma",
    "entropy_coef",
    "clip",
    "max_kl",
    "gae_lambda",
    "rollout_steps",
    "group_size",
    "epochs",
    "kl_coef",
    "beta",
    "conservative_coef",
    "tau",
    "target_period",
    "train_every",
    "c",
    "discriminator_rate",
    "model_learning_rate",
    "exploration_noise",
    "value_temperature",
    "score_temperature",
    "batch_size",
)
"""The hyper-parameters searched by default, the most important first."""
MOST_USUAL = 6
OPTIONAL_PARTS = ("kl_coef", "exploration_noise")
"""Coefficients that are searched by default only if they are above 0."""


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`."""

    low: float
    high: float
    scale: Literal["linear", "log", "log of 1 - x"] = "linear"
    """The scale on which draws are uniform."""
    whole: bool = False

    def __str__(self) -> str:
        end = "" if self.scale == LINEAR else f" ({self.scale})"
        return f"{self.low:g} to {self.high:g}{end}"

    def contains(self, value: Plain) -> bool:
        """Whether the value lies in the range."""
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choices:
    """A few values."""

    values: tuple[Plain, ...]

    def __str__(self) -> str:
        return " / ".join(_as_text(value) for value in self.values)

    def contains(self, value: Plain) -> bool:
        """Whether the value is one of the choices."""
        return any(value == choice and type(value) is type(choice) for choice in self.values)


Range = Interval | Choices
Space = Mapping[str, Range]


class Draws(Protocol):
    """The part of an Optuna trial's interface that a range needs."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = ...) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = ...) -> int: ...
    def suggest_categorical(self, name: str, choices: Sequence[Plain]) -> Plain: ...


def search_space(
    agent: type[Agent], config: object, search: Sequence[str] = (), fixed: Collection[str] = ()
) -> Space:
    """Hyper-parameter → range.

    Args:
        agent: the algorithm.
        config: its hyper-parameters where the search starts: the defaults, the preset of the
            environment, and what the user fixed.
        search: what to vary: names, and NAME=LOW..HIGH or NAME=A/B/C with a range of one's own.
            Empty: the usual ones of the algorithm.
        fixed: what the user fixed; it is not searched.

    Raises:
        RequestError: an unknown or a fixed name, a range that is not allowed, or nothing to search.
    """
    space: dict[str, Range] = {}
    words = list(search) or default_names(agent, config, fixed)
    for word in sorted(words, key=lambda word: _is_idle(_name_in(word), config)):
        name, given, text = _name_in(word), *word.partition("=")[1:]
        if name not in field_names(type(config)):
            raise RequestError(f"search: {unknown_hyperparameter(agent, name)}")
        if name in space:
            raise RequestError(f"search names {name} twice")
        if name in fixed:
            raise RequestError(f"{name} is given, so it cannot be searched; leave one out")
        kind, value = kinds(type(config))[name], getattr(config, name)
        read_in = _config_that_reads(name, config, space)
        space[name] = _parse_range(name, text, value, kind) if given else _range_of(name, read_in)
        _check(name, space[name], read_in)
    return space


def _name_in(word: str) -> str:
    """The hyper-parameter in a word such as --v-max=1..10."""
    return word.partition("=")[0].strip().removeprefix("--").replace("-", "_")


def _config_that_reads(name: str, config: object, space: Space) -> object:
    """The config, or the one with the first value of another searched hyper-parameter where this
    one is read. A trial leaves out what nothing reads beside its other values."""
    if not _is_idle(name, config):
        return config
    others = (
        _with_values(config, {switch: value})
        for switch, found in space.items()
        if isinstance(found, Choices)
        for value in found.values
        if _fits(config, {switch: value})
    )
    return next((other for other in others if not _is_idle(name, other)), config)


def _is_idle(name: str, config: object) -> bool:
    """Whether nothing reads a hyper-parameter because of the config's others."""
    if name not in field_names(type(config)):
        return False
    found = _wide_range(name, config)
    ends = _extremes(found) if found is not None else (1.0,)
    values = (settings({name: end}, config) for end in ends)
    whole = field_values(config)
    return any(
        idle_setting(type(config), {**whole, **as_fields(value)}) == name for value in values
    )


def default_names(agent: type[Agent], config: object, fixed: Collection[str] = ()) -> list[str]:
    """The hyper-parameters searched by default; for an algorithm that has none of the usual ones,
    the first of its own whose range can be derived.

    Where the values of one do not fit those of another, as n steps and traces, the first is
    searched.
    """
    usual = [name for name in USUAL if _is_usual(name, config)]
    space: dict[str, Range] = {}
    for name in usual or field_names(type(config)):
        found = _derive_range(name, config) if name not in fixed else None
        if found is not None and all(
            _fits(config, {name: end, other: far})
            for end in _extremes(found)
            for other, range_ in space.items()
            for far in _extremes(range_)
        ):
            space[name] = found
    if not space:
        raise RequestError(
            f"{name_of(agent)} has no hyper-parameter whose range could be derived; give one, "
            "such as search NAME=0.1..1"
        )
    return list(space)[:MOST_USUAL]


def draw(space: Space, trial: Draws) -> dict[str, Plain]:
    """A value for each hyper-parameter, rounded to three digits."""
    return {name: _draw(name, found, trial) for name, found in space.items()}


def _draw(name: str, found: Range, trial: Draws) -> Plain:
    label = name_in_study(name, found)
    if isinstance(found, Choices):
        return trial.suggest_categorical(label, found.values)
    if found.whole:
        log = found.scale == LOG
        return trial.suggest_int(label, int(found.low), int(found.high), log=log)
    if found.scale == LOG_OF_REST:
        rest = trial.suggest_float(label, _round(1 - found.high), _round(1 - found.low), log=True)
        return _clip_to(found, _round(1.0 - _round(rest, 3)))
    log = found.scale == LOG
    return _clip_to(found, _round(trial.suggest_float(label, found.low, found.high, log=log), 3))


def name_in_study(name: str, domain: Range) -> str:
    """The name in the study of the quantity that is drawn, which for γ is 1 - γ."""
    rest = isinstance(domain, Interval) and domain.scale == LOG_OF_REST
    return f"1 - {name}" if rest else name


def start_of(space: Space, config: object) -> dict[str, Plain] | None:
    """The config itself as a point of the space, under the study's names; None if it lies
    outside."""
    values = {name: _number(getattr(config, name)) for name in space}
    if not all(space[name].contains(value) for name, value in values.items()):
        return None
    labels = {name: name_in_study(name, space[name]) for name in space}
    return {
        labels[name]: _round(1.0 - float(value)) if labels[name] != name else value  # type: ignore[arg-type]
        for name, value in values.items()
    }


def settings(values: Mapping[str, Plain], config: object) -> dict[str, Any]:
    """Drawn values as hyper-parameters: a number replaces the searched part of a schedule, and text
    such as "64,64" becomes a list."""
    return {name: _setting(value, getattr(config, name)) for name, value in values.items()}


def _setting(value: Plain, held: object) -> Any:
    if isinstance(held, tuple) and isinstance(value, str):
        return [int(part) for part in value.split(",")]
    if isinstance(value, bool | str | None) or not isinstance(held, Schedule):
        return value
    if isinstance(held, Constant):
        return value
    return str(dataclasses.replace(held, **{_part_to_search(held): float(value)}))


def _part_to_search(schedule: Schedule) -> str:
    """The part of a schedule that is searched: its end, or its start if it ends at 0 or never."""
    if isinstance(schedule, Constant):
        return "value"
    if isinstance(schedule, Inverse) or not schedule.end:
        return "start"
    return "end"


def _number(value: object) -> Plain:
    """A hyper-parameter in the form in which a range may contain it."""
    if isinstance(value, Linear | Exponential | Cosine | Inverse | Constant):
        return float(getattr(value, _part_to_search(value)))
    return ",".join(map(str, value)) if isinstance(value, tuple) else value  # type: ignore[return-value]


def _is_usual(name: str, config: object) -> bool:
    if name not in field_names(type(config)) or not _derive_range(name, config):
        return False
    return name not in OPTIONAL_PARTS or bool(_number(getattr(config, name)))


def _derive_range(name: str, config: object) -> Range | None:
    """The range around a config's value, as far as its other values allow; None if neither the
    value nor the annotation determines one."""
    found, held = _wide_range(name, config), _number(getattr(config, name))
    if isinstance(found, Choices):
        values = tuple(value for value in found.values if _fits(config, {name: value}))
        return Choices(values) if len(values) > 1 else None
    if found is None or not isinstance(held, int | float):
        return None
    first, last = _extremes(found)
    low = found.low if _fits(config, {name: first}) else held
    high = found.high if _fits(config, {name: last}) else held
    return dataclasses.replace(found, low=low, high=high) if low < high else None


def _wide_range(name: str, config: object) -> Range | None:
    """The same, regardless of its other values."""
    kind, held = kinds(type(config))[name], getattr(config, name)
    if isinstance(held, Inverse):
        return None
    value = _number(held)
    if isinstance(value, bool):
        return Choices((False, True))
    if kind is not None and kind.choices:
        return Choices((*kind.choices, None) if kind.allows(None) else kind.choices)
    if isinstance(held, tuple):
        if not held or not all(isinstance(part, int) for part in held):
            return None
        sizes = ([int(part * factor) for part in held] for factor in (0.5, 1, 2))
        return Choices(tuple(_number(tuple(part)) for part in sizes if min(part) > 0))
    if kind is None or not isinstance(value, int | float) or not math.isfinite(kind.low):
        return None
    if not math.isfinite(value):
        return None
    if _is_whole(kind):
        return _counts(int(value), kind)
    return _numbers(name, float(value), kind, scheduled=isinstance(held, Schedule))


def _range_of(name: str, config: object) -> Range:
    found = _derive_range(name, config)
    if (wide := _wide_range(name, config)) is not None and _is_idle(name, config):
        _check(name, wide, config)  # raises
    if found is None:
        raise RequestError(
            f"search: {name} is {_as_text(_number(getattr(config, name)))}, from which no range "
            f"can be derived; give one, such as {name}=LOW..HIGH or {name}=A/B"
        )
    return found


def _counts(value: int, kind: Kind) -> Range | None:
    """A range of counts; powers of two stay powers of two."""
    if value <= 0:
        return None
    if value >= 8 and value & (value - 1) == 0:
        near = [value // 4, value // 2, value, value * 2, value * 4]
        return Choices(tuple(count for count in near if kind.allows(count)))
    low = max(1, int(kind.low), value // COUNT_FACTOR)
    return Interval(low, max(value * COUNT_FACTOR, 8), LOG, whole=True)


def _numbers(name: str, value: float, kind: Kind, *, scheduled: bool) -> Range:
    share = kind.low == 0 and kind.high == 1
    if value == 0:
        near = SHARES_FROM_ZERO if share and not scheduled else FROM_ZERO
        return Choices(tuple(number for number in near if kind.allows(number)))
    if share and value == 1:
        return Choices(tuple(number for number in SHARES_BELOW_ONE if kind.allows(number)))
    if share and value > 0.5:
        rest = 1.0 - value
        low, high = 1.0 - min(rest * FACTOR, 0.5), 1.0 - rest / FACTOR
        return Interval(_round(low, 6), _round(high, 6), LOG_OF_REST)
    factor = CLIP_FACTOR if "clip" in name else FACTOR
    low, high = max(value / factor, kind.low), min(value * factor, kind.high)
    return Interval(_round(low, 6), _round(high, 6), LOG)


def _parse_range(name: str, text: str, held: object, kind: Kind | None) -> Range:
    """LOW..HIGH or A/B/C as a range."""
    low, dots, high = text.partition("..")
    if not dots:
        values = tuple(_parse_value(part, held) for part in text.split("/"))
        if len(values) < 2 or len(set(map(repr, values))) < len(values):
            raise RequestError(
                f"search: {name} must have the form LOW..HIGH or A/B/C, got {text!r}"
            )
        return Choices(values)
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not ends[0] < ends[1] or not all(map(math.isfinite, ends)):
        raise RequestError(
            f"search: {name}=LOW..HIGH needs two numbers, the second above the first, got {text!r}"
        )
    whole = kind is not None and _is_whole(kind)
    if whole and not all(end.is_integer() for end in ends):
        raise RequestError(f"search: {name} takes whole numbers, got {text!r}")
    return Interval(*ends, _scale_of(*ends, whole), whole)


def _scale_of(
    low: float, high: float, is_integer: bool
) -> Literal["linear", "log", "log of 1 - x"]:
    """The scale of a range: logarithmic if it spans a factor of 10, in its numbers or in their
    distance from 1."""
    if low > 0 and high >= FACTOR * low:
        return LOG
    if not is_integer and low >= 0.5 and high < 1 and 1 - low >= FACTOR * (1 - high) * (1 - 1e-9):
        return LOG_OF_REST
    return LINEAR


def _parse_value(text: str, held: object) -> Plain:
    if isinstance(held, tuple):
        return text
    if text == "none":
        return None
    try:
        value = parse_yaml(text)
    except ValueError:
        value = text
    return value if isinstance(value, bool | int | float | str) else text


def _check(name: str, found: Range, config: object) -> None:
    """Raises RequestError if the config does not allow a value of the range."""
    for end in _extremes(found):
        try:
            _with_values(config, {name: end})
        except ValueError as error:
            raise RequestError(f"search: {error}") from None


def _fits(config: object, values: Mapping[str, Plain]) -> bool:
    try:
        _with_values(config, values)
    except ValueError:
        return False
    return True


def _with_values(config: object, values: Mapping[str, Plain]) -> object:
    """The config with drawn values. Raises ValueError if it does not allow them."""
    return dataclasses.replace(config, **as_fields(settings(values, config)))  # type: ignore[type-var]


def _extremes(found: Range) -> tuple[Plain, ...]:
    """All choices, or the lowest and the highest number."""
    if isinstance(found, Choices):
        return found.values
    return (int(found.low), int(found.high)) if found.whole else (found.low, found.high)


def _is_whole(kind: Kind) -> bool:
    return math.isfinite(kind.low) and not kind.allows(kind.low + 0.5)


def _clip_to(found: Interval, value: float) -> float:
    """Clips a rounded value to its range."""
    return min(max(value, found.low), found.high)


def _round(value: float, digits: int = 9) -> float:
    return float(f"{value:.{digits}g}")


def _as_text(value: Plain) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
