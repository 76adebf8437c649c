"""What an agent thinks of a maze: the value of every cell, and an arrow for the action it would take there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.agent import Agent
from rlbook.environments import Recipe
from rlbook.envs.layouts import MOVES, Layout
from rlbook.errors import RequestError
from rlbook.plots.colours import GREEN, INK, PALE, RAMP, fraction_rgb, ramp, readable_on
from rlbook.plots.figure import format_of, new_figure, save_figure, words
from rlbook.plots.optimum import horizon_of, horizon_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rlbook.runs import Run

CHUNK = 1_024                                # states that a network sees at once
NUMBERED = 12                                # columns of a map up to which its numbers can be read
ARROWED = 60                                 # the same for arrows


@dataclass(frozen=True)
class ValueMap:
    """Values and actions over a maze's S states."""

    layout: Layout
    values: np.ndarray                       # [S] float, in reward units; NaN where nothing is decided: walls, the goal, walled-off cells
    policy: np.ndarray                       # [S] int, the greedy action; -1 there
    meaning: str                             # what the values are
    title: str

    @property
    def decided(self) -> np.ndarray:
        """[S] bool: the cells in which an agent acts."""
        return self.policy >= 0

    def shares(self) -> np.ndarray:
        """[S]: where a value stands between the lowest (0) and the highest (1)."""
        low, high = self.range
        return (self.values - low) / (high - low) if high > low else np.ones_like(self.values)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value, in reward units."""
        return float(np.nanmin(self.values)), float(np.nanmax(self.values))


def value_map(target: Run | Agent | str | Path, env: Any = None, **options: Any) -> ValueMap:
    """The value map of an agent in a maze of any layout.

    Values are the agent's own: a table's V, a critic's V, max_a Q of a Q-network. An agent that has none (GRPO, DPO) is shown with the
    return that its greedy policy earns from each cell, computed from the maze's model.

    Args:
        target: a run, a run's folder, or an agent (which then needs `env`).
        env: another maze, by its id or as an environment, in place of the run's own.
        options: for a folder, what `rlbook.load` takes (`checkpoint`, `allow_import`).

    Raises:
        RequestError: the environment is no maze, or an agent came without one.
    """
    from rlbook.runs import Run, load

    if isinstance(target, Agent):
        if env is None:
            raise RequestError("an agent alone does not say which maze to draw; give env")
        return _value_map(target, Recipe.of(env), type(target).__name__)
    run = target if isinstance(target, Run) else load(target, **options)
    return _value_map(run.agent, run.request.recipe if env is None else Recipe.of(env), run.request.algorithm)


def plot_value_map(target: ValueMap | Run | Agent | str | Path, env: Any = None, out: str | Path | None = None, **options: Any) -> Figure:
    """Draws a value map: colour and number are the cell's value, the arrow is the greedy action.

    Args:
        target, env, options: a `ValueMap`, or what `value_map` takes.
        out: where to write the figure, if anywhere: a name that ends in .png, .svg or .pdf.

    Raises:
        RequestError: no maze, or a file that cannot be written.
    """
    if out is not None:
        format_of(Path(out))
    chart = target if isinstance(target, ValueMap) else value_map(target, env, **options)
    figure = _draw(chart)
    if out is not None:
        save_figure(figure, out)
    return figure


# What is shown


def _value_map(agent: Agent, recipe: Recipe, name: str) -> ValueMap:
    env = recipe.make()
    tables = getattr(env.unwrapped, "tables", None)
    if tables is None or not isinstance(getattr(tables, "layout", None), Layout):
        raise RequestError(f"a value map is drawn of a maze, and {recipe.name} is none")
    observations = [tables.observe(states) for states in _chunks(tables.layout)]
    policy = np.concatenate([_greedy(agent, chunk) for chunk in observations])
    own = [_values(agent, chunk) for chunk in observations]
    if own[0] is None:
        values, meaning = horizon_values(env.unwrapped.model(), horizon_of(recipe), policy), "return of the greedy policy (reward units)"  # type: ignore[attr-defined]
    else:
        values, meaning = np.concatenate(own), "value V(s) (reward units)"
    decided = tables.layout.reachable() & ~tables.terminal
    shown = np.where(decided, values.astype(float), np.nan)
    return ValueMap(tables.layout, shown, np.where(decided, policy, -1), meaning, f"{name} on {recipe.name}")


def _chunks(layout: Layout) -> list[np.ndarray]:
    return [np.arange(start, min(start + CHUNK, layout.num_states)) for start in range(0, layout.num_states, CHUNK)]


def _greedy(agent: Any, observations: np.ndarray) -> np.ndarray:
    """[N] int: what the agent does without exploring."""
    fitted = agent.fitted(observations)
    return np.asarray(agent.act(fitted, explore=False) if agent.batched else agent.greedy_policy()[fitted])


def _values(agent: Any, observations: np.ndarray) -> Any:
    """[N], or None for an agent without values."""
    if not agent.batched:
        return agent.values()[agent.fitted(observations)]
    if hasattr(agent, "value"):
        return agent.value(observations)
    return agent.action_values(observations).max(axis=1) if hasattr(agent, "action_values") else None


# Drawing


def _draw(chart: ValueMap) -> Figure:
    rows, columns = chart.layout.rows, chart.layout.columns
    size = float(np.clip(0.72 * max(rows, columns), 3.6, 9.0)) / max(rows, columns)
    figure = new_figure(max(columns * size, 2.4) + 1.5, max(rows * size, 2.0) + 0.7)
    axes = figure.subplots()
    axes.imshow(_pixels(chart), extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(chart.title, **words(fontsize=11, pad=10))
    if columns <= ARROWED:
        _draw_lines(axes, chart.layout)
        _draw_arrows(axes, chart, numbered=columns <= NUMBERED)
    _draw_marks(axes, chart, 72 * size)
    if columns <= NUMBERED:
        _draw_numbers(axes, chart)
    _draw_scale(figure, axes, chart)
    return figure


def _pixels(chart: ValueMap) -> np.ndarray:
    """[rows, columns, 3] uint8, a cell a pixel."""
    colours = [ramp(share) if decided else PALE for share, decided in zip(chart.shares(), chart.decided, strict=True)]
    pixels = np.array(colours, dtype=np.uint8)
    pixels[chart.layout.walls.ravel()] = INK
    pixels[chart.layout.goal] = GREEN
    return pixels.reshape(chart.layout.rows, chart.layout.columns, 3)


def _draw_lines(axes: Axes, layout: Layout) -> None:
    """White lines between the cells."""
    axes.set_xticks(np.arange(layout.columns - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(layout.rows - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=max(0.3, 6 / layout.columns))
    axes.tick_params(which="both", length=0)


def _draw_arrows(axes: Axes, chart: ValueMap, *, numbered: bool) -> None:
    """An arrow a cell; where the number stands below it, in the upper part."""
    states = np.flatnonzero(chart.decided)
    row, column = np.divmod(states, chart.layout.columns)
    down, right = np.array(MOVES)[chart.policy[states]].T
    shares = chart.shares()
    colours = [fraction_rgb(readable_on(ramp(shares[state]))) for state in states]
    length, raised = (0.34, 0.14) if numbered else (0.6, 0.0)
    axes.quiver(
        column, row - raised, length * right, length * down, color=colours, pivot="mid", angles="xy", scale_units="xy", scale=1.0,
        units="xy", width=0.05, headwidth=4.4, headlength=4.2, headaxislength=3.8, minlength=0.0, minshaft=1.0,
    )  # fmt: skip


def _draw_numbers(axes: Axes, chart: ValueMap) -> None:
    shares, size = chart.shares(), 9.5 if chart.layout.columns <= 8 else 7.5
    for state in np.flatnonzero(chart.decided):
        row, column = divmod(int(state), chart.layout.columns)
        colour = fraction_rgb(readable_on(ramp(shares[state])))
        axes.text(column, row + 0.27, number(chart.values[state]), ha="center", va="center", **words(color=colour, fontsize=size))


def _draw_marks(axes: Axes, chart: ValueMap, points: float) -> None:
    """S in the corner of the start, G in the middle of the goal; `points` is the side of a cell."""
    row, column = divmod(chart.layout.goal, chart.layout.columns)
    axes.text(column, row, "G", ha="center", va="center", **words(color="white", fontsize=0.32 * points, fontweight="bold"))
    row, column = divmod(chart.layout.start, chart.layout.columns)
    colour = fraction_rgb(readable_on(ramp(chart.shares()[chart.layout.start])))
    axes.text(column - 0.42, row - 0.42, "S", ha="left", va="top", **words(color=colour, fontsize=0.16 * points, fontweight="bold"))


def _draw_scale(figure: Figure, axes: Axes, chart: ValueMap) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = LinearSegmentedColormap.from_list("ramp", [fraction_rgb(colour) for colour in RAMP])
    scale = figure.colorbar(ScalarMappable(Normalize(*chart.range), colours), ax=axes, fraction=0.05, pad=0.03)
    scale.outline.set_visible(False)  # type: ignore[operator]
    scale.ax.tick_params(labelsize=8, length=0, labelcolor=words()["color"])
    scale.set_label(chart.meaning, **words(fontsize=9))


def number(value: float) -> str:
    """A value in at most five characters where that is possible: 2.53, -12.4, -300."""
    for digits in (2, 1):
        text = f"{value:.{digits}f}"
        if len(text) <= 5:
            return "0.00" if text == "-0.00" else text.replace("-", "−")
    return f"{value:.0f}".replace("-", "−")
