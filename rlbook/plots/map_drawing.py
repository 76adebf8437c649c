"""Drawing value maps with matplotlib: maps with arrows, tables with numbers, curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.interaction.environments import EnvLike
from rlbook.plots.boards import GOALS, HOLES
from rlbook.plots.colours import (
    CURVES,
    GREEN,
    GREY,
    INK,
    PALE,
    PAPER,
    RAMP,
    RED,
    Colour,
    fraction_rgb,
    mix_colours,
    ramp,
    readable_ink,
)
from rlbook.plots.figure import drawing, format_of, new_figure, plain_axes, save_figure, words
from rlbook.plots.value_map import ValueMap, number, value_maps
from rlbook.runs.run import Run

NUMBERED = 12  # columns of a map up to which its numbers can be read
ARROWED = 60  # the same for arrows
LETTERED = 24  # the same for actions that are written
FAINT = 0.62  # how far the arrow of an action that is as good fades into the cell
ARROW = {
    "pivot": "tail",
    "angles": "xy",
    "scale_units": "xy",
    "scale": 1.0,
    "units": "xy",
    "headwidth": 4.4,
    "headlength": 4.2,
    "headaxislength": 3.8,
    "minlength": 0.0,
    "minshaft": 1.0,
}


@drawing("the value map")
def plot_value_map(
    target: ValueMap | list[ValueMap] | Run | Agent | str | Path,
    env: EnvLike | None = None,
    out: str | Path | None = None,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
) -> Figure:
    """Draws value maps: colour and number are the cell's value, the dark arrow is the greedy
    action, pale ones are equally good.

    Args:
        target, env, checkpoint, allow_import: one or several `ValueMap`, or what `value_maps`
            takes.
        out: where to write the figure, if anywhere: a name that ends in .png, .svg or .pdf.

    Raises:
        RequestError: an environment that cannot be drawn so, or a file that cannot be written.
    """
    if out is not None:
        format_of(Path(out))
    if isinstance(target, ValueMap | list):
        charts = [target] if isinstance(target, ValueMap) else target
    else:
        charts = value_maps(target, env, checkpoint=checkpoint, allow_import=allow_import)
    figure = draw_maps(charts)
    if out is not None:
        save_figure(figure, out)
    return figure


def draw_maps(charts: list[ValueMap]) -> Figure:
    """Maps side by side, with one colour scale; curves one below the other with the actions."""
    if charts[0].board.line:
        return _draw_curve(charts[0])
    board = charts[0].board
    longest = max(board.rows, board.columns)
    size = float(np.clip(0.72 * longest, 3.6, 9.0)) / longest
    width = len(charts) * (max(board.columns * size, 2.4) + 0.5 * bool(board.along)) + 1.5
    figure = new_figure(width, max(board.rows * size, 1.6) + 0.7 + 0.4 * bool(board.across))
    span = min(chart.range[0] for chart in charts), max(chart.range[1] for chart in charts)
    row = figure.subplots(1, len(charts), squeeze=False)[0]
    for axes, chart in zip(row, charts, strict=True):
        _draw_map(axes, chart, span, 72 * size)
    _draw_scale(figure, row, charts[0].meaning, span)
    return figure


def _draw_map(axes: Axes, chart: ValueMap, span: tuple[float, float], points: float) -> None:
    """One map; `points` is the side of a cell."""
    board = chart.board
    colours = cell_colours(chart, span)
    pixels = np.array(colours, dtype=np.uint8).reshape(board.rows, board.columns, 3)
    axes.imshow(
        pixels, extent=(-0.5, board.columns - 0.5, board.rows - 0.5, -0.5), interpolation="nearest"
    )
    _draw_edges(axes, chart)
    if board.columns <= ARROWED:
        _draw_lines(axes, board.rows, board.columns)
    if board.moves is not None and board.columns <= ARROWED:
        _draw_arrows(axes, chart, colours)
    elif board.moves is None and board.columns <= LETTERED:
        _draw_words(axes, chart, colours, points)
    if board.columns <= NUMBERED:
        _draw_numbers(axes, chart, colours)
    _draw_marks(axes, chart, colours, points)
    if board.upward:
        axes.invert_yaxis()


def cell_colours(chart: ValueMap, span: tuple[float, float]) -> list[Colour]:
    """A colour per cell: the ramp where an agent acts; otherwise dark walls, green goals, red
    holes, and pale for unreachable cells."""
    board = chart.board
    shares, walls = chart.shares(span), board.walls.ravel()
    return [
        ramp(float(shares[state]))
        if board.decided[state]
        else INK
        if walls[state]
        else GREEN
        if board.texts[state] in GOALS
        else RED
        if board.texts[state] in HOLES
        else PALE
        for state in range(board.num_states)
    ]


def _draw_edges(axes: Axes, chart: ValueMap) -> None:
    board = chart.board
    axes.set(
        xticks=range(len(board.columns_named)),
        xticklabels=board.columns_named,
        yticks=range(len(board.rows_named)),
        yticklabels=board.rows_named,
    )
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=words()["color"])
    axes.spines[:].set_visible(False)
    axes.set_title(chart.title, **words(fontsize=11, pad=10))
    axes.set_xlabel(board.across, **words(fontsize=9))
    axes.set_ylabel(board.along, **words(fontsize=9))


def _draw_lines(axes: Axes, rows: int, columns: int) -> None:
    """White lines between the cells."""
    axes.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=max(0.3, 6 / columns))
    axes.tick_params(which="minor", length=0)


class Arrow(NamedTuple):
    """An action in a cell; lengths in cells."""

    state: int
    taken: bool  # whether the agent takes it
    alone: bool  # whether no other action is as good
    x: float  # of its tail
    y: float
    right: float  # 0 with `down` for an action that stays
    down: float


def arrows_of(chart: ValueMap, *, numbered: bool) -> list[Arrow]:
    """The arrows of a cell. A single arrow is centred, several start at a distance from the centre;
    a number below them moves the centre up."""
    moves, columns = chart.board.moves, chart.board.columns
    assert moves is not None
    raised, single, several = (0.14, 0.34, 0.22) if numbered else (0.0, 0.6, 0.34)
    arrows = []
    for state in np.flatnonzero(chart.policy >= 0).tolist():
        actions, (row, column) = np.flatnonzero(chart.best[state]).tolist(), divmod(state, columns)
        alone = len(actions) == 1
        for action in actions:
            down, right = moves[action] * (
                (single if alone else several) / max(1.0, float(np.hypot(*moves[action])))
            )
            tail = -0.5 if alone else 0.27
            arrows.append(
                Arrow(
                    state,
                    action == chart.policy[state],
                    alone,
                    column + tail * right,
                    row - raised + tail * down,
                    right,
                    down,
                )
            )
    return arrows


def _draw_arrows(axes: Axes, chart: ValueMap, colours: list[Colour]) -> None:
    """Draws the agent's action dark and equally good ones faint; in the upper part if there is a
    number below."""
    arrows = arrows_of(chart, numbered=chart.board.columns <= NUMBERED)
    for taken, alone in ((False, False), (True, False), (True, True)):
        chosen = [arrow for arrow in arrows if (arrow.taken, arrow.alone) == (taken, alone)]
        if not chosen:
            continue
        states, _, _, x, y, right, down = zip(*chosen, strict=True)
        ink = [fraction_rgb(arrow_ink(colours[state], taken)) for state in states]
        axes.quiver(x, y, right, down, color=ink, width=0.05 if alone else 0.033, **ARROW)
        stays = [index for index in range(len(chosen)) if right[index] == down[index] == 0]
        side = 0.06 * axes.get_window_extent().width / chart.board.columns
        axes.scatter(
            [x[i] for i in stays],
            [y[i] for i in stays],
            s=side**2,
            color=[ink[i] for i in stays],
            linewidths=0,
            zorder=3,
        )


def arrow_ink(ground: Colour, taken: bool) -> Colour:
    """The colour of an arrow on `ground`."""
    ink = readable_ink(ground)
    return ink if taken else mix_colours(ink, ground, FAINT)


def _draw_words(axes: Axes, chart: ValueMap, colours: list[Colour], points: float) -> None:
    """The action as a number or a letter."""
    for state in np.flatnonzero(chart.policy >= 0).tolist():
        row, column = divmod(state, chart.board.columns)
        raised = (
            (0.14 if not chart.board.upward else -0.14) if chart.board.columns <= NUMBERED else 0.0
        )
        ink = fraction_rgb(readable_ink(colours[state]))
        text = chart.board.action_text(state, int(chart.policy[state]))
        axes.text(
            column,
            row - raised,
            text,
            ha="center",
            va="center",
            **words(color=ink, fontsize=0.3 * points, fontweight="bold"),
        )


def _draw_numbers(axes: Axes, chart: ValueMap, colours: list[Colour]) -> None:
    size = 9.5 if chart.board.columns <= 8 else 7.5
    lowered = (0.27 if (chart.policy >= 0).any() else 0.0) * (-1 if chart.board.upward else 1)
    for state in np.flatnonzero(chart.is_decision).tolist():
        row, column = divmod(state, chart.board.columns)
        ink = fraction_rgb(readable_ink(colours[state]))
        axes.text(
            column,
            row + lowered,
            number(chart.values[state]),
            ha="center",
            va="center",
            **words(color=ink, fontsize=size),
        )


def _draw_marks(axes: Axes, chart: ValueMap, colours: list[Colour], points: float) -> None:
    """Draws the map's letters: in the corner where an agent acts, in the middle of a goal or a
    hole."""
    board = chart.board
    for state, text in enumerate(board.texts):
        row, column = divmod(state, board.columns)
        ink = fraction_rgb(readable_ink(colours[state]))
        bold: dict[str, Any] = words(
            color=ink, fontweight="bold", fontsize=(0.16 if board.decided[state] else 0.32) * points
        )
        if text and board.decided[state]:
            axes.text(column - 0.42, row - 0.42, text, ha="left", va="top", **bold)
        elif text:
            axes.text(column, row, text, ha="center", va="center", **bold)


def _draw_scale(
    figure: Figure, axes: NDArray[np.object_], meaning: str, span: tuple[float, float]
) -> None:

    colours = LinearSegmentedColormap.from_list("ramp", [fraction_rgb(colour) for colour in RAMP])
    scale = figure.colorbar(
        ScalarMappable(Normalize(*span), colours), ax=list(axes), fraction=0.05, pad=0.03
    )
    scale.outline.set_visible(False)  # type: ignore[operator]
    scale.ax.tick_params(labelsize=8, length=0, labelcolor=words()["color"])
    scale.set_label(meaning, **words(fontsize=9))


# Curves


def _draw_curve(chart: ValueMap) -> Figure:
    """Draws values over the states; below them, where actions are numbers, all optimal ones and the
    one taken."""
    board = chart.board
    acting = (chart.policy >= 0).any()
    figure = new_figure(6.6, 6.4 if acting else 3.8)
    panels = figure.subplots(2 if acting else 1, 1, squeeze=False)[:, 0]
    states = np.flatnonzero(chart.is_decision)
    plain_axes(panels[0]).plot(
        states, chart.values[states], color=fraction_rgb(CURVES[0]), linewidth=1.8
    )
    panels[0].set_ylabel(chart.meaning, **words(fontsize=9))
    panels[0].set_title(chart.title, **words(fontsize=11, pad=10))
    if acting:
        _draw_taken(plain_axes(panels[1]), chart, states)
    for axes in panels:
        axes.set_xlim(0, board.num_states - 1)
    panels[-1].set_xlabel(board.across, **words(fontsize=9))
    return figure


def _draw_taken(axes: Axes, chart: ValueMap, states: np.ndarray) -> None:
    board = chart.board
    amounts = (
        np.tile(np.arange(chart.best.shape[1]), (board.num_states, 1))
        if board.amounts is None
        else board.amounts
    )
    state, action = np.nonzero(chart.best)
    axes.plot(
        state,
        amounts[state, action],
        "o",
        color=fraction_rgb(mix_colours(GREY, PAPER, 0.35)),
        markersize=2.4,
        label="as good",
    )
    taken = amounts[states, chart.policy[states]]
    axes.step(
        states, taken, where="mid", color=fraction_rgb(CURVES[1]), linewidth=1.4, label="taken"
    )
    if board.amounts is None and board.actions:
        axes.set_yticks(range(len(board.actions)), board.actions)
    axes.set_ylabel(board.amount or "action", **words(fontsize=9))
    axes.legend(frameon=False, labelcolor=words()["color"], fontsize=9)
