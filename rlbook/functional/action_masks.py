"""Action masks: policy and maximum action value restricted to the allowed actions.

    π(a|s) = exp z_a / Σ_{b allowed} exp z_b   where a is allowed, otherwise 0

A mask is bool [..., A]; True marks the allowed actions, of which each row has at least one.
None means that all are.

Source: Huang and Ontañón 2022, arXiv:2006.14171, section 3.
"""

from __future__ import annotations

import math

from torch import Tensor

from rlbook.functional._shapes import check_same_shape


def masked_logits(logits: Tensor, action_mask: Tensor | None) -> Tensor:
    """Sets the logits of forbidden actions to -∞: their probability and their gradient are 0.

    Args:
        logits: [..., A].
        action_mask: [..., A], bool; True marks the allowed actions. None means all.

    Returns:
        [..., A].

    Source: Huang and Ontañón 2022, arXiv:2006.14171, eq. 6, with -∞ for their -1e8.
    """
    check_same_shape(logits=logits, action_mask=action_mask)
    return logits if action_mask is None else logits.masked_fill(~action_mask, -math.inf)


def masked_max(values: Tensor, action_mask: Tensor | None) -> Tensor:
    """max_a Q(s, a) over the allowed actions.

    Args:
        values: [..., A]. Q(s, ·), in reward units.
        action_mask: [..., A], bool; True marks the allowed actions. None means all.

    Returns:
        [...], in reward units.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, the target of eq. 1; the mask is ours.
    """
    return masked_logits(values, action_mask).amax(-1)


def masked_argmax(values: Tensor, action_mask: Tensor | None) -> Tensor:
    """argmax_a of Q(s, a) or of logits over the allowed actions; the first one among ties.

    Args:
        values: [..., A].
        action_mask: [..., A], bool; True marks the allowed actions. None means all.

    Returns:
        [...], int64.

    Source: van Hasselt et al. 2016, arXiv:1509.06461, eq. 4, for targets; the mask is ours.
    """
    return masked_logits(values, action_mask).argmax(-1)
