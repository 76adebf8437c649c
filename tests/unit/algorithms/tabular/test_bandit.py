"""Bandits: the formulas by hand, the gradient against the exact one, the test bed's facts, and who
finds the best machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from closeness import assert_near, near
from scipy import integrate, stats

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.bandit import Bandit, BanditConfig, choose, empty_memory, update
from rlbook.book.experiments import bandit_regret
from rlbook.book.figures import figure, measurements
from rlbook.envs.ten_armed_testbed import TenArmedTestbed, machine_means
from rlbook.errors import TrainingError
from rlbook.functional.bandits import (
    beta_posterior,
    lai_robbins_rate,
    normal_posterior,
    preference_gradient,
    random_argmax,
    softmax,
    upper_confidence_bound,
)

ENV = TenArmedTestbed(arms=3)


def taught(config: BanditConfig, pulls: list[tuple[int, float]]) -> Bandit:
    """A learner that has seen (action, reward) pairs."""
    agent = Bandit(ENV, config)
    for action, reward in pulls:
        agent.learn(Step(0, action, reward, 0, True, False))
    return agent


def test_the_value_of_an_action_is_the_mean_of_its_rewards() -> None:
    agent = taught(BanditConfig(initial_value=100.0), [(0, 1.0), (0, 2.0), (2, -4.0), (0, 6.0)])
    assert agent.action_values()[0] == near((1 + 2 + 6) / 3, terms=3)
    assert agent.action_values()[1:].tolist() == [100.0, -4.0]
    assert agent.memory.counts.tolist() == [3, 0, 1]


def test_a_constant_step_size_weighs_later_rewards_more() -> None:
    agent = taught(BanditConfig(alpha=0.5, initial_value=8.0), [(1, 0.0), (1, 2.0)])
    assert agent.action_values()[1] == (8 / 2 + 0) / 2 + 2 / 2


def test_the_bound_of_ucb_is_the_books() -> None:
    values, counts = np.array([1.0, 2.0, 0.0]), np.array([3, 1, 0])
    bound = upper_confidence_bound(values, counts, 2.0)
    assert bound.tolist() == near(
        [1 + 2 * math.sqrt(math.log(5) / 3), 2 + 2 * math.sqrt(math.log(5)), math.inf], terms=2
    )


def test_the_preferences_follow_the_books_rule_by_hand() -> None:
    """Three pulls; the first changes nothing, since r̄ is then the reward itself."""
    agent = taught(BanditConfig("gradient", 0.5), [(0, 4.0), (0, 6.0), (1, 2.0)])
    first = 0.5 * (6 - 4) * np.array([1 - 1 / 3, -1 / 3, -1 / 3])
    odds = np.exp(first)
    pi = odds / odds.sum()
    second = first + 0.5 * (2 - (4 + 6) / 2) * (np.array([0, 1, 0]) - pi)
    assert_near(agent.memory.preferences, second, terms=6)
    assert agent.memory.mean_reward == near((4 + 6 + 2) / 3, terms=3)


def test_preferences_of_forbidden_actions_stay_as_they_are() -> None:
    """Chosen among actions 0 and 2, as likely as each other: ± α (r - r̄) / 2, and 0 for action 1."""
    agent = taught(BanditConfig("gradient", 0.5), [(0, 4.0)])
    mask = np.array([True, False, True])
    agent.learn(Step(0, 2, 6.0, 0, True, False, action_mask=mask))
    assert agent.memory.preferences.tolist() == near([-0.5, 0.0, 0.5], terms=3)


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_sampled_gradient_has_the_exact_gradient_as_its_mean_whatever_the_baseline(
    baseline: float,
) -> None:
    """Σ_a π(a) (q(a) - b)(1[· = a] - π) = π (q - π·q): computed over all actions, so there is
    nothing random."""
    preferences, q = np.array([0.3, -1.0, 0.5]), np.array([1.0, 5.0, -2.0])
    pi = softmax(preferences)
    mean = sum(pi[a] * preference_gradient(preferences, a, q[a], baseline) for a in range(3))
    assert_near(mean, pi * (q - pi @ q), terms=3, size=5.0)


def test_ties_are_broken_evenly() -> None:
    """Each of the two best of four actions comes up with probability ½: within 4 standard errors of
    10 000 draws."""
    scores = np.tile([1.0, 3.0, 3.0, 2.0], (10_000, 1))
    chosen = random_argmax(scores, np.random.default_rng(0))
    assert set(chosen) == {1, 2} and abs((chosen == 1).mean() - 0.5) < 4 * 0.5 / 100
    assert random_argmax(np.array([0.0, 1.0]), np.random.default_rng(0)) == 1


def test_the_test_bed_is_what_its_docstring_says() -> None:
    doc = " ".join((TenArmedTestbed.__doc__ or "").split())
    env = rlbook.make("TenArmedTestbed-v0")
    bed = env.unwrapped
    assert isinstance(bed, TenArmedTestbed)
    means, model = bed.means, bed.model()
    assert (
        f"In problem 0 it is {means.max():.6f}, of action {means.argmax()}; random actions are"
        f" worth {means.mean():.6f}." in doc
    )
    largest = integrate.quad(
        lambda x: x * 10 * stats.norm.pdf(x) * stats.norm.cdf(x) ** 9, -12, 12
    )[0]
    assert f"V* averages {largest:.6f}" in doc
    assert model.rewards[0].tolist() == means.tolist() == machine_means(0).tolist()
    env.reset(seed=0)
    rewards = np.array([env.step(6)[1] for _ in range(4_000) if env.reset()])
    assert abs(rewards.mean() - means[6]) < 4 / math.sqrt(4_000) and abs(
        rewards.std() - 1.0
    ) < 4 / math.sqrt(2 * 4_000)
    assert_near(TenArmedTestbed(problem=3, mean=4.0).means, machine_means(3) + 4.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problem": -1}, "problem must be an integer of at least 0, got -1"),
        ({"arms": 1}, "arms must be an integer of at least 2, got 1"),
        ({"mean": math.nan}, "mean must be a finite number, got nan"),
        ({"problem": True}, "problem must be an integer"),
    ],
)
def test_a_test_bed_that_cannot_be_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TenArmedTestbed(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["epsilon-greedy", "ucb", "gradient"])
def test_a_bandit_finds_the_best_machine(method: str) -> None:
    """Problem 14 with three machines: the best is 1.67 above the next, and 600 pulls find it on 5
    of 5 seeds."""
    means = machine_means(14, 3)
    where = {"env": "TenArmedTestbed-v0", "env_kwargs": {"problem": 14, "arms": 3}}
    runs = [
        rlbook.train("bandit", **where, steps=600, seed=seed, method=method, eval_every=0)
        for seed in range(5)
    ]  # type: ignore[arg-type]
    # printed with three decimals
    assert np.diff(np.sort(means))[-1] == near(1.675, decimals=3)
    assert [run.agent.act(0, explore=False) for run in runs] == [means.argmax()] * 5


@pytest.mark.parametrize(
    "config",
    [
        BanditConfig(),
        BanditConfig(alpha=0.2, initial_value=5.0),
        BanditConfig("ucb"),
        BanditConfig("gradient", 0.4, baseline=False),
    ],
    ids=["mean", "optimistic", "ucb", "gradient"],
)
def test_problems_side_by_side_learn_what_one_alone_learns(config: BanditConfig) -> None:
    means, rng = (
        np.stack([machine_means(problem) for problem in range(4)]),
        np.random.default_rng(0),
    )
    together, alone = empty_memory((4, 10), config), [empty_memory((10,), config) for _ in range(4)]
    for _ in range(50):
        actions = choose(together, config, rng, 0.1)
        rewards = means[np.arange(4), actions] + rng.standard_normal(4)
        errors = update(together, config, actions, rewards)
        for problem, memory in enumerate(alone):
            error = update(memory, config, actions[problem], rewards[problem])
            assert error == near(errors[problem], terms=50, size=10.0)
    for problem, memory in enumerate(alone):
        for one, other in zip(memory, together, strict=True):
            assert_near(one, other[problem], terms=50, size=10.0)


def test_the_gradient_method_draws_from_its_preferences() -> None:
    """π(0) = 1 / (1 + e), over 20 000 draws, within 4 standard errors."""
    config = BanditConfig("gradient")
    memory = empty_memory((20_000, 2), config)
    memory.preferences[:, 1] = 1.0
    share = 1 / (1 + math.e)
    drawn = choose(memory, config, np.random.default_rng(0), 0.0)
    assert abs((drawn == 0).mean() - share) < 4 * math.sqrt(share * (1 - share) / 20_000)


def test_figure_2_2_has_the_books_shares_of_optimal_actions() -> None:
    """Greedy: about a third (Sutton & Barto, p. 29). Exact: means over 4 000 problems; between
    problems the share of the last hundred steps has the standard deviations beside them."""
    result = measurements("2.2", figure("2.2", runs=400, steps=1_000))
    share = {
        name: result[f"{name}: share of optimal actions, last 100 steps"]
        for name in ("ε = 0 (greedy)", "ε = 0.01", "ε = 0.1")
    }
    for name, exact, deviation in (
        ("ε = 0 (greedy)", 0.357, 0.476),
        ("ε = 0.01", 0.595, 0.48),
        ("ε = 0.1", 0.798, 0.291),
    ):
        assert abs(share[name] - exact) < 4 * deviation / math.sqrt(400), name


def test_figures_2_3_to_2_5_show_what_their_titles_say() -> None:
    few = {"runs": 200, "steps": 600}
    optimistic, realistic = figure("2.3", **few).optimal.values()
    assert (
        optimistic[1:40].mean() < realistic[1:40].mean()
        and optimistic[-100:].mean() > realistic[-100:].mean() + 0.05
    )
    ucb, greedy = figure("2.4", **few).reward.values()
    assert ucb[10] > ucb[9] + 0.5 and ucb[-100:].mean() > greedy[-100:].mean()
    shares = figure("2.5", **few).optimal
    assert (
        shares["with baseline, α = 0.1"][-100:].mean()
        > shares["without baseline, α = 0.1"][-100:].mean() + 0.2
    )


def test_the_posteriors_are_bayes_rule() -> None:
    """Against prior times likelihood, integrated."""
    rewards = np.array([1.5, -0.5, 2.0])
    q, count = np.array([rewards.mean()]), np.array([3])
    mean, std = normal_posterior(q, count, prior_mean=0.5, prior_std=2.0, noise_std=1.5)

    def weight(x: float) -> float:
        return stats.norm.pdf(x, 0.5, 2.0) * float(stats.norm.pdf(rewards, x, 1.5).prod())

    total, first, second = (
        integrate.quad(lambda x, power=power: weight(x) * x**power, -20, 20)[0]
        for power in range(3)
    )
    assert mean[0] == near(first / total, decimals=7)
    assert std[0] ** 2 == near(second / total - (first / total) ** 2, decimals=7)

    ones, zeros = beta_posterior(np.array([0.75]), np.array([4]))
    share = integrate.quad(lambda x: x**3 * (1 - x), 0, 1)[0]
    expected = integrate.quad(lambda x: x * x**3 * (1 - x), 0, 1)[0] / share
    assert ones[0] / (ones[0] + zeros[0]) == near(expected, decimals=7)


@pytest.mark.parametrize("prior", ["normal", "beta"])
def test_thompson_pulls_each_machine_as_often_as_it_is_the_best(prior: str) -> None:
    """The probability is an integral; 20 000 problems that stand alike draw from it."""
    config = BanditConfig("thompson", prior=prior, prior_std=2.0, noise_std=0.5)  # type: ignore[arg-type]
    rewards = ([0.0], [1.0, 1.0, 0.0, 1.0])
    memory = empty_memory((20_000, 2), config)
    for arm, paid in enumerate(rewards):
        for reward in paid:
            update(memory, config, np.full(20_000, arm), np.full(20_000, reward))
    pulled = choose(memory, config, np.random.default_rng(5), 0.0)
    if prior == "beta":
        first, second = stats.beta(1, 2), stats.beta(4, 2)
    else:
        precision = [1 / 2.0**2 + len(paid) / 0.5**2 for paid in rewards]
        first, second = (
            stats.norm(sum(paid) / 0.5**2 / sharp, sharp**-0.5)
            for paid, sharp in zip(rewards, precision, strict=True)
        )
    chance = integrate.quad(lambda x: second.pdf(x) * first.sf(x), -8, 8, points=[0.0, 1.0])[0]
    error = math.sqrt(chance * (1 - chance) / 20_000)
    assert abs((pulled == 0).mean() - chance) < 4 * error


@pytest.mark.parametrize(("method", "best"), [("gradient", 1), ("ucb", 0)])
def test_greedy_play_goes_by_preferences_where_these_are_learned(method: str, best: int) -> None:
    agent = taught(BanditConfig(method), [])  # type: ignore[arg-type]
    agent.memory.q[:2], agent.memory.preferences[:2] = (1.0, 0.0), (0.0, 1.0)
    assert agent.act(0, explore=False) == best


def test_what_thompson_cannot_believe_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha must be none where method is thompson, got 0\.1"):
        BanditConfig("thompson", alpha=0.1)
    with pytest.raises(TrainingError, match=r"prior beta is for rewards that are 0 or 1, got 0\.5"):
        taught(BanditConfig("thompson", prior="beta"), [(0, 0.5)])


def test_the_rate_of_lai_and_robbins_by_hand() -> None:
    """Two coins: Δ over the divergence; equal machines cost nothing."""
    divergence = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert lai_robbins_rate(np.array([0.5, 0.25, 0.5])) == near(0.25 / divergence, terms=4)
    assert lai_robbins_rate(np.array([0.3, 0.3])) == 0.0


@pytest.mark.slow
def test_thompson_misses_less_than_ucb_and_epsilon_greedy() -> None:
    """On each of ten seeds, in the mean of 20 learners."""
    for seed in range(10, 20):
        found = bandit_regret.run(seed, runs=20, steps=1_500)
        end = {name: regret[:, -1].mean() for name, regret in found.regret.items()}
        assert min(end, key=lambda name: end[name]) == "Thompson"
        assert end["UCB, c = √2"] < found.ucb_bound[-1]
