"""Shows a run's progress: a progress bar, or plain lines if standard error is not a terminal."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rlbook.errors import message_stream, runs_in_notebook
from rlbook.runs.run_state import RunState

Report = Callable[[RunState], None]
COSTLY, SECONDS = 0.5, 2.0  # share and length of evaluation above which it is worth a word
BAR = 20  # characters that the bar has at least


def is_quiet(quiet: bool | None) -> bool:
    """Resolves the `quiet` argument of `rlbook.train`: by default only notebooks show progress, and
    not if the environment variable RLBOOK_QUIET is set."""
    if quiet is not None:
        return quiet
    return not runs_in_notebook() or os.environ.get("RLBOOK_QUIET", "") not in ("", "0")


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """Yields a function to call after each report; it shows progress, return, speed and remaining
    time on standard error, or in a notebook's cell."""
    display = _NotebookBar() if runs_in_notebook() else _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield display
    finally:
        display.close()


def done_and_total(run: RunState) -> tuple[int, int | None, str]:
    """The amount done, the total (None if unknown), and the unit."""
    budget = run.request.budget
    if run.unit == "sweeps":
        return run.steps, None, run.unit
    if budget.passes is not None and run.agent.progress > budget.progress(run.steps, 0):
        return int(run.passes), budget.passes, "passes"
    if budget.steps is None or (
        budget.episodes is not None and run.agent.progress > budget.progress(run.steps, 0)
    ):
        return len(run.episode_returns), budget.episodes, "episodes"
    return run.steps, budget.steps, run.unit


def recent_return(run: RunState) -> float | None:
    """The mean return in the latest report in which an episode ended."""
    return next(
        (report["return"] for report in reversed(run.metrics) if report.get("return") is not None),
        None,
    )


class Notes:
    """A run's notes, each shown once however often it is trained: those known at the start, and
    those added during training."""

    def __init__(self) -> None:
        self.start, self.costly = time.monotonic(), False

    def take_new(self, run: RunState) -> list[str]:
        """The notes that have not been shown yet."""
        found = list(run.notes[run.notes_shown :])
        run.notes_shown = len(run.notes)
        cost = evaluation_cost(run, time.monotonic() - self.start)
        if cost and not self.costly:
            self.costly = True
            found.append(cost)
        return found


def evaluation_cost(run: RunState, elapsed: float) -> str:
    """A sentence if evaluation took more of the `elapsed` seconds than training, and enough to
    mention; otherwise ""."""
    evaluating = run.seconds.get("evaluate", 0.0)
    if not elapsed or evaluating < SECONDS or evaluating / elapsed <= COSTLY:
        return ""
    fewer = (
        "--eval-episodes 5 (eval_episodes=5) makes it shorter, "
        if run.request.eval_episodes > 5
        else ""
    )
    return (
        f"evaluation took {evaluating / elapsed:.0%} of the time; {fewer}--eval-every 0 "
        "(eval_every=0) disables it"
    )


