"""One sweep of a planner, faster: on compiled loops where numba is installed, on the model's own
arrays where not.

Stands in for `_sweep` of `rlbook.algorithms.planning.value_iteration` and its sisters. A
synchronous sweep and one in place give the same bits as the plain form. With `sweep = "automatic"`
value iteration chooses the order of the work, and stops by the same bounds:

    every 4 sweeps:  if the interval around V* has shrunk no faster than γ alone makes it,
        V ← its lower end, and from there on, with numba
            V(s) ← max_a Q(s, a), π(s) ← argmax_a Q(s, a), in place                           one sweep over all actions
            up to 16 times: V(s) ← Q(s, π(s)), in place                                       sweeps over one action a state
        states last to first where the best actions lead to later states, first to last where they
        lead to earlier ones without numba
            V(s) ← max_a Q(s, a), π(s) ← argmax_a Q(s, a)                                     one synchronous sweep, which proves a bound
            up to 200 times: V(s) ← Q(s, π(s)), in place                                      in the order of `ordered_evaluation.py`

So each state is updated after those it leads to, and knowledge crosses a map in one sweep.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from rlbook.algorithms.planning.modified_policy_iteration import ModifiedPolicyIteration
from rlbook.algorithms.planning.policy_evaluation import PolicyEvaluation
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.fast.tabular.ordered_evaluation import distances, evaluate_in_order
from rlbook.fast.tabular.sparse_product import runs_in_place
from rlbook.fast.tabular.sweeps import (
    CompiledSweeps,
    Extremes,
    SparseSweeps,
    StopRule,
    Sweeps,
    sweeps_of,
)

LOOK = 4
"""The number of sweeps between two checks of the interval."""
AHEAD, SMALL = 8, 4_096
"""The number of sweeps made in one call with numba for a model with at most this many states; each
is then reported separately."""
AT_ONCE = 32
"""The same if they are not reported separately."""
SLOW = 0.995
"""The interval shrinks slowly if each sweep leaves more of it than this times γ."""
EVALUATIONS, SETTLED = 16, 0.05
"""The largest number of in-place sweeps over the best actions alone, and the fraction of the last
change below which they stop."""
ORDERED_EVALUATIONS, ORDERED_SETTLED = 200, 0.01
"""The same without numba, where the sweep over all actions is relatively more expensive."""
WORTH_ORDERING = 10_000
"""The number of transitions from which that pays; a smaller model is swept synchronously, as in the
plain form."""


class SweepState:
    """The state kept between two sweeps of one agent."""

    def __init__(self, sweeps: Sweeps) -> None:
        self.sweeps = sweeps
        self.spare = np.empty(len(sweeps.rewards))  # [S] to sweep into
        # sweeps made but not yet taken in, the next one last
        self.ahead: list[tuple[Extremes, np.ndarray]] = []


def work_of(
    agent: TablePlanner, rows: sparse.csr_array, rewards: np.ndarray, can_end: bool
) -> SweepState:
    """The agent's own, created at its first sweep."""
    if agent._work is None:
        agent._work = SweepState(sweeps_of(rows, rewards, agent.config.gamma, can_end=can_end))
    return agent._work


def value_iteration_sweep(agent: ValueIteration, model: TabularMDP) -> None:
    """See `ValueIteration._sweep`."""
    if type(agent) is not ValueIteration:
        ValueIteration._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    work = work_of(agent, model.continues_by_state, model.rewards, model.can_end)
    sweeps, automatic = work.sweeps, agent.config.sweep == "automatic"
    if agent._bound.in_place:
        if automatic and isinstance(sweeps, CompiledSweeps):
            _improve_in_place(agent, sweeps)
        else:
            agent._record_sweep(*sweeps.sweep_in_place(agent._values))
    elif agent._order is not None and _can_order(sweeps):
        _improve_in_order(agent, work, agent._order)
    else:
        low, high = _next_values(agent, work)
        agent._record_sweep(low, high)
        if automatic and not agent._finished and _is_slow(agent, sweeps, low, high):
            _start_in_place(agent, work, low, high)


def _next_values(agent: ValueIteration, work: SweepState) -> Extremes:
    """V after one more synchronous sweep, which may have been made already."""
    sweeps = work.sweeps
    if (
        not work.ahead
        and isinstance(sweeps, CompiledSweeps)
        and not sweeps.is_shared
        and agent.config.gamma < 1
    ):
        count = AHEAD if agent._reported else AT_ONCE
        if agent._num_states <= SMALL or not agent._reported:
            _make_ahead(agent, work, sweeps, count)
    if work.ahead:
        extremes, agent._values = work.ahead.pop()
        return extremes
    extremes = sweeps.optimal(agent._values, work.spare)
    agent._values, work.spare = work.spare, agent._values
    return extremes


def _make_ahead(
    agent: ValueIteration, work: SweepState, sweeps: CompiledSweeps, count: int
) -> None:
    """Makes the next sweeps in advance, up to one that ends the iteration or changes the order of
    the work."""
    config, done, gamma = agent.config, agent._sweeps_done, agent.config.gamma
    shrinking = (SLOW * gamma) ** LOOK if config.sweep == "automatic" and gamma > 0 else math.inf
    stop = StopRule(
        gamma / (1 - gamma),
        agent.tolerance,
        agent._bound.travelled,
        done,
        LOOK,
        agent._width,
        shrinking,
    )
    count = min(count, config.max_sweeps - done)
    work.ahead = sweeps.optimal_many(agent._values, count, count if agent._reported else 1, stop)[
        ::-1
    ]
    if not agent._reported:
        _pass_over(agent, [extremes for extremes, _ in work.ahead[:0:-1]])
        del work.ahead[1:]


