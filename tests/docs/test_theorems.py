"""What the proofs of the chapters say, as numbers: each inequality on random cases, each constant
where it is reached, and each example that is worked out."""

from __future__ import annotations

import itertools
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from closeness import near, rounding_bound
from scipy.stats import binom

from rlbook.algorithms.planning.policy_iteration import policy_iteration_update
from rlbook.algorithms.planning.search.puct_selection import select_puct
from rlbook.algorithms.planning.value_iteration import value_iteration_update
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.advantages import gae, group_advantage, leave_one_out_advantage
from rlbook.functional.bandits import random_argmax, softmax, upper_confidence_bound
from rlbook.functional.maximum_entropy import expected_soft_value
from rlbook.functional.policy_gradients import discounted_visits
from rlbook.functional.post_training.preference_losses import (
    bradley_terry_loss,
    dpo_loss,
    implicit_reward,
)

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "ext"))
GAMMA = 0.9


def random_model(seed: int, states: int = 20, actions: int = 4) -> TabularMDP:
    """Dense transitions, and rewards between -1 and 1."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    return TabularMDP.from_arrays(transitions, rng.uniform(-1, 1, (states, actions)))


def random_policy(rng: np.random.Generator, model: TabularMDP) -> np.ndarray:
    """[S, A]."""
    return rng.dirichlet(np.ones(model.num_actions), size=model.num_states)


def one_hot(policy: np.ndarray, actions: int) -> np.ndarray:
    """[S] int → [S, A]."""
    return np.eye(actions)[policy]


def dense(model: TabularMDP) -> np.ndarray:
    """P(s'|s, a), [S, A, S]."""
    return model.transitions.toarray().reshape(model.num_states, model.num_actions, -1)


def largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())


def fixed_point(model: TabularMDP) -> np.ndarray:
    """V*, by sweeps until rounding stops them."""
    values = np.zeros(model.num_states)
    for _ in range(600):
        values = value_iteration_update(model, values, GAMMA)
    return values


def test_one_sweep_contracts_by_gamma_and_its_fixed_point_is_the_best_policys_value() -> None:
    for seed in range(20):
        model, rng = random_model(seed), np.random.default_rng(seed)
        best = fixed_point(model)
        for size in (1e-3, 1.0, 1e3):
            first, second = rng.normal(size=(2, model.num_states)) * size
            after = value_iteration_update(model, first, GAMMA) - value_iteration_update(
                model, second, GAMMA
            )
            assert largest(after) <= GAMMA * largest(first - second) * (1 + 1e-12)
        shifted = value_iteration_update(model, best + 1.0, GAMMA)  # where γ is reached
        assert shifted - best == near(np.full(20, GAMMA), terms=600, size=10)
        for _ in range(20):
            assert (model.policy_values(random_policy(rng, model), GAMMA) <= best + 1e-9).all()
        greedy = one_hot(model.backup(best, GAMMA).argmax(axis=1), model.num_actions)
        assert model.policy_values(greedy, GAMMA) == near(best, terms=600, size=10)
    assert math.ceil(math.log(10 / 0.01) / math.log(1 / GAMMA)) == 66  # as printed


def test_an_action_that_is_better_once_is_better_for_ever() -> None:
    rounds = []
    for seed in range(100):
        model = random_model(seed)
        policy, values = np.zeros(model.num_states, dtype=np.int64), np.full(20, -math.inf)
        for count in itertools.count(1):
            old = model.policy_values(one_hot(policy, 4), GAMMA)
            own = model.backup(old, GAMMA)[np.arange(20), policy]
            before = policy.copy()
            policy_iteration_update(model, policy, values, GAMMA, first=count == 1)
            values = old
            if (policy == before).all():
                break
            better = model.backup(old, GAMMA)[np.arange(20), policy]
            new = model.policy_values(one_hot(policy, 4), GAMMA)
            assert (better >= own).all() and (better > own).any()
            assert (new >= old - 1e-12).all() and (
                new[better > own + 1e-9] > old[better > own + 1e-9]
            ).all()
        assert values == near(fixed_point(model), terms=600, size=10)
        rounds.append(count)
    assert max(rounds) <= 6  # as the page says, the last one, which changes nothing, included


