"""Figures of Sutton & Barto's book (2nd edition), by number: each reruns its experiment and draws
the result.

    result = figure("6.4", seed=0, runs=100)     a small dataclass of arrays
    measurements("6.4", result)                  name → number: what the figure is there to show
    draw("6.4", out="cliff.png")                 the picture

A name, such as "translation", is a picture of this book's own chapters.

Figure 6.4 is the module `figure_6_4`: `run(...)` makes the result, `draw(result)` the picture,
`measurements(result)` the numbers. The defaults of `run` are what the site shows; its docstring
says where they differ from the book's.

Source: Sutton & Barto 2018, Reinforcement Learning: An Introduction, 2nd edition.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.book.experiments import find_experiment
from rlbook.checks import Kind, check, non_negative_int, positive_int
from rlbook.errors import RequestError, request_errors

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure

FIGURES: dict[str, str] = {
    "2.2": "Ten machines: a little exploration finds the best one",
    "2.3": "Optimistic first values make a greedy learner explore",
    "2.4": "An upper confidence bound explores what is uncertain",
    "2.5": "The gradient method needs a baseline where all rewards are large",
    "3.2": "Random moves on a small grid: what each cell is worth",
    "3.5": "The same grid: the best values, and the best moves",
    "4.1": "Policy evaluation, sweep by sweep, and the greedy policy after each",
    "4.2": "Jack's car rental: the policies of policy iteration, and the values of the best one",
    "4.3": "The gambler: value iteration's sweeps, and the best stakes",
    "5.1": ("Blackjack: the values of a player who sticks on 20, after few games and after many"),
    "5.3": (
        "The value of one hand, from another policy's games: weighted importance sampling has a "
        "smaller error than ordinary"
    ),
    "6.2": "Batches of random walks: TD comes closer to the values than Monte Carlo",
    "6.3": "Beside a cliff: expected SARSA works with every step size",
    "6.4": "Beside a cliff: SARSA takes the safe path, Q-learning the shortest",
    "6.5": "Maximization bias: Q-learning goes the wrong way more often than double Q-learning",
    "7.2": "A long random walk: n-step TD is best between TD(0) and Monte Carlo",
    "7.4": (
        "One episode: the action values that SARSA, n-step SARSA and SARSA(λ) raise on the path "
        "to the goal"
    ),
    "8.2": "A maze: planning learns in three episodes what otherwise takes twenty",
    "8.4": "The path is blocked: Dyna-Q+ soon finds another, Dyna-Q takes long",
    "8.5": "A shortcut opens: Dyna-Q+ finds it, Dyna-Q never does",
    "9.1": "A thousand states in ten groups: each group's value is near the mean of the true ones",
    "9.2": "The same with TD, whose limit is flatter, and n-step TD in twenty groups",
    "9.10": "Fifty displaced tilings distinguish states that one cannot, and learn as quickly",
    "10.1": "The mountain car: its estimated cost-to-go, during one run",
    "10.4": "The mountain car learns sooner with n = 4 than with n = 1",
    "11.2": (
        "Baird's counterexample: off-policy TD with features diverges, by sampling and in "
        "expectation"
    ),
    "11.5": (
        "Baird's counterexample: TD with gradient correction converges, though slowly, to the "
        "best weights"
    ),
    "12.3": "The long walk again: the offline λ-return is as good as the best n",
    "12.6": "TD(λ) is as good as the λ-return up to its best step size, and worse beyond it",
    "12.8": "True online TD(λ) tolerates step sizes at which accumulating traces diverge",
    "13.1": (
        "The short corridor: REINFORCE comes near the optimal return, if its step size is "
        "small enough"
    ),
    "13.2": "The short corridor again: with a baseline REINFORCE learns much faster",
}
"""Number → title, in the order of the book."""

EXPERIMENTS: dict[str, str] = {
    "bandit-regret": "The regret of ε-greedy, UCB and Thompson sampling, beside the bounds",
    "translation": (
        "An encoder-decoder reverses and sorts words; without positions it cannot reverse them, and"
        " without the causal mask it only seems to learn"
    ),
    "attention-cost": "The cost of a transformer layer, and the savings of the KV cache",
    "sampling": "The effect of temperature, top-k, top-p and min-p on a distribution",
}
"""Name → title: pictures of this book's own chapters, whose experiments are in
`rlbook.book.experiments`."""

OPTIONS: dict[str, Kind] = {"seed": non_negative_int, "runs": positive_int}
"""The options of a figure with randomness."""

__all__ = [
    "EXPERIMENTS",
    "FIGURES",
    "draw",
    "figure",
    "figure_module",
    "measurements",
    "options_of",
]


def figure(number: str, **options: int) -> DataclassInstance:
    """Reruns the experiment of a figure.

    Args:
        number: as in the book, such as "6.4".
        options: `seed`, `runs`, and what else the figure's own `run` takes.

    Returns:
        A dataclass of arrays, the figure's own.

    Raises:
        RequestError: no such figure, or an option that it does not take.
    """
    return _check_options(number, options).run(**options)


def measurements(number: str, result: DataclassInstance) -> dict[str, float]:
    """The numbers that support a figure's claim: name → number, with units in the name or in reward
    units."""
    return figure_module(number).measurements(result)


def draw(number: str, out: str | Path | None = None, **options: int) -> Figure:
    """Reruns the experiment of a figure and draws it.

    Args:
        number, options: as for `figure`.
        out: where to write the picture, if anywhere: a name that ends in .png, .svg or .pdf.

    Raises:
        RequestError: as for `figure`; a name with another ending, or a file that cannot be written.
    """
    from rlbook.plots.figure import format_of, save_figure

    if out is not None:
        format_of(Path(out))
    drawn = figure_module(number).draw(figure(number, **options))
    if out is not None:
        save_figure(drawn, out)
    return drawn


def figure_module(number: str) -> ModuleType:
    """The module of a figure, or of an experiment.

    Raises:
        RequestError: no such figure; the nearest is named.
    """
    if number in EXPERIMENTS:
        found = find_experiment(number.replace("-", "_"))
        assert found is not None
        return found
    if number not in FIGURES:
        match = _nearest_figures(number)
        hint = f"; the nearest is {match!r}" if match else ""
        known = ", ".join([*FIGURES, *EXPERIMENTS])
        raise RequestError(f"unknown figure {number!r}{hint} (known: {known})")
    chapter, _, place = number.partition(".")
    part = "tabular" if int(chapter) <= 8 else "approximate"
    return importlib.import_module(f"rlbook.book.figures.{part}.figure_{chapter}_{place}")


def options_of(number: str) -> dict[str, Any]:
    """The options of a figure's experiment: name → default."""
    return {
        name: item.default
        for name, item in inspect.signature(figure_module(number).run).parameters.items()
    }


def _check_options(number: str, options: dict[str, Any]) -> ModuleType:
    module, known = figure_module(number), options_of(number)
    for name, value in options.items():
        if name not in known:
            reason = (
                f"it takes {', '.join(known)}"
                if known
                else "it is computed exactly, without randomness"
            )
            raise RequestError(f"figure {number} takes no {name}: {reason}")
        if name in OPTIONS:
            with request_errors():
                check(name, value, OPTIONS[name])
        elif type(known[name]) is int:
            with request_errors():
                check(name, value, positive_int)
    return module


def _nearest_figures(number: str) -> str | None:
    """The nearest figures: by chapter first, then by the number within it; a name by its
    letters."""
    found = re.fullmatch(r"\D*(\d+)(?:\.(\d+))?", str(number))
    if not found:
        return next(iter(difflib.get_close_matches(str(number), EXPERIMENTS, n=1)), None)
    chapter, place = int(found[1]), int(found[2] or 0)

    def distance(known: str) -> tuple[int, int]:
        known_chapter, known_place = map(int, known.split("."))
        return abs(known_chapter - chapter), abs(known_place - place)

    return min(FIGURES, key=distance)
