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

from rlbook.llm.models.model_folder import FolderError
from rlbook.llm.models.sources import folder_model
from rlbook.llm.models.transformer import from_folder, generate_greedy

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