def test_n_steps_reduce_the_error_by_gamma_to_the_n_and_lambda_returns_by_their_mean() -> None:
    for seed in range(10):
        model, rng = random_model(seed), np.random.default_rng(seed)
        policy = random_policy(rng, model)
        chain, rewards = model.chain(policy)
        chain, true = chain.toarray(), model.policy_values(policy, GAMMA)
        for error in (rng.normal(size=20), np.ones(20)):
            table = true + error
            expected, lambda_return = table, np.zeros(20)
            for n in range(1, 300):
                expected = rewards + GAMMA * chain @ expected
                ratio = largest(expected - true) / largest(error)
                assert ratio <= GAMMA**n + 1e-9
                if (error == 1).all():  # where the bound is reached
                    assert ratio == pytest.approx(GAMMA**n, abs=1e-9)
                lambda_return += (1 - 0.9) * 0.9 ** (n - 1) * expected
            factor = GAMMA * (1 - 0.9) / (1 - GAMMA * 0.9)
            ratio = largest(lambda_return - true) / largest(error)
            assert ratio <= factor + 0.9**300 + rounding_bound(
                "float64", terms=300 * 20
            ) and factor == near(0.474, dtype="float32", decimals=3)
    assert near(0.656, dtype="float32", decimals=3) == GAMMA**4


def noise_left(step_sizes: np.ndarray) -> tuple[float, float]:
    """What is left of the first estimate, and the variance of the last one in units of σ²."""
    left, variance = 1.0, 0.0
    for alpha in step_sizes:
        left, variance = left * (1 - alpha), (1 - alpha) ** 2 * variance + alpha**2
    return float(left), float(variance)


def test_step_sizes_must_add_up_to_infinity_and_their_squares_must_not() -> None:
    k = np.arange(1, 100_001)
    assert noise_left(1 / k) == (0.0, near(1e-5, terms=100_000, size=1.0))
    assert noise_left(np.full(1000, 0.1)) == near((0.0, 0.1 / 1.9), terms=1000, size=1.0)
    assert noise_left(1 / (k + 1.0) ** 2) == near((0.5, 0.04), dtype="float32", decimals=2)
    assert (1 / (k + 1.0) ** 2).sum() == near(0.64, dtype="float32", decimals=2)
    assert (1 / (k + 1.0) ** 4).sum() == near(0.08, dtype="float32", decimals=2)
    assert (1 / k**2).sum() == near(1.64, dtype="float32", decimals=2)
    assert near(0.053, dtype="float32", decimals=3) == 0.1 / 1.9


def test_the_second_moment_of_the_weight_is_that_of_one_step_to_the_power_of_the_length() -> None:
    target, behaviour = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.5, 0.3])
    ratio = target / behaviour
    moment = float((target**2 / behaviour).sum())
    assert moment == near(1 + float(((target - behaviour) ** 2 / behaviour).sum()), terms=3)
    for length in (1, 2, 5):
        paths = list(itertools.product(range(3), repeat=length))
        chance = np.array([np.prod(behaviour[list(path)]) for path in paths])
        weight = np.array([np.prod(ratio[list(path)]) for path in paths])
        assert chance @ weight == near(1.0, terms=length * 3**length)
        assert chance @ weight**2 == near(moment**length, terms=length * 3**length)
    assert (2**10 - 1, round(1 / 0.85, 3)) == (1023, 1.176)  # as printed
    assert (
        pytest.approx(25.8, abs=0.05),
        pytest.approx(1.1e12, rel=0.01),
    ) == ((1 / 0.85) ** 20, 4.0**20)


