"""The model for a planner: the environment's own, or one estimated from steps taken in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbook.envs.tabular.enumeration import NoModel
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.registry import agent_class, model_of
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from rlbook.runs.request import Request

PLANS = 20
"""The number of times that the sampling agent plans: it samples at random first, and then
increasingly follows its plans."""
ROUGHLY = 1e-2
"""The tolerance of those plans, in reward units. The last one, in the finished model, is the
planner's own."""
PATIENCE = 1_000
"""The largest number of sweeps of one of those plans."""


def planning_model(request: Request) -> tuple[TabularMDP, tuple[str, ...]]:
    """The model for a planner's run, and a note on where it comes from.

    Raises:
        ValueError: there is a model and it cannot be planned in, for instance because it is too
            large.
        TrainingError: sampling met a NaN or an infinity, or the environment failed.
    """
    try:
        return model_of(request.recipe.make()), ()
    except NoModel:
        steps = request.config.sampled_steps
        return sampled_model(request, steps), (
            (
                f"model: the environment has none, so one is estimated from {steps:,} sampled "
                "steps (certainty_equivalence)"
            ),
        )


def sampled_model(request: Request, steps: int) -> TabularMDP:
    """The certainty-equivalence model after `steps` environment steps; an untried pair terminates
    with reward 0.

    The same request gives the same model, so that a run can be resumed without keeping it.
    """
    planner, sampler = agent_class(request.algorithm), agent_class("certainty_equivalence")
    raw = request.recipe.make()
    env = AdaptedEnv(raw, adapt_to(planner, raw, request.config))
    config = sampler.Config(
        gamma=request.config.gamma,
        plan_every=-(-steps // PLANS),
        tolerance=ROUGHLY,
        max_sweeps=PATIENCE,
    )
    agent = sampler(env, config, request.seed)
    for _ in loop(
        agent, SingleInteraction(env, rng_for(request.seed, "environment")), Budget(steps, None)
    ):
        pass
    return agent.counted_model()  # type: ignore[attr-defined]
