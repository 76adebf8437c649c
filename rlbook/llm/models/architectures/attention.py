"""Attention, heads, masks and positions: the components of every transformer in the book.

    attention(q, k, v) = softmax(q kᵀ / √D) v

n queries ask, m keys answer, and each of the m values is a vector of D numbers. A mask says which
query may look at which key. Without positions the result would not depend on the order of keys and
values; sinusoidal positions are added to the tokens once, rotary ones turn queries and keys.

Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1 and sections 3.2 and 3.5; Su et al. 2021,
arXiv:2104.09864, eq. 34 (rotary positions).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √D): the weight of each value for each query; every row sums to 1.

    Args:
        q: [..., n, D], queries.
        k: [..., m, D], keys.
        mask: bool [..., n, m], True where a query may look at a key; None allows all. A query that
            may look at nothing gets NaN.

    Returns:
        [..., n, m].

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
    """
    score = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [..., n, m]
    if mask is not None:
        score = score.masked_fill(~mask, -torch.inf)
    return score.softmax(-1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention: for each query a mean of the values, weighted by
    `attention_weights`.

    Args:
        q, k, mask: as in `attention_weights`.
        v: [..., m, D], values.

    Returns:
        [..., n, D].

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
    """
    return attention_weights(q, k, mask) @ v


def causal_mask(n: int, m: int | None = None) -> Tensor:
    """The mask with which the last n of m tokens (n of n by default) attend to themselves and
    earlier tokens: bool [n, m]."""
    m = n if m is None else m
    return torch.arange(m) <= torch.arange(m - n, m)[:, None]


def split_heads(x: Tensor, width: int) -> Tensor:
    """[B, n, H·D] → [B, H, n, D], with heads of D = `width` numbers."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """The inverse of `split_heads`: [B, H, n, D] → [B, n, H·D]."""
    return x.transpose(1, 2).flatten(2)


def sinusoidal_positions(n: int, width: int, theta: float = 10_000.0) -> Tensor:
    """Fixed, not learned, position embeddings: [n, width].

    Component i of position t is sin(t · θ^(-2i/d)), component i + d/2 its cosine. The paper writes
    sine and cosine of a frequency side by side; the order here, that of `apply_rope` and of Marian,
    is another numbering of the same components.

    Args:
        n: positions, from 0 on.
        width: d, even.
        theta: θ; the longest wave has nearly 2πθ tokens.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    frequency = theta ** (-torch.arange(width // 2) / (width // 2))  # [d/2]
    angle = torch.arange(n)[:, None] * frequency  # [n, d/2]
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def apply_rope(x: Tensor, position: Tensor, theta: float) -> Tensor:
    """Rotary position embedding: rotates components i and i + D/2 of x [B, H, n, D], as a point in
    the plane, by the angle position · θ^(-2i/D). The product of a query and a key then depends only
    on their distance.

    Args:
        x: [B, H, n, D], queries or keys, D even.
        position: int64 [n].
        theta: θ, the base of the angles.

    Source: Su et al. 2021, arXiv:2104.09864, eq. 34, with the halves of Llama's checkpoints in
    place of neighbours.
    """
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half) / half)  # [D/2]
    angle = position[:, None] * frequency  # [n, D/2]
    left, right = x.split(half, dim=-1)  # [B, H, n, D/2] each
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class MultiHeadAttention(nn.Module):
    """H parallel attention heads, each with its own queries, keys and values.

    x asks. Keys and values come from x too (self-attention), or from `context`, another text
    (cross-attention).

    Args:
        width: d, numbers a token.
        heads: H, which divides d.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads  # D
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)  # [d, d]
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)  # [d, d]

    def forward(
        self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None
    ) -> Tensor:
        """x [B, n, d], a mask bool [B or 1, 1, n or 1, m], context [B, m, d] → [B, n, d]."""
        context = x if context is None else context
        q = split_heads(self.q_proj(x), self.head_width)  # [B, H, n, D]
        k = split_heads(self.k_proj(context), self.head_width)  # [B, H, m, D]
        v = split_heads(self.v_proj(context), self.head_width)  # [B, H, m, D]
        return self.out_proj(join_heads(attention(q, k, v, mask)))

    def weights(
        self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None
    ) -> Tensor:
        """The attention weights: [B, H, n, m]."""
        q = split_heads(self.q_proj(x), self.head_width)
        k = split_heads(self.k_proj(x if context is None else context), self.head_width)
        return attention_weights(q, k, mask)
