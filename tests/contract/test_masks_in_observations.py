"""Action masks that are a part of the observation, as PettingZoo's and RLlib's environments show
them."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from masked_doors import GAMMA, LEADS_TO, OPEN, PAYS, Doors, exact_action_values
from random_masks import ACTIONS, RandomMasks

import rlbook
from rlbook.algorithms.planning.search.mcts import MCTS
from rlbook.algorithms.planning.search.simulators import CopySimulator, SnapshotSimulator
from rlbook.cli.main import main
from rlbook.envs.masked_observations import keys_beside_mask
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.observed_masks import observed_keys
from rlbook.plots.films.watch import watch
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.storage.state_encoding import encode

NOISE, ROOMS = "tests/MaskedNoise-v0", "tests/MaskedRooms-v0"


class MaskedNoise(RandomMasks):
    """`RandomMasks` with its masks in the observation, as RLlib's example has them; a forbidden
    action raises."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            action_mask=spaces.Box(0.0, 1.0, (ACTIONS,), np.float32),
            observations=self.observation_space,
        )

    def _shown(self, over: bool) -> Any:
        seen, info = super()._shown(over)
        mask = info.pop("action_mask").astype(np.float32)
        return {"action_mask": mask, "observations": seen}, info


class MaskedRooms(Doors):
    """`Doors` with its masks in the observation, as PettingZoo has them; a closed door raises."""

    shown: Any = None  # what it shows for a mask; None: the mask

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            observation=spaces.Discrete(len(OPEN)), action_mask=spaces.Box(0, 1, (3,), np.int8)
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        room, info = super().reset(seed=seed, options=options)
        return self._dict(room, info)

    def step(self, action: int) -> Any:
        room, reward, terminated, truncated, info = super().step(action)
        obs, info = self._dict(room, info)
        return obs, reward, terminated, truncated, info

    def _dict(self, room: int, info: dict[str, Any]) -> Any:
        mask = info.pop("action_mask")
        return {"observation": room, "action_mask": mask if self.shown is None else self.shown}, {}