def test_hoeffdings_inequality_bounds_how_often_a_mean_is_off() -> None:
    for pulls, chance in itertools.product((1, 5, 50, 400), (0.1, 0.5, 0.9)):
        for width in (0.05, 0.1, 0.3):
            above = 1 - binom.cdf(math.ceil(pulls * (chance + width) - 1e-9) - 1, pulls, chance)
            assert above <= math.exp(-2 * pulls * width**2) + 1e-12


def test_a_worse_machine_is_pulled_no_more_often_than_ucbs_bound_says() -> None:
    runs, pulls = 200, 1000
    chance, rng = np.array([0.75, 0.25]), np.random.default_rng(0)
    counts, values = np.zeros((runs, 2), dtype=np.int64), np.zeros((runs, 2))
    for _ in range(pulls):
        action = random_argmax(upper_confidence_bound(values, counts, math.sqrt(2)), rng)
        row = np.arange(runs)
        reward = rng.random(runs) < chance[action]
        counts[row, action] += 1
        values[row, action] += (reward - values[row, action]) / counts[row, action]
    bound = 8 * math.log(pulls) / 0.5**2 + 1 + math.pi**2 / 3
    assert bound == near(225.0, decimals=0)
    mean = counts[:, 1].mean()
    error = counts[:, 1].std() / math.sqrt(runs)
    assert mean < bound and mean == pytest.approx(37, abs=4 * error), (mean, error)


def test_the_best_baseline_weighs_returns_by_the_size_of_the_score() -> None:
    pi, reward = np.array([0.5, 0.25, 0.25]), np.array([1.0, 2.0, 6.0])
    score = np.eye(3) - pi  # row a: ∇ log π(a)
    size = (score**2).sum(axis=1)
    assert size.tolist() == [0.375, 0.875, 0.875]

    def variance(baseline: float) -> float:
        return float(pi @ (size * (reward - baseline) ** 2))

    best = float(pi @ (size * reward) / (pi @ size))
    assert (best, pi @ reward) == (near(3.1, terms=3), 2.5)
    assert [round(variance(b), 2) for b in (0.0, 2.5, 3.1)] == [8.94, 3.16, 2.93]
    assert all(variance(best) < variance(best + step) for step in (-0.1, 0.1))
    gradient = pi @ (score * reward[:, None])
    for baseline in (0.0, 2.5, best):
        assert pi @ (score * (reward - baseline)[:, None]) == near(gradient, terms=3, size=10)


def test_gae_is_the_lambda_return_less_the_value() -> None:
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=12), rng.normal(size=13)
    for lam, terminated in itertools.product((0.0, 0.5, 0.9, 1.0), (False, True)):
        last = 0.0 if terminated else value[12]
        following, expected = last, np.empty(12)  # behind the last step the return is the value
        for t in reversed(range(12)):
            after = last if t == 11 else value[t + 1]
            following = reward[t] + GAMMA * ((1 - lam) * after + lam * following)
            expected[t] = following - value[t]
        ended = torch.zeros(12, dtype=torch.bool)
        ended[-1] = True
        stop = ended if terminated else torch.zeros_like(ended)
        advantage = gae(
            torch.tensor(reward),
            torch.tensor(value[:-1]),
            torch.tensor(value[1:]),
            stop,
            ended & ~stop,
            gamma=GAMMA,
            gae_lambda=lam,
        )
        assert advantage == near(torch.tensor(expected), terms=12, size=20)


