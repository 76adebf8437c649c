"""What an environment answers is looked at before anything learns from it, and what a checkpoint
says before anything uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlbook
from rlbook.interaction.guards import BadAnswer, observation_check
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction


class Odd(gymnasium.Env):
    """Answers rightly, but for what it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(
        self,
        space: spaces.Space,
        right: Any,
        wrong: Any,
        at: int = 5,
        reward: Any = 1.0,
        bad_start: bool = False,
        every: int | None = None,
    ) -> None:
        self.observation_space, self.right, self.wrong, self.at, self.reward = (
            space,
            right,
            wrong,
            at,
            reward,
        )
        self.bad_start, self.every, self.count = bad_start, every, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self.bad_start and self.count:
            raise KeyError("start")
        return self.right, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        here = self.count == self.at if self.every is None else self.count % self.every == 0
        return (
            (self.wrong if here else self.right),
            (self.reward if here else 1.0),
            self.count % 4 == 0,
            False,
            {},
        )


BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
WRONG: dict[str, tuple[spaces.Space, Any, Any, str]] = {
    "-1": (spaces.Discrete(4), 2, -1, r"the observation -1 is outside Discrete\(4\)"),
    "beyond": (spaces.Discrete(4), 2, 4, r"the observation 4 is outside Discrete\(4\)"),
    "shifted": (
        spaces.Discrete(4, start=3),
        3,
        2,
        r"the observation 2 is outside Discrete\(4, start=3\)",
    ),
    "digits": (
        spaces.MultiDiscrete([2, 3]),
        np.array([1, 2]),
        np.array([1, 3]),
        r"the observation 3 is outside MultiDiscrete",
    ),
    "shape": (BOX, np.zeros(2, np.float32), np.zeros(3, np.float32), r"shape|broadcast"),
    "pair": (
        spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
        (0, 1),
        (0, -1),
        r"the observation -1 is outside Discrete\(2\)",
    ),
}


@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo"])
@pytest.mark.parametrize("case", WRONG)
def test_an_observation_outside_its_space_stops_every_agent(algorithm: str, case: str) -> None:
    space, right, wrong, told = WRONG[case]
    options: dict[str, Any] = {} if algorithm == "q_learning" else {"num_envs": 1}
    with pytest.raises(rlbook.TrainingError, match=told) as error:
        rlbook.train(algorithm, Odd(space, right, wrong), steps=50, eval_every=0, **options)
    assert "step 5" in str(error.value) and "\n" not in str(error.value)


BEYOND = "observation [1] is 1.5, outside its bounds -1 and 1; it is used unchanged"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo", "sac", "semi_gradient_sarsa"])
def test_a_finite_number_outside_the_bounds_of_a_box_is_noted_once(
    algorithm: str, nested: bool
) -> None:
    """As the height of a lander that hovers above its picture; it comes in every fifth step, in
    training and in evaluation."""
    space: spaces.Space = spaces.Tuple([BOX]) if nested else BOX
    right, wrong = np.zeros(2, np.float32), np.array([0.0, 1.5], np.float32)
    env = Odd(space, (right,) if nested else right, (wrong,) if nested else wrong, every=5)
    options = {} if algorithm in ("q_learning", "semi_gradient_sarsa") else {"num_envs": 1}
    run = rlbook.train(algorithm, env, steps=50, eval_every=25, eval_episodes=2, **options)
    assert [note for note in run.notes if "outside" in note] == [BEYOND]
    assert len(rlbook.evaluate(run.agent, env, episodes=2).returns) == 2