def _pass_over(agent: ValueIteration, passed: list[Extremes]) -> None:
    """Records sweeps that neither end the iteration nor change the order of the work, and that
    nobody asks about."""
    for low, high in passed:
        agent._bound.travelled += max(-low, high)
        agent._sweeps_done += 1
        if agent._sweeps_done % LOOK == 0:
            agent._width = high - low


def _is_slow(agent: ValueIteration, sweeps: Sweeps, low: float, high: float) -> bool:
    """Whether the interval has shrunk no faster than by γ since the last check. Without numba also
    checked after the first sweep, so that it is noticed after 4."""
    gamma, done = agent.config.gamma, agent._sweeps_done + 1
    if gamma in (0, 1) or (done % LOOK and not (done == 1 and _can_order(sweeps))):
        return False
    before, agent._width = agent._width, high - low
    return math.isfinite(before) and agent._width > before * (SLOW * gamma) ** min(LOOK, done - 1)


def _can_order(sweeps: Sweeps) -> bool:
    """Whether sweeps without numba may continue in place, in an order of their own."""
    return (
        isinstance(sweeps, SparseSweeps) and sweeps.rows.nnz >= WORTH_ORDERING and runs_in_place()
    )


def _start_in_place(agent: ValueIteration, work: SweepState, low: float, high: float) -> None:
    """V ← the lower end of its interval. Without numba, also the order of later sweeps, and the
    first policy's evaluation."""
    gamma, sweeps = agent.config.gamma, work.sweeps
    if isinstance(sweeps, CompiledSweeps):
        agent._bound.in_place = True
        agent._values += gamma / (1 - gamma) * low
    elif _can_order(sweeps):
        before, num_actions = work.spare, sweeps.rewards.shape[1]
        # where the last sweep changed V as elsewhere it has not
        known = agent._values - before >= (low + high) / 2
        known = known if 2 * np.count_nonzero(known) <= len(known) else ~known
        agent._order, distance = distances(sweeps.rows, num_actions, known)
        nearer = (sweeps.rows @ distance).reshape(-1, num_actions).argmin(axis=1)
        policy = np.where(known, sweeps.improve(before, np.empty_like(before))[1], nearer)
        agent._values += gamma / (1 - gamma) * low
        values = agent._values.copy()
        _evaluate_in_order(sweeps, agent._order, policy, values, high - low)
        np.maximum(agent._values, values, out=agent._values)


def _improve_in_order(agent: ValueIteration, work: SweepState, order: np.ndarray) -> None:
    """A synchronous sweep over all actions, and some in place over the best ones."""
    (low, high), policy = work.sweeps.improve(agent._values, work.spare)
    agent._values, work.spare = work.spare, agent._values
    agent._record_sweep(low, high)
    if not agent._finished:
        _evaluate_in_order(work.sweeps, order, policy, agent._values, high - low)


def _evaluate_in_order(
    sweeps: Sweeps, order: np.ndarray, policy: np.ndarray, values: np.ndarray, width: float
) -> None:
    enough = ORDERED_SETTLED * width
    evaluate_in_order(
        sweeps.rows,
        sweeps.rewards,
        sweeps.gamma,
        order,
        policy,
        values,
        ORDERED_EVALUATIONS,
        enough,
    )


def _improve_in_place(agent: ValueIteration, sweeps: CompiledSweeps) -> None:
    """A sweep over all actions, and some over the best ones."""
    backwards = agent._backwards
    (low, high), onwards = sweeps.improve_in_place(agent._values, backwards=backwards)
    agent._record_sweep(low, high)
    agent._backwards = onwards > 0 if onwards else not backwards
    if not agent._finished:
        sweeps.evaluate_in_place(
            agent._values, EVALUATIONS, SETTLED * max(-low, high), backwards=agent._backwards
        )


def modified_policy_iteration_sweep(agent: ModifiedPolicyIteration, model: TabularMDP) -> None:
    """See `ModifiedPolicyIteration._sweep`."""
    if type(agent) is not ModifiedPolicyIteration:
        ModifiedPolicyIteration._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    work, m = (
        work_of(agent, model.continues_by_state, model.rewards, model.can_end),
        agent.config.evaluation_sweeps,
    )
    before, sweeps = agent._values, work.sweeps
    extremes, policy = sweeps.improve(before, work.spare)
    agent._values, work.spare = work.spare, before
    agent._record_sweep(*extremes, apart=m + 1)
    if agent._finished:
        return
    agent._values, work.spare = sweeps.sweep_policy(policy, agent._values, before, m)
    agent._raise_to_zero(model)


def policy_evaluation_sweep(agent: PolicyEvaluation, model: TabularMDP) -> None:
    """See `PolicyEvaluation._sweep`. A policy makes a chain of the model: one action a state, so
    that the best is the only one."""
    if type(agent) is not PolicyEvaluation or agent.config.method == "linear":
        PolicyEvaluation._sweep.plain(agent, model)  # type: ignore[attr-defined]
        return
    chain, rewards = agent._chain_of(model)
    work = work_of(agent, chain, rewards[:, None], model.can_end)
    if agent._bound.in_place:
        agent._record_sweep(*work.sweeps.sweep_in_place(agent._values))
        return
    extremes = work.sweeps.optimal(agent._values, work.spare)
    agent._values, work.spare = work.spare, agent._values
    agent._record_sweep(*extremes)
