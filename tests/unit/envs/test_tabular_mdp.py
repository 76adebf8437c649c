"""Models: what is taken from an environment, what is refused, and the equations on it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near
from gymnasium import spaces
from scipy import sparse

from rlbook.algorithms.tabular.mc_control import MCControl, MCControlConfig
from rlbook.envs import Maze, TabularEnv, TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.runs.exact_evaluation import ExactEvaluation

TOY_TEXT: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {"map_name": "4x4", "is_slippery": True}),
    ("FrozenLake-v1", {"map_name": "4x4", "is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": True}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
]


def table_values(table: Any, gamma: float, sweeps: int) -> np.ndarray:
    """Value iteration written straight from gymnasium's documentation of `P`, slowly."""
    values = [0.0] * len(table)
    for _ in range(sweeps):
        values = [
            max(
                sum(
                    p * (r + gamma * values[s] * (not end)) for p, s, r, end in table[state][action]
                )
                for action in table[state]
            )
            for state in range(len(table))
        ]
    return np.array(values)


@pytest.mark.parametrize(("env_id", "options"), TOY_TEXT)
def test_a_table_of_gymnasium_becomes_a_model_of_the_same_numbers(
    env_id: str, options: dict[str, Any]
) -> None:
    env: Any = gymnasium.make(env_id, **options).unwrapped
    model = TabularMDP.from_env(env)
    assert (model.num_states, model.num_actions) == (env.observation_space.n, env.action_space.n)
    totals = np.asarray(model.transitions.sum(axis=1)).ravel()
    assert_near(totals, np.ones(len(totals)), terms=4)
    assert_near(model.initial, env.initial_state_distrib, terms=model.num_states)
    for state in range(0, model.num_states, 7):
        for action in range(model.num_actions):
            expected = np.zeros(model.num_states)
            for probability, successor, _, _ in env.P[state][action]:
                expected[successor] += probability
            assert_near(
                model.transitions[[state * model.num_actions + action]].toarray()[0],
                expected,
                terms=4,
            )
    values = np.zeros(model.num_states)
    for _ in range(60):
        values = model.backup(values, 0.9).max(axis=1)
    assert_near(values, table_values(env.P, 0.9, 60), terms=60 * 4)


def test_successors_named_twice_are_added_up() -> None:
    """FrozenLake's corner names state 0 twice, with 1/3 each; overwriting gives V*(0) = .3852567
    instead of .5420259."""
    model = TabularMDP.from_env(gymnasium.make("FrozenLake-v1"))
    assert model.transitions[[0]].toarray()[0][[0, 4]] == near([2 / 3, 1 / 3], terms=2)


@pytest.mark.parametrize(
    ("env_id", "start", "value", "bug"),
    [("CliffWalking-v1", 36, -12.2479, -100.0), ("Taxi-v4", None, 6.3275, 835.04)],
)
def test_nothing_is_expected_from_beyond_the_end(
    env_id: str, start: int | None, value: float, bug: float
) -> None:
    model = TabularMDP.from_env(gymnasium.make(env_id))
    values = np.zeros(model.num_states)
    for _ in range(3000):
        values = model.backup(values, 0.99).max(axis=1)
    at_start = values[start] if start is not None else model.initial @ values
    assert at_start == near(value, decimals=4, terms=3000)
    assert abs(at_start - bug) > 50


def test_rewards_are_expected_rewards() -> None:
    model = TabularMDP.from_env(gymnasium.make("FrozenLake-v1"))
    # left of the goal: left, down, right, up
    assert model.rewards[14].tolist() == near([0, 1 / 3, 1 / 3, 1 / 3], terms=3)


@pytest.mark.parametrize(
    ("env_id", "reachable"),
    [("CliffWalking-v1", 48 - 10), ("Taxi-v4", 25 * 4 * 4 + 4), ("FrozenLake-v1", 16)],
)
def test_reachable_states_are_counted_without_going_beyond_an_end(
    env_id: str, reachable: int
) -> None:
    """The cliff has 10 cells; a taxi is at one of 25 places with 4 + 1 - 1 for the passenger and 4
    for the goal, or done at one of 4."""
    assert TabularMDP.from_env(gymnasium.make(env_id)).reachable().sum() == reachable


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_policy_values_solve_the_dense_linear_system(gamma: float) -> None:
    model = TabularMDP.from_env(gymnasium.make("FrozenLake-v1"))
    policy = np.random.default_rng(0).dirichlet(np.ones(4), size=16)
    chain = np.einsum(
        "sa,sat->st", policy, (model.transitions.toarray() * ~model.terminal).reshape(16, 4, 16)
    )
    chain[model.terminal] = 0.0
    expected = np.linalg.solve(np.eye(16) - gamma * chain, (policy * model.rewards).sum(axis=1))
    condition = 2 * float(model.expected_steps(policy).max())  # of 1 - γ P, at most
    assert_near(model.policy_values(policy, gamma), expected, terms=16, size=condition)


