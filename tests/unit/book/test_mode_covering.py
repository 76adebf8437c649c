"""The picture of two peaks: forward KL covers both, reverse KL keeps to one."""

from __future__ import annotations

import math

import pytest

from rlbook.book.experiments import mode_covering


def test_forward_kl_covers_both_peaks_and_reverse_kl_seeks_one() -> None:
    found = mode_covering.run()
    forward, reverse = found.students["forward"], found.students["reverse"]
    # The search ends where the loss falls by less than 1e-12: with a curvature of 1 / 4.25 that is
    # √(2e-12 · 4.25) = 3e-6 away.
    assert forward.mean == pytest.approx(0.0, rel=0, abs=3e-6), "the mean of -2 and 2"
    spread = math.sqrt(2.0**2 + 0.5**2)  # between the peaks, and within
    assert forward.deviation == pytest.approx(spread, rel=0, abs=3e-6)  # the same
    # The other peak takes E log(1 + e^-16a) = 9.4e-5 off the reverse KL, and moves its minimum by
    # 2e-4 (mean) and 4e-4 (deviation).
    assert abs(reverse.mean) == pytest.approx(2.0, rel=0, abs=5e-4)
    assert reverse.deviation == pytest.approx(0.5, rel=0, abs=5e-4)  # as above
    left_out = math.log(2)  # half of the teacher
    assert reverse.divergence == pytest.approx(left_out, rel=0, abs=1.2e-4)
    between = float(found.teacher[len(found.teacher) // 2]), float(found.teacher.max())
    assert between[0] < 0.002 * between[1], (
        "forward KL's likeliest action is one that the teacher hardly takes"
    )
    assert len(mode_covering.measurements(found)) == 9
    mode_covering.draw(found)
