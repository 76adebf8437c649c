"""Pictures of the metrics: a confusion matrix, three judges' ROC curves, precision over recall, two
boxes, average precision, and perplexity.

    found = run()
    found.judges["good"].measures["ROC AUC"]

The judges see 200 cases, 40 of them right. A judge's scores are normally distributed with deviation
1, and their mean is higher by 1.5 for the right cases, or the same, or lower by 1.5. The area under
its ROC curve is then Φ(1.5 / √2), ½, or 1 - Φ(1.5 / √2), but for the chance of 200 cases.

Source: Green & Swets 1966, Signal Detection Theory and Psychophysics, chapter 3.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.book.figures.axes import curve_colour, label_axes, legend
from rlbook.evaluation.classification import (
    Classification,
    ClassMeasures,
    classify,
    measure_classes,
)
from rlbook.evaluation.detection import average_precision, intersection_over_union, precision_recall
from rlbook.plots.colours import GREY, fraction_rgb, ramp, readable_ink
from rlbook.plots.figure import new_figure, words

SHIFTS = {"good": 1.5, "blind": 0.0, "turned round": -1.5}
CASES, RIGHT = 200, 40
TRUTH, SAID = "aaaaabbbbbccccc", "aaaabbbbbaccccb"
BOXES = np.array([[0.0, 0.0, 4.0, 3.0], [1.0, 1.0, 5.0, 4.0]])
HIT = np.array([True, True, False, True, False, False, True, False])
SCORE = np.linspace(0.9, 0.2, len(HIT))
POSITIVES = 5


class Measures(NamedTuple):
    """The data of the pictures."""

    classes: ClassMeasures
    judges: dict[str, Classification]
    overlap: float
    precisions: dict[str, float]  # by interpolation


def draw_scores(shift: float, seed: int = 0) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Labels and scores of `CASES` cases."""
    label = np.arange(CASES) < RIGHT
    return label, np.random.default_rng(seed).standard_normal(CASES) + shift * label


def run() -> Measures:
    """Computes the data of the pictures."""
    return Measures(
        measure_classes(TRUTH, SAID),
        {name: classify(*draw_scores(shift)) for name, shift in SHIFTS.items()},
        float(intersection_over_union(BOXES[:1], BOXES[1:])[0, 0]),
        {
            kind: average_precision(HIT, SCORE, POSITIVES, kind)
            for kind in ("area", "11 points", "101 points")
        },
    )


def measurements(result: Measures) -> dict[str, float]:
    """The areas under the judges' ROC curves, and average precision computed in three ways."""
    areas = {f"ROC AUC, {name}": one.measures["ROC AUC"] for name, one in result.judges.items()}
    precisions = {
        f"average precision, {name}": one.measures["average precision"]
        for name, one in result.judges.items()
    }
    boxes = {f"AP of boxes, {name}": value for name, value in result.precisions.items()}
    return {name: round(value, 6) for name, value in (areas | precisions | boxes).items()} | {
        "IoU": round(result.overlap, 6)
    }


def draw(result: Measures) -> Figure:
    """Six panels."""
    figure = new_figure(10.5, 6.4)
    panels = figure.subplots(2, 3).ravel()
    _draw_confusion(panels[0], result.classes)
    _draw_curves(panels[1], result, "roc")
    _draw_curves(panels[2], result, "precision_recall")
    _draw_boxes(panels[3], result.overlap)
    _draw_envelope(panels[4], result.precisions["area"])
    _draw_perplexity(panels[5])
    return figure


def _draw_confusion(axes: Axes, measures: ClassMeasures) -> None:
    counts, names = measures.confusion, list(map(str, measures.classes))
    shares = counts / counts.sum(1, keepdims=True)
    for (row, column), count in np.ndenumerate(counts):
        colour = ramp(float(shares[row, column]))
        axes.fill_between([column, column + 1], row, row + 1, color=fraction_rgb(colour))
        ink = fraction_rgb(readable_ink(colour))
        middle = {"ha": "center", "va": "center"}
        axes.text(column + 0.5, row + 0.5, f"{count}", **middle, **words(size=12, color=ink))
    size = len(names)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
    axes.set_xticks(np.arange(size) + 0.5, names, **words(size=9))
    axes.set_yticks(np.arange(size) + 0.5, names, **words(size=9))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("said", **words(size=10))
    axes.set_ylabel("true", **words(size=10))
    axes.set_title(
        f"confusion matrix, {measures.overall_accuracy:.2f} right", **words(size=11, pad=8)
    )


def _draw_curves(axes: Axes, found: Measures, curve: str) -> None:
    roc = curve == "roc"
    names = ("false positive rate", "true positive rate") if roc else ("recall", "precision")
    label_axes(axes, *names, "ROC" if roc else "precision and recall")
    for place, (name, one) in enumerate(found.judges.items()):
        area = one.measures["ROC AUC" if roc else "average precision"]
        label = f"{name}, {'AUC' if roc else 'AP'} {area:.2f}"
        axes.plot(*getattr(one, curve), color=curve_colour(place), linewidth=1.8, label=label)
    blind = ([0, 1], [0, 1]) if roc else ([0, 1], [RIGHT / CASES] * 2)
    axes.plot(*blind, color=fraction_rgb(GREY), linewidth=1, linestyle=":")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.5), yticks=np.linspace(0.0, 1.0, 6))
    legend(axes, "upper left")


def _draw_boxes(axes: Axes, overlap: float) -> None:
    low, high = BOXES[:, :2].max(0), BOXES[:, 2:].min(0)
    axes.fill_between([low[0], high[0]], low[1], high[1], color="0.85", linewidth=0)
    for place, (x1, y1, x2, y2) in enumerate(BOXES):
        axes.plot(
            [x1, x2, x2, x1, x1], [y1, y1, y2, y2, y1], color=curve_colour(place), linewidth=2
        )
    middle = {"ha": "center", "va": "center"}
    for x, y in ((2.5, 2.0), (0.5, 0.5), (4.5, 3.5)):
        axes.text(x, y, "6", **middle, **words(size=12))
    axes.set(xlim=(-0.3, 5.3), ylim=(-0.3, 4.3), aspect="equal")
    axes.set(xticks=range(6), yticks=range(5))
    axes.tick_params(labelsize=9)
    axes.spines[:].set_visible(False)
    axes.set_title(f"IoU = 6 / 18 = {overlap:.2f}", **words(size=11, pad=8))


def _draw_envelope(axes: Axes, area: float) -> None:
    recall, precision = precision_recall(HIT, SCORE, POSITIVES)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    label_axes(axes, "recall", "precision", f"boxes, AP {area:.2f}")
    edges = np.append(0.0, recall)
    axes.step(
        edges,
        np.append(envelope[:1], envelope),
        where="pre",
        color=curve_colour(1),
        label="envelope",
    )
    axes.fill_between(
        edges, np.append(envelope[:1], envelope), step="pre", color="0.9", linewidth=0
    )
    axes.plot(recall, precision, "o-", color=curve_colour(0), markersize=4, label="detections")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    legend(axes, "lower left")


def _draw_perplexity(axes: Axes) -> None:
    bits = np.linspace(0.0, 5.0, 101)
    label_axes(axes, "cross-entropy in bits", "perplexity", "perplexity")
    axes.plot(bits, 2**bits, color=curve_colour(0), linewidth=1.8, label="2^bits = e^nats")
    axes.plot(
        bits,
        2 ** (bits * math.log(2.0)),
        color=curve_colour(1),
        linestyle="--",
        linewidth=1.8,
        label="2^nats, wrong",
    )
    legend(axes, "upper left")