def test_a_deterministic_policy_may_be_given_as_integers() -> None:
    model = Maze().model()
    policy = np.array([3, 3, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 3, 3, 0, 3, 3, 0, 0, 0, 0, 0, 0, 3, 0])
    assert model.policy_values(policy, 1.0)[0] == near(7 * -1 + 10, terms=8, size=7.0 + 10)
    assert model.expected_steps(policy)[0] == near(8, terms=8)


def test_without_discount_a_policy_that_never_ends_has_no_values() -> None:
    """Only the goal's column leads to the goal by going up: 19 - 5 cells do not."""
    always_up = np.zeros(25, dtype=int)
    with pytest.raises(
        ValueError,
        match=(
            "policy never ends the episode from 14 states, so with gamma 1 it has no values there"
        ),
    ):
        Maze().model().policy_values(always_up, 1.0)
    size = 50 / (1 - 0.9)  # V, times the condition 1 / (1 - γ)
    assert Maze().model().policy_values(always_up, 0.9)[0] == near(
        -5 / (1 - 0.9), terms=25, size=size
    )


def two_states() -> tuple[np.ndarray, np.ndarray]:
    """A coin: action 0 stays, action 1 goes over with probability .25. Reward 1 in state 0."""
    return np.array([[1, 0], [0.75, 0.25], [0, 1], [0.25, 0.75]]), np.array(
        [[1.0, 1.0], [0.0, 0.0]]
    )


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.coo_matrix])
def test_a_model_from_arrays(kind: Any) -> None:
    transitions, rewards = two_states()
    model = TabularMDP.from_arrays(kind(transitions), rewards)
    values = np.array([10.0, 20.0])
    assert_near(
        model.backup(values, 0.5), [[1 + 0.5 * 10, 1 + 0.5 * 12.5], [0.5 * 20, 0.5 * 17.5]], terms=3
    )
    assert_near(model.transitions.toarray(), transitions, terms=2)
    assert model.initial.tolist() == [0.5, 0.5]


def test_a_dense_model_has_an_axis_for_each_of_state_action_and_successor() -> None:
    transitions, rewards = two_states()
    dense = TabularMDP.from_arrays(transitions.reshape(2, 2, 2), rewards)
    nested = TabularMDP.from_arrays(transitions.reshape(2, 2, 2).tolist(), rewards.tolist())
    for model in (dense, nested):
        np.testing.assert_array_equal(model.transitions.toarray(), transitions)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_state_whose_rows_are_all_zero_is_terminal(kind: Any) -> None:
    """As if it had been named; what its rewards say is ignored then, too."""
    transitions, rewards = two_states()
    named = TabularMDP.from_arrays(transitions, rewards, terminal=np.array([False, True]))
    transitions[2:], rewards[1] = 0.0, 5.0
    model = TabularMDP.from_arrays(kind(transitions), rewards)
    assert model.terminal.tolist() == [False, True] and model.initial.tolist() == [1.0, 0.0]
    values = np.array([10.0, 20.0])
    np.testing.assert_array_equal(model.backup(values, 0.5), named.backup(values, 0.5))
    np.testing.assert_array_equal(model.transitions.toarray(), named.transitions.toarray())


def test_entering_a_terminal_state_ends_the_episode_and_its_own_rows_do_not_count() -> None:
    transitions, rewards = two_states()
    rewards[1] = 7.0
    model = TabularMDP.from_arrays(transitions, rewards, terminal=np.array([False, True]))
    assert_near(
        model.backup(np.array([10.0, 20.0]), 0.5),
        [[1 + 0.5 * 10, 1 + 0.5 * 0.75 * 10], [0, 0]],
        terms=3,
    )
    assert model.terminal.tolist() == [False, True]
    assert model.initial.tolist() == [1.0, 0.0]


CHAIN = [(0, 0, 1, 1.0, 0.0, False), (1, 0, 2, 1.0, 0.0, True), (2, 0, 2, 1.0, 0.0, True)]
"""0 → 1 → the end: both steps pay nothing."""


def chain_of_arrays() -> TabularMDP:
    transitions = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    return TabularMDP.from_arrays(transitions, np.zeros((3, 1)))


def chain_that_stays_at_its_end() -> TabularMDP:
    """As where the observation after the last step is the one before it."""
    return from_entries([CHAIN[0], (1, 0, 1, 1.0, 0.0, True), CHAIN[2]], 3, 1)


