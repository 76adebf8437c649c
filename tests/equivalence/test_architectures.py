"""The blocks to be read are those of transformers: norms, positions, GPT-2, BERT, Marian and BART,
layer by layer and as whole models, values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from closeness import assert_near, largest, near, widths
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.llm.models.architectures import bert, encoder_decoder, gpt2
from rlbook.llm.models.architectures.attention import (
    MultiHeadAttention,
    apply_rope,
    attention,
    attention_weights,
    causal_mask,
    sinusoidal_positions,
)
from rlbook.llm.models.architectures.norms import LayerNorm, RMSNorm

WIDTH, HEADS, PAD = 24, 4, 0


def randomize(model: nn.Module) -> Any:
    """Weights that are random and large, biases and norms included; what is frozen stays."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5, generator=generator)
            elif parameter.requires_grad:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
    return model.float().eval()


def seq2seq(kind: str, **settings: Any) -> Any:
    """A Marian or BART model with two layers on each side."""
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    config, model = {
        "marian": (MarianConfig, MarianMTModel),
        "bart": (BartConfig, BartForConditionalGeneration),
    }[kind]
    sizes = {
        "vocab_size": 31,
        "decoder_vocab_size": 31,
        "d_model": WIDTH,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "max_position_embeddings": 20,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        made = randomize(model(config(**sizes | settings)))
    with torch.no_grad():
        made.final_logits_bias.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(1))
    return made


def ragged(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Tokens [rows, columns], filled up with PAD, and their mask."""
    tokens = torch.randint(3, 31, (rows, columns), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(columns) < columns - torch.arange(rows)[:, None]
    return tokens.where(mask, PAD), mask


def test_three_tokens_attend_as_worked_out_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    two, three = math.exp(1 / math.sqrt(2)), math.exp(2 / math.sqrt(2))
    expected = [
        [1, 0, 0],
        [1 / (1 + two), two / (1 + two), 0],
        [two / (2 * two + three), two / (2 * two + three), three / (2 * two + three)],
    ]
    weights = attention_weights(x, x, causal_mask(3))
    assert_near(weights, torch.tensor(expected), terms=3)
    assert_near(attention(x, x, x, causal_mask(3)), torch.tensor(expected) @ x, terms=6)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_torchs(masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8, generator=generator) for n in (4, 7, 7))
    mask = causal_mask(4, 7) if masked else None
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_near(attention(q, k, v, mask), expected, terms=8 + 7, size=largest([v]))


def test_multi_head_attention_is_torchs() -> None:
    """Torch's own module has queries, keys and values in one matrix."""
    ours, theirs = MultiHeadAttention(WIDTH, HEADS), nn.MultiheadAttention(WIDTH, HEADS)
    randomize(ours)
    with torch.no_grad():
        parts = (ours.q_proj, ours.k_proj, ours.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x, context = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    expected, weights = theirs(
        *(t.transpose(0, 1) for t in (x, context, context)), average_attn_weights=False
    )
    assert_near(ours(x, context=context), expected.transpose(0, 1), terms=2 * widths(ours))
    assert_near(ours.weights(x, context=context), weights, terms=2 * widths(ours))


def test_norms_are_torchs() -> None:
    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0)) * 3 + 2
    layer, rms = randomize(LayerNorm(WIDTH, 1e-3)), randomize(RMSNorm(WIDTH, 1e-3))
    assert_near(
        layer(x),
        F.layer_norm(x, (WIDTH,), layer.weight, layer.bias, 1e-3),
        terms=WIDTH,
        size=largest([x]),
    )
    assert_near(rms(x), F.rms_norm(x, (WIDTH,), rms.weight, 1e-3), terms=WIDTH, size=largest([x]))


def test_sinusoidal_positions_are_the_papers_in_another_order() -> None:
    found = sinusoidal_positions(50, 8)
    for position in (0, 1, 7, 49):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            # an angle of 49 is itself rounded
            bound = {"dtype": "float32", "size": max(position, 1)}
            assert found[position, i].item() == near(math.sin(angle), **bound)
            assert found[position, i + 4].item() == near(math.cos(angle), **bound)


