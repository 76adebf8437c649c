"""Process rewards: from scores of single steps to a score of the whole solution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rlbook.functional._shapes import check_same_shape

AGGREGATES = ("min", "product", "last", "mean", "sum")


def step_label_loss(logit: Tensor, label: Tensor, *, mask: Tensor) -> Tensor:
    """The loss of a process reward model: binary cross-entropy at the end of each step, in nats.

    L = -mean( y log σ(z) + (1 - y) log(1 - σ(z)) )

    Args:
        logit: z, [B, S], one for each of the S steps of solutions [B]; carries gradient.
        label: y, same shape, in [0, 1]: whether the step is right, or the share of continuations
            from it that came to a right answer.
        mask: same shape, bool; True marks the steps that there are.

    Returns:
        A scalar; zero if there is no step.

    Source: Wang et al. 2023 (Math-Shepherd), arXiv:2312.08935, eq. 2, with the labels of eq. 3
    (hard) or eq. 4 (soft).
    """
    check_same_shape(logit=logit, label=label, mask=mask)
    each = F.binary_cross_entropy_with_logits(
        logit.where(mask, 0.0), label.where(mask, 0.0).to(logit), reduction="none"
    )
    return each.where(mask, 0.0).sum() / mask.sum().clamp(min=1)


def aggregate_steps(score: Tensor, mask: Tensor, how: str) -> Tensor:
    """The score of a solution from the scores of its steps.

    Args:
        score: [B, S], the probability that each step is right.
        mask: same shape, bool; True marks the steps that there are.
        how: "min", the worst step; "product", the probability that all are right if they are
            independent; "last", the last step; "mean"; or "sum", which grows with the number of
            steps.

    Returns:
        [B]; for a solution without steps 0.

    Source: min and product: Lightman et al. 2023, arXiv:2305.20050, appendix F; min: Math-Shepherd,
    section 3.4.
    """
    check_same_shape(score=score, mask=mask)
    if how == "min":
        found = score.where(mask, 1.0).amin(dim=1)
    elif how == "product":
        found = score.where(mask, 1.0).prod(dim=1)
    elif how == "last":
        place = (mask.sum(dim=1) - 1).clamp(min=0)
        found = score.gather(1, place[:, None])[:, 0]
    elif how in ("mean", "sum"):
        total = score.where(mask, 0.0).sum(dim=1)
        found = total / mask.sum(dim=1).clamp(min=1) if how == "mean" else total
    else:
        raise ValueError(f"how must be one of {', '.join(AGGREGATES)}, got {how!r}")
    return torch.where(mask.any(dim=1), found, 0.0)
