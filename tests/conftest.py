"""What all tests share: one torch thread, a time limit, and the table of expected numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

SLOW_LIMIT = 3600
"""Seconds until a slow test that hangs is ended and named; for all others it is `timeout` in pyproject.toml."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))


@pytest.fixture(scope="session")
def fixtures() -> dict[str, Any]:
    """tests/fixtures.json: inputs and expected results of hand-checkable updates and losses. Do not change it in a test."""
    return json.loads((Path(__file__).parent / "fixtures.json").read_text())
