"""Sweeps over all states as plain loops: machine code if numba is installed (`pip install
rlbook[fast]`), otherwise Python.

A model is flat arrays: row `s * A + a` holds P(s'|s, a) in `data` and s' in `indices`, from
`starts[row]` to `stops[row] - 1`; `rewards` is [S·A], values are [S]. A kernel runs over the states
`first` … `last - 1` and returns the smallest and the largest change of a value. Sums run in the
order of the matrix, so the numbers depend neither on who runs it nor on how many threads share the
states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.fast.compiled import can_cache, numba_module

Floats = NDArray[np.float64]
Integers = NDArray[np.int64] | NDArray[np.int32]
StopNumbers = tuple[float, float, float, int, int, float, float]
"""The fields of `rlbook.fast.tabular.sweeps.StopRule`."""


def sweep_states_in_place(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    values: Floats,
    first: int,
    last: int,
) -> tuple[float, float]:
    """V(s) ← max_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ], state after state: later ones see the new
    values of earlier ones."""
    low, high = math.inf, -math.inf
    for s in range(first, last):
        best = -math.inf
        for row in range(s * num_actions, s * num_actions + num_actions):
            expected = 0.0
            for k in range(starts[row], stops[row]):
                expected += data[k] * values[indices[k]]
            best = max(best, rewards[row] + gamma * expected)
        change = best - values[s]
        values[s] = best
        low = min(low, change)
        high = max(high, change)
    return low, high


def improve_in_place(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    values: Floats,
    first: int,
    last: int,
    mirror: int,
    policy: Integers,
    backwards: bool,
    margin: float,
) -> tuple[float, float, float]:
    """In place, forwards or backwards (`mirror` is first + last - 1), each equation solved for
    V(s); π(s) ← the best action.

    V(s) ← max_a [ r(s, a) + γ Σ_{s' ≠ s} P(s'|s, a) V(s') ] / [ 1 - γ P(s|s, a) ]. Has the same
    fixed point, and γ < 1.

    The third number that it returns is the probability of going to later states minus that of going
    to earlier ones, added up over the states whose best action is ahead of the others by more than
    `margin`.
    """
    low, high, onwards = math.inf, -math.inf, 0.0
    for step in range(first, last):
        s = mirror - step if backwards else step
        before, best, second, chosen = values[s], -math.inf, -math.inf, s * num_actions
        for row in range(s * num_actions, s * num_actions + num_actions):
            expected, staying = 0.0, 0.0
            for k in range(starts[row], stops[row]):
                expected += data[k] * values[indices[k]]
                staying += data[k] if indices[k] == s else 0.0
            action_value = (rewards[row] + gamma * (expected - staying * before)) / (
                1.0 - gamma * staying
            )
            second = max(second, min(best, action_value))
            chosen = row if action_value > best else chosen
            best = max(best, action_value)
        if best - second > margin:
            for k in range(starts[chosen], stops[chosen]):
                onwards += data[k] if indices[k] > s else (-data[k] if indices[k] < s else 0.0)
        policy[s] = chosen - s * num_actions
        values[s] = best
        low = min(low, best - before)
        high = max(high, best - before)
    return low, high, onwards


def solved_chain(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    first: int,
    last: int,
    policy: Integers,
    begins: Integers,
    successors: Integers,
    weights: Floats,
    constants: Floats,
) -> None:
    """The rows of a policy one after the other, solved for V(s): V(s) = constant(s) + Σ_k
    weight(k) V(successor(k)), from begins[s] on."""
    place = 0
    for s in range(first, last):
        row = s * num_actions + policy[s]
        staying = 0.0
        for k in range(starts[row], stops[row]):
            staying += data[k] if indices[k] == s else 0.0
        scale = 1.0 / (1.0 - gamma * staying)
        begins[s], constants[s] = place, scale * rewards[row]
        for k in range(starts[row], stops[row]):
            if indices[k] != s:
                successors[place], weights[place] = indices[k], scale * gamma * data[k]
                place += 1
    begins[last] = place


def evaluate_in_place(
    begins: Integers,
    successors: Integers,
    weights: Floats,
    constants: Floats,
    values: Floats,
    first: int,
    last: int,
    mirror: int,
    backwards: bool,
    times: int,
    enough: float,
) -> None:
    """V(s) ← constant(s) + Σ_k weight(k) V(successor(k)), state after state, up to `times`
    times."""
    for _ in range(times):
        largest = 0.0
        for step in range(first, last):
            s = mirror - step if backwards else step
            new = constants[s]
            for k in range(begins[s], begins[s + 1]):
                new += weights[k] * values[successors[k]]
            largest = max(largest, abs(new - values[s]))
            values[s] = new
        if largest <= enough:
            return


def optimal_sweep(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    values: Floats,
    out: Floats,
    first: int,
    last: int,
    policy: Integers,
    lead: Floats,
    drift: float,
    margin: float,
) -> tuple[float, float]:
    """out(s) ← max_a [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ], without looking at actions that cannot
    attain the maximum.

    If the best action of s was ahead of all others by some lead, it is best for as long as action
    values have not moved by more than that lead against each other. One sweep moves them by γ (h -
    l) at most, where l and h are the extremes of the values' changes. So `drift` adds these up over
    the sweeps, and `lead[s]` is the drift until which π(s) needs no rival. `margin` is more than
    rounding can do. The result is the same to the bit as that of looking at all actions.

    Source: Hastings 1976, doi:10.1287/mnsc.23.1.87 (temporary elimination of actions).
    """
    low, high = math.inf, -math.inf
    for s in range(first, last):
        base = s * num_actions
        best = -math.inf
        if lead[s] > drift:
            row = base + policy[s]
            expected = 0.0
            for k in range(starts[row], stops[row]):
                expected += data[k] * values[indices[k]]
            best = rewards[row] + gamma * expected
        else:
            second, chosen = -math.inf, base
            for row in range(base, base + num_actions):
                expected = 0.0
                for k in range(starts[row], stops[row]):
                    expected += data[k] * values[indices[k]]
                action_value = rewards[row] + gamma * expected
                second = max(second, min(best, action_value))
                chosen = row if action_value > best else chosen
                best = max(best, action_value)
            policy[s] = chosen - base
            lead[s] = drift + (best - second - margin)
        change = best - values[s]
        out[s] = best
        low = min(low, change)
        high = max(high, change)
    return low, high


def optimal_sweeps(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    history: Floats,
    at: int,
    first: int,
    last: int,
    policy: Integers,
    lead: Floats,
    drift: float,
    size: float,
    can_end: bool,
    blank: bool,
    extremes: Floats,
    stop: StopNumbers,
) -> tuple[int, float, float]:
    """Repeated `optimal_sweep`: from `history[at]` into the next row, cyclically; at most as often
    as `extremes` has rows.

    `blank` says that all values are 0, so that the first sweep need not read the transitions.
    `extremes` [N, 2] gets the smallest and the largest change of each sweep; 0 is among them where
    episodes can end. Comes back early after a sweep that something may follow from
    (`rlbook.fast.tabular.sweeps.StopRule`). Returns how many sweeps there were, the
    drift, and a number that no value exceeds.
    """
    factor, tolerance, travelled, sweeps, period, width, shrinking = stop
    for i in range(len(extremes)):
        values, out = history[(at + i) % len(history)], history[(at + i + 1) % len(history)]
        low, high = optimal_sweep(
            starts,
            starts if blank and i == 0 else stops,
            indices,
            data,
            rewards,
            num_actions,
            gamma,
            values,
            out,
            first,
            last,
            policy,
            lead,
            drift,
            1e-9 * size,
        )
        if can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        extremes[i, 0], extremes[i, 1] = low, high
        change = max(-low, high)
        drift += gamma * (high - low)
        size += change
        travelled += change
        error = factor * change if can_end else factor * (high - low) / 2
        looked_at = (sweeps + i + 1) % period == 0
        if (
            error <= tolerance
            or change <= 1e-15 * travelled
            or (looked_at and high - low > width * shrinking)
        ):
            return i + 1, drift, size
        if looked_at:
            width = high - low
    return len(extremes), drift, size


def policy_sweep(
    starts: Integers,
    stops: Integers,
    indices: Integers,
    data: Floats,
    rewards: Floats,
    num_actions: int,
    gamma: float,
    values: Floats,
    out: Floats,
    first: int,
    last: int,
    policy: Integers,
) -> tuple[float, float]:
    """out(s) ← r(s, π(s)) + γ Σ_s' P(s'|s, π(s)) V(s')."""
    low, high = math.inf, -math.inf
    for s in range(first, last):
        row = s * num_actions + policy[s]
        expected = 0.0
        for k in range(starts[row], stops[row]):
            expected += data[k] * values[indices[k]]
        new = rewards[row] + gamma * expected
        change = new - values[s]
        out[s] = new
        low = min(low, change)
        high = max(high, change)
    return low, high


@cache
def compile_kernel(kernel: Callable[..., object]) -> Callable[..., Any]:
    """The same kernel as machine code that releases the GIL. Needs numba."""
    return numba_module().njit(nogil=True, cache=can_cache())(kernel)
