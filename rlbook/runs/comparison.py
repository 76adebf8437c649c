"""`rlbook.compare`: what several runs came to, side by side: interquartile means over seeds, with intervals.

The interquartile mean leaves out the lowest and the highest quarter of the runs. It is as robust as a median against one seed
that failed or shone, and uses twice as many runs. The interval is a percentile bootstrap over the runs.

Source: Agarwal et al. 2021, arXiv:2108.13264, sections 4.2 and 4.3. With one environment there are no strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlbook.errors import RequestError
from rlbook.runs.folder import read_config, run_folders
from rlbook.runs.log import read_metrics
from rlbook.runs.plain_yaml import parse_yaml

RESAMPLES = 2_000
LAST = 10                                    # reports whose training returns stand in where a run was not evaluated
BESIDE = ("seed", "digests")                 # what runs of one group may differ in


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed."""

    algorithm: str
    env: str
    folders: tuple[str, ...]
    scores: np.ndarray
    """[R]: each run's last `eval_return`, or the mean return of its last reports, in reward units."""
    interquartile_mean: float
    confidence_interval: tuple[float, float]
    """95 % interval of the interquartile mean; a point where there is one run."""


def compare(folders: str | Path | Sequence[str | Path], *, seed: int = 0) -> list[Row]:
    """A row for each group of runs that differ only in their seed, in the order of the folders.

    Args:
        folders: run folders; a folder of several seeds, as `rlbook train --seeds` makes it, stands for those in it.
        seed: of the bootstrap; the same seed gives the same intervals.

    Raises:
        RequestError: no folder, a folder that is no run's, or a run in which no episode was played.
    """
    named = [folders] if isinstance(folders, str | Path) else list(folders)
    chosen = [run for folder in named for run in run_folders(Path(folder))]
    if not chosen:
        raise RequestError("compare needs the folder of a run, or several")
    groups: dict[str, list[tuple[str, str, str, float]]] = {}
    for folder in dict.fromkeys(map(str, chosen)):
        config = _config(Path(folder))
        kind = repr({name: value for name, value in config.items() if name not in BESIDE})
        env = str(config["env"]).removeprefix("rlbook/")
        groups.setdefault(kind, []).append((str(config["algorithm"]), env, folder, _score(Path(folder))))
    return [_row(group, seed) for group in groups.values()]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the scores [..., R] along their last axis; the scores at its edges count in part.

    Of n scores n/4 are left out on each side; where that is no whole number, a score counts by the part of it that is left.
    """
    ordered, runs = np.sort(scores, axis=-1), scores.shape[-1]
    edges = np.clip(np.arange(runs + 1), runs / 4, 3 * runs / 4)
    return ordered @ np.diff(edges) / (runs / 2)


def _row(group: list[tuple[str, str, str, float]], seed: int) -> Row:
    scores = np.array([score for *_, score in group])
    drawn = np.random.default_rng(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    low, high = np.quantile(interquartile_mean(scores[drawn]), [0.025, 0.975])
    folders = tuple(folder for _, _, folder, _ in group)
    return Row(group[0][0], group[0][1], folders, scores, float(interquartile_mean(scores)), (float(low), float(high)))


def _config(folder: Path) -> dict[str, object]:
    text, _ = read_config(folder)
    try:
        config = parse_yaml(text)
    except ValueError as error:
        raise RequestError(f"{folder}/config.yaml cannot be used: {error}") from None
    if not isinstance(config, dict) or not {"algorithm", "env"} <= set(config):
        raise RequestError(f"{folder}/config.yaml must hold at least 'algorithm' and 'env'")
    return config


def _score(folder: Path) -> float:
    try:
        reports = read_metrics(folder)
    except ValueError as error:
        raise RequestError(f"the log in {folder} is damaged: {error}") from None
    evaluated = [report["eval_return"] for report in reports if report.get("eval_return") is not None]
    if evaluated:
        return float(evaluated[-1])
    played = [report["return"] for report in reports if report.get("return") is not None]
    if not played:
        raise RequestError(f"{folder} has nothing to compare: no episode was played")
    return float(np.mean(played[-LAST:]))
