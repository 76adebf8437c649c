"""What examples and rewards do to pass@k, in small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbook.book.experiments.language_models import more_tries
from rlbook.plots.figure import save_figure


@pytest.mark.slow
def test_examples_and_rewards_raise_what_one_try_comes_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(more_tries, "SAMPLES", 8)
    monkeypatch.setattr(more_tries, "PROMPTS", 128)
    monkeypatch.setattr(more_tries, "TRAINED", {"sft": {"passes": 1}, "grpo": {"steps": 60_000}})
    found = more_tries.run(seeds=1)
    assert found.tries == [1, 2, 4, 8]
    for name in more_tries.LEARNERS:
        assert found.passed[name].shape == (1, 4) and (np.diff(found.passed[name]) >= 0).all()
    start, sft, grpo = (found.passed[name][0] for name in more_tries.LEARNERS)
    assert sft[0] > start[0] + 0.1 and grpo[0] > start[0] + 0.03
    assert found.perplexity["sft"][0] < found.perplexity["start"][0]
    assert more_tries.measurements(found)["sft: pass@8"] == sft[-1]
    assert save_figure(more_tries.draw(found), tmp_path / "tries.png").stat().st_size > 1_000
