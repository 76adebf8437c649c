"""How the errors of a learned model grow with the horizon: what is measured, on a small scale."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import assert_near

from rlbook.book.experiments import model_errors


def test_the_recorded_steps_are_whole_episodes_of_the_pendulum() -> None:
    """Two side by side: the successor of a step is the state of the next one, and nothing ends
    before 200 steps."""
    replay = model_errors.record_random_pushes(2, seed=0)
    rows = replay.rows_at(replay.newest_indices(replay.size))
    assert len(rows.reward) == 2 * model_errors.LENGTH
    obs, after = (each.unflatten(0, (-1, 2)) for each in (rows.obs, rows.next_obs))
    assert (after[:-1] == obs[1:]).all() and not rows.terminated.any()
    assert rows.action.abs().max() <= 2
    assert_near((rows.obs[:, :2] ** 2).sum(1), np.ones(len(rows.obs)), dtype="float32", terms=2)


def test_neighbouring_seeds_share_no_start() -> None:
    """`env.reset(seed=n)` on N environments takes the seeds n to n + N - 1."""
    first, second = (
        {tuple(start) for start in replay.rows_at(np.arange(3)).obs.tolist()}
        for replay in (model_errors.record_random_pushes(3, seed) for seed in (0, 1))
    )
    assert len(first) == len(second) == 3 and not first & second


@pytest.mark.slow
def test_errors_grow_with_the_horizon_and_shrink_with_the_data() -> None:
    """Few gradient steps. Sixteen steps ahead the error is more than three times that of one step,
    by every model."""
    found = model_errors.run(seeds=1, gradient_steps=60)
    assert found.errors.shape == (1, len(model_errors.AMOUNTS), len(model_errors.HORIZONS))
    assert (found.errors[..., 4] > 3 * found.errors[..., 0]).all()
    assert found.errors[0, -1, 0] < found.errors[0, 0, 0]
    assert len(model_errors.measurements(found)) == 9
    model_errors.draw(found)
