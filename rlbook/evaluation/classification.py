"""Classification metrics of a verifier or a reward model, from its decisions and the true labels.

    found = classified(label, score)             label [n]: whether it is right; score [n]: how sure the judge is that it is
    found.measures["ROC AUC"], found.confusion
    measure_classes(truth, said).f1              of several classes, by class and on average

Whatever scores above the threshold is called right. Counts, ratios and areas are scikit-learn's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.errors import RequestError
from rlbook.runs.run import Run

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
LOGGED = "reward/"


@dataclass(frozen=True)
class Classification:
    """A judge's decisions on n cases, and the true labels."""

    label: NDArray[np.bool_]  # [n], true: right, or preferred
    score: NDArray[np.float64]  # [n]
    threshold: float  # what scores above it is called right
    confusion: NDArray[np.int64]  # [2, 2], rows: wrong, right; columns: called wrong, called right
    measures: dict[str, float]
    roc: Curve  # false positive rate and true positive rate, threshold by threshold
    precision_recall: Curve  # recall and precision


def classify(
    label: NDArray[np.bool_], score: NDArray[np.float64], threshold: float | None = None
) -> Classification:
    """Computes a judge's metrics from cases with known labels.

    Args:
        label: [n], what is true; both must occur.
        score: [n], larger for what the judge takes to be right.
        threshold: what scores above it is called right; None is halfway between the mean scores of
            the two kinds.

    Raises:
        RequestError: scikit-learn is not installed, only one kind occurs, or the threshold is not
            finite.
    """
    metrics = _metrics()
    if label.all() or not label.any():
        only = "right" if label.any() else "wrong"
        raise RequestError(
            f"measures of a classifier need both right and wrong cases, but all {len(label)} are "
            f"{only}"
        )
    if threshold is not None and not math.isfinite(threshold):
        raise RequestError(f"threshold must be a finite number, got {threshold}")
    if threshold is None:
        threshold = float(score[label].mean() + score[~label].mean()) / 2
    said = score > threshold
    ratios: Any = metrics.precision_recall_fscore_support(
        label,
        said,
        average="binary",
        zero_division=0,  # type: ignore[arg-type]
    )
    precision, recall, f1, _ = ratios
    found = {
        "accuracy": metrics.accuracy_score(label, said),
        "average accuracy": metrics.balanced_accuracy_score(label, said),
        "precision": precision,
        "recall": recall,
        "F1": f1,
        "ROC AUC": metrics.roc_auc_score(label, score),
        "average precision": metrics.average_precision_score(label, score),
    }
    false_positive, true_positive, _ = metrics.roc_curve(label, score)
    precisions, recalls, _ = metrics.precision_recall_curve(label, score)
    confusion = metrics.confusion_matrix(label, said, labels=[False, True])
    found["Cohen's kappa"] = cohen_kappa(confusion)
    measures = {name: float(value) for name, value in found.items()}
    return Classification(
        label,
        score,
        threshold,
        confusion,
        measures,
        (false_positive, true_positive),
        (recalls, precisions),
    )


