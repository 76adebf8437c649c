"""The gambler: the values that its docstring states, the stakes, the coin."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from closeness import assert_near

from rlbook.envs.gambler import Gambler, GamblerVector
from rlbook.envs.tabular.mdp import TabularMDP

# more than an optimal gambler needs on average against an unfair coin; with .55 it is ten times
# as many
FLIPS = 100


def optimum(model: TabularMDP) -> np.ndarray:
    """V* for γ = 1 by policy iteration, each policy evaluated by a linear solve.

    Ties keep the action; so does an improvement of less than 1e-13, which costs as much a flip.
    """
    policy = np.zeros(model.num_states, dtype=int)
    while True:
        values = model.policy_values(policy, 1.0)
        action_values = model.backup(values, 1.0)
        better = np.where(
            action_values.max(axis=1) > action_values[np.arange(101), policy] + 1e-13,
            action_values.argmax(axis=1),
            policy,
        )
        if (better == policy).all():
            return values
        policy = better


def best_stakes(env: Gambler, capital: int) -> set[int]:
    """Every stake within 1e-9 of the best."""
    action_values = env.model().backup(optimum(env.model()), 1.0)[capital]
    return set(env.stakes[capital][action_values >= action_values.max() - 1e-9].tolist())


def test_the_docstring_states_the_known_answer() -> None:
    doc = inspect.getdoc(Gambler) or ""
    text = " ".join(doc.split())
    values = optimum(Gambler().model())
    expected = [0.4**2, 0.4, 0.4 + 0.6 * 0.4]
    np.testing.assert_allclose(values[[25, 50, 75]], expected, rtol=0, atol=FLIPS * 1e-13)
    assert f"{values[25]:.2f} at 25, {values[50]:.1f} at 50 and {values[75]:.2f} at 75" in text
    assert f"{values[1]:.6f} at 1, {values[51]:.6f} at 51 and {values[99]:.6f} at 99" in text
    assert [best_stakes(Gambler(), capital) for capital in (25, 50, 75, 51)] == [
        {25},
        {50},
        {25},
        {1, 49},
    ]
    assert f"V*(50) is {optimum(Gambler(0.55).model())[50]:.6f}" in text
    headings = [line.removeprefix("## ") for line in doc.splitlines() if line.startswith("## ")]
    assert headings == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Arguments",
        "Known answer",
        "Version History",
    ]


@pytest.mark.parametrize("heads", [0.1, 0.25, 0.4, 0.49])
def test_bold_play_is_best_against_an_unfair_coin(heads: float) -> None:
    """One flip from 50; two heads from 25; one head or, after a tail, another from 75."""
    values = optimum(Gambler(heads).model())
    expected = [heads**2, heads, heads + (1 - heads) * heads]
    np.testing.assert_allclose(values[[25, 50, 75]], expected, rtol=0, atol=FLIPS * 1e-13)


def test_with_a_fair_coin_every_way_to_stake_is_as_good() -> None:
    # who stakes 1 each time makes at most 50 · 50 flips on average, and the roundings add up
    model = Gambler(0.5).model()
    for seed in range(3):
        policy = np.random.default_rng(seed).integers(50, size=101)
        assert_near(
            model.policy_values(policy, 1.0)[1:100], np.arange(1, 100) / 100, terms=3, size=2500
        )


def test_with_a_favourable_coin_timid_play_is_best() -> None:
    """The gambler's ruin: staking 1 wins with probability (1 - r^s) / (1 - r^100), r = 0.45 /
    0.55."""
    ruin = (1 - (0.45 / 0.55) ** np.arange(1, 100)) / (1 - (0.45 / 0.55) ** 100)
    np.testing.assert_allclose(
        optimum(Gambler(0.55).model())[1:100], ruin, rtol=0, atol=10 * FLIPS * 1e-13
    )


def test_stakes_that_cannot_be_made_change_nothing() -> None:
    """The optimum with the legal stakes alone, by plain loops."""
    values = [0.0] * 100 + [1.0]
    for _ in range(200):
        for s in range(1, 100):
            values[s] = max(
                0.4 * values[s + stake] + 0.6 * values[s - stake]
                for stake in range(1, min(s, 100 - s) + 1)
            )
    np.testing.assert_allclose(
        optimum(Gambler().model())[1:100], values[1:100], rtol=0, atol=FLIPS * 1e-13
    )


def test_the_lowest_of_equal_actions_reads_as_its_stake() -> None:
    stakes = Gambler().stakes
    for capital in range(1, 100):
        legal = min(capital, 100 - capital)
        assert stakes[capital].tolist() == [*range(1, legal + 1), *[legal] * (50 - legal)]
    assert not stakes[[0, 100]].any()


@pytest.mark.parametrize(
    ("capital", "action", "outcomes"),
    [(51, 48, {100: (1.0, True), 2: (0.0, False)}), (3, 49, {6: (0.0, False), 0: (0.0, True)})],
)
def test_heads_wins_the_stake_and_tails_loses_it(
    capital: int, action: int, outcomes: dict[int, Any]
) -> None:
    env = Gambler()
    env.reset(seed=0)
    seen = []
    for _ in range(2000):
        env.restore(env.snapshot() | {"state": capital})
        state, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (*outcomes[int(state)], False)
        seen.append(state > capital)
    # four standard errors
    assert np.mean(seen) == pytest.approx(0.4, rel=0, abs=4 * (0.4 * 0.6 / 2000) ** 0.5)


def test_the_game_is_over_with_nothing_and_with_everything() -> None:
    model = Gambler().model()
    assert np.flatnonzero(model.terminal).tolist() == [0, 100] and not model.rewards[[0, 100]].any()


def test_episodes_begin_anywhere_in_between() -> None:
    envs = GamblerVector(3000)
    capital = envs.reset(seed=0)[0]
    assert set(capital.tolist()) == set(range(1, 100))
    # four standard errors
    assert capital.mean() == pytest.approx(50, rel=0, abs=4 * (100**2 / 12 / 3000) ** 0.5)


@pytest.mark.parametrize("heads", [-0.1, 1.1, float("nan"), "0.4", True])
def test_what_is_no_probability_is_refused(heads: Any) -> None:
    with pytest.raises(ValueError) as error:
        Gambler(heads)
    assert str(error.value) == f"heads_probability must be a probability in [0, 1], got {heads!r}."


def test_the_drawing_shows_one_coin_for_each_unit_of_capital() -> None:
    env = Gambler(render_mode="rgb_array")
    for capital in (0, 1, 37, 100):
        text = env.draw_text(capital)
        assert (
            text.startswith(f"capital {capital} of 100\n")
            and text.count("#") == capital
            and text.count(".") == 100 - capital
        )
    empty = (env.draw_pixels(0) != env.draw_pixels(1)).any(axis=2)
    assert [(env.draw_pixels(0) != env.draw_pixels(n)).any(axis=2).sum() for n in (1, 37, 100)] == [
        n * empty.sum() for n in (1, 37, 100)
    ]
