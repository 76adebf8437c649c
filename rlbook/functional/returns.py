"""Returns and targets. Time is the first axis: [T] for one environment, [T, N] for N of them.

The two flags of a step have different meanings. Only `terminated` stops bootstrapping, because no
reward comes after it. Either flag stops the recursion, because the next row belongs to another
episode. Both at once count as terminated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask


def td_target(
    reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float | Tensor
) -> Tensor:
    """The one-step target of V(s). The single place that decides what stops bootstrapping.

    y = r + γ V(s')   where the episode did not terminate, even if a time limit ended it
    y = r             where it terminated

    Args:
        reward: any shape, in reward units.
        terminated: same shape, bool.
        next_value: same shape. V at the true successor, in reward units; of no influence where
            terminated, even as NaN.
        gamma: γ, discount per environment step, in [0, 1], or one for each element.

    Returns:
        Same shape, in reward units, without gradient: a target is a constant.

    Source: Sutton and Barto 2018, eq. 6.2. The time-limit case: partial-episode bootstrapping,
    Pardo et al. 2018, arXiv:1712.00378.
    """
    check_same_shape(reward=reward, terminated=terminated, next_value=next_value)
    return (reward + gamma * next_value.masked_fill(terminated, 0.0)).detach()


@torch.no_grad()
def discounted_returns(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    *,
    next_value: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    """The discounted sum of the rewards from each step to the end of its episode.

    G_t = r_t + γ G_{t+1},   G = r at the last step of an episode

    Args:
        reward: [T] or [T, N], in reward units.
        terminated, truncated: same shape, bool.
        gamma: γ, discount per environment step, in [0, 1].
        next_value: same shape. V at the true successor; completes returns cut by a time limit
            or by the end of the data. None counts nothing after the cut.
        valid: same shape, bool. A step that is not valid is passed over as if it were absent,
            and gets 0.

    Returns:
        Same shape, in reward units, without gradient.

    Source: Sutton and Barto 2018, eq. 3.9.
    """
    check_same_shape(
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        next_value=next_value,
        valid=valid,
    )
    ended = terminated | truncated
    if next_value is not None:
        last = ended.clone()
        last[-1:] = True
        reward = torch.where(last, td_target(reward, terminated, next_value, gamma), reward)
    return backward_sum(reward, ended, gamma, valid)


@torch.no_grad()
def n_step_returns(
    reward: Tensor, terminated: Tensor, truncated: Tensor, next_value: Tensor, gamma: float, n: int
) -> Tensor:
    """The n-step return: n discounted rewards plus the discounted value of the state after them.

    G_t^(n) = r_t + γ r_{t+1} + … + γ^{n-1} r_{t+n-1} + γ^n V(s_{t+n})

    An episode that ends sooner stops the sum there, and so does the end of the data.

    Args:
        reward: [T] or [T, N], in reward units.
        terminated, truncated: same shape, bool.
        next_value: same shape. V at the true successor of each step, in reward units.
        gamma: γ, discount per environment step, in [0, 1].
        n: number of rewards, at least 1. n = 1 is `td_target`; n ≥ T is `discounted_returns`
            with `next_value`.

    Returns:
        Same shape, in reward units, without gradient.

    Source: Sutton and Barto 2018, eq. 7.1.
    """
    check_same_shape(
        reward=reward, terminated=terminated, truncated=truncated, next_value=next_value
    )
    if n < 1:
        raise ValueError(f"n must be an integer of at least 1, got {n!r}")
    one_step = td_target(reward, terminated, next_value, gamma)
    goes_on = ~(terminated | truncated)[:-1]
    result = one_step.clone()
    for _ in range(min(n, len(reward)) - 1):
        result[:-1] = torch.where(goes_on, reward[:-1] + gamma * result[1:], one_step[:-1])
    return result


@torch.no_grad()
def backward_sum(term: Tensor, ended: Tensor, decay: float, valid: Tensor | None = None) -> Tensor:
    """S_t = term_t + decay · S_{t+1} within an episode, from the last row to the first.

    Args:
        term: [T] or [T, N].
        ended: same shape, bool; S starts again from 0 before such a row, going backwards.
        decay: factor per step, in [0, 1].
        valid: same shape, bool. A row that is not valid passes S on undecayed and gets 0 itself.

    Returns:
        Same shape.
    """
    check_same_shape(term=term, ended=ended, valid=valid)
    factor = (~ended).to(term.dtype)
    factor = factor * decay if valid is None else torch.where(valid, factor * decay, factor)
    running = torch.zeros_like(term[0]) if len(term) else term
    rows = []
    terms, factors = zero_outside_mask(term, valid).unbind(), factor.unbind()
    for row, keep in zip(reversed(terms), reversed(factors), strict=True):
        running = torch.addcmul(row, keep, running)
        rows.append(running)
    return zero_outside_mask(torch.stack(rows[::-1]), valid) if rows else term.clone()