@pytest.mark.parametrize("batched", [False, True])
def test_after_a_note_what_is_not_finite_is_still_refused(batched: bool) -> None:
    said: list[str] = []
    check = observation_check(BOX, batched=batched, note=said.append)
    for value in (1.5, -2.0, 1e30):
        check(np.full((3, 2) if batched else 2, value))
    assert said == [BEYOND.replace("[1]", "[0]")]
    for bad in (np.nan, np.inf, -np.inf, 1e300):  # the last is infinite in float32
        with pytest.raises(FloatingPointError):
            check(np.full((3, 2) if batched else 2, bad))
    with pytest.raises(BadAnswer, match="shape"):
        check(np.zeros((2, 3), np.float32) if batched else np.zeros(3, np.float32))
    with pytest.raises(BadAnswer, match="type <U1"):
        check(np.full((3, 2) if batched else 2, "x"))


def test_whole_numbers_outside_their_bounds_are_noted_where_their_type_holds_them() -> None:
    said: list[str] = []
    space = spaces.Box(0, 10, (2,), np.uint8)
    check = observation_check(space, note=said.append)
    with pytest.raises(BadAnswer, match="the observation 300 is outside"):
        check(np.array([3, 300]))  # 44 as a byte
    check(np.array([3, 200], np.uint8))
    check(np.array([3, 201], np.uint8))
    assert len(said) == 1 and "observation [1] is 200, outside its bounds 0 and 10" in said[0]


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo", "certainty_equivalence"])
@pytest.mark.parametrize("reward", [None, "1", [1.0, 2.0]])
def test_a_reward_that_is_no_number_is_named(algorithm: str, reward: Any) -> None:
    options = {"num_envs": 1} if algorithm == "ppo" else {}
    with pytest.raises(rlbook.TrainingError) as error:
        rlbook.train(
            algorithm,
            Odd(spaces.Discrete(4), 2, 2, reward=reward),
            steps=50,
            eval_every=0,
            **options,
        )
    assert f"failed at step 5: the reward must be a number, got {reward!r}" in str(
        error.value
    ).replace("BadAnswer: ", "")


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_a_reset_that_fails_is_one_sentence(algorithm: str) -> None:
    options = {"num_envs": 1} if algorithm == "ppo" else {}
    with pytest.raises(
        rlbook.TrainingError,
        match="the environment failed to reset after step 4: KeyError: 'start'",
    ):
        rlbook.train(
            algorithm,
            Odd(spaces.Discrete(4), 2, 2, bad_start=True),
            steps=50,
            eval_every=0,
            **options,
        )


def test_a_reset_without_info_is_named() -> None:
    class Bare(Odd):
        def reset(self, **how: Any) -> Any:
            return self.right

    with pytest.raises(rlbook.TrainingError, match="reset must return an observation and a dict"):
        rlbook.train("q_learning", Bare(spaces.Discrete(4), 2, 2), steps=50, eval_every=0)


@pytest.mark.parametrize("batched", [False, True])
def test_the_quick_check_agrees_with_the_space(batched: bool) -> None:
    """Samples are in; samples moved by more than rounding are out, except where there is no
    bound."""
    rng = np.random.default_rng(0)
    whole = [
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([2, 3, 4], start=[0, 1, 5]),
        spaces.MultiBinary((2, 3)),
    ]
    real = [
        BOX,
        spaces.Box(-np.inf, 3.0, (2, 2)),
        spaces.Box(0, 255, (4, 4), np.uint8),
        spaces.Box(0, 90, (3,), np.int32),
    ]
    for space in [*whole, *real]:
        space.seed(int(rng.integers(1000)))
        check = observation_check(space, batched=batched)
        samples = [space.sample() for _ in range(20)]
        for obs in [np.stack(samples)] if batched else samples:
            check(obs)
        if space.dtype != np.uint8:
            moved = np.asarray(samples[0]) + np.array(100, dtype=space.dtype)
            assert not space.contains(moved)
            said: list[str] = []
            check = observation_check(space, batched=batched, note=said.append)
            if isinstance(space, spaces.Box):
                check(np.stack([moved]) if batched else moved)
                assert len(said) == 1 and "outside its bounds" in said[0]
                continue
            with pytest.raises(BadAnswer, match="is outside"):
                check(np.stack([moved]) if batched else moved)
    observation_check(BOX)(np.array([1.0 + 1e-7, -1.0 - 1e-7]))
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(FloatingPointError):
            observation_check(spaces.Box(-np.inf, np.inf, (2,)))(np.array([0.0, bad], np.float32))


