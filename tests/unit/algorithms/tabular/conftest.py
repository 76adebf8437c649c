"""What the tests of tables share: plain loops."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest) -> None:
    """These tests are about updates, of a few thousand steps; those about compiled loops are marked
    `fast_form`."""
    if not request.node.get_closest_marker("fast_form"):
        request.getfixturevalue("plain_loops")
