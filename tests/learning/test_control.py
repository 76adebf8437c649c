"""Classic control: balance a pole, swing up a pendulum."""

from __future__ import annotations

import numpy as np
import pytest

import rlbook


def ppos_return(seed: int) -> float:
    """Over 50 episodes, after 50 000 steps."""
    return rlbook.evaluate(
        rlbook.train("ppo", "CartPole-v1", steps=50_000, seed=seed, eval_every=0), episodes=50
    ).mean


@pytest.mark.slow
def test_ppo_balances_the_pole() -> None:
    """At least 475 of 500. Of 40 runs (with and without vector instructions, both matrix libraries)
    39 had 500 and one 129, so a single seed may fall short: then the two after it must not."""
    assert ppos_return(0) >= 475 or min(ppos_return(1), ppos_return(2)) >= 475


@pytest.mark.slow
def test_ppo_balances_the_pole_on_two_of_three_seeds() -> None:
    assert np.median([ppos_return(seed) for seed in range(3)]) >= 475


@pytest.mark.slow
def test_a2c_balances_the_pole() -> None:
    """200 000 steps; each of three seeds earns at least 475 of 500 over 50 episodes."""
    runs = [rlbook.train("a2c", "CartPole-v1", seed=seed, eval_every=0) for seed in range(3)]
    assert min(rlbook.evaluate(run, episodes=50).mean for run in runs) >= 475


@pytest.mark.slow
def test_dqns_last_policy_balances_the_pole() -> None:
    """50 000 steps, three seeds. With a constant step size it had forgotten what it knew: seeds 10
    to 12 ended at 63, 500 and 81."""
    for seed in range(3):
        run = rlbook.train("dqn", "CartPole-v1", steps=50_000, seed=seed, eval_every=0)
        assert rlbook.evaluate(run, episodes=50).mean >= 475


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_learning_from_old_steps_swings_up_the_pendulum_in_50_episodes(algorithm: str) -> None:
    """10 000 steps. SAC had -177 to -122 on twenty seeds, TD3 -169, -154 and -161 on three."""
    run = rlbook.train(algorithm, "Pendulum-v1", seed=1, eval_every=0)
    assert rlbook.evaluate(run, episodes=50).mean > -200


@pytest.mark.slow
def test_imagined_steps_swing_up_the_pendulum_in_20_episodes() -> None:
    """4 000 steps, half of each minibatch imagined. Ten seeds that chose the settings had -157 to
    -123."""
    run = rlbook.train("mbpo", "Pendulum-v1", seed=1, eval_every=0)
    assert rlbook.evaluate(run, episodes=50).mean > -250


@pytest.mark.slow
def test_ppo_swings_up_the_pendulum() -> None:
    """A policy that does nothing gets about -1200; up and held there from anywhere costs about
    -150."""
    runs = [rlbook.train("ppo", "Pendulum-v1", seed=seed, eval_every=0) for seed in range(3)]
    returns = [rlbook.evaluate(run, episodes=50).mean for run in runs]
    assert min(returns) > -300, returns
