"""The measures of a judge: by hand, at their limits, and of a reward model and of verifiers through
the command line."""

from __future__ import annotations

import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.experiments import measures
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.evaluation.classification import (
    classify,
    classify_pairs,
    classify_rows,
    cohen_kappa,
    measure_classes,
)
from rlbook.runs.request import Request
from rlbook.runs.run import Run

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
LABEL = np.array([True, True, True, False, False, False, False, False])
SCORE = np.array([0.9, 0.8, 0.3, 0.7, 0.4, 0.2, 0.1, 0.0])


def test_every_measure_by_hand() -> None:
    """Above .5 are two right ones and one wrong one; a third right one is missed, and four wrong
    ones are left out."""
    found = classify(LABEL, SCORE, 0.5)
    assert found.confusion.tolist() == [[4, 1], [1, 2]]
    precision, recall = 2 / 3, 2 / 3
    assert found.measures == near(
        {
            "accuracy": 6 / 8,
            "average accuracy": (2 / 3 + 4 / 5) / 2,
            "precision": precision,
            "recall": recall,
            "F1": 2 * precision * recall / (precision + recall),
            "ROC AUC": 13 / 15,  # of 3 · 5 pairs .3 loses against .7 and .4
            "average precision": (1 + 1 + 3 / 5) / 3,  # precision where each right one is found
            # right: 3 of 8, and called right: 3 of 8
            "Cohen's kappa": (6 / 8 - (9 + 25) / 64) / (1 - (9 + 25) / 64),
        },
        terms=8,
    )
    assert classify(LABEL, SCORE).threshold == near((2.0 / 3 + 1.4 / 5) / 2, terms=8)
    at_a_score = classify(LABEL, SCORE, 0.7).confusion  # .7 itself is not above it
    assert at_a_score.tolist() == [[5, 0], [1, 2]]


def test_kappa_is_scikit_learns_of_any_number_of_matrices() -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    pairs = rng.integers(3, size=(5, 2, 40))
    counts = np.zeros((5, 3, 3), dtype=np.int64)
    for matrix, (one, other) in zip(counts, pairs, strict=True):
        np.add.at(matrix, (one, other), 1)
    expected = [cohen_kappa_score(one, other) for one, other in pairs]
    assert cohen_kappa(counts).tolist() == near(expected, terms=40)
    assert cohen_kappa(np.array([[3, 0], [0, 5]])) == 1.0
    assert cohen_kappa(np.array([[6, 2], [3, 1]])) == near(
        0.0, terms=8
    )  # the rows are proportional
    assert np.isnan(cohen_kappa(np.array([[8, 0], [0, 0]])))


@pytest.mark.parametrize(
    ("score", "area"), [(LABEL * 1.0, 1.0), (LABEL * -1.0, 0.0), (LABEL * 0.0, 0.5)]
)
def test_the_area_is_1_for_a_perfect_judge_half_for_a_blind_one_and_less_for_one_that_is_mistaken(
    score: np.ndarray, area: float
) -> None:
    assert classify(LABEL, score, 0.5).measures["ROC AUC"] == area


def test_a_judge_that_calls_nothing_right_has_no_precision() -> None:
    found = classify(LABEL, SCORE, 1.0)
    assert found.measures["precision"] == found.measures["recall"] == found.measures["F1"] == 0.0
    assert found.measures["accuracy"] == 5 / 8  # and yet more than half is right


@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_is_a_number(threshold: float) -> None:
    with pytest.raises(RequestError, match=f"threshold must be a finite number, got {threshold}"):
        classify(np.array([True, False]), np.array([1.0, 0.0]), threshold)


