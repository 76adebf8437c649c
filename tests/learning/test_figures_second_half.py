"""Figures 5.1 to 12.8 show what they are there to show, to a tolerance that the averages allow.

An average over runs is off by more than 4 standard errors once in 16 000 times; the seeds are
fixed, so a test that passes goes on passing. Standard errors are those of the runs themselves. Two
methods that saw the same walks are compared walk by walk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import assert_near, rounding_bound

import rlbook
from rlbook.book.figures import FIGURES, figure, figure_module, measurements
from rlbook.book.figures.changing_maze import LEARNERS, ChangingMazeRewards, goals
from rlbook.book.figures.long_walk import BEFORE, Sweep, best_setting
from rlbook.book.figures.tabular.figure_5_1 import scores
from rlbook.book.figures.tabular.figure_5_3 import square_errors
from rlbook.book.figures.tabular.figure_8_2 import first_near_optimal
from rlbook.envs.gridworlds.dyna_maze import DynaMaze
from rlbook.fast.compiled import available

WALKS = 40 if available() else 12
WALK_STEPS = 10 * 1_000  # updates in ten episodes, more than there are
# standard errors that a difference has to be above 0; √(40/12) = 1.8 times larger for 12 walks
SURE = 4 if available() else 2
SMALL: dict[str, dict[str, Any]] = {
    "5.1": {"episodes": 500},
    "5.3": {"runs": 2, "episodes": 100},
    "8.2": {"runs": 2, "episodes": 3},
    "8.4": {"runs": 2, "steps": 1_500},
    "8.5": {"runs": 2, "steps": 3_500},
    **{
        number: {"runs": 2, "alphas": (0.0, 0.2, 1.0)} for number in ("7.2", "12.3", "12.6", "12.8")
    },
}


def standard_error(values: np.ndarray) -> float:
    """Of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def assert_less(lower: np.ndarray, higher: np.ndarray) -> None:
    """The mean of `lower` is below that of `higher` by `SURE` standard errors of their difference;
    both are [runs], run by run alike."""
    assert (higher - lower).mean() > SURE * standard_error(higher - lower)


# Chapter 5: Monte Carlo


@pytest.mark.slow
def test_figure_5_1_comes_to_the_exact_values() -> None:
    """200 hands: the largest of so many is above 4.5 standard errors once in 700 times. The
    variance of a return is at most 1 - V², so the mean square of the scores is at most 1, and 4 of
    its standard errors are 4 √(2/200) = 0.4."""
    result = figure("5.1", episodes=500_000 if available() else 100_000)
    few, many = sorted(result.values)
    for games, at_least in ((few, 10), (many, 150)):
        off = scores(result, games)
        assert (
            len(off) >= at_least
            and np.abs(off).max() < 4.5
            and (off**2).mean() < 1 + 4 * np.sqrt(2 / len(off))
        )
    error = {
        games: np.sqrt(((values - result.exact) ** 2).mean(axis=(1, 2)))
        for games, values in result.values.items()
    }
    assert (error[many] < error[few] / 3).all()  # fifty times the games: √50 = 7 times as near
    assert error[few][1] > 2 * error[few][0]  # usable aces are rare
    # the cliff: from 20 on it sticks
    assert (result.exact[:, 8:] > 0.09).all() and (result.exact[:, :8] < 0.02).all()


@pytest.mark.slow
def test_figure_5_3_has_the_books_value_and_the_errors_that_theory_wants() -> None:
    """The book's value is the mean of 10⁸ returns, with a standard error of √(1 - 0.28²) / 10⁴ =
    0.96e-4 at most.

    A weighted estimate lies between -1 and 1, so its square error is below 1.28² = 1.64; that of
    ordinary sampling is Var(ρ G) / N, above 3.3 for N ≤ 3.
    """
    result = (
        figure("5.3", runs=400, episodes=1_000)
        if available()
        else figure("5.3", runs=100, episodes=300)
    )
    assert abs(result.exact + 0.27726) < 4 * 0.96e-4  # 4 standard errors
    errors = {name: (estimates - result.exact) ** 2 for name, estimates in result.estimates.items()}
    for games in (100, errors["ordinary"].shape[1]):
        for name, each in errors.items():
            wanted = result.theory[name] / games
            # of a ratio of averages, of lower order in 1/N
            bias = 0.1 * wanted * (name == "weighted")
            assert (
                abs(each[:, games - 1].mean() - wanted)
                < 4 * standard_error(each[:, games - 1]) + bias
            )
    early = {name: each[:, :10].mean(axis=1) for name, each in errors.items()}
    assert early["weighted"].max() < 1.64
    assert (
        early["weighted"].mean() + 4 * standard_error(early["weighted"])
        < 0.5 * early["ordinary"].mean()
    )
    if available():
        assert_less(early["weighted"], early["ordinary"])
    # both go to 0: 10.2 / 300 = 0.034 for 300 games
    assert all(curve[-1] < 0.05 for curve in square_errors(result).values())


