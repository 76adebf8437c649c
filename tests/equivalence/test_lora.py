"""The book's LoRA computes what peft's does, reads and writes its files, and is live wherever the
model acts or is evaluated."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, near, widths
from torch import Tensor, nn

import rlbook
from rlbook.data.rollout import Batch
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.llama import is_plain_llama
from rlbook.llm.generation.generate import generate
from rlbook.llm.models.adapters import (
    PREFIX,
    adapter_weights,
    add_adapter,
    disable_adapters,
    save_adapter,
)
from rlbook.llm.models.export import merged_model
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.lora import Dropout, LoraLinear, lora_layers, merge_lora
from rlbook.llm.models.sources import folder_model
from rlbook.networks.optimizer import Group

IDS = torch.tensor([[1, 5, 7, 3, 8, 9], [1, 6, 6, 4, 2, 11]])
OPTIONS: dict[str, dict[str, Any]] = {
    "all linear layers": {"r": 4},
    "another scale": {"r": 2, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
    "a regular expression": {"r": 2, "target_modules": r".*\.1\.mlp\.(up|down)_proj"},
    "all but some": {"r": 2, "exclude_modules": ["mlp.up_proj", "o_proj"]},
    "the output layer": {"r": 2, "target_modules": ["lm_head", "k_proj"]},
    "rsLoRA": {"r": 4, "lora_alpha": 4, "use_rslora": True},
    "DoRA": {"r": 3, "use_dora": True},
    "both": {"r": 3, "lora_alpha": 5, "use_dora": True, "use_rslora": True},
    "dropout": {"r": 4, "lora_dropout": 0.3},
    "DoRA with dropout": {"r": 4, "lora_dropout": 0.3, "use_dora": True},
}


@contextmanager
def quiet() -> Iterator[None]:
    """What peft says of transformers' renamed properties is not shown; its constructors draw from
    the global generator."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def adapted(model: Any, settings: dict[str, Any]) -> Any:
    """The model with an adapter that changes every logit."""
    made = add_adapter(model, settings, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in adapter_weights(made).items():
            if not name.endswith("lora_A.weight"):
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    return made


def theirs(model: Any, folder: Path) -> Any:
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    with quiet():
        return peft.PeftModel.from_pretrained(model, str(folder), is_trainable=True).eval()


def share_dropout(ours: nn.Module, peft_model: Any) -> None:
    """One seed for both, since peft would draw from the global generator."""
    drop = next(
        (layer.dropout for _, layer in lora_layers(ours) if layer.dropout is not None), None
    )
    if drop is None:
        return
    twin = Dropout(drop.p, drop.seed)
    for module in peft_model.modules():
        if hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = twin
    peft_model.train()


def loss(model: Any) -> Tensor:
    logits = model(input_ids=IDS).logits
    weights = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    return (weights * logits.log_softmax(-1)).sum()


@pytest.mark.parametrize("options", OPTIONS)
def test_logits_and_gradients_are_peft_s(
    options: str, lively_llama: Callable[..., Any], tmp_path: Path
) -> None:
    ours = adapted(lively_llama(kv_heads=2), OPTIONS[options])
    save_adapter(ours, tmp_path, None)
    other = theirs(lively_llama(kv_heads=2), tmp_path)
    with torch.no_grad():
        plain = lively_llama(kv_heads=2)(input_ids=IDS).logits
        assert_near(ours(input_ids=IDS).logits, other(input_ids=IDS).logits, terms=widths(ours))
        assert (ours(input_ids=IDS).logits - plain).abs().max() > 0.05
    share_dropout(ours, other)
    values = loss(ours), loss(other)
    rounded: Any = {
        "dtype": "float32",
        "terms": widths(ours) + plain.numel(),
        "size": largest([plain.log_softmax(-1)]) * plain.numel(),
    }
    assert values[0].item() == near(values[1].item(), **rounded)
    # it drew again
    assert "dropout" not in options or loss(ours).item() != near(values[0].item(), **rounded)
    for value in values:
        value.backward()
    found = {
        name.replace(".default", ""): weight.grad
        for name, weight in other.named_parameters()
        if weight.requires_grad
    }
    needed = {name: weight.grad for name, weight in adapter_weights(ours).items()}
    assert {name.removesuffix(".weight") for name in found} == {
        name.removesuffix(".weight") for name in needed
    }
    terms = 2 * widths(ours) + plain.numel()  # there and back
    for name, gradient in needed.items():
        other_gradient = found[name] if name in found else found[f"{name}.weight"]
        assert gradient is not None and gradient.abs().max() > 0
        assert_near(gradient, other_gradient, terms=terms, size=largest(found.values()))


@pytest.mark.parametrize("options", ["all linear layers", "the output layer", "both"])
def test_an_adapter_that_peft_wrote_is_read(
    options: str, lively_llama: Callable[..., Any], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    settings = {"target_modules": "all-linear"} | OPTIONS[options]
    with quiet():
        other: Any = peft.get_peft_model(
            lively_llama(),
            peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings),
        )
        other.save_pretrained(tmp_path)
    ours = add_adapter(lively_llama(), str(tmp_path), np.random.default_rng(0))
    assert_near(ours(input_ids=IDS).logits, other(input_ids=IDS).logits, terms=widths(ours))
    assert (ours(input_ids=IDS).logits - lively_llama()(input_ids=IDS).logits).abs().max() > 0.01


def test_qwen2_s_biases_stay_beside_the_adapter(tmp_path: Path) -> None:
    from transformers.models.qwen2 import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        eos_token_id=2,
    )
    with quiet():
        torch.manual_seed(0)
        base: Any = Qwen2ForCausalLM(config).eval()
    torch.nn.init.normal_(
        base.model.layers[0].self_attn.q_proj.bias, generator=torch.Generator().manual_seed(3)
    )
    sentence = (
        r"adapter: target_modules names 'dense', but no linear layer .*; did you mean '\w+_proj'\?"
        r" \(they are: "
    )
    with pytest.raises(ValueError, match=sentence):
        add_adapter(
            base,
            {"target_modules": ["q_proj", "k_proj", "v_proj", "dense"]},
            np.random.default_rng(0),
        )
    ours = adapted(copy.deepcopy(base), {"r": 2, "use_dora": True})
    save_adapter(ours, tmp_path, None)
    other = theirs(copy.deepcopy(base), tmp_path)
    assert_near(ours(input_ids=IDS).logits, other(input_ids=IDS).logits, terms=widths(ours))
    logits = ours(input_ids=IDS).logits
    merge_lora(ours)
    assert_near(ours(input_ids=IDS).logits, logits, terms=widths(ours))
    assert not list(lora_layers(ours))
    assert ours.lm_head.weight is ours.model.embed_tokens.weight  # the output layer had no adapter
    tied = adapted(base, {"r": 2, "target_modules": ["lm_head"]})
    logits = tied(input_ids=IDS).logits
    merge_lora(tied)
    tied.tie_weights()
    assert_near(tied(input_ids=IDS).logits, logits, terms=widths(tied))
    assert tied.lm_head.weight is not tied.model.embed_tokens.weight


