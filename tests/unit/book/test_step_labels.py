"""Labels of steps by rollouts and exact ones: what is counted of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbook.book.experiments.language_models import process_judges, step_labels
from rlbook.book.experiments.language_models.process_judges import SINGLE, VERIFIER
from rlbook.book.experiments.language_models.step_labels import (
    EXACT,
    StepLabels,
    measurements,
)
from rlbook.plots.figure import save_figure


def test_changes_are_counted_seed_by_seed() -> None:
    """Two seeds: the judge with labels by rollouts gains 1/2 and 0 on the one with exact labels, so
    the mean is 1/4 and half of the interval tan(0.475 π) · 1/4 (one degree of freedom)."""
    share = {"soft 1": np.array([0.75, 0.75])}
    found = measurements(
        StepLabels(
            share, share, share, {EXACT: np.array([0.0, 0.5]), "soft 1": np.array([0.5, 0.5])}
        )
    )
    assert (found["soft 1: agree"], found["soft 1: agree, ±"]) == (0.75, 0.0)
    assert (found["exact: best of 16"], found["soft 1: best of 16"]) == (0.25, 0.5)
    assert found["soft 1: best of 16, change"] == 0.25
    # SciPy before 1.17 finds a quantile of t to ten digits
    half = pytest.approx(np.tan(0.475 * np.pi) / 4, rel=1e-10)
    assert found["soft 1: best of 16, change, ±"] == half
    assert "exact: best of 16, change" not in found


@pytest.mark.thorough
def test_a_short_experiment_has_every_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(step_labels, "SUMS", step_labels.SUMS._replace(minibatches=60))
    monkeypatch.setattr(process_judges, "FIT", process_judges.FIT | {"passes": 1})
    found = step_labels.run(seeds=1, first=3, learned_from=8, prompts=4)
    kinds = {"soft 1", "soft 4", "hard 4", "soft 16", "hard 16"}
    assert found.same.keys() == found.lost.keys() == found.kept.keys() == kinds
    assert found.right.keys() == {*kinds, EXACT, VERIFIER, SINGLE}
    for name in kinds:
        same, lost, kept = found.same[name], found.lost[name], found.kept[name]
        # a mean of the two shares of agreement, weighted by how many steps are right
        assert min(1 - lost, 1 - kept) <= same <= max(1 - lost, 1 - kept)
        assert found.right[name] <= found.right[VERIFIER]
    # a share of at least 1/2 is above 0
    for count in (4, 16):
        assert found.lost[f"hard {count}"] <= found.lost[f"soft {count}"]
        assert found.kept[f"hard {count}"] >= found.kept[f"soft {count}"]
    assert save_figure(step_labels.draw(found), tmp_path / "labels.png").stat().st_size > 1_000
