"""The short corridor: the coin's values by formula and by linear solve, and what the agent can
see."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.figures import corridor, figure, measurements
from rlbook.envs.short_corridor import ShortCorridor, ShortCorridorVector
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.evaluation.optimal_return import optimal_return


def value_of(right: float) -> float:
    """V(start) of a policy that goes right with this probability, by the model."""
    return float(ShortCorridor().model().policy_values(np.tile([1 - right, right], (4, 1)), 1.0)[0])


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 2 - math.sqrt(2), 0.95])
def test_the_value_of_a_coin_is_the_formula(p: float) -> None:
    """v₁ = -1 + p v₂ + (1 - p) v₁, v₂ = -1 + p v₁ + (1 - p) v₃, v₃ = -1 + (1 - p) v₂ give v₁ = (2p
    - 4) / (p (1 - p))."""
    expected = (2 * p - 4) / (p * (1 - p))
    # a solve of 4 equations; condition 2 |v|
    assert value_of(p) == near(expected, terms=4, size=2 * expected**2)


@pytest.mark.thorough
def test_the_docstring_states_the_known_answer() -> None:
    doc = inspect.getdoc(ShortCorridor) or ""
    text = " ".join(doc.split())
    grid = np.linspace(0.001, 0.999, 999)
    best = grid[np.argmax([value_of(p) for p in grid])]
    assert best == near(2 - math.sqrt(2), decimals=3)  # the nearest of the grid
    assert f"2 - √2 = {2 - math.sqrt(2):.6f}" in text
    assert value_of(2 - math.sqrt(2)) == near(-(6 + 4 * math.sqrt(2)), terms=4, size=2 * 12.0**2)
    assert f"value -(6 + 4√2) = {value_of(2 - math.sqrt(2)):.6f}" in text
    assert (
        f"it is {value_of(0.95):.4f} with right" in text
        and f"action and {value_of(0.05):.4f} with left" in text
    )
    model = ShortCorridor(observable=True).model()
    assert model.policy_values(np.array([1, 0, 1, 0]), 1.0)[0] == -3.0 and "V*(start) = -3" in text
    headings = [line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")]
    assert headings[:6] == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
    ]
    assert headings[6:] == ["Arguments", "Known answer", "Version History"]


@pytest.mark.parametrize(("observable", "seen"), [(False, [0, 0, 0, 0]), (True, [0, 1, 2, 3])])
def test_three_steps_lead_to_the_goal_and_may_not_be_told_apart(
    observable: bool, seen: list[int]
) -> None:
    env = ShortCorridor(observable)
    assert env.observation_space.n == max(seen) + 1
    shown: list[Any] = [env.reset(seed=0)[0]]
    steps = [env.step(action)[:3] for action in (1, 0, 1)]
    assert shown + [state for state, *_ in steps] == seen
    assert [(reward, terminated) for _, reward, terminated in steps] == [
        (-1.0, False),
        (-1.0, False),
        (-1.0, True),
    ]


def test_the_second_place_exchanges_the_actions_and_the_wall_holds() -> None:
    env = ShortCorridor(observable=True)
    env.reset(seed=0)
    assert [env.step(action)[0] for action in (0, 1, 1, 1, 0, 0)] == [0, 1, 0, 1, 2, 1]


def test_a_table_that_always_does_the_same_never_arrives() -> None:
    for action in (0, 1):
        env = ShortCorridor()
        env.reset(seed=0)
        assert not any(env.step(action)[2] for _ in range(100))


def test_tossed_coins_take_as_long_as_the_values_say() -> None:
    envs, rng = ShortCorridorVector(4000), np.random.default_rng(0)
    envs.reset(seed=0)
    returns = np.zeros(4000)
    for _ in range(400):
        returns += envs.step((rng.random(4000) < 2 - math.sqrt(2)).astype(int))[1]
    # 4 standard errors
    assert returns.mean() == pytest.approx(
        -(6 + 4 * math.sqrt(2)), rel=0, abs=4 * returns.std() / 4000**0.5
    )


def test_planning_is_refused_where_places_look_alike_and_works_where_they_do_not() -> None:
    with pytest.raises(
        rlbook.RequestError,
        match=("acts by the state's index, but the observation does not identify the state here"),
    ):
        rlbook.train("value_iteration", "ShortCorridor-v0")
    run = rlbook.train(
        "value_iteration", "ShortCorridor-v0", env_kwargs={"observable": True}, gamma=1.0
    )
    assert rlbook.evaluate(run, episodes=3).mean == -3.0


def test_the_best_return_is_that_of_what_can_be_seen() -> None:
    recipe = rlbook.interaction.environments.EnvRecipe.from_env("ShortCorridor-v0")
    assert optimal_return(recipe) == near(-11.656854, decimals=6)
    assert (
        optimal_return(
            rlbook.interaction.environments.EnvRecipe.from_env(
                "ShortCorridor-v0", kwargs={"observable": True}
            )
        )
        == -3.0
    )


def test_the_model_says_whether_its_states_are_seen() -> None:
    assert not TabularMDP.from_env(ShortCorridor()).observable
    assert TabularMDP.from_env(ShortCorridor(observable=True)).observable


def test_only_true_and_false_switch_the_sight() -> None:
    with pytest.raises(ValueError, match=r"^observable must be true or false, got 'no'\.$"):
        ShortCorridor(observable="no")  # type: ignore[arg-type]


def test_the_drawing_shows_the_agent_and_the_place_that_exchanges_the_actions() -> None:
    env = ShortCorridor()
    assert [env.draw_text(state) for state in range(4)] == ["A..G", "SA.G", "S.AG", "S..A"]
    centres = env.draw_pixels(3)[24, 24::48]
    assert len(np.unique(centres, axis=0)) == 4, "start, exchanged, free and the agent"
    assert env.grid_shape == (1, 4) and not env.grid_walls.any()


@pytest.mark.parametrize(
    ("alpha_baseline", "errors"), [(None, (-2.0, -1.0)), (0.25, (-2.0, -1.0 + 0.5))]
)
def test_an_episodes_steps_of_reinforce_by_hand(
    monkeypatch: pytest.MonkeyPatch, alpha_baseline: float | None, errors: tuple[float, float]
) -> None:
    """Right, then left: G = -2 and -1. The baseline goes from 0 to ¼ · -2 = -½ between them. p =
    .05 at first, θ = ln(p / (1 - p)) and θ ← θ + 2 α (G - b) (1 - p), then θ ← θ - 2 α (G - b) p';
    the next episode's p is that of θ."""
    theta = math.log(0.05 / 0.95)
    theta += 2 * 0.1 * errors[0] * (1 - 0.05)
    theta -= 2 * 0.1 * errors[1] / (1 + math.exp(-theta))
    seen: list[float] = []
    monkeypatch.setattr(corridor, "episode", lambda right, rng: seen.append(right) or [True, False])
    assert corridor.learn(0.1, alpha_baseline, 2, np.random.default_rng(0)) == [-2.0, -2.0]
    assert seen == near([0.05, 1 / (1 + math.exp(-theta))], terms=6, size=3.0)  # θ begins at -2.9


