"""Compiled loops, where their machine code is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlbook.fast import compiled
from rlbook.fast.compiled import available, can_cache, link_globals
from rlbook.fast.tabular.kernels import compile_kernel, sweep_states_in_place


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not asked for the cache folder yet."""
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    can_cache.cache_clear()
    yield monkeypatch
    can_cache.cache_clear()


@pytest.mark.skipif(not available(), reason="needs numba")
def test_loops_are_compiled_also_where_no_cache_folder_can_be_written(
    forgotten: pytest.MonkeyPatch,
) -> None:
    """numba would refuse, or write into the package."""
    forgotten.setenv("HOME", "/proc/nobody")
    assert not can_cache()
    anew: list[Any] = [compile_kernel, link_globals]
    kernel, linked = (each.__wrapped__ for each in anew)
    for loop in (kernel(sweep_states_in_place), linked(sweep_states_in_place, "compiled")):
        assert type(loop._cache).__name__ == "NullCache"


def test_the_cache_folder_may_be_named(forgotten: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forgotten.setenv("HOME", "/proc/nobody")
    forgotten.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert can_cache() and (tmp_path / "cache").is_dir()


def test_a_user_without_a_home_is_told_that_each_run_compiles(
    forgotten: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forgotten.setenv("HOME", "/proc/nobody")
    forgotten.setattr(compiled, "PATIENCE", 0.0)
    with compiled.announce_compilation("a loop"):
        time.sleep(0.2)
    assert "in each run, because there is no cache folder" in capfd.readouterr().err
