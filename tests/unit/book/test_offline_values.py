"""Values from a narrow recording: what is claimed beside what is true, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near

from rlbook.book.experiments.offline_values import (
    BEST,
    GAMMA,
    START,
    OfflineValueCurves,
    draw,
    measurements,
    narrow_recording,
    run,
)


def test_the_recording_is_narrow_and_nothing_in_it_pays() -> None:
    """30 episodes from the start; at least 13 steps each. Three in four of the pairs that 37 cells
    allow are missing or rare."""
    rows = narrow_recording(0).rows
    states, actions = rows.obs.argmax(-1).numpy(), rows.action.numpy()
    assert (states == START).sum() >= 30 and len(states) >= 30 * 13
    assert rows.reward.max() == -1.0
    assert len(set(zip(states.tolist(), actions.tolist(), strict=True))) < 37 * 4 * 3 / 4


def check(found: OfflineValueCurves) -> None:
    claimed = {name: curve[0, -1] for name, curve in found.claimed.items()}
    assert (
        claimed["fitted_q"] > BEST + 1.5
        and found.exact["fitted_q"][0] < -90
        and found.untried["fitted_q"][0, -1] > 0
    )
    assert abs(claimed["cql"] - BEST) < 1.2, "it claims nothing like what fitted Q iteration does"
    condition = (1 + GAMMA) / (1 - GAMMA)  # of I - γ P; no value is above 100
    assert found.exact["cql"][0] == near(BEST, terms=48, size=condition * 100)
    assert found.untried["cql"][0, -1] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fitted_q_claims_what_no_policy_earns_and_cql_does_not(seed: int) -> None:
    check(run(1, first=seed))


def test_the_picture_shows_claims_and_shares() -> None:
    found = run(1, minibatches=20)
    values, shares = draw(found).axes
    assert [line.get_label() for line in values.get_lines()] == [
        "the best possible value",
        "fitted Q iteration",
        "CQL",
    ]
    assert len(shares.get_lines()) == 2 and len(measurements(found)) == 7
    assert np.isfinite(list(measurements(found).values())).all()
