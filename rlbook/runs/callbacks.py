"""User callbacks during training; any of them may stop the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlbook.errors import RequestError
from rlbook.runs.run_state import RunState

Callback = Callable[..., object]
"""A function of the run."""
STOP = "stop"
"""A callback's return value that ends the run."""
MOMENTS = ("on_report", "on_episode", "on_evaluation")


@dataclass(frozen=True)
class Callbacks:
    """The callbacks after each report, each training episode and each evaluation."""

    on_report: tuple[Callback, ...] = ()
    on_episode: tuple[Callback, ...] = ()
    on_evaluation: tuple[Callback, ...] = ()

    @classmethod
    def collect(
        cls, objects: Sequence[object] | object = (), **functions: Callback | None
    ) -> Callbacks:
        """Collects callback functions and the callback methods of one object or several.

        Raises:
            RequestError: an object has none of them, or what should be a function is none.
        """
        found: dict[str, list[Callback]] = {
            moment: [function] if (function := functions.get(moment)) is not None else []
            for moment in MOMENTS
        }
        for moment, given in found.items():
            for function in given:
                _check_function(moment, function)
        for one in objects if isinstance(objects, Sequence) else (objects,):
            if isinstance(one, type):
                raise RequestError(
                    f"a callback must be an object, got the class; give {one.__name__}()"
                )
            methods = {name: getattr(one, name) for name in MOMENTS if hasattr(one, name)}
            if not methods:
                hint = f"; give a function as {MOMENTS[0]}" if inspect.isroutine(one) else ""
                raise RequestError(
                    f"a callback has a method {', '.join(MOMENTS[:-1])} or {MOMENTS[-1]}, but "
                    f"{type(one).__name__} has none of them{hint}"
                )
            for moment, method in methods.items():
                several = method if isinstance(method, tuple) else (method,)
                for function in several:
                    _check_function(moment, function)
                found[moment] += several
        return cls(**{moment: tuple(called) for moment, called in found.items()})

    def stop(self, moment: str, run: RunState) -> bool:
        """Calls all callbacks of a moment; returns whether any of them stops the run.

        Raises:
            RequestError: one returns another text, or true or false, which other libraries read as
                whether to go on.
        """
        answers = [function(run) for function in getattr(self, moment)]
        for answer in answers:
            if isinstance(answer, bool | np.bool_ | str) and answer != STOP:
                raise RequestError(
                    f"{moment} must return {STOP!r} to end the run, or None to go on, got"
                    f" {answer!r:.60}"
                )
        return STOP in answers


def _check_function(moment: str, function: object) -> None:
    """Raises RequestError for what cannot be called with the run alone."""
    if not callable(function):
        raise RequestError(f"{moment} must be a function of the run, got {function!r:.60}")
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # one without a signature, such as a builtin
        return
    try:
        taken.bind(None)
    except TypeError:
        raise RequestError(
            f"{moment} must be a function of the run alone, got one of {taken}; its numbers are"
            " run.metrics[-1]"
        ) from None


NO_CALLBACKS = Callbacks()
