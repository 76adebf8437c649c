"""The agent-environment loop: the agent acts, the environment steps, the agent learns. One
implementation serves training, evaluation, rendering and recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from rlbook.agent import Agent, Metrics, Step, Totals, takes_action_mask
from rlbook.interaction.action_masks import UNUSED
from rlbook.interaction.budget import Budget
from rlbook.interaction.guards import totals

if TYPE_CHECKING:
    from rlbook.interaction.single import SingleInteraction
    from rlbook.interaction.vector_envs.vector import VectorInteraction

T = TypeVar("T")
# one step of so many is timed; prime, so that it falls on every step of a rollout in turn
SAMPLED = 17


@runtime_checkable
class MultiStepInteraction(Protocol):
    """An interaction that can run many steps in one call."""

    obs: object
    """The current observation; None before the first reset."""

    def start(self) -> None: ...

    def takes_over(self, agent: Agent) -> bool:
        """Whether running in chunks is equivalent to the agent's own `act` and `learn`."""
        ...

    def advance(self, agent: Agent, budget: Budget) -> Totals: ...


class LoopClock:
    """Estimates the time spent acting and stepping, in seconds, by timing one step in every
    `SAMPLED`.

    Reading a clock at every step would take a share of a short one.
    """

    def __init__(self) -> None:
        self.acting = self.stepping = 0.0

    def step(
        self, interaction: SingleInteraction | VectorInteraction, choose: Callable[[], Any]
    ) -> Step:
        """One step, timed."""
        start = time.perf_counter()
        action = choose()
        acted = time.perf_counter()
        step = interaction.step(action)
        self.stepping += SAMPLED * (time.perf_counter() - acted)
        self.acting += SAMPLED * (acted - start)
        return step


def do_nothing(step: Step | None = None) -> None:
    """A no-op: replaces `learn` and `begin_episode` for an agent that only acts."""


def act_step_reset(
    interaction: SingleInteraction | VectorInteraction,
    act: Callable[..., Any],
    learn: Callable[[Step], T],
    begin: Callable[[], None] = do_nothing,
    clock: LoopClock | None = None,
) -> Iterator[T]:
    """Acts, steps, learns and resets until there is no next observation.

    Args:
        interaction: one environment or many; it starts here where it has not.
        act: observation → action. Where the environment shows action masks, it is given the present
            one as `action_mask`, if it takes that.
        learn: what is done with each step, before the environment is reset.
        begin: called when every environment starts a new episode.
        clock: is told how long acting and stepping take.

    Yields:
        What `learn` returned. Between two items everything may be saved.
    """
    if interaction.obs is None:
        interaction.start()
        begin()
    takes_mask = takes_action_mask(act)

    def choose() -> Any:
        if interaction.action_mask is None:
            return act(interaction.obs)
        if takes_mask:
            return act(interaction.obs, action_mask=interaction.action_mask)
        if UNUSED not in interaction.notes:
            interaction.notes.append(UNUSED)
        return act(interaction.obs)

    timed = 0 if clock is None else SAMPLED
    left = timed
    while interaction.obs is not None:
        left -= 1
        if left == 0 and clock is not None:
            left, step = timed, clock.step(interaction, choose)
        else:
            step = interaction.step(choose())
        learned = learn(step)
        if interaction.reset_finished():
            begin()
        yield learned


def loop(
    agent: Agent,
    interaction: SingleInteraction | VectorInteraction,
    budget: Budget,
    *,
    in_chunks: bool = True,
    clock: LoopClock | None = None,
) -> Iterator[Metrics | Totals]:
    """Acts and learns until the budget is used up, and yields once per (vector) step. State may be
    saved between two items.

    The same loop serves every algorithm: planners have planned before it, TD learns at each step,
    PPO when its rollout is full. For an agent with a table the interaction may take many steps at
    once (`rlbook.fast.tabular.table_interaction`), unless `in_chunks` is false.
    """
    agent.progress = budget.progress(interaction.steps, interaction.episodes)
    if agent.progress >= 1.0:
        return
    if (
        in_chunks
        and isinstance(interaction, MultiStepInteraction)
        and interaction.takes_over(agent)
    ):
        yield from _run_in_chunks(agent, interaction, budget)
        return

    held: Totals = {}  # the environment's numbers of a round that goes on; see `cut_short`
    rest = interaction.rest_of_round(whole_rounds=not agent.can_checkpoint)

    def learn(step: Step) -> Metrics | Totals:
        nonlocal rest
        metrics = agent.learn(step)
        if step.info is not None:
            _add_totals(held, totals(step.info, logged_rows(step)))
        if not (held or rest) or (interaction.rollout == "episodes" and not agent.can_checkpoint):
            return metrics
        found = {} if rest else dict(held)
        held.clear()
        rest = 0
        return {**metrics, **found}  # type: ignore[dict-item]

    interaction.budget = budget
    for metrics in act_step_reset(interaction, agent.act, learn, agent.begin, clock):
        agent.progress = budget.progress(interaction.steps, interaction.episodes)
        yield metrics
        if agent.progress >= 1.0:
            return


def _add_totals(held: Totals, found: Totals) -> None:
    for name, (total, count) in found.items():
        before = held.get(name, (0.0, 0))
        held[name] = (before[0] + total, before[1] + count)


def logged_rows(step: Step) -> Any:
    """The rows whose numbers in `step.info` count: all of them when a whole round was scored."""
    return step.valid if step.final_reward is None else True


def _run_in_chunks(
    agent: Agent, interaction: MultiStepInteraction, budget: Budget
) -> Iterator[Totals]:
    if interaction.obs is None:
        interaction.start()
        agent.begin()
    while agent.progress < 1.0:
        yield interaction.advance(agent, budget)
