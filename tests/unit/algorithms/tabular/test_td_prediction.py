"""TD prediction: the given policy, the update by hand, and batch TD against the equation that it
solves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near
from scipy import stats

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.prediction.given_policy import cumulative
from rlbook.algorithms.tabular.prediction.td_prediction import TDPrediction, TDPredictionConfig
from rlbook.cli.train import parse_train
from rlbook.cli.values import OptionText, convert
from rlbook.envs import TabularMDP
from rlbook.errors import RequestError


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def agent_with(values: Any, num_actions: int = 2, seed: int = 0, **config: Any) -> TDPrediction:
    env: Any = Spaces(len(values), num_actions)
    agent = TDPrediction(env, TDPredictionConfig(**config), seed)
    agent.v[:] = values
    return agent


def certainty_equivalence(steps: list[Step], num_states: int, gamma: float) -> np.ndarray:
    """V of the most likely model: n(s) V(s) = Σ r + γ Σ_s' n(s, s') V(s'), one linear system over
    the states that were left."""
    left = np.zeros((num_states, num_states))
    right = np.zeros(num_states)
    for step in steps:
        left[step.obs, step.obs] += 1.0
        right[step.obs] += step.reward
        if not step.terminated:
            left[step.obs, step.next_obs] -= gamma
    unseen = np.flatnonzero(~left.any(axis=1))
    left[unseen, unseen] = 1.0
    return np.linalg.solve(left, right)


# Eight episodes: A 0 B 0, six times B 1, and B 0. Sutton & Barto 2018, example 6.4.
PREDICTOR = [Step(0, 0, 0.0, 1, False, False), Step(1, 0, 0.0, 0, True, False)]
PREDICTOR += [Step(1, 0, 1.0, 0, True, False)] * 6 + [Step(1, 0, 0.0, 0, True, False)]


def test_scripted_updates_give_the_recorded_table(fixtures: dict[str, Any]) -> None:
    """0: .5 + .5 (1 + .9·1 - .5) = 1.2; 1: 1 + .5 (0 + .9·1.2 - 1) = 1.04; 0: 1.2 + .5 (2 + .9·2 -
    1.2) = 2.5; 2: 2 + .5 (3 - 2) = 2.5."""
    script = fixtures["td_lambda_revisit"]
    agent = agent_with(script["V0"], alpha=script["alpha"], gamma=script["gamma"])
    states = script["states"]
    for time, (state, reward) in enumerate(zip(states, script["rewards"], strict=True)):
        last = time == len(states) - 1
        agent.learn(Step(state, 0, reward, 0 if last else states[time + 1], last, False))
    assert_near(agent.values(), fixtures["nstep_td_revisit"]["n=1"], terms=4 * 4)


def test_a_time_limit_still_bootstraps() -> None:
    """r = 1 and a limit of 10 steps: 1 / (1 - .9) = 10, not 5.26. With batch as well."""
    online = agent_with([0.0], alpha=0.5, gamma=0.9)
    batch = agent_with([0.0], alpha=1.0, gamma=0.9, batch=True, tolerance=1e-12)
    for time in range(2_000):
        online.learn(Step(0, 0, 1.0, 0, False, time % 10 == 9))
    for time in range(10):
        batch.learn(Step(0, 0, 1.0, 0, False, time == 9))
    # an error shrinks by α (1 - γ) a step
    assert online.values()[0] == near(10, terms=4, size=10 / (0.5 * (1 - 0.9)))
    # the tolerance / (1 - γ), and rounding
    assert batch.values()[0] == pytest.approx(10, rel=0, abs=1e-12 / (1 - 0.9) + 1e-14)


def test_with_a_step_size_of_one_over_n_the_value_is_the_average_of_the_targets() -> None:
    agent = agent_with([9.0], alpha="inverse(1.0)")
    for reward in (1.0, 4.0, -2.0):
        agent.learn(Step(0, 0, reward, 0, True, False))
    assert agent.values()[0] == near(1.0, terms=9, size=9.0)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_batch_td_predicts_what_the_best_model_predicts(alpha: float) -> None:
    """S&B example 6.4: V(B) = 6/8, and since A led to B always, V(A) = 3/4 too, though every return
    from A was 0."""
    agent = agent_with([0.0, 0.0], gamma=1.0, alpha=alpha, batch=True, tolerance=1e-10)
    for step in PREDICTOR:
        agent.learn(step)
    # an error of at most the tolerance, 1e-10, in each of the two steps from A to the end
    np.testing.assert_allclose(agent.values(), [0.75, 0.75], rtol=0, atol=2 * 1e-10)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_batch_td_solves_the_equation_of_the_most_likely_model(gamma: float) -> None:
    """After each of 20 episodes that wander over six states, end in every way, and pay noise."""
    rng = np.random.default_rng(4)
    agent = agent_with(rng.normal(size=7), gamma=gamma, alpha=0.9, batch=True, tolerance=1e-11)
    agent.v[6] = before = 5.0
    seen: list[Step] = []
    compared = 0
    for episode in range(20):
        state, over = int(rng.integers(6)), False
        while not over:
            terminated, truncated = (
                bool(rng.random() < 0.2),
                bool(rng.random() < 0.05) and episode > 0,
            )
            seen.append(
                Step(
                    state,
                    0,
                    float(rng.normal()),
                    int(rng.integers(6)),
                    terminated,
                    truncated and not terminated,
                )
            )
            values = agent.values()
            metrics = agent.learn(seen[-1])
            over, state = terminated or truncated, seen[-1].next_obs
            assert over or ("td_error" not in metrics and (agent.values() == values).all())
        visited = sorted({step.obs for step in seen})
        if {step.next_obs for step in seen if not step.terminated} <= set(visited):
            compared += 1
            steps = certainty_equivalence(
                [step._replace(reward=1.0) for step in seen], 7, gamma
            ).max()
            expected = certainty_equivalence(seen, 7, gamma)[visited]
            # an error of at most the tolerance, 1e-11, in each of the (discounted) steps until the
            # end
            np.testing.assert_allclose(
                agent.values()[visited], expected, rtol=0, atol=1e-11 * steps
            )
    assert compared > 10
    assert agent.values()[6] == before


@pytest.mark.slow
@pytest.mark.fast_form
def test_batch_td_leaves_the_same_table_compiled_in_a_plain_loop_and_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: dict[str, Any] = {
        "episodes": 60,
        "batch": True,
        "alpha": "linear(1.0, 0.5)",
        "max_replays": 30,
        "seed": 5,
    }
    tables = [
        rlbook.train("td_prediction", "RandomWalk-v0", simulate=how, **config).agent.state_dict()[
            "memory"
        ]
        for how in (True, False)
    ]
    learn = TDPrediction.learn
    monkeypatch.setattr(TDPrediction, "learn", lambda self, step: learn(self, step))
    tables.append(
        rlbook.train("td_prediction", "RandomWalk-v0", **config).agent.state_dict()["memory"]
    )
    for name in set(tables[0]) - {"clock"}:
        np.testing.assert_array_equal(tables[0][name], tables[1][name], err_msg=name)
        np.testing.assert_array_equal(tables[0][name], tables[2][name], err_msg=name)


def test_batch_td_stops_after_max_replays() -> None:
    agent = agent_with([0.0], gamma=1.0, alpha=0.5, batch=True, max_replays=3)
    agent.learn(Step(0, 0, 1.0, 0, True, False))
    assert agent.values()[0] == near(1 - 0.5**3, terms=3)


def test_a_restored_agent_goes_on_exactly_as_the_saved_one() -> None:
    """In the middle of an episode whose beginning is only kept, not yet learned from; the file is
    no longer than what was seen."""
    first, second = (
        agent_with(np.zeros(4), seed=seed, batch=True, gamma=0.9, max_replays=20) for seed in (1, 2)
    )

    def live(agent: TDPrediction, seed: int) -> list[int]:
        rng, actions = np.random.default_rng(seed), []
        for _ in range(37):
            actions.append(agent.act(0))
            over = bool(rng.random() < 0.2)
            agent.learn(
                Step(
                    int(rng.integers(4)),
                    actions[-1],
                    float(rng.normal()),
                    int(rng.integers(4)),
                    over,
                    False,
                )
            )
        return actions

    live(first, 0)
    saved = first.state_dict()
    assert len(saved["memory"]["states"]) == 37
    second.load_state_dict(saved)
    assert live(first, 1) == live(second, 1)
    np.testing.assert_array_equal(first.v, second.v)


# ---- the policy


def test_the_agent_acts_by_its_policy() -> None:
    """30 000 actions; a fair sampler fails this once in 10^4."""
    probabilities = [0.1, 0.0, 0.6, 0.3]
    agent = agent_with([0.0], 4, policy=[probabilities])
    counts = np.bincount([agent.act(0) for _ in range(30_000)], minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 30_000 * np.array([0.1, 0.6, 0.3])).pvalue > 1e-4
    assert agent.act(0, explore=False) == 2


def test_epsilon_mixes_the_policy_with_the_uniform_one() -> None:
    """ε = .4 and 4 actions: .1 for each, and .6 on top for the chosen one."""
    agent = agent_with([0.0, 0.0], 4, policy=(3, 1), epsilon=0.4)
    assert_near(agent.target_policy, [[0.1, 0.1, 0.1, 0.7], [0.1, 0.7, 0.1, 0.1]], terms=2)
    assert agent.greedy_policy().tolist() == [3, 1]


def test_the_optimal_policy_comes_from_the_environments_model() -> None:
    env = rlbook.make("Maze-v0")
    run = rlbook.train("td_prediction", env, episodes=1, policy="optimal")
    agent: Any = run.agent
    model = TabularMDP.from_env(env)
    assert model.policy_values(agent.target_policy, 0.99)[0] == near(2.5271882698, decimals=10)
    assert run.episode_returns == [3.0]


def test_the_last_possible_action_takes_what_rounding_leaves() -> None:
    """0.1 ten times adds up to less than 1; an action of probability 0 behind it may not be chosen,
    however close to 1 the number is."""
    sums = cumulative(np.array([[0.1] * 10 + [0.0], [0.0] * 10 + [1.0]]))
    assert sums[0, 8] < 1.0 == sums[0, 9] == sums[0, 10]
    assert sums[1, 9] == 0.0


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (
            "optimum",
            (
                "policy must be 'uniform', 'optimal', 'epsilon-greedy', one action .*, got"
                " 'optimum' .did you mean 'optimal'"
            ),
        ),
        (
            [[0.5, 0.4]] * 25,
            (
                r"policy must have probabilities of at least 0 that add up to 1 in each state, got"
                r" \(0.5, 0.4\) in state 0"
            ),
        ),
        ([[1.5, -0.5, 0, 0]] * 25, "policy must have probabilities of at least 0"),
        ([[float("nan"), 0, 0, 1]] * 25, "policy must have probabilities of at least 0"),
        (
            [],
            (
                r"policy must be 'uniform', 'optimal', 'epsilon-greedy', one action per state or rows"
                r" of probabilities, got \[\]|got \(\)"
            ),
        ),
        (
            [0.5] * 25,
            "policy must be 'uniform', 'optimal', 'epsilon-greedy', one action per state or rows",
        ),
        (
            [0, 1],
            (
                "td_prediction does not train on Maze-v0: policy must have one entry for each of"
                " the 25 states, got 2"
            ),
        ),
        ([0] * 24 + [4], "policy must name actions from 0 to 3, got 4 in state 24"),
        (
            [[0.5, 0.5]] * 25,
            "policy must have one probability for each of the 4 actions, got 2 in state 0",
        ),
        (
            [[1, 0, 0, 0]] * 24 + [[0.5, 0.5]],
            "policy must have one probability for each of the 4 actions, got 2 in state 24",
        ),
    ],
)
def test_a_policy_that_does_not_fit_is_one_sentence(policy: Any, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        rlbook.train("td_prediction", "Maze-v0", steps=5, policy=policy)


def test_the_optimal_policy_needs_a_model() -> None:
    with pytest.raises(
        RequestError, match=r"td_prediction does not train on Blackjack-v1: .*model"
    ):
        rlbook.train("td_prediction", "Blackjack-v1", steps=5, policy="optimal")


def test_a_policy_can_stand_on_the_command_line_in_a_file_and_in_config_yaml(
    tmp_path: Path,
) -> None:
    rows = [[0.25, 0.75], [1, 0]] * 3 + [[0.5, 0.5]]
    (tmp_path / "policy.json").write_text(json.dumps(rows))
    words = ["td_prediction", "RandomWalk-v0", "--policy"]
    assert parse_train([*words, "optimal"]).hyperparameters == {"policy": "optimal"}
    assert parse_train([*words, "0,1,1"]).hyperparameters == {"policy": (0, 1, 1)}
    assert parse_train([*words, "0", "1", "1"]).hyperparameters == {"policy": (0, 1, 1)}
    assert parse_train([*words, str(tmp_path / "policy.json")]).hyperparameters == {"policy": rows}
    run = rlbook.train(
        "td_prediction", "RandomWalk-v0", episodes=2, policy=rows, out=tmp_path / "run"
    )
    again: Any = rlbook.load(tmp_path / "run")
    assert again.request.config == run.request.config
    np.testing.assert_array_equal(again.agent.target_policy, np.array(rows))


def test_a_policy_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("[0, 1")
    for file in ("missing.json", "broken.json"):
        with pytest.raises(
            RequestError, match="--policy must name a JSON file that can be read, got "
        ):
            convert("--policy", OptionText((str(tmp_path / file),)), str | tuple[int, ...])


@pytest.mark.parametrize("env", ["Blackjack-v1", "Taxi-v4", "CartPole-v1", "Pendulum-v1"])
def test_it_trains_where_a_table_fits(env: str) -> None:
    run: Any = rlbook.train("td_prediction", env, steps=300, simulate=False)
    assert run.steps == 300
    assert run.agent.values().any()
