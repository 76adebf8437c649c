"""LoRA by hand, what it starts from, what it refuses, and runs that train one."""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from torch import Tensor, nn

import rlbook
from rlbook.llm.models.adapters import add_adapter
from rlbook.llm.models.export import merged_model, write_weights
from rlbook.llm.models.lora import Dropout, LoraLinear, LoraSettings, add_lora, lora_layers, targets
from rlbook.llm.models.model_folder import FolderError
from rlbook.llm.models.sources import small_llama
from rlbook.llm.serving.served_model import ServedModel
from rlbook.networks.policy import saved_tensors


def layer(
    weight: list[list[float]], a: list[list[float]], b: list[list[float]], **settings: Any
) -> LoraLinear:
    base = nn.Linear(len(weight[0]), len(weight), bias=False)
    base.weight = nn.Parameter(torch.tensor(weight))
    made = LoraLinear(
        base, LoraSettings(r=len(a), **settings), None, torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        made.lora_A.weight.copy_(torch.tensor(a))
        made.lora_B.weight.copy_(torch.tensor(b))
    return made


X = torch.tensor([2.0, 1.0])
W = [[1.0, 2.0], [3.0, 4.0]]  # W x = (4, 10)
A, B = [[1.0, -1.0]], [[2.0], [0.0]]  # A x = 2 - 1 = 1, B A x = (2, 0)


def test_the_change_is_alpha_over_r_times_b_a_x() -> None:
    assert layer(W, A, B, lora_alpha=3)(X).tolist() == [4 + 3 / 1 * 2, 10]
    twice = layer(W, A * 2, [[2.0, 2.0], [0.0, 0.0]], lora_alpha=3)  # rank 2: B A x = (2 + 2, 0)
    assert twice(X).tolist() == [4 + 3 / 2 * 4, 10]
    assert twice.merge().weight.tolist() == [[1 + 1.5 * 4, 2 - 1.5 * 4], [3, 4]]
    root = layer(W, A * 2, [[2.0, 2.0], [0.0, 0.0]], lora_alpha=3, use_rslora=True)
    assert root(X).tolist() == near([4 + 3 / math.sqrt(2) * 4, 10], dtype="float32", terms=4)


def test_dora_gives_each_row_a_length_of_its_own() -> None:
    """W + s B A = (1 + 6, 2 - 6) = (7, -4) in the first row, of length √65; m starts at the rows'
    own lengths √5 and 5."""
    made = layer(W, A, B, lora_alpha=3, use_dora=True)
    assert made.lora_magnitude_vector is not None
    sums: dict[str, Any] = {"dtype": "float32", "terms": 4, "size": 2 * (7 * 2 + 4 * 1)}
    assert made.lora_magnitude_vector.tolist() == near([math.sqrt(5), 5], **sums)
    assert made(X).tolist() == near([math.sqrt(5) / math.sqrt(65) * (7 * 2 - 4 * 1), 10], **sums)
    with torch.no_grad():
        made.lora_magnitude_vector.mul_(2)
    assert made(X).tolist() == near([2 * math.sqrt(5 / 65) * 10, 20], **sums)
    assert_near(made.merge()(X), made(X), **sums)


@pytest.mark.parametrize(
    "settings", [{}, {"use_dora": True}, {"use_rslora": True, "lora_alpha": 64}]
)
def test_a_new_adapter_changes_nothing_and_r_times_both_widths_are_trained(
    settings: dict[str, Any],
) -> None:
    model, ids = small_llama(torch.Generator().manual_seed(0)), torch.arange(3, 9)[None]
    before = model(ids).logits
    add_lora(model, LoraSettings(r=4, **settings), torch.Generator().manual_seed(1))
    assert_near(model(ids).logits, before, terms=widths(model))
    for _, made in lora_layers(model):
        bound = 1 / math.sqrt(made.base_layer.in_features)
        assert (
            not made.lora_B.weight.any() and 0.8 * bound < made.lora_A.weight.abs().max() <= bound
        )
    trained = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    ends = 4 * (64 + 64) + 2 * (64 + 256) + (256 + 64)  # q, k, v and o; gate and up; down
    lengths = 4 * 64 + 2 * 256 + 64 if settings.get("use_dora") else 0
    assert sum(trained) == 2 * (4 * ends + lengths)


def test_all_linear_is_every_linear_layer_but_the_last() -> None:
    model: Any = small_llama(torch.Generator().manual_seed(0))
    names = set(targets(model, LoraSettings()))
    assert len(names) == 2 * 7 and "lm_head" not in names
    assert set(targets(model, LoraSettings(target_modules=["q_proj", "lm_head"]))) == {
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "lm_head",
    }
    assert (
        len(
            targets(
                model,
                LoraSettings(target_modules=["mlp.up_proj"], exclude_modules=["0.mlp.up_proj"]),
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"r": 0}, "r must be an integer of at least 1, got 0"),
        ({"lora_alpha": 0}, "lora_alpha must be a number above 0"),
        ({"lora_dropout": 1.0}, r"lora_dropout must be a number in \[0, 1\), got 1.0"),
        ({"use_dora": "yes"}, "use_dora must be true or false"),
        ({"target_modules": 3}, "target_modules must be a list of layers' names, got 3"),
        ({"exclude_modules": "q_proj"}, "exclude_modules must be a list"),
        (
            {"target_modules": ["q_prog"]},
            "names 'q_prog', but no linear layer of the model has this name; did you mean 'q_proj'",
        ),
        (
            {"target_modules": "q_proj"},
            (
                "'q_proj' matches no linear layer's whole name, such as"
                " 'model.layers.0.self_attn.q_proj'; ends of"
            ),
        ),
        ({"target_modules": "("}, "is not a regular expression"),
        (
            {"target_modules": ["q_proj"], "exclude_modules": ["self_attn.q_proj"]},
            "select no layer",
        ),
    ],
)
def test_what_no_adapter_can_be_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        add_lora(
            small_llama(torch.Generator().manual_seed(0)),
            LoraSettings(**settings),
            torch.Generator(),
        )


