"""What a confined program can do to another process, to a file, and to whoever grades it: every
system call in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlbook.llm.rewards import Completion
from rlbook.llm.rewards.code import code, isolation_works, run_program
from rlbook.sandbox.program import ALLOWED, CHECKED

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not isolation_works(),
    reason="programs are isolated on Linux on x86-64",
)

HEAD = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    found = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return 0 if found >= 0 else ctypes.get_errno()
"""


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this user's."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    alive = process.poll() is None
    process.kill()
    process.wait()
    assert alive, "another process has been ended"


def confined(program: str, **options: Any) -> list[str]:
    """What it prints, line by line."""
    return run_program(HEAD + program, **options).output.splitlines()


def test_a_system_call_that_is_not_listed_is_refused() -> None:
    """All numbers that there are, and those of the future. The kernel answers 335 and 336, which
    are for its own probes, with SIGILL."""
    listed = {*ALLOWED.values(), *(number for number, _ in CHECKED), 335, 336}
    numbers = [number for number in range(600) if number not in listed]
    said = confined(
        f"print([number for number in {numbers} if call(number, 0, 0, 0, 0, 0, 0) not in"
        " (errno.EPERM, errno.ENOSYS)])"
    )
    assert said == ["[]"]


ATTACKS = {
    "signal by the owner of a pipe": (
        "r, w = os.pipe(); print([call(72, r, 8, VICTIM), call(72, r, 10, 9), call(72, r, 15, 0), "
        "call(72, r, 4, 0o20000)])"
    ),
    "signal by ioctl": (
        "r, w = os.pipe(); print([call(16, r, number, 0) for number in (0x5452, 0x8901, 0x8902,"
        " 0x5412, 0x5410, 0x540E)])"
    ),
    "kill": (
        "print([call(62, VICTIM, 9), call(62, -1, 9), call(200, VICTIM, 9), call(234, VICTIM,"
        " VICTIM, 9), call(129, VICTIM, 9, 0)])"
    ),
    "pidfd": "print([call(434, VICTIM, 0), call(424, 0, 9, 0, 0), call(438, 0, 0, 0)])",
    "memory of others": (
        "print([call(101, 16, VICTIM, 0, 0), call(310, VICTIM, 0, 0, 0, 0, 0), call(311, VICTIM, 0,"
        " 0, 0, 0, 0)])"
    ),
    "limits and priorities of others": (
        "print([call(302, VICTIM, 0, 0, 0), call(141, 0, VICTIM, 19), call(203, VICTIM, 8, 0), "
        "call(251, 1, VICTIM, 0)])"
    ),
    "affinity of others": "print([call(204, VICTIM, 8, ctypes.create_string_buffer(8))])",
    "clocks of others": (
        "print([call(228, (~VICTIM << 3) | 2 | 1 << 31, ctypes.create_string_buffer(16)), call(227,"
        " 0, 0), call(164, 0, 0)])"
    ),
    "timers": "print([call(222, 0, 0, 0), call(38, 0, 0, 0), call(37, 1), call(283, 0, 0)])",
    "shared memory and queues": (
        "print([call(29, 1, 4096, 0o1777), call(319, b'x', 0), call(240, b'/x', 0o102, 0o777, 0), "
        "call(68, 1, 0o1777)])"
    ),
    "other ways to ask the kernel": (
        "print([call(number, 0, 0, 0, 0, 0) for number in (425, 321, 298, 323, 248, 250, 250, 313,"
        " 246, 169)])"
    ),
    "network": (
        "print([call(41, family, 1, 0) for family in (1, 2, 10, 16)] + [call(53, 1, 1, 0, 0)])"
    ),
    "processes": (
        "print([call(57), call(58), call(56, 17, 0, 0, 0, 0), call(59, b'/bin/true', 0, 0), "
        "call(322, -100, b'/bin/true', 0, 0, 0)])"
    ),
    "namespaces and mounts": (
        "print([call(272, 0x10000000), call(165, 0, 0, 0, 0, 0), call(161, b'/'), call(308, 0, 0), "
        "call(155, b'/', b'/'), call(428, -100, b'/', 0)])"
    ),
    "files": (
        "print([call(2, b'new', 0o101, 0o777), call(257, -100, b'program.py', 2, 0), "
        "call(87, b'program.py'), call(82, b'program.py', b'x'), "
        "call(76, b'program.py', 0), call(90, b'program.py', 0o777), call(88, b'/', b'x'), "
        "call(83, b'd', 0o777), call(280, -100, b'program.py', 0, 0)])"
    ),
    "a path without reading": (
        "print([call(257, -100, b'/', 0o10000000, 0), call(437, -100, b'/', 0, 0)])"
    ),
    "more of its own limits": (
        "print([call(160, 0, ctypes.create_string_buffer(b'\\xff' * 16)), "
        "call(302, 0, 0, ctypes.create_string_buffer(b'\\xff' * 16), 0)])"
    ),
    "memory that others then lack": (
        "print([call(9, 0, 4096, 3, 0x2022, -1, 0), call(149, 0, 4096), call(28, 0, 0, 100)])"
    ),
    "other users": "print([call(105, 0), call(117, 0, 0, 0), call(126, 0, 0), call(116, 0, 0)])",
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(attack: str, victim: subprocess.Popen[bytes]) -> None:
    (said,) = confined(ATTACKS[attack].replace("VICTIM", str(victim.pid)))
    assert set(said.strip("[]").split(", ")) <= {"1", "13", "38"}, "EPERM, EACCES or ENOSYS"
    assert victim.poll() is None


def test_what_lies_elsewhere_cannot_even_be_asked_for(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 1234)
    asked = f"""
for ask in (os.stat, os.lstat, open, os.listdir, os.readlink, lambda path: os.access(path, os.F_OK) or 1 / 0):
    try:
        print(ask({str(secret)!r}))
    except (OSError, ZeroDivisionError):
        print("no")
"""
    said = confined(asked)
    if not can_unshare():
        pytest.skip("a root folder of its own needs a mount namespace")
    assert said == ["no"] * 6


def can_unshare() -> bool:
    command = "import ctypes; exit(ctypes.CDLL(None).unshare(0x10020000))"  # new users and mounts
    return (
        subprocess.run(
            [sys.executable, "-c", command], stderr=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        (
            "import threading, time\nfor _ in range(10**5): threading.Thread(target=time.sleep,"
            " args=(9,), daemon=True).start()"
        ),
        (
            "import signal\nfor number in (1, 2, 3, 10, 12, 13, 14, 15, 24, 25):"
            " signal.signal(number, signal.SIG_IGN)\nwhile True: pass"
        ),
        "import time\ntime.sleep(10**6)",
        "while True: print('x' * 10**6)",
        "kept = []\nwhile True: kept.append(bytearray(10**7))",
        "import os\nos.close(1)\nos.close(2)\nos._exit(0)",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "import ctypes\nctypes.string_at(0)",
    ],
    ids=[
        "threads",
        "ignored signals",
        "sleep",
        "output",
        "memory",
        "closed output",
        "recursion",
        "segfault",
    ],
)
def test_whoever_grades_goes_on(program: str, victim: subprocess.Popen[bytes]) -> None:
    """A hostile answer earns nothing, and the honest ones beside it earn their marks."""
    honest = "print(int(input()) + 1)"
    tests = '{"inputs": ["1"], "outputs": ["2"]}'
    begun = time.monotonic()
    answers = [
        Completion("write a program", None, text, True, {"tests": tests})
        for text in (honest, program, honest)
    ]
    assert code(answers, seconds=1.0) == [1.0, 0.0, 1.0]
    assert time.monotonic() - begun < 60.0
    assert victim.poll() is None and os.getpid() > 0


def test_ordinary_programs_run() -> None:
    program = """
import collections, datetime, decimal, fractions, heapq, itertools, json, math, random, re, statistics, string, sys, threading, time
done = []
threads = [threading.Thread(target=lambda: done.append(1)) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
time.sleep(0.01)
print(len(done), datetime.date(2026, 1, 2), decimal.Decimal("0.1") * 3, json.dumps({"a": 1}), statistics.mean([1, 2]))
"""
    assert run_program(program).output == '4 2026-01-02 0.3 {"a": 1} 1.5\n'