@pytest.mark.parametrize(
    "model",
    [
        chain_of_arrays(),
        from_entries(CHAIN, 3, 1, initial=[0.5, 0.5, 0.0]),
        from_entries(CHAIN, 3, 1),
        chain_that_stays_at_its_end(),
        from_entries(CHAIN, 3, 1, initial=[1.0, 0.0, 0.0]).with_initial(np.full(3, 1 / 3)),
    ],
    ids=["arrays", "entries", "entries, no start named", "stays at its end", "another start"],
)
def test_a_step_that_ends_the_episode_and_pays_nothing_is_a_step(model: TabularMDP) -> None:
    assert model.terminal.tolist() == [False, False, True]
    assert model.expected_steps(np.zeros(3, dtype=int)).tolist() == [2.0, 1.0, 0.0]


def test_the_only_state_of_a_bandit_that_pays_nothing_is_no_terminal_one() -> None:
    bandit = from_entries([(0, 0, 0, 1.0, 0.0, True)], 1, 1, initial=[1.0])
    assert bandit.expected_steps(np.zeros(1, dtype=int)).tolist() == [1.0]


def test_exact_evaluation_counts_a_state_whose_actions_end_the_episode_for_nothing() -> None:
    assert ExactEvaluation(chain_of_arrays(), gamma=1.0).counted.tolist() == [True, True, False]


def test_exploring_starts_begin_in_a_state_whose_actions_end_the_episode_for_nothing() -> None:
    model = chain_of_arrays()
    agent = MCControl(TabularEnv(model), MCControlConfig(exploring_starts="pairs"))
    assert agent.sampled_model(model).initial.tolist() == [0.5, 0.5, 0.0]


def test_a_model_can_be_made_again_from_its_own_arrays() -> None:
    model = Maze(slip=0.2).model()
    again = TabularMDP.from_arrays(
        model.transitions, model.rewards, terminal=model.terminal, initial=model.initial
    )
    values = np.random.default_rng(0).normal(size=25)
    np.testing.assert_array_equal(again.backup(values, 0.9), model.backup(values, 0.9))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"rewards": np.zeros(3)},
            r"rewards must have shape \[S, A\] with S and A at least 1, got \[3\]",
        ),
        (
            {"transitions": np.eye(3)},
            r"transitions must have shape \[S, A, S\] = \[2, 2, 2\] or \[S·A, S\] = \[4, 2\] with "
            r"rewards of shape \[S, A\] = \[2, 2\], got \[3, 3\]",
        ),
        (
            {"transitions": [[1, 0], [0.5]]},
            (
                r"transitions must be numbers of shape \[S, A, S\] or \[S·A, S\], but this list"
                r" cannot be converted"
            ),
        ),
        (
            {"transitions": np.array([[1, 0], [0, 0], [0, 1], [0.25, 0.75]])},
            (
                "state 0, action 1 adds up to 0; a state is terminal where all of its rows are 0,"
                " or where terminal says so"
            ),
        ),
        (
            {"transitions": np.array([[1, 0], [0.7, 0.25], [0, 1], [0.25, 0.75]])},
            "transitions must add up to 1 in each row, but state 0, action 1 adds up to 0.95",
        ),
        (
            {"transitions": np.array([[1, 0], [1.5, -0.5], [0, 1], [1, 0]])},
            "transitions must be probabilities of at least 0, got -0.5",
        ),
        (
            {"transitions": np.array([[1, 0], [np.nan, 0.5], [0, 1], [1, 0]])},
            "transitions must be probabilities of at least 0, got nan",
        ),
        (
            {"rewards": np.array([[0, 0], [0, np.inf]])},
            "rewards must be finite, or -inf for .*, but state 1, action 1 has inf",
        ),
        (
            {"terminal": np.array([1, 0])},
            r"terminal must be 2 booleans, got shape \[2\] and type int64",
        ),
        (
            {"initial": np.array([0.5, 0.4])},
            "initial must be probabilities that add up to 1, got a total of 0.9",
        ),
        (
            {"initial": np.array([1.0])},
            r"initial must have one probability for each of 2 states, got shape \[1\]",
        ),
    ],
)
def test_arrays_that_are_no_model_are_refused_in_one_sentence(
    change: dict[str, Any], complaint: str
) -> None:
    transitions, rewards = two_states()
    with pytest.raises(ValueError, match=complaint):
        TabularMDP.from_arrays(**{"transitions": transitions, "rewards": rewards} | change)


