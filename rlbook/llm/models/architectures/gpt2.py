"""GPT-2: the causal transformer before Llama.

    x = embedding of each token + embedding of each position             # [B, n, d]
    for each block:
        x = x + attention(norm(x))
        x = x + feed_forward(norm(x))
    logits = norm(x) · (embedding of the tokens)ᵀ                        # [B, n, V]

What differs from Llama (`transformer`): learned positions in place of rotary ones, LayerNorm in
place of RMSNorm, gelu between two matrices in place of SwiGLU, biases everywhere, and keys and
values for each head. Modules are called what GPT-2's files call them.

Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3;
Hendrycks & Gimpel 2016, arXiv:1606.08415 (gelu). No dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures.attention import (
    attention,
    causal_mask,
    join_heads,
    split_heads,
)
from rlbook.llm.models.architectures.norms import LayerNorm
from rlbook.llm.models.architectures.transformer import Cache


class Conv1D(nn.Module):
    """x W + b, with W [in, out]: a linear layer whose matrix lies the other way round in GPT-2's
    files."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, out) * 0.02)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    """Causal self-attention; queries, keys and values come from one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads  # D
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        n = x.shape[1]
        # [B, H, n, D]
        q, k, v = (split_heads(part, self.head_width) for part in self.c_attn(x).chunk(3, dim=-1))
        if layer < len(cache):
            k, v = (torch.cat(pair, dim=2) for pair in zip(cache[layer], (k, v), strict=True))
        cache[layer : layer + 1] = [(k, v)]  # [B, H, past + n, D]
        return self.c_proj(join_heads(attention(q, k, v, causal_mask(n, k.shape[2]))))


class GPT2FeedForward(nn.Module):
    """gelu(x W_1 + b_1) W_2 + b_2, with the approximation of gelu by tanh."""

    def __init__(self, width: int, feed_forward: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, feed_forward), Conv1D(feed_forward, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    """Attention, then the feed-forward network, each with a norm before it and a residual
    connection."""

    def __init__(self, width: int, heads: int, feed_forward: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.ln_1, self.attn = LayerNorm(width, eps), GPT2Attention(width, heads)
        self.ln_2, self.mlp = LayerNorm(width, eps), GPT2FeedForward(width, feed_forward)

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache, layer)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Maps tokens to the logits of the next token.

    Args:
        vocabulary: V.
        width: d, numbers a token.
        layers, heads: H divides d.
        feed_forward: f, GPT-2's is 4 d.
        positions: the longest text.
        eps: ε of LayerNorm.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        layers: int,
        heads: int,
        feed_forward: int,
        positions: int,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(GPT2Block(width, heads, feed_forward, eps) for _ in range(layers))
        self.ln_f = LayerNorm(width, eps)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Next-token logits after each token: int64 [B, n] → [B, n, V].

        With a cache, `tokens` are those after what it has read; it is extended in place.
        """
        cache = [] if cache is None else cache
        past = cache[0][0].shape[2] if cache else 0
        x = self.wte(tokens) + self.wpe(torch.arange(past, past + tokens.shape[1]))  # [B, n, d]
        for index, block in enumerate(self.h):
            x = block(x, cache, index)
        return F.linear(self.ln_f(x), self.wte.weight)


def from_transformers(model: nn.Module) -> GPT2:
    """A `GPT2LMHeadModel` of transformers with a copy of its weights.

    Raises:
        ValueError: another architecture, or a setting that is not written above.
    """
    config = model.config.to_dict()  # type: ignore[operator, union-attr]
    asked = {
        "model_type": ("gpt2",),
        "activation_function": ("gelu_new",),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
    }
    for name, allowed in asked.items():
        if config[name] not in allowed:
            raise ValueError(f"{name} must be {allowed[0]!r} here, got {config[name]!r}")
    ours = GPT2(
        config["vocab_size"],
        width=config["n_embd"],
        layers=config["n_layer"],
        heads=config["n_head"],
        feed_forward=config["n_inner"] or 4 * config["n_embd"],
        positions=config["n_positions"],
        eps=config["layer_norm_epsilon"],
    )
    weights = {name.removeprefix("transformer."): x for name, x in model.state_dict().items()}
    ours.load_state_dict({name: x for name, x in weights.items() if name != "lm_head.weight"})
    return ours
