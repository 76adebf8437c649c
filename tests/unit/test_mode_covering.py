"""The picture of two peaks: forward KL covers both, reverse KL keeps to one."""

from __future__ import annotations

import math

import pytest

from rlbook.book import mode_covering


def test_forward_kl_covers_both_peaks_and_reverse_kl_seeks_one() -> None:
    found = mode_covering.run()
    forward, reverse = found.students["forward"], found.students["reverse"]
    assert forward.mean == pytest.approx(0.0, abs=1e-3), "the mean of -2 and 2"
    assert forward.deviation == pytest.approx(math.sqrt(2.0**2 + 0.5**2), abs=1e-3), "variance between the peaks, and within"
    assert abs(reverse.mean) == pytest.approx(2.0, abs=5e-3) and reverse.deviation == pytest.approx(0.5, abs=5e-3)
    assert reverse.divergence == pytest.approx(math.log(2), abs=5e-3), "half of the teacher is left out"
    between = float(found.teacher[len(found.teacher) // 2]), float(found.teacher.max())
    assert between[0] < 0.002 * between[1], "forward KL's likeliest action is one that the teacher hardly takes"
    assert len(mode_covering.measured(found)) == 9
    mode_covering.draw(found)
