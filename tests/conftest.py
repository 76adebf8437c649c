"""What all tests share: torch's threads, a time limit, the marker of numeric tests, and the table
of expected numbers."""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ALL_PLAIN = os.environ.pop("RLBOOK_PLAIN", "")
"""What the environment asks for. Tests of fast forms run them all the same, so that functions are
decorated as if it did not."""

from rlbook.fast_forms import use_plain_forms  # noqa: E402

if ALL_PLAIN:
    os.environ["RLBOOK_PLAIN"] = ALL_PLAIN  # for the processes that tests start

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
gc.disable()  # until all tests are collected, which leaves no garbage worth looking for

SLOW_LIMIT = 3600
"""Seconds until a slow test that hangs is ended and named; for all others it is `timeout` in
pyproject.toml."""


NUMERIC = {"unit", "equivalence", "learning"}
"""Folders whose tests run on every setting of tests/machines.py, as those of files elsewhere do
that compare rounded results."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: Counter[tuple[Path, str]] = Counter()
    for item in items:
        _leave_first_cases_quick(item, cases)
        if _folder(item.path) in NUMERIC or _compares_rounded(getattr(item, "module", None)):
            item.add_marker("numeric")
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))


def _leave_first_cases_quick(item: pytest.Item, cases: Counter[tuple[Path, str]]) -> None:
    """Takes the marker off the first cases of a test that is `thorough(quick=N)`."""
    marker = item.get_closest_marker("thorough")
    if marker is None:
        return
    test = item.path, item.nodeid.split("[")[0]
    cases[test] += 1
    if cases[test] <= marker.kwargs.get("quick", 0):
        item.own_markers.remove(marker)


def pytest_collection_finish() -> None:
    """What has been imported and collected stays until the end; each full collection of garbage
    would go through all of it again, for half a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with use_plain_forms(bool(ALL_PLAIN) and not item.get_closest_marker("fast_form")):
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The name of what failed at once, so that a run which is ended early still says it."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        print(f"\nfailed: {report.nodeid}", flush=True)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The CPU time of the whole run: `make test` should stay within 8 minutes of it on a quiet
    machine, however much the book grows."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    minutes, seconds = divmod(round(sum(used.ru_utime + used.ru_stime for used in both)), 60)
    terminalreporter.write_line(f"CPU time: {minutes} min {seconds} s")


@functools.cache
def _folder(path: Path) -> str:
    """The folder of tests that a file is in."""
    return path.relative_to(Path(__file__).parent).parts[0]


@functools.cache
def _compares_rounded(module: ModuleType | None) -> bool:
    """Whether a file of tests uses something of tests/closeness.py."""
    return module is not None and any(
        getattr(value, "__module__", None) == "closeness" for value in vars(module).values()
    )


@pytest.fixture
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables learn in plain Python loops: unit/fast/test_simulation.py holds these equal to the
    compiled ones, and a loop that no other test needs takes seconds to compile."""
    monkeypatch.setattr("rlbook.fast.compiled._has_numba", lambda: False)


@pytest.fixture(scope="session")
def fixtures() -> dict[str, Any]:
    """tests/fixtures.json: inputs and expected results of hand-checkable updates and losses. Do not
    change it in a test."""
    return json.loads((Path(__file__).parent / "fixtures.json").read_text())
