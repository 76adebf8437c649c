"""Hyper-parameters: dataclasses whose annotations define the allowed values of each field.

    @dataclass(frozen=True)
    class SARSAConfig(Hyperparameters):
        gamma: Annotated[float, unit_interval] = 0.99
        learning_rate: Annotated[float | Schedule, positive] = 3e-4        # a number, or a schedule
        epsilon: Annotated[Schedule, unit_interval] = Constant(0.1)        # always a schedule

`bool` and `Literal` say it by themselves. A config is checked when it is made; every refusal is a
ValueError of one sentence: the field, what it must be, and what came. Configs that share fields
inherit them as a group; a class's own fields come first wherever they are listed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union

from rlbook.checks import (
    Kind,
    boolean,
    check,
    check_idle,
    did_you_mean,
    names_or_help,
    non_negative,
    one_of,
    optional,
    positive,
)
from rlbook.errors import IdleSetting, WrongValue
from rlbook.functional.schedules import Inverse, Schedule, parse_schedule

if TYPE_CHECKING:
    Rate = Any  # of a resolved config, a number
else:
    Rate = float | Schedule
"""What moves with training, or may: a number, or a schedule."""

Activation = Literal["tanh", "relu", "gelu", "silu", "elu", "leaky_relu"]
"""The names of the activation functions of hidden layers in `rlbook.networks.mlp`."""
counts_visits = "counts visits"
"""In an annotation: the algorithm counts visits, so the schedule may be 1/N."""


@dataclass(frozen=True)
class Hyperparameters:
    """The base of all configs; see the module docstring."""

    idle_unless: ClassVar[Mapping[str, tuple[str, object]]] = {}
    """Field → another field and the only value of it with which the first is read."""

    def __new__(cls, *values: object, **fields: object) -> Self:
        names = field_names(cls) if fields else []
        for name in fields:
            if name not in names:
                hint, listed = (
                    did_you_mean(name, names),
                    names_or_help(names, f"help({cls.__name__})"),
                )
                raise WrongValue(f"{cls.__name__} has no hyper-parameter {name!r}{hint}{listed}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, rule in _rules(type(self)).items():
            if rule.kind is not None:
                object.__setattr__(self, name, rule.check(name, getattr(self, name)))
        for cls in type(self).__mro__:
            for name, (switch, value) in vars(cls).get("idle_unless", {}).items():
                if getattr(self, switch) != value:
                    check_idle(
                        self, name, f"unless {switch} is {'none' if value is None else value}"
                    )

    def resolve(self, progress: float, **instead: object) -> Self:
        """The config at a point of training: each schedule replaced by its value, and the named
        fields by the given values.

        Args:
            progress: in [0, 1], the share of the run's budget that is used.
            instead: fields whose value something else decides, such as a KL penalty that follows
                its target.
        """
        now = object.__new__(type(self))
        for name, value in (vars(self) | instead).items():
            vars(now)[name] = value(progress) if isinstance(value, Schedule) else value
        return now


def field_names(config: type) -> list[str]:
    """The fields of a config: its own first, then those of the groups that it inherits, in the
    order of its bases."""
    own = [name for cls in config.__mro__ for name in vars(cls).get("__annotations__", ())]
    fields = {item.name for item in dataclasses.fields(config)}
    return [name for name in dict.fromkeys(own) if name in fields]


def field_values(config: object) -> dict[str, Any]:
    """Field → value, in the order of `field_names`."""
    return {name: getattr(config, name) for name in field_names(type(config))}


def kinds(config: type) -> dict[str, Kind | None]:
    """Field → the values that its annotation allows; None if they are not checked."""
    return {name: rule.kind for name, rule in _rules(config).items()}


@dataclass(frozen=True)
class _Rule:
    """The rule for a field's values, read from its annotation."""

    kind: Kind | None  # None: nothing is checked
    schedule: Literal["never", "may", "always"]
    counts_visits: bool = False

    def check(self, name: str, value: float | str | Schedule | None) -> object:
        """The value as the config stores it. Raises ValueError with one sentence if it is not
        allowed."""
        assert self.kind is not None
        if self.schedule != "never" and callable(value) and not isinstance(value, Schedule):
            raise ValueError(
                f"{name} must be a number or a schedule such as 'linear(0.001, 0.0)', which"
                f" config.yaml can hold, got a function"
            )
        if self.schedule == "never" or value is None:
            check(name, value, self.kind)
            return value
        if self.schedule == "always":
            return self._schedule(name, value, self.kind)
        if isinstance(value, str | Schedule) and "(" not in str(value):
            with contextlib.suppress(ValueError):
                value = float(str(value))
        if isinstance(value, Schedule | str) and "(" in str(value):
            # a rate may end at 0
            return self._schedule(name, value, non_negative if self.kind is positive else self.kind)
        check(name, value, self.kind)
        return value

    def _schedule(self, name: str, value: float | str | Schedule, kind: Kind) -> Schedule:
        """The number, text or schedule as a schedule, all of whose values are of this kind."""
        try:
            schedule = parse_schedule(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if isinstance(schedule, Inverse) and not self.counts_visits:
            raise ValueError(
                f"{name} cannot be {schedule}: an inverse schedule depends on visit counts, "
                "which this algorithm does not keep"
            )
        for end in schedule.range:
            if not kind.allows(end):
                raise ValueError(f"{name} must be {kind.description} at all times, got {value!s}")
        return schedule


@functools.cache
def _rules(config: type) -> dict[str, _Rule]:
    """Field → the rule of its annotation; where a class restates a field only to change its
    default, the base's rule."""
    rules: dict[str, _Rule] = {}
    for cls in reversed(config.__mro__):
        own = vars(cls).get("__annotations__", {})
        hints = typing.get_type_hints(cls, include_extras=True) if own else {}
        for name in own:
            rule = _rule(hints[name])
            rules[name] = rule if rule.kind is not None else rules.get(name, rule)
    return {item.name: rules[item.name] for item in dataclasses.fields(config)}


def _rule(hint: object) -> _Rule:
    parts = list(_members(hint))
    may_be_none = type(None) in parts
    extras = [
        extra
        for part in parts
        if typing.get_origin(part) is Annotated
        for extra in part.__metadata__
    ]
    bases = [
        base
        for part in parts
        for base in _members(part.__origin__ if typing.get_origin(part) is Annotated else part)
    ]
    kind = next((extra for extra in extras if isinstance(extra, Kind)), None)
    if kind is None and bool in bases:
        kind = boolean
    choices = [
        choice
        for base in bases
        if typing.get_origin(base) is Literal
        for choice in typing.get_args(base)
    ]
    if kind is None and choices:
        kind = one_of(*choices)
    if kind is not None and may_be_none:
        kind = optional(kind)
    schedules = set(_members(Schedule))
    schedule = (
        "never" if not schedules <= {*bases} else "always" if schedules == {*bases} else "may"
    )
    return _Rule(kind, schedule, counts_visits in extras)


def _members(hint: object) -> Iterator[Any]:
    """The members of a union; any other type alone."""
    yield from (
        typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    )


def as_fields(settings: Mapping[str, object]) -> dict[str, Any]:
    """Plain YAML values as a config holds them: a list as a tuple."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }


def idle_setting(config: type, settings: Mapping[str, object]) -> str | None:
    """The first of these settings that the config refuses because nothing reads it; None if there
    is none, or if the config refuses them for another reason."""
    try:
        config(**settings)
    except IdleSetting as error:
        return error.name
    except (ValueError, TypeError):
        pass
    return None


def drop_idle(
    config: type, settings: Mapping[str, object], keep: Collection[str] = ()
) -> dict[str, Any]:
    """The settings without those that nothing reads because of the others.

    Args:
        config: the class of the hyper-parameters.
        settings: hyper-parameters by name.
        keep: names that stay, such as those that the user has set, which are refused.
    """
    settings = dict(settings)
    while (name := idle_setting(config, settings)) is not None and name not in keep:
        del settings[name]
    return settings


def check_activation(
    config: object, name: str = "activation", layers: str = "hidden_sizes"
) -> None:
    """Raises IdleSetting if an activation is chosen for networks without hidden layers."""
    if not getattr(config, layers):
        hint = f"name some in {layers}, or leave it out"
        check_idle(config, name, "without hidden layers", hint)


def check_moving(config: object, name: str, switch: str, needs: Sequence[str]) -> None:
    """Checks a hyper-parameter that moves between `name`_min and `name`_max while `switch` is set.

    Args:
        config: a dataclass of hyper-parameters.
        name: what moves, such as "kl_coef".
        switch: what makes it move, such as "kl_target"; None leaves it as it is.
        needs: what nothing reads without the switch.

    Raises:
        ValueError: one sentence: something is set that nothing reads, or the first value is a
            schedule or outside the bounds.
    """
    if getattr(config, switch) is None:
        for idle in needs:
            check_idle(config, idle, f"without {switch}")
        return
    value, low, high = (getattr(config, field) for field in (name, f"{name}_min", f"{name}_max"))
    if not isinstance(value, float | int) or not low <= value <= high:
        raise ValueError(
            f"{name} must be a number from {name}_min to {name}_max where {switch} changes it, got"
            f" {value} for {low:g} to {high:g}"
        )
