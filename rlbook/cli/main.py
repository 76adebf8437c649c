"""The `rlbook` command: finds the command (`commands`), and turns its exceptions into a sentence
and an exit code.

Exit codes: 0 done · 1 training failed · 2 the request was wrong · 130 and 143 interrupted by SIGINT
or SIGTERM. Results go to standard output (with --json, one JSON object and nothing else); progress,
notes and errors go to standard error.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence

from rlbook.checks import machine_memory
from rlbook.cli.commands import COMMANDS
from rlbook.cli.output import (
    OutputError,
    abandon_stdout,
    fail,
    flush_output,
    tolerate_closed_streams,
)
from rlbook.cli.values import may_import
from rlbook.errors import RequestError, TrainingError, is_out_of_memory
from rlbook.interaction.process_group import is_follower, may_speak, place
from rlbook.runs.processes.interrupts import forget_early, raise_at_once, signal_of
from rlbook.runs.storage.files import CheckpointError

PARALLEL = ("train",)
"""The commands that several processes can run together, as started by torchrun."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code."""
    with tolerate_closed_streams():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(words: list[str]) -> int:
    debug, as_json = "--debug" in words, "--json" in words
    try:
        with _termination_raises(), _allow_own_modules(may_import(words)):
            code = _dispatch(words)
            flush_output()
            return code
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except KeyboardInterrupt as stop:
        code = 128 + signal_of(stop)
        return code if is_follower() else fail(code, "interrupted", as_json)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, RequestError | CheckpointError):
            return fail(2, str(error), as_json) if may_speak() else 2
        if isinstance(error, TrainingError):
            return fail(1, str(error), as_json) if may_speak() else 1
        if isinstance(error, OutputError):
            abandon_stdout()
            return fail(1, str(error), as_json=False)
        if is_out_of_memory(error):
            return fail(1, _name_memory(error), as_json)
        return fail(1, f"unexpected {type(error).__name__}: {error} (--debug shows where)", as_json)


def _name_memory(error: Exception) -> str:
    """A sentence that says what was asked for, and how much there is."""
    said = " ".join(str(error).split())
    if "CUDA" in said:
        return f"out of memory on the GPU: {said}"
    if asked := re.search(r"allocate (\d+) bytes", said):
        said = f"{int(asked[1]) / 1e9:.1f} GB more were asked for"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (
        f"out of memory{said and f' ({said})'}: this process can have"
        f" {machine_memory() / 1e9:.1f} GB"
        + ("" if limit == resource.RLIM_INFINITY else f", as ulimit -v {limit // 1024} says")
    )


def _dispatch(words: list[str]) -> int:
    from rlbook.checks import did_you_mean, names_or_help

    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    command, rest = (words[0], words[1:]) if words else ("--help", [])
    if command in ("-h", "--help", "help"):
        from rlbook.cli.usage import usage

        print(usage(), end="")
        return 0
    if command == "--version":
        from rlbook import __version__

        print(f"rlbook {__version__}")
        return 0
    if command in ("--install-completion", "--show-completion"):
        from rlbook.cli.completion import run_completion

        return run_completion(words)
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise RequestError(
            f"unknown command {command!r}{hint}{names_or_help(COMMANDS, 'rlbook --help')}"
        )
    if place().size > 1 and command not in PARALLEL:
        raise RequestError(
            f"torchrun is for {' and '.join(f'rlbook {name}' for name in PARALLEL)}; run"
            f" rlbook {command} without it"
        )
    try:
        return COMMANDS[command](rest)
    except SystemExit as stop:  # --help has been printed
        return stop.code if isinstance(stop.code, int) else 0


@contextlib.contextmanager
def _allow_own_modules(allowed: bool) -> Iterator[None]:
    """If allowed, makes modules in the working directory importable, as `python` does and an
    installed command does not."""
    place = os.getcwd() if allowed else ""
    if not place or place in sys.path:
        yield
        return
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Makes SIGTERM raise an exception, as SIGINT already does, so that everything is closed on the
    way out.

    Where the shell has set SIGINT to be ignored, as it does for what a script starts with `&`,
    Python leaves it so: a command then asks for it, too.
    """
    asked = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.default_int_handler):
        asked.append(signal.SIGINT)
    forget_early()
    try:
        previous = {signum: signal.signal(signum, raise_at_once) for signum in asked}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


if __name__ == "__main__":  # python -m rlbook.cli.main
    sys.exit(main())