def difference_and_surrogate(
    model: TabularMDP, old: np.ndarray, new: np.ndarray
) -> tuple[float, float, float, float]:
    """J(π') - J(π), the same by the identity, the surrogate, and its bound."""
    initial = np.full(model.num_states, 1 / model.num_states)
    values = model.policy_values(old, GAMMA)
    advantage = model.backup(values, GAMMA) - values[:, None]
    visits = [
        discounted_visits(model.chain(policy)[0].toarray(), initial, GAMMA) for policy in (old, new)
    ]
    gain = (new * advantage).sum(axis=1)
    exact = initial @ (model.policy_values(new, GAMMA) - values)
    distance = 0.5 * np.abs(new - old).sum(axis=1).max()
    bound = 4 * largest(advantage) * GAMMA * distance**2 / (1 - GAMMA) ** 2
    return float(exact), float(visits[1] @ gain), float(visits[0] @ gain), float(bound)


def test_the_performance_difference_is_exact_and_the_surrogate_is_off_by_less_than_its_bound() -> (
    None
):
    shares = []
    for seed in range(200):
        model, rng = random_model(seed, states=6, actions=3), np.random.default_rng(seed)
        old, other = random_policy(rng, model), random_policy(rng, model)
        for step in (0.1, 1.0):
            size = 0.5 * np.abs(other - old).sum(axis=1, keepdims=True)
            new = old + step * (other - old) * (1.0 if step == 1.0 else 1 / np.maximum(size, 1.0))
            exact, identity, surrogate, bound = difference_and_surrogate(model, old, new)
            assert exact == near(identity, terms=36, size=100)
            assert abs(exact - surrogate) <= bound
            if step == 0.1:
                shares.append(abs(exact - surrogate) / bound)
        exact, _, surrogate, _ = difference_and_surrogate(model, old, old + 1e-4 * (other - old))
        assert exact == pytest.approx(surrogate, abs=1e-4 * 1e-2)  # the same slope
    assert max(shares) == near(0.014, dtype="float32", decimals=3), max(shares)


def soft_sweep(model: TabularMDP, action_values: np.ndarray, alpha: float) -> np.ndarray:
    """[S, A] → [S, A]."""
    value = alpha * np.log(np.exp(action_values / alpha).sum(axis=1))
    return model.rewards + GAMMA * dense(model) @ value


def test_the_soft_bellman_update_contracts_and_its_fixed_point_is_the_best_soft_value() -> None:
    alpha = 0.5
    for seed in range(10):
        model, rng = random_model(seed), np.random.default_rng(seed)
        first, second = rng.normal(size=(2, 20, 4))
        after = soft_sweep(model, first, alpha) - soft_sweep(model, second, alpha)
        assert largest(after) <= GAMMA * largest(first - second)
        q = np.zeros((20, 4))
        for _ in range(600):
            q = soft_sweep(model, q, alpha)
        best = softmax(q / alpha)
        for policy in (best, random_policy(rng, model), np.full((20, 4), 0.25)):
            paid = (policy * (model.rewards - alpha * np.log(policy))).sum(axis=1)
            chain = model.chain(policy)[0].toarray()
            soft = np.linalg.solve(np.eye(20) - GAMMA * chain, paid)
            top = alpha * np.log(np.exp(q / alpha).sum(axis=1))
            assert (soft <= top + 1e-9).all()
            assert ((soft > top - 1e-9).all()) == (policy is best)
    q, policy = torch.tensor([[1.0, 0.0]]), torch.softmax(torch.tensor([[1.0, 0.0]]), dim=1)
    assert [round(p, 3) for p in policy[0].tolist()] == [0.731, 0.269]
    assert expected_soft_value(q, policy.log(), 1.0).item() == near(
        1.313, dtype="float32", decimals=3
    )
    assert -(policy * policy.log()).sum().item() == near(0.582, dtype="float32", decimals=3)


def to_go(model: TabularMDP, policy: np.ndarray, horizon: int) -> list[np.ndarray]:
    """V_t, [S], for t = 0, …, T."""
    values = [np.zeros(model.num_states)]
    for _ in range(horizon):
        values.append((policy * (model.rewards + dense(model) @ values[-1])).sum(axis=1))
    return values[::-1]


