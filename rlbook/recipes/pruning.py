"""The pruner of a search: ends a trial early whose evaluations stay below those of half of the
earlier ones at the same point.

Source: the median rule of Golovin et al. 2017, doi:10.1145/3097983.3098043, section 3.2.1, as
Optuna (Akiba et al. 2019, arXiv:1907.10902) has it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlbook.errors import RequestError
from rlbook.runs.progress import recent_return

if TYPE_CHECKING:
    import optuna

    from rlbook.runs.run import Run

STARTUP_TRIALS = 5  # that are never pruned
WARMUP = 25  # per cent of its first run after which a trial may be pruned
LOOK_EVERY_PERCENT = 10  # of a run between two looks at it, where it is not evaluated


def import_optuna() -> Any:
    """The module. Raises RequestError where it is not installed."""
    try:
        import optuna
    except ImportError:
        raise RequestError('tune needs Optuna: pip install "rlbook[tune]"') from None
    return optuna


def median_pruner() -> optuna.pruners.MedianPruner:
    """Optuna's median rule, with this search's numbers."""
    return import_optuna().pruners.MedianPruner(STARTUP_TRIALS, WARMUP)


class PruningCallback:
    """Reports a run's evaluations to its trial, and ends the run if the trial is pruned."""

    def __init__(self, trial: optuna.Trial, scores: Sequence[float], prune: bool) -> None:
        self.trial, self.scores, self.prune = trial, list(scores), prune
        self.before = 100 * len(scores)  # steps of the trial: per cent of a run
        self.last = self.before

    def __call__(self, run: Run) -> None:
        step = self.before + min(math.floor(100 * run.agent.progress), 100)
        found = run.metrics[-1].get("eval_return")
        if run.request.eval_every == 0 and step >= self.last + LOOK_EVERY_PERCENT:
            found = recent_return(run)
        if not self.prune or found is None or step <= self.last or not math.isfinite(found):
            return
        self.last = step
        self.trial.report(statistics.fmean([*self.scores, found]), step)
        if self.trial.should_prune():
            raise import_optuna().TrialPruned
