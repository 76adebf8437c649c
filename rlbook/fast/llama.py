"""The forward pass of transformers' Llama, Qwen2 and Qwen3 (SmolLM2 is a Llama) on its own weights,
written for speed on a CPU.

Training: completions of one prompt share the prompt's part of the pass, prompts share the part of a
beginning that they have in common, and only the completion's columns reach the output.
Acting: `LlamaDecoder` keeps keys and values in one preallocated block and reads each distinct
prompt, and a common beginning, once.
Source: Touvron et al. 2023, arXiv:2302.13971 (RMSNorm, SwiGLU); Su et al. 2021, arXiv:2104.09864
(RoPE); Ainslie et al. 2023, arXiv:2305.13245 (grouped queries); Yang et al. 2024, arXiv:2407.10671
(Qwen2: biases of q, k, v); Yang et al. 2025, arXiv:2505.09388 (Qwen3: norms of q and k). Equal to
transformers' own forward pass to 1e-5. The form to be read is `rlbook.llm.models.architectures.transformer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.agent import State
from rlbook.fast.matrix_product import linear, product
from rlbook.fast.modules import is_default_context, is_unmodified, iterate_modules
from rlbook.llm.generation.prompt_rows import (
    PromptRows,
    completion_mask,
    packing_mask,
    positions,
    prompt_mask,
)
from rlbook.llm.models import causal_lm, packing
from rlbook.llm.models.compute import autocast, compute_of, recompute
from rlbook.llm.models.lora import LoraLinear
from rlbook.llm.models.packing import PackedTexts

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

FAMILY = {
    f"transformers.models.{name.lower()}.modeling_{name.lower()}": name
    for name in ("Llama", "Qwen2", "Qwen3")
}
"""Module of transformers → the prefix of its classes' names."""
PLAIN = (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU, LoraLinear)


def is_plain_llama(model: nn.Module, part: str = "ForCausalLM") -> bool:
    """Whether the functions below compute this model of the family (or its trunk, part "Model") in
    its present state.

    That is: its own layers, nothing put in their place, between them or over them, full attention,
    and float32 weights on the CPU. The book's own adapters are computed with it, those with dropout
    excepted.
    """
    home = type(model).__module__
    if home not in FAMILY or type(model).__name__ != FAMILY[home] + part:
        return False
    config: Any = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.hidden_act == "silu"
        and rope.get("rope_type", "default") in ("default", "llama3", "linear")
        and getattr(config, "_attn_implementation", None) in ("sdpa", "eager")
        and is_default_context()
        and all(_plain_layer(module, home) for module in iterate_modules(model))
    )


def _plain_layer(module: nn.Module, home: str) -> bool:
    """A layer of `home` or of torch, or one of these with an adapter, untouched, with float32
    weights on the CPU."""
    kind = type(module)
    if not (
        kind.__module__ == home or kind in PLAIN or kind.__name__ == "SiLUActivation"
    ) or not is_unmodified(module):
        return False
    if kind is nn.Embedding and module.max_norm is not None:
        return False
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        known = (
            name == "weight"
            or (name == "bias" and kind is nn.Linear)
            or (name == "lora_magnitude_vector" and kind is LoraLinear)
        )
        if (
            not known
            or type(parameter) is not nn.Parameter
            or parameter.dtype is not torch.float32
            or not parameter.is_cpu
        ):
            return False
    if getattr(module, "sliding_window", None) is not None:
        return False
    return not (module.training and getattr(module, "attention_dropout", 0.0))


def logits(model: Any, rows: PromptRows) -> Tensor:
    """The fast form of `rlbook.llm.models.causal_lm.logits`."""
    if not is_plain_llama(model):
        return causal_lm.logits.plain(model, rows)  # type: ignore[attr-defined]
    with autocast(model):
        hidden = _hidden_states(model.model, rows)
    return _output(model, hidden)


