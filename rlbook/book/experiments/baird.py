"""Baird's counterexample: why TD learning diverges, and what prevents it.

Seven states. From each of them "dashed" goes to one of the first six, all equally likely, and
"solid" to the seventh; every reward is 0. The behaviour takes dashed in six of seven cases, so that
it visits all states equally often; the target policy always takes solid. All values are 0, which
eight weights can represent: v(s) = 2 w_s + w_8 for the first six, w_7 + 2 w_8 for the seventh.

    triad()              the divergence, and the same without each of its three ingredients
    stream_tdc(...)      TDC on the same stream, which converges

Source: Baird 1995, doi:10.1016/B978-1-55860-377-6.50013-X; Sutton & Barto 2018, section 11.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.linear_td import (
    Array,
    TDSystem,
    semi_gradient_update,
    td_system,
    tdc_update,
)
from rlbook.seeding import rng_for

STATES = 7
DASHED, SOLID = 0, 1
GAMMA = 0.99
FIRST_WEIGHTS = np.array([1.0, 1, 1, 1, 1, 1, 10, 1])
BEHAVIOUR = np.tile([6 / 7, 1 / 7], (STATES, 1))
TARGET = np.tile([0.0, 1.0], (STATES, 1))
VISITS = np.full(STATES, 1 / STATES)
"""The behaviour's state distribution: from any state, all seven states are equally likely next."""


def baird_model() -> TabularMDP:
    """The model; any state may be the initial one."""
    transitions = np.zeros((STATES, 2, STATES))
    transitions[:, DASHED, :6] = 1 / 6
    transitions[:, SOLID, 6] = 1.0
    return TabularMDP.from_arrays(transitions, np.zeros((STATES, 2)))


def baird_features() -> Array:
    """X, [7, 8]."""
    x = np.zeros((STATES, STATES + 1))
    x[np.arange(6), np.arange(6)] = 2.0
    x[:6, 7] = 1.0
    x[6, 6:] = 1.0, 2.0
    return x


def system(x: Array, policy: Array = TARGET) -> TDSystem:
    """The expected update for features X [7, d], learning the values of `policy` [7, 2] from the
    behaviour's states."""
    chain, rewards = baird_model().chain(policy)
    return td_system(x, VISITS, chain.toarray(), rewards, GAMMA)


class Stream(NamedTuple):
    """T consecutive steps of the behaviour policy."""

    state: np.ndarray  # [T + 1]
    action: np.ndarray  # [T]
    reward: Array  # [T], in reward units


def stream(steps: int, seed: int) -> Stream:
    """A stream of the behaviour policy's steps."""
    outcomes, rng = baird_model().outcomes, rng_for(seed, "environment")
    states = [int(outcomes.pick_starts(rng.random(1))[0])]
    actions, rewards = (rng.random(steps) >= BEHAVIOUR[0, DASHED]).astype(np.int64), np.empty(steps)
    for step, (action, uniform) in enumerate(zip(actions, rng.random((steps, 1)), strict=True)):
        chosen = outcomes.pick(np.array([states[-1] * 2 + action]), uniform)
        rewards[step] = outcomes.reward[chosen[0]]
        states.append(int(outcomes.successor[chosen[0]]))
    return Stream(np.array(states), actions, rewards)


def stream_td(
    x: Array,
    first: Array,
    seen: Stream,
    *,
    alpha: float,
    target: Array = TARGET,
    bootstrap: bool = True,
) -> Array:
    """Semi-gradient TD, or without `bootstrap` gradient Monte Carlo, on a stream of the behaviour.

    Args:
        x: features, [7, d].
        first: weights before the first step, [d].
        seen: the stream. Without `bootstrap`, its returns are sums up to its end, each reward
            weighted by the ratios before it.
        alpha: step size.
        target: policy whose values are learned, [7, 2].

    Returns:
        The weights before the first step and after each, [T + 1, d].
    """
    ratios = (target / BEHAVIOUR)[seen.state[:-1], seen.action]
    weights = [first]
    if bootstrap:
        for step, (state, ratio, reward) in enumerate(
            zip(seen.state[:-1], ratios, seen.reward, strict=True)
        ):
            weights.append(
                semi_gradient_update(
                    weights[-1],
                    x[state],
                    reward,
                    x[seen.state[step + 1]],
                    gamma=GAMMA,
                    alpha=alpha,
                    ratio=ratio,
                )
            )
        return np.array(weights)
    returns = np.zeros(len(ratios) + 1)
    for step in reversed(range(len(ratios))):
        returns[step] = ratios[step] * (seen.reward[step] + GAMMA * returns[step + 1])
    for state, total in zip(seen.state[:-1], returns, strict=False):
        weights.append(
            semi_gradient_update(
                weights[-1], x[state], total, 0 * x[state], gamma=GAMMA, alpha=alpha
            )
        )
    return np.array(weights)


def stream_tdc(x: Array, first: Array, seen: Stream, *, alpha: float, beta: float) -> Array:
    """TDC on a stream of the behaviour: the weights before the first step and after each, [T + 1,
    d]."""
    ratios, helper, weights = (
        (TARGET / BEHAVIOUR)[seen.state[:-1], seen.action],
        np.zeros_like(first),
        [first],
    )
    for step, (state, ratio, reward) in enumerate(
        zip(seen.state[:-1], ratios, seen.reward, strict=True)
    ):
        moved, helper = tdc_update(
            weights[-1],
            helper,
            x[state],
            reward,
            x[seen.state[step + 1]],
            gamma=GAMMA,
            alpha=alpha,
            beta=beta,
            ratio=ratio,
        )
        weights.append(moved)
    return np.array(weights)


def triad(steps: int = 50_000, alpha: float = 0.01, seed: int = 0) -> dict[str, Array]:
    """The deadly triad on one stream: the values v(s) after all steps, [7], by the element left
    out.

    "nothing": features, bootstrapping and off-policy learning together. Without function
    approximation there is a weight for each state, and ten times the step size, because γ = 0.99
    makes that slow; without bootstrapping the target is the return; without off-policy learning the
    values are those of the behaviour itself.
    """
    x, seen, table = baird_features(), stream(steps, seed), np.eye(STATES)
    start = x @ FIRST_WEIGHTS  # the table begins with the same values
    return {
        "nothing": x @ stream_td(x, FIRST_WEIGHTS, seen, alpha=alpha)[-1],
        "function approximation": stream_td(table, start, seen, alpha=10 * alpha)[-1],
        "bootstrapping": x @ stream_td(x, FIRST_WEIGHTS, seen, alpha=alpha, bootstrap=False)[-1],
        "off-policy learning": x
        @ stream_td(x, FIRST_WEIGHTS, seen, alpha=alpha, target=BEHAVIOUR)[-1],
    }
