"""The expected results of presets, and checks that they can be reproduced: `rlbook verify`.

A preset's `expected` was measured over several seeds (`docs/measure.py` writes it). One more run,
of whatever seed on whatever machine, should fall into its prediction interval; a run that does
better than that does not fail. Where all seeds agreed it is a point. The run that is judged has few
episodes too, so it fails only where it is lower by more than its own evaluation can err.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlbook.checks import did_you_mean
from rlbook.envs.extras import missing_package
from rlbook.errors import RequestError
from rlbook.registry import ALGORITHMS, EXPECTED, agent_class, name_of, presets

ONE_SIDED = 1.645  # standard errors, below which a normal value falls by chance with 5 %
STARTING = 4.0  # seconds that a process takes before and after its training


@dataclass(frozen=True)
class ExpectedResult:
    """A preset's expected result: the mean greedy return of a run, over seeds."""

    value: float  # the mean over seeds, in reward units
    interval: tuple[float, float]  # 95 % of further runs fall into it
    seeds: int  # how many it was measured with
    episodes: int  # greedy episodes of each
    seconds: float  # of training, the median, on two cores
    checkpoint: str | None = None  # "best", where that is what was judged

    @classmethod
    def from_entry(cls, entry: object, where: str) -> ExpectedResult:
        """Parses an entry of a preset. Raises RequestError with one sentence if it is invalid."""
        names = [item.name for item in fields(cls)]
        if not isinstance(entry, dict):
            raise RequestError(
                f"{where}: expected must hold {', '.join(names)}, got {entry!r}"[:300]
            )
        for name in entry:
            if name not in names:
                raise RequestError(
                    f"{where}: expected has an unknown entry {name!r}{did_you_mean(name, names)}"
                )
        missing = [name for name in names[:-1] if name not in entry]
        if missing:
            raise RequestError(f"{where}: expected lacks {missing[0]!r}")
        return cls(**{**entry, "interval": tuple(entry["interval"])})

    def is_consistent(self, value: float, error: float = 0.0) -> bool:
        """Whether a run with this mean and this standard error of its evaluation is consistent with
        the expected result (one-sided)."""
        low = self.interval[0]
        return value + ONE_SIDED * error >= low - 1e-4 * max(1.0, abs(low))

    def entry(self) -> dict[str, Any]:
        """The entry in the format of the file."""
        held = {item.name: getattr(self, item.name) for item in fields(self)} | {
            "interval": list(self.interval)
        }
        return {name: value for name, value in held.items() if value is not None}


@dataclass(frozen=True)
class VerifiablePreset:
    """A preset whose result can be verified."""

    algorithm: str
    env: str
    expected: ExpectedResult

    @property
    def seconds(self) -> float:
        """Its approximate duration in seconds."""
        return self.expected.seconds + STARTING


def prediction_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % prediction interval for one further value of a normal sample: mean ± t s √(1 +
    1/n)."""
    from scipy.stats import t

    mean, spread = statistics.fmean(values), statistics.stdev(values)
    half = float(t.ppf(0.975, len(values) - 1)) * spread * (1 + 1 / len(values)) ** 0.5
    return mean - half, mean + half


def proofs(algorithm: str | None = None, env: str | None = None) -> list[VerifiablePreset]:
    """All presets that state an expected result, or those of one algorithm or one environment.

    Raises:
        RequestError: an unknown algorithm, or none such.
    """
    names = list(ALGORITHMS) if algorithm is None else [name_of(agent_class(algorithm))]
    found = [
        VerifiablePreset(
            name,
            world,
            ExpectedResult.from_entry(settings[EXPECTED], f"the preset of {name} on {world}"),
        )
        for name in names
        for world, settings in presets(agent_class(name)).items()
        if EXPECTED in settings
    ]
    short = None if env is None else env.removeprefix("rlbook/")
    chosen = [proof for proof in found if short in (None, proof.env)]
    if not chosen:
        known = [proof.env for proof in found]
        where = f" on {short!r} (on: {', '.join(known)})" if known else ""
        raise RequestError(
            f"{names[0]} has no measured result{where}, so there is nothing to verify"
        )
    return chosen


def select_installed(
    proofs: Sequence[VerifiablePreset],
) -> tuple[list[VerifiablePreset], list[str]]:
    """The proofs whose environments can be made here, and why the others cannot, each reason once.

    Raises:
        RequestError: none can; the extra is named.
    """
    reasons = {proof.env: missing_package(proof.env) for proof in proofs}
    missing = [reason for reason in reasons.values() if reason is not None]
    chosen = [proof for proof in proofs if reasons[proof.env] is None]
    if not chosen:
        raise RequestError(missing[0])
    return chosen, list(dict.fromkeys(missing))


def select_within(
    proofs: Sequence[VerifiablePreset], seconds: float, jobs: int
) -> list[VerifiablePreset]:
    """The largest number of proofs that fit into the time, the shortest first.

    Raises:
        RequestError: none does.
    """
    chosen: list[VerifiablePreset] = []
    for proof in sorted(proofs, key=lambda proof: proof.seconds):
        if (
            sum(item.seconds for item in chosen) + proof.seconds <= seconds * jobs
            and proof.seconds <= seconds
        ):
            chosen.append(proof)
    if not chosen:
        shortest = min(proofs, key=lambda proof: proof.seconds)
        what = f"{shortest.algorithm} on {shortest.env}"
        raise RequestError(
            f"budget must be at least {shortest.seconds:.0f} s, the time that {what} takes, got "
            f"{seconds:g} s"
        )
    return chosen
