"""One sweep of a planner, faster: on compiled loops where numba is installed, on the model's own arrays where not.

Stands in for `_sweep` of `rlbook.algorithms.planning.value_iteration` and its sisters. A synchronous sweep and one in place give the
same bits as the plain form. With `sweep = "automatic"` value iteration chooses the order of the work, and stops by the same bounds:

    every 4 sweeps, with numba:  if the interval around V* has shrunk no faster than γ alone makes it,
        V ← its lower end, and from there on
            V(s) ← max_a Q(s, a), π(s) ← argmax_a Q(s, a), in place                           one sweep over all actions
            up to 16 times: V(s) ← Q(s, π(s)), in place                                       sweeps over one action a state
        states last to first where the best actions lead to later states, first to last where they lead to earlier ones

So each state is updated after those it leads to, and knowledge crosses a map in one sweep.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlbook.algorithms.planning.modified_policy_iteration import ModifiedPolicyIteration
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs.mdp import TabularMDP
from rlbook.fast.sweeps import CompiledSweeps, Extremes, Stop, Sweeps, sweeps_of

LOOK = 4
"""Sweeps from one look at the interval to the next."""
AHEAD, SMALL = 8, 4_096
"""Sweeps made in one go with numba where a model has no more states than this; each is then reported as if it came alone."""
AT_ONCE = 32
"""The same where nobody looks between them."""
SLOW = 0.995
"""The interval shrinks slowly where each sweep leaves more of it than this times γ."""
EVALUATIONS, SETTLED = 16, 0.05
"""Sweeps in place over the best actions alone, at most, and the part of the last change that none of them may exceed to be enough."""


class Work:
    """What is kept between two sweeps of one agent."""

    def __init__(self, sweeps: Sweeps) -> None:
        self.sweeps = sweeps
        self.spare = np.empty(len(sweeps.rewards))                 # [S] to sweep into
        self.ahead: list[tuple[Extremes, np.ndarray]] = []         # sweeps made but not yet taken in, the next one last


def work_of(agent: TablePlanner, rows: Any, rewards: np.ndarray, can_end: bool) -> Work:
    """The agent's own, made at its first sweep."""
    if agent._work is None:
        agent._work = Work(sweeps_of(rows, rewards, agent.config.gamma, can_end=can_end))
    return agent._work


def value_iteration_sweep(agent: ValueIteration, model: TabularMDP) -> None:
    """See `ValueIteration._sweep`."""
    if type(agent) is not ValueIteration:
        ValueIteration._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    work = work_of(agent, model.continues_by_state, model.rewards, model.can_end)
    sweeps, automatic = work.sweeps, agent.config.sweep == "automatic" and isinstance(work.sweeps, CompiledSweeps)
    if not agent._bound.in_place:
        low, high = _next(agent, work)
        agent._take_in(low, high)
        if automatic and not agent._finished:
            _look(agent, low, high)
    elif automatic:
        _improve_in_place(agent, sweeps)
    else:
        agent._take_in(*sweeps.in_place(agent._values))


def _next(agent: ValueIteration, work: Work) -> Extremes:
    """V after one more synchronous sweep, which may have been made already."""
    sweeps = work.sweeps
    if not work.ahead and isinstance(sweeps, CompiledSweeps) and not sweeps.is_shared and agent.config.gamma < 1:
        count = AHEAD if agent._reported else AT_ONCE
        if agent._num_states <= SMALL or not agent._reported:
            _make_ahead(agent, work, sweeps, count)
    if work.ahead:
        extremes, agent._values = work.ahead.pop()
        return extremes
    extremes = sweeps.optimal(agent._values, work.spare)
    agent._values, work.spare = work.spare, agent._values
    return extremes


def _make_ahead(agent: ValueIteration, work: Work, sweeps: CompiledSweeps, count: int) -> None:
    """Makes the next sweeps, up to one that ends the iteration or changes its ways."""
    config, done, gamma = agent.config, agent._sweeps_done, agent.config.gamma
    shrinking = (SLOW * gamma) ** LOOK if config.sweep == "automatic" and gamma > 0 else math.inf
    stop = Stop(gamma / (1 - gamma), agent.tolerance, agent._bound.travelled, done, LOOK, agent._width, shrinking)
    count = min(count, config.max_sweeps - done)
    work.ahead = sweeps.optimal_many(agent._values, count, count if agent._reported else 1, stop)[::-1]


def _look(agent: ValueIteration, low: float, high: float) -> None:
    """Changes to sweeps in place where the interval shrinks no faster than γ makes it. Then V starts from its lower end."""
    gamma = agent.config.gamma
    if agent._sweeps_done % LOOK != LOOK - 1 or gamma in (0, 1):
        return
    before, agent._width = agent._width, high - low
    if math.isfinite(before) and agent._width > before * (SLOW * gamma) ** LOOK:
        agent._bound.in_place = True
        agent._values += gamma / (1 - gamma) * low


def _improve_in_place(agent: ValueIteration, sweeps: Any) -> None:
    """A sweep over all actions, and some over the best ones."""
    backwards = agent._backwards
    (low, high), onwards = sweeps.improve_in_place(agent._values, backwards=backwards)
    agent._take_in(low, high)
    agent._backwards = onwards > 0 if onwards else not backwards
    if not agent._finished:
        sweeps.evaluate_in_place(agent._values, EVALUATIONS, SETTLED * max(-low, high), backwards=agent._backwards)


def modified_policy_iteration_sweep(agent: ModifiedPolicyIteration, model: TabularMDP) -> None:
    """See `ModifiedPolicyIteration._sweep`."""
    if type(agent) is not ModifiedPolicyIteration:
        ModifiedPolicyIteration._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    work, m = work_of(agent, model.continues_by_state, model.rewards, model.can_end), agent.config.evaluation_sweeps
    before, sweeps = agent._values, work.sweeps
    extremes = sweeps.optimal(before, work.spare)
    agent._values, work.spare = work.spare, before
    agent._take_in(*extremes, apart=m + 1)
    if agent._finished:
        return
    policy = sweeps.policy(before)
    agent._values, work.spare = sweeps.follow(policy, agent._values, before, m)
    agent._rest(model)


def policy_evaluation_sweep(agent: PolicyEvaluation, model: TabularMDP) -> None:
    """See `PolicyEvaluation._sweep`. A policy makes a chain of the model: one action a state, so that the best is the only one."""
    if type(agent) is not PolicyEvaluation or agent.config.method == "linear":
        PolicyEvaluation._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    chain, rewards = agent._chain_of(model)
    work = work_of(agent, chain, rewards[:, None], model.can_end)
    if agent._bound.in_place:
        agent._take_in(*work.sweeps.in_place(agent._values))
        return
    extremes = work.sweeps.optimal(agent._values, work.spare)
    agent._values, work.spare = work.spare, agent._values
    agent._take_in(*extremes)
