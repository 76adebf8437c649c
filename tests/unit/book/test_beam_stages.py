"""What each stage of beam post-training adds: which seeds are run, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from closeness import near

from rlbook.book.experiments.language_models import beam_stages


def test_a_folder_is_of_the_seed_that_it_is_named_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs from seed 10 on: seeds 10 and 11, each in its folder."""
    seen: list[tuple[str, int]] = []

    def one(folder: Path, seed: int) -> np.ndarray:
        seen.append((folder.name, seed))
        return np.full((len(beam_stages.STAGES), len(beam_stages.MEASURES)), float(seed))

    def without_weights(folder: Path, seed: int) -> float:
        seen.append((folder.name, seed))
        return 0.5

    monkeypatch.setattr(beam_stages, "run_one_seed", one)
    monkeypatch.setattr(beam_stages, "unweighted_score", without_weights)
    monkeypatch.setattr(beam_stages, "_best_beam", lambda path: 0.04)
    found = beam_stages.run(seeds=2, first=10)
    assert seen == [("seed-10", 10), ("seed-11", 11)] * 2
    assert found.after[:, 0, 0].tolist() == [10.0, 11.0]


def test_a_gain_is_that_of_its_own_run_over_its_own_cloning() -> None:
    """Cloning comes to .01 and .03, the other stages to .02 and .05: gains of .01 and .02."""
    after = np.zeros((2, 4, 4))
    after[:, 0, 0], after[:, 1:, 0] = [0.01, 0.03], [[0.02], [0.05]]
    numbers = beam_stages.measurements(
        beam_stages.BeamStageMeans(after, np.array([0.02, 0.05]), np.array([0.04, 0.04]), 0.05)
    )
    gains = [numbers[f"GRPO, online: gain, run {number}"] for number in (1, 2)]
    assert gains == near([0.02 - 0.01, 0.05 - 0.03], terms=4, size=0.05)
    assert numbers["RCE: least gain of a seed"] == near(0.01, terms=2, size=0.02)
    assert numbers["SFT: sampled"] == near(0.02, terms=2)
