"""Monte Carlo on one episode by hand: which visits count, in what order, what a time limit means,
and what is kept between steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.tabular.mc_control import MCControl, MCControlConfig
from rlbook.algorithms.tabular.prediction.mc_prediction import MCPrediction, MCPredictionConfig
from rlbook.envs import TabularMDP
from rlbook.errors import RequestError
from rlbook.fast.tabular.table_interaction import interaction_for
from rlbook.interaction.budget import Budget
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import loop
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.seeding import rng_for


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def predictor(num_states: int = 4, **config: Any) -> MCPrediction:
    env: Any = Spaces(num_states, 1)
    return MCPrediction(env, MCPredictionConfig(**config))


def controller(num_states: int = 4, num_actions: int = 1, **config: Any) -> MCControl:
    env: Any = Spaces(num_states, num_actions)
    return MCControl(env, MCControlConfig(**config))


def play(
    agent: Any,
    states: list[int],
    rewards: list[float],
    actions: list[int] | None = None,
    *,
    truncated: bool = False,
) -> list[dict]:
    """An episode through `states` [T + 1], of which the last is where it ended; returns what
    `learn` logged."""
    agent.begin()
    logged = []
    for time, reward in enumerate(rewards):
        last, action = time == len(rewards) - 1, 0 if actions is None else actions[time]
        logged.append(
            agent.learn(
                Step(
                    states[time],
                    action,
                    reward,
                    states[time + 1],
                    last and not truncated,
                    last and truncated,
                )
            )
        )
    return logged


REVISIT = [0, 1, 0, 2, 3], [1.0, 0.0, 2.0, 3.0]  # states 0 1 0 2 and the end; state 0 is met twice


@pytest.mark.parametrize("visits", ["first", "every"])
@pytest.mark.parametrize("make", [predictor, controller])
def test_first_and_every_visit_give_the_recorded_values_of_a_revisit(
    fixtures: dict[str, Any], make: Any, visits: str
) -> None:
    """γ = .9: G = 3, 2 + .9·3 = 4.7, 0 + .9·4.7 = 4.23, 1 + .9·4.23 = 4.807. State 0: 4.807, or
    (4.807 + 4.7) / 2 = 4.7535."""
    agent = make(visits=visits, gamma=0.9, initial_value=2.0)
    play(agent, *REVISIT)
    table = agent.values()
    assert_near(table[:3], fixtures["mc_revisit"][f"{visits}_visit"], terms=4)
    assert table[3] == 2.0


@pytest.mark.parametrize("make", [predictor, controller])
def test_a_constant_step_size_moves_a_share_of_the_way_visit_by_visit(
    fixtures: dict[str, Any], make: Any
) -> None:
    """α = .5, V = (.5, 1, 2): state 0 goes to (.5 + 4.807) / 2 = 2.6535 and on to (2.6535 + 4.7) /
    2 = 3.67675: n-step TD with n = 4."""
    agent = make(visits="every", gamma=0.9, alpha=0.5)
    table = agent.memory.v if make is predictor else agent.memory.q[:, 0]
    table[:3] = [0.5, 1.0, 2.0]
    play(agent, *REVISIT)
    assert_near(agent.values()[:3], fixtures["nstep_td_revisit"]["n=4"], terms=6)


def test_first_visit_control_goes_by_state_and_action() -> None:
    """Actions 0, 0, 1, 0: state 0 is met twice, each time with another action, so both returns
    count: 1 + 2 + 3 + 4 = 10 and 3 + 4 = 7."""
    agent = controller(num_actions=2, gamma=1.0)
    play(agent, [0, 1, 0, 2, 3], [1.0, 2.0, 3.0, 4.0], [0, 0, 1, 0])
    assert agent.q.tolist() == [[10.0, 7.0], [9.0, 0.0], [4.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("make", [predictor, controller])
def test_with_step_size_one_over_n_the_value_is_the_average_of_the_returns(make: Any) -> None:
    agent, returns = make(initial_value=-7.0), [3.0, -1.0, 5.0, 0.5]
    for reward in returns:
        play(agent, [0, 1], [reward])
    assert agent.values()[0] == near(sum(returns) / 4, terms=4, size=7)


@pytest.mark.parametrize("make", [predictor, controller])
def test_gamma_zero_averages_the_rewards(make: Any) -> None:
    """State 0 pays 1 and 2, state 1 pays 0: means 1.5 and 0."""
    agent = make(gamma=0.0, visits="every")
    play(agent, *REVISIT)
    assert agent.values()[:3].tolist() == [1.5, 0.0, 3.0]


@pytest.mark.parametrize("make", [predictor, controller])
def test_nothing_is_learnt_before_the_end(make: Any) -> None:
    agent = make(initial_value=0.5, gamma=1.0, alpha=0.5)
    logged = play(agent, *REVISIT)
    assert ["td_error" in item for item in logged] == [False, False, False, True]
    errors = 6 - 0.5, 5 - 0.5, 3 - 0.5  # |G - V| of states 0, 1, 2
    assert logged[-1]["td_error"] == near(sum(errors) / 3, terms=3)


@pytest.mark.parametrize("make", [predictor, controller])
def test_a_time_limit_continues_with_the_tables_own_opinion(make: Any) -> None:
    """G_1 = 2 + .9·4 = 5.6, G_0 = 1 + .9·5.6 = 6.04. Taking the limit for an end would give 2 and
    2.8."""
    agent = make(gamma=0.9)
    table = agent.memory.v if make is predictor else agent.memory.q[:, 0]
    table[2] = 4.0
    play(agent, [0, 1, 2], [1.0, 2.0], truncated=True)
    assert_near(agent.values(), [6.04, 5.6, 4.0, 0.0], terms=3)


def test_control_continues_behind_a_time_limit_as_its_policy_does() -> None:
    """ε = .5 over values 1 and 5: .75·5 + .25·1 = 4 on average; greedy alone would say 5."""
    agent = controller(num_actions=2, gamma=1.0, epsilon=0.5)
    agent.q[2] = [1.0, 5.0]
    play(agent, [0, 2], [1.0], [1], truncated=True)
    assert agent.q[0, 1] == near(1 + 4, terms=3)


def test_one_state_with_a_time_limit_is_worth_reward_over_one_minus_gamma() -> None:
    """r = 1, a limit of 10 steps, γ = .9: 1 / (1 - .9) = 10; taking the limit for an end would
    never come above (1 - .9^10) / .1 = 6.51."""
    agent = predictor(1, gamma=0.9, alpha=0.5)
    for _ in range(200):
        play(agent, [0] * 11, [1.0] * 10, truncated=True)
    # each of the 2 000 updates leaves at most .95 of the distance
    assert agent.values()[0] == near(10, terms=10, size=10 / (1 - 0.9))


@pytest.mark.parametrize("make", [predictor, controller])
def test_an_episode_that_is_dropped_leaves_no_trace(make: Any) -> None:
    agent, fresh = make(), make()
    for state in (0, 1, 2):
        agent.learn(Step(state, 0, 9.0, 3, False, False))
    for other in (agent, fresh):
        play(other, *REVISIT)
    np.testing.assert_array_equal(agent.values(), fresh.values())


@pytest.mark.parametrize("make", [predictor, controller])
def test_an_agent_saved_in_the_middle_of_an_episode_goes_on_with_it(make: Any) -> None:
    whole, first, second = make(), make(), make()
    states, rewards = [0, 1, 0, 2, 1, 0, 2, 1, 3], [1.0, 0.0, 2.0, 3.0, -1.0, 4.0, 0.5, 1.0]
    play(whole, states, rewards)
    steps = [Step(states[t], 0, rewards[t], states[t + 1], t == 7, False) for t in range(8)]
    for step in steps[:5]:
        first.learn(step)
    saved = first.state_dict()
    assert len(saved["memory"]["rewards"]) == 5
    second.load_state_dict(saved)
    for step in steps[5:]:
        second.learn(step)
    np.testing.assert_array_equal(whole.values(), second.values())
    assert whole.state_dict()["memory"].keys() == second.state_dict()["memory"].keys()
    assert all(
        np.array_equal(table, second.state_dict()["memory"][name])
        for name, table in whole.state_dict()["memory"].items()
    )


def test_an_episode_longer_than_any_chunk_is_kept_whole() -> None:
    """One state that leads to itself 40 000 times and then ends: V is the whole return, with γ = 1
    as long as the episode."""
    model = TabularMDP.from_arrays(
        np.array([[1.0, 0.0], [0.0, 1.0]]),
        np.array([[1.0], [0.0]]),
        terminal=[False, True],
        initial=[1.0, 0.0],
    )
    env = rlbook.envs.TabularEnv(model)
    env.spec = gymnasium.envs.registration.EnvSpec("Long", max_episode_steps=40_000)
    env = gymnasium.wrappers.TimeLimit(env, 40_000)
    run = rlbook.train(
        "mc_prediction", env, episodes=1, gamma=1.0, eval_every=0, initial_value=0.25
    )
    assert run.steps == 40_000
    assert run.agent.values()[0] == 40_000 + 0.25  # the cut continues with what V was


def test_relabelled_states_permute_the_values() -> None:
    order, plain, other = (
        np.array([2, 0, 3, 1]),
        controller(num_actions=2),
        controller(num_actions=2),
    )
    rng = np.random.default_rng(0)
    for _ in range(30):
        states, actions, rewards = (
            rng.integers(4, size=7).tolist(),
            rng.integers(2, size=6).tolist(),
            rng.normal(size=6).tolist(),
        )
        play(plain, states, rewards, actions)
        play(other, order[states].tolist(), rewards, actions)
    np.testing.assert_array_equal(plain.q, other.q[order])


@pytest.mark.parametrize("scale", [4.0, 0.25])
def test_scaled_rewards_scale_the_values(scale: float) -> None:
    """By powers of two, so that not a bit is rounded."""
    plain, scaled = predictor(), predictor()
    play(plain, *REVISIT)
    play(scaled, REVISIT[0], [scale * reward for reward in REVISIT[1]])
    np.testing.assert_array_equal(scale * plain.values(), scaled.values())


# ---- exploring starts


def started(
    exploring_starts: str, episodes: int, **config: Any
) -> tuple[list[int], list[int], Any]:
    """The first state and action of each episode in the maze, and the agent."""
    env = ResumableEnv(rlbook.make("Maze-v0"))
    settings = MCControlConfig(exploring_starts=exploring_starts, epsilon=0.0, **config)
    fitted = AdaptedEnv(env, adapt_to(MCControl, env, settings))
    agent = MCControl(fitted, settings, 0)
    streams: Any = interaction_for(
        agent, fitted, EnvRecipe.from_env("Maze-v0"), rng_for(0, "environment")
    )
    states, actions = [], []
    streams.start()
    agent.begin()
    for _ in range(episodes):
        states.append(int(streams.obs))
        streams_before = streams.episodes
        while streams.episodes == streams_before:
            streams.advance(agent, Budget(None, streams_before + 1))
        actions.append(int(agent.memory.actions[0]))
    return states, actions, agent


@pytest.mark.slow
def test_exploring_starts_begin_in_every_state_with_every_action() -> None:
    """18 free cells that are not the goal; 1 000 episodes leave one of the 72 pairs out less than
    once in 10 000 (72 (71/72)^1000)."""
    states, actions, _ = started("pairs", 1_000)
    assert len(set(states)) == 18
    assert len(set(zip(states, actions, strict=True))) == 72


def test_only_the_first_action_of_an_exploring_episode_is_any() -> None:
    """ε = 0 and one action far ahead: the first is uniform over 4 (1 000 draws, 5 standard errors),
    all others are the best."""
    agent = controller(num_actions=4, epsilon=0.0, exploring_starts="actions")
    agent.q[:, 2] = 100.0
    counts = np.bincount([agent.act(0) for _ in range(1_000)], minlength=4)
    assert (np.abs(counts - 250) < 5 * np.sqrt(1_000 * 0.25 * 0.75)).all()
    agent.learn(Step(0, 1, 0.0, 1, False, False))
    assert {agent.act(1) for _ in range(50)} == {2}


def test_exploring_actions_leave_the_state_to_the_environment() -> None:
    states, actions, _ = started("actions", 200)
    assert set(states) == {0}
    assert set(actions) == {0, 1, 2, 3}


def test_without_a_model_no_state_can_be_chosen_to_start_in() -> None:
    for env, config in (("Blackjack-v1", {}), ("Maze-v0", {"simulate": False})):
        with pytest.raises(
            RequestError,
            match="exploring_starts 'pairs' needs an environment whose model can be sampled",
        ):
            rlbook.train("mc_control", env, episodes=1, exploring_starts="pairs", **config)
    rlbook.train("mc_control", "Blackjack-v1", episodes=5, exploring_starts="actions", eval_every=0)


def test_a_model_with_other_starts_shares_everything_else() -> None:
    model = TabularMDP.from_env(rlbook.make("FrozenLake-v1"))
    other = model.with_initial(np.full(16, 1 / 16))
    assert other.transitions is model.transitions and other.rewards is model.rewards
    assert other.outcomes.start_state.tolist() == list(
        range(16)
    ) and model.outcomes.start_state.tolist() == [0]
    np.testing.assert_array_equal(other.outcomes.reward, model.outcomes.reward)
    for wrong in (np.full(15, 1 / 15), np.full(16, 0.1), -np.eye(16)[0]):
        with pytest.raises(ValueError, match="initial must be 16 probabilities that add up to 1"):
            model.with_initial(wrong)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"visits": "last"}, "visits must be one of 'first', 'every', got 'last'"),
        (
            {"exploring_starts": "pair"},
            (
                r"exploring_starts must be one of 'none', 'actions', 'pairs', got 'pair' \(did you"
                r" mean"
            ),
        ),
        ({"alpha": 0.0}, r"alpha must be a number in \(0, 1\] at all times"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MCControlConfig(**config)


def test_every_step_is_logged_with_numbers_that_are_explained() -> None:
    for agent, names in (
        (predictor(alpha=0.1), {"td_error", "alpha"}),
        (controller(alpha=0.1), {"td_error", "alpha", "epsilon"}),
    ):
        logged = play(agent, *REVISIT)
        assert set().union(*logged) == names
        assert names <= type(agent).METRICS.keys()


def test_stepping_one_by_one_is_the_same_as_the_loop() -> None:
    """The chunked stream of an environment and the plain one: the same generators, the same
    table."""
    tables = []
    for kind in ("one", "many"):
        env = ResumableEnv(rlbook.make("Blackjack-v1"))
        fitted = AdaptedEnv(env, adapt_to(MCControl, env, MCControlConfig()))
        agent = MCControl(fitted, MCControlConfig(), 0)
        rng = rng_for(0, "environment")
        streams = (
            SingleInteraction(fitted, rng)
            if kind == "one"
            else interaction_for(agent, fitted, EnvRecipe.from_env("Blackjack-v1"), rng)
        )
        for _ in loop(agent, streams, Budget(500, None)):
            pass
        tables.append(agent.q.copy())
    np.testing.assert_array_equal(*tables)
