"""`rlbook.compare`: compares the results of several runs by interquartile means over seeds, with
intervals.

The interquartile mean leaves out the lowest and the highest quarter of the runs. It is as robust as
a median against one seed that failed or shone, and uses twice as many runs. The probability of
improvement is that of a run of one kind to score above one of another kind in the same environment,
a tie counting half: the Mann-Whitney statistic, whatever the unit of the rewards. The intervals are
scipy's percentile bootstrap over the runs; each kind in each environment is a stratum of its own,
drawn from separately.

Source: Agarwal et al. 2021, arXiv:2108.13264, sections 4.1 to 4.3. Difference: a score at a
quartile's edge counts in part.
"""

from __future__ import annotations

import hashlib
import html
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbook.ascii_signs import printable
from rlbook.checks import check_arguments, four_digits
from rlbook.errors import RequestError
from rlbook.runs.storage.folder import run_folders
from rlbook.runs.storage.log import read_metrics
from rlbook.runs.storage.plain_yaml import config_of, parse_yaml

if TYPE_CHECKING:
    from rlbook.runs.run import Run

RESAMPLES = 2_000
LAST = 10  # reports whose training returns stand in where a run was not evaluated
BESIDE = ("seed", "digests", "earlier_budgets")  # what runs of one group may differ in
NAMED = ("algorithm", "env", "env_kwargs")  # what a row names in any case


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed."""

    algorithm: str
    env: str
    folders: tuple[str, ...]
    scores: np.ndarray
    """[R]: each run's last `eval_return`, or the mean return of its last reports, in reward
    units."""
    interquartile_mean: float
    confidence_interval: tuple[float, float]
    """95 % interval of the interquartile mean; a point where there is one run."""
    world: str = ""
    """The environment with its arguments, as text."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Hyper-parameters and the options of the run, such as its budget."""


class ComparisonTable(list[Row]):
    """What `compare` returns: one row for each group of runs, shown as a table."""

    def labels(self) -> list[str]:
        """The labels that distinguish the rows; see `labels`."""
        return labels([(row.world, row.algorithm, row.settings) for row in self])

    def table(self, *, mean: bool = False) -> list[list[str]]:
        """The headings and then the rows, cell by cell; with the plain mean if requested."""
        head = ["algorithm", "environment", "runs", "interquartile mean", "95 % interval"]
        cells = [
            [
                label,
                row.world,
                str(len(row.folders)),
                four_digits(row.interquartile_mean),
                " to ".join(map(four_digits, row.confidence_interval))
                if len(row.folders) > 1
                else "–",
            ]
            for row, label in zip(self, self.labels(), strict=True)
        ]
        if mean:
            head.insert(3, "mean")
            for row, line in zip(self, cells, strict=True):
                line.insert(3, four_digits(float(row.scores.mean())))
        return [head, *cells]

    def __repr__(self) -> str:
        table = [[printable(cell) for cell in line] for line in self.table()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(map(str.ljust, line, widths)).rstrip()  # as `rlbook compare` has it
            for line in table
        )

    def _repr_html_(self) -> str:
        head, *body = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
            for tag, line in zip(["th", *["td"] * len(self)], self.table(), strict=True)
        )
        return f"<table><tr>{'</tr><tr>'.join([head, *body])}</tr></table>"


@dataclass(frozen=True)
class ImprovementChance:
    """The probability that one group of runs scores higher than another."""

    better: str
    """The label of the supposedly better group, as in `labels`."""
    than: str
    worlds: tuple[str, ...]
    """The environments with runs of both, equally weighted."""
    probability: float
    """0.5 if there is no difference."""
    confidence_interval: tuple[float, float]
    """95 %, stratified over environments and groups; a point if each has one run."""


@check_arguments('rlbook.compare(["runs/a", "runs/b"])')
def compare(
    runs: Run | str | Path | Iterable[Run | str | Path], *, seed: int = 0
) -> ComparisonTable:
    """A table with one row for each group of runs that differ only in their seed, in the order of
    the runs.

    A run that is named twice counts once. So does one that repeats another with the same settings
    and seed to the same log, since two copies say no more than one; a warning names it.

    Args:
        runs: runs or run folders; a folder of several seeds, as `rlbook train --seeds` makes it,
            stands for those in it.
        seed: of the bootstrap; the same seed gives the same intervals.

    Raises:
        RequestError: no run, a folder that is not a run's, or a run in which no episode was played.
    """
    rows, repeats = rows_and_repeats(runs, seed=seed)
    for repeat in repeats:
        warnings.warn(repeat, stacklevel=3)  # the caller's line
    return ComparisonTable(rows)


