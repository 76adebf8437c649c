"""N processes with N times fewer environments take the same gradient steps as one.

The sums of a gradient have another order when two processes make them, and the next forward pass
sees that. So the weights may differ by a millionth for each gradient step; those of the processes
among each other may not differ at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import parallel_runs
import pytest
from parallel_runs import (
    QUICK,
    RUNS,
    finish,
    gradient_steps,
    log_of,
    make,
    start,
    untrained,
    weights_of,
)

from rlbook.registry import ALGORITHMS, agent_class

STEP = 1e-6
"""How far apart one gradient step may bring two weights: about 2^3 float32 eps of a weight of
size 1."""
LOGGED = 1e-3
"""How far apart a logged number may be, as a share of it or of 1. Rounding stays a hundred times
below; a share or a sum that is forgotten changes a norm or a loss by a third or more."""
SCRIPT = parallel_runs.__file__


def in_processes(folder: Path, names: Sequence[str], processes: int = 2) -> list[dict]:
    """What each of several processes has after these runs."""
    done = finish(start(processes, [SCRIPT, str(folder), *names]), 600)
    assert [code for code, _, _ in done] == [0] * processes, done
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(processes)]


def check_alike(name: str, found: Sequence[dict]) -> None:
    """The run in this process has the same weights as those in several."""
    run = make(name)
    alone, bound = weights_of(run), STEP * gradient_steps(run)
    learned = abs(alone - weights_of(untrained(run))).max()
    assert learned > 30 * bound, "too little to be compared"
    for other in found:
        assert np.array_equal(other[f"{name} returns"], run.episode_returns)
        assert np.array_equal(other[name], found[0][name])
        assert abs(other[name] - alone).max() <= bound
        log = log_of(run)
        assert (abs(other[f"{name} log"] - log) <= LOGGED * np.maximum(1.0, abs(log))).all()


@pytest.mark.thorough
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    found = in_processes(tmp_path, QUICK)
    for name in QUICK:
        check_alike(name, found)


@pytest.mark.slow
def test_every_agent_takes_the_steps_of_one_process_in_two(tmp_path: Path) -> None:
    names = [name for name in RUNS if name not in QUICK]
    found = in_processes(tmp_path, names)
    for name in names:
        check_alike(name, found)


@pytest.mark.slow
def test_three_processes_and_plain_forms_take_them_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLBOOK_PLAIN", "1")
    found = in_processes(tmp_path, QUICK, processes=3)
    for name in QUICK:
        check_alike(name, found)


def test_every_agent_with_minibatches_is_among_the_runs() -> None:
    tried = {asked.algorithm for asked in RUNS.values()}
    assert {name for name in ALGORITHMS if agent_class(name).batched} <= tried
