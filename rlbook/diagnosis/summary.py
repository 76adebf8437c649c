"""A summary of a finished run, in a sentence or two that a beginner can act on."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from rlbook.diagnosis.better_settings import better_settings, solving_threshold, uses_defaults
from rlbook.evaluation.control_optima import control_task
from rlbook.evaluation.optimal_return import (
    CLOSE,
    expected_return,
    optimal_return,
    solving_return,
)
from rlbook.runs.progress import evaluation_cost

if TYPE_CHECKING:
    from rlbook.runs.run import Run

FEW = 10  # episodes from which little can be learned


def summary_sentences(run: Run) -> list[str]:
    """Sentences: why it ended early, how training went, the result of greedy play, and whether
    evaluation took most of the time."""
    cost = evaluation_cost(run, sum(run.seconds.values()))
    found = [_early_end(run), _training(run), _describe_greedy(run), cost]
    return [sentence for sentence in found if sentence]


def _early_end(run: Run) -> str:
    """Why a run ended before its budget was used."""
    wanted, found = run.request.options.stop_at_return, run.evaluations()
    if wanted is None or not found or found[-1] < wanted or run.agent.progress >= 1.0:
        return ""
    return f"ended by --stop-at-return {wanted:g}: the last evaluation returned {found[-1]:.4g}"


def _training(run: Run) -> str:
    """The training episodes: whether any ended, whether any was rewarded, and whether they
    improved."""
    returns = run.episode_returns
    if run.unit != "steps":
        return ""
    if not returns:
        return f"no episode finished in {run.steps:,} steps; increase --steps"
    finished = f"{len(returns):,} episode{'s' if len(returns) > 1 else ''} finished"
    if not any(returns):
        what = "every reward was 0" if _has_rewards_of_one_sign(run) else "every return was 0"
        return f"{finished}, and {what}, so nothing distinguished good actions from bad ones"
    if len(returns) < FEW:
        return f"{finished}, too few to learn much from; increase --steps or --episodes"
    part = max(1, len(returns) // 10)
    early, late = statistics.fmean(returns[:part]), statistics.fmean(returns[-part:])
    if abs(late - early) <= CLOSE * max(1.0, abs(early)):
        return f"{finished}; their return stayed near {late:.2f}"
    return (
        f"{finished}; their return {'rose' if late > early else 'fell'} from {early:.2f} to"
        f" {late:.2f} (first and last tenth)"
    )


def _has_rewards_of_one_sign(run: Run) -> bool:
    """Whether nonzero rewards cannot cancel: in the environment's model they all have the same
    sign."""
    model: Any = run.model
    return model is not None and (
        bool((model.outcomes.reward >= 0).all()) or bool((model.outcomes.reward <= 0).all())
    )


def _describe_greedy(run: Run) -> str:
    """The last evaluation beside the optimal return, if it is known."""
    report = next(
        (report for report in reversed(run.metrics) if report.get("eval_return") is not None), None
    )
    if report is None:
        return ""
    mean, cut = float(report["eval_return"]), float(report.get("eval_unfinished") or 0.0)
    if cut:
        return (
            f"greedy play did not finish: {cut:.0%} of its episodes were cut off, because the "
            f"environment has no time limit{_hint(run)}"
        )
    recipe = run.request.recipe.for_evaluation()
    best, enough = optimal_return(recipe), solving_return(recipe)
    if best is None or enough is None:
        return _shortfall(run, mean)
    expected = expected_return(run.agent, recipe)
    value = mean if expected is None else expected
    told = f"{value:.2f} of {best:.2f}"
    if f"{value:.2f}" != f"{mean:.2f}":
        told += f" on average, {mean:.2f} in these episodes"
    elif value > best + CLOSE * max(1.0, abs(best)):
        told += " on average, and these episodes were lucky"
    if control_task(recipe) is not None:
        told += f" (by dynamic programming; {enough:g} counts as solved)"
    if value >= enough:
        return f"greedy play solves it: {told}"
    return f"greedy play does not solve it: {told}{_hint(run)}"


def _shortfall(run: Run, mean: float) -> str:
    """For an unknown optimum: settings that reach the return at which the environment counts as
    solved."""
    hint, target = _hint(run), solving_threshold(run.request)
    if not hint or target is None or mean >= target:
        return ""
    return f"greedy play does not solve it: {mean:.2f}, and {target:g} counts as solved{hint}"


def _hint(run: Run) -> str:
    """Settings that reach the optimum, for a run with default settings that did not; other settings
    are left to the doctor."""
    better = better_settings(run.request)
    return f"; {better}" if better is not None and uses_defaults(run.request) else ""
