"""A plot of a judge's decisions: the confusion matrix, the ROC curve and the precision-recall
curve."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from rlbook.evaluation.classification import Classification, Curve
from rlbook.plots.colours import CURVES, GREY, fraction_rgb, ramp, readable_ink
from rlbook.plots.figure import format_of, new_figure, plain_axes, save_figure, words


def draw_classification(
    classification: Classification, path: str | Path, kinds: tuple[str, str] = ("right", "wrong")
) -> Path:
    """Draws three panels; the dot on each curve is the threshold of the matrix.

    Args:
        classification: what a judge said.
        path: ends in .png, .svg or .pdf.
        kinds: what the two kinds are called, the positive one first.

    Raises:
        RequestError: another ending, or a file that cannot be written.
    """
    format_of(Path(path))
    figure = new_figure(10.5, 3.4)
    matrix, roc, precision_recall = figure.subplots(1, 3)
    _draw_confusion(matrix, classification, kinds)
    measures = classification.measures
    (true_negative, false_positive), _ = classification.confusion.tolist()
    fall_out = false_positive / (false_positive + true_negative)
    _draw_curve(
        roc,
        classification.roc,
        (fall_out, measures["recall"]),
        f"ROC, area {measures['ROC AUC']:.3f}",
    )
    roc.plot([0, 1], [0, 1], color=fraction_rgb(GREY), linewidth=1, linestyle=":")
    roc.set_xlabel("false positive rate", **words(size=9))
    roc.set_ylabel("true positive rate", **words(size=9))
    title = f"precision and recall, average {measures['average precision']:.3f}"
    _draw_curve(
        precision_recall,
        classification.precision_recall,
        (measures["recall"], measures["precision"]),
        title,
    )
    precision_recall.axhline(
        classification.label.mean(), color=fraction_rgb(GREY), linewidth=1, linestyle=":"
    )
    precision_recall.set_xlabel("recall", **words(size=9))
    precision_recall.set_ylabel("precision", **words(size=9))
    return save_figure(figure, path)


def _draw_confusion(axes: Axes, classification: Classification, kinds: tuple[str, str]) -> None:
    counts = classification.confusion[::-1, ::-1]
    shares = counts / counts.sum(axis=1, keepdims=True)
    for row in range(2):
        for column in range(2):
            colour = ramp(float(shares[row, column]))
            axes.fill_between([column, column + 1], row, row + 1, color=fraction_rgb(colour))
            ink = fraction_rgb(readable_ink(colour))
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{counts[row, column]}",
                ha="center",
                va="center",
                **words(size=12, color=ink),
            )
    axes.set(xlim=(0, 2), ylim=(2, 0), aspect="equal")
    axes.set_xticks([0.5, 1.5], [f"called\n{kind}" for kind in kinds], **words(size=9))
    axes.set_yticks([0.5, 1.5], kinds, **words(size=9))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"above {classification.threshold:.3g}", **words(size=10))


def _draw_curve(axes: Axes, curve: Curve, dot: tuple[float, float], title: str) -> None:
    plain_axes(axes)
    axes.plot(*curve, color=fraction_rgb(CURVES[0]), linewidth=2)
    axes.plot(*dot, marker="o", color=fraction_rgb(CURVES[1]))
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
    axes.set_title(title, **words(size=10))
