"""Every step an agent learns from is one that the environment took, with one environment and
through every kind of vector environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rlbook
from rlbook.agent import Agent, Metrics, State, Step
from rlbook.interaction.budget import Budget
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.loop import loop
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.llm.environments.token_env import AdditionVector
from rlbook.runs.storage.state_encoding import decode, encode


class Counter(gymnasium.Env):
    """Shows how many steps it has taken since it was made, starts included; the reward is the new
    count. Episodes end in turn by termination, by truncation, and by both; their length varies."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, offset: int = 0) -> None:
        self.count, self.episode, self.actions = 1000 * offset, offset, 0
        self.length = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.episode, self.length = self.count + 10, self.episode + 1, 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.length < self.limit, "a step after the end"
        self.count, self.length, self.actions = self.count + 1, self.length + 1, self.actions + 1
        over = self.length == self.limit
        return (
            self._shown(),
            float(self.count),
            over and self.episode % 3 != 0,
            over and self.episode % 3 != 1,
            {},
        )

    @property
    def limit(self) -> int:
        return 2 + self.episode % 5

    def _shown(self) -> np.ndarray:
        return np.array([self.count], dtype=np.float32)


class Witness(Agent):
    """Acts at random and keeps every step it is given."""

    def __init__(self, num_envs: int | None = None, rollout: str = "steps") -> None:
        self.rng, self.num_envs, self.rollout = np.random.default_rng(0), num_envs, rollout
        self.steps: list[Step] = []
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def act(self, observation: Any, *, explore: bool = True) -> Any:
        self.shown = observation
        return (
            int(self.rng.integers(2))
            if self.num_envs is None
            else self.rng.integers(2, size=self.num_envs)
        )

    def learn(self, step: Step) -> Metrics:
        assert step.obs is self.shown, "the agent learns from what it acted on"
        self.steps.append(step)
        return {}

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


def counters(count: int) -> list[Any]:
    return [lambda i=i: Counter(i) for i in range(count)]


KINDS = {
    "SyncVector": lambda: SyncVector([Counter(i) for i in range(5)]),
    "SyncVectorEnv": lambda: SyncVectorEnv(counters(5), autoreset_mode=AutoresetMode.DISABLED),
    "AsyncVectorEnv": lambda: AsyncVectorEnv(counters(5), autoreset_mode=AutoresetMode.DISABLED),
}


