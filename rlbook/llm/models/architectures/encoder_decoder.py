"""The transformer of 2017: an encoder reads a text, and a decoder generates another one, token by
token.

    memory = encoder(source)                                             # [B, m, d]
    for each layer of the decoder:
        x = norm(x + self_attention(x))             # the tokens written so far, causal
        x = norm(x + cross_attention(x, memory))    # queries from here, keys and values from there
        x = norm(x + feed_forward(x))
    logits = x · (embedding)ᵀ                                            # [B, n, V]

It learns by *teacher forcing*: the decoder reads the right target, shifted by one place to the
right, and is asked for the next token at all places at once. When it writes, it reads its own.

Modules are called what the files of Marian and BART call them, so their weights fit as they are.
Marian is the paper's model: sinusoidal positions, embeddings times √d. BART learns its positions
and normalises the embeddings.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3 and figure 1; Lewis et al. 2019,
arXiv:1910.13461 (BART); Junczys-Dowmunt et al. 2018, arXiv:1804.00344 (Marian). No dropout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures.attention import (
    MultiHeadAttention,
    causal_mask,
    sinusoidal_positions,
)
from rlbook.llm.models.architectures.norms import LayerNorm

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swish": F.silu}
OFFSET = 2  # BART's first position has this number


@dataclass(frozen=True)
class EncoderDecoderSizes:
    """The entries of a config.json that the forward pass needs."""

    vocabulary: int  # V
    width: int  # d, numbers a token
    heads: int  # H; divides d
    feed_forward: int  # f
    encoder_layers: int
    decoder_layers: int
    activation: str = "relu"
    eps: float = 1e-5  # ε of LayerNorm
    scale: float = 1.0  # factor of the embeddings; the paper's is √d
    learned_positions: int = 0  # BART's number of positions; 0: sinusoidal ones
    positions: bool = True  # False leaves out positions, to show what they are for


class EncoderLayer(nn.Module):
    """Self-attention, then two matrices with an activation between them; each with a residual
    connection and a norm after it. Every token attends to every other one."""

    def __init__(self, sizes: EncoderDecoderSizes) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(sizes.width, sizes.heads)
        self.self_attn_layer_norm = LayerNorm(sizes.width, sizes.eps)
        self.fc1 = nn.Linear(sizes.width, sizes.feed_forward)  # [f, d]
        self.fc2 = nn.Linear(sizes.feed_forward, sizes.width)  # [d, f]
        self.final_layer_norm = LayerNorm(sizes.width, sizes.eps)
        self.activation = ACTIVATIONS[sizes.activation]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, m, d], mask bool [B, 1, 1, m], True on the tokens → [B, m, d]."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        return self.final_layer_norm(x + self.fc2(self.activation(self.fc1(x))))


class DecoderLayer(nn.Module):
    """An encoder's layer with a causal mask, and cross-attention to the encoder's result in the
    middle."""

    def __init__(self, sizes: EncoderDecoderSizes) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(sizes.width, sizes.heads)
        self.self_attn_layer_norm = LayerNorm(sizes.width, sizes.eps)
        self.encoder_attn = MultiHeadAttention(sizes.width, sizes.heads)
        self.encoder_attn_layer_norm = LayerNorm(sizes.width, sizes.eps)
        self.fc1 = nn.Linear(sizes.width, sizes.feed_forward)  # [f, d]
        self.fc2 = nn.Linear(sizes.feed_forward, sizes.width)  # [d, f]
        self.final_layer_norm = LayerNorm(sizes.width, sizes.eps)
        self.activation = ACTIVATIONS[sizes.activation]

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, n, d], memory [B, m, d], its mask bool [B, 1, 1, m] → [B, n, d]."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, causal_mask(x.shape[1])))
        x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, mask, context=memory))
        return self.final_layer_norm(x + self.fc2(self.activation(self.fc1(x))))


class Stack(nn.Module):
    """Embeddings and positions, then the layers of an encoder or of a decoder."""

    def __init__(
        self, sizes: EncoderDecoderSizes, layers: list[EncoderLayer] | list[DecoderLayer]
    ) -> None:
        super().__init__()
        self.layers, self.sizes = nn.ModuleList(layers), sizes
        if sizes.learned_positions:
            self.embed_positions = nn.Embedding(sizes.learned_positions + OFFSET, sizes.width)
            self.layernorm_embedding = LayerNorm(sizes.width, sizes.eps)

    def embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        """int64 [B, n] → [B, n, d]."""
        x, n = embedding(tokens) * self.sizes.scale, tokens.shape[1]
        if self.sizes.learned_positions:
            return self.layernorm_embedding(x + self.embed_positions(torch.arange(n) + OFFSET))
        return x + sinusoidal_positions(n, self.sizes.width) if self.sizes.positions else x


class EncoderDecoder(nn.Module):
    """Maps a source and the target so far to the logits of the target's next token."""

    final_logits_bias: Tensor

    def __init__(self, sizes: EncoderDecoderSizes) -> None:
        super().__init__()
        self.shared = nn.Embedding(sizes.vocabulary, sizes.width)  # [V, d], three times the same
        nn.init.normal_(self.shared.weight, std=sizes.width**-0.5)  # of size 1 after √d
        self.encoder = Stack(sizes, [EncoderLayer(sizes) for _ in range(sizes.encoder_layers)])
        self.decoder = Stack(sizes, [DecoderLayer(sizes) for _ in range(sizes.decoder_layers)])
        self.register_buffer("final_logits_bias", torch.zeros(1, sizes.vocabulary))

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """The memory of a source: int64 [B, m], mask bool [B, m], True on its tokens → [B, m,
        d]."""
        x = self.encoder.embed(source, self.shared)
        for layer in self.encoder.layers:
            x = layer(x, mask[:, None, None])
        return x

    def decode(self, target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Next-token logits after each token of a target: int64 [B, n] → [B, n, V]."""
        x = self.decoder.embed(target, self.shared)
        for layer in self.decoder.layers:
            x = layer(x, memory, mask[:, None, None])
        return F.linear(x, self.shared.weight) + self.final_logits_bias

    def forward(self, source: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """Next-token logits after each token of `target`, which follows a start token: [B, n, V].

        Args:
            source: int64 [B, m].
            target: int64 [B, n], the start token first.
            mask: bool [B, m], True on the source's tokens, False on padding.
        """
        return self.decode(target, self.encode(source, mask), mask)


def shift_right(target: Tensor, start: int) -> Tensor:
    """The decoder's input for `target` [B, n]: the start token, then all tokens but the last: [B,
    n]."""
    return torch.cat([torch.full_like(target[:, :1], start), target[:, :-1]], dim=1)


def teacher_forcing_loss(
    model: EncoderDecoder, source: Tensor, target: Tensor, *, start: int, pad: int
) -> Tensor:
    """Mean over the target's tokens of -log p(token | source, the right tokens before it), in nats;
    lower is better.

    Args:
        model: the encoder-decoder.
        source: int64 [B, m], filled up with `pad`.
        target: int64 [B, n], with its end token, filled up with `pad`, which is not counted.
        start: the token in front of every target.
        pad: the token of the padding.

    Source: Williams & Zipser 1989, Neural Computation 1(2), section 3 (teacher forcing).
    """
    logits = model(source, shift_right(target, start), source != pad)  # [B, n, V]
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)


@torch.inference_mode()
def translate_greedy(
    model: EncoderDecoder, source: Tensor, *, start: int, end: int, pad: int, max_new_tokens: int
) -> Tensor:
    """The target's most likely tokens, one after the other: int64 [B, at most max_new_tokens].

    A text ends with `end`, and `pad` fills it up. The source is read once, the target so far again
    for each token.
    """
    mask = source != pad
    memory = model.encode(source, mask)
    written = torch.full_like(source[:, :1], start)
    live = torch.ones(len(source), dtype=torch.bool)
    while live.any() and written.shape[1] <= max_new_tokens:
        token = model.decode(written, memory, mask)[:, -1].argmax(-1)  # [B]
        written = torch.cat([written, token.where(live, pad)[:, None]], dim=1)
        live = live & (token != end)
    return written[:, 1:]


def from_transformers(model: nn.Module) -> EncoderDecoder:
    """A Marian or BART model of transformers (`MarianMTModel`, `BartForConditionalGeneration`) with
    a copy of its weights.

    Raises:
        ValueError: another architecture, or a setting that is not written above.
    """
    sizes = sizes_of(model.config.to_dict())  # type: ignore[operator, union-attr]
    ours = EncoderDecoder(sizes)
    weights = {
        name.removeprefix("model."): weight
        for name, weight in model.state_dict().items()
        if "embed_tokens" not in name
        and name != "lm_head.weight"  # they are `shared`
        and (sizes.learned_positions or "embed_positions" not in name)  # computed
    }
    ours.load_state_dict(weights)
    return ours


def sizes_of(config: Mapping[str, Any]) -> EncoderDecoderSizes:
    """The sizes in a config. Raises ValueError if it requires a feature that is missing above."""
    activation, heads = config["activation_function"], config["encoder_attention_heads"]
    asked = {
        "model_type": (config["model_type"], ("marian", "bart")),
        "activation_function": (activation, tuple(ACTIVATIONS)),
        "decoder_attention_heads": (config["decoder_attention_heads"], (heads,)),
        "decoder_ffn_dim": (config["decoder_ffn_dim"], (config["encoder_ffn_dim"],)),
        "share_encoder_decoder_embeddings": (
            config.get("share_encoder_decoder_embeddings", True),
            (True,),
        ),
    }
    for name, (value, allowed) in asked.items():
        if value not in allowed:
            only = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} must be {only} here, got {value!r}")
    return EncoderDecoderSizes(
        vocabulary=config["vocab_size"],
        width=config["d_model"],
        heads=heads,
        feed_forward=config["encoder_ffn_dim"],
        encoder_layers=config["encoder_layers"],
        decoder_layers=config["decoder_layers"],
        activation=activation,
        scale=config["d_model"] ** 0.5 if config["scale_embedding"] else 1.0,
        learned_positions=config["max_position_embeddings"] * (config["model_type"] == "bart"),
    )
