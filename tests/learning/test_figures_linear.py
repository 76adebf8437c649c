"""Figures 9.1 to 10.4 show what they are there to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import assert_near

from rlbook.book.figures import figure, figure_module, measurements
from rlbook.book.figures.approximate import figure_10_4
from rlbook.book.figures.approximate.figure_9_1 import monte_carlo_limit
from rlbook.book.figures.long_walk import best_setting as lowest
from rlbook.book.figures.thousand_states import (
    exact_values,
    learned_values,
    learner,
    state_distribution,
    walk_model,
    walks,
)

SMALL: dict[str, dict[str, Any]] = {
    "9.1": {"episodes": 50},
    "9.2": {"runs": 1, "episodes": 20, "alphas": (0.0, 0.4)},
    "9.10": {"runs": 1, "episodes": 20},
    "10.1": {"episodes": (1, 2)},
    "10.4": {"runs": 1, "episodes": 2, "lengths": (8,)},
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("number", SMALL)
def test_a_figure_is_drawn_and_its_numbers_have_names(number: str, tmp_path: Path) -> None:
    result = figure(number, **SMALL[number])
    numbers = measurements(number, result)
    assert numbers and all(isinstance(value, float | int) for value in numbers.values())
    figure_module(number).draw(result).savefig(tmp_path / "figure.png")


def test_the_walk_of_a_thousand_states_is_the_books() -> None:
    """V as the environment's docstring has it; 400 walks spend their steps where μ says, and move
    by 50.5 states at a time."""
    model = walk_model()
    exact, time = exact_values(model), state_distribution()
    assert_near(exact[[0, 249, 499, 999]], [-0.921960, -0.472702, -0.000943, 0.921960], decimals=6)
    seen = np.array([step.obs for steps in walks(model, 0, 400) for step in steps])
    found = np.bincount(seen, minlength=1002)[1:-1] / len(seen)
    assert np.abs((found - time).reshape(10, -1).sum(axis=1)).max() < 0.02
    moves = [abs(step.next_obs - step.obs) for steps in walks(model, 0, 50) for step in steps[:-1]]
    assert max(moves) == 100 and abs(np.mean(moves) - 50.5) < 4 * 28.9 / np.sqrt(len(moves)) + 1


@pytest.mark.thorough
def test_figure_9_2_is_best_in_the_middle() -> None:
    sweep = figure("9.2", runs=4, episodes=1, alphas=(0.05, 0.4, 0.8)).errors
    found = {n: lowest(sweep, n)[0] for n in sweep.errors}
    assert found[4] < found[1] and found[4] < found[16] < found[128]
    assert lowest(sweep, 4)[1] == 0.4 and lowest(sweep, 1)[1] == 0.8


def test_figure_10_1_begins_with_a_hill_where_it_has_been() -> None:
    result = figure("10.1", episodes=(12,))
    early, later = result.costs["step 428"], result.costs["episode 12"]
    assert early.max() > 2 and (early[-5:, -5:] == 0).all(), "nobody was fast on the right yet"
    assert later.max() > 3 * early.max() and result.lengths[-1] < result.lengths[0] / 2


@pytest.mark.slow
def test_figure_9_1_comes_to_the_means_of_its_groups() -> None:
    """A walk that visits a group m times moves its weight m times towards one return G, w ← w + α m
    (G - w) where α m is small. In the long run w has the mean w* = E[m G] / E[m] and the variance α
    E[m² (G - w*)²] / (2 E[m]). Over 400 000 walks that is a standard deviation of .054 in the
    middle and .015 outside (over 60 runs: .054 and .013), and half of it in the mean of four runs:
    .1 is 3.7 of those."""
    results = [figure("9.1", seed=seed) for seed in range(4)]
    groups = np.mean([result.values.reshape(10, -1)[:, 0] for result in results], axis=0)
    assert np.abs(groups - monte_carlo_limit(results[0])).max() < 0.1
    assert (np.diff(groups) > 0).all()


@pytest.mark.slow
def test_figure_9_2_td_comes_to_its_fixed_point() -> None:
    """[-.693, -.481, -.303, -.146, -.001, .122, .250, .388, .544, .731], the solution of Xᵀ D (I -
    P) X w = Xᵀ D r: flatter than V's means, -.830 to .830. How high all lie is chance (see
    `test_linear`); the distance of the ends is not."""
    values = figure("9.2", runs=2, alphas=(0.4,)).values
    assert abs(np.ptp(values) - (0.731 + 0.693)) < 0.1


@pytest.mark.slow
def test_figure_9_10_many_tilings_end_lower() -> None:
    result = figure("9.10", runs=1)
    one, many = (errors[0, -100:].mean() for errors in result.errors.values())
    assert many < 0.8 * one and one > result.least


@pytest.mark.slow
def test_figure_10_4_four_steps_learn_sooner_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the step sizes of the figure that are best for each. A run's steps an episode deviate by
    5.6 (n = 1) and 8.5 (n = 4), so the difference of two means over 20 runs by 2.3; over 40 runs,
    seeds 0 to 39, n = 4 leads by 8.5 (216.7 against 225.2)."""
    monkeypatch.setattr(figure_10_4, "ALPHAS", {1: (1.2, 1.5), 4: (0.65, 0.9)})
    steps = measurements("10.4", figure("10.4", runs=20, lengths=(1, 4)))
    assert steps["n = 4, fewest steps"] < steps["n = 1, fewest steps"]


def test_groups_of_the_environment_are_aggregation() -> None:
    """A table of what looks alike learns what features of groups learn, to the bit."""
    from rlbook.algorithms.tabular.prediction.td_prediction import TDPrediction, TDPredictionConfig
    from rlbook.envs.random_walk import RandomWalk, group_states
    from rlbook.functional.schedules import Constant

    model, views = walk_model(), group_states(1000, 100)
    table = TDPrediction(
        RandomWalk(1000, 100, -1.0, group=100), TDPredictionConfig(gamma=1.0, alpha=Constant(0.1))
    )
    agent = learner(model, features="aggregate", bins=10, alpha=0.1)
    for steps in walks(model, 3, 5):
        found = learned_values(agent, steps)
        for step in steps:
            table.learn(step._replace(obs=int(views[step.obs]), next_obs=int(views[step.next_obs])))
    np.testing.assert_array_equal(found.reshape(10, -1)[:, 0], table.values()[1:-1])