def cohen_kappa(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """The agreement of two raters beyond chance: 1 if they always agree, 0 if as often as two
    independent raters with the same frequencies.

    κ = (p - e) / (1 - e),   p the share of the cases in which both say the same, e = Σ_k p_k q_k

    Args:
        confusion: [..., K, K], counts; rows are what one rater says, columns the other.

    Returns:
        [...]; NaN where both always say one and the same.

    Source: Cohen 1960, Educational and Psychological Measurement 20(1), eq. 1.
    """
    share = confusion / confusion.sum(axis=(-2, -1), keepdims=True)
    same = np.trace(share, axis1=-2, axis2=-1)
    chance = (share.sum(-1) * share.sum(-2)).sum(-1)
    with np.errstate(invalid="ignore"):
        return (same - chance) / (1.0 - chance)


@dataclass(frozen=True)
class ClassMeasures:
    """How well each of K classes is recognised, for n cases."""

    classes: tuple[Any, ...]  # [K], in order
    confusion: NDArray[np.int64]  # [K, K], rows: what is true; columns: what is said
    overall_accuracy: float  # share of all cases that are right
    average_accuracy: float  # mean over the true classes of the share that is right in each: recall
    precision: NDArray[np.float64]  # [K]; 0 for a class that is never said
    recall: NDArray[np.float64]  # [K]; 0 for a class that is never true
    f1: NDArray[np.float64]  # [K], 2 P R / (P + R)
    macro: dict[str, float]  # precision, recall and F1: the mean over classes
    micro: dict[str, float]  # the same from the counts of all classes together


def measure_classes(truth: Sequence[Any], prediction: Sequence[Any]) -> ClassMeasures:
    """The metrics of a classifier with several classes.

    Where every case has one class and gets one, micro precision, recall and F1 are all the overall
    accuracy: a case that is wrong is a false positive of one class and a false negative of another.

    Args:
        truth: [n], the class of each case.
        prediction: [n], what the classifier says.

    Raises:
        RequestError: scikit-learn is not installed, there is no case, or the lengths differ.
    """
    metrics = _metrics()
    if not len(truth) or len(truth) != len(prediction):
        raise RequestError(
            f"measures of classes need as many answers as cases, at least one; got {len(truth)} cases"
            f" and {len(prediction)} answers"
        )
    both = np.asarray(list(truth)), np.asarray(list(prediction))
    confusion = metrics.confusion_matrix(*both)

    def ratios(average: str | None) -> tuple[Any, Any, Any]:
        found = metrics.precision_recall_fscore_support(*both, average=average, zero_division=0)
        return found[0], found[1], found[2]

    means: dict[str, dict[str, float]] = {
        average: dict(zip(("precision", "recall", "F1"), map(float, ratios(average)), strict=True))
        for average in ("macro", "micro")
    }
    precision, recall, f1 = ratios(None)
    happens = confusion.sum(1) > 0  # a class that is only said has no recall
    return ClassMeasures(
        tuple(np.unique(np.concatenate(both)).tolist()),
        confusion,
        float(metrics.accuracy_score(*both)),
        float(np.mean(recall[happens])),
        precision,
        recall,
        f1,
        means["macro"],
        means["micro"],
    )


def _metrics() -> ModuleType:
    """scikit-learn's metrics module. Raises RequestError if it is not installed."""
    try:
        from sklearn import metrics  # type: ignore[import-not-found]
    except ImportError:
        raise RequestError(
            'measures of a classifier need `pip install "rlbook[metrics]"` (scikit-learn)'
        ) from None
    return metrics


def classify_pairs(
    run: Run, data: str | Path | None = None, threshold: float | None = None
) -> Classification:
    """Treats a reward model as a classifier: in each pair, the preferred episode is the positive
    case.

    Args:
        run: of a reward model.
        data: pairs or groups; None: the rows of its own data that it has not learned from.
        threshold: as in `classify`.

    Raises:
        RequestError: it is not a reward model, or the data cannot be read or hold nothing to test
            on.
    """
    from rlbook.algorithms.imitation.reward_model import RewardModel

    agent = run.agent
    if not isinstance(agent, RewardModel):
        raise RequestError(f"data applies to a reward model, but {run.request.algorithm} is none")
    asked = run if data is None else Run(run.request.with_options(data=data))
    known = asked.data_source()
    assert known is not None
    rows = np.arange(len(known)) if data is not None else agent.hold_out_rows(known)
    if not len(rows):
        raise RequestError(
            "the reward model has learned from all of its data (held_out 0); name other pairs as"
            " data"
        )
    better, worse = agent.ordered_scores(known, rows)
    if not len(better):
        raise RequestError(
            "the reward model can be tested only on preferences, but all of these data are ties"
        )
    label = np.repeat([True, False], [len(better), len(worse)])
    found = classify(label, np.concatenate([better, worse]), threshold)
    found.measures["pairs in order"] = float(np.mean(better > worse))
    return found


def classify_rows(
    path: str | Path, score: str, label: str = "right", threshold: float | None = None
) -> Classification:
    """Treats a verifier as a classifier, from the rows of a file such as one written by `rlbook
    evaluate --samples`.

    Args:
        path: JSON lines or another form that `rlbook.data.text_files` reads.
        score: a column with numbers, or the name of one of the `rewards`.
        label: a column that says what is true.
        threshold: as in `classify`.

    Raises:
        RequestError: the file cannot be read, or a row has no such column; the line is named.
    """
    from rlbook.data.text_files import read_rows

    rows = read_rows(Path(path))
    labels, scores = [], []
    for index in range(len(rows)):
        row = rows[index]
        if row.get("sample") == "greedy":
            continue
        truth, value = row.get(label), _score(row, score)
        if truth not in (True, False):  # 1 and 0 are equal to them
            raise RequestError(
                f"{rows.location(index)}: column {label!r} must be true or false, got {truth!r}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RequestError(
                f"{rows.location(index)}: {score!r} must be a number, got {value!r};"
                f" {_list_numbers(row)}"
            )
        labels.append(bool(truth))
        scores.append(float(value))
    return classify(np.array(labels, dtype=np.bool_), np.array(scores, dtype=np.float64), threshold)


def _score(row: Mapping[str, Any], name: str) -> object:
    rewards = row.get("rewards")
    if isinstance(rewards, Mapping):
        for known in (name, LOGGED + name):
            if known in rewards:
                return rewards[known]
    return row.get(name)


def _list_numbers(row: Mapping[str, Any]) -> str:
    rewards = row.get("rewards")
    names = [
        *(rewards if isinstance(rewards, Mapping) else ()),
        *(name for name, value in row.items() if type(value) in (int, float)),
    ]
    return f"the row has {', '.join(names) or 'no numbers'}"
