"""Losses as one node of autograd's graph: on small batches the nodes take longer than the
arithmetic."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlbook.functional import policy_losses
from rlbook.functional._shapes import check_same_shape
from rlbook.functional.averages import Average, per_token
from rlbook.functional.policy_losses import MAX_LOG_RATIO


def clipped_surrogate_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """The fast form of `rlbook.functional.policy_losses.clipped_surrogate_loss`: the plain mean of
    all elements, without dual clip."""
    known = (
        type(log_prob) is Tensor
        and torch.is_grad_enabled()
        and not (old_log_prob.requires_grad or advantage.requires_grad)
    )
    one_type = (
        log_prob.dtype == old_log_prob.dtype == advantage.dtype
        and log_prob.is_floating_point()
        and log_prob.numel() > 0
    )
    if (
        mask is not None
        or dual_clip is not None
        or average is not per_token
        or not known
        or not one_type
    ):
        return policy_losses.clipped_surrogate_loss(
            log_prob,
            old_log_prob,
            advantage,
            clip=clip,
            clip_high=clip_high,
            dual_clip=dual_clip,
            mask=mask,
            average=average,
        )
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    high = 1.0 + (clip if clip_high is None else clip_high)
    return _ClippedSurrogate.apply(log_prob, old_log_prob, advantage, 1.0 - clip, high)  # type: ignore[return-value]


class _SurrogateContext(Protocol):
    """What `_ClippedSurrogate` stores between its two passes."""

    low: float
    high: float
    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _ClippedSurrogate(torch.autograd.Function):
    """∂L/∂log π(a|s) = -ρ A / B where ρ A is the smaller of the two sides, else 0."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: _SurrogateContext,
        log_prob: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        low: float,
        high: float,
    ) -> Tensor:
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp_()
        plain = ratio * advantage
        clipped = ratio.clamp(low, high).mul_(advantage)
        ctx.save_for_backward(log_prob, old_log_prob, advantage, plain, clipped, log_ratio, ratio)
        ctx.low, ctx.high = low, high
        return torch.minimum(plain, clipped).mean().neg_()

    @staticmethod
    def backward(ctx: _SurrogateContext, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        log_prob, old_log_prob, advantage, plain, clipped, log_ratio, ratio = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the gradient gets a graph of its own
            loss = policy_losses.clipped_surrogate_loss(
                log_prob, old_log_prob, advantage, clip=1.0 - ctx.low, clip_high=ctx.high - 1.0
            )
            return (
                *torch.autograd.grad(loss, log_prob, gradient, create_graph=True),
                None,
                None,
                None,
                None,
            )
        idle = (plain > clipped).logical_or_(log_ratio > MAX_LOG_RATIO)
        return (
            (advantage * (gradient / -plain.numel())).mul_(ratio).masked_fill_(idle, 0.0),
            None,
            None,
            None,
            None,
        )