def hidden_states(trunk: Any, rows: PromptRows) -> Tensor:
    """The fast form of `rlbook.llm.models.causal_lm.hidden_states`."""
    if not is_plain_llama(trunk, "Model"):
        return causal_lm.hidden_states.plain(trunk, rows)  # type: ignore[attr-defined]
    with autocast(trunk):
        return _hidden_states(trunk, rows)


def _output(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Logits, computed in the output layer's dtype."""
    layer: Any = model.get_output_embeddings()
    return layer(hidden.to(next(layer.parameters()).dtype))


class LlamaSizes(NamedTuple):
    """The sizes of a model that its forward pass needs."""

    heads: int  # H, query heads
    kv_heads: int  # K, key and value heads; divides H
    width: int  # D, numbers in a head
    eps: float  # RMSNorm's ε
    qk_norm: bool  # whether queries and keys are normed, head by head

    @staticmethod
    def from_config(config: Any) -> LlamaSizes:
        width = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        return LlamaSizes(
            config.num_attention_heads,
            config.num_key_value_heads,
            width,
            config.rms_norm_eps,
            config.model_type == "qwen3",
        )


def _hidden_states(trunk: Any, rows: PromptRows) -> Tensor:
    """The last layer's output after the prompt and after each completion token, with gradients.

    Args:
        trunk: a `LlamaModel`, `Qwen2Model` or `Qwen3Model`.
        rows: B completions of T tokens after U prompts of P, and all after a prefix of C.

    Returns:
        [B, T + 1, d]: column 0 comes after the prompt, column t after t completion tokens.
    """
    (count, width), (batch, time), shared = (
        rows.prompt.shape,
        rows.completion.shape,
        len(rows.prefix),
    )
    split = [shared, count * width, batch * time]
    tokens = torch.cat([rows.prefix, rows.prompt.reshape(-1), rows.completion.reshape(-1)])
    position = torch.cat([torch.arange(shared), *(part.reshape(-1) for part in positions(rows))])
    x = _apply_layers(
        trunk, tokens, position, _Attention(LlamaSizes.from_config(trunk.config), rows)
    )
    _, prompt, completion = x.split(split)
    last = prompt.view(count, width, -1)[:, -1][rows.index]  # [B, d]
    return torch.cat([last[:, None], completion.view(batch, time, last.shape[1])], dim=1)


def packed_logits(model: Any, rows: PackedTexts) -> Tensor:
    """The fast form of `rlbook.llm.models.packing.packed_logits`."""
    if not is_plain_llama(model):
        return packing.packed_logits.plain(model, rows)  # type: ignore[attr-defined]
    grouped, mask = (
        LlamaSizes.from_config(model.config).heads != LlamaSizes.from_config(model.config).kv_heads,
        packing_mask(rows.text),
    )

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (_split_rows(x, len(mask)) for x in (q, k, v))  # [R, H or K, W, D]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
        return out.transpose(1, 2).reshape(-1, q.shape[1] * q.shape[3])

    with autocast(model):
        x = _apply_layers(model.model, rows.tokens.reshape(-1), rows.position.reshape(-1), attend)
    return _output(model, x[rows.row * rows.tokens.shape[1] + rows.column])


def _apply_layers(
    trunk: Any, tokens: Tensor, position: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """The last layer's output for M tokens [M] at their positions [M]; `attend` decides which of
    them attend to each other. [M, d]"""
    sizes = LlamaSizes.from_config(trunk.config)
    x = trunk.embed_tokens(tokens)  # [M, d]
    cos, sin = _rotation(trunk, position)  # [M, 1, D]
    recomputed = compute_of(trunk).gradient_checkpointing and torch.is_grad_enabled()
    for layer in trunk.layers:
        x = (
            recompute(_apply_layer, layer, sizes, x, cos, sin, attend)
            if recomputed
            else _apply_layer(layer, sizes, x, cos, sin, attend)
        )
    return _rms_norm(x, trunk.norm, sizes.eps)


def _apply_layer(
    layer: LlamaDecoderLayer,
    sizes: LlamaSizes,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """One layer: [M, d] → [M, d]."""
    h = _round(_rms_norm(x, layer.input_layernorm, sizes.eps))
    attention: Any = layer.self_attn
    q = _apply_linear(attention.q_proj, h).view(-1, sizes.heads, sizes.width)
    k = _apply_linear(attention.k_proj, h).view(-1, sizes.kv_heads, sizes.width)
    v = _apply_linear(attention.v_proj, h).view(-1, sizes.kv_heads, sizes.width)
    if sizes.qk_norm:
        q, k = (
            _rms_norm(q, attention.q_norm, sizes.eps),
            _rms_norm(k, attention.k_norm, sizes.eps),
        )
    q, k = (_rotate(part, cos, sin).to(v.dtype) for part in (q, k))
    x = x + _apply_linear(attention.o_proj, attend(q, k, v))
    h = _round(_rms_norm(x, layer.post_attention_layernorm, sizes.eps))
    return x + _apply_linear(
        layer.mlp.down_proj,
        F.silu(_apply_linear(layer.mlp.gate_proj, h)) * _apply_linear(layer.mlp.up_proj, h),
    )


class _Attention:
    """Attention over prefix, prompts and completions laid one after the other: q [M, H, D], k and v
    [M, K, D] → [M, H·D]."""

    def __init__(self, sizes: LlamaSizes, rows: PromptRows, scale: float | None = None) -> None:
        self.rows, self.scale = rows, scale
        self.split = [len(rows.prefix), rows.prompt.numel(), rows.completion.numel()]
        self.prompt_mask, self.completion_mask = prompt_mask(rows), completion_mask(rows)
        self.grouped = sizes.heads != sizes.kv_heads

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, heard = self.rows, []
        first, prompt, completion = zip(*(x.split(self.split) for x in (q, k, v)), strict=True)
        keys = values = None  # of what lies before
        if self.split[0]:
            q, keys, values = (_split_rows(x, 1) for x in first)  # [1, H or K, C, D]
            heard.append(self._attention(q, keys, values, None))
            keys, values = (x.expand(len(rows.prompt), -1, -1, -1) for x in (keys, values))
        q, k, v = (_split_rows(x, len(rows.prompt)) for x in prompt)  # [U, H or K, P, D]
        if keys is not None and values is not None:
            k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)  # [U, K, C + P, D]
        heard.append(self._attention(q, k, v, self.prompt_mask))
        if self.split[2]:
            # [B, H or K, T, D]
            q, own_k, own_v = (_split_rows(x, len(rows.completion)) for x in completion)
            # [B, K, C + P + T, D]
            k, v = (
                torch.cat([k[rows.index], own_k], dim=2),
                torch.cat([v[rows.index], own_v], dim=2),
            )
            heard.append(self._attention(q, k, v, self.completion_mask))
        return heard[0] if len(heard) == 1 else torch.cat(heard)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention; without a mask each token attends to itself and those before it. [.., H·D],
        row after row."""
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=mask is None,
            scale=self.scale,
            enable_gqa=self.grouped,
        )
        return out.transpose(1, 2).reshape(-1, q.shape[1] * q.shape[3])


def _split_rows(x: Tensor, rows: int) -> Tensor:
    """[rows · n, heads, D] → [rows, heads, n, D]"""
    return x.view(rows, -1, *x.shape[1:]).transpose(1, 2)


def _apply_linear(layer: Any, x: Tensor) -> Tensor:
    """A linear layer including its adapter, with gradients: [M, in] → [M, out]."""
    if type(layer) is LoraLinear:
        return layer(x)
    y = linear(x, layer.weight)
    return y if layer.bias is None else y + layer.bias.to(y.dtype)


def _round(x: Tensor) -> Tensor:
    """Rounds x once as autocast would for each of the products that read it."""
    return x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else x


def _rms_norm(x: Tensor, norm: Any, eps: float) -> Tensor:
    return F.rms_norm(x.to(norm.weight.dtype), norm.weight.shape, norm.weight, eps)


def _rotation(trunk: Any, position: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotary angles, each [M, 1, D]; the second half of D repeats the first."""
    angle = position[:, None].float() * trunk.rotary_emb.inv_freq  # [M, D/2]
    angle, scale = torch.cat([angle, angle], dim=-1)[:, None], trunk.rotary_emb.attention_scaling
    return angle.cos() * scale, angle.sin() * scale


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the layout of the checkpoints: component i turns with component i + D/2. x [M, H,
    D]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class Affine(NamedTuple):
    """A linear layer's weight and bias."""

    weight: Tensor  # [out, in]
    bias: Tensor | None  # [out]

    def __call__(self, x: Tensor) -> Tensor:
        """[M, in] → [M, out]"""
        return product(x.to(self.weight.dtype), self.weight, self.bias)

    def to(self, dtype: torch.dtype) -> Affine:
        """The same in another dtype."""
        return Affine(self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype))


def _affine_of(layer: Any) -> Affine:
    """A layer's weight and bias, with an active adapter merged in."""
    if type(layer) is LoraLinear:
        layer = layer.merge() if layer.enabled else layer.base_layer
    return Affine(layer.weight, layer.bias)


class LayerWeights(NamedTuple):
    """A layer's matrices in the form that a decoding step uses: merged, norms folded in, RoPE's
    pairs interleaved."""

    qkv: Affine  # [(H + 2K)·D, d]
    qk_norm: Tensor | None  # [H + K, D]
    out: Affine  # [d, H·D]
    gate_up: Affine  # [2f, d]
    down: Affine  # [d, f]


def _concatenate_layers(layers: list[Any], norm: Any) -> Affine:
    """Layers with the same input as one, with the weights of the preceding norm folded in."""
    weights, biases = zip(*map(_affine_of, layers), strict=True)
    # each number written once
    folded = weights[0] * norm.weight if len(weights) == 1 else torch.cat(weights).mul_(norm.weight)
    return Affine(folded, None if biases[0] is None else torch.cat(biases))


class LlamaDecoder:
    """Next-token logits, one column at a time, for N rows.

    Where the model computes in bfloat16, so are the matrices and the cache kept, except for the
    output layer's: see `rlbook.llm.models.compute`.
    Keys and values lie in `cache` [2, layers, N, K, S, D]. Components that RoPE turns together lie
    side by side in q and k (a permutation of D, which leaves q·k as it is), so turning them is one
    complex product.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.sizes = model, LlamaSizes.from_config(model.config)
        self.dtype = compute_of(model).dtype or torch.float32
        self._merge()

    @torch.inference_mode()
    def _merge(self) -> None:
        trunk = self.model.model
        self.layers = [self._merge_layer(layer) for layer in trunk.layers]
        self.head = _concatenate_layers([self.model.lm_head], trunk.norm)  # [V, d]

    def _merge_layer(self, layer: Any) -> LayerWeights:
        attention, sizes = layer.self_attn, self.sizes
        qkv = _concatenate_layers(
            [attention.q_proj, attention.k_proj, attention.v_proj], layer.input_layernorm
        )
        scale, turning, qk_norm = (
            sizes.width**-0.5,
            (sizes.heads + sizes.kv_heads) * sizes.width,
            None,
        )
        for numbers in qkv:
            if numbers is not None:
                numbers[:turning] = _interleave_halves(numbers[:turning], sizes.width)
                numbers[: sizes.heads * sizes.width] *= 1.0 if sizes.qk_norm else scale
        if sizes.qk_norm:
            q, k = (
                _interleave_halves(norm.weight, sizes.width)
                for norm in (attention.q_norm, attention.k_norm)
            )
            qk_norm = torch.cat([(q * scale).expand(sizes.heads, -1), k.expand(sizes.kv_heads, -1)])
        gate_up = _concatenate_layers(
            [layer.mlp.gate_proj, layer.mlp.up_proj], layer.post_attention_layernorm
        )
        out, down = _affine_of(attention.o_proj), _affine_of(layer.mlp.down_proj)
        qkv, out, gate_up, down = (each.to(self.dtype) for each in (qkv, out, gate_up, down))
        return LayerWeights(qkv, qk_norm, out, gate_up, down)

    @torch.inference_mode()
    def prefill(self, rows: PromptRows, new_tokens: int) -> Tensor:
        """Reads the prompts (`rows.completion` is ignored) and makes room for `new_tokens` more
        columns. Returns logits [N, V]."""
        sizes, (count, width), shared = self.sizes, rows.prompt.shape, len(rows.prefix)
        self.padding, self.shared = rows.padding[rows.index], shared  # [N]
        self.column, self.capacity = shared + width, shared + width + new_tokens
        self.rotation = self._rotation_table()
        self.bias = self._padding_bias() if rows.is_ragged else None
        self.cache = torch.zeros(
            (2, len(self.layers), len(rows.index), sizes.kv_heads, self.capacity, sizes.width),
            dtype=self.dtype,
        )
        attend = _Attention(sizes, rows._replace(completion=rows.prompt[:, :0]), scale=1.0)
        # [M, 1, D/2]
        rotation = self.rotation[torch.cat([torch.arange(shared), positions(rows)[0].reshape(-1)])][
            :, None
        ]
        # [M, d]
        x = F.embedding(
            torch.cat([rows.prefix, rows.prompt.reshape(-1)]), self.model.model.embed_tokens.weight
        )
        for index, weights in enumerate(self.layers):
            qkv = weights.qkv(self._rms_normalize(x)).view(len(x), -1, sizes.width)
            self._rotate_queries(qkv, weights.qk_norm, rotation)
            new = qkv[:, sizes.heads :].unflatten(1, (2, sizes.kv_heads))  # [M, 2, K, D]
            # [2, U, K, P, D]
            own = new[shared:].unflatten(0, (count, width)).permute(2, 0, 3, 1, 4)
            self.cache[:, index, :, :, :shared] = new[:shared].permute(1, 2, 0, 3)[:, None]
            self.cache[:, index, :, :, shared : self.column] = own[:, rows.index]
            x = x + weights.out(
                attend(*qkv.split([sizes.heads, sizes.kv_heads, sizes.kv_heads], dim=1))
            )
            x = x + self._mlp(self._rms_normalize(x), weights)
        return self.head(self._rms_normalize(x[shared:].view(count, width, -1)[:, -1]))[rows.index]

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        """Appends one token to each row: int64 [N] → logits [N, V]."""
        sizes, count, now = self.sizes, len(token), self.column
        rotation = (
            self.rotation[now - self.padding][:, None]
            if self.bias is not None
            else self.rotation[now]
        )
        x = F.embedding(token, self.model.model.embed_tokens.weight)  # [N, d]
        for index, weights in enumerate(self.layers):
            qkv = weights.qkv(self._rms_normalize(x)).view(count, -1, sizes.width)
            self._rotate_queries(qkv, weights.qk_norm, rotation)
            # [2, N, K, D]
            new = qkv[:, sizes.heads :].view(count, 2, sizes.kv_heads, sizes.width).transpose(0, 1)
            self.cache[:, index, :, :, now] = new
            keys, values = self.cache[:, index].flatten(1, 2)  # [N·K, S, D]
            # [N·K, H/K, D]
            q = qkv[:, : sizes.heads].reshape(count * sizes.kv_heads, -1, sizes.width)
            heard = self._attend(q, keys[:, : now + 1], values[:, : now + 1])
            x = x + weights.out(heard.view(count, -1))
            x = x + self._mlp(self._rms_normalize(x), weights)
        self.column += 1
        return self.head(self._rms_normalize(x))

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The queries [N·K, H/K, D] of a new column over all columns [N·K, n, D]: like q."""
        bias = None if self.bias is None else self.bias[:, :, : keys.shape[1]]
        if self.dtype != torch.float32:  # which sums in float32; a product of its own would round
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=1.0)
        scores = torch.bmm(q, keys.transpose(1, 2))
        if bias is not None:
            scores += bias
        return torch.bmm(scores.softmax(-1), values)

    @torch.inference_mode()
    def select(self, rows: Tensor) -> None:
        """Keeps these rows: int64 [M], each from 0 to N - 1; one may occur several times.

        No more rows than before are put in their places layer by layer, without a second cache.
        """
        count = len(rows)
        if count > len(self.padding):
            self.cache = self.cache[:, :, rows]
        else:
            for layer in self.cache.unbind(1):  # [2, N, K, S, D]
                layer[:, :count] = layer[:, rows]
            self.cache = self.cache[:, :, :count]
        self.padding = self.padding[rows]
        self.bias = self._padding_bias() if self.bias is not None else None

    def _rotate_queries(self, qkv: Tensor, norm: Tensor | None, rotation: Tensor) -> None:
        """Normalises q and k where the architecture does, and rotates them by their positions, in
        float32 and in place: the first H + K of [.., H + 2K, D]."""
        turning = qkv[..., : self.sizes.heads + self.sizes.kv_heads, :]
        turned = turning.float()  # a view, if that is what it is in
        if norm is not None:
            turned.copy_(self._rms_normalize(turned).mul_(norm))
        torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(rotation)
        if turned.dtype != turning.dtype:
            turning.copy_(turned)

    def _rms_normalize(self, x: Tensor) -> Tensor:
        """RMSNorm without its weights, which are folded into the next matrix."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * norm.square_().div_(x.shape[-1]).add_(self.sizes.eps).rsqrt_()

    def _mlp(self, x: Tensor, weights: LayerWeights) -> Tensor:
        gate, up = weights.gate_up(x).chunk(2, dim=-1)
        return weights.down(F.silu(gate) * up)

    def _rotation_table(self) -> Tensor:
        """exp(i · position · frequency), complex64 [S, D/2]."""
        embedding = self.model.model.rotary_emb
        angle = torch.arange(self.capacity)[:, None].float() * embedding.inv_freq
        return torch.polar(torch.full_like(angle, embedding.attention_scaling), angle)

    def _padding_bias(self) -> Tensor:
        """[N·K, 1, S]: -inf on padding, which comes after the prefix, and 0 elsewhere."""
        column = torch.arange(self.capacity) - self.shared
        real = (column < 0) | (column >= self.padding[:, None])
        bias = torch.zeros(real.shape, dtype=self.dtype).masked_fill(~real, -torch.inf)
        return bias.repeat_interleave(self.sizes.kv_heads, dim=0)[:, None]

    def state_dict(self) -> State:
        """The written part of the cache, bit for bit."""
        return {
            "cache": self.cache[..., : self.column, :].clone(),
            "capacity": self.capacity,
            "padding": self.padding.clone(),
            "column": self.column,
            "shared": self.shared,
            "ragged": self.bias is not None,
        }

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        self.padding, self.column = state["padding"].clone(), state["column"]
        self.capacity, self.shared = state["capacity"], state["shared"]
        self.cache = F.pad(state["cache"], (0, 0, 0, self.capacity - self.column))
        self.rotation = self._rotation_table()
        self.bias = self._padding_bias() if state["ragged"] else None


def _interleave_halves(x: Tensor, width: int) -> Tensor:
    """Components 0, D/2, 1, D/2 + 1, … of each head: [heads · D, ...] → the same shape."""
    order = torch.arange(width).view(2, -1).t().reshape(-1)
    return x.unflatten(0, (-1, width))[:, order].flatten(0, 1)
