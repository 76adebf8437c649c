"""`rlbook evaluate` of a judge: a reward model on pairs, or a column of a file of completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbook.checks import four_digits
from rlbook.cli.output import Result, align_columns
from rlbook.errors import RequestError

if TYPE_CHECKING:
    from rlbook.evaluation.classification import Classification
    from rlbook.runs.run import Run


def evaluate_pairs(
    run: Run, folder: str, data: str | None, threshold: float | None, out: str | None
) -> Result:
    """Evaluates a reward model on pairs."""
    from rlbook.evaluation.classification import classify_pairs

    where = f"the pairs in {data}" if data is not None else "the held-out pairs"
    return _report(
        classify_pairs(run, data, threshold),
        f"{folder} on {where}",
        ("preferred", "not preferred"),
        out,
    )


def evaluate_rows(
    path: str, score: str | None, label: str | None, threshold: float | None, out: str | None
) -> Result:
    """Evaluates a column of a file of completions."""
    from rlbook.evaluation.classification import classify_rows

    if score is None:
        raise RequestError(
            f"{path} is a file of completions; --score NAME says which of its rewards or columns is"
            " measured"
        )
    found = classify_rows(path, score, label or "right", threshold)
    return _report(
        found,
        f"{score} in {path} against {label or 'right'!r}",
        (label or "right", f"not {label or 'right'}"),
        out,
    )


def _report(
    classification: Classification, about: str, kinds: tuple[str, str], out: str | None
) -> Result:
    (true_negative, false_positive), (false_negative, true_positive) = (
        classification.confusion.tolist()
    )
    facts = {
        "what": about,
        "cases": len(classification.label),
        "threshold": classification.threshold,
        "measures": classification.measures,
        "confusion": {
            "true_positive": true_positive,
            "false_negative": false_negative,
            "false_positive": false_positive,
            "true_negative": true_negative,
        },
    }
    right, wrong = kinds
    table = [
        ("", f"called {right}", f"called {wrong}"),
        (right, str(true_positive), str(false_negative)),
        (wrong, str(false_positive), str(true_negative)),
    ]
    measures = [
        ("measure", "value"),
        *((name, f"{value:.4f}") for name, value in classification.measures.items()),
    ]
    title = f"{about}: {len(classification.label)} cases, called {right} above {four_digits(classification.threshold)}"
    text = f"{title}\n\n{align_columns(table)}\n\n{align_columns(measures)}"
    if out is None:
        return facts, text
    from rlbook.plots.classification import draw_classification

    facts["written"] = str(draw_classification(classification, out, kinds))
    return facts, f"{text}\n\n{facts['written']}"