def test_the_product_of_two_positions_depends_on_their_distance_alone() -> None:
    """The sinusoids' own, and that of a query and a key turned by `apply_rope`."""
    positions = sinusoidal_positions(40, 16)
    gram = positions @ positions.T
    for distance in (1, 5, 20):
        product = gram.diagonal(distance)
        assert_near(product, product[:1].expand_as(product), terms=16, size=40.0)
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(16, generator=generator).expand(1, 1, 40, 16) for _ in range(2))
    turned = [apply_rope(x, torch.arange(40), 10_000.0)[0, 0] for x in (q, k)]
    product = (turned[0] @ turned[1].T).diagonal(3)
    assert_near(product, product[:1].expand_as(product), terms=16, size=40 * largest([q, k]) ** 2)
    assert product[0] != (turned[0] @ turned[1].T).diagonal(4)[0]


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_is_barts_and_a_decoder_layer_too(activation: str) -> None:
    theirs = seq2seq("bart", activation_function=activation)
    ours = encoder_decoder.from_transformers(theirs)
    generator = torch.Generator().manual_seed(0)
    x, memory = (torch.randn(3, n, WIDTH, generator=generator) for n in (6, 9))
    _, mask = ragged(3, 9)
    bias = torch.zeros(3, 1, 1, 9).masked_fill(~mask[:, None, None], -torch.inf)
    later = torch.zeros(6, 6).masked_fill(~causal_mask(6), -torch.inf)[None, None]
    layer, expected = ours.encoder.layers[1], theirs.model.encoder.layers[1]
    terms = 2 * widths(layer)
    assert_near(layer(memory, mask[:, None, None]), expected(memory, bias), terms=terms)
    layer, expected = ours.decoder.layers[1], theirs.model.decoder.layers[1]
    found = layer(x, memory, mask[:, None, None])
    assert_near(found, expected(x, later, memory, bias), terms=2 * widths(layer))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("marian", {"activation_function": "relu", "scale_embedding": True}),
        ("marian", {"activation_function": "swish", "scale_embedding": False}),
        ("bart", {"activation_function": "gelu"}),
    ],
)
def test_an_encoder_decoder_has_the_logits_and_the_loss_of_transformers(
    kind: str, settings: dict[str, Any]
) -> None:
    theirs = seq2seq(kind, **settings)
    ours = encoder_decoder.from_transformers(theirs)
    source, mask = ragged(4, 9)
    target, _ = ragged(4, 6)
    read = encoder_decoder.shift_right(target, 1)
    output = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=read)
    terms = 2 * widths(ours)
    assert output.logits.std() > 0.5
    assert_near(ours(source, read, mask), output.logits, terms=terms)
    labels = target.masked_fill(target == PAD, -100)
    expected = theirs(input_ids=source, attention_mask=mask.long(), labels=labels).loss
    loss = encoder_decoder.teacher_forcing_loss(ours, source, target, start=1, pad=PAD)
    assert loss.item() == near(expected.item(), dtype="float32", terms=terms)


def test_teacher_forcing_has_the_gradients_of_transformers() -> None:
    theirs = seq2seq("bart")
    ours = encoder_decoder.from_transformers(theirs)
    source, mask = ragged(4, 9)
    target, _ = ragged(4, 6)
    encoder_decoder.teacher_forcing_loss(ours, source, target, start=1, pad=PAD).backward()
    labels = target.masked_fill(target == PAD, -100)
    theirs(input_ids=source, attention_mask=mask.long(), labels=labels).loss.backward()
    expected = {name.removeprefix("model."): p.grad for name, p in theirs.named_parameters()}
    found = {name: p.grad for name, p in ours.named_parameters()}
    assert found.keys() == expected.keys()
    # there and back, and a sum over the tokens
    terms, size = 4 * widths(ours) + target.numel(), largest(expected.values())
    for name in found:
        if name == "shared.weight":  # transformers gives the padding's row no gradient
            found[name][PAD] = expected[name][PAD]
        assert_near(found[name], expected[name], terms=terms, size=size)