def rows_and_repeats(
    runs: Run | str | Path | Iterable[Run | str | Path], *, seed: int = 0
) -> tuple[list[Row], list[str]]:
    """The result of `compare`, and a sentence for each run that repeats another."""
    if isinstance(runs, Mapping):
        raise RequestError("compare takes a list of runs and their folders, got a dict")
    named = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    chosen: dict[object, Run | Path] = {}
    for run in named:
        if not isinstance(run, str | Path) and not hasattr(run, "folder"):
            raise RequestError(f"compare takes runs and their folders, got a {type(run).__name__}")
        for place in run_folders(Path(run)) if isinstance(run, str | Path) else [run]:
            folder = place if isinstance(place, Path) else place.folder
            chosen.setdefault(id(place) if folder is None else folder.resolve(), place)
    if not chosen:
        raise RequestError("compare needs the folder of a run, or several")
    groups: dict[str, list[tuple[dict[str, Any], str, float]]] = {}
    seen: dict[tuple[object, ...], str] = {}
    repeats: list[str] = []
    for run in chosen.values():
        config, reports = _log_of(run)
        kind = repr({key: value for key, value in config.items() if key not in BESIDE})
        where = str(run if isinstance(run, Path) else run.folder or run)
        first = seen.setdefault((kind, config.get("seed"), repr(reports)), where)
        if first is not where:
            repeats.append(
                f"{where} repeats {first}, with the same settings, seed and log; it counts once"
            )
            continue
        groups.setdefault(kind, []).append((config, where, _score(where, reports)))
    return [_row(group, seed) for group in groups.values()], repeats


def _log_of(run: Run | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run's request and its reports."""
    if not isinstance(run, Path):
        return parse_yaml(run.request.as_yaml()), run.metrics
    try:
        return config_of(run), read_metrics(run)
    except RequestError:  # there is no run
        raise
    except ValueError as error:
        raise RequestError(f"the log in {run} is damaged: {error}") from None


def improvements(rows: Sequence[Row], *, seed: int = 0) -> list[ImprovementChance]:
    """For each pair of groups with a common environment, the probability that the first scores
    higher."""
    kinds: dict[str, dict[str, np.ndarray]] = {}
    for row, label in zip(
        rows, labels([(row.world, row.algorithm, row.settings) for row in rows]), strict=True
    ):
        kinds.setdefault(label, {})[row.world] = row.scores
    found = []
    for (one, first), (other, second) in combinations(kinds.items(), 2):
        if worlds := tuple(world for world in first if world in second):
            pairs = [(first[world], second[world]) for world in worlds]
            found.append(
                ImprovementChance(one, other, worlds, *probability_of_improvement(pairs, seed=seed))
            )
    return found


def labels(kinds: Sequence[tuple[str, str, Mapping[str, object]]]) -> list[str]:
    """A label for each (environment, algorithm, settings): the algorithm, and the settings in which
    it differs from most rows of the environment; in full where two values begin alike."""
    found = []
    for world, algorithm, settings in kinds:
        rivals = [other for place, name, other in kinds if (place, name) == (world, algorithm)]
        apart = [
            name
            for name in settings
            if 2 * sum(rival.get(name) != settings[name] for rival in rivals) >= len(rivals)
        ]
        values = (
            _value_text(settings[name], [rival[name] for rival in rivals if name in rival])
            for name in apart
        )
        pairs = zip(apart, values, strict=True)
        found.append(", ".join([algorithm, *(f"{name} {value}" for name, value in pairs)]))
    return found


def _value_text(value: object, others: Sequence[object]) -> str:
    """A value as text, shortened unless another one would then read the same."""
    short = shorten_value(value)
    same = any(other != value and shorten_value(other) == short for other in others)
    return " ".join(str(value).split()) if same else short


def shorten_value(value: object) -> str:
    """A value as text of at most 24 characters; 1e9 in place of 1000000000.0."""
    text = " ".join(str(value).split())
    if isinstance(value, float) and abs(value) >= 1e6 and float(f"{value:g}") == value:
        text = f"{value:g}".replace("e+0", "e").replace("e+", "e")
    return text if len(text) <= 24 else text[:23] + "…"


def probability_of_improvement(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], *, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """P(X > Y) + ½ P(X = Y), averaged over environments, with its 95 % interval.

    Args:
        pairs: for each environment the scores [R] of X and [R'] of Y.
        seed: of the bootstrap.
    """
    from scipy.stats import mannwhitneyu

    def statistic(*samples: np.ndarray, axis: int) -> np.ndarray:
        sides = zip(samples[::2], samples[1::2], strict=True)
        wins = [
            mannwhitneyu(x, y, axis=axis, method="asymptotic").statistic
            / (x.shape[axis] * y.shape[axis])
            for x, y in sides
        ]
        return np.mean(wins, axis=0)

    # the p-value of equal scores, which nobody asked for
    with np.errstate(invalid="ignore", divide="ignore"):
        samples = [scores for pair in pairs for scores in pair]
        return float(statistic(*samples, axis=-1)), _interval(samples, statistic, seed)


def _interval(
    samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], seed: int
) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of `statistic(*samples, axis)`, resampling each sample
    [R] independently."""
    from scipy.stats import bootstrap

    if max(map(len, samples)) == 1:
        point = float(statistic(*samples, axis=-1))
        return point, point
    # scipy wants two of each; two alike are drawn as one is
    single = [len(sample) == 1 for sample in samples]
    samples = [
        np.repeat(sample, 2) if alone else sample
        for sample, alone in zip(samples, single, strict=True)
    ]
    found = bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="percentile",
        axis=-1,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def interquartile_mean(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of the middle half of the scores [..., R] along the last axis; scores at its
    boundaries are weighted fractionally.

    Of n scores n/4 are left out on each side; where that is not an integer, a score counts by the
    part of it that is left.
    """
    assert axis in (-1, scores.ndim - 1)
    ordered, runs = np.sort(scores, axis=-1), scores.shape[-1]
    edges = np.clip(np.arange(runs + 1), runs / 4, 3 * runs / 4)
    return ordered @ np.diff(edges) / (runs / 2)