def test_the_loss_of_a_learner_is_the_sum_of_what_its_mistakes_cost() -> None:
    horizon = 12
    for seed in range(20):
        model, rng = random_model(seed, states=6, actions=3), np.random.default_rng(seed)
        expert = rng.integers(3, size=6)
        learner = 0.9 * one_hot(expert, 3) + 0.1 * random_policy(rng, model)
        transitions, state = dense(model), np.arange(6)

        values, own = to_go(model, one_hot(expert, 3), horizon), to_go(model, learner, horizon)
        where, loss, largest_cost, mistakes = np.full(6, 1 / 6), 0.0, 0.0, 0.0
        for t in range(horizon):
            q = model.rewards + transitions @ values[t + 1]
            cost = values[t][:, None] - q
            assert cost[state, expert] == near(np.zeros(6), terms=12 * 6, size=horizon)
            loss += where @ (learner * cost).sum(axis=1)
            largest_cost = max(largest_cost, cost.max())
            mistakes += where @ (1 - learner[state, expert])
            where = where @ model.chain(learner)[0].toarray()
        assert loss == near((values[0] - own[0]).mean(), terms=12 * 12 * 6, size=horizon)
        assert loss <= largest_cost * mistakes


def test_the_bradley_terry_loss_is_least_at_the_log_odds_and_has_no_least_value_if_one_answer_always_wins() -> (
    None
):
    def loss(x: float, wins: int, losses: int) -> float:
        better = torch.tensor([x] * wins + [0.0] * losses, dtype=torch.float64)
        worse = torch.tensor([0.0] * wins + [x] * losses, dtype=torch.float64)
        return bradley_terry_loss(better, worse).item()

    x = math.log(3)
    assert x == near(1.099, dtype="float32", decimals=3)
    assert all(loss(x, 3, 1) < loss(x + step, 3, 1) for step in (-0.01, 0.01))
    falling = [loss(x, 4, 0) for x in range(0, 40, 4)]
    assert all(later < earlier for earlier, later in itertools.pairwise(falling))
    rng = np.random.default_rng(0)
    noise = rng.gumbel(size=(2, 200_000))
    share = ((1.0 + noise[0]) > noise[1]).mean()
    assert share == pytest.approx(1 / (1 + math.exp(-1)), abs=5 * 0.5 / math.sqrt(200_000))
    assert 1 / (1 + math.exp(-(math.log(1.5) + math.log(9)))) == near(
        0.931, dtype="float32", decimals=3
    )


def test_the_tilted_reference_is_the_best_policy_and_its_log_ratio_gives_the_reward_back() -> None:
    rng = np.random.default_rng(0)
    reference, reward, beta = rng.dirichlet(np.ones(5)), rng.normal(size=5), 0.7
    best = reference * np.exp(reward / beta)
    best, total = best / best.sum(), best.sum()

    def objective(policy: np.ndarray) -> float:
        seen = policy > 0
        return float(
            policy @ reward - beta * (policy[seen] @ np.log(policy[seen] / reference[seen]))
        )

    assert objective(best) == near(beta * math.log(total), terms=10, size=5)
    others = [rng.dirichlet(best * 50) for _ in range(200)]
    assert all(objective(policy) < objective(best) for policy in others)
    log_best, log_reference = torch.tensor(best).log(), torch.tensor(reference).log()
    implied = implicit_reward(log_best, log_reference, beta)
    assert implied - implied[0] == near(torch.tensor(reward - reward[0]), terms=5, size=10)
    paired = bradley_terry_loss(torch.tensor(reward[:2]), torch.tensor(reward[2:4]))
    direct = dpo_loss(log_best[:2], log_best[2:4], log_reference[:2], log_reference[2:4], beta=beta)
    assert direct == near(paired, terms=5, size=10)
    reference, reward, beta = np.array([0.5, 0.5]), np.array([1.0, 0.0]), 1.0  # as printed
    printed = [objective(np.array(p)) for p in ([0.7310586, 0.2689414], [1.0, 0.0], [0.5, 0.5])]
    assert printed == near([0.620, 0.307, 0.5], dtype="float32", decimals=3)


