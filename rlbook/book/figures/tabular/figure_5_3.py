"""Figure 5.3: the value of one hand of blackjack, estimated from games of another policy, by
ordinary and by weighted importance sampling.

The dealer shows a 2, the player has 13 with a usable ace. Games are played by coin flips; the
policy to evaluate sticks on 20 and 21 only. Both estimates tend to its value. Ordinary sampling is
unbiased, but its error is large as long as few games have been played. Weighted sampling is biased,
and its error is far smaller after one game, and smaller after ten; after a hundred the two hardly
differ.

Both errors are known in theory too, and drawn dotted. With ρ the importance ratio of a game and G
its return, N games leave

    ordinary    E[(V - v)²] = Var(ρ G) / N                       exactly: an average of N independent numbers
    weighted    E[(V - v)²] → E[ρ² (G - v)²] / N                 for large N: a ratio of two averages

Source: Sutton & Barto 2018, example 5.4, figure 5.3, eqs. 5.5 and 5.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.algorithms.tabular.off_policy_mc import OffPolicyMC
from rlbook.algorithms.tabular.off_policy_mc_config import OffPolicyMCConfig
from rlbook.book.experiments.independent_runs import value_curves
from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.tabular.figure_5_1 import STICK_ON_20
from rlbook.envs.blackjack import blackjack_model, number
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.schedules import Constant

HAND = number((13, True), 2)
WEIGHTINGS = ("ordinary", "weighted")


@dataclass(frozen=True)
class ImportanceSamplingEstimates:
    """Figure 5.3."""

    # weighting → [runs, episodes]: V of the hand after each game, in reward units
    estimates: dict[str, np.ndarray]
    exact: float  # its value
    theory: dict[str, float]  # weighting → N times the mean square error after many games


def run(seed: int = 0, runs: int = 100, episodes: int = 10_000) -> ImportanceSamplingEstimates:
    """Both kinds of weighting, on the same games."""
    model = blackjack_model()
    model = model.with_initial(np.eye(model.num_states)[HAND])
    estimates = {}
    for weighting in WEIGHTINGS:
        config = OffPolicyMCConfig(
            gamma=1.0,
            task="prediction",
            weighting=weighting,
            policy=tuple(STICK_ON_20.tolist()),
            epsilon=Constant(1.0),
        )
        curves = value_curves(
            OffPolicyMC,
            config,
            model,
            episodes=episodes,
            runs=runs,
            seed=seed,
            states=slice(HAND, HAND + 1),
        )
        estimates[weighting] = curves[:, 1:, 0]
    exact = float(model.policy_values(STICK_ON_20, 1.0)[HAND])
    # E[ρ²], E[ρ² G], E[ρ² G²]
    squared, first, second = (moment(model, power) for power in range(3))
    theory = {
        "ordinary": second - exact**2,
        "weighted": second - 2 * exact * first + exact**2 * squared,
    }
    return ImportanceSamplingEstimates(estimates, exact, theory)


def moment(model: TabularMDP, power: int) -> float:
    """E[ρ² G^power] of a game from this hand played by coin flips: the values of the policy, where
    each step is weighted by π / b = 2.

    E[ρ² x] = Σ b (π/b)² x = Σ π (π/b) x, and only the last step pays. No game has more than 21
    steps.
    """
    outcomes, states = model.outcomes, np.arange(model.num_states)
    first = outcomes.first[:-1]
    chance = np.diff(outcomes.cumulative, prepend=0.0)
    chance[first] = outcomes.cumulative[first]
    paid = np.add.reduceat(chance * outcomes.ends * outcomes.reward**power, first).reshape(
        model.rewards.shape
    )
    values = np.zeros(model.num_states)
    for _ in range(21):
        values = 2 * (paid + model.expectation(values))[states, STICK_ON_20]
    return float(values[HAND])


def square_errors(result: ImportanceSamplingEstimates) -> dict[str, np.ndarray]:
    """Weighting → [episodes]: mean over the runs, after each game."""
    return {
        name: ((estimates - result.exact) ** 2).mean(axis=0)
        for name, estimates in result.estimates.items()
    }


def measurements(result: ImportanceSamplingEstimates) -> dict[str, float]:
    """Mean square errors after 10, 100, ... games, their theoretical values, and the exact value;
    in reward units (squared)."""
    numbers = {"exact value": result.exact}
    for name, errors in square_errors(result).items():
        for games in (10**power for power in range(5) if 10**power <= len(errors)):
            numbers[f"{name}, {games} games, mean square error"] = float(errors[games - 1])
        numbers[f"{name}, {len(errors)} games, in theory"] = result.theory[name] / len(errors)
        numbers[f"{name}, {len(errors)} games, mean estimate"] = float(
            result.estimates[name][:, -1].mean()
        )
    return numbers


def draw(result: ImportanceSamplingEstimates) -> Figure:
    """Mean square error over games, on a logarithmic axis."""
    figure, axes = labelled_figure(
        6.8,
        4.6,
        "Episodes (log scale)",
        f"Mean square error (average over {len(result.estimates['ordinary'])} runs)",
    )
    for place, (name, errors) in enumerate(square_errors(result).items()):
        games = np.arange(1, len(errors) + 1)
        axes.semilogx(
            games,
            errors,
            color=curve_colour(place),
            linewidth=1.6,
            label=f"{name} importance sampling",
        )
        axes.semilogx(
            games,
            result.theory[name] / games,
            ":",
            color=curve_colour(place),
            linewidth=1.3,
            label=f"{name}, in theory",
        )
    axes.set(xlim=(1, len(games)), ylim=(0, 5))
    legend(axes, loc="upper right")
    return figure
