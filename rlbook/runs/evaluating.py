"""How good a run's agent is at this moment, in an environment of its own; nothing in the agent changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbook.agent import Agent, Metrics
from rlbook.errors import TrainingError
from rlbook.interaction.playing import play
from rlbook.interaction.workers import Workers
from rlbook.runs.exact_evaluation import ExactEvaluation

if TYPE_CHECKING:
    from rlbook.runs.request import Request


def evaluated(
    agent: Agent, request: Request, exact: ExactEvaluation | None, step: int, workers: Workers | None = None, *, effort: int | None = None
) -> Metrics:
    """`eval_return` of an agent that seeks it, and how far its table is from the exact one, where that is known.

    Args:
        agent: as it is after `step` steps.
        request: says where it plays, how many greedy episodes, and from which seed.
        exact: the answer that a table is compared with.
        step: for the message of an error.
        workers: step the environments, where there are some.
        effort: environment steps of training since the evaluation before; one whose episodes might never end takes
            about as many. None: it is not shortened.

    Raises:
        TrainingError: a return or an observation is not finite, or the environment failed.
    """
    found = {} if exact is None else exact.evaluate(agent)
    if not agent.seeks_return or not agent.plays():
        return found
    try:
        result = play(agent, request.recipe.for_evaluation(), request.eval_episodes, request.seed, workers=workers, effort=effort)
    except FloatingPointError as error:
        raise TrainingError(f"an observation of the evaluation at step {step} is not finite: {error}") from None
    except TrainingError as error:
        raise TrainingError(f"{error} (evaluation at step {step})") from None
    cut = {"eval_unfinished": result.unfinished / len(result.returns)} if result.unfinished else {}
    return {"eval_return": result.mean} | cut | found
