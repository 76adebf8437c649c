"""Trains an exhibit's run, once per seed, and prints the curves: the program that runs with and
without the bug.

python -m rlbook.book.museum.training NAME SEEDS
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import rlbook
from rlbook.book.museum.exhibit import Exhibit, find_exhibit
from rlbook.errors import TrainingError

POINTS = 50
"""The maximum number of points of a curve."""

Curve = list[tuple[float, float]]
"""Steps (planners: sweeps; recorded data: minibatches), and the metric's value."""


def curve(exhibit: Exhibit, seed: int) -> Curve:
    """The metric of one run over time; if training fails, the curve ends there."""
    shown, rows = exhibit.shown, []

    def note(run: rlbook.Run) -> None:
        rows[:] = run.metrics

    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in shown.settings.items()
    }
    try:
        run = rlbook.train(
            shown.algorithm,
            shown.env,
            seed=seed,
            env_kwargs=dict(shown.env_kwargs),
            on_report=note,
            **settings,
        )
        rows[:] = run.metrics
    except TrainingError as failure:
        print(failure, file=sys.stderr)
    points = [
        (float(row["step"]), float(row[shown.number]))
        for row in rows
        if row.get(shown.number) is not None
    ]
    return thin_points([(step, value) for step, value in points if math.isfinite(value)])


def thin_points(points: Curve) -> Curve:
    """At most `POINTS` points, each the mean of its neighbours."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[place : place + size] for place in range(0, len(points), size)]
    return [
        (group[-1][0], float(f"{math.fsum(value for _, value in group) / len(group):.5g}"))
        for group in groups
    ]


if __name__ == "__main__":
    print(
        "\n"
        + json.dumps([curve(find_exhibit(sys.argv[1]), seed) for seed in range(int(sys.argv[2]))])
    )
