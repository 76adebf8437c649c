"""Not a test: trains a list of runs and stops each of them somewhere, or goes on with them.
`test_resume` starts it as a process.

python runs_in_parts.py stop|resume|stop_again ROOT CASES        CASES is JSON, one object a run
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rlbook
from rlbook.agent import Metrics, Planner
from rlbook.algorithms.tabular.tabular_agent import TableAgent
from rlbook.fast.tabular.table_interaction import ChunkedInteraction
from rlbook.fast_forms import is_plain_only
from rlbook.registry import agent_class
from rlbook.runs.processes.interrupts import Interrupted


def begin(root: Path, case: dict[str, Any]) -> None:
    rlbook.train(case["algorithm"], case["env"], seed=3, out=root / case["name"], **case["options"])


def stop(
    root: Path, case: dict[str, Any], start: Callable[[Path, dict[str, Any]], None] = begin
) -> None:
    """A run in a process of its own, which gets a signal in its `at`-th step, while the agent
    learns from it.

    For a planner a step is a sweep, for an agent with a table a chunk of steps where it is fast.
    """
    agent_class(case["algorithm"])  # imported here, once for all the cases
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        how = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        expected = (
            -signal.SIGKILL if case["signal"] == "SIGKILL" else 128 + signal.Signals[case["signal"]]
        )
        assert how == expected, f"{case['name']} ended with {how}, not {expected}"
        return
    _signal_while_learning(
        agent_class(case["algorithm"]), case["at"], signal.Signals[case["signal"]]
    )
    try:
        start(root, case)
    except Interrupted as error:
        os._exit(128 + error.signum)
    os._exit(0)


def resume(root: Path, case: dict[str, Any]) -> None:
    """Goes on where it was stopped, with what lies in the folder alone."""
    rlbook.load(root / case["name"]).resume()


def stop_again(root: Path, case: dict[str, Any]) -> None:
    """Goes on, and is stopped once more."""
    stop(root, case, resume)


def _signal_while_learning(agent: type, at: int, signum: signal.Signals) -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signum)

    if issubclass(agent, Planner):
        plan = agent.plan

        def planning(self: Planner, model: Any) -> Iterator[Metrics]:
            for metrics in plan(self, model):
                count()
                yield metrics

        agent.plan = planning  # type: ignore[method-assign]
        return
    chunked = issubclass(agent, TableAgent) and not is_plain_only()
    owner, name = (ChunkedInteraction, "advance") if chunked else (agent, "learn")
    original = getattr(owner, name)

    def counted(*args: Any) -> Any:
        count()
        return original(*args)

    setattr(owner, name, counted)


if __name__ == "__main__":
    mode, root, cases = sys.argv[1:]
    for case in json.loads(cases):
        {"stop": stop, "resume": resume, "stop_again": stop_again}[mode](Path(root), case)
