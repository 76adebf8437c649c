"""The small model's weights that ship with the package, and the models that are new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import rlbook
from rlbook.errors import RequestError
from rlbook.llm import starting_models
from rlbook.llm.starting_models import DIGESTS, starting_model
from rlbook.llm.tasks import TASKS, AdditionTask
from rlbook.runs.request import Request
from rlbook.runs.run import Run


@pytest.mark.parametrize("env", ["Addition-v0", "Reverse-v0"])
def test_the_shipped_model_knows_about_half_of_its_task(env: str) -> None:
    share = rlbook.evaluate(Run(Request.build("behavior_cloning", env)), episodes=512).mean
    assert 0.30 <= share <= 0.60


def test_every_task_has_its_weights_and_every_start_is_the_same() -> None:
    assert DIGESTS.keys() == TASKS.keys()
    first, second = (starting_model(AdditionTask(), None, np.random.default_rng(seed)) for seed in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_new_model_is_drawn_from_the_generator() -> None:
    first, same, other = (starting_model(AdditionTask(), "new", np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(first.lm_head.weight, same.lm_head.weight) and not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray((starting_models.WEIGHTS / "addition.safetensors").read_bytes())
    data[-5] ^= 1
    (tmp_path / "addition.safetensors").write_bytes(data)
    monkeypatch.setattr(starting_models, "WEIGHTS", tmp_path)
    with pytest.raises(RequestError, match=r"addition.safetensors has been changed: its sha256 is not the one"):
        starting_model(AdditionTask(), None, np.random.default_rng(0))
    (tmp_path / "addition.safetensors").unlink()
    with pytest.raises(RequestError, match="cannot be read"):
        starting_model(AdditionTask(), None, np.random.default_rng(0))
