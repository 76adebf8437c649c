"""Sequences come back as they were played: their burn-in, the state before it, and where they end."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near
from gymnasium import spaces
from torch import Tensor

from rlbook.agent import Step
from rlbook.data.sequence_replay import SequenceMinibatch, SequenceReplay, Sequences

VALUES = torch.arange(2.0)
GAMMA = 0.5


def no_values(sequences: Sequences) -> Tensor:
    """Q⁻ is not of interest here."""
    trained = sequences.obs[:, sequences.burn_in :, 0]
    return trained[..., None].float() * VALUES


@dataclass
class Remembered:
    """What a replay of sequences asks for."""

    before: Tensor | None


class Played:
    """Random play of N environments, each of which shows 1000 · environment + time. Episode
    lengths are drawn from 1 to 9; every other one ends by a time limit. The state before an
    observation is its time, and 0 where an episode begins."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.num_envs, self.rng = num_envs, np.random.default_rng(seed)
        self.time = 0
        self.age = np.zeros(num_envs, int)
        self.left = self.rng.integers(1, 10, num_envs)
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]

    def step(self) -> tuple[Step, Remembered]:
        obs = 1000.0 * np.arange(self.num_envs) + self.time
        over = self.left == 1
        cut = over & (self.rng.random(self.num_envs) < 0.5)
        # a successor at the end of an episode is seen nowhere else
        after = np.where(over, -obs - 1, obs + 1)
        step = Step(
            obs[:, None].astype(np.float32),
            self.rng.integers(2, size=self.num_envs),
            self.rng.normal(size=self.num_envs).astype(np.float32),
            after[:, None].astype(np.float32),
            over & ~cut,
            cut,
        )
        state = torch.tensor(np.where(self.age > 0, obs, 0.0))[:, None].float()
        for env, rows in enumerate(self.rows):
            rows.append(
                {
                    "obs": float(obs[env]),
                    "action": int(step.action[env]),
                    "reward": float(step.reward[env]),
                    "next_obs": float(after[env]),
                    "terminated": bool(step.terminated[env]),
                    "over": bool(over[env]),
                    "age": int(self.age[env]),
                }
            )
        self.time += 1
        self.age = np.where(over, 0, self.age + 1)
        self.left = np.where(over, self.rng.integers(1, 10, self.num_envs), self.left - 1)
        return step, Remembered(state)

    def into(self, replay: SequenceReplay, steps: int) -> None:
        for _ in range(steps):
            replay.add(*self.step())


def replay_of(num_envs: int = 2, capacity: int = 61, **options: Any) -> SequenceReplay:
    chosen = {"length": 4, "overlap": 1, "burn_in": 3, "gamma": GAMMA} | options
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    return SequenceReplay(capacity, space, num_envs=num_envs, state_size=1, **chosen)


def check_sequence(replay: SequenceReplay, rows: list[dict[str, Any]], got: Any, n: int) -> None:
    """One sequence against the rows of its environment, in a plain loop."""
    burn, first = replay.burn_in, float(got.sequences.obs[replay.burn_in, 0])
    begin = int(first % 1000)
    age = rows[begin]["age"]
    assert age % replay.period == 0
    trained = [rows[begin]]
    while len(trained) < replay.length and not trained[-1]["over"]:
        if begin + len(trained) == len(rows):
            break
        trained.append(rows[begin + len(trained)])
    count = len(trained)
    assert got.mask.tolist() == [k < count for k in range(replay.length)]
    seen = [row["obs"] for row in trained] + [trained[-1]["next_obs"]]
    assert got.sequences.obs[burn : burn + count + 1, 0].tolist() == seen
    back = min(burn, age)  # what lies before the episode is of no influence
    before = [row["obs"] for row in rows[begin - back : begin]]
    assert got.sequences.obs[burn - back : burn, 0].tolist() == before
    starts = got.sequences.starts[burn - back :].tolist()
    assert starts == [k == 0 and back == age for k in range(len(starts))]
    if age > burn:
        assert float(got.sequences.state) == rows[begin - burn]["obs"]
    for k, row in enumerate(trained):
        steps = trained[k : k + n]
        assert int(got.action[k]) == row["action"]
        total = sum(GAMMA**j * each["reward"] for j, each in enumerate(steps))
        assert float(got.reward[k]) == near(total, dtype="float32", terms=n, size=3.0 * n)
        assert int(got.ahead[k]) == len(steps)
        assert bool(got.terminated[k]) == steps[-1]["terminated"]
        assert float(got.discount[k]) == GAMMA ** len(steps)  # a power of two
        if not got.terminated[k]:
            assert float(got.next_q[k + got.ahead[k], 1]) == steps[-1]["next_obs"]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("options", [{}, {"burn_in": 0}, {"overlap": 0}, {"overlap": 3}], ids=str)
