"""Showing a run while it trains: a progress bar, or plain lines where there is no terminal."""

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

from rlbook.runs.run_state import RunState

Report = Callable[[RunState], None]
COSTLY, SECONDS = 0.5, 2.0  # share and length of evaluation above which it is worth a word
BAR = 20  # characters that the bar has at least


def in_notebook() -> bool:
    """Whether this is a notebook's kernel."""
    return "ipykernel" in sys.modules and "ipykernel.zmqshell" in sys.modules


def is_quiet(quiet: bool | None) -> bool:
    """What `quiet` of `rlbook.train` comes to: where nothing is said, only notebooks show
    something, and not where the environment variable RLBOOK_QUIET is set."""
    if quiet is not None:
        return quiet
    return not in_notebook() or os.environ.get("RLBOOK_QUIET", "") not in ("", "0")


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """Yields a function to call after each report: what is done, the return, the speed and the time
    left, on standard error; in a notebook, in its cell."""
    display = _NotebookBar() if in_notebook() else _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield display
    finally:
        display.close()


def done_and_total(run: RunState) -> tuple[int, int | None, str]:
    """How much is done, of how much (None where nobody knows), and the unit it is counted in."""
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
    """Mean return of the last episodes: of the latest report that saw one end."""
    return next(
        (report["return"] for report in reversed(run.metrics) if report.get("return") is not None),
        None,
    )


class Notes:
    """A run's notes, each said once: what is known at the start, and what turns out on the way."""

    def __init__(self) -> None:
        self.start, self.said = time.monotonic(), 0
        self.costly = False

    def take_new(self, run: RunState) -> list[str]:
        """Those that were not said yet."""
        found = list(run.notes[self.said :])
        self.said = len(run.notes)
        cost = evaluation_cost(run, time.monotonic() - self.start)
        if cost and not self.costly:
            self.costly = True
            found.append(cost)
        return found


def evaluation_cost(run: RunState, whole: float) -> str:
    """A sentence where of `whole` seconds evaluation took more than training, and enough of it to
    be worth a word; else ""."""
    evaluating = run.seconds.get("evaluate", 0.0)
    if not whole or evaluating < SECONDS or evaluating / whole <= COSTLY:
        return ""
    fewer = "--eval-episodes 5 makes it shorter, " if run.request.eval_episodes > 5 else ""
    return (
        f"evaluation took {evaluating / whole:.0%} of the time; {fewer}--eval-every 0 leaves it out"
    )


class _Bar:
    """A tqdm bar: the return first and whole, the bar, and behind it what the width leaves room
    for."""

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
                total=total, file=sys.stderr, dynamic_ncols=True, mininterval=0.05, bar_format=empty
            )
        self._say(run)
        mean = recent_return(run)
        head = "" if mean is None else f"return {mean:.2f} "
        behind = "" if total is None else f" {_short(min(done, total))} of {_short(total)} {unit}"
        self.bar.bar_format = bar_format(head, behind, total is not None, columns())
        self.bar.update((done if total is None else min(done, total)) - self.bar.n)

    def _say(self, run: RunState) -> None:
        from tqdm import tqdm

        for note in self.notes.take_new(run):
            tqdm.write(_note(note), file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _NotebookBar:
    """tqdm's bar of a notebook, which goes when the run has ended."""

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
            self.bar = tqdm(total=total, desc=name, unit=f" {unit}", leave=False)
        for note in self.notes.take_new(run):
            print(f"note: {note}", file=sys.stderr)
        mean = recent_return(run)
        if mean is not None:
            self.bar.set_postfix_str(f"return {mean:.2f}", refresh=False)
        self.bar.update((done if total is None else min(done, total)) - self.bar.n)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def columns() -> int:
    """The terminal's, as wide as the bar may be."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def bar_format(head: str, behind: str, ends: bool, width: int) -> str:
    """tqdm's format of a line: the return, the bar, and what stands behind it where the bar keeps
    its 20 characters."""
    if not ends:
        return head + "{n_fmt} done, {elapsed}"
    left = " {remaining} left"
    fixed = len(head) + len("100%||") + len(" 00:00 left") + 1
    return (
        head
        + "{percentage:3.0f}%|{bar}|"
        + (behind + "," if fixed + len(behind) + 1 + BAR <= width else "")
        + left
    )


def _short(count: int) -> str:
    """A count in at most five characters: 500, 12.5k, 2M."""
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if count >= 10 * scale or (count >= scale and count % (scale / 10) == 0):
            return f"{count / scale:.1f}".removesuffix(".0") + letter
    return str(count)


def _note(text: str) -> str:
    """A note within the terminal's width."""
    return textwrap.fill(
        f"note: {text}",
        max(40, min(100, columns() - 1)),
        subsequent_indent="  ",
        break_long_words=False,
    )


class _Lines:
    """A line every tenth of the run: what a log file can hold."""

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
