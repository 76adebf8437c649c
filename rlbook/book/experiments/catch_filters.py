"""What the filters of a network that has learned Catch from pixels respond to, and its values of
the three actions.

    found = run(seeds=3)
    found.error                                  [R], how far the values are from the exact ones

The picture is of the first seed: four moments of the game that is hardest, with the ball in the
corner, what the two busiest filters of the first layer make of each, and the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.envs.catch import COLUMNS, ROWS, STATE_SHAPE, catch_frames

GAMMA = 0.99
STEPS = ROWS - 1
MOMENTS = (0, 2, 5, 8)
"""Rows of the ball in the picture."""
ACTIONS = ("left", "stay", "right")
FIRST_SEED = 10


@dataclass(frozen=True)
class CatchFilters:
    """Results of R seeds; the maps and values are the first seed's."""

    error: NDArray[np.float64]  # [R], mean |max Q - V*| over the states, in reward units
    right: NDArray[np.float64]  # [R], share of the states in which the greedy action is optimal
    frames: NDArray[np.uint8]  # [M, 10, 5], the moments
    maps: NDArray[np.float32]  # [M, 2, 5, 3], what two filters make of them
    values: NDArray[np.float32]  # [M, 3], Q of the three actions


def run(seeds: int = 3, *, first: int = FIRST_SEED, **settings: Any) -> CatchFilters:
    """Trains DQN with its preset, or with other settings, and evaluates the result."""
    numbers = range(first, first + seeds)
    trained = [rlbook.train("dqn", "Catch-v0", seed=n, eval_every=0, **settings) for n in numbers]
    networks: list[Any] = [each.agent.q for each in trained]  # type: ignore[attr-defined]
    exact = exact_values()
    frames = torch.from_numpy(catch_frames()[: len(exact)])
    with torch.no_grad():
        learned = [network(frames).numpy() for network in networks]
        shown = frames[moments(learned[0])]
        seen = torch.relu(networks[0].filters[0](shown.movedim(-1, 1) / 255.0))  # [M, F, 5, 3]
        values = networks[0](shown).numpy()
    busiest = seen.var(dim=0).sum(dim=(1, 2)).argsort(descending=True)[:2]
    return CatchFilters(
        np.array([float(np.abs(q.max(axis=1) - exact.max(axis=1)).mean()) for q in learned]),
        np.array([float(is_optimal(q.argmax(axis=1), exact).mean()) for q in learned]),
        shown[..., 0].numpy(),
        seen[:, busiest].numpy(),
        values,
    )


def exact_values() -> NDArray[np.float64]:
    """Q* of every state before the end, [225, 3]: the ball is caught if its column can still be
    reached after the step."""
    row, ball, paddle = np.unravel_index(np.arange(STEPS * COLUMNS**2), STATE_SHAPE)
    moved = np.clip(paddle[:, None] + np.arange(3) - 1, 0, COLUMNS - 1)
    left = STEPS - 1 - row[:, None]  # steps after this one
    sign = np.where(np.abs(ball[:, None] - moved) <= left, 1.0, -1.0)
    return (sign * GAMMA**left).astype(np.float64)


def is_optimal(action: NDArray[np.int64], exact: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether no action of a state is worth more: [S] → [S]."""
    return np.take_along_axis(exact, action[:, None], axis=1)[:, 0] == exact.max(axis=1)


def moments(q: NDArray[np.float32]) -> list[int]:
    """States of a greedy game in which the ball falls along the left wall, at the rows shown in the
    picture."""
    states, paddle = [], COLUMNS // 2
    for row in range(STEPS):
        state = int(np.ravel_multi_index((row, 0, paddle), STATE_SHAPE))
        states.append(state)
        paddle = min(max(paddle + int(q[state].argmax()) - 1, 0), COLUMNS - 1)
    return [states[row] for row in MOMENTS]


def measurements(result: CatchFilters) -> dict[str, float]:
    """Means over the seeds."""
    return {
        "mean error of the best action's value": float(result.error.mean()),
        "share of the states with an optimal greedy action": float(result.right.mean()),
    }


def draw(result: CatchFilters) -> Figure:
    """A column for each moment: the frame, the two filters, and the values as bars."""
    from rlbook.book.figures.axes import curve_colour
    from rlbook.plots.figure import is_narrow, new_figure, plain_axes, words

    figure = new_figure(6.4, 6.4, narrow_height=5.6)
    grid = figure.subplots(4, len(MOMENTS), gridspec_kw={"height_ratios": (10, 5, 5, 6)})
    names = ("the frame", "one filter", "another one")
    largest = result.maps.max(axis=(0, 2, 3))
    for column, row in enumerate(MOMENTS):
        pictures = (result.frames[column], *result.maps[column])
        for axes, picture, top in zip(grid[:3, column], pictures, (255, *largest), strict=True):
            axes.imshow(picture, cmap="Greys_r", vmin=0, vmax=max(float(top), 1e-9))
            axes.set(xticks=[], yticks=[])
        title = f"{row} steps" if is_narrow() else f"after {row} steps"
        grid[0, column].set_title(title, fontsize=9, **words())
        bars = plain_axes(grid[3, column])
        bars.bar(ACTIONS, result.values[column], color=curve_colour(0))
        bars.axhline(GAMMA ** (STEPS - 1 - row), color="0.5", linestyle="--", linewidth=1.2)
        if is_narrow():
            bars.tick_params(axis="x", rotation=90)
        bars.set_ylim(min(-1.1, result.values.min()), max(1.3, result.values.max()))
    for axes, name in zip(grid[:, 0], (*names, "Q (reward units)"), strict=True):
        axes.set_ylabel(name, fontsize=9, **words())
    return figure