class KeptRooms(MaskedRooms):
    """The same rooms, which can be left and come back to."""

    def snapshot(self) -> dict[str, Any]:
        return {"room": self.room}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.room = snapshot["room"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(NOISE, entry_point=MaskedNoise)
    gymnasium.register(ROOMS, entry_point=MaskedRooms)
    yield
    del gymnasium.registry[NOISE], gymnasium.registry[ROOMS]


def interrupt(run: rlbook.Run) -> None:
    if run.steps >= 130:
        signal.raise_signal(signal.SIGINT)


AGENTS: dict[str, dict[str, Any]] = {
    "dqn": {"learning_starts": 50, "batch_size": 16, "train_every": 4, "buffer_size": 200},
    "sac": {"learning_starts": 50, "batch_size": 16, "train_every": 4, "buffer_size": 200},
    "ppo": {"rollout_steps": 16, "batch_size": 32, "epochs": 2},
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", list(AGENTS))
def test_a_network_sees_the_rest_and_takes_allowed_actions_alone(
    algorithm: str, tmp_path: Path
) -> None:
    """A forbidden action raises: in training, evaluated, watched, resumed and asked for by hand."""
    chosen: dict[str, Any] = {"steps": 240, "num_envs": 2, "seed": 1, "eval_every": 0}
    chosen |= AGENTS[algorithm] | {"hidden_sizes": (8,)}
    run = rlbook.train(algorithm, NOISE, **chosen)
    said = [note for note in run.notes if "mask" in note]
    assert said == [
        "observation: its 'action_mask' is the mask of the allowed actions, and the agent sees"
        " only 'observations'"
    ]
    assert run.agent.adaptation is not None
    assert run.agent.adaptation.observation_space.shape == (3,)
    assert len(rlbook.evaluate(run, episodes=5).returns) == 5
    with pytest.raises(Interrupted):
        rlbook.train(algorithm, NOISE, out=tmp_path / "run", on_report=interrupt, **chosen)
    again = rlbook.load(tmp_path / "run").resume()
    (one, arrays), (other, others) = (encode(each.agent.state_dict()) for each in (run, again))
    assert one == other and arrays.keys() == others.keys()
    assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)
    assert len(watch(again, episodes=1, stream=io.StringIO(), pause=0.0)) == 1
    env = gymnasium.make(NOISE)
    obs, _ = env.reset(seed=0)
    for seed in range(30):  # its own observations, as they are; a forbidden action would raise
        obs, _, terminated, truncated, _ = env.step(again.predict(obs))
        if terminated or truncated:
            obs, _ = env.reset(seed=seed)


class Lamps(gymnasium.Env):
    """A lamp is lit, and the other action pays: what its `action_mask` forbids is right."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        action_mask=spaces.MultiBinary(2), clock=spaces.Box(0.0, 1.0, (1,), np.float32)
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.lit = int(self.np_random.integers(2))
        return self._lamps(), {}

    def step(self, action: int) -> Any:
        reward = float(action != self.lit)
        return self._lamps(), reward, True, False, {}

    def _lamps(self) -> dict[str, Any]:
        return {
            "action_mask": np.eye(2, dtype=np.int8)[self.lit],
            "clock": np.zeros(1, np.float32),
        }


LAMPS = "tests/Lamps-v0"


def test_an_entry_of_that_name_with_another_meaning_is_seen_where_masks_are_not_read(
    tmp_path: Path,
) -> None:
    """What the entry would forbid is the action that pays, in training and as predicted."""
    gymnasium.register(LAMPS, entry_point=Lamps)
    try:
        chosen: dict[str, Any] = {"steps": 640, "num_envs": 2, "seed": 1, "eval_every": 0}
        chosen |= AGENTS["ppo"] | {"hidden_sizes": (8,), "learning_rate": 0.02}
        kept = rlbook.train("ppo", LAMPS, read_masks=False, out=tmp_path / "kept", **chosen)
        assert not [note for note in kept.notes if "mask" in note]
        assert rlbook.evaluate(kept, episodes=20).mean == 1.0
        lamps = {"action_mask": np.array([0, 1], np.int8), "clock": np.zeros(1, np.float32)}
        assert kept.predict(lamps) == 0
        assert "read_masks: false" in (tmp_path / "kept/config.yaml").read_text(encoding="utf-8")
        with pytest.raises(Interrupted):
            rlbook.train(
                "ppo", LAMPS, read_masks=False, out=tmp_path / "cut", on_report=interrupt, **chosen
            )
        again = rlbook.load(tmp_path / "cut").resume()
        (one, arrays), (other, others) = (encode(each.agent.state_dict()) for each in (kept, again))
        assert one == other
        assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)
        read = rlbook.train("ppo", LAMPS, **chosen)
        assert rlbook.evaluate(read, episodes=20).mean == 0.0
    finally:
        del gymnasium.registry[LAMPS]


@pytest.mark.parametrize(
    ("algorithm", "env", "said"),
    [
        ("ppo", "CartPole-v1", "read_masks has no effect on CartPole-v1"),
        ("mcts", ROOMS, "mcts reads the masks of the environment that it looks into"),
    ],
)
def test_masks_that_are_not_there_or_needed_by_a_search_cannot_be_left_unread(
    algorithm: str, env: str, said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        rlbook.train(algorithm, env, read_masks=False, steps=10)


def test_a_batch_of_such_observations_is_predicted_row_by_row() -> None:
    run = rlbook.train("ppo", NOISE, steps=64, seed=0, eval_every=0, hidden_sizes=(8,))
    envs = SyncVectorEnv([MaskedNoise] * 4, autoreset_mode=AutoresetMode.NEXT_STEP)
    many, _ = envs.reset(seed=3)
    chosen = run.predict(many)
    assert chosen.shape == (4,) and many["action_mask"][np.arange(4), chosen].all()
    rows = [{name: part[row] for name, part in many.items()} for row in range(4)]
    assert chosen.tolist() == [run.predict(row) for row in rows]


def test_a_table_learns_the_values_of_the_open_doors() -> None:
    run = rlbook.train(
        "q_learning", ROOMS, steps=4000, seed=0, gamma=GAMMA, alpha=0.5, epsilon=1.0, eval_every=0
    )
    found, exact = run.agent.q[:4], exact_action_values()[:4]  # type: ignore[attr-defined]
    # rewards and moves are certain, and each open door was taken some 300 times: (1 - 0.5)^300 of
    # the first error is below float64's smallest step
    np.testing.assert_allclose(found[OPEN[:4]], exact[OPEN[:4]], rtol=64 * np.finfo(float).eps)
    assert not np.isfinite(found[~OPEN[:4]]).any()
    assert run.predict({"observation": 0, "action_mask": np.array([0, 1, 0])}) == 1
    returns = rlbook.evaluate(run, episodes=8).returns
    assert set(returns.tolist()) <= _returns_of_the_best()


def _returns_of_the_best() -> set[float]:
    """The undiscounted returns of the best discounted moves from each of the rooms 0 to 3."""
    best, found = exact_action_values().argmax(axis=1), set()
    for room in range(4):
        total = 0.0
        while OPEN[room].any():
            total, room = total + float(PAYS[room, best[room]]), int(LEADS_TO[room, best[room]])
        found.add(total)
    return found


@pytest.mark.parametrize(
    ("kind", "world"), [(MaskedRooms, CopySimulator), (KeptRooms, SnapshotSimulator)]
)
def test_a_search_keeps_to_the_masks_that_simulated_steps_show(kind: Any, world: Any) -> None:
    exact = exact_action_values()
    run = rlbook.train("mcts", kind(), steps=4, simulations=50, gamma=GAMMA, eval_every=0)
    assert isinstance(run.agent, MCTS) and isinstance(run.agent._world, world)
    for seed in range(6):
        env = kind()
        obs, _ = env.reset(seed=seed)
        chosen = run.agent.bind_env(env).predict(obs)
        assert chosen == exact[obs["observation"]].argmax()
    assert set(rlbook.evaluate(run, episodes=4).returns.tolist()) <= _returns_of_the_best()


def test_a_planner_samples_what_it_cannot_try() -> None:
    run = rlbook.train("value_iteration", KeptRooms(), gamma=GAMMA, sampled_steps=500)
    assert any("sampled steps" in note for note in run.notes)
    assert set(rlbook.evaluate(run, episodes=8).returns.tolist()) <= _returns_of_the_best()


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ([1, 0], "the observation's 'action_mask' must have 3 entries"),
        (np.ones((3, 3)), "the observation's 'action_mask' must have 3 entries"),
        ([1, 2, 0], "the observation's 'action_mask' must hold 1 for allowed and 0 for"),
        ([0.5, 1, 0], "the observation's 'action_mask' must hold 1 for allowed and 0 for"),
        ([0, 0, 0], "the observation's 'action_mask' allows no action"),
    ],
)
def test_what_is_no_mask_is_refused_in_one_sentence(
    shown: Any, said: str, num_envs: int | None
) -> None:
    env = MaskedRooms()
    env.shown = shown
    algorithm = "q_learning" if num_envs is None else "a2c"
    more = {} if num_envs is None else {"num_envs": num_envs}
    with pytest.raises(TrainingError, match=said) as caught:
        rlbook.train(algorithm, env, steps=20, eval_every=0, **more)
    assert "\n" not in str(caught.value)


def test_an_observation_without_its_entries_is_refused_in_one_sentence() -> None:
    class Forgets(MaskedRooms):
        def _dict(self, room: int, info: dict[str, Any]) -> Any:
            return {"observation": room}, {}

    with pytest.raises(TrainingError, match=r"must be a dict with .'action_mask', 'observation'."):
        rlbook.train("q_learning", Forgets(), steps=20, eval_every=0)


@pytest.mark.thorough
def test_workers_and_a_vector_form_of_its_own_show_the_same_masks() -> None:
    """A forbidden action raises in both."""

    class Vector(SyncVectorEnv):
        def __init__(self, num_envs: int, **_: Any) -> None:
            super().__init__([MaskedRooms] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    several: dict[str, Any] = {"steps": 64, "num_envs": 4, "seed": 2, "eval_every": 0}
    one, two = (rlbook.train("a2c", ROOMS, **several, **more) for more in ({}, {"workers": 2}))
    assert one.notes == two.notes and "'action_mask'" in one.notes[0]
    gymnasium.register("tests/Own-v0", entry_point=MaskedRooms, vector_entry_point=Vector)
    try:
        own = rlbook.train("a2c", "tests/Own-v0", **several)
    finally:
        del gymnasium.registry["tests/Own-v0"]
    assert own.notes[0] == one.notes[0]
    for run in (two, own):
        for name, value in one.agent.policy.state_dict().items():  # type: ignore[attr-defined]
            assert value.equal(run.agent.policy.state_dict()[name])  # type: ignore[attr-defined]


BOX, EIGHT = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(8)


@pytest.mark.parametrize(
    ("mask", "actions", "is_mask"),
    [
        (spaces.Box(0, 1, (8,), np.int8), EIGHT, True),
        (spaces.Box(0.0, 1.0, (8,), np.float32), EIGHT, True),
        (spaces.MultiBinary(8), EIGHT, True),
        (spaces.MultiDiscrete([2] * 8), EIGHT, True),
        (spaces.Box(0, 2, (8,), np.int8), EIGHT, False),
        (spaces.MultiDiscrete([3] * 8), EIGHT, False),
        (spaces.MultiBinary(7), EIGHT, False),
        (spaces.MultiBinary([8, 1]), EIGHT, False),
        (spaces.Discrete(8), EIGHT, False),
        (spaces.MultiBinary(8), spaces.MultiDiscrete([4, 2]), False),
        (spaces.MultiBinary(8), spaces.Box(-1.0, 1.0, (8,)), False),
    ],
)
def test_which_entry_is_a_mask_is_told_from_its_space(
    mask: spaces.Space, actions: spaces.Space, is_mask: bool
) -> None:
    found = keys_beside_mask(spaces.Dict(observation=BOX, action_mask=mask), actions)
    assert found == (("observation",) if is_mask else ())
    assert keys_beside_mask(spaces.Dict(observation=BOX, mask=mask), actions) == ()
    assert keys_beside_mask(spaces.Dict(action_mask=mask), actions) == ()


def test_of_several_other_entries_the_agent_sees_them_all() -> None:
    class Two(MaskedNoise):
        def __init__(self) -> None:
            super().__init__()
            old: Any = self.observation_space
            self.observation_space = spaces.Dict({**old.spaces, "turn": spaces.Discrete(2)})

        def _shown(self, over: bool) -> Any:
            obs, info = super()._shown(over)
            return {**obs, "turn": 1}, info

    run = rlbook.train("a2c", Two(), steps=40, eval_every=0, hidden_sizes=(8,))
    assert "the agent sees only the rest" in run.notes[0]
    assert run.agent.adaptation is not None
    assert run.agent.adaptation.observation_space.shape == (5,)
    obs, _ = Two().reset(seed=0)
    assert obs["action_mask"][run.predict(obs)] == 1


def test_make_leaves_the_observation_as_it_is_and_a_run_makes_it_as_the_agent_sees_it() -> None:
    env = rlbook.make(ROOMS)
    assert isinstance(env.observation_space, spaces.Dict) and observed_keys(env) == ()
    run = rlbook.train("q_learning", env, steps=20, eval_every=0)
    made = run.make_env()
    _, info = made.reset(seed=0)
    assert isinstance(made.observation_space, spaces.Discrete) and "action_mask" in info
    assert EnvRecipe.from_env(made).make().observation_space == made.observation_space


def test_episodes_are_recorded_without_the_mask_and_learned_from(tmp_path: Path) -> None:
    """The id stands for a class of this file, which no data set can name."""
    out = str(tmp_path / "walks")
    assert main(["record", ROOMS, "--episodes", "20", "--out", out]) == 0
    small: dict[str, Any] = {"hidden_sizes": (8,), "eval_every": 0}
    run = rlbook.train("behavior_cloning", ROOMS, data=out, passes=2, **small)
    assert run.agent.adaptation is not None
    assert run.agent.adaptation.env_observation_space == spaces.Discrete(len(OPEN))
    assert len(rlbook.evaluate(run, episodes=8).returns) == 8