class Graded(gymnasium.Env):
    """Pays in two parts, and names them: 1 for every step, 2 more where action 1 is taken, which is
    told only then."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.length += 1
        parts = {"reward/step": 1.0, "reward/one": 2.0} if action == 1 else {"reward/step": 1.0}
        return 0, sum(parts.values()), self.length == 4, False, {"metrics": parts}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("q_learning", {}), ("certainty_equivalence", {}), ("ppo", {"num_envs": 3})],
)
def test_what_an_environment_names_stands_in_the_log(
    algorithm: str, options: dict[str, Any]
) -> None:
    run = rlbook.train(algorithm, Graded(), steps=480, eval_every=0, **options)
    told = [line for line in run.metrics if "reward/one" in line]
    assert told and all(line["reward/step"] == 1.0 and line["reward/one"] == 2.0 for line in told)
    assert not any(
        name.startswith("reward/")
        for line in rlbook.train("q_learning", "Maze-v0", steps=50).metrics
        for name in line
    )


def forged(part: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def forge(state: dict[str, Any]) -> None:
        state[part] = value

    return forge


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("obs", 999),
        ("obs", -1),
        ("obs", "3"),
        ("obs", 1.5),
        ("steps", "12"),
        ("steps", -1),
        ("episodes", 2.5),
        ("length", None),
        ("return", "much"),
        ("return", float("nan")),
        ("finished", np.full((1, 3), np.nan)),
    ],
)
def test_a_forged_interaction_is_refused(part: str, value: Any) -> None:
    made = SingleInteraction(ResumableEnv(rlbook.make("FrozenLake-v1")), np.random.default_rng(0))
    made.start()
    for _ in range(5):
        made.step(0)
        made.reset_finished()
    state = made.state_dict()
    made.load_state_dict(
        json.loads(json.dumps(state, default=np.ndarray.tolist))
        | {"env": state["env"], "rng": state["rng"]}
    )
    forged(part, value)(state)
    with pytest.raises((ValueError, TypeError)):
        made.load_state_dict(state)


TABULAR: list[tuple[str, dict[str, Any]]] = [
    ("q_learning", {}),
    ("sarsa", {}),
    ("double_q_learning", {}),
    ("dyna_q", {}),
    ("dyna_q_plus", {}),
    ("n_step_sarsa", {"n": 3}),
    ("n_step_td", {"n": 3}),
    ("sarsa_lambda", {}),
    ("watkins_q_lambda", {"epsilon": 0.1}),
    ("td_lambda", {}),
    ("td_lambda", {"traces": "offline"}),
    ("mc_control", {}),
    ("mc_prediction", {}),
    ("off_policy_mc", {}),
    ("td_prediction", {"batch": True}),
]


def with_first(table: np.ndarray, value: int) -> Any:
    """A table of whole numbers with another first entry; None for other tables."""
    return (
        np.where(np.arange(table.size).reshape(table.shape) == 0, value, table)
        if table.dtype.kind == "i" and table.size
        else None
    )


FORGED: dict[str, Callable[[np.ndarray], Any]] = {
    "text": lambda table: np.full(table.shape, "7"),
    "another type": lambda table: table.astype(np.float32 if table.dtype.kind != "f" else np.int64),
    "another shape": lambda table: np.concatenate(
        [table, table[:1] if len(table) else np.zeros(1, table.dtype)]
    ),
    "999999": lambda table: with_first(table, 999_999),
    "-2": lambda table: with_first(table, -2),
}
COUNTS = {"visits", "first_visits", "time"}  # how often and when: any count of at least 0 may be


@pytest.mark.parametrize(("algorithm", "config"), TABULAR, ids=str)
def test_a_forged_table_is_refused_before_anything_reads_it(
    algorithm: str, config: dict[str, Any]
) -> None:
    """In the middle of an episode, so that windows, traces and episodes are not empty."""
    run = rlbook.train(
        algorithm, "FrozenLake-v1", steps=60, eval_every=0, simulate=False, seed=1, **config
    )
    agent: Any = run.agent
    state = agent.state_dict()
    agent.load_state_dict(state)
    tried = 0
    for name, table in state["memory"].items():
        for kind, forge in FORGED.items():
            wrong = forge(table)
            if wrong is None or (kind == "999999" and name in COUNTS):
                continue
            tried += 1
            with pytest.raises((ValueError, TypeError)) as refused:
                agent.load_state_dict(state | {"memory": state["memory"] | {name: wrong}})
            assert "\n" not in str(refused.value)
    assert tried > 5
    with pytest.raises(ValueError, match="random generator"):
        agent.load_state_dict(state | {"rng": {"bit_generator": "PCG64", "state": "x"}})


def test_a_replaced_act_or_learn_is_asked_at_every_step() -> None:
    from rlbook.fast.tabular.table_interaction import EnvInteraction, TableInteraction
    from rlbook.interaction.budget import Budget
    from rlbook.interaction.loop import loop
    from rlbook.interaction.spaces import AdaptedEnv, adapt_to
    from rlbook.registry import agent_class

    kind: Any = agent_class("q_learning")

    class Wary(kind):
        def choose(memory: Any, settings: Any, rng: Any, state: int) -> int:
            return int(memory.q[state].argmax())

    for made, ways in ((kind, ("act", "learn")), (Wary, ())):
        raw = ResumableEnv(rlbook.make("FrozenLake-v1"))
        env = AdaptedEnv(raw, adapt_to(made, raw, made.Config()))
        for interaction in (
            EnvInteraction(env, np.random.default_rng(0)),
            TableInteraction(kind_model(), np.random.default_rng(0)),
        ):
            agent, calls = made(env, made.Config(epsilon=0.5)), []
            for name in ways:
                original = getattr(agent, name)
                setattr(
                    agent,
                    name,
                    lambda *a, original=original, name=name, calls=calls: (
                        calls.append(name) or original(*a)
                    ),
                )
            for _ in loop(agent, interaction, Budget(20, None)):
                pass
            assert calls.count("act") == calls.count("learn") == (20 if ways else 0)
            assert not interaction.takes_over(agent)


def kind_model() -> Any:
    return rlbook.envs.TabularMDP.from_env(rlbook.make("FrozenLake-v1"))


def test_a_subclass_that_changes_step_is_not_sampled_from_the_model_of_its_base() -> None:
    base: Any = type(rlbook.make("Maze-v0").unwrapped)

    class Doubled(base):
        def step(self, action: Any) -> Any:
            obs, reward, *rest = super().step(action)
            return obs, 2.0 * reward, *rest

    replaced: Any = base()
    replaced.step = Doubled().step
    for env in (Doubled(), replaced):
        run = rlbook.train("q_learning", env, steps=60, eval_every=0)
        assert not any("model's tables" in note for note in run.notes)


class Wide(gymnasium.Env):
    """Shows float64, at the fifth step a number that float32 does not have."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.array([0.0, 1e300 if self.count == 5 else 0.5]), 1.0, self.count == 9, False, {}


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "alphazero"])
def test_a_number_too_large_for_the_network_is_named(algorithm: str) -> None:
    """It would be infinite there, and training would be said to have diverged many steps later."""
    options = {"simulations": 3} if algorithm == "alphazero" else {"num_envs": 2}
    with pytest.raises(rlbook.TrainingError, match=r"is not finite: 1e\+300$"):
        rlbook.train(algorithm, Wide(), steps=100, eval_every=0, **options)
