"""Evaluates a run's current agent in a separate environment, without changing the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlbook.agent import Agent, Metrics
from rlbook.errors import TrainingError
from rlbook.interaction.play_episodes import play
from rlbook.interaction.vector_envs.workers import Workers
from rlbook.runs.exact_evaluation import ExactEvaluation

if TYPE_CHECKING:
    from rlbook.interaction.episodes import Episode
    from rlbook.runs.request import Request


# an evaluation on the way takes at most so many times the steps of the training before it,
DEARER = 4
FREE = 1_000  # or so many, and plays
FEWEST = 5  # episodes in any case


def short_evaluation_note(episodes: int) -> str:
    """The note of a run whose evaluations have fewer episodes than recommended."""
    return (
        f"evaluations during training play fewer than {episodes} episodes, because {episodes} "
        f"would take more than {DEARER} times the steps of the training between them; the last "
        f"evaluation plays all {episodes}"
    )


def affordable_episodes(episodes: int, length: float, effort: int) -> int:
    """How many of the `episodes` an evaluation during training plays.

    Args:
        episodes: as many as were asked for, or are usual.
        length: of an episode in training at this time, in environment steps.
        effort: environment steps of training since the evaluation before.
    """
    most = max(DEARER * effort, FREE)
    return episodes if episodes * length <= most else min(episodes, max(FEWEST, int(most / length)))


def typical_length(
    finished: Sequence[Episode], reports: Sequence[Mapping[str, Any]]
) -> float | None:
    """The mean length of the training episodes that ended since the last report (`finished`), or
    else that of the last report with one, in environment steps. None if no episode has ended yet.
    """
    lengths = [length for _, _, length in finished]
    if lengths:
        return sum(lengths) / len(lengths)
    return next(
        (report["length"] for report in reversed(reports) if report.get("length") is not None), None
    )


def evaluation_metrics(
    agent: Agent,
    request: Request,
    exact: ExactEvaluation | None,
    step: int,
    workers: Workers | None = None,
    *,
    effort: int | None = None,
    length: float | None = None,
) -> Metrics:
    """`eval_return` of a control agent, and the error of a value table if the exact values are
    known.

    Args:
        agent: as it is after `step` steps.
        request: says where it plays, how many greedy episodes, and from which seed.
        exact: the answer that a table is compared with.
        step: for the message of an error.
        workers: step the environments, where there are some.
        effort: environment steps of training since the evaluation before; one whose episodes might
            never end takes about as many. None: it is not shortened.
        length: of an episode in training at this time; with it, and an `effort`, an evaluation that
            would take many times the steps of training plays fewer episodes, and says how many
            (`eval_episodes`). None: it plays all.

    Raises:
        TrainingError: a return or an observation is not finite, or the environment failed.
    """
    found = {} if exact is None else exact.evaluate(agent)
    if not agent.seeks_return or not agent.plays():
        return found
    wanted = request.eval_episodes
    episodes = (
        wanted if length is None or effort is None else affordable_episodes(wanted, length, effort)
    )
    try:
        result = play(
            agent,
            request.recipe.for_evaluation(),
            episodes,
            request.seed,
            workers=workers,
            effort=effort,
        )
    except FloatingPointError as error:
        raise TrainingError(
            f"an observation of the evaluation at step {step} is not finite: {error}"
        ) from None
    except TrainingError as error:
        raise TrainingError(f"{error} (evaluation at step {step})") from None
    cut = (
        {"eval_unfinished": result.num_unfinished / len(result.returns)}
        if result.num_unfinished
        else {}
    )
    played = len(result.returns)
    fewer = {"eval_episodes": played} if played < wanted else {}
    return {"eval_return": result.mean} | fewer | cut | found
