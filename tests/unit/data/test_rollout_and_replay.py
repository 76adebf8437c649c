"""What was collected comes back whole: the replay ring, rollouts, rows and minibatches."""

from __future__ import annotations

import copy
import resource
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from rlbook.agent import Step
from rlbook.data.rainbow_replay import RainbowReplay
from rlbook.data.replay import ReplayBuffer
from rlbook.data.rollout import Batch, Rollout, minibatches
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.networks.mlp import MLPPolicy


class Clock(gymnasium.Env):
    """Shows the time: 100 · episode + steps in it. Episodes of 3 steps end by a time limit, those
    of 4 by termination."""

    observation_space, action_space = spaces.Box(0.0, np.inf, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, offset: int) -> None:
        self.time, self.episode = 0, 10_000 * offset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 100, 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        short = self.episode % 200 == 0
        return self._shown(), 1.0, not short and self.time == 4, short and self.time == 3, {}

    def _shown(self) -> np.ndarray:
        return np.array([self.episode + self.time], dtype=np.float32)


def played(replay: ReplayBuffer, steps: int, num_envs: int) -> list[tuple[float, ...]]:
    """Random play into `replay`; returns the transitions in the order they happened."""
    interaction = VectorInteraction(
        SyncVector([Clock(i) for i in range(num_envs)]), np.random.default_rng(0)
    )
    rng, happened = np.random.default_rng(1), []
    interaction.start()
    for _ in range(steps):
        step = interaction.step(rng.integers(2, size=num_envs))
        replay.add(step)
        happened += list(
            zip(
                step.obs[:, 0],
                step.action,
                step.reward,
                step.next_obs[:, 0],
                step.terminated,
                strict=True,
            )
        )
        interaction.reset_finished()
    return happened