@pytest.fixture(params=list(KINDS))
def env(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = KINDS[request.param]()
    yield made
    made.close()


def watch(
    env: Any, steps: int, *, rollout: str = "steps", group_size: int = 1
) -> tuple[Witness, VectorInteraction]:
    agent = Witness(env.num_envs, rollout)
    interaction = VectorInteraction(
        env, np.random.default_rng(0), rollout=rollout, group_size=group_size
    )
    for _ in loop(agent, interaction, Budget(steps, None)):
        pass
    return agent, interaction


def actions_seen(env: Any) -> int:
    return (
        sum(one.unwrapped.actions for one in env.envs)
        if hasattr(env, "envs")
        else sum(env.get_attr("actions"))
    )


def test_every_step_leads_to_its_true_successor_and_every_action_is_stored(env: Any) -> None:
    agent, interaction = watch(env, 600)
    stacked = Step(
        *(np.stack([getattr(step, name) for step in agent.steps]) for name in Step._fields)
    )
    np.testing.assert_array_equal(stacked.next_obs, stacked.obs + 1)
    np.testing.assert_array_equal(stacked.reward, stacked.next_obs[..., 0])
    assert stacked.valid.all()
    assert stacked.reward.size == interaction.steps == actions_seen(env) == 600
    assert stacked.terminated.any() and stacked.truncated.any()
    assert not (stacked.terminated & stacked.truncated).any(), "both at once is a termination"
    assert (
        (stacked.terminated | stacked.truncated).sum()
        == interaction.episodes
        == len(interaction.finished)
    )
    follows = ~(stacked.terminated | stacked.truncated)[:-1]
    np.testing.assert_array_equal(stacked.obs[1:][follows], stacked.next_obs[:-1][follows])
    np.testing.assert_array_equal(stacked.obs[1:][~follows], stacked.next_obs[:-1][~follows] + 10)
    assert sum(length for _, _, length in interaction.finished) <= 600


def test_one_environment_does_the_same() -> None:
    env, agent = Counter(), Witness()
    interaction = SingleInteraction(env, np.random.default_rng(0))
    for _ in loop(agent, interaction, Budget(300, None)):
        pass
    assert len(agent.steps) == interaction.steps == env.actions == 300
    for step in agent.steps:
        assert (
            step.next_obs == step.obs + 1
            and step.reward == step.next_obs[0]
            and not (step.terminated and step.truncated)
        )
    ends = [step.terminated or step.truncated for step in agent.steps]
    assert sum(ends) == interaction.episodes and agent.begun == interaction.episodes + 1
    for step, following, over in zip(agent.steps, agent.steps[1:], ends, strict=False):
        assert following.obs == step.next_obs + (10 if over else 0)


class Overwriting(Counter):
    """Shows the same array at every step, and writes the new count into it."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.shown, self.inside = np.zeros(1), inside
        if inside:
            self.observation_space = spaces.Dict({"count": self.observation_space})

    def _shown(self) -> Any:
        self.shown[:] = self.count
        return {"count": self.shown} if self.inside else self.shown


@pytest.mark.parametrize("inside", [False, True])
def test_an_environment_may_overwrite_the_array_that_it_has_shown(inside: bool) -> None:
    agent = Witness()
    interaction = SingleInteraction(Overwriting(inside=inside), np.random.default_rng(0))
    for _ in loop(agent, interaction, Budget(50, None)):
        pass
    for step in agent.steps:
        before, after = ((x["count"] if inside else x) for x in (step.obs, step.next_obs))
        assert after == before + 1 == step.reward


class OverwritingVector(SyncVectorEnv):
    """Shows the same arrays at every step, and writes the new counts and flags into them."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int, **_: Any) -> None:
        modes = {"autoreset_mode": AutoresetMode.DISABLED, "copy": False}
        super().__init__(counters(num_envs), **modes)  # type: ignore[arg-type]
        self.flags = np.zeros((2, num_envs), dtype=bool)

    def step(self, actions: Any) -> Any:
        obs, reward, *self.flags[:], info = super().step(actions)
        return obs, reward, *self.flags, info


def test_a_vector_form_may_overwrite_the_arrays_that_it_has_shown() -> None:
    gymnasium.register("tests/Own-v0", entry_point=Counter, vector_entry_point=OverwritingVector)
    try:
        env = EnvRecipe.from_env("tests/Own-v0").make_native_vector(3)
        agent, _ = watch(env, 60)
    finally:
        del gymnasium.registry["tests/Own-v0"]
    ends = [step.terminated | step.truncated for step in agent.steps]
    assert 0 < np.sum(ends) < 30
    for step, following, over in zip(agent.steps, agent.steps[1:], ends, strict=False):
        np.testing.assert_array_equal(step.next_obs[:, 0], step.reward)
        np.testing.assert_array_equal(step.obs + 1, step.next_obs)
        np.testing.assert_array_equal(following.obs, step.next_obs + 10 * over[:, None])


def test_episodes_are_told_with_their_return_and_length() -> None:
    interaction = SingleInteraction(Counter(), np.random.default_rng(0))
    for _ in loop(Witness(), interaction, Budget(None, 2)):
        pass
    # episode 1 starts at 10 and lasts 2 + 1 steps: 11 + 12 + 13; episode 2 starts at 13 + 10 and
    # lasts 2 + 2: 24 + 25 + 26 + 27
    assert interaction.finished == [(3, 36.0, 3), (7, 102.0, 4)]


def test_both_flags_at_once_are_a_termination() -> None:
    env = SyncVector([Counter(1)])  # its first episode, number 2, ends with both
    agent, _ = watch(env, 4)
    assert [(bool(step.terminated[0]), bool(step.truncated[0])) for step in agent.steps] == [
        (False, False)
    ] * 3 + [(True, False)]
    alone = Witness()
    for _ in loop(alone, SingleInteraction(Counter(1), np.random.default_rng(0)), Budget(4, None)):
        pass
    assert [(step.terminated, step.truncated) for step in alone.steps] == [(False, False)] * 3 + [
        (True, False)
    ]


def test_in_whole_rounds_a_finished_environment_waits_for_the_others() -> None:
    env = SyncVector([Counter(i) for i in range(4)])  # the first round's lengths are 3, 4, 5, 6
    agent, interaction = watch(env, 3 + 4 + 5 + 6 + 1, rollout="episodes")
    valid = np.stack([step.valid for step in agent.steps[:6]])
    np.testing.assert_array_equal(valid.sum(0), [3, 4, 5, 6])
    np.testing.assert_array_equal(valid, np.arange(6)[:, None] < [3, 4, 5, 6])
    assert agent.begun == 2 and agent.steps[6].valid.all(), (
        "a new round starts when the last one has ended"
    )
    ended = np.stack([step.terminated | step.truncated for step in agent.steps[:6]])
    np.testing.assert_array_equal(ended.sum(0), [1, 1, 1, 1])
    assert not (ended & ~valid).any() and all(
        (step.reward[~step.valid] == 0).all() for step in agent.steps
    )
    assert interaction.steps == actions_seen(env) == 18 + 4 and interaction.episodes == 4


def test_a_group_starts_from_one_place() -> None:
    many = SyncVector([rlbook.make("CartPole-v1") for _ in range(6)])
    agent, _ = watch(many, 600, rollout="episodes", group_size=3)
    begins = [
        index
        for index, step in enumerate(agent.steps)
        if index == 0 or step.valid.sum() > agent.steps[index - 1].valid.sum()
    ]
    starts = [agent.steps[index].obs for index in begins]
    assert len(starts) >= 3
    for start in starts:
        np.testing.assert_array_equal(start, start[[0, 0, 0, 3, 3, 3]])
        assert (start[0] != start[3]).any()
    assert (starts[0] != starts[1]).any(), "each round has fresh starts"


def test_a_native_vector_environment_is_seen_as_its_single_form() -> None:
    options: dict[str, Any] = {
        "slip": 0.3,
        "max_episode_steps": 9,
        "observation": "coordinates",
        "layout": "S..\n.#G",
    }
    native = gymnasium.make_vec("rlbook/Maze-v0", num_envs=4, **options)
    singles = SyncVector([rlbook.make("Maze-v0", **options) for _ in range(4)])
    seen = [watch(env, 2000)[0].steps for env in (native, singles)]
    for one, other in zip(*seen, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
    assert (
        sum(step.terminated.sum() for step in seen[0]) > 3
        and sum(step.truncated.sum() for step in seen[0]) > 3
    )


def cart(num_envs: int = 3) -> Any:
    return SyncVector([rlbook.make("CartPole-v1", max_episode_steps=12) for _ in range(num_envs)])


def mazes(num_envs: int = 3) -> Any:
    options: dict[str, Any] = {"slip": 0.3, "layout": "S..\n.#G"}
    return SyncVector(
        [rlbook.make("Maze-v0", max_episode_steps=7, **options) for _ in range(num_envs)]
    )


def native(num_envs: int = 3) -> Any:
    return gymnasium.make_vec(
        "rlbook/Maze-v0", num_envs=num_envs, max_episode_steps=7, slip=0.3, layout="S..\n.#G"
    )


def one_of(many: Any) -> ResumableEnv:
    return ResumableEnv(many(1).envs[0].env)


RESUMABLE = {
    "one replayed": lambda rng: SingleInteraction(one_of(cart), rng),
    "one snapshot": lambda rng: SingleInteraction(one_of(mazes), rng),
    "many replayed": lambda rng: VectorInteraction(cart(), rng),
    "many snapshots": lambda rng: VectorInteraction(mazes(), rng),
    "native": lambda rng: VectorInteraction(native(), rng),
    "rounds replayed": lambda rng: VectorInteraction(cart(), rng, rollout="episodes", group_size=3),
    "rounds of snapshots": lambda rng: VectorInteraction(mazes(), rng, rollout="episodes"),
    "native rounds": lambda rng: VectorInteraction(native(), rng, rollout="episodes"),
    "rounds of texts": lambda rng: VectorInteraction(
        AdditionVector(3, reward={"edit": 1.0}), rng, rollout="episodes", scoring="round"
    ),
}


def go_on(interaction: Any, actions: np.ndarray) -> list[Any]:
    seen = []
    for row in actions:
        seen.append(
            interaction.step(int(row[0]) if isinstance(interaction, SingleInteraction) else row)
        )
        interaction.reset_finished()
    return seen


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("kind", RESUMABLE)
def test_streams_taken_up_after_any_step_go_on_as_if_nothing_had_been(kind: str) -> None:
    actions = np.random.default_rng(5).integers(2 if "replayed" in kind else 4, size=(45, 3))
    whole = RESUMABLE[kind](np.random.default_rng(1))
    whole.start()
    expected, states = [], []
    for row in actions:
        states.append(encode(whole.state_dict()))
        expected += go_on(whole, row[None])
    assert len(whole.finished) >= 3
    for at, (skeleton, arrays) in enumerate(states):
        part = RESUMABLE[kind](np.random.default_rng(2))
        part.load_state_dict(
            decode(skeleton, {name: array.copy() for name, array in arrays.items()})
        )
        for step, other in zip(go_on(part, actions[at:]), expected[at:], strict=True):
            for left, right in zip(step, other, strict=True):
                np.testing.assert_equal(left, right)
        assert (part.finished, part.steps, part.episodes) == (
            whole.finished,
            whole.steps,
            whole.episodes,
        )
        assert encode(part.state_dict())[0] == encode(whole.state_dict())[0]


def test_an_environment_that_resets_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="the training loop resets"):
        VectorInteraction(SyncVectorEnv(counters(2)), np.random.default_rng(0))
    waiting = SyncVectorEnv(counters(2), autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match="cannot let a finished environment wait"):
        VectorInteraction(waiting, np.random.default_rng(0), rollout="episodes")


def test_returned_steps_are_never_changed_later() -> None:
    env = SyncVector([Counter(i) for i in range(5)])
    agent, interaction = Witness(5), VectorInteraction(env, np.random.default_rng(0))
    copies = []
    for _ in loop(agent, interaction, Budget(200, None)):
        copies.append([np.array(field) for field in agent.steps[-1]])
    for step, copy in zip(agent.steps, copies, strict=True):
        for left, right in zip(step, copy, strict=True):
            np.testing.assert_array_equal(left, right)


class Forever(gymnasium.Env):
    """One state, reward 1, no end: V = 1 / (1 - γ) whatever limit is put on the episode, 10 for γ =
    0.9."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 1.0, False, False, {}


LEARNERS: dict[str, dict[str, Any]] = {
    "q_learning": {"steps": 3000, "alpha": 0.1, "epsilon": 1.0},
    "dqn": {
        "steps": 4000,
        "learning_rate": 3e-3,
        "learning_starts": 50,
        "target_period": 20,
        "train_every": 2,
        "num_envs": 1,
    },
    "ppo": {
        "steps": 24000,
        "num_envs": 8,
        "rollout_steps": 25,
        "learning_rate": 3e-3,
        "anneal_learning_rate": False,
        "epochs": 10,
    },
}


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_a_time_limit_is_no_end(algorithm: str) -> None:
    gymnasium.register("Forever-v0", Forever, max_episode_steps=10)
    try:
        run = rlbook.train(
            algorithm, "Forever-v0", gamma=0.9, seed=0, eval_every=0, **LEARNERS[algorithm]
        )
    finally:
        del gymnasium.registry["Forever-v0"]
    agent: Any = run.agent
    if algorithm == "q_learning":
        value = agent.values()[0]
    elif algorithm == "dqn":
        value = agent.action_values(np.array([0])).max()
    else:
        value = agent.value(np.array([0]))[0]
    # V = 1 + 0.9 V gives 10. A limit taken for an end stops one bootstrap in ten, V = 1 + 0.9 · 0.9
    # V, and gives 5.26.
    assert abs(value - 10.0) < 0.2
    assert set(run.episode_returns) == {10.0}
