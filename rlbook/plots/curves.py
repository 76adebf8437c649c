"""Learning curves: the return of the training episodes over environment steps, as the run logged
it; over episodes, if the budgets of all runs in a picture count these. A run that learns from
recorded data plays no training episodes: its curve is the return of its greedy evaluations over
minibatches.

Where a table was compared with the exact answer, two panels below show how far its values are from
it, and what its greedy policy loses.

Of a token run there stand below it each reward by its name, KL, entropy, length, and the share of
groups whose returns are all equal.

Runs that differ only in their seed become one curve: their mean, with a band that holds the mean of
such runs with 95 % confidence.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbook.diagnosis.glossary import GLOSSARY
from rlbook.errors import RequestError
from rlbook.evaluation.comparison import env_name, labels, named_world, settings_of
from rlbook.evaluation.optimal_return import optimal_return
from rlbook.interaction.environments import EnvRecipe, find
from rlbook.plots.colours import CURVES, GREY, fraction_rgb
from rlbook.plots.curve_axes import DrawnCurve, Evaluations, fit_axes, plain_ticks, tick_text
from rlbook.plots.figure import (
    drawing,
    format_of,
    is_narrow,
    new_figure,
    plain_axes,
    save_figure,
    words,
)
from rlbook.plots.token_curves import Band, draw_panel, panels_of
from rlbook.registry import ALGORITHMS, agent_class
from rlbook.runs.run import Run
from rlbook.runs.storage.folder import run_folders
from rlbook.runs.storage.log import read_metrics
from rlbook.runs.storage.plain_yaml import config_of, parse_yaml

RESAMPLES = 2_000
POINTS = 200  # of a curve that is the mean of several
ROUNDING = 1e-9  # reward units; a smaller error is none
LINE = 13  # points from a line above a panel to the next
NARROW = 38  # letters of a line above or below a panel in a narrow column
TWO_COLUMNS = 36  # letters of a label up to which two of them stand side by side
TWO_NARROW_COLUMNS = 18  # the same in a narrow column
DECADE = 10  # ratio of numbers from which on a logarithmic axis tells them apart better
STEPS = "environment steps"
UNITS = {"return": STEPS, "value": "sweeps", "eval_return": "minibatches"}
"""The drawn quantity → the unit of the run's steps."""
DOTS = ("sweeps", "minibatches")
FEWEST = 3  # points that a panel below the returns must have; two say nothing
DOTTED = 40  # sweeps or evaluations up to which each has a dot
# of the book's site; what an SVG or a PDF that lies beside it links to
PAGE = "logged-numbers.html"


Points = tuple[np.ndarray, np.ndarray]
"""Steps [R] and values [R]."""
EXACT_METRICS = {
    "value_error": "value error (reward units)",
    "policy_regret": "policy regret (reward units)",
}


@dataclass(frozen=True)
class Curve:
    """The logged data of one run."""

    algorithm: str
    env: str  # id, short
    env_kwargs: dict[str, Any]
    # all that may set two curves of an algorithm apart, see `settings_of`
    settings: dict[str, Any]
    unit: str  # what the steps are
    steps: np.ndarray  # [R], increasing
    # [R]: mean return of the training episodes since the report before, in reward units
    returns: np.ndarray
    eval_steps: np.ndarray  # [E]
    eval_returns: np.ndarray  # [E]: mean return of greedy episodes, in reward units
    unfinished: np.ndarray  # [E]: the share of them that was cut, since it did not end
    tokens: dict[str, Points]  # of a token run: rewards by name, KL, entropy, length, silent groups
    # what was measured against the exact answer: `value_error`, `policy_regret`
    errors: dict[str, Points]
    # steps of all reports, and how many episodes had ended by then; empty where the budget does not
    # count episodes
    episodes: Points

    def convert_to_episodes(self) -> Curve:
        """The same with finished episodes instead of environment steps."""

        def convert(points: Points) -> Points:
            return np.interp(points[0], *self.episodes), points[1]

        return replace(
            self,
            unit="episodes",
            steps=np.interp(self.steps, *self.episodes),
            eval_steps=np.interp(self.eval_steps, *self.episodes),
            tokens={name: convert(points) for name, points in self.tokens.items()},
            errors={name: convert(points) for name, points in self.errors.items()},
        )

    @property
    def kind(self) -> str:
        """What is equal in runs that differ only in their seed."""
        return repr(
            (
                self.algorithm,
                self.env,
                sorted(self.env_kwargs.items()),
                sorted(self.settings.items()),
            )
        )

    @property
    def world(self) -> str:
        """The environment with its arguments."""
        return named_world(self.env, self.env_kwargs)