@pytest.mark.slow
def test_the_second_moment_of_figure_5_3_is_that_of_its_games() -> None:
    """The theory's Var(ρ G), against the first game of each of 600 runs; ρ G is the ordinary
    estimate after it."""
    result = figure("5.3", runs=600 if available() else 400, episodes=1)
    first = result.estimates["ordinary"][:, 0]
    square = (first - result.exact) ** 2
    assert abs(first.mean() - result.exact) < 4 * standard_error(first)
    assert abs(square.mean() - result.theory["ordinary"]) < 4 * standard_error(square)
    # ρ is 2 for each action, or 0
    assert set(np.log2(np.abs(first[first != 0]))) <= set(range(1, 15))


# Chapters 7 and 12: the walk of 19 states


def lowest(sweep: Sweep, key: float) -> np.ndarray:
    """[runs]: the errors with the best step size."""
    return sweep.errors[key][sweep.alphas.index(best_setting(sweep, key)[1])]


def assert_lowest(sweep: Sweep, expected: dict[float, float]) -> None:
    """The lowest errors are those of 3000 to 5000 runs of another program, to .001 for the digits
    and the noise of those."""
    for key, error in expected.items():
        found, _, spread = best_setting(sweep, key)
        assert abs(found - error) < 4 * spread + 0.001, (key, found, error, spread)


@pytest.mark.thorough
def test_figure_7_2_is_best_in_the_middle() -> None:
    sweep = figure("7.2", runs=WALKS, alphas=(0.02, 0.1, 0.15, 0.25, 0.4, 0.6, 0.8)).errors
    assert_lowest(sweep, {1: 0.345, 2: 0.277, 4: 0.264, 8: 0.277, 16: 0.311, 512: 0.507})
    for better, worse in ((2, 1), (4, 2), (8, 16), (16, 32), (32, 128)):
        assert (lowest(sweep, worse) - lowest(sweep, better)).mean() > 0
    for worse in (1, 16, 512):
        assert_less(lowest(sweep, 4), lowest(sweep, worse))


@pytest.mark.slow
def test_figure_12_3_averaging_over_n_is_as_good_as_the_best_n() -> None:
    """The best λ and the best n differ by less than .003, and 4 standard errors of 40 walks are 4 ·
    .0027 = .011.

    λ = 1 is n = 512 where no walk is longer, as in 2.2 % of the runs one is: cos(π/20)^512 · 4/π of
    10 walks. Of 40 runs that may be 5: 0.9 + 4 √0.9 = 4.6.
    """
    result = figure("12.3", runs=WALKS, alphas=(0.02, 0.25, 0.4, 0.8))
    assert_lowest(result.offline, {0.0: 0.367, 0.8: 0.263, 0.9: 0.284, 1.0: 0.508})
    difference = lowest(result.offline, 0.8) - lowest(result.n_step, 4)
    assert abs(difference.mean()) < 0.003 + 4 * standard_error(difference)
    apart = np.abs(result.offline.errors[1.0][0] - result.n_step.errors[512][0])
    same = apart <= rounding_bound("float64", terms=WALK_STEPS)
    assert same.mean() >= 1 - 5 / 40
    assert_less(lowest(result.offline, 0.8), lowest(result.offline, 0.0))
    assert_less(lowest(result.offline, 0.8), lowest(result.offline, 1.0))


