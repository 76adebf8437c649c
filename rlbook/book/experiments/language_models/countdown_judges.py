"""Judges of steps on Countdown: which of 16 expressions each selects, and what a policy trained on
a judge's reward generates.

Everything is as in `process_judges`, but for the problem. A text of `Countdown-v0` has a step for
each character, and the exact label says whether the target can still be reached. A third judge has
learned labels by rollouts: the share of four continuations of each step that come to the target.

    found = run(seeds=3)
    found.chosen["rollouts, min"].right     # [R, P], of the expression that was taken of 16

Source: Lightman et al. 2023, arXiv:2305.20050, section 3 (both judges, best of n); Wang et al. 2023
(Math-Shepherd), arXiv:2312.08935, section 3.3 (labels by rollouts). Task and numbers are ours.
"""

from __future__ import annotations

from functools import partial

from rlbook.book.experiments.language_models import process_judges
from rlbook.book.experiments.language_models.process_judges import (
    JUDGES,
    Problem,
    draw,
    measurements,
)

__all__ = ["COUNTDOWN", "draw", "measurements", "run"]

COUNTDOWN = Problem(
    "Countdown-v0", {}, 400, JUDGES | {"rollouts, min": ("rollouts", "min")}, continuations=4
)
run = partial(process_judges.run, problem=COUNTDOWN)
"""See `process_judges.run`."""
