"""The curves of the museum's exhibits: recorded ones, which ship with the package, and new ones.

python -m rlbook.book.museum.curves [NAME ...]        records those exhibits, or all, in curves.json
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rlbook.book.museum.exhibit import Exhibit, exhibits, find_exhibit
from rlbook.book.museum.training import Curve
from rlbook.errors import TrainingError
from rlbook.fast_forms import PLAIN

RECORDED = Path(__file__).parent / "curves.json"
WITHOUT, WITH = "without the bug", "with the bug"


@dataclass(frozen=True)
class BugCurves:
    """One curve a seed."""

    without: list[Curve]
    planted: list[Curve]

    @property
    def sides(self) -> dict[str, list[Curve]]:
        """The curves by the name of their side."""
        return {WITHOUT: self.without, WITH: self.planted}


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, at those steps of the first that all of them reach.

    Seeds report after different steps where a report waits for the end of an episode, so the others
    are interpolated between their reports.
    """
    if not all(curves):
        return []
    first = max(curve[0][0] for curve in curves)
    last = min(curve[-1][0] for curve in curves)
    steps = [step for step, _ in curves[0] if first <= step <= last]
    columns = [
        np.interp(steps, [step for step, _ in curve], [value for _, value in curve]).tolist()
        for curve in curves
    ]
    means = [math.fsum(values) / len(values) for values in zip(*columns, strict=True)]
    return list(zip(steps, means, strict=True))


def final_mean(curve: Curve) -> float:
    """The mean of the last tenth of a curve; NaN of an empty one."""
    tail = curve[-max(1, len(curve) // 10) :]
    return math.fsum(value for _, value in tail) / len(tail) if tail else math.nan


def mean_at_end(curves: Sequence[Curve]) -> float:
    """The mean over seeds of their own `final_mean`."""
    return math.fsum(map(final_mean, curves)) / len(curves)


@cache
def _read_recorded() -> dict[str, dict[str, list[Curve]]]:
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}


def load_curves(exhibit: Exhibit) -> BugCurves:
    """The curves that ship with the package."""
    return BugCurves(
        **{
            side: [[(x, y) for x, y in curve] for curve in curves]
            for side, curves in _read_recorded()[exhibit.name].items()
        }
    )


def train_curves(exhibit: Exhibit, seeds: int | None = None) -> BugCurves:
    """Trains without the bug and with it, each in a separate process.

    Raises:
        TrainingError: one of the processes failed.
    """
    count = exhibit.shown.seeds if seeds is None else seeds
    return BugCurves(
        _train(exhibit, count),
        _train(exhibit, count, "rlbook.book.museum.planted", exhibit.name),
    )


def _train(exhibit: Exhibit, seeds: int, *through: str) -> list[Curve]:
    command = [
        sys.executable,
        "-m",
        *through,
        "rlbook.book.museum.training",
        exhibit.name,
        str(seeds),
    ]
    surroundings = {**os.environ, PLAIN: "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TrainingError(f"the run of {exhibit.name!r} failed: {last}")
    return [
        [(x, y) for x, y in curve] for curve in json.loads(done.stdout.strip().splitlines()[-1])
    ]


def record(names: Sequence[str]) -> None:
    """Trains these exhibits and stores their curves; the others are not changed."""
    for name in names or exhibits():
        found = train_curves(find_exhibit(name))
        kept = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
        kept[name] = {"without": found.without, "planted": found.planted}
        lines = [
            f"{json.dumps(key)}: {json.dumps(kept[key])}"
            for key in sorted(kept.keys() & exhibits().keys())
        ]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(
            name,
            *(f"{side}: {mean_at_end(curves):.4g}" for side, curves in found.sides.items()),
            sep="  ",
        )


if __name__ == "__main__":
    record(sys.argv[1:])