def mean_interval(scores: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of scores [R]."""
    return _interval([np.array(scores, dtype=float)], np.mean, 0)


def _row(group: list[tuple[dict[str, Any], str, float]], seed: int) -> Row:
    config, scores = group[0][0], np.array([score for *_, score in group])
    env, interval = (
        env_name(config),
        _interval([scores], interquartile_mean, seed),
    )
    folders, mean = tuple(folder for _, folder, _ in group), float(interquartile_mean(scores))
    return Row(
        str(config["algorithm"]),
        env,
        folders,
        scores,
        mean,
        interval,
        named_world(env, config.get("env_kwargs") or {}),
        settings_of(config),
    )


def env_name(config: Mapping[str, Any]) -> str:
    """The name of a run's environment, from its config."""
    return str(config["env"] or "own environment").removeprefix("rlbook/")


def settings_of(config: Mapping[str, Any]) -> dict[str, object]:
    """What may distinguish two runs of an algorithm in an environment besides their seed: the
    hyper-parameters and the options of the run, such as its budget."""
    options = {name: value for name, value in config.items() if name not in (*BESIDE, *NAMED)}
    return options | (options.pop("hyperparameters", None) or {})


def named_world(env: str, arguments: Mapping[str, object]) -> str:
    """An environment with its arguments, as text that no other one has: of a value that is cut six
    digits of its sha256 stand at the end."""

    def text(value: object) -> str:
        short = shorten_value(value)
        if len(short) < 24 or short[-1] != "…":
            return short
        return f"{short[:17]}…{hashlib.sha256(str(value).encode()).hexdigest()[:6]}"

    named = ", ".join(f"{name}={text(value)}" for name, value in arguments.items())
    return f"{env} ({named})" if named else env


def _score(name: str, reports: Sequence[Mapping[str, Any]]) -> float:
    score = final_return(reports)
    if score is None:
        raise RequestError(f"{name} has nothing to compare: no episode has finished")
    return score


def final_return(reports: Sequence[Mapping[str, Any]]) -> float | None:
    """A run's final result: its last `eval_return`, or the mean return of its last reports; None if
    no episode has finished."""
    evaluated = [
        report["eval_return"] for report in reports if report.get("eval_return") is not None
    ]
    if evaluated:
        return float(evaluated[-1])
    played = [report["return"] for report in reports if report.get("return") is not None]
    return float(np.mean(played[-LAST:])) if played else None
