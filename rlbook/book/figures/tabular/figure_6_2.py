"""Figure 6.2: TD(0) and constant-α Monte Carlo under batch training on the random walk of five
states.

After each episode all episodes so far are presented again and again until the values settle. Batch
Monte Carlo settles at the average of the returns seen from each state, which is the best fit to the
data; batch TD at the values of the best model of the data, and comes closer to the truth after any
number of episodes but the first.

The smaller panel is the right one of example 6.2: the same two methods, learning from each episode
once.

Source: Sutton & Barto 2018, example 6.3, figure 6.2; example 6.2. States that no episode has
visited keep their first value, 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.tabular.prediction.mc_prediction import MCPrediction, MCPredictionConfig
from rlbook.algorithms.tabular.prediction.td_prediction import TDPrediction, TDPredictionConfig
from rlbook.algorithms.tabular.tabular_agent import TableConfig
from rlbook.book.experiments.independent_runs import value_curves
from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.book.figures.standard_error import standard_error
from rlbook.book.figures.walk import BEFORE, root_mean_square_error, walk_model
from rlbook.functional.schedules import Constant, Inverse
from rlbook.plots.figure import is_narrow, new_figure

TD_ALPHAS = (0.15, 0.1, 0.05)
MC_ALPHAS = (0.01, 0.02, 0.03, 0.04)


@dataclass(frozen=True)
class BatchErrors:
    """Figure 6.2. RMS errors averaged over states, in reward units; entry e is after e episodes."""

    batch: dict[str, np.ndarray]  # "TD", "MC" → [runs, episodes + 1]
    online: dict[str, np.ndarray]  # "TD, α = 0.15" … → [runs, episodes + 1]


def run(seed: int = 0, runs: int = 100, episodes: int = 100) -> BatchErrors:
    """Each run has its own seed; TD and Monte Carlo see the same walks."""
    in_batches = TDPredictionConfig(
        gamma=1.0, alpha=Constant(1.0), initial_value=BEFORE, batch=True, tolerance=1e-5
    )
    # of all returns so far: what batches of Monte Carlo settle at
    average = _monte_carlo(Inverse(1.0))
    batch = {
        "TD": _errors(TDPrediction, in_batches, seed, runs, episodes),
        "MC": _errors(MCPrediction, average, seed, runs, episodes),
    }
    td = {
        alpha: TDPredictionConfig(gamma=1.0, alpha=Constant(alpha), initial_value=BEFORE)
        for alpha in TD_ALPHAS
    }
    online = {
        f"TD, α = {alpha:g}": _errors(TDPrediction, config, seed, runs, episodes)
        for alpha, config in td.items()
    }
    for alpha in MC_ALPHAS:
        online[f"MC, α = {alpha:g}"] = _errors(
            MCPrediction, _monte_carlo(Constant(alpha)), seed, runs, episodes
        )
    return BatchErrors(batch, online)


def _monte_carlo(alpha: Constant | Inverse) -> MCPredictionConfig:
    return MCPredictionConfig(gamma=1.0, alpha=alpha, initial_value=BEFORE, visits="every")


def _errors(kind: type, config: TableConfig, seed: int, runs: int, episodes: int) -> np.ndarray:
    return root_mean_square_error(
        value_curves(kind, config, walk_model(), episodes=episodes, runs=runs, seed=seed)
    )


def measurements(result: BatchErrors) -> dict[str, float]:
    """Mean errors with their standard errors over runs, and the number of episode counts at which
    TD is better."""
    numbers: dict[str, float] = {}
    for name, errors in result.batch.items():
        numbers[f"batch {name}, error at the end"] = float(errors[:, -1].mean())
        numbers[f"batch {name}, standard error"] = standard_error(errors[:, -1])
    td, mc = (result.batch[name].mean(axis=0) for name in ("TD", "MC"))
    if len(td) > 2:
        numbers["share of episode counts from 2 on where TD is closer"] = float(
            (td < mc)[2:].mean()
        )
    return numbers | {
        f"{name}, error at the end": float(errors[:, -1].mean())
        for name, errors in result.online.items()
    }


def draw(result: BatchErrors) -> Figure:
    """Batch training; beside it, learning from each episode once."""
    figure = new_figure(9.6, 4.3)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1], sharey=True)
    label_axes(left, "Walks / episodes", "RMS error, averaged over states", "Batch training")
    for place, (name, errors) in enumerate(result.batch.items()):
        left.plot(
            np.arange(1, errors.shape[1]),
            errors.mean(axis=0)[1:],
            color=curve_colour(place),
            linewidth=1.8,
            label=name,
        )
    label_axes(
        right,
        "Walks / episodes",
        "RMS error, averaged over states" if is_narrow() else "",
        "Each episode once (example 6.2)",
    )
    for name, errors in sorted(result.online.items(), key=lambda item: item[0][:2]):
        place = 0 if name.startswith("TD") else 1
        order = [other for other in result.online if other[:2] == name[:2]].index(name)
        style = ("-", "--", "-.", ":")[order]
        right.plot(
            np.arange(errors.shape[1]),
            errors.mean(axis=0),
            style,
            color=curve_colour(place),
            linewidth=1.3,
            label=name,
        )
    legend(left, loc="upper right")
    legend(right, loc="upper right", ncols=2, columnspacing=1.2, handlelength=2.4)
    left.set_ylim(0, 0.3)
    for axes in (left, right):
        axes.set_xlim(0, None)
    return figure
