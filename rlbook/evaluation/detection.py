"""Detections as boxes: intersection over union, average precision, and its mean over classes.

    IoU = |A ∩ B| / |A ∪ B|

A detection is right where it overlaps a box of the truth enough that no better detection has taken.
In the order of their scores the detections then make a curve of precision over recall, and AP is the
area below its envelope.

Boxes are corners (x1, y1, x2, y2) with continuous coordinates, as COCO's are; VOC's own program counts
pixels and adds 1 to each side. COCO's crowds, sizes of objects and limit of 100 detections are left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

COCO_THRESHOLDS = tuple((50 + 5 * step) / 100 for step in range(10))
"""IoU from .5 to .95."""
Interpolation = Literal["area", "11 points", "101 points"]


class Boxes(NamedTuple):
    """Boxes in several images, found or true."""

    image: NDArray[np.int64]  # [N], which image
    corners: NDArray[np.float64]  # [N, 4], x1, y1, x2, y2
    kind: NDArray[np.int64]  # [N], the class
    score: NDArray[np.float64]  # [N], larger where the detector is surer; of true boxes not used

    def select_kind(self, kind: int) -> Boxes:
        """The boxes of one class."""
        mine = self.kind == kind
        return Boxes(self.image[mine], self.corners[mine], self.kind[mine], self.score[mine])


def intersection_over_union(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """The area of the intersection of two boxes divided by that of their union, in [0, 1]; 0 for
    boxes without area.

    Args:
        first, second: [N, 4] and [M, 4], corners x1, y1, x2, y2 with x1 ≤ x2 and y1 ≤ y2.

    Returns:
        [N, M].

    Raises:
        ValueError: another shape, or corners in another order.

    Source: Jaccard 1912, doi:10.1111/j.1469-8137.1912.tb05611.x.
    """
    one, other = _corners("first", first), _corners("second", second)
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    both = (high - low).clip(min=0.0).prod(-1)  # [N, M]
    area, other_area = ((x[:, 2:] - x[:, :2]).prod(-1) for x in (one, other))
    union = area[:, None] + other_area[None, :] - both
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


def _corners(name: str, boxes: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(boxes, dtype=float).reshape(-1, 4) if np.size(boxes) == 0 else boxes
    found = np.asarray(found, dtype=float)
    if found.ndim != 2 or found.shape[1] != 4:
        raise ValueError(f"{name} must be corners [N, 4], got shape {list(found.shape)}")
    if not (found[:, :2] <= found[:, 2:]).all():
        raise ValueError(f"{name} must have x1 ≤ x2 and y1 ≤ y2 in each row")
    return found


def match_detections(
    overlap: NDArray[np.float64],
    score: NDArray[np.float64],
    threshold: float = 0.5,
    *,
    rule: Literal["voc", "coco"] = "coco",
) -> NDArray[np.bool_]:
    """Which detections of one image and one class are correct.

    The surest one chooses first. With "coco" a detection takes the box that it overlaps most among
    those that are left; with "voc" the box that it overlaps most of all, and is wrong where another one
    has taken that. So a second detection of the same object is wrong in both.

    Args:
        overlap: [N, M], IoU of N detections and M true boxes.
        score: [N]; of equal ones the earlier counts as surer.
        threshold: the IoU from which on a box is hit.

    Returns:
        bool [N].

    Source: Everingham et al. 2010, doi:10.1007/s11263-009-0275-4, section 4.2; Lin et al. 2014,
    arXiv:1405.0312, as pycocotools matches.
    """
    hit, free = np.zeros(len(overlap), dtype=bool), np.ones(overlap.shape[1], dtype=bool)
    for row in np.argsort(-score, kind="stable") if overlap.shape[1] else ():
        seen = overlap[row] if rule == "voc" else np.where(free, overlap[row], -1.0)
        best = int(seen.argmax())
        hit[row] = seen[best] >= threshold and free[best]
        free[best] &= not hit[row]
    return hit


def precision_recall(
    hit: NDArray[np.bool_], score: NDArray[np.float64], positives: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Recall and precision of the n most confident detections, for n from 1 to N: [N] each.

    Args:
        hit: bool [N], which are right.
        score: [N].
        positives: how many boxes there are to be found, at least 1.
    """
    right = np.cumsum(hit[np.argsort(-score, kind="stable")])
    return right / positives, right / np.arange(1, len(right) + 1)


def average_precision(
    hit: NDArray[np.bool_],
    score: NDArray[np.float64],
    positives: int,
    interpolation: Interpolation = "area",
) -> float:
    """The mean over recall of the best precision reached at this recall or beyond.

        AP = ∫ max_{r' ≥ r} p(r') dr

    Args:
        hit, score: of N detections.
        positives: how many boxes there are to be found; NaN is the answer where there are none.
        interpolation: the exact area (VOC from 2010 on), or the mean at 11 recalls 0, .1, … 1 (VOC
            2007) or at 101 (COCO).

    Source: Everingham et al. 2010, doi:10.1007/s11263-009-0275-4, eq. 1 and 2; Lin et al. 2014,
    arXiv:1405.0312.
    """
    if not positives:
        return float("nan")
    recall, precision = precision_recall(hit, score, positives)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    if interpolation == "area":
        return float((np.diff(recall, prepend=0.0) * envelope).sum())
    count = {"11 points": 11, "101 points": 101}[interpolation]
    # by whole numbers: 3 of 10 boxes are a recall of .3, whatever 3 / 10 and .1 · 3 round to
    found = np.round(recall * positives).astype(int)
    wanted = -(-np.arange(count) * positives // (count - 1))  # boxes at each recall, rounded up
    place = np.searchsorted(found, wanted)
    padded = np.append(envelope, 0.0)
    return float(padded[place].mean())


class AveragePrecisions(NamedTuple):
    """AP by class, and the mean of all."""

    mean: float  # mAP: over classes and thresholds; NaN where nothing is to be found
    of_kind: dict[int, float]  # the mean over thresholds


def mean_average_precision(
    detections: Boxes,
    truth: Boxes,
    *,
    thresholds: Sequence[float] = (0.5,),
    interpolation: Interpolation = "area",
    rule: Literal["voc", "coco"] = "voc",
) -> AveragePrecisions:
    """mAP: the mean over classes of their average precision, over all images together.

    VOC's is the default. COCO's is `thresholds=COCO_THRESHOLDS, interpolation="101 points",
    rule="coco"`. A class without a true box has no AP and is left out, whatever is detected of it.

    Args:
        detections: the detections, with their scores.
        truth: what there is.
        thresholds: IoU from which on a detection is right; the mean over several.
        interpolation: as in `average_precision`.
        rule: as in `match_detections`.
    """
    of_kind: dict[int, float] = {}
    for kind in np.unique(truth.kind).tolist():
        mine, theirs = detections.select_kind(kind), truth.select_kind(kind)
        areas = []
        for threshold in thresholds:
            hit = np.zeros(len(mine.score), dtype=bool)
            for image in np.unique(mine.image):
                rows = mine.image == image
                overlap = intersection_over_union(
                    mine.corners[rows], theirs.corners[theirs.image == image]
                )
                hit[rows] = match_detections(overlap, mine.score[rows], threshold, rule=rule)
            areas.append(average_precision(hit, mine.score, len(theirs.score), interpolation))
        of_kind[kind] = float(np.mean(areas))
    mean = float(np.mean(list(of_kind.values()))) if of_kind else float("nan")
    return AveragePrecisions(mean, of_kind)
