"""Boxes: intersection over union, matching, average precision, and its mean, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near

from rlbook.evaluation.detection import (
    COCO_THRESHOLDS,
    Boxes,
    average_precision,
    intersection_over_union,
    match_detections,
    mean_average_precision,
    precision_recall,
)


def boxes(*rows: tuple[int, float, float, float, float, int, float]) -> Boxes:
    """Rows of image, corners, kind, score."""
    table = np.array(rows, dtype=float).reshape(-1, 7)
    return Boxes(table[:, 0].astype(int), table[:, 1:5], table[:, 5].astype(int), table[:, 6])


def test_the_overlap_of_two_boxes_by_hand() -> None:
    found = intersection_over_union(
        [[0, 0, 2, 2], [0, 0, 4, 3]],
        [[0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 4, 2], [1, 1, 5, 4], [5, 5, 6, 6]],
    )
    assert found.ravel().tolist() == near(
        [
            *[1.0, 1 / (4 + 4 - 1), 0.0, 1 / (4 + 12 - 1), 0.0],  # edges alone have no area
            *[4 / 12, 4 / 12, 4 / 12, 6 / (12 + 12 - 6), 0.0],
        ],
        terms=4,
        size=12.0,
    )
    assert intersection_over_union([[1, 1, 1, 1]], [[1, 1, 1, 1]]).item() == 0.0
    assert intersection_over_union([], [[0, 0, 1, 1]]).shape == (0, 1)


@pytest.mark.parametrize(
    ("wrong", "said"), [([0, 0, 1], "corners"), ([[1, 0, 0, 1]], "x1 ≤ x2"), ([[0, 0, 1]], "shape")]
)
def test_what_are_no_corners_is_refused(wrong: list[object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        intersection_over_union(wrong, [[0, 0, 1, 1]])


def test_the_surest_chooses_first_and_a_second_one_of_the_same_box_is_wrong() -> None:
    overlap = np.array([[0.6, 0.0], [0.9, 0.0], [0.0, 0.5]])
    score = np.array([0.8, 0.7, 0.6])
    assert match_detections(overlap, score).tolist() == [True, False, True]
    assert match_detections(overlap, score[::-1]).tolist() == [False, True, True]
    assert match_detections(overlap, score, 0.55).tolist() == [True, False, False]
    assert match_detections(np.zeros((2, 0)), score[:2]).tolist() == [False, False]


def test_coco_takes_the_next_box_where_voc_gives_up() -> None:
    """The second detection overlaps the taken box most, and another one enough."""
    overlap, score = np.array([[0.9, 0.0], [0.8, 0.6]]), np.array([0.9, 0.8])
    assert match_detections(overlap, score, rule="voc").tolist() == [True, False]
    assert match_detections(overlap, score, rule="coco").tolist() == [True, True]


def test_average_precision_in_three_ways_by_hand() -> None:
    """Right, wrong, right of three: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3."""
    hit, score = np.array([True, False, True]), np.array([0.9, 0.8, 0.7])
    recall, precision = precision_recall(hit, score, 3)
    assert recall.tolist() == near([1 / 3, 1 / 3, 2 / 3], terms=2)
    assert precision.tolist() == near([1.0, 1 / 2, 2 / 3], terms=2)
    assert average_precision(hit, score, 3) == near((1 + 2 / 3) / 3, terms=6)
    # recall 0, .1, .2, .3 has precision 1, and .4, .5, .6 has 2/3
    assert average_precision(hit, score, 3, "11 points") == near((4 + 3 * 2 / 3) / 11, terms=22)
    # 0 to .33, and .34 to .66
    assert average_precision(hit, score, 3, "101 points") == near(
        (34 + 33 * 2 / 3) / 101, terms=202
    )


def test_a_recall_that_is_reached_exactly_counts() -> None:
    """3 of 10 found is a recall of .3, whatever 3 / 10 and 3 · .1 are in binary."""
    hit, score = np.ones(3, dtype=bool), np.array([0.9, 0.8, 0.7])
    assert average_precision(hit, score, 10, "11 points") == near(4 / 11, terms=11)
    assert average_precision(hit, score, 10, "101 points") == near(31 / 101, terms=101)


def test_the_limits_of_average_precision() -> None:
    every = np.ones(4, dtype=bool)
    score = np.array([4.0, 3.0, 2.0, 1.0])
    for way in ("area", "11 points", "101 points"):
        assert average_precision(every, score, 4, way) == near(1.0, terms=101)
        assert average_precision(~every, score, 4, way) == 0.0
        assert average_precision(every[:0], score[:0], 4, way) == 0.0
        assert np.isnan(average_precision(~every, score, 0, way))


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_scikit_learns_where_the_curve_needs_no_envelope(seed: int) -> None:
    """scikit-learn's average precision takes the curve as it is, which is at most its envelope; with
    every case found they are equal on the envelope's own points."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    hit, score = rng.random(30) < 0.4, rng.random(30)
    mine = average_precision(hit, score, int(hit.sum()))
    theirs = metrics.average_precision_score(hit, score)
    assert mine > theirs
    recall, precision = precision_recall(hit, score, int(hit.sum()))
    raw = float((np.diff(recall, prepend=0.0) * precision).sum())
    assert raw == near(theirs, terms=60)


def test_the_mean_over_two_classes_and_two_images_by_hand() -> None:
    """Class 0: two boxes; the sure detection hits, the next is of the wrong image, the third hits with an
    IoU of 1/2. Class 1: one box, found. Class 2 is found where there is none, and does not count."""
    truth = boxes((0, 0, 0, 2, 2, 0, 0), (1, 0, 0, 2, 2, 0, 0), (0, 4, 4, 6, 6, 1, 0))
    found = boxes(
        (0, 0, 0, 2, 2, 0, 0.9),
        (0, 0, 0, 2, 2, 0, 0.8),
        (1, 0, 0, 2, 1, 0, 0.7),
        (0, 4, 4, 6, 6, 1, 0.2),
        (1, 4, 4, 6, 6, 2, 0.9),
    )
    result = mean_average_precision(found, truth)
    # precision 1 at recall 1/2, then 2/3 at recall 1
    assert result.of_kind == near({0: (1 + 2 / 3) / 2, 1: 1.0}, terms=8)
    assert result.mean == near(((1 + 2 / 3) / 2 + 1) / 2, terms=8)
    coco = mean_average_precision(
        found, truth, thresholds=COCO_THRESHOLDS, interpolation="101 points", rule="coco"
    )
    # only at .5 is the third one right; else precision 1 up to recall .5, which is 51 points of 101
    low, high = (51 + 50 * 2 / 3) / 101, 51 / 101
    assert coco.of_kind == near({0: (low + 9 * high) / 10, 1: 1.0}, terms=1010)
    assert COCO_THRESHOLDS[0] == 0.5 and COCO_THRESHOLDS[-1] == 0.95 and len(COCO_THRESHOLDS) == 10
    assert np.isnan(mean_average_precision(found, boxes()).mean)
