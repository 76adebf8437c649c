"""Exercises on hidden states: beliefs, stacks, recurrent networks, sequences."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional.recurrent_cells import gru_cell


def draw_hidden_step(rng: Generator) -> tuple[Array, Array, Array]:
    return rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3), rng.random(3).round(2)


@exercise(
    "hidden-states",
    draw_hidden_step,
    {
        "the probabilities must add up to 1: divide by their sum": lambda b, P, seen: (
            seen * (b @ P)
        ),
        "the state changes before it is seen: first the step, then the observation": (
            lambda b, P, seen: (seen * b) @ P / (seen * b).sum()
        ),
        "the observation says something, too: multiply by its probability in each state": (
            lambda b, P, seen: b @ P
        ),
    },
)
def next_belief(b: Array, P: Array, seen: Array) -> Array:
    """The belief [S] after a step and an observation.

    b [S] is the belief before, P [S, S] the probability of each next state under the action that
    was taken, and seen [S] the probability of the observation in each state.
    """
    joint = seen * (b @ P)
    return joint / joint.sum()


@exercise(
    "hidden-states",
    lambda rng: (
        rng.integers(0, 9, int(rng.integers(1, 7))).astype(float),
        int(rng.integers(2, 5)),
    ),
    {
        "at the start the stack is filled with the first observation, not with 0": (
            lambda seen, k: np.concatenate([np.zeros(k), seen])[-k:]
        ),
        "the oldest observation stands first": lambda seen, k: np.concatenate(
            [np.full(k, seen[0]), seen]
        )[-k:][::-1],
    },
)
def frame_stack(seen: Array, k: int) -> Array:
    """The stack of the latest k observations, [k], the oldest first.

    seen [T] are all observations of the episode so far; where there are fewer than k, the first one
    fills the rest.
    """
    return np.concatenate([np.full(k, seen[0]), seen])[-k:]


@exercise(
    "hidden-states",
    lambda rng: (*rng.normal(size=(2, 3)).round(2), float(rng.normal())),
    {
        "with z = 1 the unit keeps what it remembers: z goes with h": lambda x, u, h: (
            lambda r, z: z * np.tanh(x[2] + r * u[2]) + (1 - z) * h
        )(*gates(x, u)),
        "r multiplies what comes from the state, and not what comes from the input": (
            lambda x, u, h: (lambda r, z: (1 - z) * np.tanh(r * (x[2] + u[2])) + z * h)(
                *gates(x, u)
            )
        ),
    },
)
def gru_step(x: Array, u: Array, h: float) -> float:
    """What a GRU of one unit remembers after a step.

    x [3] is what comes from the input for r, z and n, u [3] what comes from the state, in the same
    order; h was remembered before. r = σ(x_r + u_r), z = σ(x_z + u_z), n = tanh(x_n + r u_n).
    """
    return float(gru_cell(tensor(x)[None], tensor(u)[None], tensor(np.array([[h]]))))


def gates(x: Array, u: Array) -> Array:
    """r and z of a unit: [2]."""
    return 1 / (1 + np.exp(-(x[:2] + u[:2])))


@exercise(
    "hidden-states",
    lambda rng: (
        rng.integers(0, 5, 6).astype(float),
        rng.random(6) < 0.4,
        float(rng.integers(1, 4)),
    ),
    {
        "where an episode starts, what was remembered before it is dropped": (
            lambda seen, starts, h: remember(seen, np.zeros(6, bool), h)
        ),
        "the first observation of an episode is remembered: the reset comes before it": (
            lambda seen, starts, h: remember(seen * ~starts, starts, h)
        ),
        "the state before the sequence counts until the first start": (
            lambda seen, starts, h: remember(seen, starts, 0.0)
        ),
    },
)
def hidden_states(seen: Array, starts: Array, h: float) -> Array:
    """What a network with h ← h / 2 + o remembers after each observation: [T].

    seen [T] are the observations, starts [T] is true where an episode starts, and h is what was
    remembered before the first one.
    """
    return remember(seen, starts, h)


def remember(seen: Array, starts: Array, h: float) -> Array:
    """h ← h / 2 + o along a sequence with resets: [T]."""
    found = []
    for observation, start in zip(seen, starts, strict=True):
        h = (0.0 if start else h) / 2 + observation
        found.append(h)
    return np.array(found)


@exercise(
    "hidden-states",
    lambda rng: (rng.random(6) < 0.3,),
    {
        "the step with which the episode ends counts: it has a reward": (
            lambda ended: np.cumsum(ended) == 0
        ),
        "after the first end nothing counts, what belongs to the next episode neither": (
            lambda ended: np.append(True, ~ended[:-1])
        ),
    },
)
def sequence_mask(ended: Array) -> Array:
    """Which steps of a stored sequence count: [L], true up to the end of its episode.

    ended [L] is true for a step with which an episode ends.
    """
    return np.cumsum(ended) - ended == 0