@pytest.mark.parametrize("steps", [1, 7, 30, 200])
def test_a_sequence_is_what_a_plain_loop_finds(
    steps: int, options: dict[str, int], n_step: int
) -> None:
    """With a ring of 61 rows for two environments: the end of the ring lies within a step."""
    replay, played = replay_of(n_step=n_step, **options), Played(2)
    played.into(replay, steps)
    places = replay.sequence_starts()
    batch = replay.sequences_at(places, no_values)
    assert len(batch) == len(places) > 0
    begins = np.flatnonzero(replay.age[: replay.size] == 0)
    assert np.isin(begins, places).all(), "nothing lies before an episode that a burn-in would need"
    for number in range(len(batch)):
        one = single(batch, number)
        env = int(one.sequences.obs[replay.burn_in, 0] // 1000)
        check_sequence(replay, played.rows[env], one, n_step)
    # every step is trained that the ring holds behind a whole burn-in
    trained = {
        float(obs)
        for obs, mask in zip(
            batch.sequences.obs[:, replay.burn_in : -1, 0], batch.mask, strict=True
        )
        for obs in obs[mask]
    }
    kept = min(steps, 61 // 2) - (0 if steps < 30 else replay.burn_in + replay.period)
    for rows in played.rows:
        assert {row["obs"] for row in rows[steps - kept :]} <= trained


def single(batch: SequenceMinibatch, number: int) -> SequenceMinibatch:
    """A sequence without the leading axis."""
    rows = batch[number : number + 1]
    parts: dict[str, Any] = {
        name: field[0] if isinstance(field, Tensor) else field for name, field in vars(rows).items()
    }
    one = rows.sequences
    parts["sequences"] = Sequences(one.obs[0], one.starts[0], one.state[0], one.burn_in)
    return SequenceMinibatch(**parts)


def test_a_sequence_drawn_alone_is_what_it_is_among_others() -> None:
    """A minibatch of one sequence, of which fewer than n steps count, sums no reward beyond them."""
    replay, played = replay_of(n_step=3), Played(2)
    played.into(replay, 30)
    places = replay.sequence_starts()
    assert len(places) > 10
    for place in places:
        one = single(replay.sequences_at(np.array([place]), no_values), 0)
        env = int(one.sequences.obs[replay.burn_in, 0] // 1000)
        check_sequence(replay, played.rows[env], one, 3)


def test_the_steps_that_count_weigh_alike_in_all_and_in_parts() -> None:
    replay, played = replay_of(), Played(2)
    played.into(replay, 30)
    (batch,) = replay.minibatches(1, 16, no_values, np.random.default_rng(0))
    mean = batch.average
    each = torch.full((int(batch.mask.sum()),), 1.0 / int(batch.mask.sum()))
    assert_near(mean[batch.mask], each)
    assert not mean[~batch.mask].any()
    halves = [batch[:8], batch[8:]]
    parts = torch.cat([half.average * 0.5 for half in halves])
    assert_near(parts, mean)


def test_sequences_are_drawn_uniformly_and_by_the_seed() -> None:
    replay, played = replay_of(), Played(2)
    played.into(replay, 20)
    count = len(replay.sequence_starts())
    (batch,) = replay.minibatches(1, 200 * count, no_values, np.random.default_rng(0))
    _, drawn = np.unique(batch.sequences.obs[:, replay.burn_in, 0].numpy(), return_counts=True)
    assert len(drawn) == count
    # 200 on average each, with a standard deviation of at most √200; five of them
    assert np.abs(drawn - 200).max() < 5 * 200**0.5
    again = next(replay.minibatches(1, 200 * count, no_values, np.random.default_rng(0)))
    assert torch.equal(again.sequences.obs, batch.sequences.obs)


def test_action_masks_go_along() -> None:
    replay, played = replay_of(), Played(2)
    for _ in range(20):
        step, memory = played.step()
        allowed = np.stack([step.obs[:, 0] % 2 == 0, np.ones(2, bool)], axis=1)
        after = np.stack([step.next_obs[:, 0] % 2 == 0, np.ones(2, bool)], axis=1)
        replay.add(step._replace(action_mask=allowed, next_action_mask=after), memory)
    batch = replay.sequences_at(replay.sequence_starts(), no_values)
    assert batch.action_mask is not None
    seen = batch.sequences.obs[:, replay.burn_in :, 0]
    counts = torch.cat([torch.ones(len(batch), 1, dtype=torch.bool), batch.mask], dim=1)
    assert torch.equal(batch.action_mask[..., 0][counts], (seen % 2 == 0)[counts])


def test_a_saved_ring_of_sequences_goes_on_as_it_would_have() -> None:
    one, played = replay_of(), Played(2)
    played.into(one, 50)
    two = replay_of()
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    twin = copy.deepcopy(played)
    played.into(one, 25)
    twin.into(two, 25)
    assert np.array_equal(one.sequence_starts(), two.sequence_starts())
    left, right = (
        replay.sequences_at(replay.sequence_starts(), no_values) for replay in (one, two)
    )
    for name, field in vars(left).items():
        other = getattr(right, name)
        if name == "sequences":
            assert torch.equal(field.obs, other.obs) and torch.equal(field.state, other.state)
        else:
            assert field is other is None or torch.equal(field, other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"overlap": 4}, "overlap must be at least 0 and below 4, got 4"),
        ({"capacity": 15}, "buffer_size must be at least 16 to hold a sequence of each of 2"),
    ],
)
def test_bad_settings_are_one_sentence(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replay_of(**options)


def test_a_forged_ring_is_refused() -> None:
    replay, played = replay_of(), Played(2)
    played.into(replay, 5)
    for name, value in [
        ("slot", np.full(61, 10_000)),
        ("age", np.full(61, -1)),
        ("states", torch.zeros(3, 1)),
        ("recent", torch.full_like(replay.recent, float("nan"))),
        ("next_slot", 0),
    ]:
        with pytest.raises(ValueError, match="saved"):
            replay_of().load_state_dict(copy.deepcopy(replay.state_dict()) | {name: value})


def test_the_states_before_sequences_are_theirs_after_the_ring_has_gone_round_many_times() -> None:
    """A sequence begins with each step: its state is what was seen there, and 0 at an episode's
    first one."""
    replay, played = replay_of(2, 20, overlap=3, burn_in=0), Played(2)
    for _ in range(6):
        played.into(replay, 13)
        places = replay.sequence_starts()
        seen = replay.rows.obs[places, 0] * torch.from_numpy(replay.age[places] > 0)  # type: ignore[union-attr]
        assert len(places) >= 18
        assert replay.states[replay.slot[places], 0].tolist() == seen.tolist()
