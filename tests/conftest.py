"""What all tests share: one torch thread, and the table of expected numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fixtures() -> dict[str, Any]:
    """tests/fixtures.json: inputs and expected results of hand-checkable updates and losses. Do not change it in a test."""
    return json.loads((Path(__file__).parent / "fixtures.json").read_text())