@pytest.mark.slow
def test_figure_12_6_td_lambda_follows_the_lambda_return_until_it_diverges() -> None:
    """At the best step sizes of 3000 runs the two are .0004 (λ = .8) and .006 (λ = .9) apart."""
    result = figure("12.6", runs=WALKS, alphas=(0.2, 0.25, 0.3, 0.4, 0.8))
    assert_lowest(result.accumulating, {0.0: 0.345, 0.8: 0.2626})
    for decay, apart in ((0.8, 0.0004), (0.9, 0.006)):
        difference = lowest(result.accumulating, decay) - lowest(result.offline, decay)
        assert abs(difference.mean()) < apart + 4 * standard_error(difference)
    # at α = 0.8: one has left the chart, the other is at home
    for decay in (
        0.95,
        0.975,
        0.99,
        1.0,
    ):
        assert not result.accumulating.errors[decay][-1].mean() < 0.7
    assert result.offline.errors[0.95][-1].mean() < BEFORE


@pytest.mark.slow
def test_figure_12_8_learning_during_the_episode_is_a_little_better() -> None:
    sweeps = figure("12.8", runs=WALKS, alphas=(0.02, 0.25, 0.4, 0.5, 0.8)).errors
    online, offline = sweeps["true-online"], sweeps["offline"]
    assert_lowest(online, {0.8: 0.2547})
    assert_lowest(sweeps["replacing"], {0.8: 0.2487})
    for decay in (0.0, 0.4, 0.8, 0.9):
        assert_less(lowest(online, decay), lowest(offline, decay))
    assert (
        online.errors[0.95][-1].mean() < BEFORE
        and not sweeps["accumulating"].errors[0.95][-1].mean() < 0.7
    )
    for sweep in sweeps.values():  # as the chapter says of every panel
        assert min(sweep.errors, key=lambda decay: lowest(sweep, decay).mean()) == 0.8
    for traces in ("accumulating", "replacing"):  # without traces all are TD(0)
        assert_near(sweeps[traces].errors[0.0], online.errors[0.0], terms=WALK_STEPS)
    # with λ = 1 the two are one
    assert_near(online.errors[1.0][0], offline.errors[1.0][0], terms=WALK_STEPS)


@pytest.mark.slow
def test_figures_7_2_12_3_and_12_8_have_the_lowest_errors_of_thousands_of_runs_at_their_step_sizes() -> (
    None
):
    """At full size, over all step sizes. The lowest of several means is low by chance, by less than
    another standard error, .005."""
    sweeps = figure("12.8").errors | {"n": figure("7.2").errors}
    expected = {
        "n": {1: 0.345, 2: 0.277, 4: 0.264, 8: 0.277, 16: 0.311, 32: 0.363, 512: 0.507},
        "offline": {0.0: 0.367, 0.4: 0.292, 0.8: 0.263, 0.9: 0.284, 1.0: 0.508},
        "accumulating": {0.0: 0.345, 0.8: 0.2626, 0.9: 0.290},
        "true-online": {0.8: 0.2547},
        "replacing": {0.8: 0.2487},
    }
    for name, errors in expected.items():
        for key, error in errors.items():
            found, _, spread = best_setting(sweeps[name], key)
            assert -5 * spread - 0.001 < found - error < 4 * spread + 0.001, (name, key)
    at = {
        (name, key): best_setting(sweeps[name], key)[1]
        for name, key in (("n", 1), ("n", 4), ("offline", 0.8), ("true-online", 0.8))
    }
    # the step sizes are 0.1 apart
    assert at[("n", 1)] == pytest.approx(0.8, abs=0.05) and at[("n", 4)] == pytest.approx(
        0.4, abs=0.05
    )
    for name in ("offline", "true-online"):
        assert at[(name, 0.8)] == pytest.approx(0.4, abs=0.05)  # as above


# Chapter 8: planning and learning


def random_steps() -> float:
    """Steps to the goal for who moves at random, on average: as Q is 0 until then, the first
    episode is that. h = 1 + P h, solved."""
    model = DynaMaze().model()
    outcomes, states = model.outcomes, model.num_states
    moves = np.zeros((states, states))
    np.add.at(moves, (np.repeat(np.arange(states), 4), outcomes.successor), 0.25 * ~outcomes.ends)
    return float(np.linalg.solve(np.eye(states) - moves, np.ones(states))[18])


