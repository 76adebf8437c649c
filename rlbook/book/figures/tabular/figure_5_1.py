"""Figure 5.1: the values of blackjack for a player who sticks only on 20 and 21, by Monte Carlo
prediction.

After 10 000 games the values of hands with a usable ace are still rough, because such hands are
rarer; after 500 000 all are well known. Here they are also compared with the exact values, worked
out from the deck.

Source: Sutton & Barto 2018, example 5.1, figure 5.1. One difference: as in the model, 21 with two
cards is worth no more than with three.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.axes3d import Axes3D

from rlbook.algorithms.tabular.prediction.mc_prediction import MCPrediction, MCPredictionConfig
from rlbook.book.figures.learners import learners
from rlbook.envs.blackjack import SHAPE, blackjack_model
from rlbook.plots.colours import GREY, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure, words

STICK_ON_20 = np.where(np.unravel_index(np.arange(np.prod(SHAPE)), SHAPE)[0] >= 20, 0, 1)
"""[S]: the player's policy."""
SUMS, CARDS = np.arange(12, 22), np.arange(1, 11)
ACES = ("no usable ace", "usable ace")


@dataclass(frozen=True)
class BlackjackValues:
    """Figure 5.1. Tables [ace, sum, card]: without and with a usable ace, sums 12 to 21, dealer's
    cards ace to 10."""

    values: dict[int, np.ndarray]  # games → [2, 10, 10]: V, in reward units
    visits: dict[int, np.ndarray]  # games → [2, 10, 10] int: games that came to the hand
    exact: np.ndarray  # [2, 10, 10]: the policy's exact values


def run(seed: int = 0, episodes: int = 500_000) -> BlackjackValues:
    """Runs the first fiftieth of `episodes`, and all of them."""
    model, values, visits = blackjack_model(), {}, {}
    config = MCPredictionConfig(gamma=1.0, policy=tuple(STICK_ON_20.tolist()))
    # the longer run begins as the shorter one does
    for games in (
        max(1, episodes // 50),
        episodes,
    ):
        ((agent, _),) = learners(MCPrediction, config, model, episodes=games, runs=1, seed=seed)
        values[games], visits[games] = hands(agent.values()), hands(agent.memory.visits)
    return BlackjackValues(values, visits, hands(model.policy_values(STICK_ON_20, 1.0)))


def hands(table: np.ndarray) -> np.ndarray:
    """A table [S] as [2, 10, 10] hands."""
    return table.reshape(SHAPE)[12:22, 1:].transpose(2, 0, 1)


def scores(result: BlackjackValues, games: int) -> np.ndarray:
    """The distance of V from the exact values in standard errors, for hands met at least 30 times:
    [hands].

    A game pays -1, 0 or 1, so that its variance is at most 1 - V²; N games leave a standard error
    of √((1 - V²) / N) at most.
    """
    often = result.visits[games] >= 30
    error = (result.values[games] - result.exact)[often]
    return error * np.sqrt(result.visits[games][often] / (1 - result.exact[often] ** 2))


def measurements(result: BlackjackValues) -> dict[str, float]:
    """The distance of V from the exact values, over the hands that the figure shows, in reward
    units and in standard errors."""
    numbers: dict[str, float] = {}
    for games, values in result.values.items():
        for ace, name in enumerate(ACES):
            error = values[ace] - result.exact[ace]
            numbers[f"{games} games, {name}, RMS error"] = float(np.sqrt((error**2).mean()))
        met = scores(result, games)
        numbers[f"{games} games, hands met 30 times"] = len(met)
        numbers[f"{games} games, largest error in standard errors"] = (
            float(np.abs(met).max()) if len(met) else float("nan")
        )
    return numbers


def draw(result: BlackjackValues) -> Figure:
    """Surfaces over the player's sum and the dealer's card, as in the book."""
    figure = new_figure(7.4, 6.1)
    axes = figure.subplots(2, 2, subplot_kw={"projection": "3d"})
    names = ("Usable\nace", "No\nusable\nace")
    for column, (games, values) in enumerate(result.values.items()):
        played = f"After {games:,} games".replace(",", " ")
        for row, ace in enumerate((1, 0)):
            _surface(axes[row, column], values[ace])
            if is_narrow():
                title = f"{played}: {' '.join(names[row].split()).lower()}"
                axes[row, column].set_title(title, **words(fontsize=11))
        if not is_narrow():
            axes[0, column].set_title(played, **words(fontsize=11))
    for row, name in enumerate(() if is_narrow() else names):
        axes[row, 0].text2D(
            -0.12,
            0.5,
            name,
            transform=axes[row, 0].transAxes,
            ha="center",
            va="center",
            **words(fontsize=11),
        )
    return figure


def _surface(axes: Axes3D, values: np.ndarray) -> None:
    """One panel; `values` [10, 10] over sums and cards."""
    cards, sums = np.meshgrid(CARDS, SUMS)
    line = fraction_rgb(GREY)
    axes.plot_surface(
        cards,
        sums,
        values,
        rstride=1,
        cstride=1,
        cmap="YlGnBu",
        vmin=-1.0,
        vmax=1.2,
        edgecolor=line,
        linewidth=0.5,
    )
    axes.view_init(elev=32, azim=-52)
    axes.set_box_aspect((1, 1, 0.5))
    axes.set_xlabel("Dealer showing", **words(fontsize=8.5, labelpad=0))
    axes.set_ylabel("Player's sum", **words(fontsize=8.5, labelpad=0))
    axes.set(xticks=[1, 4, 7, 10], xticklabels=["A", "4", "7", "10"], yticks=[12, 15, 18, 21])
    axes.set_zticks([-1, 0, 1])  # type: ignore[operator]
    axes.set_zlim(-1, 1)
    axes.tick_params(labelsize=8, pad=0)