class _Bar:
    """A tqdm bar: the return, never truncated, then the bar, then as many fields as the width
    allows."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.notes = Notes()

    def __call__(self, run: RunState) -> None:
        from tqdm import tqdm

        done, total, unit = done_and_total(run)
        if self.bar is None:
            print(f"{run.request.algorithm} on {run.request.recipe.name}", file=sys.stderr)
            self._say(run)
            empty = bar_format("", "", total is not None, columns())
            self.bar = tqdm(
                total=total,
                initial=done if total is None else min(done, total),  # a resumed run has begun
                file=sys.stderr,
                dynamic_ncols=True,
                mininterval=0.05,
                bar_format=empty,
            )
        self._say(run)
        mean = recent_return(run)
        head = "" if mean is None else f"return {mean:.2f} "
        tail = (
            ""
            if total is None
            else f" {_format_count(min(done, total))} of {_format_count(total)} {unit}"
        )
        self.bar.bar_format = bar_format(head, tail, total is not None, columns())
        self.bar.update((done if total is None else min(done, total)) - self.bar.n)

    def _say(self, run: RunState) -> None:
        from tqdm import tqdm

        for note in self.notes.take_new(run):
            tqdm.write(_note(note), file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _NotebookBar:
    """tqdm's notebook bar, which disappears when the run has ended."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.notes = Notes()

    def __call__(self, run: RunState) -> None:
        done, total, unit = done_and_total(run)
        if self.bar is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # without ipywidgets it is a line of text
                from tqdm.auto import tqdm
            name = f"{run.request.algorithm} on {run.request.recipe.name}"
            unbroken = name.replace("-", "\N{NON-BREAKING HYPHEN}")
            self.bar = tqdm(
                total=total,
                initial=done if total is None else min(done, total),
                desc=unbroken,
                unit=f" {unit}",
                leave=False,
            )
        for note in self.notes.take_new(run):
            print(f"note: {note}", file=message_stream())
        mean = recent_return(run)
        if mean is not None:
            self.bar.set_postfix_str(f"return {mean:.2f}", refresh=False)
        self.bar.update((done if total is None else min(done, total)) - self.bar.n)
        if run.reports.is_ended:  # tqdm leaves a red bar where the total was not reached
            self.bar.total = self.bar.n

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def columns() -> int:
    """The terminal's width available to the bar."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def bar_format(head: str, tail: str, ends: bool, width: int) -> str:
    """tqdm's format string: the return, the bar, and the fields after it that leave the bar its 20
    characters."""
    if not ends:
        return head + "{n_fmt} done, {elapsed}"
    left = " {remaining} left"
    fixed = len(head) + len("100%||") + len(" 00:00 left") + 1
    return (
        head
        + "{percentage:3.0f}%|{bar}|"
        + (tail + "," if fixed + len(tail) + 1 + BAR <= width else "")
        + left
    )


def _format_count(count: int) -> str:
    """A count in at most five characters: 500, 1234, 12.5k, 123k, 1.23M, 2M."""
    if count < 1_000 or (count < 10_000 and count % 100):
        return str(count)
    scale, letter = next(
        (scale, letter)
        for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k"))
        if count >= 0.9995 * scale  # from where three digits round up to it
    )
    return f"{count / scale:.3g}{letter}"


def _note(text: str) -> str:
    """A note, fitted to the terminal's width."""
    return textwrap.fill(
        f"note: {text}",
        max(40, min(100, columns() - 1)),
        subsequent_indent="  ",
        break_long_words=False,
    )


class _Lines:
    """One line per tenth of the run, suited to log files."""

    def __init__(self) -> None:
        self.start: tuple[float, int] | None = None
        self.tenths = 0
        self.notes = Notes()

    def __call__(self, run: RunState) -> None:
        done, total, unit = done_and_total(run)
        for note in self.notes.take_new(run):
            print(f"note: {note}", file=sys.stderr)
        if self.start is None:
            self.start = time.monotonic(), done
            self.tenths = _tenths(done, total)
            return
        if _tenths(done, total) > self.tenths:
            self.tenths = _tenths(done, total)
            print(self._line(run, done, total, unit), file=sys.stderr, flush=True)

    def _line(self, run: RunState, done: int, total: int | None, unit: str) -> str:
        assert self.start is not None and total is not None
        speed = (done - self.start[1]) / max(time.monotonic() - self.start[0], 1e-9)
        mean = recent_return(run)
        parts = [f"{run.request.algorithm} {run.request.recipe.name}: {done:,} of {total:,} {unit}"]
        parts += [f"return {mean:.2f}"] if mean is not None else []
        return ", ".join(
            [
                *parts,
                f"{speed:,.0f} {unit}/s",
                f"{max(total - done, 0) / max(speed, 1e-9):.0f} s left",
            ]
        )

    def close(self) -> None:
        pass


def _tenths(done: int, total: int | None) -> int:
    return math.floor(10 * done / total) if total else 0
