"""`rlbook verify`: presets retrained, and compared with their recorded results."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlbook.checks import four_digits, whole_number
from rlbook.cli.options import Verify, parse
from rlbook.cli.output import Result, align_columns, note
from rlbook.cli.seeds import facts_of
from rlbook.errors import RequestError
from rlbook.evaluation.verification import (
    VerifiablePreset,
    proofs,
    select_installed,
    select_within,
)
from rlbook.interaction.threads import cores
from rlbook.runs.options import SeedOptions
from rlbook.runs.processes.side_by_side import run_side_by_side

UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
Outcome = dict[str, Any]


def run_verification(words: Sequence[str]) -> tuple[bool, Result, int]:
    """Whether JSON is requested, the table, and the exit code: 1 if a result is not as expected.

    Raises:
        RequestError: a wrong request, or a budget that nothing fits into.
    """
    options = parse(Verify, words, "rlbook verify")
    seed = whole_number("seed", options.seed or 0, 0)
    jobs = SeedOptions(1, options.jobs).jobs or cores()
    known = proofs(options.algorithm, options.env)
    found, missing = select_installed(known)
    for reason in missing:
        note(f"left out: {reason}")
    chosen = select_within(found, seconds_of(options.budget or "10min"), jobs)
    note(
        f"verifying {len(chosen)} of {len(known)} presets, {jobs} at a time, about"
        f" {sum(p.seconds for p in chosen) / jobs:.0f} s"
    )
    with tempfile.TemporaryDirectory() as place:
        outcomes = _train(chosen, seed, jobs, Path(place))
    table = [
        ("algorithm", "environment", "expected", "95 % of runs", "seeds", "found", "seconds", "")
    ]
    for proof, outcome in zip(chosen, outcomes, strict=True):
        low, high = proof.expected.interval
        value, seconds = outcome.get("return"), outcome.get("seconds")
        said = "as expected" if outcome["holds"] else str(outcome.get("error") or "LOWER")
        table.append(
            (
                proof.algorithm,
                proof.env,
                four_digits(proof.expected.value),
                f"{four_digits(low)} to {four_digits(high)}",
                str(proof.expected.seeds),
                "" if value is None else four_digits(value),
                "" if seconds is None else f"{seconds:.1f}",
                said,
            )
        )
    good = sum(bool(outcome["holds"]) for outcome in outcomes)
    summary = f"{good} of {len(chosen)} as expected"
    left = len(found) - len(chosen)
    summary += f"; {left} more would not fit into the budget" if left else ""
    lacking = len(known) - len(found)
    summary += f"; {lacking} need packages that are not installed" if lacking else ""
    facts = {"seed": seed, "presets": outcomes, "left_out": left + lacking}
    text = f"{align_columns(table)}\n\n{summary}"
    return options.json, (facts, text), int(good < len(chosen))


def seconds_of(budget: str) -> float:
    """A time such as 90s, 10min or 1h; a number alone is in seconds. Raises RequestError for
    anything else."""
    parts = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(s|min|h|)", budget.strip())
    if parts is None or float(parts[1]) == 0:
        raise RequestError(f"--budget must be a time such as 90s, 10min or 1h, got {budget!r}")
    return float(parts[1]) * UNITS[parts[2]]


def _train(chosen: Sequence[VerifiablePreset], seed: int, jobs: int, place: Path) -> list[Outcome]:
    """Trains each preset in a separate process; returns the results."""
    folders = [place / str(index) for index in range(len(chosen))]
    commands = [
        ["train", proof.algorithm, proof.env, "--seed", str(seed), "--out", str(folder), "--json"]
        for proof, folder in zip(chosen, folders, strict=True)
    ]
    outcomes: dict[int, Outcome] = {}
    with contextlib.closing(
        run_side_by_side("rlbook.cli.one_seed", commands, min(jobs, len(chosen)))
    ) as ended:
        for item in ended:
            facts = facts_of(item, seed, folders[item.index])
            outcomes[item.index] = outcome = _judge_proof(
                chosen[item.index], facts, folders[item.index]
            )
            said = outcome.get("error") or four_digits(outcome["return"])
            note(
                f"{outcome['algorithm']} on {outcome['env']}: {said} ({len(outcomes)} of"
                f" {len(chosen)})"
            )
    return [outcomes[index] for index in range(len(chosen))]


def _judge_proof(proof: VerifiablePreset, facts: Outcome, folder: Path) -> Outcome:
    import rlbook

    outcome: Outcome = {
        "algorithm": proof.algorithm,
        "env": proof.env,
        "expected": proof.expected.entry(),
        "holds": False,
    }
    if "error" in facts:
        return outcome | {"error": facts["error"]}
    expected = proof.expected
    found = rlbook.evaluate(folder, episodes=expected.episodes, checkpoint=expected.checkpoint)
    error = found.standard_error
    judged = {
        "return": found.mean,
        "standard_error": error,
        "holds": expected.is_consistent(found.mean, error),
    }
    return outcome | judged | {"seconds": facts["seconds"]}
