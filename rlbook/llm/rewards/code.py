"""Rewards for generated programs: each is run and tested in a separate, resource-limited process.
See `rlbook.sandbox` for the restrictions."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rlbook.llm.rewards.completion import Completion, mark_batched
from rlbook.sandbox import program as confined

OUTPUT_BYTES = 2**16


class ProgramOutcome(NamedTuple):
    """How a program ended."""

    output: str  # its standard output, at most `OUTPUT_BYTES` bytes of it
    exit_code: int | None  # None: out of time


class Case(NamedTuple):
    """The input of a program, and the expected output; `last` compares only the last line."""

    program: str
    stdin: str
    output: str
    last: bool = False


@mark_batched
def code(
    completions: Sequence[Completion],
    *,
    seconds: float = 4.0,
    memory_mb: int = 256,
    jobs: int = 4,
    isolate: bool = True,
) -> list[float | None]:
    """The fraction of its tests that the program passes. The program is the last ```python block of
    a text, or the whole text.

    The tests are the column "tests", or else the answer: {"inputs": [...], "outputs": [...]}, as a
    mapping or as JSON, one test a pair; or assert statements, which are one test; or the text that
    the program must print. Output is compared without the spaces at its ends. None where an example
    has neither.

    Args:
        completions: what was written.
        seconds: of the processor that a test may take; by the clock, twice as many and one.
        memory_mb: how much address space a program may have, Python's own among it.
        jobs: programs that run at the same time.
        isolate: false runs programs with limits on time, memory and output alone. They can then
            change files, reach the network and start processes, as you can.
    """
    if isolate and not isolation_works():
        raise OSError(
            "programs can be isolated on Linux on x86-64 alone, with seccomp; `isolate: false` runs"
            " them with limits only"
        )
    cases = [cases_of(completion) for completion in completions]
    with ThreadPoolExecutor(jobs) as pool:

        def passes(case: Case) -> bool:
            outcome = run_program(
                case.program, case.stdin, seconds=seconds, memory_mb=memory_mb, isolate=isolate
            )
            lines = (
                outcome.output.strip().splitlines()[-1:] if case.last else [outcome.output.strip()]
            )
            return outcome.exit_code == 0 and lines == [case.output.strip()]

        waiting = [
            None if row is None else [pool.submit(passes, case) for case in row] for row in cases
        ]
        return [
            None if row is None else sum(case.result() for case in row) / len(row)
            for row in waiting
        ]


def run_program(
    program: str,
    stdin: str = "",
    *,
    seconds: float = 4.0,
    memory_mb: int = 256,
    isolate: bool = True,
    modules: Sequence[str] = (),
) -> ProgramOutcome:
    """Runs a Python program in a new process in an empty folder, and waits for it to end.

    Args:
        program: its text. It can import the standard library, and `modules`.
        stdin: what it can read.
        seconds, memory_mb, isolate: as for `code`.
        modules: packages and their parts that are imported for it beforehand, such as "numpy".
    """
    places = [
        (str(Path(str(importlib.import_module(name.split(".")[0]).__file__)).parents[1]), name)
        for name in modules
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
    ):
        Path(folder, "program.py").write_text(program, encoding="utf-8", errors="replace")
        given.write(stdin.encode(errors="replace"))
        given.seek(0)
        limits = (memory_mb, math.ceil(seconds), OUTPUT_BYTES, int(isolate))
        process = subprocess.Popen(
            [
                sys.executable,
                "-s",
                "-S",
                "-P",
                "-B",
                "-X",
                "utf8",
                confined.__file__,
                folder,
                *map(str, limits),
                *chain(*places),
            ],
            stdin=given,
            stdout=out,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        exit_code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            exit_code = process.wait(timeout=2 * seconds + 1)
        process.kill()
        process.wait()
        out.seek(0)
        return ProgramOutcome(out.read(OUTPUT_BYTES).decode(errors="replace"), exit_code)


@cache
def isolation_works() -> bool:
    """Whether this machine's kernel can deny a program access to processes, the network and
    files."""
    return run_program("print(1)") == ProgramOutcome("1\n", 0)


def cases_of(completion: Completion) -> list[Case] | None:
    """A program's test cases; None if the example has none.

    Raises:
        ValueError: its tests are none of the three kinds.
    """
    asked, program = completion.columns.get("tests", completion.answer), program_of(completion.text)
    if isinstance(asked, str) and asked.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            asked = json.loads(asked)
    if asked is None:
        return None
    if isinstance(asked, Mapping):
        inputs, outputs = asked.get("inputs"), asked.get("outputs")
        if (
            not isinstance(inputs, Sequence)
            or not isinstance(outputs, Sequence)
            or len(inputs) != len(outputs)
            or not inputs
        ):
            raise ValueError(
                "tests must have as many inputs as outputs, and at least one, got"
                f" {str(asked)[:80]}"
            )
        return [
            Case(program, str(given), str(wanted))
            for given, wanted in zip(inputs, outputs, strict=True)
        ]
    if not isinstance(asked, str):
        raise ValueError(
            "tests must be inputs and outputs, assert statements or an output, got"
            f" {str(asked)[:80]}"
        )
    if asked.lstrip().startswith("assert "):
        # printed at the end: a program that ends itself before the asserts has not passed them
        seen = secrets.token_hex(8)
        return [Case(f"{program}\n{asked}\nprint({seen!r})\n", "", seen, last=True)]
    return [Case(program, "", asked)]


def program_of(text: str) -> str:
    """The last ```python block of a text, or the whole text without one."""
    _, found, rest = text.rpartition("```python")
    return rest.partition("```")[0] if found else text
