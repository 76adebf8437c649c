"""Panels below the learning curve of a language model: each reward by its name, KL, entropy,
length, and the groups without gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from rlbook.plots.colours import CURVES, GREY, fraction_rgb
from rlbook.plots.curve_axes import plain_ticks
from rlbook.plots.figure import plain_axes, words

Band = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Steps, mean, and the bounds of its band, each [X]."""
REWARD = "reward/"
LEAST = 1e-3  # what an axis reaches to at least: an update of one minibatch has a KL of 0, but for rounding


@dataclass(frozen=True)
class Panel:
    """Metrics of one kind on one axis."""

    title: str
    unit: str
    names: tuple[str, ...]  # as they are logged; those that are there are drawn


PANELS = (
    Panel("KL divergence", "nats a token", ("reference_kl", "approx_kl")),
    Panel("entropy of the next token", "nats", ("entropy",)),
    Panel("length of a completion", "tokens", ("length",)),
    Panel("groups of equal returns", "share", ("zero_std_groups", "dropped_groups")),
)


def panels_of(logged: Sequence[str]) -> list[Panel]:
    """The panels for the metrics that a token run has logged; the rewards come first, if there are
    several."""
    rewards = tuple(name for name in logged if name.startswith(REWARD) or name == "true_return")
    found = [Panel("rewards by name", "reward units", rewards)] if rewards else []
    there = [
        Panel(panel.title, panel.unit, tuple(name for name in panel.names if name in logged))
        for panel in PANELS
    ]
    return found + [panel for panel in there if panel.names]


def draw_panel(
    axes: Axes,
    panel: Panel,
    bands: Mapping[str, Band],
    raw: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
) -> None:
    """A panel's lines, distinguished by colour and dashes; a fraction gets the axis from 0 to 1.

    `raw`: steps and values that stand faint behind a line, where it is smoothed.
    """
    plain_axes(axes)
    for place, name in enumerate(panel.names):
        steps, mean, low, high = bands[name]
        colour, dashes = (
            fraction_rgb(CURVES[place % len(CURVES)]),
            ("-", "--", "-.", ":")[place % 4],
        )
        if raw is not None and name in raw:
            axes.plot(*raw[name], color=colour, linewidth=0.8, alpha=0.3)
        label = name.removeprefix(REWARD) if name.startswith(REWARD) else name
        axes.plot(
            steps,
            mean,
            dashes,
            color=colour,
            linewidth=1.5,
            marker="o" if len(steps) == 1 else "",
            markersize=4,
            label=label,
        )
        if (high > low).any():
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = f": {', '.join(panel.names)}" if len(panel.names) == 1 else ""
    axes.set_title(panel.title + alone, loc="left", **words(fontsize=9))
    axes.set_ylabel(panel.unit, **words(fontsize=8))
    axes.tick_params(labelsize=8)
    plain_ticks(axes, most=5)
    if panel.unit == "share":
        axes.set_ylim(-0.03, 1.03)
    elif min(float(bands[name][1].min()) for name in panel.names) >= 0.0:
        top = max(axes.get_ylim()[1], LEAST)
        axes.set_ylim(-0.03 * top, top)
    if len(panel.names) > 1:
        text = {"prop": {"family": words()["family"], "size": 7.5}, "labelcolor": words()["color"]}
        axes.legend(frameon=False, loc="best", handlelength=2.4, **text)
    axes.axhline(0.0, color=fraction_rgb(GREY), linewidth=0.6, zorder=0)
