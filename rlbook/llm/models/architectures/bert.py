"""BERT: an encoder alone. Every token attends to every other one, before and after it, so the model
reads text but does not generate it.

    x = norm(word + position + segment)                                  # [B, n, d]
    for each layer: x = encoder layer(x)        # that of `encoder_decoder`, with gelu
    hidden state x [B, n, d];  pooled = tanh(W x_0 + b) [B, d]

The segment says from which of two sentences a token is (`token_type_ids`).

Source: Devlin et al. 2018, arXiv:1810.04805, section 3. No dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbook.llm.models.architectures.encoder_decoder import (
    ACTIVATIONS,
    EncoderDecoderSizes,
    EncoderLayer,
)
from rlbook.llm.models.architectures.norms import LayerNorm

NAMES = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
"""A layer's modules in BERT's files → in `EncoderLayer`; the longer names first."""


class Bert(nn.Module):
    """Maps tokens to their hidden states.

    Args:
        sizes: of the layers; `encoder_layers` of them.
        positions: the longest text.
        segments: kinds of `token_type_ids`.
    """

    def __init__(self, sizes: EncoderDecoderSizes, positions: int, segments: int = 2) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)  # [V, d]
        self.position_embeddings = nn.Embedding(positions, sizes.width)
        self.token_type_embeddings = nn.Embedding(segments, sizes.width)
        self.norm = LayerNorm(sizes.width, sizes.eps)
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(sizes.encoder_layers))
        self.pooler = nn.Linear(sizes.width, sizes.width)

    def forward(self, tokens: Tensor, mask: Tensor, segment: Tensor | None = None) -> Tensor:
        """Hidden states: tokens int64 [B, n], mask bool [B, n] (False on padding), segment int64
        [B, n] or None for 0 everywhere → [B, n, d]."""
        segment = torch.zeros_like(tokens) if segment is None else segment
        x = self.word_embeddings(tokens) + self.token_type_embeddings(segment)
        x = self.norm(x + self.position_embeddings(torch.arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x, mask[:, None, None])
        return x

    def pool(self, hidden: Tensor) -> Tensor:
        """One vector per text, from its first token [CLS]: [B, n, d] → [B, d]."""
        return self.pooler(hidden[:, 0]).tanh()


def from_transformers(model: nn.Module) -> Bert:
    """A `BertModel` of transformers with a copy of its weights.

    Raises:
        ValueError: another architecture, or an activation that is not written here.
    """
    config = model.config.to_dict()  # type: ignore[operator, union-attr]
    for name, allowed in {"model_type": ("bert",), "hidden_act": tuple(ACTIVATIONS)}.items():
        if config[name] not in allowed:
            only = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} must be {only} here, got {config[name]!r}")
    sizes = EncoderDecoderSizes(
        vocabulary=config["vocab_size"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        feed_forward=config["intermediate_size"],
        encoder_layers=config["num_hidden_layers"],
        decoder_layers=0,
        activation=config["hidden_act"],
        eps=config["layer_norm_eps"],
    )
    ours = Bert(sizes, config["max_position_embeddings"], config["type_vocab_size"])
    ours.load_state_dict({_our_name(name): weight for name, weight in model.state_dict().items()})
    return ours


def _our_name(name: str) -> str:
    """The name here of a weight in BERT's files."""
    if not name.startswith("encoder.layer."):
        name = name.removeprefix("embeddings.").replace("LayerNorm", "norm")
        return name.replace("pooler.dense", "pooler")
    for theirs, ours in NAMES.items():
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name.replace("encoder.layer.", "layers.")
