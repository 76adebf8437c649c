"""Llama's forward pass on the weights of a Hugging Face `LlamaForCausalLM`, written for speed on a CPU.

Training: completions of one prompt share the prompt's part of the pass, and only the completion's columns reach the output.
Acting: `LlamaDecoder` keeps keys and values in one preallocated block and reads each distinct prompt once.
Source: Touvron et al. 2023, arXiv:2302.13971 (RMSNorm, SwiGLU); Su et al. 2021, arXiv:2104.09864 (RoPE); Ainslie et al. 2023,
arXiv:2305.13245 (grouped queries). Equal to transformers' own forward pass to 1e-5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.agent import State
from rlbook.fast.matrix_product import linear, product
from rlbook.fast.modules import inside, ordinary, untouched
from rlbook.llm import causal_lm
from rlbook.llm.rows import Rows, completion_mask, positions, prompt_mask


def is_plain_llama(model: nn.Module, kind: str = "LlamaForCausalLM") -> bool:
    """Whether the functions below compute this Llama (or its trunk, a "LlamaModel") as it is now.

    That is: its own layers, nothing put in their place, between them or over them, and float32 weights on the CPU.
    """
    if type(model).__module__ != LLAMA or type(model).__name__ != kind:
        return False
    config: Any = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.hidden_act == "silu" and rope.get("rope_type", "default") in ("default", "llama3", "linear")
        and getattr(config, "_attn_implementation", None) in ("sdpa", "eager")
        and ordinary() and all(map(_plain_layer, inside(model)))
    )  # fmt: skip


def _plain_layer(module: nn.Module) -> bool:
    """A layer of transformers' Llama or of torch, untouched, with float32 weights on the CPU."""
    kind = type(module)
    if not (kind.__module__ == LLAMA or kind in PLAIN or kind.__name__ == "SiLUActivation") or not untouched(module):
        return False
    if kind is nn.Embedding and module.max_norm is not None:
        return False
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        if name != "weight" or type(parameter) is not nn.Parameter or parameter.dtype is not torch.float32 or not parameter.is_cpu:
            return False
    return not (module.training and getattr(module, "attention_dropout", 0.0))


LLAMA = "transformers.models.llama.modeling_llama"
PLAIN = (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU)


def logits(model: Any, rows: Rows) -> Tensor:
    """The fast form of `rlbook.llm.causal_lm.logits`."""
    if not is_plain_llama(model):
        return causal_lm.logits.plain(model, rows)  # type: ignore[attr-defined]
    return model.lm_head(_hidden_states(model.model, rows))


def hidden_states(trunk: Any, rows: Rows) -> Tensor:
    """The fast form of `rlbook.llm.causal_lm.hidden_states`."""
    return _hidden_states(trunk, rows) if is_plain_llama(trunk, "LlamaModel") else causal_lm.hidden_states.plain(trunk, rows)  # type: ignore[attr-defined]


def decoder(model: Any) -> LlamaDecoder | causal_lm.CausalDecoder:
    """The fast form of `rlbook.llm.causal_lm.decoder`."""
    return LlamaDecoder(model) if is_plain_llama(model) else causal_lm.decoder.plain(model)  # type: ignore[attr-defined]


class Sizes(NamedTuple):
    """The numbers of a Llama that its forward pass needs."""

    heads: int                               # H, query heads
    kv_heads: int                            # K, key and value heads; divides H
    width: int                               # D, numbers in a head
    eps: float                               # RMSNorm's ε

    @staticmethod
    def of(config: Any) -> Sizes:
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return Sizes(config.num_attention_heads, config.num_key_value_heads, width, config.rms_norm_eps)


def _hidden_states(trunk: Any, rows: Rows) -> Tensor:
    """What the last layer says after the prompt and after each completion token, with gradients.

    Args:
        trunk: a `LlamaModel`.
        rows: B completions of T tokens.

    Returns:
        [B, T + 1, d]: column 0 stands behind the prompt, column t behind t completion tokens.
    """
    sizes = Sizes.of(trunk.config)
    (count, width), (batch, time) = rows.prompt.shape, rows.completion.shape
    split = [count * width, batch * time]
    x = trunk.embed_tokens(torch.cat([rows.prompt.reshape(-1), rows.completion.reshape(-1)]))                       # [M, d]
    cos, sin = _rotation(trunk, torch.cat([part.reshape(-1) for part in positions(rows)]))                          # [M, 1, D]
    attend = _Attention(sizes, rows)
    for layer in trunk.layers:
        h = _rms_norm(x, layer.input_layernorm.weight, sizes.eps)
        attention = layer.self_attn
        q = _rotate(linear(h, attention.q_proj.weight).view(-1, sizes.heads, sizes.width), cos, sin)
        k = _rotate(linear(h, attention.k_proj.weight).view(-1, sizes.kv_heads, sizes.width), cos, sin)
        v = linear(h, attention.v_proj.weight).view(-1, sizes.kv_heads, sizes.width)
        x = x + linear(attend(q, k, v), attention.o_proj.weight)
        h = _rms_norm(x, layer.post_attention_layernorm.weight, sizes.eps)
        gate, up = linear(h, layer.mlp.gate_proj.weight), linear(h, layer.mlp.up_proj.weight)
        x = x + linear(F.silu(gate) * up, layer.mlp.down_proj.weight)
    prompt, completion = _rms_norm(x, trunk.norm.weight, sizes.eps).split(split)
    last = prompt.view(count, width, -1)[:, -1][rows.index]                                                         # [B, d]
    return torch.cat([last[:, None], completion.view(batch, time, last.shape[1])], dim=1)