@pytest.mark.parametrize("options", OPTIONS)
def test_merged_equals_unmerged(options: str, lively_llama: Callable[..., Any]) -> None:
    model = adapted(lively_llama(), OPTIONS[options])
    with torch.no_grad():
        before, terms = model(input_ids=IDS).logits, widths(model)
        merge_lora(model)
        assert_near(model(input_ids=IDS).logits, before, terms=terms)
    assert is_plain_llama(model) and model.state_dict().keys() == lively_llama().state_dict().keys()


def by_hand(model: Any, adapter: dict[str, Tensor], scale: float) -> Any:
    """An ordinary model of the weights W + s B A."""
    for name, module in model.named_modules():
        if f"{PREFIX}{name}.lora_A.weight" in adapter:
            a, b = (adapter[f"{PREFIX}{name}.lora_{part}.weight"].detach().numpy() for part in "AB")
            module.weight = nn.Parameter(
                torch.from_numpy(module.weight.detach().numpy() + scale * b @ a)
            )
    return model


def texts() -> tuple[np.ndarray, np.ndarray]:
    """Ragged prompts of 1 to 8 tokens, with room for 4 more."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 26, (6, 12)), rng.integers(1, 9, 6)


def next_logits(model: Any, tokens: np.ndarray, length: np.ndarray) -> np.ndarray:
    """By transformers' own forward pass, each text by itself."""
    rows = [
        model(input_ids=torch.from_numpy(row[:count])[None]).logits[0, -1]
        for row, count in zip(tokens, length, strict=True)
    ]
    return torch.stack(rows).detach().numpy()


@pytest.mark.parametrize(
    "options", ["all linear layers", "another scale", "the output layer", "rsLoRA"]
)
def test_the_adapter_is_live_in_acting_evaluating_and_the_cache(
    options: str, lively_llama: Callable[..., Any]
) -> None:
    """Against transformers on weights that were put together by hand; then again after a step of
    training, in the middle of an episode."""
    settings = OPTIONS[options]
    scale = settings.get("lora_alpha", 8) / (
        settings["r"] ** 0.5 if settings.get("use_rslora") else settings["r"]
    )
    policy = LanguageModelPolicy(adapted(lively_llama(kv_heads=2), settings))
    state, optimizer, terms = (
        policy.initial_state(),
        FlatAdam([Group([policy])], 0.05),
        widths(policy),
    )
    tokens, length = texts()
    for _ in range(2):
        plain = by_hand(lively_llama(kv_heads=2), adapter_weights(policy.model), scale)
        now, longer = length.copy(), tokens.copy()
        for _ in range(3):  # the cache grows
            logits = state.logits(longer, now)
            assert_near(logits, next_logits(plain, longer, now), terms=terms)
            longer[np.arange(6), now] = logits.argmax(-1).numpy()
            now = now + 1
        written = generate(policy, tokens, length, eos=-1, max_new_tokens=3)
        batch = batch_of(written.tokens)
        log_prob = policy.evaluate(batch)[0]
        assert_near(log_prob, written.log_prob, terms=terms)
        assert_near(log_prob, LanguageModelPolicy(plain).evaluate(batch)[0], terms=terms)
        optimizer.step(log_prob.mean())