def test_both_kinds_must_occur() -> None:
    with pytest.raises(rlbook.RequestError, match="all 8 are right"):
        classify(LABEL | True, SCORE)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(rlbook.RequestError, match=r"rlbook\[metrics\]"):
        classify(LABEL, SCORE)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model of the maze, hardly trained."""
    folder = tmp_path_factory.mktemp("judge") / "run"
    rlbook.train(
        "reward_model", "Maze-v0", passes=1, walks=40, held_out=0.5, eval_every=0, out=folder
    )
    return folder


def test_a_reward_model_is_judged_by_pairs_that_it_has_not_learned_from(judge: Path) -> None:
    run: Any = rlbook.load(judge)
    found = classify_pairs(run)
    rows = run.agent.hold_out_rows(run.data_source())
    assert len(found.label) == 2 * len(rows) and found.label.sum() == len(rows)
    expected = run.agent.accuracy(run.data_source(), rows)
    assert found.measures["pairs in order"] == near(expected, dtype="float32", terms=len(rows))
    logged = [
        report["held_out_accuracy"] for report in run.metrics if "held_out_accuracy" in report
    ]
    assert found.measures["pairs in order"] == near(logged[-1], dtype="float32", terms=len(rows))
    with pytest.raises(rlbook.RequestError, match="q_learning is none"):
        classify_pairs(Run(Request.build("q_learning", "Maze-v0")))


def test_a_reward_model_that_has_learned_nothing_is_blind_to_any_pairs(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        "\n".join(
            json.dumps({"prompt": f"{a}+11=", "chosen": str(a + 11), "rejected": "7"})
            for a in range(20, 25)
        )
    )
    run: Any = Run(Request.build("reward_model", "Addition-v0"))
    found = classify_pairs(run, pairs)
    assert (
        len(found.label) == 10
        and found.measures["ROC AUC"] == 0.5
        and found.measures["pairs in order"] == 0.0
    )
    with pytest.raises(rlbook.RequestError, match="nowhere"):
        classify_pairs(run, tmp_path / "nowhere.jsonl")


def test_the_command_line_judges_a_reward_model(
    judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "curves.svg"
    assert main(["evaluate", str(judge), "--out", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert (
        "called preferred" in shown
        and "ROC AUC" in shown
        and picture.read_bytes().startswith(b"<?xml")
    )
    assert main(["evaluate", str(judge), "--samples", "3"]) == 2
    assert "--samples has no effect on a reward model" in capsys.readouterr().err


def test_a_verifier_is_judged_by_the_rows_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "completions.jsonl"
    rows = [
        {"right": bool(right), "rewards": {"reward/edit": score}, "tokens": 3}
        for right, score in zip(LABEL, SCORE, strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, [*rows, {**rows[0], "sample": "greedy"}])))
    assert classify_rows(path, "edit", threshold=0.5).confusion.tolist() == [[4, 1], [1, 2]]
    assert main(["evaluate", str(path), "--score", "edit", "--threshold", "0.5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cases"] == 8 and facts["measures"]["ROC AUC"] == near(13 / 15, terms=8)
    assert main(["evaluate", str(path), "--score", "exact"]) == 2
    assert (
        "'exact' must be a number, got None; the row has reward/edit, tokens"
        in capsys.readouterr().err
    )
    assert main(["evaluate", str(path)]) == 2
    assert "--score NAME" in capsys.readouterr().err
    assert main(["evaluate", str(path), "--score", "edit", "--label", "prompt"]) == 2
    assert "line 1" in capsys.readouterr().err


def test_the_measures_of_several_classes_by_hand() -> None:
    """a: two of three found, one b called a. b: two of three, an a and a c called b. c: two of three, a d
    called c. d: never found, never said."""
    found = measure_classes(list("aaabbbcccd"), list("aabbbaccbc"))
    assert found.classes == ("a", "b", "c", "d")
    assert found.confusion.tolist() == [[2, 1, 0, 0], [1, 2, 0, 0], [0, 1, 2, 0], [0, 0, 1, 0]]
    assert found.overall_accuracy == 6 / 10
    assert found.average_accuracy == near((2 / 3 * 3 + 0) / 4, terms=8)
    precision, recall = [2 / 3, 2 / 4, 2 / 3, 0.0], [2 / 3, 2 / 3, 2 / 3, 0.0]
    f1 = [2 / 3, 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3), 2 / 3, 0.0]
    assert found.precision.tolist() == near(precision, terms=4)
    assert found.recall.tolist() == near(recall, terms=4)
    assert found.f1.tolist() == near(f1, terms=4)
    assert found.macro == near(
        {"precision": sum(precision) / 4, "recall": sum(recall) / 4, "F1": sum(f1) / 4}, terms=8
    )
    assert found.micro == near({"precision": 0.6, "recall": 0.6, "F1": 0.6}, terms=8)


def test_the_rare_class_counts_as_much_as_the_frequent_one_in_the_average_accuracy() -> None:
    found = measure_classes([0] * 9 + [1], [0] * 10)
    assert found.overall_accuracy == 0.9 and found.average_accuracy == 0.5
    assert found.macro["F1"] == near((2 * 0.9 / 1.9 + 0) / 2, terms=8)


def test_a_class_that_is_only_said_has_no_share_in_the_average_accuracy() -> None:
    found = measure_classes(["a", "a"], ["a", "b"])
    assert found.classes == ("a", "b") and found.average_accuracy == 0.5
    with pytest.raises(RequestError, match="got 2 cases and 1 answers"):
        measure_classes(["a", "a"], ["a"])


def test_the_pictures_of_the_measures_show_what_they_say() -> None:
    found = measures.run()
    numbers = measures.measurements(found)
    assert numbers["ROC AUC, good"] > 0.8 > 0.55 > numbers["ROC AUC, blind"] > 0.45
    assert numbers["ROC AUC, turned round"] < 0.2 and numbers["IoU"] == round(6 / 18, 6)
    assert found.classes.overall_accuracy == 12 / 15
    assert len(measures.draw(found).axes) == 6