@dataclass(frozen=True)
class MeanCurve:
    """The mean of several runs' curves; for a single run, its curve."""

    steps: np.ndarray  # [X]
    mean: np.ndarray  # [X], in reward units
    low: np.ndarray  # [X]
    high: np.ndarray  # [X]


@drawing("the curves")
def plot_curves(
    runs: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    *,
    smooth: int = 1,
) -> Figure:
    """Draws the learning curves of runs, one panel per environment; planners, whose steps are
    sweeps, have separate panels.

    Args:
        runs: one or several runs, or run folders; a folder of several seeds stands for the runs in
            it.
        out: where to write the figure, if anywhere: a name that ends in .png, .svg or .pdf.
        smooth: reports in the moving mean of the training returns and of a token run's numbers;
            the curves as they were logged stand faint behind it. 1 smooths nothing.

    Returns:
        The figure.

    Raises:
        RequestError: a folder without a run, a run in which no episode has ended and nothing was
            evaluated, or a file that cannot be written.
    """
    if out is not None:
        format_of(Path(out))
    if smooth < 1:
        raise RequestError(f"smooth must be a number of reports, at least 1, got {smooth}")
    chosen = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    curves = [
        read_curve(one)
        for run in chosen
        for one in (run_folders(Path(run)) if isinstance(run, str | Path) else [run])
    ]
    if not curves:
        raise RequestError("there is no run to draw; give at least one folder")
    played = [curve for curve in curves if curve.unit == STEPS]
    stepped = {curve.world for curve in played if not curve.episodes[0].size}
    curves = [
        curve if curve.unit != STEPS or curve.world in stepped else curve.convert_to_episodes()
        for curve in curves
    ]
    panels = list(dict.fromkeys((curve.world, curve.unit) for curve in curves))
    if len(panels) == len(_groups(curves)) == 1 and curves[0].tokens:
        return _draw_token_run(curves, out, smooth)
    columns = [
        [curve for curve in curves if (curve.world, curve.unit) == panel] for panel in panels
    ]
    means = [
        {name: found for name in EXACT_METRICS if (found := _error_means(name, column))}
        for column in columns
    ]
    most = max(map(len, means))
    figure = new_figure(max(6.4, 5.2 * len(panels)), 4.4 + 2.2 * most)
    columns_grid = figure.add_gridspec(1, len(panels))
    for number, (column, errors) in enumerate(zip(columns, means, strict=True)):
        rows = columns_grid[number].subgridspec(1 + most, 1, height_ratios=[1.7, *[1.0] * most])
        above = plain_axes(figure.add_subplot(rows[0]))
        _draw_panel(above, column, smooth)
        for place, (name, found) in enumerate(errors.items(), 1):
            _draw_errors(figure.add_subplot(rows[place], sharex=above), name, column, found)
    measured = [name for name in EXACT_METRICS if any(name in errors for errors in means)]
    shown = [*dict.fromkeys(_quantity_of(unit) for _, unit in panels), *measured]
    explained = "What it means: " + ", ".join(f"rlbook explain {name}" for name in shown)
    if is_narrow():
        explained = textwrap.fill(explained, NARROW)
    figure.supxlabel(explained, url=PAGE, **words(fontsize=8, x=0.99, ha="right"))
    if out is not None:
        save_figure(figure, out)
    return figure


