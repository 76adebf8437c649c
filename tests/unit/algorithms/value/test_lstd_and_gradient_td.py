"""LSTD and gradient TD: equal to what a linear system says, and on Baird's counterexample where
semi-gradient TD diverges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.book.experiments import baird
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.errors import RequestError
from rlbook.functional.linear_td import least_squares_solution, tdc_update
from rlbook.registry import agent_class

WALK: dict[str, Any] = {"length": 9, "left_reward": -1.0}
GROUPS = np.zeros((11, 3))
GROUPS[np.arange(1, 10), np.arange(9) // 3] = 1.0
STEPS = [(4, 0.0, 5, False), (5, 1.0, 4, False), (4, 2.0, 3, False), (3, -1.0, 0, True)]


def agent(algorithm: str, env: Any = None, **settings: Any) -> Any:
    made = agent_class(algorithm)
    return made(
        rlbook.make("RandomWalk-v0", **WALK) if env is None else env, made.Config(**settings), 0
    )


def taught(algorithm: str, **settings: Any) -> Any:
    learner = agent(algorithm, **settings)
    learner.begin()
    for state, reward, successor, over in STEPS:
        learner.learn(Step(state, 1, reward, successor, over, False))
    return learner


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_with_a_table_lstd_is_certainty_equivalence(gamma: float) -> None:
    """From the four steps: v(3) = -1, v(5) = 1 + γ v(4), v(4) = ½ γ v(5) + ½ (2 + γ v(3)): count,
    and solve. Elsewhere 0."""
    values = taught("lstd", features="table", gamma=gamma).values()
    four = (0.5 * gamma + 1.0 - 0.5 * gamma) / (1 - 0.5 * gamma**2)
    expected = np.zeros(11)
    expected[3:6] = -1.0, four, 1 + gamma * four
    counts = np.array([[1, 0, 0], [-gamma, 2, -gamma], [0, -gamma, 1]])  # of 3, 4 and 5
    assert_near(values, expected, terms=11, size=np.linalg.cond(counts) * np.abs(expected).max())


def test_with_a_table_lstd_is_the_value_in_the_model_that_counting_gives() -> None:
    """300 walks; the same steps are counted here, and the counts solved."""
    seen: list[Step] = []
    made = agent_class("lstd")

    class Watching(made):  # type: ignore[misc, valid-type]
        def learn(self, step: Step) -> Any:
            seen.append(step)
            return super().learn(step)

    run: Any = rlbook.train(
        Watching,
        "RandomWalk-v0",
        episodes=300,
        env_kwargs=WALK,
        features="table",
        gamma=0.95,
        eval_every=0,
    )
    counts, paid = np.zeros((11, 11)), np.zeros(11)
    visits = np.zeros(11)
    for step in seen:
        counts[step.obs, step.next_obs] += not step.terminated
        paid[step.obs] += step.reward
        visits[step.obs] += 1
    shares = np.maximum(visits, 1)
    values = np.linalg.solve(np.eye(11) - 0.95 * counts / shares[:, None], paid / shares)
    condition = np.linalg.cond(np.diag(shares) - 0.95 * counts)
    assert_near(
        run.agent.values(), values, terms=len(seen) + 11, size=condition * np.abs(values).max()
    )


def test_with_fewer_features_lstd_comes_to_tds_fixed_point() -> None:
    """Three groups; the fixed point from the model, up to 4 deviations after 1 500 walks."""
    from rlbook.envs.random_walk import random_walk_model
    from rlbook.functional.linear_td import td_system

    model, gamma = random_walk_model(9, 1, -1.0, 1.0), 0.9
    chain, rewards = model.chain(np.full((11, 2), 0.5))
    visits = np.linalg.solve(np.eye(11) - chain.toarray().T, model.initial)
    system = td_system(GROUPS, visits, chain.toarray(), rewards, gamma)
    run: Any = rlbook.train(
        "lstd",
        "RandomWalk-v0",
        episodes=1_500,
        env_kwargs=WALK,
        features=GROUPS,
        gamma=gamma,
        eval_every=0,
    )
    fixed_point = least_squares_solution(system.a, system.b)
    deviation = 0.013  # of a weight, the largest of three, over ten seeds
    np.testing.assert_allclose(run.agent.weights[:, 0], fixed_point, rtol=0, atol=4 * deviation)


def test_with_lambda_1_and_a_table_lstd_is_the_mean_return() -> None:
    """γ = ½, from the back: G = -1, 2 - ½ = 1.5, 1 + .75 = 1.75, .875. v(4) = (1.5 + .875) / 2,
    v(5) = 1.75, v(3) = -1."""
    values = taught("lstd", features="table", gamma=0.5, trace_decay=1.0).values()
    assert_near(values[3:6], [-1.0, (1.5 + 0.875) / 2, 1.75], terms=11, size=5)


def test_with_lambda_1_the_trace_ends_with_its_episode() -> None:
    """Σ z (x - γ x')ᵀ w = Σ z r with z = Σ γᵏ x is Σ x (w·x - G) = 0: a state's value is the mean
    of what followed its visits, each to the end of its own episode. A trace that went on would
    charge earlier episodes with later ones."""
    visits: list[list[tuple[int, float]]] = [[]]
    made = agent_class("lstd")

    class Watching(made):  # type: ignore[misc, valid-type]
        def learn(self, step: Step) -> Any:
            visits[-1].append((int(step.obs), float(step.reward)))
            if step.terminated:
                visits.append([])
            return super().learn(step)

    gamma = 0.9
    run: Any = rlbook.train(
        Watching,
        "RandomWalk-v0",
        episodes=40,
        env_kwargs=WALK,
        features="table",
        gamma=gamma,
        trace_decay=1.0,
        eval_every=0,
    )
    total, count = np.zeros(11), np.zeros(11)
    for walk in visits:
        after = 0.0
        for state, reward in reversed(walk):
            after = reward + gamma * after
            total[state] += after
            count[state] += 1
    assert len(visits) == 41 and (count[1:10] > 4).all()
    expected = total / np.maximum(count, 1)
    seen = np.arange(11)[count > 0]
    condition = np.linalg.cond(run.agent.a[np.ix_(seen, seen)])
    assert condition < 1e4
    assert_near(
        run.agent.values(), expected, terms=count.sum(), size=condition * np.abs(expected).max()
    )


def test_a_time_limit_is_no_termination_and_ends_the_trace() -> None:
    """State 4 pays 1 and leads to 5, cut there; 5 pays 3 and ends. v(4) = 1 + .9 · 3, although the
    episodes differ."""
    learner = agent("lstd", features="table", gamma=0.9, trace_decay=1.0)
    learner.begin()
    learner.learn(Step(4, 1, 1.0, 5, False, True))
    learner.begin()
    first = np.array([1.0, -0.9]) / 1.81  # the shortest w with w₄ - .9 w₅ = 1
    assert_near(learner.weights[4:6, 0], first, terms=11)
    learner.learn(Step(5, 1, 3.0, 0, True, False))
    condition = np.linalg.cond([[1.0, -0.9], [0.0, 1.0]])
    assert_near(learner.values()[4:6], [3.7, 3.0], terms=11, size=3.7 * condition)


def test_lstd_solves_when_it_is_asked_and_then_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        solved.append(len(b))
        return least_squares_solution(a, b)

    monkeypatch.setattr("rlbook.algorithms.value.lstd.least_squares_solution", counted)
    learner = taught("lstd", features=GROUPS)
    assert not solved
    values = learner.values()
    assert learner.value(np.arange(11)).tolist() == values.tolist() and solved == [3]
    again = agent("lstd", features=GROUPS)
    again.load_state_dict(learner.state_dict())
    assert again.values().tolist() == values.tolist() and solved == [3]
    again.learn(Step(4, 1, 5.0, 5, False, True))
    assert again.values().tolist() != values.tolist() and solved == [3, 3]


@pytest.mark.parametrize("features", [baird.baird_features(), "table"], ids=["rows", "table"])
def test_gradient_tds_step_is_the_formula_with_the_ratio_of_the_two_policies(features: Any) -> None:
    """The target takes action 1 with .75, the behaviour with .25: ρ = 3. A step that a time limit
    cuts is like any other."""
    settings = {
        "policy": ((0.25, 0.75),) * 7,
        "behavior": ((0.75, 0.25),) * 7,
        "alpha": 0.2,
        "helper_alpha": 0.3,
        "gamma": 0.9,
    }
    learner = agent("gradient_td", TabularEnv(baird.baird_model()), features=features, **settings)
    x, w, h = (
        (np.eye(7) if isinstance(features, str) else features),
        learner.weights[:, 0].copy(),
        learner.helper.copy(),
    )
    for state, reward, successor, over, cut in [
        (0, 1.0, 6, False, False),
        (6, 2.0, 1, False, True),
        (1, -1.0, 2, True, False),
    ]:
        metrics = learner.learn(Step(state, 1, reward, successor, over, cut))
        w, h = tdc_update(
            w,
            h,
            x[state],
            reward,
            x[successor] * (not over),
            gamma=0.9,
            alpha=0.2,
            beta=0.3,
            ratio=3.0,
        )
        assert metrics["ratio"] == near(3.0)
    # three updates of 8 products each; .2 · 3 · |δ| · |x| with |δ| < 10 and |x| < 3
    sums = {"terms": 3 * 8, "size": 18}
    assert_near(learner.weights[:, 0], w, **sums)
    assert_near(learner.helper, h, **sums)


@pytest.mark.thorough
@pytest.mark.parametrize("update", ["tdc", "gtd2"])
def test_gradient_td_learns_another_policys_values(update: str) -> None:
    """Always right, from walks at random: from state s of 9 the reward 1 is 9 - s steps away.

    Where the target goes and what it is paid is certain, so the error is what is left of the first
    values: .0017 in the worst of ten seeds.
    """
    run: Any = rlbook.train(
        "gradient_td",
        "RandomWalk-v0",
        episodes=600,
        env_kwargs=WALK,
        features="table",
        gamma=0.9,
        policy=(1,) * 11,
        update=update,
        alpha=0.1,
        helper_alpha=0.1 if update == "tdc" else 0.4,
        eval_every=0,
    )
    # three times the worst of ten seeds
    np.testing.assert_allclose(
        run.agent.values()[3:10], 0.9 ** np.arange(6, -1, -1), rtol=0, atol=0.005
    )


@pytest.mark.thorough
def test_on_bairds_problem_the_agent_stays_where_semi_gradient_td_would_not() -> None:
    """Every step pays 0.1, so that all values are 10. Semi-gradient TD passes every bound, from
    weights that are 0 at first."""
    seen, x = baird.stream(20_000, 0), baird.baird_features()
    ran_away = baird.stream_td(x, np.zeros(8), seen._replace(reward=seen.reward + 0.1), alpha=0.005)
    assert np.abs(ran_away[-1]).max() > 1e6
    transitions = baird.baird_model().transitions
    env = TabularEnv(TabularMDP.from_arrays(transitions, np.full((7, 2), 0.1)))
    run: Any = rlbook.train(
        "gradient_td",
        env,
        steps=20_000,
        features=baird.baird_features(),
        policy=(1,) * 7,
        behavior=baird.BEHAVIOUR,
        gamma=0.99,
        alpha=0.005,
        helper_alpha=0.05,
        eval_every=0,
    )
    assert np.abs(run.agent.values()).max() < 30


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (
            "gradient_td",
            {"behavior": (0,) * 11},
            "behavior must take every action that the policy takes, but it never takes 1 in state 0",
        ),
        ("gradient_td", {"update": "tcd"}, "update must be one of 'tdc', 'gtd2', got 'tcd'"),
        ("lstd", {"trace_decay": 1.5}, "trace_decay must be a number in"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(
    algorithm: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        rlbook.train(algorithm, "RandomWalk-v0", steps=10, env_kwargs=WALK, **settings)