def batch_of(completion: np.ndarray) -> Batch:
    tokens, length = map(torch.from_numpy, texts())
    return Batch(
        {"tokens": tokens, "length": length},
        torch.from_numpy(completion),
        torch.zeros(6, 3),
        torch.ones(6, 3, dtype=torch.bool),
    )


def test_with_the_adapters_off_the_model_is_the_one_from_before(
    lively_llama: Callable[..., Any],
) -> None:
    """The reference: the same tensors, nothing to save, and what it says does not move while the
    adapter is trained."""
    plain, (tokens, length) = LanguageModelPolicy(lively_llama()), texts()
    new = add_adapter(lively_llama(), {"r": 2, "use_dora": True}, np.random.default_rng(0))
    policy = LanguageModelPolicy(new)
    reference, optimizer, batch = (
        policy.reference(),
        FlatAdam([Group([policy])], 0.05),
        batch_of(np.full((6, 3), 4)),
    )
    assert (
        reference.model is policy.model
        and not list(reference.parameters())
        and reference.state_dict() == {}
    )
    before = plain.evaluate(batch)[0].detach()
    for _ in range(2):
        found = reference.evaluate(batch)[0]
        assert not found.requires_grad
        written = [
            generate(one, tokens, length, eos=-1, max_new_tokens=3).log_prob
            for one in (reference, plain)
        ]
        assert_near(found, before, terms=widths(plain))
        assert_near(
            reference.distributions(batch).log_prob(batch.action), before, terms=widths(plain)
        )
        assert_near(*written, terms=widths(plain), size=largest([before]))
        optimizer.step(policy.evaluate(batch)[0].mean())
        assert (policy.evaluate(batch)[0] - before).abs().max() > 0.1
    with disable_adapters(policy.model), torch.no_grad():
        assert torch.equal(policy.model(input_ids=IDS).logits, lively_llama()(input_ids=IDS).logits)
    layer = next(layer for _, layer in lora_layers(policy.model))
    assert isinstance(layer, LoraLinear) and layer.enabled