def _draw_token_run(curves: list[Curve], out: str | Path | None, smooth: int) -> Figure:
    """The curve of a token run's seeds, and below it in two columns the other quantities of its
    log."""
    panels = panels_of(
        [name for name in curves[0].tokens if all(name in curve.tokens for curve in curves)]
    )
    rows = -(-len(panels) // 2)
    figure = new_figure(7.6, 4.2 + 1.9 * rows)
    grid = figure.add_gridspec(1 + rows, 2, height_ratios=[2.0, *[1.0] * rows])
    above = figure.add_subplot(grid[0, :])
    _draw_panel(plain_axes(above), curves, smooth)
    for place, panel in enumerate(panels):
        bands: dict[str, Band] = {}
        raw: dict[str, Points] = {}
        for name in panel.names:
            mean, logged = _smoothed_mean([curve.tokens[name] for curve in curves], smooth)
            bands[name] = mean.steps, mean.mean, mean.low, mean.high
            raw |= {} if smooth == 1 else {name: (logged.steps, logged.mean)}
        axes = figure.add_subplot(grid[1 + place // 2, place % 2], sharex=above)
        draw_panel(axes, panel, bands, raw)
    figure.supxlabel(
        "What it means: rlbook explain entropy, and so for each name",
        url=PAGE,
        **words(fontsize=8, x=0.99, ha="right"),
    )
    if out is not None:
        save_figure(figure, out)
    return figure


def save_curve(run: Run) -> Path | None:
    """Writes `curve.png` into the run's folder; None, without writing anything, if it has no folder
    or nothing to show yet."""
    if run.folder is None or not has_curve(run):
        return None
    path = run.folder / "curve.png"
    plot_curves(run, path)
    return path


def has_curve(run: Run) -> bool:
    """Whether a run has something to draw yet."""
    return _points(run.metrics, _quantity(run.metrics))[0].size > 0


def has_map(curve: Curve) -> bool:
    """Whether a value map can be drawn beside the curve: the environment has a board, and the agent
    stores values for all its states."""
    from rlbook.plots.boards import DRAWN

    return curve.env in DRAWN and curve.algorithm != "mcts"


# Reading


def read_curve(run: Run | str | Path) -> Curve:
    """A run's curve, from the run itself or from its folder's config.yaml and metrics.jsonl; the
    environment is not created.

    Raises:
        RequestError: no run folder, or a run without a training episode that ended or, of recorded
            data, without an evaluation.
    """
    if isinstance(run, str | Path):
        folder, metrics, config = str(run), _read_log(Path(run)), config_of(Path(run))
    else:
        folder, metrics, config = (
            str(run.folder or "the run"),
            run.metrics,
            parse_yaml(run.request.as_yaml()),
        )
    quantity = _quantity(metrics)
    steps, returns = _points(metrics, quantity)
    if not steps.size:
        missing = "evaluation" if quantity == "eval_return" else "episode"
        raise RequestError(f"{folder} has nothing to draw yet: no {missing} has ended")
    env = env_name(config)
    unit = UNITS[quantity]
    evaluated = [
        report | {"cut": report.get("eval_unfinished") or 0.0}
        for report in metrics
        if report.get("eval_return") is not None
    ]
    if quantity != "return":
        evaluated = []
    evaluations = *_points(evaluated, "eval_return"), _points(evaluated, "cut")[1]
    errors = {
        name: points
        for name in EXACT_METRICS
        if (points := _points(metrics, name))[0].size >= FEWEST and quantity == "return"
    }
    counted = _points(metrics, "episodes") if config.get("episodes") else _points([], "episodes")
    episodes = counted if quantity == "return" else _points([], "episodes")
    tokens = _token_points(metrics) if unit == STEPS and _is_text(env) else {}
    kwargs = config.get("env_kwargs") or {}
    return Curve(
        str(config["algorithm"]),
        env,
        kwargs,
        settings_of(config),
        unit,
        steps,
        returns,
        *evaluations,
        tokens,
        errors,
        episodes,
    )


def _is_text(env: str) -> bool:
    """Whether an environment that is registered here is one of tokens."""
    try:
        return str(find(env).entry_point).startswith("rlbook.llm.")
    except RequestError:  # registered elsewhere
        return False


def _token_points(metrics: list[dict[str, Any]]) -> dict[str, Points]:
    names = dict.fromkeys(name for report in metrics for name in report)
    drawn = [name for panel in panels_of(list(names)) for name in panel.names]
    return {name: points for name in drawn if (points := _points(metrics, name))[0].size >= FEWEST}


def _read_log(folder: Path) -> list[dict[str, Any]]:
    try:
        return read_metrics(folder)
    except ValueError as error:
        raise RequestError(f"the log in {folder} is damaged: {error}") from None


def _quantity(metrics: list[dict[str, Any]]) -> str:
    """The quantity to draw: returns; for a planner, which plays no episodes, the value of the
    start; for recorded data, evaluations."""
    if any("sweep" in report for report in metrics):
        return "value"
    recorded = any("passes" in report for report in metrics)
    return "eval_return" if recorded else "return"


def _points(metrics: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the reports that have this metric."""
    rows = [(report["step"], report[name]) for report in metrics if report.get(name) is not None]
    table = np.array(rows, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


# Averaging


def bootstrap_band(
    values: np.ndarray, *, confidence: float = 0.95, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A percentile bootstrap interval for the mean over runs, at each point of a curve.

    Runs are drawn with replacement, whole curves at a time; the band holds the middle `confidence`
    of the means. With few runs it is too narrow, as every bootstrap is: five runs are a picture,
    not a proof.

    Args:
        values: [R, X], R runs.
        confidence: in (0, 1).
        seed: of the drawing; the same seed gives the same band.

    Returns:
        Lower and upper end, each [X].

    Source: Efron 1979, doi:10.1214/aos/1176344552; the percentile interval is Efron & Tibshirani
    1993, section 13.3.
    """
    runs = len(values)
    drawn = np.random.default_rng(seed).multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)
    means = drawn @ values / runs  # [RESAMPLES, X]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and of up to `window` - 1 before it: [R] → [R].

    The first ones are means of as many as there are, so the curve begins where the other does.
    """
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def _smoothed_mean(curves: Sequence[Points], window: int) -> tuple[MeanCurve, MeanCurve]:
    """The mean of several runs' moving means, and that of the curves as they were logged."""
    logged = mean_curve(curves)
    if window == 1:
        return logged, logged
    return mean_curve([(steps, moving_mean(values, window)) for steps, values in curves]), logged


def mean_curve(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> MeanCurve:
    """The mean of (steps [R_i], values [R_i]) over the steps that all of them cover, with linear
    interpolation between reports."""
    if len(curves) == 1:
        return MeanCurve(curves[0][0], curves[0][1], curves[0][1], curves[0][1])
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    grid = np.linspace(first, last, POINTS) if first < last else np.array([first])
    values = np.stack([np.interp(grid, steps, returns) for steps, returns in curves])
    return MeanCurve(grid, values.mean(axis=0), *bootstrap_band(values))


# Drawing


def _draw_panel(axes: Axes, curves: list[Curve], smooth: int = 1) -> None:
    """An environment's curves and its optimum."""
    groups, planning = _groups(curves), curves[0].unit == "sweeps"
    shown: list[DrawnCurve] = []
    evaluations = []
    for index, (group, label) in enumerate(zip(groups, _labels(groups), strict=True)):
        colour = fraction_rgb(CURVES[index % len(CURVES)])
        mean = _draw_group(axes, group, label, colour, smooth, dashed=index >= len(CURVES))
        shown.append(DrawnCurve(mean.steps, mean.mean, mean.low, mean.high, colour))
        evaluations.append(_evaluations(group, colour))
    # a planner's value is discounted, the optimum is not
    optimum = None if planning else _draw_optimum(axes, curves[0])
    fit_axes(axes, shown, evaluations, optimum)
    lines = _name_panel(axes, _quantity_of(curves[0].unit))
    axes.set_title(
        curves[0].world + (_seeds(groups[0]) if _is_uniform(groups) else ""),
        **words(fontsize=11, pad=18 + LINE * (lines - 1)),
    )
    axes.set_xlabel(curves[0].unit, **words())
    up = "value of the start (reward units)" if planning else "return of an episode (reward units)"
    axes.set_ylabel(up.replace(" (", "\n(") if is_narrow() else up, **words())
    axes.margins(x=0.02)
    plain_ticks(axes)
    longest = max(map(len, axes.get_legend_handles_labels()[1]))
    columns = 2 if longest <= (TWO_NARROW_COLUMNS if is_narrow() else TWO_COLUMNS) else 1
    text = {"prop": {"family": words()["family"], "size": 9}, "labelcolor": words()["color"]}
    axes.legend(
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.24 if is_narrow() else -0.17),
        ncols=columns,
        columnspacing=1.8,
        **text,
    )


def _evaluations(group: list[Curve], colour: tuple[float, float, float]) -> Evaluations:
    """The mean of the greedy episodes that finished, and the steps at which a run's did not."""
    ended = [
        (curve.eval_steps[kept], curve.eval_returns[kept])
        for curve in group
        if (kept := curve.unfinished <= 0.0).any()
    ]
    mean = mean_curve(ended or [(np.zeros(0), np.zeros(0))])
    return Evaluations(
        mean.steps,
        mean.mean,
        np.concatenate([curve.eval_steps[curve.unfinished > 0.0] for curve in group]),
        colour,
    )


def _groups(curves: list[Curve]) -> list[list[Curve]]:
    """Curves grouped by everything but the seed."""
    kinds = list(dict.fromkeys(curve.kind for curve in curves))
    return [[curve for curve in curves if curve.kind == kind] for kind in kinds]


def _name_panel(axes: Axes, name: str, meaning: str = "") -> int:
    """Writes the metric's name and description above a panel; in an SVG or a PDF with a link to its
    entry in the glossary. Returns the number of lines used."""
    url = f"{PAGE}#metric-{name.replace('_', '-')}"
    said = f"{name}: {meaning or GLOSSARY[name].short}"
    above: dict[str, Any] = {"transform": axes.transAxes, "url": url, **words(fontsize=8.5)}
    if is_narrow():
        said, above["va"] = textwrap.fill(said, NARROW), "bottom"
    axes.text(0, 1.02, said, **above)
    return said.count("\n") + 1


def _reference(curves: list[Curve]) -> str:
    """The reference of the value error, if one of the curves is an on-policy learner's, which
    learns the values of its own policy."""
    own = dict.fromkeys(curve.algorithm for curve in curves if _is_on_policy(curve))
    others = dict.fromkeys(curve.algorithm for curve in curves if not _is_on_policy(curve))
    if not own:
        return ""
    if not others:
        return "distance from the values of its own policy, exploration included"
    return f"distance from V*; of {', '.join(own)} from V of its own policy"


def _is_on_policy(curve: Curve) -> bool:
    """Whether the values that the run learned are those of its own policy; see
    `ControlAgent.own_policy`."""
    if curve.algorithm not in ALGORITHMS or curve.settings.get("exploration") == "ucb":
        return False
    return bool(getattr(agent_class(curve.algorithm), "on_policy", False))


def _quantity_of(unit: str) -> str:
    """The quantity on a panel's axis, by the unit of its steps."""
    return next((quantity for quantity, counted in UNITS.items() if unit == counted), "return")


def _error_means(name: str, curves: list[Curve]) -> dict[int, MeanCurve]:
    """Index of a group of seeds → the distance of its runs from the exact answer, for groups in
    which all were compared with it, at common steps."""
    found = {}
    for index, group in enumerate(_groups(curves)):
        if all(name in curve.errors for curve in group):
            mean = mean_curve([curve.errors[name] for curve in group])
            if mean.steps[0] < mean.steps[-1]:
                found[index] = mean
    return found


def _draw_errors(axes: Axes, name: str, curves: list[Curve], means: dict[int, MeanCurve]) -> None:
    """Draws the distance from the exact answer on a logarithmic axis down to the smallest nonzero
    value; on a linear one if all others are of one magnitude."""
    plain_axes(axes)
    groups = _groups(curves)
    for index, mean in means.items():
        colour = fraction_rgb(CURVES[index % len(CURVES)])
        style = "--" if index >= len(CURVES) else "-"
        axes.plot(mean.steps, mean.mean, style, color=colour, linewidth=1.8)
        if len(groups[index]) > 1:
            axes.fill_between(mean.steps, mean.low, mean.high, color=colour, alpha=0.2, linewidth=0)
    shown = np.concatenate([mean.mean for mean in means.values()])
    above = shown[shown > ROUNDING]
    if above.size == shown.size:
        axes.set_yscale("log")
    elif (
        above.size and above.max() > DECADE * above.min()
    ):  # 0 has a place too, below the smallest number that is not
        axes.set_yscale("symlog", linthresh=float(above.min()))
    if above.size < shown.size:
        axes.set_ylim(0.0, 1.3 * max(float(mean.high.max()) for mean in means.values()) or 1.0)
    plain_ticks(axes)
    up = EXACT_METRICS[name]
    axes.set_ylabel(up.replace(" (", "\n(") if is_narrow() else up, **words(fontsize=9))
    _name_panel(
        axes,
        name,
        _reference([groups[index][0] for index in means]) if name == "value_error" else "",
    )
    axes.set_xlabel(curves[0].unit, **words(fontsize=9))


def _draw_group(
    axes: Axes,
    group: list[Curve],
    label: str,
    colour: tuple[float, float, float],
    smooth: int,
    *,
    dashed: bool = False,
) -> MeanCurve:
    """Draws the mean of a group, smoothed if requested. Returns the unsmoothed mean."""
    mean, logged = _smoothed_mean([(curve.steps, curve.returns) for curve in group], smooth)
    if smooth > 1:
        label += f", mean of {smooth} reports"
        axes.plot(logged.steps, logged.mean, color=colour, linewidth=1.0, alpha=0.3)
    dots = len(mean.steps) == 1 or (group[0].unit in DOTS and len(mean.steps) <= DOTTED)
    style, marker = "--" if dashed else "-", "o" if dots else ""
    axes.plot(
        mean.steps,
        mean.mean,
        style,
        color=colour,
        linewidth=1.8,
        marker=marker,
        markersize=4,
        label=label,
    )
    if len(group) > 1:
        axes.fill_between(mean.steps, mean.low, mean.high, color=colour, alpha=0.2, linewidth=0)
    return logged


def _draw_optimum(axes: Axes, curve: Curve) -> float | None:
    """Draws a dashed line at the optimal return, and labels it, if it is known."""
    try:
        best = optimal_return(EnvRecipe(find(curve.env).id, curve.env_kwargs))
    except RequestError:  # registered elsewhere; the curve can be drawn all the same
        return None
    if best is not None:
        axes.axhline(
            best,
            color=fraction_rgb(GREY),
            linestyle=(0, (5, 3)),
            linewidth=1.2,
            label=f"optimum {tick_text(round(best, 4))}",
        )
    return best


def _labels(groups: list[list[Curve]]) -> list[str]:
    """The algorithm, the settings that distinguish a group from the algorithm's other groups, and
    the number of seeds."""
    named = labels([(group[0].world, group[0].algorithm, group[0].settings) for group in groups])
    return [
        label + ("" if _is_uniform(groups) else _seeds(group))
        for label, group in zip(named, groups, strict=True)
    ]


def _is_uniform(groups: list[list[Curve]]) -> bool:
    """Whether there are several groups with equally many seeds: then the title states the number
    once."""
    return len(groups) > 1 and len({len(group) for group in groups}) == 1


def _seeds(group: list[Curve]) -> str:
    return f" (mean of {len(group)} seeds, 95 % band)" if len(group) > 1 else ""
