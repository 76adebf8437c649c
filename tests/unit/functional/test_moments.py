"""Moments merged from parts are those of the whole, and what waits is no reward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_near, near

from rlbook.data.reward_scale import RewardScale
from rlbook.functional.moments import merged_moments


def test_two_parts_by_hand() -> None:
    """(1, 3) has mean 2, variance 1; with (8): mean 4, variance ((1-4)² + (3-4)² + (8-4)²) / 3 =
    26/3."""
    held = torch.tensor(2.0), torch.tensor(2.0), torch.tensor(1.0)
    count, mean, variance = merged_moments(*held, torch.tensor([8.0]))
    assert (count, mean) == (3.0, 4.0) and variance.item() == near(26 / 3, dtype="float32", terms=3)


@pytest.mark.parametrize("num_envs", [1, 8])
def test_rollouts_of_n_environments_merge_to_the_moments_of_all_data(num_envs: int) -> None:
    """Far from 0 and unequal in length, where sums of squares would cancel."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(1e6, 1e-2, size=(steps * num_envs, 3)) for steps in (1, 7, 128, 2)]
    held = (
        torch.tensor(0.0),
        torch.zeros(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.float64),
    )
    for part in parts:
        held = merged_moments(*held, torch.from_numpy(part))
    everything = np.concatenate(parts)
    assert held[0] == len(everything)
    assert_near(held[1], everything.mean(0), terms=len(everything))
    # the means are off by eps · 1e6, and their distances, of at most .03, enter squared;
    # sums of squares would be off by eps · 1e12
    assert_near(held[2], everything.var(0), terms=len(everything), size=2 * 0.03 * 1e6)


def test_shapes_that_would_broadcast_are_refused() -> None:
    held = torch.tensor(0.0), torch.zeros(3), torch.ones(3)
    for x in (torch.zeros(4), torch.zeros(4, 1), torch.zeros(0, 3)):
        with pytest.raises(ValueError, match="x must be"):
            merged_moments(*held, x)


def test_an_environment_that_waits_for_the_others_adds_no_zeros_to_the_scale() -> None:
    """Environment 0 ends at once and waits for two steps; the four returns are 2, 2, 3 and 3.5 (γ =
    ½)."""
    reward = torch.tensor([[2.0, 2.0], [0.0, 2.0], [0.0, 2.0]])
    ended = torch.tensor([[True, False], [False, False], [False, True]])
    valid = torch.tensor([[True, True], [False, True], [False, True]])
    scale = RewardScale(2, 0.5)
    scaled = scale(reward, ended, valid)
    assert scale.moments.tolist() == [4, (2 + 2 + 3 + 3.5) / 4, np.var([2, 2, 3, 3.5])]
    assert scaled[0, 0].item() == near(2 / np.std([2, 2, 3, 3.5]), dtype="float32", terms=2)
    assert scale.running.tolist() == [0, 0]