class Corridor(gymnasium.Env[Any, int]):
    """A user's environment: cells in a row; the ends are terminal, the right one pays. It has
    snapshots and no table."""

    def __init__(
        self,
        length: int = 5,
        starts: tuple[int, ...] = (2,),
        noisy: bool = False,
        shows: str = "place",
    ) -> None:
        self.length, self.starts, self.noisy, self.shows = length, starts, noisy, shows
        self.observation_space = {
            "place": spaces.Discrete(length, start=10),
            "pair": spaces.MultiDiscrete([2, length]),
            "nothing": spaces.Discrete(1),
        }[shows]
        self.action_space = spaces.Discrete(2)
        self.place = np.array([starts[0]])

    def show(self) -> Any:
        return {
            "place": int(self.place[0]) + 10,
            "pair": np.array([1, self.place[0]]),
            "nothing": 0,
        }[self.shows]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.array([self.starts[int(self.np_random.integers(len(self.starts)))]])
        return self.show(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = 2 * action - 1 if not self.noisy or self.np_random.random() < 0.9 else 0
        self.place = self.place + move
        place = int(self.place[0])
        return (
            self.show(),
            float(place == self.length - 1),
            place in (0, self.length - 1),
            False,
            {},
        )

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place.copy(), "rng": self.np_random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        self.place = state["place"].copy()
        self.np_random.bit_generator.state = state["rng"]


def test_a_deterministic_environment_is_enumerated_from_its_start() -> None:
    model = TabularMDP.from_env(gymnasium.wrappers.TimeLimit(Corridor(), 2))
    assert (model.num_states, model.num_actions, model.observable) == (5, 2, True)
    values = np.zeros(5)
    for _ in range(10):
        values = model.backup(values, 0.5).max(axis=1)
    assert values.tolist() == [0, 0.25, 0.5, 1, 0]
    assert model.initial.tolist() == [0, 0, 1, 0, 0]


def test_enumeration_knows_every_start_and_counts_how_often_it_occurs() -> None:
    initial = TabularMDP.from_env(Corridor(starts=(1, 3))).initial
    assert initial.sum() == near(1.0, terms=2)
    # 100 draws: 4 standard errors are 4 · sqrt(.25 / 100) = .2
    assert initial[[1, 3]] == pytest.approx([0.5, 0.5], rel=0, abs=0.2)


def test_observations_of_several_parts_are_numbered_in_mixed_radix() -> None:
    model = TabularMDP.from_env(Corridor(shows="pair"))
    assert (model.num_states, model.observable) == (2 * 5, True)
    assert np.flatnonzero(model.reachable()).tolist() == [5, 6, 7, 8, 9]


def test_states_that_look_alike_are_told_apart_but_not_called_observable() -> None:
    model = TabularMDP.from_env(Corridor(shows="nothing"))
    assert (model.num_states, model.observable) == (5, False)


def test_enumeration_leaves_the_environment_where_it_was() -> None:
    env = Corridor()
    env.reset(seed=3)
    env.step(1)
    before = env.snapshot()
    TabularMDP.from_env(env)
    assert env.snapshot() == before


def test_the_enumerated_maze_is_the_maze() -> None:
    """Hide the maze's own model: trying everything out must find the same one, apart from the
    walls."""
    maze = Maze()
    hidden: Any = type("Hidden", (gymnasium.Wrapper,), {"unwrapped": property(lambda self: self)})(
        maze
    )
    hidden.snapshot, hidden.restore = maze.snapshot, maze.restore
    found, own = TabularMDP.from_env(hidden), maze.model()
    np.testing.assert_array_equal(found.rewards, own.rewards)
    np.testing.assert_array_equal(found.transitions.toarray(), own.transitions.toarray())
    np.testing.assert_array_equal(found.continues.toarray(), own.continues.toarray())


def test_a_space_too_large_says_how_many_states_were_found() -> None:
    """After 9 states were tried, both ways each, 2 · 9 + 2 · 2 for the two at the rim are more than
    20."""
    complaint = (
        "Corridor is too large to plan in: 11 states were found in 18 transitions, and trying all "
        "of them would take more than 20"
    )
    with pytest.raises(ValueError, match=complaint):
        TabularMDP.from_env(Corridor(length=1000, starts=(500,)), max_transitions=20)


def test_the_limit_counts_exactly_the_transitions_that_are_needed() -> None:
    """Three cells that are no end, two actions each."""
    assert TabularMDP.from_env(Corridor(), max_transitions=6).num_states == 5
    with pytest.raises(ValueError, match="too large"):
        TabularMDP.from_env(Corridor(), max_transitions=5)


class Doubled(gymnasium.RewardWrapper[Any, int]):
    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (
            gymnasium.make("CartPole-v1"),
            "CartPole-v1 has no model to plan with: neither a table P of transition",
        ),
        (
            Corridor(noisy=True),
            (
                "Corridor has no model to plan with: its steps draw random numbers, so it cannot be"
                " enumerated"
            ),
        ),
        (
            Doubled(Maze()),
            (
                "the wrapper Doubled changes the environment, so the model of the "
                "wrapped environment does not describe it"
            ),
        ),
        ("FrozenLake-v1", "env must be a gymnasium.Env, got str"),
    ],
)
def test_an_environment_without_a_model_says_why(env: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TabularMDP.from_env(env)