def test_dropout_keeps_the_mean_and_is_at_work_only_where_gradients_are_recorded() -> None:
    drop, x = Dropout(0.25, seed=3), torch.ones(20_000)
    first, second = drop(x), drop(x)
    assert first.unique().tolist() == near([0, 4 / 3], dtype="float32")
    # 0 with .25 and 4/3 otherwise: variance .25 / .75; up to 5 standard errors
    assert abs(float(first.mean()) - 1) < 5 * math.sqrt(0.25 / 0.75 / len(x))
    assert not torch.equal(first, second) and int(drop.drawn) == 2
    with torch.no_grad():
        assert drop(x) is x
    again = Dropout(0.25, seed=3)
    again.load_state_dict({"drawn": torch.tensor(1)})
    assert torch.equal(again(x), second)


def bits(run: Any) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in saved_tensors(run.agent.policy).items()
        if isinstance(value, Tensor)
    }


def test_a_run_with_dropout_resumes_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "model": {"adapter": {"r": 2, "lora_dropout": 0.1}},
        "batch_size": 8,
        "eval_every": 0,
        "seed": 0,
        "learning_rate": 1e-2,
        "anneal_learning_rate": False,
    }
    whole = rlbook.train("sft", "Addition-v0", steps=12, **options)
    rlbook.train("sft", "Addition-v0", steps=6, out=tmp_path / "run", **options)
    again = rlbook.load(tmp_path / "run").resume(steps=12)
    one, two = bits(whole), bits(again)
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    drawn = next(value for name, value in one.items() if name.endswith("drawn"))
    assert int(drawn) == 12 * 14  # each step, in each of 14 layers
    assert not any("base_layer" in name for name in one)


def test_what_needs_peft_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    model, rng = small_llama(torch.Generator().manual_seed(0)), np.random.default_rng(0)
    with pytest.raises(
        ValueError,
        match=r'^modules_to_save of an adapter needs peft: pip install "rlbook\[lora\]"$',
    ):
        add_adapter(model, {"r": 2, "modules_to_save": ["lm_head"]}, rng)
    add_adapter(model, {"r": 2}, rng)  # which the book has itself


def test_a_name_that_peft_does_not_find_is_explained() -> None:
    """peft takes a text for a pattern of whole names, and only a list for ends of names."""
    pytest.importorskip("peft")
    model, rng = small_llama(torch.Generator().manual_seed(0)), np.random.default_rng(0)
    asked = {"r": 2, "bias": "lora_only"}
    with pytest.raises(ValueError, match=r"not found .* ends of names stand in a list, as in"):
        add_adapter(model, {**asked, "target_modules": "q_proj"}, rng)
    model = small_llama(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="not found") as told:
        add_adapter(model, {**asked, "target_modules": ["nothing"]}, rng)
    assert "stand in a list" not in str(told.value)


def test_a_served_model_whose_output_layer_is_its_embedding_refuses_one_of_its_own(
    tmp_path: Path,
) -> None:
    """Which is what merging an adapter on that layer makes; the served weights stay."""
    pytest.importorskip("transformers")
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=10, tie_word_embeddings=True, **sizes, **heads)
    model = LlamaForCausalLM(config).eval()
    served = ServedModel(model, codec=None, name="tied", context=8)  # type: ignore[arg-type]
    before = model.lm_head.weight.clone()
    for layer in ("q_proj", "lm_head"):
        trained = copy.deepcopy(model)
        add_lora(trained, LoraSettings(target_modules=[layer]), torch.Generator())
        for _, adapted in lora_layers(trained):
            torch.nn.init.ones_(adapted.lora_B.weight)
        folder = tmp_path / layer
        folder.mkdir()
        write_weights(merged_model(trained), str(folder))
    served.load_weights(str(tmp_path / "q_proj"))
    assert served.version == 1
    with pytest.raises(FolderError, match="leave the output layer out of the adapter's target_mod"):
        served.load_weights(str(tmp_path / "lm_head"))
    assert served.version == 1 and torch.equal(model.lm_head.weight, before)
