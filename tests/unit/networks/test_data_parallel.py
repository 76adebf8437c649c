"""How a minibatch is split among processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from closeness import near

from rlbook.data.replay import Transitions
from rlbook.data.rollout import Batch
from rlbook.functional.averages import per_token, weighted_sum
from rlbook.interaction.process_group import ProcessGroup
from rlbook.networks.data_parallel import (
    ShardGenerator,
    act_on_rows,
    count_rows,
    outputs_of_rows,
    portion,
    summed_gradients,
    take_rows,
)


def group(size: int, rank: int) -> ProcessGroup:
    """A process that has not connected to the others."""
    made = object.__new__(ProcessGroup)
    made.size, made.rank = size, rank
    return made


def test_the_losses_of_two_processes_add_up_to_the_mean_over_tokens() -> None:
    loss = torch.tensor([[4.0, 0.0, 0.0], [1.0, 1.0, 2.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    batch = Batch(loss, loss, loss, mask, weight=per_token(mask))
    assert batch.adds_up
    parts = [take_rows(batch, portion(group(2, rank), 2).rows) for rank in range(2)]
    each = [weighted_sum(part.obs, **part.share).item() for part in parts]
    assert each == [near(4 / 4), near((1 + 1 + 2) / 4)]
    assert sum(each) == near((4 + 1 + 1 + 2) / 4)
    means = [weighted_sum(part.obs, part.mask).item() for part in parts]
    assert sum(means) / 2 == near((4 / 1 + 4 / 3) / 2, dtype="float32")  # the common mistake


def test_means_over_rows_have_the_share_of_their_rows() -> None:
    rows = torch.tensor([1.0, 2.0, 6.0])  # one process has one of them, the other two
    found = [portion(group(2, rank), 3) for rank in range(2)]
    assert [part.share for part in found] == [near(1 / 3), near(2 / 3)]
    assert sum(rows[p.rows].mean().item() * p.share for p in found) == near(3.0, dtype="float32")


def test_a_process_without_rows_lends_one_of_no_weight() -> None:
    assert portion(group(3, 0), 1) == (slice(0, 1), 0.0)
    assert [portion(group(3, rank), 1).share for rank in range(3)] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("rank", range(3))
def test_outputs_of_all_rows_stand_in_their_order_and_a_process_has_the_gradient_of_its_own(
    rank: int,
) -> None:
    """Five rows among three processes, one of which has the middle."""
    weight, rows = torch.tensor(3.0, requires_grad=True), torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    process = group(3, rank)
    whole = (3.0 * rows).detach()
    process.gather_rows = lambda own, count: whole  # type: ignore[method-assign]
    with summed_gradients(process, 1.0):
        found = outputs_of_rows(lambda some: weight * some, rows)
    assert found.tolist() == whole.tolist()
    found.sum().backward()
    assert weight.grad == rows[process.rows(5)].sum()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_row_draws_the_same_numbers_in_any_process(size: int) -> None:
    drawn, ends = [], []
    for rank in range(size):
        rng = np.random.default_rng(7)
        rows = group(size, rank).rows(5)
        drawn.append(ShardGenerator(rng, 5, rows).random(rows.stop - rows.start))
        ends.append(rng.random())
    alone = np.random.default_rng(7)
    assert np.concatenate(drawn).tolist() == alone.random(5).tolist()
    assert set(ends) == {alone.random()}


@pytest.mark.parametrize("rank", range(3))
def test_a_process_without_rows_draws_as_many_numbers_as_the_others(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows among three processes: the generators stay in step."""
    process, whole = group(3, rank), (np.array([1, 1]), np.zeros(2, dtype=np.float32))
    process.gather = lambda found: [None, whole]  # type: ignore[method-assign]
    monkeypatch.setattr(ProcessGroup, "training", process)

    class Draws:
        splits = True

        def act(self, obs: Any, rng: Any, *_: Any) -> Any:
            rng.random(len(obs["tokens"]))
            return whole

    rng, alone = np.random.default_rng(7), np.random.default_rng(7)
    act_on_rows(Draws(), {"tokens": np.zeros((2, 4), dtype=np.int64)}, rng, None, None)
    alone.random(2)
    assert rng.random() == alone.random()


def test_transitions_are_split_by_rows_and_not_by_fields() -> None:
    rows = torch.arange(4)
    batch = Transitions(rows[:, None], rows, rows, rows[:, None], rows > 5)
    assert count_rows(batch) == 4
    assert take_rows(batch, slice(1, 3)).action.tolist() == [1, 2]