def test_the_figures_episodes_are_as_long_as_the_model_says() -> None:
    """11.66 steps on average with the best coin; within four standard errors over 2 000
    episodes."""
    rng = np.random.default_rng(0)
    lengths = np.array([len(corridor.episode(2 - math.sqrt(2), rng)) for _ in range(2_000)])
    assert abs(lengths.mean() - (6 + 4 * math.sqrt(2))) < 4 * lengths.std() / math.sqrt(2_000)
    assert len(corridor.episode(0.0, rng)) == 1_000


def test_figure_13_2_shows_that_a_baseline_makes_reinforce_faster() -> None:
    """Means over 600 runs; between runs, the mean of a hundred episodes has the standard deviation
    beside it."""
    result = measurements("13.2", figure("13.2", runs=16))
    exact = {
        "with baseline, α = 2⁻⁹: mean return, episodes 101 to 200": (-12.083, 1.147),
        "with baseline, α = 2⁻⁹: mean return, last 100 episodes": (-12.111, 1.209),
        "without, α = 2⁻¹³: mean return, episodes 101 to 200": (-25.078, 4.415),
        "without, α = 2⁻¹³: mean return, last 100 episodes": (-12.359, 1.004),
    }
    for name, (mean, deviation) in exact.items():
        assert abs(result[name] - mean) < 4 * deviation / math.sqrt(16), name
    assert result["with baseline, α = 2⁻⁹: mean return, episodes 101 to 200"] > -14


@pytest.mark.slow
def test_figure_13_1_shows_that_steps_may_be_too_small_and_too_large() -> None:
    """After 1 000 episodes of 100 runs: 2⁻¹³ is near the optimum, 2⁻¹⁴ is on its way, and some runs
    of 2⁻¹² are stuck."""
    result = figure("13.1")
    late = {name: returns[:, -100:].mean(axis=1) for name, returns in result.returns.items()}
    best, small, large = (late[f"α = 2⁻¹{digit}"] for digit in "³⁴²")
    assert (
        abs(best.mean() - ShortCorridor().optimal_return) < 1.5 and small.mean() < best.mean() - 1
    )
    assert 0 < (large < -200).sum() < 20 and np.median(large) > -14