class _Attention:
    """Attention over prompts and completions laid behind each other: q [M, H, D], k and v [M, K, D] → [M, H·D]."""

    def __init__(self, sizes: Sizes, rows: Rows) -> None:
        self.rows = rows
        self.split = [rows.prompt.numel(), rows.completion.numel()]
        self.prompt_mask, self.completion_mask = prompt_mask(rows), completion_mask(rows)
        self.grouped = sizes.heads != sizes.kv_heads

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (count, width), (batch, time) = self.rows.prompt.shape, self.rows.completion.shape
        pq, pk, pv = (x[: self.split[0]].view(count, width, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))         # [U, H or K, P, D]
        out = F.scaled_dot_product_attention(
            pq, pk, pv, attn_mask=self.prompt_mask, is_causal=self.prompt_mask is None, enable_gqa=self.grouped
        )
        out = out.transpose(1, 2).reshape(self.split[0], -1)
        if not self.split[1]:
            return out
        cq, ck, cv = (x[self.split[0] :].view(batch, time, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))          # [B, H or K, T, D]
        keys, values = torch.cat([pk[self.rows.index], ck], dim=2), torch.cat([pv[self.rows.index], cv], dim=2)     # [B, K, P + T, D]
        own = F.scaled_dot_product_attention(cq, keys, values, attn_mask=self.completion_mask, enable_gqa=self.grouped)
        return torch.cat([out, own.transpose(1, 2).reshape(self.split[1], -1)])


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)