def test_merged_peft_s_output_layer_leaves_the_embedding_that_it_shared(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    """peft adds to the weights in place, which are GPT-2's embedding too."""
    pytest.importorskip("peft", reason="peft is in the extra [lora]")
    asked = {"r": 2, "target_modules": ["c_attn", "lm_head"]}
    with quiet():
        model = add_adapter(folder_model(gpt2_folder), asked, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (one for one in model.parameters() if one.requires_grad):
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
        expected = model(input_ids=IDS).logits
        merged = merged_model(model)
        assert_near(merged(input_ids=IDS).logits, expected, terms=widths(merged))
        merged.save_pretrained(tmp_path)
        assert_near(folder_model(tmp_path)(input_ids=IDS).logits, expected, terms=widths(merged))


@pytest.mark.parametrize("book", [True, False], ids=["ours", "peft's"])
def test_the_reference_of_an_adapter_that_has_learned_is_the_policy_with_it(
    book: bool, lively_llama: Callable[..., Any], tmp_path: Path
) -> None:
    """As after a start from a run with an adapter: DPO's loss begins at ln 2. What is not trained
    is not copied."""
    model = adapted(lively_llama(), {"r": 2})
    save_adapter(model, tmp_path, None)
    policy = LanguageModelPolicy(model if book else theirs(lively_llama(), tmp_path))
    reference, batch = policy.reference(), batch_of(np.full((6, 3), 4))
    before = policy.evaluate(batch)[0].detach()
    frozen = {name for name, weight in policy.named_parameters() if not weight.requires_grad}
    ours, copied = (dict(one.named_parameters()) for one in (policy, reference))
    assert frozen and all((copied[name] is ours[name]) == (name in frozen) for name in ours)
    for _ in range(2):
        assert torch.equal(reference.evaluate(batch)[0], before)
        FlatAdam([Group([policy])], 0.05).step(policy.evaluate(batch)[0].mean())
        assert (policy.evaluate(batch)[0] - before).abs().max() > 0.1


def test_an_adapter_of_a_bfloat16_model_is_float32_as_peft_s(
    lively_llama: Callable[..., Any], tmp_path: Path
) -> None:
    ours = adapted(lively_llama().to(torch.bfloat16), {"r": 2})
    assert {weight.dtype for weight in adapter_weights(ours).values()} == {torch.float32}
    save_adapter(ours, tmp_path, None)
    other = theirs(lively_llama().to(torch.bfloat16), tmp_path)
    assert torch.equal(ours(input_ids=IDS).logits, other(input_ids=IDS).logits)


# ---- bfloat16 below an adapter


def adapter_gradients(model: Any) -> list[Tensor]:
    """Of a loss of the logits, in the order of the adapter's weights."""
    weights = list(adapter_weights(model).values())
    loss = model(input_ids=IDS).logits.float().log_softmax(-1)[..., 5].mean()
    return list(torch.autograd.grad(loss, weights))


@pytest.mark.parametrize("options", [{"r": 4}, {"r": 3, "use_dora": True}], ids=str)
def test_an_adapter_of_a_bfloat16_model_has_the_gradient_of_peft_s(
    options: dict[str, Any], lively_llama: Callable[..., Any], tmp_path: Path
) -> None:
    """And that of a float32 model with the same, rounded weights, but for the rounding of what runs
    through its layers; of DoRA's scale that is another in peft."""
    ours = adapted(lively_llama().to(torch.bfloat16), options)
    save_adapter(ours, tmp_path, None)
    other = theirs(lively_llama().to(torch.bfloat16), tmp_path)
    exact = adapted(lively_llama().to(torch.bfloat16).float(), options)
    with torch.no_grad():
        for one, same in zip(
            adapter_weights(exact).values(), adapter_weights(ours).values(), strict=True
        ):
            one.copy_(same)
    found, expected = adapter_gradients(ours), adapter_gradients(exact)
    named = dict(other.named_parameters())
    weights = [
        named[f"{name.rsplit('.', 1)[0]}.default.weight"]
        if "magnitude" not in name
        else named[f"{name}.default.weight"]
        for name in adapter_weights(ours)
    ]
    loss = other(input_ids=IDS).logits.float().log_softmax(-1)[..., 5].mean()
    peft_s = torch.autograd.grad(loss, weights)
    assert {one.dtype for one in found} == {torch.float32}
    assert options.get("use_dora") or all(map(torch.equal, found, peft_s))
    flat, *others = (
        torch.cat([one.flatten() for one in each]) for each in (expected, found, peft_s)
    )
    for gradient in others:
        # bfloat16 rounds each factor and result by 2^-8 at most, 14 layers there and back
        assert (gradient - flat).norm() < 2**-8 * math.sqrt(3 * 2 * 14) * flat.norm()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "numbers", [{"dtype": "bfloat16"}, pytest.param({"compute": "bfloat16"}, marks=pytest.mark.slow),
    {"compute": "bfloat16", "gradient_checkpointing": True}], ids=str,
)  # fmt: skip
def test_a_run_trains_a_float32_adapter_on_a_bfloat16_model(
    numbers: dict[str, Any], tmp_path: Path
) -> None:
    """The adapter ends where that of a float32 model does, but for a quarter of its way; resumed, a
    run goes on to the same bit."""
    adapter = {"r": 4, "target_modules": ["q_proj", "up_proj"]}
    options: dict[str, Any] = {"batch_size": 16, "eval_every": 0, "learning_rate": 1e-3}
    options["anneal_learning_rate"] = False  # the cut run has a smaller budget
    runs = {
        name: rlbook.train("sft", "Addition-v0", model=model, steps=10, **options)
        for name, model in (("rounded", {"adapter": adapter} | numbers),
                            ("exact", {"adapter": adapter}))
    }  # fmt: skip
    rlbook.train(
        "sft", "Addition-v0", model={"adapter": adapter} | numbers, steps=4,
        out=tmp_path / "cut", **options,
    )  # fmt: skip
    runs["resumed"] = rlbook.load(tmp_path / "cut").resume(steps=10)
    models = {name: run.agent.policy.model for name, run in runs.items()}  # type: ignore[attr-defined]
    ends = {
        name: torch.cat([weight.reshape(-1) for key, weight in adapter_weights(model).items()
                         if "lora_B" in key])
        for name, model in models.items()
    }  # fmt: skip
    assert ends["rounded"].dtype == torch.float32
    assert torch.equal(ends["resumed"], ends["rounded"])
    # B starts at 0
    assert 0.0 < (ends["rounded"] - ends["exact"]).norm() < 0.25 * ends["exact"].norm()
    for (name, weight), (_, exact) in zip(
        models["rounded"].named_parameters(), models["exact"].named_parameters(), strict=True
    ):
        if not weight.requires_grad:
            kept = exact.bfloat16() if "dtype" in numbers else exact
            assert torch.equal(weight, kept), name
