"""The random walk of 19 states, on which n-step methods and traces are compared: the error for each
step size.

All methods see the same walks, so that a difference between two curves is due to the methods more
than to chance.

Source: Sutton & Barto 2018, example 7.1: both ends 10 steps from the middle, -1 on the left, +1 on
the right, V from 0, γ = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rlbook.algorithms.tabular.prediction.n_step_td import NStepTD, NStepTDConfig
from rlbook.algorithms.tabular.prediction.td_lambda import TDLambda, TDLambdaConfig
from rlbook.algorithms.tabular.tabular_agent import TableConfig
from rlbook.book.experiments.independent_runs import value_curves
from rlbook.book.figures.axes import label_axes
from rlbook.book.figures.standard_error import standard_error
from rlbook.envs.random_walk import random_walk_model
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.schedules import Constant
from rlbook.plots.colours import CURVES, fraction_rgb, mix_colours
from rlbook.plots.figure import COLUMN, is_narrow, words

EXACT = np.arange(-9, 10) / 10
"""[19]: V of the states from left to right."""
BEFORE = float(np.sqrt((EXACT**2).mean()))
"""The error of V = 0, where every curve begins: α = 0 learns nothing."""
EPISODES = 10
"""Episodes per run; the error is averaged over the states, and then over the episodes."""
SMALL_ALPHAS = (
    0.0,
    0.005,
    0.01,
    0.015,
    0.02,
    0.03,
    0.04,
    0.05,
    0.06,
    0.08,
    0.1,
    0.125,
    0.15,
    0.175,
)
ALPHAS = (*SMALL_ALPHAS, *(round(0.05 * k, 2) for k in range(4, 21)))
LAMBDAS = (0.0, 0.4, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
LENGTHS = tuple(2**k for k in range(10))
TOP = 0.55
"""The top of the chart."""
FAR = 0.62
"""A curve this far above the chart is not continued to larger step sizes."""

Named = tuple[float, str, tuple[float, float, float]]
"""The place where a curve leaves the chart, its name, its colour."""


@dataclass(frozen=True)
class Sweep:
    """Errors for each λ or n and each step size."""

    alphas: tuple[float, ...]  # the step sizes, increasing
    # λ or n → [step sizes, runs], in reward units; NaN where the curve was not followed any more
    errors: dict[float, np.ndarray]


def long_walk_model() -> TabularMDP:
    """S = 21: both ends, and the 19 states as 1 to 19."""
    return random_walk_model(19, 1, -1.0, 1.0)


def n_step_sweep(seed: int, runs: int, alphas: Sequence[float] = ALPHAS) -> Sweep:
    """n-step TD for each n of `LENGTHS` and each step size."""

    def curve(n: int) -> np.ndarray:
        return _curve(
            NStepTD, lambda alpha: NStepTDConfig(n=n, alpha=alpha, gamma=1.0), seed, runs, alphas
        )

    return Sweep(tuple(alphas), {n: curve(n) for n in LENGTHS})


def lambda_sweep(traces: str, seed: int, runs: int, alphas: Sequence[float] = ALPHAS) -> Sweep:
    """TD(λ) with these traces for each of `LAMBDAS` and each step size."""

    def curve(decay: float) -> np.ndarray:
        return _curve(
            TDLambda,
            lambda alpha: TDLambdaConfig(trace_decay=decay, traces=traces, alpha=alpha, gamma=1.0),
            seed,
            runs,
            alphas,
        )

    return Sweep(tuple(alphas), {decay: curve(decay) for decay in LAMBDAS})


def _curve(
    kind: type, config: Callable[[Constant], Any], seed: int, runs: int, alphas: Sequence[float]
) -> np.ndarray:
    """[step sizes, runs]"""
    errors = np.full((len(alphas), runs), np.nan)
    for row, alpha in zip(errors, alphas, strict=True):
        row[:] = run_errors(kind, config(Constant(alpha)), seed, runs) if alpha > 0 else BEFORE
        if not row.mean() < FAR:
            break
    return errors


def run_errors(kind: type, config: TableConfig, seed: int, runs: int) -> np.ndarray:
    """[runs]: the root mean square error over the states, averaged over the first 10 episodes, in
    reward units; inf where V diverged."""
    curves = value_curves(
        kind,
        config,
        long_walk_model(),
        episodes=EPISODES,
        runs=runs,
        seed=seed,
        states=slice(1, 20),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.sqrt(((curves[:, 1:] - EXACT) ** 2).mean(axis=2)).mean(axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


def best_setting(sweep: Sweep, key: float) -> tuple[float, float, float]:
    """The lowest mean error of the curve of this λ or n, its step size α, and its standard error
    over runs."""
    errors = sweep.errors[key]
    means = np.nan_to_num(errors.mean(axis=1), nan=np.inf)
    place = int(means.argmin())
    return float(means[place]), sweep.alphas[place], standard_error(errors[place])


def lowest_errors(sweep: Sweep, name: str) -> dict[str, float]:
    """For `measured`: the lowest mean error of each curve, and for the best one also its step size
    and standard error."""
    lowest = {key: best_setting(sweep, key) for key in sweep.errors}
    numbers = {f"{name} = {key:g}, lowest error": error for key, (error, _, _) in lowest.items()}
    key = min(lowest, key=lambda key: lowest[key][0])
    return numbers | {
        f"{name}, best": float(key),
        f"{name}, best, at α": lowest[key][1],
        f"{name}, best, standard error": lowest[key][2],
    }


def draw_sweep(axes: Axes, sweep: Sweep, name: str, title: str = "", *, wide: float = 5.5) -> None:
    """A curve for each λ or n, with its name where it leaves the chart; the axes are about `wide`
    inches wide, and less in a narrow column."""
    wide = min(wide, COLUMN - 1.0) if is_narrow() else wide
    label_axes(axes, "Step size α", "RMS error over the first 10 episodes")
    axes.set_title(title, **words(fontsize=11, pad=22))
    at_top: list[Named] = []
    at_right: list[Named] = []
    for place, (key, errors) in enumerate(sweep.errors.items()):
        colour, means = _colour(place / (len(sweep.errors) - 1)), errors.mean(axis=1)
        axes.plot(sweep.alphas, means, color=colour, linewidth=1.5)
        leaves = _leaves(sweep.alphas, means)
        if leaves is None:
            at_right.append((float(means[-1]), f"{name}={key:g}", colour))
        else:
            at_top.append((leaves, f"{key:g}", colour))
    _names_on_top(axes, at_top, name, wide)
    _names_on_the_right(axes, at_right, sweep.alphas[-1] + 0.012)
    axes.set(xlim=(0, 1), ylim=(0.23, TOP))


def _leaves(alphas: Sequence[float], means: np.ndarray) -> float | None:
    """The α at which a curve leaves the chart at the top, the first one if it begins above it; None
    if it stays inside."""
    over = np.flatnonzero(np.nan_to_num(means, nan=np.inf) > TOP)
    if not len(over):
        return None
    after = int(over[0])
    if after == 0:
        return alphas[0]
    return float(np.interp(TOP, means[[after - 1, after]], [alphas[after - 1], alphas[after]]))


def _names_on_top(axes: Axes, names: list[Named], name: str, wide: float) -> None:
    """Names side by side, each as near to its curve as space allows."""
    letter, free = 0.09 / wide, -1.0
    for place, (leaves, text, colour) in enumerate(sorted(names)):
        text = f"{name}={text}" if place == len(names) - 1 else text
        width = letter * (len(text) + 0.8)
        centre = max(leaves, free + width / 2)
        free = centre + width / 2
        axes.text(
            centre, TOP + 0.003, text, ha="center", va="bottom", **words(color=colour, fontsize=8.5)
        )


def _names_on_the_right(axes: Axes, names: list[Named], across: float) -> None:
    """Names one above the other, each as near to its curve as space allows."""
    free = 0.0
    for height, text, colour in sorted(names):
        free = max(height, free)
        axes.text(across, free, text, va="center", **words(color=colour, fontsize=8.5))
        free += 0.018


def _colour(share: float) -> tuple[float, float, float]:
    """A colour between those of the first and the last curve, through several hues."""
    hues = (CURVES[0], CURVES[5], CURVES[2], CURVES[1], CURVES[3])
    place = min(int(share * (len(hues) - 1)), len(hues) - 2)
    return fraction_rgb(mix_colours(hues[place], hues[place + 1], share * (len(hues) - 1) - place))