def rows(replay: ReplayBuffer) -> list[tuple[float, ...]]:
    fields = replay.rows
    assert fields is not None
    columns = (
        fields.obs[:, 0],
        fields.action,
        fields.reward,
        fields.next_obs[:, 0],
        fields.terminated,
    )
    return list(zip(*(column[: replay.size].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("num_envs", [1, 3, 7])
@pytest.mark.parametrize("steps", [2, 9, 10, 11, 50])
def test_the_ring_holds_the_last_transitions_and_no_row_lies_across_a_reset(
    steps: int, num_envs: int
) -> None:
    replay = ReplayBuffer(10, 1)
    happened = played(replay, steps, num_envs)
    assert sorted(rows(replay)) == sorted(happened[-10:])
    assert replay.size == min(10, len(happened))
    sample = replay.rows_at(np.arange(replay.size))
    assert torch.equal(sample.next_obs, sample.obs + 1)
    ends_after_four = (sample.obs[:, 0] // 100) % 2 == 1
    # a time limit is no termination
    assert torch.equal(sample.terminated, ends_after_four & (sample.next_obs[:, 0] % 100 == 4))


@pytest.mark.parametrize(
    ("obs", "action"),
    [
        (
            np.array([[0.25, -3.0]]),
            np.array([[0.7, -0.2, 1e-3]], np.float32),
        ),  # a continuous action of three numbers
        (
            np.array([[200, 3]], np.uint8),
            np.array([2**40]),
        ),  # pixels, and a number that float32 would round
    ],
    ids=["continuous", "integers"],
)
def test_what_comes_back_is_what_was_given(obs: np.ndarray, action: np.ndarray) -> None:
    replay, flags = ReplayBuffer(4, 2), np.array([False])
    replay.add(Step(obs, action, np.array([0.1]), obs + 1, flags, flags, ~flags))
    sample = replay.rows_at(np.array([0]))
    for given, back in zip((obs, action, np.array([0.1]), obs + 1, flags), sample[:5], strict=True):
        assert back.numpy().dtype == given.dtype and np.array_equal(back.numpy(), given)
    with pytest.raises(ValueError, match="must have 2 numbers, got 3"):
        replay.add(
            Step(np.zeros((1, 3)), action, np.zeros(1), np.zeros((1, 3)), flags, flags, ~flags)
        )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells what is resident")
def test_room_that_is_not_used_yet_takes_no_memory() -> None:
    """A million rows of 400 numbers are 3.2 GB, and a run may end after a thousand steps."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    obs, flag = np.zeros((1, 400), np.float32), np.array([False])
    replay, before = ReplayBuffer(1_000_000, 400), resident()
    replay.add(Step(obs, np.array([0]), np.array([1.0], np.float32), obs, flag, flag))
    assert replay.rows is not None and len(replay.rows.obs) == 1_000_000
    assert resident() - before < 100e6


def test_sampling_is_uniform_over_what_is_there() -> None:
    replay = RainbowReplay(100, spaces.Box(0, 1, (1,)))
    played(replay, 8, 5)  # 40 rows of 100

    def sample(size: int, seed: int) -> list[float]:
        draws = replay.minibatches(1, size, torch.zeros_like, np.random.default_rng(seed))
        return next(draws).rows.obs[:, 0].tolist()

    _, counts = np.unique(sample(40_000, 0), return_counts=True)
    assert len(counts) == 40
    assert stats.chisquare(counts).pvalue > 1e-3
    assert sample(64, 5) == sample(64, 5)


def test_a_saved_ring_goes_on_as_it_would_have(tmp_path: Any) -> None:
    one, two = ReplayBuffer(10, 1), ReplayBuffer(10, 1)
    played(one, 9, 3)
    state = copy.deepcopy(one.state_dict())
    two.load_state_dict(state)
    played(one, 2, 3)
    played(two, 2, 3)
    assert rows(one) == rows(two)
    # without masks, which are None
    drawn = (replay.rows_at(np.arange(10))[:5] for replay in (one, two))
    for left, right in zip(*drawn, strict=True):
        assert torch.equal(left, right)


# ---- rows


def batch_of(count: int, **more: Any) -> Batch:
    column = torch.arange(count)
    return Batch(
        column[:, None].float(), column, column.float(), torch.ones(count, dtype=torch.bool), **more
    )


@pytest.mark.parametrize(("count", "size"), [(12, 4), (10, 4), (5, 1), (7, 6)])
def test_minibatches_hold_every_row_once_in_a_new_order(count: int, size: int) -> None:
    rng = np.random.default_rng(0)
    epochs = [[part.action for part in minibatches(batch_of(count), size, rng)] for _ in range(2)]
    for parts in epochs:
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
        assert 1 <= len(parts[-1]) <= size
        assert sorted(torch.cat(parts).tolist()) == list(range(count))
    assert torch.cat(epochs[0]).tolist() != torch.cat(epochs[1]).tolist()
    assert torch.cat(epochs[0]).tolist() != list(range(count))


def test_the_fields_of_a_row_stay_together() -> None:
    row = torch.arange(9)
    batch = batch_of(
        9,
        value=row * 2.0,
        advantage=row * 3.0,
        target=row * 4.0,
        reference_log_prob=row * 5.0,
        weight=row * 6.0,
    )
    for part in minibatches(batch, 4, np.random.default_rng(0)):
        others = (part.value, part.advantage, part.target, part.reference_log_prob, part.weight)
        for factor, field in enumerate(others, start=2):
            assert field is not None and torch.equal(field, factor * part.action.float())
        assert torch.equal(part.obs[:, 0], part.action.float()) and torch.equal(
            part.log_prob, part.action.float()
        )


def test_one_minibatch_of_everything_keeps_the_order_and_is_not_the_batch_itself() -> None:
    batch = batch_of(5)
    (only,) = minibatches(batch, 5, np.random.default_rng(0))
    assert only.action.tolist() == [0, 1, 2, 3, 4]
    only.weight = torch.ones(5)
    assert batch.weight is None


def test_a_row_of_a_batch_may_be_a_dict_of_tensors_or_missing() -> None:
    obs = {"tokens": torch.arange(12).view(4, 3), "length": torch.arange(4)}
    batch = Batch(obs, torch.arange(4), torch.zeros(4), torch.ones(4, dtype=torch.bool))
    part = batch[torch.tensor([3, 1])]
    assert part.obs["tokens"].tolist() == [[9, 10, 11], [3, 4, 5]] and part.obs[
        "length"
    ].tolist() == [3, 1]
    assert part.value is None and len(part) == 2


def test_rows_are_the_valid_steps_in_order_or_whole_episodes() -> None:
    """T = 3, N = 2; the second stream waits from its second step on."""
    policy = MLPPolicy(1, spaces.Discrete(4), torch.Generator().manual_seed(0), critic=False)
    rollout = Rollout()
    for time in range(3):
        rollout.add(step_at(time), np.zeros(2, np.float32))
    value = torch.tensor([[0, 10], [1, 11], [2, 12]])
    rows = policy.batch(rollout, "step", value=value)
    assert rows.value is not None and rows.value.tolist() == [0, 10, 1, 2]
    assert rows.action.tolist() == [0, 1, 1, 2] and rows.obs.tolist() == [[0], [0], [1], [2]]
    rows = policy.batch(rollout, "episode", value=value)
    assert rows.value is not None and rows.value.tolist() == [[0, 1, 2], [10, 11, 12]]
    assert rows.action.tolist() == [[0, 1, 2], [1, 2, 3]] and rows.obs.shape == (2, 3, 1)


def step_at(time: int) -> Step:
    flags = np.zeros(2, dtype=bool)
    obs = np.full((2, 1), time, np.float32)
    return Step(
        obs,
        np.array([time, time + 1]),
        np.ones(2, np.float32),
        obs + 1,
        flags,
        flags,
        np.array([True, time < 1]),
    )


def test_a_rollout_stacks_its_steps_over_time() -> None:
    rollout = Rollout()
    for time in range(3):
        rollout.add(step_at(time), np.full(2, -float(time), np.float32))
    assert len(rollout.steps) == 3
    assert rollout.tensor("obs")[:, :, 0].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert rollout.tensor("action").tolist() == [[0, 1], [1, 2], [2, 3]]
    assert rollout.tensor("valid").tolist() == [[True, True], [True, False], [True, False]]
    assert rollout.tensor("log_prob").tolist() == [[0, 0], [-1, -1], [-2, -2]]
    rollout.clear()
    assert not rollout.steps


def test_a_rollout_may_keep_the_first_observations_alone() -> None:
    rollout = Rollout("first")
    for time in range(3):
        rollout.add(step_at(time), np.zeros(2, np.float32))
    assert [step.obs is None for step in rollout.steps] == [False, True, True]
    assert [step.next_obs is None for step in rollout.steps] == [True, True, False]
    assert rollout.tensor("action").tolist() == [[0, 1], [1, 2], [2, 3]]


def test_a_saved_rollout_is_the_rollout() -> None:
    one, two = Rollout(), Rollout()
    for time in range(3):
        one.add(step_at(time), np.full(2, -float(time), np.float32))
    two.load_state_dict(one.state_dict())
    one.add(step_at(3), np.zeros(2, np.float32))
    two.add(step_at(3), np.zeros(2, np.float32))
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "valid"):
        assert torch.equal(one.tensor(name), two.tensor(name))
    assert torch.equal(one.tensor("log_prob"), two.tensor("log_prob"))
