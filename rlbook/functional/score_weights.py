"""Weights of recorded behaviour: of a group's episodes from their scores, of single actions from
their advantages."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask


def score_weights(score: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """w_i = softmax_i(z_i / τ),   z_i = (s_i - mean of the group) / (its standard deviation).

    Scores are standardised first, so that τ means the same whatever their unit. Of raw scores such
    as 0.046 and 0.039 the softmax at τ = 2 is uniform to three decimals: it sees a difference of
    0.007 / 2.

    Args:
        score: [B, G], in any unit.
        mask: [B, G], bool; false after the end of a smaller group.
        temperature: τ, > 0; large makes all episodes count alike, small leaves the best alone.

    Returns:
        [B, G], 0 outside the mask, and else of sum 1 in each group; uniform where all scores of
        the group are equal.

    Source: the weights are those of reward-weighted regression, Peters & Schaal 2007, eq. 8; for
    several answers to one prompt: Yuan et al. 2023 (RRHF), arXiv:2304.05302, section 3.1, has the
    ranks alone. Dividing by the deviation (of the population): as in GRPO, arXiv:2402.03300.
    """
    check_same_shape(score=score, mask=mask)
    if score.dim() != 2:
        raise ValueError(f"score must have shape [B, G], got {list(score.shape)}")
    if not temperature > 0:
        raise ValueError(f"temperature must be a number above 0, got {temperature!r}")
    score, size = zero_outside_mask(score, mask), mask.sum(1, keepdim=True).clamp(min=1)
    centred = zero_outside_mask(score - score.sum(1, keepdim=True) / size, mask)
    deviation = (centred.square().sum(1, keepdim=True) / size).sqrt()
    flat = deviation <= 1e-6 * score.abs().amax(1, keepdim=True)  # rounding, and no more
    standardised = (centred / deviation).masked_fill(flat, 0.0)
    logits = (standardised / temperature).masked_fill(~mask, -torch.inf)
    return zero_outside_mask(logits.softmax(1), mask)


@torch.no_grad()
def advantage_weights(
    advantage: Tensor, inverse_temperature: float, largest: float = 100.0
) -> Tensor:
    """w = min( exp(β A), w_max ), the weight of a recorded action in advantage-weighted regression.

    The policy that maximises E[w log π(a|s)] is π(a|s) ∝ μ(a|s) w(s, a), where μ is the recorded
    behaviour. Among all policies it has the largest expected advantage less KL(π ‖ μ) / β, as long
    as the bound is not reached.

    Args:
        advantage: A(s, a), any shape, in reward units.
        inverse_temperature: β ≥ 0, per reward unit; 0 weighs all actions alike.
        largest: w_max > 0; bounds what a single row can weigh.

    Returns:
        The same shape, without gradient, in (0, w_max].

    Source: Peng et al. 2019 (AWR), arXiv:1910.00177, eq. 10; Kostrikov et al. 2021 (IQL),
    arXiv:2110.06169, eq. 7, with the bound of its code, 100.
    """
    return (inverse_temperature * advantage).clamp(max=math.log(largest)).exp()
