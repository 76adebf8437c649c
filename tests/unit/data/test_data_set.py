"""Recorded data: what a batch holds, and that a run can go on anywhere in a pass."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
import torch

from rlbook.data.episodes import Episode, Episodes, Groups, Pairs

WALKS = [
    Episode(
        np.array([[0.0], [1.0], [2.0]], dtype=np.float32),
        np.array([3, 3, 1]),
        np.array([-1, -1, 10], dtype=np.float32),
    ),
    Episode(
        np.array([[0.0]], dtype=np.float32),
        np.array([0]),
        np.array([-5], dtype=np.float32),
        terminated=False,
    ),
]
TEXTS = [
    Episode(np.array([1, 7, 8]), np.array([9, 2])),
    Episode(np.array([1, 7]), np.array([5, 6, 2])),
]


def rows(count: int) -> Episodes:
    """Steps whose observation is their own number."""
    return Episodes(
        [Episode(np.arange(count, dtype=np.float32)[:, None], np.zeros(count, dtype=np.int64))]
    )


def numbers(batch: Any) -> list[int]:
    return batch.obs[:, 0].int().tolist()


def test_a_row_of_walks_is_a_step() -> None:
    data = Episodes(WALKS)
    batch = data[np.array([3, 1])]
    assert (
        len(data) == 3 + 1
        and batch.obs.tolist() == [[0.0], [1.0]]
        and batch.action.tolist() == [0, 3]
    )
    assert batch.mask.all() and batch.log_prob.isnan().all()


def test_whole_walks_are_padded_and_masked() -> None:
    batch = Episodes(WALKS, unit="episode")[np.array([0, 1])]
    assert batch.obs.shape == (2, 3, 1) and batch.action.tolist() == [[3, 3, 1], [0, 0, 0]]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]


def test_a_row_of_texts_is_a_prompt_with_its_completion() -> None:
    batch = Episodes(TEXTS)[np.array([0, 1])]
    assert batch.obs["tokens"].tolist() == [[1, 7, 8], [1, 7, 0]] and batch.obs[
        "length"
    ].tolist() == [3, 2]
    assert batch.action.tolist() == [[9, 2, 0], [5, 6, 2]] and batch.mask.sum(1).tolist() == [2, 3]


def test_every_pass_holds_every_row_once_in_an_order_of_its_own() -> None:
    data = rows(10)
    batches = [numbers(batch) for batch in islice(data.minibatches(4, np.random.default_rng(0)), 6)]
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2] and data.passes == 2.0
    first, second = list(chain(*batches[:3])), list(chain(*batches[3:]))
    assert sorted(first) == sorted(second) == list(range(10)) and first != second


def test_without_a_generator_rows_come_in_their_own_order() -> None:
    assert [numbers(batch) for batch in islice(rows(3).minibatches(2), 3)] == [[0, 1], [2], [0, 1]]


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("shuffled", [True, False])
def test_a_saved_position_goes_on_with_the_same_minibatches(cut: int, shuffled: bool) -> None:
    def fresh() -> Episodes:
        data = rows(10)
        if shuffled:
            data.shuffle(np.random.default_rng(5))
        return data

    whole, first, second = fresh(), fresh(), fresh()
    wanted = [numbers(batch) for batch in islice(whole.minibatches(3), 12)]
    done = [numbers(batch) for batch in islice(first.minibatches(3), cut)]
    second.load_state_dict(first.state_dict())
    assert second.passes == first.passes
    assert done + [numbers(batch) for batch in islice(second.minibatches(3), 12 - cut)] == wanted


def test_an_order_that_is_not_drawn_yet_is_drawn_alike_after_saving() -> None:
    """Saved before the first minibatch: the copy's generator is that of the saved one, and not its
    own."""
    data, other, unshuffled = rows(20), rows(20), rows(20)
    data.shuffle(np.random.default_rng(0))
    other.shuffle(np.random.default_rng(1))
    for copy in (other, unshuffled):
        copy.load_state_dict(data.state_dict())
    expected = [numbers(batch) for batch in islice(data.minibatches(8), 6)]
    for copy in (other, unshuffled):
        assert [numbers(batch) for batch in islice(copy.minibatches(8), 6)] == expected


@pytest.mark.parametrize("cut", range(7))
def test_rows_that_are_held_out_are_in_no_minibatch_also_after_saving(cut: int) -> None:
    data, other = rows(20), rows(20)
    held = data.hold_out(0.3, np.random.default_rng(5)).tolist()
    data.shuffle(np.random.default_rng(0))
    before = [numbers(batch) for batch in islice(data.minibatches(5), cut)]
    state, passes = data.state_dict(), data.passes
    other.load_state_dict(state)
    assert passes == other.passes == cut // 3 + cut % 3 * 5 / 14
    assert other.hold_out(0.3, np.random.default_rng(5)).tolist() == held and len(held) == 6
    after = [numbers(batch) for batch in islice(data.minibatches(5), 6 - cut)]
    assert [numbers(batch) for batch in islice(other.minibatches(5), 6 - cut)] == after
    first, second = (list(chain(*(before + after)[start : start + 3])) for start in (0, 3))
    assert sorted(first) == sorted(second) == sorted(
        set(range(20)) - set(held)
    ) and first != second != sorted(second)


def test_a_position_in_another_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="has 9 rows, but the saved position belongs to 10"):
        rows(9).load_state_dict(rows(10).state_dict())
    with pytest.raises(ValueError, match="row 11 of pass 0 in 10 rows"):
        rows(10).load_state_dict(rows(10).state_dict() | {"position": 11})


def test_the_digest_is_that_of_the_content() -> None:
    assert (
        Episodes(WALKS).digest()
        == Episodes(list(WALKS), unit="episode").digest()
        != Episodes(WALKS[::-1]).digest()
    )
    longer = Episode(WALKS[1].obs, WALKS[1].action, WALKS[1].reward, terminated=True)
    assert Episodes([WALKS[0], longer]).digest() != Episodes(WALKS).digest()


def test_pairs_keep_the_better_and_the_worse_side_by_side() -> None:
    data = Pairs(TEXTS, TEXTS[::-1])
    better, worse, margin = data[np.array([1])]
    assert margin is None
    assert better.action.tolist() == [[5, 6, 2]] and worse.action.tolist() == [[9, 2]]


def test_ranked_pairs_prefer_the_larger_return_and_leave_ties_out() -> None:
    data = Pairs.from_ranked([*WALKS, WALKS[0]], np.random.default_rng(0), per_episode=8)
    assert all(episode.episode_return == 8 for episode in data.better) and all(
        e.episode_return == -5 for e in data.worse
    )
    with pytest.raises(ValueError, match="all have the same return"):
        Pairs.from_ranked([WALKS[0], WALKS[0]], np.random.default_rng(0))


def test_groups_come_one_behind_the_other_with_their_sizes() -> None:
    batch = Groups([TEXTS, [*TEXTS, TEXTS[0]]])[np.array([1, 0])]
    assert batch.sizes.tolist() == [3, 2] and len(batch.episodes) == 5
    assert torch.equal(batch.episodes.action[0], batch.episodes.action[2])


def walk(pays: float) -> Episode:
    return Episode(np.zeros((1, 1), np.float32), np.array([0]), np.array([pays], np.float32))


@pytest.mark.parametrize("count", [6, 7, 8])
def test_ranked_groups_are_of_neighbours_best_first_without_the_remainder(count: int) -> None:
    data = Groups.from_ranked([walk(pays) for pays in (1, 3, 2, 6, 4, 5, 9, 8)[:count]], 3)
    assert [[e.episode_return for e in group] for group in data.groups] == [[3, 2, 1], [6, 5, 4]]
    batch = data[np.array([1, 0])]
    assert batch.returns.tolist() == [6, 5, 4, 3, 2, 1]
    best = batch.best_episodes(2)
    assert best.returns.tolist() == [6, 5, 3, 2] and best.sizes.tolist() == [2, 2]
    assert batch.best_episodes(9).sizes.tolist() == [3, 3]


def test_an_episode_without_actions_or_observations_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one action"):
        Episode(np.zeros((0, 1)), np.zeros(0))
    with pytest.raises(ValueError, match="an observation for each of its 2 actions, got 1"):
        Episode(np.zeros((1, 1)), np.zeros(2))
