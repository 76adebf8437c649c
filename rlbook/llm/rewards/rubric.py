"""A rubric: criteria with weights, each met or not.

    r = max(0, Σ_k w_k c_k) / Σ_k max(0, w_k)

c_k is 1 where criterion k is met. A criterion with a negative weight is a fault: it takes off.

Source: Arora et al. 2025 (HealthBench), arXiv:2505.08775, section 3: points, faults, and the bounds
0 and 1. As a reward for reinforcement learning: Gunjal et al. 2025, arXiv:2507.17746, eq. 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlbook.checks import check, finite, one_of, positive_int
from rlbook.llm.judging.judge_model import JudgeSettings, check_judge, open_judge
from rlbook.llm.judging.verdicts import CRITERION_TEMPLATE, fill_template, parse_verdict
from rlbook.llm.rewards.completion import Completion, mark_batched

TESTS = ("contains", "matches", "max_words", "min_words", "ask")
COLUMN = "rubric"


class Criterion(NamedTuple):
    """A line of a rubric."""

    name: str
    weight: float  # points; below 0 for a fault
    test: str
    value: str | int


@mark_batched
def rubric(
    completions: Sequence[Completion],
    *,
    criteria: Mapping[str, Mapping[str, Any]] | None = None,
    server: str | None = None,
    folder: str | None = None,
    model: str | None = None,
    template: str | None = None,
    max_tokens: int = 64,
    timeout: float = 60.0,
    retries: int = 4,
    jobs: int = 20,
    cache: str | None = None,
) -> list[Mapping[str, float | None]]:
    """The points of the criteria that a completion meets, as a share of all, in [0, 1]. Each
    criterion is logged as reward/rubric/NAME.

    Args:
        completions: what was written.
        criteria: name → {weight: 1.0, and one test}: contains, a text that stands in it, upper and
            lower case alike; matches, a regular expression that is found; max_words, min_words; or
            ask, a sentence about which a judge says yes or no. None: the column "rubric" of the
            example, the same or a list of {criterion, points} as in HealthBench.
        server, folder, model, max_tokens, timeout, retries, jobs, cache: the judge, as for `judge`.
        template: of its question, with {prompt}, {text} and {criterion}.

    A completion whose judge does not answer has no reward.
    """
    lists = [
        read_criteria(criteria if criteria is not None else one.columns.get(COLUMN))
        for one in completions
    ]
    asked = [
        fill_template(
            template or CRITERION_TEMPLATE,
            {"prompt": one.prompt, "text": one.text, "criterion": str(line.value)},
        )
        for one, lines in zip(completions, lists, strict=True)
        for line in lines
        if line.test == "ask"
    ]
    said: list[str | None] = []
    if asked:
        given = {"server": server, "folder": folder}
        check_judge("rubric", given)
        judge = JudgeSettings(server, folder, model, max_tokens, timeout, retries, jobs, cache)
        said = open_judge(judge).ask(asked)
    verdicts = iter([None if text is None else parse_verdict(text) for text in said])
    return [
        _points(
            [
                (line, next(verdicts) if line.test == "ask" else _is_met(line, one.text))
                for line in lines
            ]
        )
        for one, lines in zip(completions, lists, strict=True)
    ]


def check_rubric_reward(options: Mapping[str, Any]) -> None:
    """Raises ValueError for a rubric that cannot be read, or that needs a judge and names none."""
    if options.get("criteria") is None:
        return
    if any(line.test == "ask" for line in read_criteria(options["criteria"])):
        check_judge("rubric", options)


def read_criteria(rubric: object) -> list[Criterion]:
    """The lines of a rubric.

    Raises:
        ValueError: one sentence: which line, and what is allowed.
    """
    if isinstance(rubric, Sequence) and not isinstance(rubric, str):
        return _criteria_of_points(rubric)
    if not isinstance(rubric, Mapping) or not rubric:
        raise ValueError(
            "criteria of a rubric must be names with a test, such as {short: {max_words: 50},"
            f" polite: {{ask: It is polite., weight: 2}}}}, got {str(rubric)[:80]}"
        )
    lines: list[Criterion] = []
    for name, about in rubric.items():
        tests = [key for key in about if key != "weight"] if isinstance(about, Mapping) else []
        if len(tests) != 1:
            raise ValueError(
                f"criterion {name!r} must have one test ({', '.join(TESTS)}) and may have a weight,"
                f" got {str(about)[:80]}"
            )
        check(f"the test of criterion {name!r}", tests[0], one_of(*TESTS))
        weight, value = about.get("weight", 1.0), about[tests[0]]
        check(f"the weight of criterion {name!r}", weight, finite)
        if tests[0].endswith("_words"):
            check(f"{tests[0]} of criterion {name!r}", value, positive_int)
        else:
            value = str(value)
        if tests[0] == "matches":
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(
                    f"matches of criterion {name!r} must be a regular expression, got"
                    f" {value[:60]!r} ({error})"
                ) from None
        lines.append(Criterion(str(name), float(weight), tests[0], value))
    return _check_points(lines)


def _criteria_of_points(rows: Sequence[Any]) -> list[Criterion]:
    """HealthBench's rows: [{criterion: a sentence, points: 5}, …]."""
    lines: list[Criterion] = []
    for number, row in enumerate(rows, 1):
        points = row.get("points", 1.0) if isinstance(row, Mapping) else None
        if not isinstance(row, Mapping) or not isinstance(row.get("criterion"), str):
            raise ValueError(
                f"line {number} of a rubric must have a criterion and points, got {str(row)[:80]}"
            )
        check(f"points of line {number} of a rubric", points, finite)
        lines.append(Criterion(str(number), float(points), "ask", row["criterion"]))  # type: ignore[arg-type]
    return _check_points(lines)


def _check_points(lines: list[Criterion]) -> list[Criterion]:
    if not any(line.weight > 0 for line in lines):
        raise ValueError("a rubric needs a criterion with a weight above 0")
    return lines


def _is_met(line: Criterion, text: str) -> float:
    """Whether a text meets a criterion that needs no judge: 1 or 0."""
    if line.test == "contains":
        return float(str(line.value).lower() in text.lower())
    if line.test == "matches":
        return float(re.search(str(line.value), text) is not None)
    words = len(text.split())
    return float(words <= int(line.value) if line.test == "max_words" else words >= int(line.value))


def _points(met: Sequence[tuple[Criterion, float | None]]) -> Mapping[str, float | None]:
    """The reward from the criteria and their verdicts."""
    named = {line.name: value for line, value in met}
    if any(value is None for value in named.values()):
        return {**named, "score": None, "failed": 1.0}
    earned = sum(line.weight * float(value or 0.0) for line, value in met)
    whole = sum(max(0.0, line.weight) for line, _ in met)
    failed = {"failed": 0.0} if any(line.test == "ask" for line, _ in met) else {}
    return {**named, "score": min(1.0, max(0.0, earned / whole)), **failed}
