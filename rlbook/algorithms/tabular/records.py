"""Records for the tables and settings of tabular algorithms: named tuples that can be extended by
inheritance.

    class SarsaMemory(ControlMemory):        # clock, visits, q, pending
        pending: NDArray[np.int64]           # [1]: the action to take now

One declaration serves all who use it: the plain code and its reader; the compiled code, which
takes named tuples as they are; and checkpoints, which keep each table under its name.
(`typing.NamedTuple` has no subclasses with more fields.)
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import ENDLESS
from rlbook.functional.schedules import ScheduleNumbers

METHODS = ("_fields", "__new__", "__getnewargs__", "__repr__", "_make", "_replace", "_asdict")
"""The methods of a named tuple."""


@dataclass_transform(frozen_default=True)
class NamedRecord(tuple[Any, ...]):
    """A named tuple whose fields are in the order of a dataclass's: those of the last base first,
    its own last.
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        records = [base for base in reversed(cls.__mro__) if issubclass(base, NamedRecord)]
        fields = [name for base in records[1:] for name in inspect.get_annotations(base)]
        made = namedtuple(cls.__name__, fields)  # held: its dictionary goes when it goes
        for name in (*METHODS, *fields):
            setattr(cls, name, vars(made)[name])

    if TYPE_CHECKING:

        def __new__(cls, *values: object, **named: object) -> Self: ...

        def _replace(self, **changed: object) -> Self:
            """A copy with some fields changed."""
            ...

        def _asdict(self) -> dict[str, Any]:
            """Name → value, in order."""
            ...


class Settings(NamedRecord):
    """The hyper-parameters that every update uses, as numbers."""

    gamma: float  # discount per step
    alpha: ScheduleNumbers  # step size
    counting: bool  # whether `visits` is kept
    # whether a schedule follows progress, which is then kept in `clock`
    moving: bool


class ControlSettings(Settings):
    """The settings of an agent with a table Q(s, a), including its exploration."""

    epsilon: ScheduleNumbers  # probability of a random action
    exploration: int  # EPSILON_GREEDY, SOFTMAX or UCB
    temperature: ScheduleNumbers  # of softmax, in reward units
    confidence: float  # c of UCB, in reward units
    # α where it is constant and nothing is counted, else -1
    fixed_alpha: float
    fixed_epsilon: float  # ε where it is constant, else -1


class Memory(NamedRecord):
    """The tables of any tabular agent; they hold its entire state."""

    clock: NDArray[np.float64]  # [1]: progress in [0, 1], set before each step
    visits: NDArray[np.int64]  # updates of each entry [S] or [S, A], where counted


class ControlMemory(Memory):
    """The tables of an agent with a table Q(s, a)."""

    q: NDArray[np.float64]  # [S, A], in reward units


class StepTables(NamedTuple):
    """Tables with one row per stored step, which grow during training."""

    names: tuple[str, ...]
    used: str  # the table whose only number says how many rows are in use
    most: int = ENDLESS  # rows, at most
