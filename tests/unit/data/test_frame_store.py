"""A replay buffer that stores each frame once draws the batches of one that stores every observation
twice, bit for bit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from rlbook.agent import Step
from rlbook.data.frame_store import FrameStore, frame_store
from rlbook.data.rainbow_replay import RainbowReplay
from rlbook.data.replay import ReplayBuffer
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.runs.storage.checkpoints import load_checkpoint, save_checkpoint

SHAPE = (3, 2)


class Film(gymnasium.Env):
    """Random frames of 3 x 2 bytes. An episode has 1 to 6 steps; every second one is cut by a time
    limit, the others end."""

    observation_space, action_space = spaces.Box(0, 255, SHAPE, np.uint8), spaces.Discrete(3)

    def __init__(self) -> None:
        self.episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.left = self.episode + 1, int(self.np_random.integers(1, 7))
        return self.frame(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        over, cut = self.left == 0, self.episode % 2 == 0
        return self.frame(), float(self.np_random.normal()), over and not cut, over and cut, {}

    def frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, SHAPE, dtype=np.uint8)


def films(num_envs: int, stack: int = 4, padding: str = "reset") -> SyncVector:
    return SyncVector(
        [FrameStackObservation(Film(), stack, padding_type=padding) for _ in range(num_envs)]
    )


def steps_in(env: SyncVector, count: int) -> list[Step]:
    interaction, rng = VectorInteraction(env, np.random.default_rng(0)), np.random.default_rng(1)
    interaction.start()
    steps = []
    for _ in range(count):
        steps.append(interaction.step(rng.integers(3, size=env.num_envs)))
        interaction.reset_finished()
    return steps


def store(num_envs: int, stack: int = 4, **settings: Any) -> FrameStore:
    settings = {"capacity": 20, "block": 5} | settings
    return FrameStore(
        (stack, *SHAPE), np.dtype(np.uint8), num_envs=num_envs, stack=stack, **settings
    )


def both(num_envs: int, stack: int, capacity: int, **settings: Any) -> list[RainbowReplay]:
    """A buffer with each observation as it is, and one with each frame once."""
    space = spaces.Box(0, 255, (stack, *SHAPE), np.uint8)
    return [
        RainbowReplay(capacity, space, num_envs=num_envs, frames=frames, **settings)
        for frames in (None, store(num_envs, stack, capacity=capacity))
    ]


def drawn(replay: RainbowReplay, seed: int) -> list[Any]:
    """Three minibatches of 8, whose rows get new priorities where they have any."""
    rng, found = np.random.default_rng(seed), []
    values = lambda obs: obs.double().flatten(1).sum(1, keepdim=True)  # noqa: E731
    for batch in replay.minibatches(3, 8, values, rng, together=1):
        fields = (*batch.rows[:5], batch.next_q, batch.discount, batch.weight, batch.places)
        found += [field for field in fields if field is not None]
        if replay.priorities is not None:
            assert batch.places is not None
            replay.priorities.update(batch.places, rng.random(8))
    return found


def assert_same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for left, right in zip(map(np.asarray, one), map(np.asarray, other), strict=True):
        assert left.dtype == right.dtype and np.array_equal(left, right)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("settings", [{}, {"n_step": 3, "gamma": 0.5}, {"priority_exponent": 0.6}])
@pytest.mark.parametrize(("stack", "padding"), [(1, "reset"), (4, "reset"), (4, "zero")])
@pytest.mark.parametrize(("num_envs", "capacity"), [(1, 7), (1, 200), (3, 10), (3, 12)])
def test_the_same_seeds_draw_the_same_batches(
    num_envs: int, capacity: int, stack: int, padding: str, settings: dict[str, Any]
) -> None:
    """The ring is written over several times, in places that N does not divide; resets, endings and
    time limits fall anywhere."""
    replays = both(num_envs, stack, capacity, **settings)
    for count, step in enumerate(steps_in(films(num_envs, stack, padding), 60)):
        for replay in replays:
            replay.add(step)
        if count % 7 == 0:
            assert_same(*(drawn(replay, count) for replay in replays))
    everything = [replay.rows_at(np.arange(replay.size))[:5] for replay in replays]
    assert_same(*map(list, everything))


@pytest.mark.parametrize("stack", [1, 4])
def test_an_episode_of_t_steps_has_t_plus_one_frames(stack: int) -> None:
    frames, steps = store(2, stack, block=1000), steps_in(films(2, stack), 50)
    for step in steps:
        frames.add(step.obs, step.next_obs)
    # an episode begins at the first step, and after each step that ends one but for the last
    ends = sum(int((step.terminated | step.truncated).sum()) for step in steps[:-1])
    assert frames.count == 2 * 50 + 2 + ends


def test_frames_that_no_transition_shows_are_dropped() -> None:
    """At most 20 transitions and as many first frames, four frames more of each of 2 environments,
    and a block of 5 that is partly used at either end; 400 steps had over 800 frames."""
    replay = both(2, 4, 20)[1]
    assert replay.frames is not None
    for step in steps_in(films(2), 400):
        replay.add(step)
        assert 5 * len(replay.frames.blocks) <= 2 * 20 + 4 * 2 + 2 * 5
    assert replay.frames.count > 800


def test_observations_that_are_no_stack_come_back_as_they_were() -> None:
    """A successor that does not repeat what was seen, and an observation that does not continue."""
    rng, flags = np.random.default_rng(0), np.zeros(2, bool)
    one, other = both(2, 4, 10)
    for _ in range(9):
        obs, next_obs = rng.integers(0, 256, (2, 2, 4, *SHAPE), dtype=np.uint8)
        step = Step(obs, np.zeros(2, int), np.zeros(2, np.float32), next_obs, flags, flags)
        one.add(step)
        other.add(step)
    assert_same(*(list(replay.rows_at(np.arange(10))[:5]) for replay in (one, other)))


def test_what_an_environment_writes_over_is_kept() -> None:
    """An environment may have two arrays that it shows in turn, and write a reset into the last."""
    shown, flags = np.zeros((2, 1, 1, *SHAPE), np.uint8), np.zeros(1, bool)
    replay = both(1, 1, 10)[1]
    for number in range(4):
        obs, next_obs = shown[number % 2], shown[1 - number % 2]
        obs[:], next_obs[:] = 10 * number, 10 * number + 1
        replay.add(Step(obs, np.zeros(1, int), np.zeros(1, np.float32), next_obs, flags, flags))
    rows = replay.rows_at(np.arange(4))
    assert rows.obs[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert rows.next_obs[:, 0, 0, 0].tolist() == [1, 11, 21, 31]


@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("count", [1, 9, 33])
def test_a_saved_buffer_goes_on_as_it_would_have(tmp_path: Path, count: int, place: str) -> None:
    folder = tmp_path if place == "folder" else None
    space, steps = spaces.Box(0, 255, (4, *SHAPE), np.uint8), steps_in(films(3), 60)
    one, other = (
        RainbowReplay(32, space, num_envs=3, n_step=2, frames=store(3, folder=folder))
        for _ in range(2)
    )
    for step in steps[:count]:
        one.add(step)
    save_checkpoint(tmp_path / "run", count, one.state_dict())
    other.load_state_dict(load_checkpoint(tmp_path / "run")[1])
    assert_same(drawn(one, 0), drawn(other, 0))
    for step in steps[count:]:
        one.add(step)
        other.add(step)
    assert_same(drawn(one, 1), drawn(other, 1))
    assert {*map(str, tmp_path.iterdir())} == {str(tmp_path / "run")}  # the files have no names


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_a_resumed_buffer_holds_each_frame_once(tmp_path: Path, place: str) -> None:
    one, other = (store(1, folder=tmp_path if place == "folder" else None) for _ in range(2))
    for step in steps_in(films(1), 30):
        one.add(step.obs, step.next_obs)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    full = other.state_dict()["full"]
    assert len(full) > 3
    for part, block in zip(full, other.blocks, strict=False):
        assert np.shares_memory(part["frames"], block)


def test_a_block_that_was_written_is_not_written_again(tmp_path: Path) -> None:
    replay, steps = both(1, 4, 1000)[1], steps_in(films(1), 60)
    for step in steps[:30]:
        replay.add(step)
    save_checkpoint(tmp_path, 1, replay.state_dict())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoints/*.safetensors")}
    for step in steps[30:]:
        replay.add(step)
    save_checkpoint(tmp_path, 2, replay.state_dict())
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoints/*.safetensors")}
    assert len(before) >= 6 and before.items() <= after.items()
    assert replay.frames is not None and len(after) == replay.frames.count // 5


@pytest.mark.parametrize("capacity", [9, 10, 40])
def test_a_checkpoint_with_whole_observations_is_read(capacity: int) -> None:
    """As they were written before frames were stored once: 36 rows of 3 environments."""
    one, other = both(3, 4, capacity)
    for step in steps_in(films(3), 12):
        one.add(step)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert_same(drawn(one, 0), drawn(other, 0))


def damaged(change: Any) -> dict[str, Any]:
    replay = both(1, 4, 20)[1]
    for step in steps_in(films(1), 17):
        replay.add(step)
    state = copy.deepcopy(replay.state_dict())
    change(state["rows"])
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows["obs_frames"].fill_(10**6), "an observation refers to 1000000"),
        (lambda rows: rows["next_obs_frames"].neg_(), "an observation refers to -"),
        (lambda rows: rows["frames"].update(count=3), "must be 3 in blocks of 5"),
        (lambda rows: rows["frames"].update(block=0), "in blocks of 0"),
        (lambda rows: rows["frames"]["full"].pop(), "an observation refers to 0"),
        (
            lambda rows: rows["frames"].update(last=rows["frames"]["last"][:, :, :1]),
            "are not 1 x 3 x 2 of uint8",
        ),
        (
            lambda rows: rows["frames"]["full"].insert(0, {"frames": np.zeros((4, 1, 3, 2), "u1")}),
            "must be|does not have 5",
        ),
        (lambda rows: rows.update(obs_frames=rows["obs_frames"][:, :2]), "must have shape"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        both(1, 4, 20)[1].load_state_dict(damaged(change))


def test_the_environments_say_how_many_frames_an_observation_has() -> None:
    made = frame_store(films(2), 1000)  # type: ignore[arg-type]
    assert made is not None and made.stack == 4 and made.frame_shape == (1, *SHAPE)
    assert films(1, 1).frame_stack == 1  # type: ignore[attr-defined]
    vectors = SyncVector([gymnasium.make("CartPole-v1")])
    assert frame_store(vectors, 1000) is None


def test_a_million_steps_of_the_usual_images_take_seven_gigabytes() -> None:
    """84 · 84 bytes a step, two times four numbers of 8 bytes, and 16 of the rest: 7,136."""
    frames = FrameStore((4, 84, 84), np.dtype(np.uint8), num_envs=1, stack=4, capacity=10**6)
    assert frames.note(10**6).startswith("replay buffer: up to 7.06 GB of memory for 1,000,000")
    assert frames.block * frames.frame_bytes <= 2**24
    with pytest.raises(ValueError, match="buffer_size 1,000,000,000 needs 7,136 GB"):
        ReplayBuffer(10**9, 4 * 84 * 84, frames=frames)
    assert torch.equal(
        frames.observations(torch.zeros(0, 4, dtype=torch.int64)), torch.zeros(0, 4, 84, 84)
    )
