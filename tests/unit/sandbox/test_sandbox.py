"""Programs that a model has written: what they may do, and what they may not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbook.llm.rewards import Completion, Rewards, code, run_program
from rlbook.llm.rewards.code import isolation_works, program_of

needs_isolation = pytest.mark.skipif(
    not isolation_works(), reason="the kernel has no seccomp for this machine"
)


def wrote(text: str, answer: str | None = None, **columns: Any) -> Completion:
    return Completion("write a program", answer, text, True, columns)


SUM = "print(sum(map(int, input().split())))"


def test_the_program_is_the_last_block_of_a_text() -> None:
    assert (
        program_of(
            f"First:\n```python\nprint(1)\n```\nBetter:\n```python\n{SUM}\n```\nDone."
        ).strip()
        == SUM
    )
    assert program_of(SUM) == SUM


@needs_isolation
def test_the_score_is_the_share_of_tests_passed() -> None:
    tests = {"inputs": ["1 2", "5 5"], "outputs": ["3", "11"]}
    tested = [wrote(program, tests=tests) for program in (SUM, "print(3)", "print(")]
    assert code([*tested, wrote(SUM), wrote("print(46)", "46")]) == [0.5, 0.5, 0.0, None, 1.0]


@needs_isolation
def test_asserts_are_passed_at_their_end_and_not_by_leaving_before() -> None:
    asked = "assert double(2) == 4\nassert double(0) == 0"
    programs = [
        "def double(x): return 2 * x",
        "def double(x): return 4",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
    ]
    assert code([wrote(program, tests=asked) for program in programs]) == [1.0, 0.0, 0.0, 0.0]


def hostile(outside: Path) -> dict[str, str]:
    return {
        "loop": "while True: pass",
        "memory": "x = b'a' * 10**9; print('done')",
        "fork": "import os\nwhile True: os.fork()",
        "threads": (
            "import threading\nfor _ in range(10**5):"
            " threading.Thread(target=threading.Event().wait).start()\nprint('done')"
        ),
        "write": f"open({str(outside)!r}, 'w').write('x'); print('done')",
        "write here": "open('here', 'w').write('x'); print('done')",
        "delete": f"import os; os.unlink({str(outside)!r}); print('done')",
        "truncate": f"import os; os.truncate({str(outside)!r}, 0); print('done')",
        "read": f"print(open({str(outside)!r}).read(), 'done')",
        "other program": (
            "import subprocess; print(subprocess.run(['echo', 'done']).returncode, 'done')"
        ),
        "network": "import socket; socket.socket().connect(('127.0.0.1', 9)); print('done')",
        "kill": f"import os; os.kill({os.getpid()}, 0); print('done')",
        "raise the limit": (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); print('done')"
        ),
        "the C library": (
            "import ctypes; c = ctypes.CDLL(None); print('done' if c.fork() >= 0 or c.socket(2, 1,"
            " 0) >= 0 else '')"
        ),
        "leave": "import sys; sys.exit(77)",
    }


@pytest.mark.thorough
@needs_isolation
def test_hostile_programs_do_nothing_and_earn_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "mine"
    outside.write_text("secret")
    programs = hostile(outside)
    scores = code([wrote(program, "done") for program in programs.values()], seconds=0.5)
    assert dict(zip(programs, scores, strict=True)) == dict.fromkeys(programs, 0.0)
    assert outside.read_text() == "secret" and list(tmp_path.iterdir()) == [outside]
    assert "done" not in run_program(programs["read"]).output


@needs_isolation
def test_output_without_end_is_cut_off() -> None:
    outcome = run_program("while True: print('a' * 10_000)", seconds=1)
    assert outcome.exit_code != 0 and len(outcome.output) == 2**16


@needs_isolation
def test_what_an_honest_program_needs_is_there() -> None:
    program = "t = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()"
    assert run_program(
        f"import collections, datetime, json, math, random, re, threading\n{program}"
    ) == ("in a thread\n", 0)
    assert run_program("print(len({'a', 'b'}), input())", "éa") == ("2 éa\n", 0)


@pytest.mark.thorough
def test_without_isolation_limits_on_time_and_memory_stay() -> None:
    programs = ["while True: pass", "x = b'a' * 10**9; print('done')", "print('done')"]
    assert code([wrote(program, "done") for program in programs], seconds=0.5, isolate=False) == [
        0.0,
        0.0,
        1.0,
    ]


@needs_isolation
def test_code_is_a_reward_like_any_other() -> None:
    rewards = Rewards(
        {"code": {"weight": 2.0, "seconds": 2, "jobs": 1}, "length": 1.0}, allow_import=True
    )
    total, named = rewards([Completion("", "1", "print(1)", True, ids=[1, 2], limit=8)])
    assert total.tolist() == [2.0 - 2 / 8]
    np.testing.assert_array_equal(named["reward/code"], [1.0])
