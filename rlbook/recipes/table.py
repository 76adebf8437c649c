"""Before and after: the changes made by the stages of a recipe, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlbook.interaction.play_episodes import Evaluation

Values = Mapping[str, Sequence[float]]


def rows(stages: Sequence[tuple[str, Values, Values]]) -> list[dict[str, Any]]:
    """One row for each stage and each measure.

    Args:
        stages: of each its name, and measure → one number an episode or an item, before and after.

    Returns:
        `stage`, `measure`, and of `before`, `after` and their difference `gain`: the mean and its
        95 % interval, or None where that was not measured. Where both have as many numbers, they
        are of the same prompts, and the gain's interval is that of their differences; else it is
        that of two independent means.
    """
    return [
        {"stage": name, "measure": measure} | _row(before.get(measure), after.get(measure))
        for name, before, after in stages
        for measure in dict.fromkeys([*before, *after])
    ]


def _row(before: Sequence[float] | None, after: Sequence[float] | None) -> dict[str, Any]:
    return {"before": _mean(before), "after": _mean(after), "gain": _gain(before, after)}


def _mean(values: Sequence[float] | None) -> dict[str, Any] | None:
    if values is None or not len(values):
        return None
    found = np.asarray(values, dtype=np.float64)
    result = Evaluation(found, found)
    return {
        "mean": result.mean,
        "confidence_interval": list(result.confidence_interval),
        "count": len(found),
    }


def _gain(before: Sequence[float] | None, after: Sequence[float] | None) -> dict[str, Any] | None:
    if not before or not after:
        return None
    if len(before) == len(after):
        return _mean((np.asarray(after) - np.asarray(before)).tolist())
    (old, new), halves = (_mean(before), _mean(after)), []
    assert old is not None and new is not None
    for each in (old, new):
        low, high = each["confidence_interval"]
        halves.append((high - low) / 2)
    gain, half = new["mean"] - old["mean"], math.hypot(*halves)
    return {
        "mean": gain,
        "confidence_interval": [gain - half, gain + half],
        "count": min(len(before), len(after)),
    }


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row as text: stage, measure, before, after, gain."""
    return (
        str(row["stage"]),
        str(row["measure"]).replace("_", " "),
        _cell(row["before"]),
        _cell(row["after"]),
        _cell(row["gain"], signed=True),
    )


def _cell(found: Mapping[str, Any] | None, *, signed: bool = False) -> str:
    """Mean ± half of its interval, to as many decimal places as the interval justifies."""
    if found is None:
        return "-"
    low, high = found["confidence_interval"]
    half, mean = (high - low) / 2, found["mean"]
    if not math.isfinite(mean) or not math.isfinite(half):
        return f"{mean:g}"
    places = min(5, max(0, 1 - math.floor(math.log10(half)))) if half else 3
    return f"{mean:{'+' if signed else ''}.{places}f} ± {half:.{places}f}"