def test_figure_8_2_planning_needs_fewer_episodes() -> None:
    result = figure("8.2") if available() else figure("8.2", runs=10, episodes=30)
    for lengths in result.lengths.values():
        assert abs(lengths[:, 0].mean() - random_steps()) < 4 * standard_error(lengths[:, 0])
    middle = {n: lengths[:, 1:10].mean(axis=1) for n, lengths in result.lengths.items()}
    assert_less(middle[50], middle[5])
    assert_less(middle[5], middle[0])
    first = {n: first_near_optimal(lengths) or 99 for n, lengths in result.lengths.items()}
    assert first[50] <= 4 and first[5] <= 10 < 15 <= first[0]
    # 14, and what ε = 0.1 costs
    assert all(14 <= lengths[:, -5:].mean() < 20 for n, lengths in result.lengths.items() if n > 0)


@pytest.mark.thorough
def test_figure_8_4_both_find_the_new_way_and_dyna_q_plus_sooner() -> None:
    """Dyna-Q: 59 % of 100 runs by step 3000, so with 40 other runs 59 % ± 4 √(.59 · .41 (1/100 +
    1/40)) = ± 37 %."""
    result = figure("8.4", seed=1_000, runs=40)
    plus, plain = (result.rewards[name] for name in ("Dyna-Q+", "Dyna-Q"))
    assert_less(plain[:, -1], plus[:, -1])
    for rewards in (plus, plain):
        assert rewards[:, 1_000].max() <= 100  # 10 steps are the shortest way
    numbers = measurements("8.4", result)
    assert numbers["Dyna-Q+, share of runs that found the new way"] >= 0.95
    assert 0.22 < numbers["Dyna-Q, share of runs that found the new way"] < 0.96
    # and then goes it: 1000 / 16 = 62 times at most
    assert (np.diff(plus[:, 2_000:], axis=1).sum(axis=1) > 30).mean() >= 0.9


@pytest.mark.thorough
def test_figure_8_5_dyna_q_plus_finds_the_shortcut_and_dyna_q_does_not() -> None:
    result = figure("8.5", seed=1_000, runs=30 if available() else 10)
    numbers = measurements("8.5", result)
    assert numbers["Dyna-Q+, share of runs that found the shortcut"] >= 0.9
    assert numbers["Dyna-Q, share of runs that found the shortcut"] <= 0.1
    assert_less(result.rewards["Dyna-Q"][:, -1], result.rewards["Dyna-Q+"][:, -1])
    assert max(rewards[:, 3_000].max() for rewards in result.rewards.values()) <= 3_000 / 16


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("variant", ["blocking", "shortcut"])
def test_a_maze_that_changes_is_learnt_map_by_map_as_in_the_environment(
    name: str, variant: str
) -> None:
    """Rewards as often, at several ages, as `rlbook.train` earns in the environment that really
    changes under it."""
    kind, config = LEARNERS[name]
    reached = goals(kind, config, DynaMaze(variant, change_at=900), 2, 1_800)
    assert reached[1_800] > reached[900] + 20 > 40
    for age in (800, 900, 910, 1_300, 1_800):
        env = rlbook.make("DynaMaze-v0", variant=variant, change_at=900)
        run = rlbook.train(
            name.lower().replace("-", "_").replace("+", "_plus"),
            env,
            steps=age,
            seed=2,
            eval_every=0,
            **vars(config),
        )
        assert len(run.episode_returns) == reached[age]


# What all figures have in common


@pytest.mark.thorough
@pytest.mark.parametrize("number", SMALL)
def test_a_figure_is_drawn_and_its_numbers_have_names(number: str, tmp_path: Path) -> None:
    assert number in FIGURES
    result = figure(number, **SMALL[number])
    numbers = measurements(number, result)
    assert numbers and all(isinstance(value, float | int) for value in numbers.values())
    drawn = figure_module(number).draw(result)
    assert len(drawn.axes) >= 1
    drawn.savefig(tmp_path / "figure.png")


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["5.3", "7.2", "8.4", "12.8"])
def test_the_plain_path_draws_the_same_figure(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SMALL[number] | {"runs": 1}
    compiled = figure(number, **options)
    monkeypatch.setenv("RLBOOK_PLAIN", "1")
    same(figure(number, **options), compiled)


def same(one: Any, other: Any) -> None:
    """Two results are equal, whatever they are made of."""
    if isinstance(one, ChangingMazeRewards | Sweep) or hasattr(one, "__dataclass_fields__"):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    else:
        np.testing.assert_array_equal(one, other)
