"""Planning to a value error of 1e-3, building the model included, against QuantEcon's modified
policy iteration on the same arrays.

Plans that take about a millisecond are timed many in a row, as `timeit` does, on both sides.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

from benchmarks.timing import Comparison, run_in_turn, seconds
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs import TabularMDP
from rlbook.fast.compiled import available
from rlbook.fast.tabular import sweeps

ERROR = 1e-3
# states → goal with numba, rounds
RANDOM = {
    1_000: (4.0, 25),
    10_000: (3.0, 15),
    100_000: (2.5, 7),
    1_000_000: (3.0, 3),
}
PLAIN_GOAL = 1.7  # without numba
GRIDS = {32: (1.5, 15), 100: (1.5, 7), 316: (1.5, 3)}  # side → goal with numba, rounds

Arrays = tuple[sparse.csr_matrix, np.ndarray]
Plan = Callable[[Arrays, float], object]


def random_model(num_states: int) -> Arrays:
    """4 actions, 3 successors each, rewards in [0, 1]."""
    rng = np.random.default_rng(0)
    indices = rng.integers(num_states, size=(num_states * 4, 3)).astype(np.int32)
    chances = rng.dirichlet(np.ones(3), size=num_states * 4)
    matrix = csr(chances, indices, num_states)
    matrix.sum_duplicates()
    return matrix, rng.random((num_states, 4))


def slippery_grid(side: int, *, prize: bool = False) -> Arrays:
    """To the last corner, where one stays unpaid; a fifth of the moves go to the left or to the
    right instead.

    A step costs 1; or, with a prize, nothing, and coming into the corner pays 1.
    """
    row, column = np.divmod(np.arange(side * side), side)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    reached = np.stack(
        [np.clip(row + i, 0, side - 1) * side + np.clip(column + j, 0, side - 1) for i, j in moves]
    )
    reached[:, -1] = side * side - 1
    successors = np.stack([reached[[a, (a + 1) % 4, (a + 3) % 4]].T for a in range(4)], axis=1)
    chances = np.broadcast_to([0.8, 0.1, 0.1], successors.shape)
    rewards = (
        (chances * (successors == side * side - 1)).sum(axis=2)
        if prize
        else np.full((side * side, 4), -1.0)
    )
    rewards[-1] = 0.0
    matrix = csr(chances, successors.astype(np.int32), side * side)
    matrix.sum_duplicates()
    return matrix, rewards


def csr(chances: np.ndarray, successors: np.ndarray, num_states: int) -> sparse.csr_matrix:
    """Rows of equally many successors."""
    indptr = np.arange(0, successors.size + 1, successors.shape[-1], dtype=np.int32)
    return sparse.csr_matrix(
        (chances.ravel(), successors.ravel(), indptr), shape=(num_states * 4, num_states)
    )


def ours(arrays: Arrays, gamma: float) -> TablePlanner:
    return ValueIteration.solve(TabularMDP.from_arrays(*arrays), gamma=gamma, tolerance=ERROR)


def without_numba(plan: Plan) -> Plan:
    def run(arrays: Arrays, gamma: float) -> object:
        before, sweeps.WORTH_COMPILING = sweeps.WORTH_COMPILING, 2**62
        try:
            return plan(arrays, gamma)
        finally:
            sweeps.WORTH_COMPILING = before

    return run


def quantecon(arrays: Arrays, gamma: float) -> np.ndarray:
    from quantecon.markov import DiscreteDP

    transitions, rewards = arrays
    states, actions = np.divmod(np.arange(rewards.size), rewards.shape[1])
    return (
        DiscreteDP(rewards.ravel(), transitions, gamma, states, actions)
        .solve(method="mpi", epsilon=ERROR)
        .v
    )


def rate(plan: Plan, arrays: Arrays, gamma: float) -> float:
    """Plans per second, of a few milliseconds' worth of them at least."""
    times = max(1, 20_000 // len(arrays[1]))
    return times / seconds(lambda: [plan(arrays, gamma) for _ in range(times)])


def compare() -> Iterator[Comparison]:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=PendingDeprecationWarning)
    for num_states, (goal, rounds) in RANDOM.items():
        yield from compared(
            f"plan, random, {num_states:,} states",
            random_model(num_states),
            0.95,
            goal,
            PLAIN_GOAL,
            rounds,
        )
    for side, (goal, rounds) in GRIDS.items():
        for prize, form in ((False, "-1 a step"), (True, "+1 at the end")):
            arrays = slippery_grid(side, prize=prize)
            # a small grid is planned in a millisecond or two, most of which goes to calling numpy
            plain_goal = goal if side >= 100 else 1.0
            yield from compared(
                f"plan, grid, {form}, {side * side:,} states",
                arrays,
                0.99,
                goal,
                plain_goal,
                rounds,
            )


def compared(
    name: str, arrays: Arrays, gamma: float, goal: float, plain_goal: float, rounds: int
) -> Iterator[Comparison]:
    """With numba where it is installed, and without."""
    runs = {
        "quantecon": lambda: rate(quantecon, arrays, gamma),
        "plain": lambda: rate(without_numba(ours), arrays, gamma),
    }
    if available():
        runs["fast"] = lambda: rate(ours, arrays, gamma)
    rates = run_in_turn(runs, rounds)
    for kind, aim in (("fast", goal), ("plain", plain_goal)):
        if kind in rates:
            label = name + (", numba" if kind == "fast" else ", no numba")
            yield Comparison(label, "plans/s", rates[kind], rates["quantecon"], aim)