@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_a_translation_is_what_generate_writes(kind: str) -> None:
    theirs = seq2seq(kind)
    ours = encoder_decoder.from_transformers(theirs)
    source, mask = ragged(5, 9)
    expected = theirs.generate(
        source, attention_mask=mask.long(), do_sample=False, num_beams=1, max_new_tokens=8
    )[:, 1:]
    found = encoder_decoder.translate_greedy(
        ours, source, start=1, end=2, pad=PAD, max_new_tokens=8
    )
    assert torch.equal(found, expected)


def test_the_padding_of_a_source_changes_nothing() -> None:
    ours = encoder_decoder.from_transformers(seq2seq("marian"))
    source, mask = ragged(4, 9)
    target, _ = ragged(4, 6)
    together = ours(source, target, mask)
    for row in range(4):
        length = int(mask[row].sum())
        alone = ours(source[row : row + 1, :length], target[row : row + 1], mask[:1, :length])
        assert_near(together[row : row + 1], alone, terms=2 * widths(ours))


def test_bert_has_the_hidden_states_and_pooled_vectors_of_transformers() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=31,
        hidden_size=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=40,
        max_position_embeddings=20,
        layer_norm_eps=1e-3,
    )
    with torch.random.fork_rng(devices=[]):
        theirs = randomize(BertModel(config))
    ours = bert.from_transformers(theirs)
    tokens, mask = ragged(4, 9)
    segment = (torch.arange(9) > 4).long().expand(4, 9)
    output = theirs(tokens, attention_mask=mask.long(), token_type_ids=segment)
    hidden = ours(tokens, mask, segment)
    terms = 2 * widths(ours)
    assert_near(hidden, output.last_hidden_state, terms=terms)
    assert_near(ours.pool(hidden), output.pooler_output, terms=terms)
    without = theirs(tokens, attention_mask=mask.long()).last_hidden_state
    assert_near(ours(tokens, mask), without, terms=terms)
    assert not torch.allclose(without, output.last_hidden_state)  # segments are read


def test_gpt2_has_the_logits_and_gradients_of_transformers_with_a_cache_and_without() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=31, n_embd=WIDTH, n_layer=3, n_head=HEADS, n_positions=20, n_inner=40
    )
    with torch.random.fork_rng(devices=[]):
        theirs = randomize(GPT2LMHeadModel(config))
    ours = gpt2.from_transformers(theirs)
    tokens = torch.randint(0, 31, (3, 12), generator=torch.Generator().manual_seed(1))
    both = [ours(tokens), theirs(tokens).logits]
    terms = 2 * widths(ours)
    assert both[1].std() > 0.5
    assert_near(both[0], both[1], terms=terms)
    cache: list[Any] = []
    parts = [ours(part, cache) for part in tokens.split([1, 4, 1, 6], dim=1)]
    assert_near(torch.cat(parts, dim=1), both[1], terms=terms)
    for logits in both:
        logits.log_softmax(-1)[..., 5].mean().backward()
    expected = {name.removeprefix("transformer."): p.grad for name, p in theirs.named_parameters()}
    found = {name: p.grad for name, p in ours.named_parameters()}
    assert found.keys() == expected.keys()
    for name in found:
        assert_near(
            found[name],
            expected[name],
            terms=2 * terms + tokens.numel(),
            size=largest(expected.values()),
        )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"activation_function": "tanh"}, "activation_function must be 'relu' or 'gelu' or"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads must be 4 here, got 2"),
    ],
)
def test_an_encoder_decoder_that_is_not_written_here_is_refused(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        encoder_decoder.from_transformers(seq2seq("bart", **change))