def test_the_mean_of_all_scales_the_gradient_and_the_mean_of_the_others_does_not() -> None:
    pi, reward = np.array([0.5, 0.3, 0.2]), np.array([1.0, -2.0, 4.0])
    score = np.eye(3) - pi
    exact = pi @ (score * reward[:, None])
    for size in (2, 3, 4):
        means = {"all": np.zeros(3), "others": np.zeros(3)}
        for group in itertools.product(range(3), repeat=size):
            chance, returns = np.prod(pi[list(group)]), torch.tensor(reward[list(group)])
            advantages = {
                "all": group_advantage(returns, size, scale="none"),
                "others": leave_one_out_advantage(returns, size),
            }
            for name, advantage in advantages.items():
                means[name] += chance * (advantage.numpy() @ score[list(group)]) / size
        assert means["all"] == near(
            (size - 1) / size * exact, dtype="float64", terms=3**size, size=10
        )
        assert means["others"] == near(exact, terms=3**size, size=10)


def shares_of_visits(values: np.ndarray, prior: np.ndarray, simulations: int) -> np.ndarray:
    """[A]: where `select_puct` goes if each visit returns its action's value."""
    actions = len(values)
    count, mean = np.zeros(actions, dtype=np.int64), np.zeros(actions)
    for _ in range(simulations):
        edge = select_puct(0, actions, count, mean, prior, np.array([0.0, 1.0]), 1.0)
        count[edge] += 1
        mean[edge] = values[edge]
    return count / simulations


def regularised(values: np.ndarray, prior: np.ndarray, simulations: int) -> np.ndarray:
    """[A]: λ P / (h - Q) with the h for which this adds up to 1."""
    weight = math.sqrt(simulations) / (len(values) + simulations)
    low, high = values.max(), values.max() + weight
    for _ in range(200):
        h = (low + high) / 2
        low, high = (h, high) if (weight * prior / (h - values)).sum() > 1 else (low, h)
    return weight * prior / (h - values)


@pytest.mark.thorough
def test_the_visits_of_puct_are_those_of_the_regularised_policy_and_go_to_the_best_action() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        values, prior = rng.random(4), rng.dirichlet(np.ones(4))
        for simulations in (
            10_000,
            30_000,
        ):  # by then all actions were tried and the scores have met
            shares = shares_of_visits(values, prior, simulations)
            expected = regularised(values, prior, simulations)
            assert np.abs(shares - expected).max() < 2 * len(values) / simulations
            gap = values.max() - values
            worse = gap > 0
            limit = prior[worse] / (gap[worse] * math.sqrt(simulations))
            assert (shares[worse] <= limit + 1 / simulations).all()
    two, even = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    printed = [regularised(two, even, n)[1] for n in (100, 10_000)]
    assert printed == near([0.047, 0.005], dtype="float32", decimals=3)
    best = regularised(two, even, 100)

    def objective(y: np.ndarray) -> float:
        return float(y @ two - 10 / 102 * (even @ np.log(even / y)))

    for step in (-0.01, 0.01):
        assert objective(best) > objective(best + np.array([step, -step]))


def test_every_theorem_of_a_chapter_is_on_the_page_of_theorems() -> None:
    from proofs import theorems

    found = theorems()
    blocks = sum(
        len(re.findall(r"^:{3,}\{proof\}", path.read_text(encoding="utf-8"), re.M))
        for path in (DOCS / "chapters").glob("*.md")
    )
    assert len(found) == blocks >= 16
    assert len({theorem.anchor for theorem in found}) == len(found)
    root = DOCS.parent
    for theorem in found:
        for test in theorem.tests:
            file, name = test.split("::")
            assert f"def {name}(" in (root / file).read_text(encoding="utf-8"), test
