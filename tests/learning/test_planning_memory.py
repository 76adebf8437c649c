"""A million states fit: planning needs no more than the model's own arrays a few times over."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import resource
import numpy as np
from scipy import sparse
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs import TabularMDP

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

rng = np.random.default_rng(0)
warm = rng.integers(3000, size=36_000).astype(np.int32)
matrix = sparse.csr_array((np.full(36_000, 1 / 3), warm, np.arange(0, 36_001, 3, dtype=np.int32)), shape=(12_000, 3000))
ValueIteration.solve(TabularMDP.from_arrays(matrix, np.zeros((3000, 4))), gamma=0.5)        # loads and compiles what is needed
states, before = 1_000_000, peak()
indices = np.empty(12 * states, dtype=np.int32)
data = np.full(12 * states, 1 / 3)
for part in range(12):
    indices[part * states : (part + 1) * states] = rng.integers(states, size=states)
rewards = np.empty((states, 4))
for action in range(4):
    rewards[:, action] = rng.random(states)
matrix = sparse.csr_array((data, indices, np.arange(0, 12 * states + 1, 3, dtype=np.int32)), shape=(4 * states, states))
own = data.nbytes + indices.nbytes + matrix.indptr.nbytes + rewards.nbytes
agent = ValueIteration.solve(TabularMDP.from_arrays(matrix, rewards), gamma=0.95, tolerance=1e-3)
error = np.abs(agent._model.backup(agent.values(), 0.95).max(axis=1) - agent.values()).max() if CHECK else 0.0
print((peak() - before) / own, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("plain", ["", "1"], ids=["numba", "no numba"])
def test_a_million_states_are_solved_within_three_times_the_models_own_memory(plain: str) -> None:
    """The arrays themselves are in it. V is near enough V* where one more sweep moves no value by
    more than 2 · 1e-3."""
    environment = os.environ | {"RLBOOK_PLAIN": plain, "OMP_NUM_THREADS": "1"}
    results = []
    for check in ("False", "True"):  # checking needs memory of its own
        code = CODE.replace("CHECK", check)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr[-2000:]
        results.append([float(number) for number in done.stdout.split()])
    assert results[0][0] <= 3.0
    assert results[1][1] <= 2e-3
