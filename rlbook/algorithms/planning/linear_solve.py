"""V = r + γ P V as a linear system: factorised if that is fast, solved iteratively if not.

A factorisation is exact but fills in: for a random chain of 10 000 states it needs a dense matrix.
BiCGSTAB needs only products with P, and a discounted system is well conditioned; its answer is
accepted only if the residual is at the level of rounding.

Source: van der Vorst 1992, doi:10.1137/0913035 (BiCGSTAB).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import bicgstab, splu

from rlbook.envs.tabular.mdp import check_ends

DIRECT = 1_000
"""The number of states up to which the system is solved by factorisation."""
PRECISE = 1e-13
"""The relative residual at which an iterative solution is accepted."""


def chain_values(
    chain: sparse.csr_array,
    rewards: np.ndarray,
    gamma: float,
    guess: np.ndarray,
    goes_on: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """V of a Markov chain with rewards.

    Args:
        chain: P [S, S], CSR, without what ends the episode.
        rewards: r [S], in reward units.
        gamma: γ, in [0, 1].
        guess: [S], values to start from, in reward units.
        goes_on: [S] bool, False where the chain stops; None: nowhere.

    Returns:
        V [S] and the largest |r + γ P V - V|, both in reward units.

    Raises:
        ValueError: γ = 1, and from some states the chain neither ends nor stops being paid.
    """
    if goes_on is not None and not goes_on.all():
        chain = sparse.csr_array(sparse.diags_array(goes_on.astype(float)) @ chain)
    if gamma == 1.0:
        chain = check_ends(chain, rewards)
    if len(rewards) > DIRECT:
        values = _iterate(chain, rewards, gamma, guess)
        error = _residual(chain, rewards, gamma, values)
        if error <= PRECISE * max(np.abs(values).max(), np.abs(rewards).max()):
            return values, error
    values = splu(sparse.csc_array(sparse.eye_array(len(rewards)) - gamma * chain)).solve(rewards)
    return values, _residual(chain, rewards, gamma, values)


def _iterate(
    chain: sparse.csr_array, rewards: np.ndarray, gamma: float, guess: np.ndarray
) -> np.ndarray:
    system = sparse.csr_array(sparse.eye_array(len(rewards)) - gamma * chain)
    values = guess
    for _ in range(3):  # a fresh start removes what rounding has added to the residual on the way
        values = (
            values
            + bicgstab(system, rewards - system @ values, rtol=1e-8, atol=0.0, maxiter=1_000)[0]
        )
    return values


def _residual(
    chain: sparse.csr_array, rewards: np.ndarray, gamma: float, values: np.ndarray
) -> float:
    return float(np.abs(rewards + gamma * (chain @ values) - values).max())