def _rotation(trunk: Any, position: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotary angles, each [M, 1, D]; the second half of D repeats the first."""
    angle = position[:, None].float() * trunk.rotary_emb.inv_freq                                                   # [M, D/2]
    angle, scale = torch.cat([angle, angle], dim=-1)[:, None], trunk.rotary_emb.attention_scaling
    return angle.cos() * scale, angle.sin() * scale


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the layout of the checkpoints: component i turns with component i + D/2. x [M, H, D]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class LayerWeights(NamedTuple):
    """A layer's matrices as one decoding step wants them: merged, norms folded in, RoPE's pairs side by side."""

    qkv: Tensor                              # [(H + 2K)·D, d]
    out: Tensor                              # [d, H·D]
    gate_up: Tensor                          # [2f, d]
    down: Tensor                             # [d, f]


class LlamaDecoder:
    """Next-token logits, one column at a time, for N rows.

    Keys and values lie in `cache` [2, layers, N, K, S, D]. Components that RoPE turns together lie side by side in q and k (a permutation
    of D, which leaves q·k as it is), so turning them is one complex product.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.sizes = model, Sizes.of(model.config)
        self._merge()

    @torch.inference_mode()
    def _merge(self) -> None:
        trunk = self.model.model
        self.layers = [self._merged(layer) for layer in trunk.layers]
        self.head = self.model.lm_head.weight * trunk.norm.weight                                                   # [V, d]

    def _merged(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        d = self.sizes.width
        paired = torch.arange(d).view(2, d // 2).t().reshape(-1)                                                    # 0, D/2, 1, D/2 + 1, …
        q, k = (w.view(-1, d, w.shape[1])[:, paired].reshape(w.shape) for w in (attention.q_proj.weight, attention.k_proj.weight))
        qkv = torch.cat([q * d**-0.5, k, attention.v_proj.weight]) * layer.input_layernorm.weight
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * layer.post_attention_layernorm.weight
        return LayerWeights(qkv, attention.o_proj.weight, gate_up, mlp.down_proj.weight)

    @torch.inference_mode()
    def prefill(self, rows: Rows, new_tokens: int) -> Tensor:
        """Reads the prompts (`rows.completion` is ignored) and makes room for `new_tokens` more columns. Returns logits [N, V]."""
        sizes, (count, width) = self.sizes, rows.prompt.shape
        self.padding = rows.padding[rows.index]                                                                     # [N]
        self.column, self.capacity = width, width + new_tokens
        self.rotation = self._rotation_table()
        self.bias = self._padding_bias() if rows.ragged else None
        self.cache = torch.zeros(2, len(self.layers), len(rows.index), sizes.kv_heads, self.capacity, sizes.width)
        mask = prompt_mask(rows)
        rotation = self.rotation[positions(rows)[0]][:, :, None]                                                    # [U, P, 1, D/2]
        x = F.embedding(rows.prompt.reshape(-1), self.model.model.embed_tokens.weight)                              # [U·P, d]
        for index, weights in enumerate(self.layers):
            qkv = product(self._normed(x), weights.qkv).view(count, width, -1, sizes.width)
            self._turn(qkv, rotation)
            q, k, v = qkv.transpose(1, 2).split([sizes.heads, sizes.kv_heads, sizes.kv_heads], dim=1)               # [U, H or K, P, D]
            self.cache[0, index, :, :, :width] = k[rows.index]
            self.cache[1, index, :, :, :width] = v[rows.index]
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=1.0, enable_gqa=sizes.heads != sizes.kv_heads
            )
            x = x + product(out.transpose(1, 2).reshape(count * width, -1), weights.out)
            x = x + self._mlp(self._normed(x), weights)
        return product(self._normed(x.view(count, width, -1)[:, -1]), self.head)[rows.index]

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        """Appends one token to each row: int64 [N] → logits [N, V]."""
        sizes, count, now = self.sizes, len(token), self.column
        rotation = self.rotation[now - self.padding][:, None] if self.bias is not None else self.rotation[now]
        x = F.embedding(token, self.model.model.embed_tokens.weight)                                                # [N, d]
        for index, weights in enumerate(self.layers):
            qkv = product(self._normed(x), weights.qkv).view(count, -1, sizes.width)
            self._turn(qkv, rotation)
            new = qkv[:, sizes.heads :].view(count, 2, sizes.kv_heads, sizes.width).transpose(0, 1)                  # [2, N, K, D]
            self.cache[:, index, :, :, now] = new
            keys, values = self.cache[:, index].flatten(1, 2)                                                       # [N·K, S, D]
            q = qkv[:, : sizes.heads].reshape(count * sizes.kv_heads, -1, sizes.width)                              # [N·K, H/K, D]
            scores = torch.bmm(q, keys[:, : now + 1].transpose(1, 2))
            if self.bias is not None:
                scores += self.bias[:, :, : now + 1]
            out = torch.bmm(scores.softmax(-1), values[:, : now + 1]).view(count, -1)
            x = x + product(out, weights.out)
            x = x + self._mlp(self._normed(x), weights)
        self.column += 1
        return product(self._normed(x), self.head)

    def _turn(self, qkv: Tensor, rotation: Tensor) -> None:
        """Turns q and k, the first H + K of [..., H + 2K, D], by their positions, in place."""
        turning = qkv[..., : self.sizes.heads + self.sizes.kv_heads, :]
        torch.view_as_complex(turning.unflatten(-1, (-1, 2))).mul_(rotation)

    def _normed(self, x: Tensor) -> Tensor:
        """RMSNorm without its weights, which are folded into the next matrix."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * norm.square_().div_(x.shape[-1]).add_(self.sizes.eps).rsqrt_()

    def _mlp(self, x: Tensor, weights: LayerWeights) -> Tensor:
        gate, up = product(x, weights.gate_up).chunk(2, dim=-1)
        return product(F.silu(gate) * up, weights.down)

    def _rotation_table(self) -> Tensor:
        """exp(i · position · frequency), complex64 [S, D/2]."""
        embedding = self.model.model.rotary_emb
        angle = torch.arange(self.capacity)[:, None].float() * embedding.inv_freq
        return torch.polar(torch.full_like(angle, embedding.attention_scaling), angle)

    def _padding_bias(self) -> Tensor:
        """[N·K, 1, S]: -inf on padding, 0 elsewhere."""
        real = torch.arange(self.capacity) >= self.padding[:, None]
        bias = torch.zeros(real.shape).masked_fill(~real, -torch.inf)
        return bias.repeat_interleave(self.sizes.kv_heads, dim=0)[:, None]

    def state_dict(self) -> State:
        """The cache, bit for bit."""
        return {"cache": self.cache.clone(), "padding": self.padding.clone(), "column": self.column, "ragged": self.bias is not None}

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.cache, self.padding, self.column = state["cache"].clone(), state["padding"].clone(), state["column"]
        self.capacity = self.cache.shape[4]
        self.rotation = self._rotation_table()
        self.bias = self._padding_bias() if state["ragged"] else None
