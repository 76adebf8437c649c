"""Agents with a table keep to action masks: they never take a forbidden action, and learn the
values of the allowed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near, rounding_bound
from masked_doors import GAMMA, LEADS_TO, OPEN, PAYS, Doors, DoorsTable, exact_action_values

import rlbook
from rlbook.errors import TrainingError
from rlbook.fast.tabular.table_interaction import EnvInteraction, TableInteraction
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.action_masks import UNUSED

ROOMS = slice(0, 4)
CONTROL = (
    "q_learning",
    "double_q_learning",
    "dyna_q",
    "dyna_q_plus",
    "watkins_q_lambda",
    "expected_sarsa",
    "sarsa",
    "n_step_sarsa",
    "sarsa_lambda",
    "mc_control",
    "off_policy_mc",
)
PREDICTION = ("td_prediction", "n_step_td", "td_lambda", "mc_prediction", "off_policy_mc")
LAST_EPSILON = 1e-6
FADES = {"epsilon": f"exponential(1.0, {LAST_EPSILON})"}
AVERAGES = ("off_policy_mc",)
"""What has no step size."""


def trained(name: str, env: Any = None, episodes: int = 2_000, **settings: Any) -> Any:
    """An agent whose table begins as high as a closed door would pay."""
    alpha = {} if name in AVERAGES else {"alpha": 0.5}
    kappa = {"kappa": 0.0} if name == "dyna_q_plus" else {}
    kwargs = {"gamma": GAMMA, "initial_value": 9.0, "eval_every": 0, **alpha, **kappa, **settings}
    return rlbook.train(name, Doors() if env is None else env, episodes=episodes, **kwargs)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", CONTROL)
def test_the_values_become_the_exact_ones_over_the_open_doors(name: str, seed: int) -> None:
    """`Doors` raises where a closed one is tried. All is deterministic, so what is left of an error
    is halved at each visit, except expected SARSA's: it learns the values of a policy that opens
    any open door with probability ε, which loses at most ε times the largest difference of two
    values, 3.5, at each of the steps that count, 1 / (1 - γ) = 2.
    """
    agent, exact = trained(name, seed=seed, **FADES).agent, exact_action_values()[ROOMS]
    off = 7 * LAST_EPSILON if name == "expected_sarsa" else 0.0
    assert agent.values()[ROOMS] == pytest.approx(
        exact.max(axis=1), rel=0, abs=off + rounding_bound("float64", terms=500)
    )
    assert (agent.greedy_policy()[ROOMS] == exact.argmax(axis=1)).all()
    assert (np.isneginf(agent.q[ROOMS]) == ~OPEN[ROOMS]).all()


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("exploration", ["epsilon-greedy", "softmax", "ucb"])
@pytest.mark.parametrize("name", CONTROL)
def test_no_way_to_explore_tries_a_closed_door(name: str, exploration: str) -> None:
    if exploration == "ucb" and name in ("expected_sarsa", "off_policy_mc"):
        return  # which need the probabilities of a policy
    agent = trained(name, episodes=100, exploration=exploration, epsilon=1.0).agent
    assert np.isfinite(agent.q[ROOMS][OPEN[ROOMS]]).all()
    policy = agent.own_policy()
    if policy is not None:
        assert policy[ROOMS].sum(axis=1) == near(np.ones(4), terms=3)
        assert (policy[ROOMS][~OPEN[ROOMS]] == 0.0).all()


@pytest.mark.parametrize("starts", ["actions", "pairs"])
def test_exploring_starts_try_open_doors_alone(starts: str) -> None:
    env = Doors() if starts == "actions" else DoorsTable()
    with use_plain_forms(True):  # compiling takes longer
        agent = trained("mc_control", env, exploring_starts=starts, **FADES).agent
    assert agent.values()[ROOMS] == near(exact_action_values()[ROOMS].max(axis=1), terms=500)


@pytest.mark.thorough(quick=1)
@pytest.mark.fast_form
@pytest.mark.parametrize("name", CONTROL)
def test_one_step_at_a_time_and_many_at_once_leave_the_same_table(name: str) -> None:
    for seed in range(6):
        runs = [trained(name, episodes=20, seed=seed)]
        with use_plain_forms(True):
            runs.append(trained(name, episodes=20, seed=seed))
        assert all(isinstance(run._source.interaction, EnvInteraction) for run in runs)
        tables = [run.agent.state_dict()["memory"] for run in runs]
        for key, table in tables[0].items():
            np.testing.assert_array_equal(table, tables[1][key])
        assert runs[0].episode_returns == runs[1].episode_returns


@pytest.mark.fast_form
def test_in_the_tables_of_a_model_the_masks_are_the_environments_method() -> None:
    """There a closed door would pay 9 and end the episode."""
    runs = [trained("q_learning", DoorsTable(), seed=2, **FADES)]
    with use_plain_forms(True):
        runs.append(trained("q_learning", DoorsTable(), seed=2, **FADES))
    assert all(isinstance(run._source.interaction, TableInteraction) for run in runs)
    exact = exact_action_values()[ROOMS]
    for run in runs:
        assert run.agent.values()[ROOMS] == near(exact.max(axis=1), terms=500)
    np.testing.assert_array_equal(runs[0].agent.q, runs[1].agent.q)
    stepped = trained("q_learning", DoorsTable(), seed=2, simulate=False, **FADES)
    assert stepped.agent.values()[ROOMS] == near(exact.max(axis=1), terms=500)


def test_a_table_of_a_users_own_that_shows_masks_without_a_method_is_stepped() -> None:
    class Shows(Doors):
        def model(self) -> Any:
            return DoorsTable().model()

    assert type(trained("q_learning", Shows(), episodes=10)._source.interaction) is EnvInteraction
    assert (
        type(trained("q_learning", Shows(shows=False), episodes=10)._source.interaction)
        is TableInteraction
    )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", PREDICTION)
def test_a_given_policy_is_followed_and_evaluated_over_the_open_doors(name: str) -> None:
    """Of the doors that it would take one is open in each room: 0, 1, 2, 2."""
    policy, taken = (
        ((0.5, 0, 0.5), (0.5, 0.5, 0), (0, 0.5, 0.5), (0.2, 0.3, 0.5), (1, 0, 0), (1, 0, 0)),
        np.array([0, 1, 2, 2]),
    )
    value = np.zeros(6)
    for _ in range(100):
        value[ROOMS] = PAYS[np.arange(4), taken] + GAMMA * value[LEADS_TO[np.arange(4), taken]]
    prediction = {"task": "prediction", "epsilon": 0.5} if name == "off_policy_mc" else {}
    run = trained(name, episodes=500, policy=policy, **prediction)
    assert run.agent.values()[ROOMS] == near(value[ROOMS], terms=500)
    assert UNUSED not in run.notes
    assert [
        run.agent.act(room, explore=False, action_mask=OPEN[room]) for room in range(4)
    ] == taken.tolist()


@pytest.mark.thorough
def test_importance_weights_are_1_on_average_over_the_open_doors() -> None:
    """Of 5 000 episodes: a weight's deviation is below 2, so that the mean's is below 2 / √5000 =
    0.03."""
    policy = ((0.5, 0, 0.5), (0.5, 0.5, 0), (0, 0.5, 0.5), (0.2, 0.3, 0.5), (1, 0, 0), (1, 0, 0))
    agent = trained(
        "off_policy_mc",
        task="prediction",
        epsilon=0.5,
        policy=policy,
        weighting="ordinary",
        episodes=5_000,
    ).agent
    rates = agent.rates()
    assert rates["mean_weight"] == pytest.approx(1.0, rel=0, abs=4 * 2 / 5_000**0.5)
    assert rates["weight_variance"] < 4.0


def test_a_state_that_was_never_shown_keeps_to_the_mask_that_comes_with_it() -> None:
    agent = trained("q_learning", episodes=1).agent
    agent.memory.q[:] = 0.0
    for room in range(4):
        before = agent.state_dict()
        for allowed in (OPEN[room], ~OPEN[room]):
            assert allowed[agent.act(room, explore=False, action_mask=allowed)]
        # acting greedily notes nothing
        np.testing.assert_array_equal(agent.q, before["memory"]["q"])
    agent.act(0, action_mask=np.array([True, False, False]))
    assert np.isneginf(agent.q[0]).tolist() == [False, True, True]
    with pytest.raises(
        TrainingError,
        match=r"mask of state 0 was \[1, 0, 0\] and is now \[1, 1, 0\]: a table .* needs masks",
    ):
        # Q(s, a) cannot be a number and -∞ by turns
        agent.act(0, action_mask=np.array([True, True, False]))


@pytest.mark.parametrize(
    "name",
    [
        "double_q_learning",
        "off_policy_mc",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("q_learning", "sarsa")),
    ],
)
def test_a_run_that_is_taken_up_again_leaves_the_same_table(name: str, tmp_path: Path) -> None:
    gymnasium.register("tests/Doors-v0", entry_point=Doors)
    try:
        whole = trained(name, "tests/Doors-v0", out=tmp_path / "whole", episodes=60, epsilon=0.3)
        trained(name, "tests/Doors-v0", out=tmp_path / "parts", episodes=25, epsilon=0.3)
        resumed = rlbook.load(tmp_path / "parts").resume(episodes=60)
        assert (rlbook.evaluate(rlbook.load(tmp_path / "whole"), episodes=20).returns > 0).all()
    finally:
        del gymnasium.registry["tests/Doors-v0"]
    np.testing.assert_array_equal(resumed.agent.q, whole.agent.q)
    assert (np.isneginf(resumed.agent.q[ROOMS]) == ~OPEN[ROOMS]).all()


class WithoutMasks(gymnasium.Wrapper):
    """Taxi as it was before it showed masks."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        return obs, {key: value for key, value in info.items() if key != "action_mask"}

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return *result, {key: value for key, value in info.items() if key != "action_mask"}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_taxi_is_learned_sooner_with_its_masks(seed: int) -> None:
    """The mean return of the first 100 training episodes: about -95 and -250."""
    settings: dict[str, Any] = {
        "episodes": 100,
        "seed": seed,
        "alpha": 0.5,
        "epsilon": 0.1,
        "eval_every": 0,
    }
    masked = rlbook.train("q_learning", "Taxi-v4", simulate=False, **settings)
    plain = rlbook.train("q_learning", WithoutMasks(gymnasium.make("Taxi-v4")), **settings)
    assert np.mean(masked.episode_returns) > np.mean(plain.episode_returns) + 100
