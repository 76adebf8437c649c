"""Divergences between a student's and a teacher's action distributions, and distillation losses
based on them.

Both come as logits [..., A], unnormalised log-probabilities. A divergence is [...], in nats, and
carries gradient to the student. Which one is minimised decides what a student does that cannot
have the teacher's whole distribution: forward KL spreads over all that the teacher might do,
reverse KL keeps to a part that the teacher surely does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbook.functional._shapes import check_same_shape, zero_outside_mask
from rlbook.functional.averages import Average, per_token, weighted_sum

DIVERGENCES = ("forward", "reverse", "jsd")
"""The possible values of `divergence`."""


def forward_kl(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL(teacher ‖ student) = Σ_a p(a) (log p(a) - log q(a)), p the teacher's and q the student's.

    Infinite where the student rules out what the teacher might do: it covers every mode.

    Args:
        student_logits: [..., A], carry gradient.
        teacher_logits: [..., A].

    Returns:
        [...], in nats, at least 0.

    Source: Kullback & Leibler 1951; for distillation: Hinton et al. 2015, arXiv:1503.02531,
    section 2, whose cross-entropy it is less the teacher's entropy.
    """
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    return _kl(teacher_logits.log_softmax(-1), student_logits.log_softmax(-1))


def reverse_kl(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL(student ‖ teacher) = Σ_a q(a) (log q(a) - log p(a)); shapes as in `forward_kl`.

    It costs nothing not to do what the teacher might do: it seeks a mode.

    Source: Kullback & Leibler 1951; for language models: Gu et al. 2023 (MiniLLM),
    arXiv:2306.08543, eq. 1.
    """
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    return _kl(student_logits.log_softmax(-1), teacher_logits.log_softmax(-1))


def generalised_jsd(student_logits: Tensor, teacher_logits: Tensor, mixture: float = 0.5) -> Tensor:
    """JSD_β = β KL(p ‖ m) + (1-β) KL(q ‖ m), m = β p + (1-β) q; at most ln 2.

    Divided by β it tends to the forward KL as β → 0; divided by 1-β, to the reverse KL as β → 1.
    Undivided it tends to 0 at both ends, so there it is, as in TRL, the KL that it tends to when
    divided.

    Args:
        student_logits, teacher_logits: as in `forward_kl`.
        mixture: β in [0, 1], the teacher's share of m. At ½ this is the Jensen-Shannon divergence,
            at 0 `forward_kl`, at 1 `reverse_kl`.

    Source: Agarwal et al. 2023 (GKD), arXiv:2306.13649, eq. 1; Lin 1991. The ends: TRL's GKD.
    """
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    if not 0.0 <= mixture <= 1.0:
        raise ValueError(f"mixture must be a number in [0, 1], got {mixture!r}")
    if mixture in (0.0, 1.0):
        return (reverse_kl if mixture else forward_kl)(student_logits, teacher_logits)
    student, teacher = student_logits.log_softmax(-1), teacher_logits.log_softmax(-1)
    neither = (teacher == -torch.inf) & (student == -torch.inf)  # logaddexp has no gradient there
    mean = torch.logaddexp(
        teacher.masked_fill(neither, 0.0) + math.log(mixture),
        student.masked_fill(neither, 0.0) + math.log1p(-mixture),
    ).masked_fill(neither, -torch.inf)
    return mixture * _kl(teacher, mean) + (1.0 - mixture) * _kl(student, mean)


def divergence(
    student_logits: Tensor, teacher_logits: Tensor, kind: str = "forward", mixture: float = 0.5
) -> Tensor:
    """The divergence named by `kind`, one of `DIVERGENCES`; `mixture` is the β of the generalised
    JSD."""
    if kind == "forward":
        return forward_kl(student_logits, teacher_logits)
    if kind == "reverse":
        return reverse_kl(student_logits, teacher_logits)
    if kind != "jsd":
        raise ValueError(f"kind must be one of {', '.join(DIVERGENCES)}, got {kind!r}")
    return generalised_jsd(student_logits, teacher_logits, mixture)


def soft_label_loss(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    temperature: float = 1.0,
    kind: str = "forward",
    mixture: float = 0.5,
    mask: Tensor | None = None,
    average: Average = per_token,
) -> Tensor:
    """T² times the divergence between both distributions at temperature T; 0 if they are equal.

    L = T² mean D( softmax(z_p / T), softmax(z_q / T) )

    Without the factor, the gradient of forward KL in a logit of the student would be
    (softmax(z_q / T) - softmax(z_p / T)) / T, for large T about (z_q - z_p) / (A T²) where the
    logits have mean 0: T² keeps its size where T is changed.

    Args:
        student_logits: [B, A] or [B, T, A], carry gradient.
        teacher_logits: same shape.
        temperature: T, dimensionless, > 0; above 1 small probabilities count for more.
        kind, mixture: as in `divergence`.
        mask: [B] or [B, T], bool; True marks the elements that count. None means all.
        average: how the elements become one number; see functional/averages.py.

    Returns:
        A scalar, in nats.

    Source: Hinton et al. 2015, arXiv:1503.02531, section 2 and eq. 4. TRL's GKD leaves out T².
    """
    entries = None if mask is None else mask[..., None].expand_as(student_logits)
    student, teacher = (zero_outside_mask(x, entries) for x in (student_logits, teacher_logits))
    found = divergence(student / temperature, teacher / temperature, kind, mixture)
    return temperature**2 * weighted_sum(found, mask, average)


def _kl(first: Tensor, second: Tensor) -> Tensor:
    """Σ_a p (log p - log p') from log-probabilities; an action with p = 0 contributes 0."""
    difference = (first - second).masked_fill(first == -torch.inf, 0.0)
    return (first.exp() * difference).sum(-1)
