"""The transformer to be read says what transformers says of the same folder; so does its fast
form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_near, largest, widths

from rlbook.llm.models.architectures.t5 import (
    RelativeBias,
    from_transformers_block,
    relative_position_bucket,
)
from rlbook.llm.models.architectures.transformer import from_folder, generate_greedy
from rlbook.llm.models.model_folder import FolderError
from rlbook.llm.models.sources import folder_model

KINDS = {
    "llama": ("llama", {"num_key_value_heads": 4}),
    "llama, grouped, tied": ("llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama, wide heads": (
        "llama",
        {
            "num_key_value_heads": 1,
            "head_dim": 10,
            "rope_parameters": {"rope_theta": 50.0, "rope_type": "default"},
        },
    ),
    "qwen2": ("qwen2", {"num_key_value_heads": 4}),
    "qwen2, grouped, tied": (
        "qwen2",
        {"num_key_value_heads": 2, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_logits_and_gradients_are_those_of_transformers(
    case: str, random_model: Callable[..., Any], tmp_path: Path
) -> None:
    kind, sizes = KINDS[case]
    theirs = random_model(kind, **sizes)
    theirs.save_pretrained(tmp_path)
    ours = from_folder(tmp_path)
    # 0 pads: no gradient there
    tokens = torch.randint(1, 31, (3, 17), generator=torch.Generator().manual_seed(1))
    both = [ours(tokens), theirs(tokens).logits]
    assert both[1].std() > 0.5  # nothing is hidden by small weights
    assert_near(both[0], both[1], terms=widths(ours))
    for logits in both:
        logits.log_softmax(-1)[..., 5].mean().backward()
    expected = {
        name.removeprefix("model."): parameter.grad for name, parameter in theirs.named_parameters()
    }
    found = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert found.keys() == expected.keys()  # a tied matrix once
    terms, size = 2 * widths(ours) + tokens.numel(), largest(expected.values())  # there and back
    for name in found:
        assert_near(found[name], expected[name], terms=terms, size=size)


def test_the_cache_changes_nothing(random_model: Callable[..., Any], tmp_path: Path) -> None:
    """One token at a time, then three at once, then one: the logits of one pass over the whole
    text."""
    random_model("qwen2", num_key_value_heads=2).save_pretrained(tmp_path)
    model = from_folder(tmp_path)
    tokens = torch.randint(0, 31, (2, 9), generator=torch.Generator().manual_seed(1))
    cache: list[Any] = []
    parts = [model(part, cache) for part in tokens.split([1, 1, 3, 1, 3], dim=1)]
    assert_near(torch.cat(parts, dim=1), model(tokens), terms=widths(model))
    # [B, K, n, D] for each layer
    assert [tuple(keys.shape) for keys, _ in cache] == [(2, 2, 9, 6)] * 3
    assert torch.equal(
        generate_greedy(model, tokens, 8), generate_greedy(model, tokens, 8, cached=False)
    )


def test_it_continues_as_generate_does(random_model: Callable[..., Any], tmp_path: Path) -> None:
    theirs = random_model("llama", num_key_value_heads=2)
    theirs.generation_config.eos_token_id = None
    theirs.save_pretrained(tmp_path)
    tokens = torch.randint(3, 31, (2, 5), generator=torch.Generator().manual_seed(1))
    expected = theirs.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=10
    )
    assert torch.equal(generate_greedy(from_folder(tmp_path), tokens, 10), expected)


def test_a_sharded_folder_in_half_precision_is_read(
    random_model: Callable[..., Any], tmp_path: Path
) -> None:
    theirs = random_model("llama", num_key_value_heads=2).bfloat16()
    theirs.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = torch.arange(12)[None]
    ours = from_folder(tmp_path)
    assert_near(ours(tokens), folder_model(tmp_path)(tokens).logits, terms=widths(ours))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"model_type": "mistral"},
            "model: model_type must be 'llama' or 'qwen2' here, got 'mistral'",
        ),
        ({"hidden_act": "gelu"}, "model: hidden_act must be 'silu' here, got 'gelu'"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "model: rope_type must be 'default' here, got 'linear'",
        ),
        (
            {
                "rope_parameters": None,
                "rope_theta": 1e4,
                "rope_scaling": {"type": "dynamic", "factor": 2.0},
            },
            "model: rope_type must be 'default' here, got 'dynamic'",
        ),
    ],
)
def test_what_is_not_written_there_is_refused_in_one_sentence(
    change: dict[str, Any], sentence: str, random_model: Callable[..., Any], tmp_path: Path
) -> None:
    random_model("llama", num_key_value_heads=2).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | change))
    with pytest.raises(FolderError) as error:
        from_folder(tmp_path)
    assert str(error.value) == sentence


def test_weights_that_do_not_fit_are_refused(
    random_model: Callable[..., Any], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    random_model("qwen2", num_key_value_heads=2).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.0.self_attn.stray"] = weights.pop("model.layers.0.self_attn.q_proj.bias")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        FolderError, match=r"^model: the weights in '.*' do not fit \(Missing key.*q_proj.bias.*\)$"
    ):
        from_folder(tmp_path)


def test_distances_share_buckets_as_in_t5() -> None:
    """By hand, of 8 buckets of which 4 are before the query: 0 and 1 have their own, 2 to 4 and all
    beyond share, since log(4/2) / log(16/2) · 2 = 2/3 and log(6/2) / log(16/2) · 2 = 1.06."""
    distance = torch.tensor([0, -1, -2, -4, -6, -16, -99, 1, 2, 6, 99])
    found = relative_position_bucket(distance, both_ways=True, buckets=8, longest=16)
    assert found.tolist() == [0, 1, 2, 2, 3, 3, 3, 5, 6, 7, 7]
    back = relative_position_bucket(distance, both_ways=False, buckets=4, longest=16)
    assert back.tolist() == [0, 1, 2, 2, 3, 3, 3, 0, 0, 0, 0]
    from transformers.models.t5.modeling_t5 import T5Attention

    far = torch.arange(-300, 301)
    for both_ways in (True, False):
        theirs = T5Attention._relative_position_bucket(far, both_ways, 32, 128)
        assert torch.equal(relative_position_bucket(far, both_ways=both_ways), theirs)
    bias = RelativeBias(3, both_ways=False)
    assert torch.equal(bias(2, 6), bias(6)[:, :, -2:])


def test_t5s_layers_are_those_of_transformers() -> None:
    """Encoder and decoder, with padding in the source and a text beyond the last bucket."""
    from transformers import T5Config, T5Model

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=31,
        d_model=24,
        d_kv=5,  # heads times this is not the width
        d_ff=40,
        num_layers=2,
        num_heads=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        initializer_factor=3.0,
    )
    theirs: Any = T5Model(config).eval()
    source, target = torch.randint(1, 31, (2, 23)), torch.randint(1, 31, (2, 19))
    mask = torch.arange(23) < torch.tensor([[23], [11]])
    with torch.inference_mode():
        expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target)
        states = []
        for stack, tokens in ((theirs.encoder, source), (theirs.decoder, target)):
            blocks = [from_transformers_block(block) for block in stack.block]
            bias = blocks[0][1]
            assert bias is not None and all(other is None for _, other in blocks[1:])
            x, added = theirs.shared(tokens), bias(tokens.shape[1])
            for layer, _ in blocks:
                x = layer(x, added, mask[:, None, None], *states)
            states.append(stack.final_layer_norm(x))
    assert added.std() > 0.5  # the positions matter
    terms = widths(theirs)
    assert_near(states[0][mask], expected.encoder_last_hidden_state[mask], terms=terms)
    assert_near(states[1], expected.last_hidden_state, terms=2 * terms)
    sizes = {"vocab_size": 9, "d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 2, "d_kv": 4}
    gated = T5Model(T5Config(**sizes, feed_forward_proj="gated-gelu"))
    with pytest.raises(ValueError, match="must have one matrix in front, wi, and a ReLU"):
        from_transformers_block(gated.encoder.block[0])
