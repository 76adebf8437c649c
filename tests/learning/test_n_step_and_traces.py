"""n-step methods and traces: the random walk of 19 states as in the book's figures, and the best
way through the maze."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.algorithms.tabular.prediction.n_step_td import NStepTD, NStepTDConfig
from rlbook.algorithms.tabular.prediction.td_lambda import TDLambda, TDLambdaConfig
from rlbook.book.experiments.independent_runs import value_curves
from rlbook.envs.random_walk import random_walk_model
from rlbook.fast.compiled import available
from rlbook.functional.schedules import Constant

WALK = random_walk_model(19, 1, -1.0, 1.0)
EXACT = np.arange(-9, 10) / 10
RUNS = 1_000 if available() else 100


def errors(kind: Any, config: Any) -> np.ndarray:
    """Root mean square error over the 19 states, averaged over the first 10 episodes: [runs]."""
    curves = value_curves(kind, config, WALK, episodes=10, runs=RUNS)
    return np.sqrt(((curves[:, 1:, 1:-1] - EXACT) ** 2).mean(axis=2)).mean(axis=1)


def assert_mean(sample: np.ndarray, expected: float) -> None:
    """Within 4 standard errors (.0005 to .0017 for 1 000 runs), and .001 for the digits and the
    noise of what is expected."""
    assert sample.mean() == pytest.approx(
        expected, rel=0, abs=4 * sample.std() / np.sqrt(len(sample)) + 0.001
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n", "alpha", "expected"),
    [
        (1, 0.8, 0.345),
        pytest.param(1, 0.4, 0.4123, marks=pytest.mark.slow),
        (2, 0.6, 0.277),
        (4, 0.4, 0.2634),
        pytest.param(4, 0.2, 0.3223, marks=pytest.mark.slow),
        pytest.param(8, 0.2, 0.2784, marks=pytest.mark.slow),
        (16, 0.15, 0.311),
        pytest.param(32, 0.1, 0.363, marks=pytest.mark.slow),
    ],
)
def test_the_error_of_n_step_td_is_that_of_figure_7_2(
    n: int, alpha: float, expected: float
) -> None:
    """Expected: 5 000 to 20 000 runs of another program."""
    assert_mean(errors(NStepTD, NStepTDConfig(n=n, alpha=Constant(alpha), gamma=1.0)), expected)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("traces", "decay", "alpha", "expected"),
    [
        ("offline", 0.0, 0.8, 0.367),
        ("offline", 0.8, 0.4, 0.263),
        ("offline", 0.9, 0.25, 0.284),
        ("accumulating", 0.8, 0.3, 0.2626),
        ("accumulating", 0.9, 0.2, 0.290),
        ("replacing", 0.8, 0.5, 0.2487),
        ("true-online", 0.8, 0.4, 0.2547),
    ],
)
def test_the_error_of_td_lambda_is_that_of_figures_12_3_12_6_and_12_8(
    traces: str, decay: float, alpha: float, expected: float
) -> None:
    """Expected: 3 000 to 5 000 runs of another program. Offline λ = 0 is no TD(0): .367 against
    .345."""
    assert_mean(
        errors(
            TDLambda,
            TDLambdaConfig(traces=traces, trace_decay=decay, alpha=Constant(alpha), gamma=1.0),
        ),
        expected,
    )


@pytest.mark.slow
def test_something_between_one_step_and_whole_episodes_is_best() -> None:
    """Figure 7.2's message, each n with the best of these step sizes."""
    best = {}
    for n, step_sizes in {1: (0.7, 0.8, 0.9), 4: (0.3, 0.4, 0.5), 512: (0.02, 0.05, 0.1)}.items():
        best[n] = min(
            errors(NStepTD, NStepTDConfig(n=n, alpha=Constant(alpha), gamma=1.0)).mean()
            for alpha in step_sizes
        )
    assert best[4] < best[1] - 0.05 < best[512] - 0.15


@pytest.mark.thorough
def test_true_online_bears_step_sizes_at_which_accumulating_traces_diverge() -> None:
    """Figures 12.6 and 12.8 at λ = .95, α = .8: traces of states visited often add up to far more
    than 1."""
    config: dict[str, Any] = {"trace_decay": 0.95, "alpha": Constant(0.8), "gamma": 1.0}
    assert np.median(errors(TDLambda, TDLambdaConfig(traces="true-online", **config))) < 0.5
    assert np.median(errors(TDLambda, TDLambdaConfig(traces="accumulating", **config))) > 1_000


CONTROL: list[tuple[str, dict[str, Any]]] = [
    ("n_step_sarsa", {}),
    ("n_step_sarsa", {"n": 8}),
    *[
        ("sarsa_lambda", {"traces": traces})
        for traces in ("accumulating", "replacing", "true-online")
    ],
    *[("watkins_q_lambda", {"traces": traces}) for traces in ("accumulating", "replacing")],
]


@pytest.mark.thorough
@pytest.mark.parametrize(("algorithm", "config"), CONTROL, ids=str)
@pytest.mark.parametrize(
    ("rewards", "optimum"),
    [("standard", 7 * -1 + 10), pytest.param("shaped", 8 * -0.1 + 10, marks=pytest.mark.slow)],
)
def test_with_their_defaults_they_solve_the_maze_on_ten_of_ten_seeds(
    algorithm: str, config: dict[str, Any], rewards: str, optimum: float
) -> None:
    for seed in range(10):
        run = rlbook.train(
            algorithm,
            rlbook.make("Maze-v0", rewards=rewards),
            episodes=500,
            seed=seed,
            eval_every=0,
            **config,
        )
        assert rlbook.evaluate(run, episodes=1).mean == near(optimum, terms=8, size=10.0), (
            f"seed {seed}"
        )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("algorithm", "config"),
    [("n_step_td", {"n": 4}), ("td_lambda", {}), ("td_lambda", {"traces": "offline"})],
    ids=str,
)
def test_prediction_tends_to_the_exact_values_of_the_uniform_policy(
    algorithm: str, config: dict[str, Any]
) -> None:
    """5 states, V = 1/6 ... 5/6; with a step size that shrinks like N^-.8 the error left after 3
    000 episodes is about .01: .006 to .022 from seeds 100 to 109."""
    run: Any = rlbook.train(
        algorithm,
        "RandomWalk-v0",
        episodes=3_000,
        gamma=1.0,
        alpha="inverse(0.5, 0.8)",
        eval_every=0,
        **config,
    )
    # as above
    np.testing.assert_allclose(run.agent.values()[1:-1], np.arange(1, 6) / 6, rtol=0, atol=0.05)
