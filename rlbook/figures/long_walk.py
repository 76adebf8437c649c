"""The random walk of 19 states, on which n-step methods and traces are compared: the error for each step size.

All methods see the same walks, so that a difference between two curves is due to the methods more than to chance.

Source: Sutton & Barto 2018, example 7.1: both ends 10 steps from the middle, -1 on the left, +1 on the right, V from 0, γ = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.algorithms.tabular.n_step_td import NStepTD, NStepTDConfig
from rlbook.algorithms.tabular.td_lambda import TDLambda, TDLambdaConfig
from rlbook.envs.mdp import TabularMDP
from rlbook.envs.random_walk import random_walk_model
from rlbook.experiments import value_curves
from rlbook.figures.drawing import labelled
from rlbook.functional.schedules import Constant
from rlbook.plots.colours import CURVES, fraction_rgb, mixed
from rlbook.plots.figure import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXACT = np.arange(-9, 10) / 10
"""[19]: V of the states from left to right."""
BEFORE = float(np.sqrt((EXACT**2).mean()))
"""The error of V = 0, where every curve begins: α = 0 learns nothing."""
EPISODES = 10
"""Episodes of a run; the error is averaged over the states, and then over what it is after each of them."""
SMALL_ALPHAS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175)
ALPHAS = (*SMALL_ALPHAS, *(round(0.05 * k, 2) for k in range(4, 21)))
LAMBDAS = (0.0, 0.4, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
LENGTHS = tuple(2**k for k in range(10))
TOP = 0.55
"""Of the chart."""
FAR = 0.62
"""A curve that is so far above the chart is not followed to larger step sizes."""

Sweep = dict[float, np.ndarray]
"""λ or n → [step sizes, runs]: the error of each run, in reward units; NaN for step sizes to which the curve was not followed."""


def long_walk_model() -> TabularMDP:
    """S = 21: both ends, and the 19 states as 1 to 19."""
    return random_walk_model(19, 1, -1.0, 1.0)


def n_step_sweep(seed: int, runs: int, lengths: Sequence[int] = LENGTHS) -> Sweep:
    """n-step TD for each n and each of `ALPHAS`."""
    return {n: _curve(NStepTD, lambda alpha, n=n: NStepTDConfig(n=n, alpha=alpha, gamma=1.0), seed, runs) for n in lengths}


def lambda_sweep(traces: str, seed: int, runs: int) -> Sweep:
    """TD(λ) with these traces for each of `LAMBDAS` and `ALPHAS`."""

    def config(alpha: Constant, decay: float) -> TDLambdaConfig:
        return TDLambdaConfig(trace_decay=decay, traces=traces, alpha=alpha, gamma=1.0)

    return {decay: _curve(TDLambda, lambda alpha, decay=decay: config(alpha, decay), seed, runs) for decay in LAMBDAS}


def _curve(kind: type, config: Callable[[Constant], Any], seed: int, runs: int) -> np.ndarray:
    """[step sizes, runs]"""
    errors = np.full((len(ALPHAS), runs), np.nan)
    errors[0] = BEFORE
    for row, alpha in zip(errors[1:], ALPHAS[1:], strict=True):
        row[:] = run_errors(kind, config(Constant(alpha)), seed, runs)
        if not row.mean() < FAR:
            break
    return errors


def run_errors(kind: type, config: Any, seed: int, runs: int) -> np.ndarray:
    """[runs]: the root mean square error over the states, averaged over the first 10 episodes, in reward units; inf where V diverged."""
    curves = value_curves(kind, config, long_walk_model(), episodes=EPISODES, runs=runs, seed=seed, states=slice(1, 20))
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.sqrt(((curves[:, 1:] - EXACT) ** 2).mean(axis=2)).mean(axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


def best(errors: np.ndarray) -> tuple[float, float, float]:
    """The lowest mean error of a curve, the step size α that it has it at, and its standard error over runs.

    Args:
        errors: [step sizes, runs].
    """
    means = np.where(np.isnan(errors[:, 0]), np.inf, errors.mean(axis=1))
    place = int(means.argmin())
    spread = errors[place].std(ddof=1) / np.sqrt(errors.shape[1]) if errors.shape[1] > 1 else float("nan")
    return float(means[place]), ALPHAS[place], float(spread)


def told(sweep: Sweep, name: str) -> dict[str, float]:
    """For `measured`: the lowest mean error of each curve, and where it is."""
    numbers: dict[str, float] = {}
    for key, errors in sweep.items():
        lowest, alpha, spread = best(errors)
        numbers |= {f"{name} = {key:g}, lowest error": lowest, f"{name} = {key:g}, at α": alpha, f"{name} = {key:g}, standard error": spread}
    return numbers


def draw_sweep(axes: Axes, sweep: Mapping[float, np.ndarray], name: str, title: str = "") -> None:
    """A curve for each λ or n, with its name where it leaves the chart."""
    labelled(axes, "Step size α", "RMS error over the first 10 episodes", title)
    at_top: list[tuple[float, str, tuple[float, float, float]]] = []
    for place, (key, errors) in enumerate(sweep.items()):
        colour, means = _colour(place / max(1, len(sweep) - 1)), errors.mean(axis=1)
        axes.plot(ALPHAS, means, color=colour, linewidth=1.5)
        leaves = _leaves(means)
        if leaves is None:
            axes.text(1.012, float(means[-1]), f"{name}={key:g}", va="center", **words(color=colour, fontsize=8.5))
        else:
            at_top.append((leaves, f"{key:g}", colour))
    _names_on_top(axes, at_top, name)
    axes.set_xlim(0, 1)
    axes.set_ylim(0.23, TOP)


def _leaves(means: np.ndarray) -> float | None:
    """The α at which a curve leaves the chart on top; None where it stays."""
    over = np.flatnonzero(np.nan_to_num(means, nan=np.inf) > TOP)
    if not len(over):
        return None
    after = int(over[0])
    return float(np.interp(TOP, means[[after - 1, after]], [ALPHAS[after - 1], ALPHAS[after]]))


def _names_on_top(axes: Axes, names: list[tuple[float, str, tuple[float, float, float]]], name: str) -> None:
    """Beside each other, each as near to its curve as there is room."""
    free = -1.0
    for place, (leaves, text, colour) in enumerate(sorted(names)):
        text = f"{name}={text}" if place == len(names) - 1 else text
        width = 0.016 * len(text) + 0.012
        centre = max(leaves, free + width / 2)
        free = centre + width / 2
        axes.text(centre, TOP + 0.003, text, ha="center", va="bottom", **words(color=colour, fontsize=8.5))


def _colour(share: float) -> tuple[float, float, float]:
    """From the first curve to the last, by way of several hues."""
    hues = (CURVES[0], CURVES[5], CURVES[2], CURVES[1], CURVES[3])
    place = min(int(share * (len(hues) - 1)), len(hues) - 2)
    return fraction_rgb(mixed(hues[place], hues[place + 1], share * (len(hues) - 1) - place))
