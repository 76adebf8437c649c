"""T5's positions: a learned bias of the attention scores for each distance and head.

    attention_h(q, k, v) = softmax(q kᵀ + b_h[bucket(j - i)]) v        # query at i, key at j

No position is added to a token; what the model knows of order is the bias b, one number for each
head and *bucket* of distances. Small distances have a bucket of their own, larger ones share: the
buckets grow like a logarithm, and all beyond 128 are one. So a text may be longer than any that was
seen in training. The first layer owns the table, and all layers use it.

Two more differences from the transformer of 2017: scores are not divided by √D (the weights are
drawn smaller instead), and the norm, without a mean, stands before each part (`RMSNorm`).

Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1; Shaw et al. 2018, arXiv:1803.02155
(relative positions); the buckets: the function `_relative_position_bucket` of its code. No dropout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures.attention import causal_mask, join_heads, split_heads
from rlbook.llm.models.architectures.norms import RMSNorm


def relative_position_bucket(
    distance: Tensor, *, both_ways: bool, buckets: int = 32, longest: int = 128
) -> Tensor:
    """The bucket of each distance.

    Of the n buckets of a direction the first n/2 hold one distance each; the others hold those up
    to `longest`, spaced evenly in the logarithm, and the last one all beyond.

    Args:
        distance: int64, any shape: a key's place minus the query's.
        both_ways: keys stand before and after the query, and each side has half of the buckets; or
            else before it alone, and those after it are in bucket 0.
        buckets: how many there are.
        longest: from this distance on there is one bucket.

    Returns:
        int64, the same shape, from 0 to `buckets` - 1.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1.
    """
    count = buckets // 2 if both_ways else buckets  # of one direction
    far = distance.abs() if both_ways else (-distance).clamp(min=0)
    exact = count // 2
    growth = (far.clamp(min=1).float() / exact).log() / math.log(longest / exact)
    shared = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
    bucket = torch.where(far < exact, far, shared)
    return bucket + count * (distance > 0) if both_ways else bucket


class RelativeBias(nn.Module):
    """The table of biases, one number for each bucket and head.

    Args:
        heads: H.
        both_ways: as in `relative_position_bucket`; True in an encoder.
        buckets, longest: as there.
    """

    def __init__(
        self, heads: int, *, both_ways: bool, buckets: int = 32, longest: int = 128
    ) -> None:
        super().__init__()
        self.both_ways, self.buckets, self.longest = both_ways, buckets, longest
        self.table = nn.Embedding(buckets, heads)

    def forward(self, n: int, m: int | None = None) -> Tensor:
        """The bias for the last n of m positions (n of n by default): [1, H, n, m]."""
        m = n if m is None else m
        distance = torch.arange(m) - torch.arange(m - n, m)[:, None]  # [n, m]
        bucket = relative_position_bucket(
            distance, both_ways=self.both_ways, buckets=self.buckets, longest=self.longest
        )
        return self.table(bucket).permute(2, 0, 1)[None]


class T5Attention(nn.Module):
    """H attentions whose scores have a bias for the distance, and no √D.

    Args:
        width: d, numbers a token.
        heads: H.
        head_width: D; H·D need not be d.
    """

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.q, self.k, self.v = (
            nn.Linear(width, heads * head_width, bias=False) for _ in range(3)
        )
        self.o = nn.Linear(heads * head_width, width, bias=False)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        """x [B, n, d]; bias [1, H, n, m], None for none; mask bool [B or 1, 1, n or 1, m]; context
        [B, m, d], where keys and values come from another text → [B, n, d]."""
        context = x if context is None else context
        q, k, v = (
            split_heads(project(text), self.head_width)
            for project, text in ((self.q, x), (self.k, context), (self.v, context))
        )
        score = q @ k.transpose(-2, -1)  # [B, H, n, m], not divided by √D
        if bias is not None:
            score = score + bias
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        return self.o(join_heads(score.softmax(-1) @ v))


class T5Layer(nn.Module):
    """Self-attention, in a decoder cross-attention, and two matrices with a ReLU between them; each
    after a norm and with a residual connection.

    Args:
        width: d.
        heads: H.
        head_width: D.
        feed_forward: f.
        decoder: whether it has cross-attention and a causal mask.
        eps: ε of the norms.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        feed_forward: int,
        *,
        decoder: bool = False,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.attention, self.norm = T5Attention(width, heads, head_width), RMSNorm(width, eps)
        self.decoder = decoder
        if decoder:
            self.cross_attention = T5Attention(width, heads, head_width)
            self.cross_norm = RMSNorm(width, eps)
        self.wi = nn.Linear(width, feed_forward, bias=False)  # [f, d]
        self.wo = nn.Linear(feed_forward, width, bias=False)  # [d, f]
        self.last_norm = RMSNorm(width, eps)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """x [B, n, d], bias [1, H, n, n]; of an encoder a mask bool [B, 1, 1, n], True on tokens; of
        a decoder the encoder's memory [B, m, d] with its mask [B, 1, 1, m] → [B, n, d]."""
        own = causal_mask(x.shape[1]) if self.decoder else mask
        x = x + self.attention(self.norm(x), bias, own)
        if self.decoder:
            x = x + self.cross_attention(self.cross_norm(x), None, mask, context=memory)
        return x + self.wo(F.relu(self.wi(self.last_norm(x))))


NAMES = {
    "SelfAttention": "attention",
    "EncDecAttention": "cross_attention",
    "DenseReluDense.": "",
}


def from_transformers_block(block: nn.Module) -> tuple[T5Layer, RelativeBias | None]:
    """A block of transformers' T5 (`T5Block`) with a copy of its weights, and the table of biases,
    which only a model's first block has.

    Raises:
        ValueError: its feed-forward part is another one, such as the gated GELU of T5 1.1.
    """
    weights: Mapping[str, Tensor] = block.state_dict()
    found: dict[str, Tensor] = {}
    decoder = any("EncDecAttention" in name for name in weights)
    for name, weight in weights.items():
        layer, _, rest = name.removeprefix("layer.").partition(".")
        for theirs, ours in NAMES.items():
            rest = rest.replace(theirs, ours)
        norms = {"0": "norm", "1": "cross_norm" if decoder else "last_norm", "2": "last_norm"}
        found[rest.replace("layer_norm", norms[layer])] = weight
    if "wi.weight" not in found:
        raise ValueError("the feed-forward part must have one matrix in front, wi, and a ReLU")
    table = found.pop("attention.relative_attention_bias.weight", None)
    feed_forward, width = found["wi.weight"].shape
    theirs = block.layer[0].SelfAttention  # type: ignore[union-attr, index]
    heads, head_width = int(theirs.n_heads), int(theirs.key_value_proj_dim)
    eps = float(block.layer[0].layer_norm.variance_epsilon)  # type: ignore[union-attr, index]
    ours = T5Layer(width, heads, head_width, feed_forward, decoder=decoder, eps=eps)
    ours.load_state_dict(found)
    if table is None:
        return ours, None
    bias = RelativeBias(
        heads,
        both_ways=not decoder,
        buckets=table.shape[0],
        longest=int(theirs.relative_attention_max_distance),
    )
    bias.table.load_state_dict({"weight": table})
    return ours, bias
