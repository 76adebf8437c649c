"""A readable causal transformer: the Llama and Qwen2 of Hugging Face folders, in the order of the
forward pass.

    x = embedding of each token                                          # [B, n, d]
    for each layer:
        x = x + attention(norm(x))    # tokens look at the ones before them
        x = x + feed_forward(norm(x)) # each token by itself
    logits = norm(x) · (output matrix)ᵀ                                  # [B, n, V]

B texts of n tokens; d numbers a token (`hidden_size`), H heads of D numbers for the queries, K
heads for keys and values, f units in the feed-forward part, V tokens in the vocabulary. Modules are
called what the files of the two architectures call them, so a folder's weights fit as they are.

Source: Vaswani et al. 2017, arXiv:1706.03762 (attention); Zhang & Sennrich 2019, arXiv:1910.07467
(RMSNorm); Su et al. 2021, arXiv:2104.09864 (rotary positions); Ainslie et al. 2023,
arXiv:2305.13245 (grouped queries); Shazeer 2020, arXiv:2002.05202 (SwiGLU). Its fast form is
`rlbook.fast.llama`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures.attention import (
    apply_rope,
    attention,
    causal_mask,
    join_heads,
    split_heads,
)
from rlbook.llm.models.architectures.norms import RMSNorm
from rlbook.llm.models.model_folder import FolderError, check_folder, weight_files

Cache = list[tuple[Tensor, Tensor]]
"""For each layer the keys and the values [B, K, tokens so far, D]; empty before the first token."""


@dataclass(frozen=True)
class TransformerSizes:
    """The entries of a config.json that the forward pass needs."""

    vocabulary: int  # V
    width: int  # d, numbers a token
    layers: int
    heads: int  # H, of the queries
    kv_heads: int  # K, of keys and values; divides H
    head_width: int  # D, even
    feed_forward: int  # f
    eps: float = 1e-6  # ε of RMSNorm
    theta: float = 10_000.0  # base of the rotary angles
    qkv_bias: bool = False  # Qwen2 has one, Llama has none
    tied: bool = False  # whether the output matrix is the embedding


class Attention(nn.Module):
    """Causal self-attention: each token receives a mean of the values up to its own, weighted by
    the softmax of query · key."""

    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        self.sizes, bias = sizes, sizes.qkv_bias
        queries, keys = sizes.heads * sizes.head_width, sizes.kv_heads * sizes.head_width
        self.q_proj = nn.Linear(sizes.width, queries, bias=bias)  # [H·D, d]
        self.k_proj = nn.Linear(sizes.width, keys, bias=bias)  # [K·D, d]
        self.v_proj = nn.Linear(sizes.width, keys, bias=bias)  # [K·D, d]
        self.o_proj = nn.Linear(queries, sizes.width, bias=False)  # [d, H·D]

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        sizes, n = self.sizes, x.shape[1]
        # [B, H or K, n, D]
        q, k, v = (
            split_heads(project(x), sizes.head_width)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        past = cache[layer][0].shape[2] if layer < len(cache) else 0  # tokens read before
        position = torch.arange(past, past + n)
        q, k = apply_rope(q, position, sizes.theta), apply_rope(k, position, sizes.theta)
        if past:
            k, v = (torch.cat(pair, dim=2) for pair in zip(cache[layer], (k, v), strict=True))
        cache[layer : layer + 1] = [(k, v)]  # [B, K, past + n, D]
        k, v = (t.repeat_interleave(sizes.heads // sizes.kv_heads, dim=1) for t in (k, v))
        return self.o_proj(join_heads(attention(q, k, v, causal_mask(n, past + n))))


class FeedForward(nn.Module):
    """SwiGLU: W_down (silu(W_gate x) · W_up x)."""

    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.width, sizes.feed_forward, bias=False)  # [f, d]
        self.up_proj = nn.Linear(sizes.width, sizes.feed_forward, bias=False)  # [f, d]
        self.down_proj = nn.Linear(sizes.feed_forward, sizes.width, bias=False)  # [d, f]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention, then the feed-forward network, each with a residual connection."""

    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(sizes.width, sizes.eps), Attention(sizes)
        self.post_attention_layernorm, self.mlp = (
            RMSNorm(sizes.width, sizes.eps),
            FeedForward(sizes),
        )

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    """Maps tokens to the logits of the next token."""

    def __init__(self, sizes: TransformerSizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocabulary, sizes.width)  # [V, d]
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.width, sizes.eps)
        if not sizes.tied:
            self.lm_head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)  # [V, d]

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Next-token logits after each token: int64 [B, n] → [B, n, V].

        With a cache, `tokens` are those after what it has read; it is extended in place.
        """
        x, cache = self.embed_tokens(tokens), [] if cache is None else cache  # [B, n, d]
        for index, layer in enumerate(self.layers):
            x = layer(x, cache, index)
        output = getattr(self, "lm_head", self.embed_tokens)  # tied: one matrix for both
        return F.linear(self.norm(x), output.weight)


@torch.inference_mode()
def generate_greedy(model: Transformer, tokens: Tensor, new: int, *, cached: bool = True) -> Tensor:
    """Greedy decoding: appends the `new` most likely tokens to each text: int64 [B, n] → [B, n +
    new].

    With the cache each step reads one token; without it, the whole text again.
    """
    cache: Cache | None = [] if cached else None
    unread = tokens
    for _ in range(new):
        token = model(unread, cache)[:, -1].argmax(-1, keepdim=True)  # [B, 1]
        tokens = torch.cat([tokens, token], dim=1)
        unread = token if cached else tokens
    return tokens


def from_folder(folder: str | Path) -> Transformer:
    """The Llama or Qwen2 of a local Hugging Face folder, in float32.

    Raises:
        FolderError: the folder is not such a model, or asks for what is not written above.
    """
    from transformers import AutoConfig

    check_folder(folder)
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    sizes = sizes_of(config.to_dict())
    weights = {
        name.removeprefix("model."): weight.float()
        for file in weight_files(Path(folder))
        for name, weight in load_file(file).items()
        if not (sizes.tied and name == "lm_head.weight")
    }
    with torch.device("meta"):
        model = Transformer(sizes)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()[:120]
        raise FolderError(f"model: the weights in {str(folder)!r} do not fit ({reason})") from None
    return model


def sizes_of(config: Mapping[str, Any]) -> TransformerSizes:
    """The sizes in a config. Raises FolderError if it requires a feature that is missing above."""
    kind, rope = config["model_type"], config.get("rope_parameters", {})
    asked = {
        "model_type": (kind, ("llama", "qwen2")),
        "hidden_act": (config.get("hidden_act"), ("silu",)),
        "rope_type": (rope.get("rope_type"), ("default",)),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), (1.0,)),
        "attention_bias": (bool(config.get("attention_bias")), (False,)),
        "mlp_bias": (bool(config.get("mlp_bias")), (False,)),
        "use_sliding_window": (bool(config.get("use_sliding_window")), (False,)),
    }
    for name, (value, allowed) in asked.items():
        if value not in allowed:
            only = " or ".join(map(repr, allowed))
            raise FolderError(f"model: {name} must be {only} here, got {str(value)[:40]!r}")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    return TransformerSizes(
        vocabulary=config["vocab_size"],
        width=width,
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config["num_key_value_heads"],
        head_width=config.get("head_dim") or width // heads,
        feed_forward=config["intermediate_size"],
        eps=config["rms_norm_eps"],
        theta=rope["rope_theta"],
        qkv_bias=kind == "qwen2",
        tied=config["tie_word_embeddings"],
    )
