"""The fast form of Llama, Qwen2 and Qwen3 says what transformers says, token for token, and reads a
common beginning once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, widths
from torch import Tensor

from rlbook.fast.llama import LlamaDecoder, is_plain_llama
from rlbook.fast_forms import use_plain_forms
from rlbook.llm.generation.prompt_rows import SHARED, PromptRows, rows_of
from rlbook.llm.models import causal_lm
from rlbook.llm.models.adapters import disable_adapters
from rlbook.llm.models.causal_lm import CausalDecoder
from rlbook.llm.models.lora import LoraSettings, add_lora, lora_layers

FAMILY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama with biases": (
        "llama",
        {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True},
    ),
    "llama 3": (
        "llama",
        {
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 2.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "qwen2": ("qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 10}),
    "qwen3 with biases": (
        "qwen3",
        {"num_key_value_heads": 4, "head_dim": 6, "attention_bias": True},
    ),
}


@pytest.fixture(params=FAMILY)
def model(request: pytest.FixtureRequest, random_model: Callable[..., Any]) -> Any:
    kind, sizes = FAMILY[request.param]
    return random_model(kind, **sizes)


def texts(shared: int, lengths: tuple[int, ...] = (3, 1, 7, 3), time: int = 5) -> PromptRows:
    """Completions of prompts that begin with the same `shared` tokens and have so many of their
    own; the first and the last are equal."""
    rng = np.random.default_rng(0)
    prompt = torch.from_numpy(rng.integers(1, 31, (len(lengths), shared + max(lengths))))
    prompt[:, :shared] = prompt[0, :shared].clone()
    # the common beginning is no longer than that
    prompt[:, shared] = torch.arange(1, len(prompt) + 1)
    prompt[-1] = prompt[0]
    return rows_of(
        prompt,
        shared + torch.tensor(lengths),
        torch.from_numpy(rng.integers(1, 31, (len(lengths), time))),
    )


def alone(model: Any, rows: PromptRows, row: int) -> Tensor:
    """Logits [T + 1, V] of one row by transformers' own forward pass on its text and nothing
    else."""
    whole = rows.with_prefix()
    prompt = whole.prompt[whole.index[row], whole.padding[whole.index[row]] :]
    return model(input_ids=torch.cat([prompt, whole.completion[row]])[None]).logits[
        0, len(prompt) - 1 :
    ]


@pytest.mark.parametrize("shared", [0, SHARED, 40])
def test_logits_are_those_of_each_text_alone(model: Any, shared: int) -> None:
    rows = texts(shared)
    assert len(rows.prefix) == shared and len(rows.prompt) == 3
    logits = causal_lm.logits(model, rows)
    for row in range(4):
        assert_near(logits[row], alone(model, rows, row), terms=widths(model))


@pytest.mark.parametrize("shared", [0, SHARED])
def test_gradients_are_those_of_transformers(model: Any, shared: int) -> None:
    rows, parameters, results = texts(shared), list(model.parameters()), []
    for plain in (False, True):
        with use_plain_forms(plain):
            loss = causal_lm.logits(model, rows).log_softmax(-1)[..., 5].mean()
        results.append(torch.autograd.grad(loss, parameters))
    terms = 2 * widths(model) + rows.completion.numel()  # there and back
    assert_near(*results, terms=terms, size=largest(results[1]))


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("lengths", [(3, 1, 7, 3), (4, 4, 4, 4)], ids=["ragged", "even"])
@pytest.mark.parametrize("shared", [0, SHARED])
def test_the_decoder_says_what_each_text_alone_says(
    model: Any, shared: int, lengths: tuple[int, ...]
) -> None:
    rows = texts(shared, lengths)
    expected = torch.stack([alone(model, rows, row) for row in range(4)])
    for plain in (False, True):
        with use_plain_forms(plain):
            decoder = causal_lm.decoder(model)
        assert isinstance(decoder, CausalDecoder if plain else LlamaDecoder)
        found = [decoder.prefill(rows, new_tokens=5)]
        for column in range(5):
            if column == 2:  # saved and taken up by another one
                state, decoder = decoder.state_dict(), type(decoder)(model)
                decoder.load_state_dict(state)
            found.append(decoder.step(rows.completion[:, column]))
        assert_near(torch.stack(found, dim=1), expected, terms=widths(model))


@pytest.mark.fast_form
def test_a_common_beginning_is_read_once(random_model: Callable[..., Any]) -> None:
    """How many tokens the feed-forward part of the first layer sees: 40 shared, 3 prompts of 7 with
    padding, 4 completions of 5."""
    model, rows = random_model("qwen2", num_key_value_heads=2), texts(40)
    read: list[int] = []
    for forward in (
        lambda: causal_lm.logits(model, rows),
        lambda: causal_lm.decoder(model).prefill(rows, 1),
    ):
        with torch.profiler.profile(record_shapes=True, acc_events=True) as profile:
            forward()
        shapes = [event.input_shapes[0] for event in profile.events() if event.name == "aten::silu"]
        read.append(int(np.prod(shapes[0][:-1])))
    assert read == [40 + 3 * 7 + 4 * 5, 40 + 3 * 7]


def test_the_prefix_goes_back_where_it_was() -> None:
    rows = texts(SHARED)
    whole = rows.with_prefix()
    assert (
        rows.prompt.shape == (3, 7)
        and whole.prompt.shape == (3, SHARED + 7)
        and not len(whole.prefix)
    )
    for row, padding in zip(whole.prompt, whole.padding.tolist(), strict=True):
        assert not row[:padding].any() and torch.equal(row[padding : padding + SHARED], rows.prefix)
    own = {
        tuple(row[padding:].tolist())
        for row, padding in zip(rows.prompt, rows.padding.tolist(), strict=True)
    }
    assert own == {
        tuple(row[p + SHARED :].tolist())
        for row, p in zip(whole.prompt, whole.padding.tolist(), strict=True)
    }


@pytest.mark.parametrize(
    ("shared", "lengths"), [(SHARED - 1, (3, 1, 7, 3)), (30, (4, 4))], ids=["short", "one prompt"]
)
def test_what_is_not_worth_it_stays_in_the_prompts(shared: int, lengths: tuple[int, ...]) -> None:
    assert not len(texts(shared, lengths).prefix)


def test_a_prompt_that_is_the_beginning_of_another_keeps_a_token_of_its_own() -> None:
    tokens = torch.arange(1, 31).expand(2, -1)
    rows = rows_of(tokens, torch.tensor([20, 30]), tokens[:, :0])
    assert len(rows.prefix) == 19
    short, long = rows.with_prefix().prompt[rows.index]
    assert long.tolist() == [*range(1, 31)] and short.tolist() == [0] * 10 + [*range(1, 21)]


def test_sliding_windows_are_left_to_transformers(random_model: Callable[..., Any]) -> None:
    """A Qwen2 whose second half looks back 4 tokens only."""
    model = random_model(
        "qwen2",
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=1,
    )
    rows = texts(0, (12, 9, 10, 12))
    assert not is_plain_llama(model) and isinstance(causal_lm.decoder(model), CausalDecoder)
    logits = causal_lm.logits(model, rows)
    for row in range(4):
        assert_near(logits[row], alone(model, rows, row), terms=widths(model))


@pytest.mark.fast_form
@pytest.mark.parametrize(
    "options", [{}, {"use_dora": True, "use_rslora": True}], ids=["LoRA", "DoRA"]
)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_adapters_are_computed_live(
    kind: str, options: dict[str, bool], random_model: Callable[..., Any]
) -> None:
    """Logits and gradients are those of transformers with the same layers; a decoder has what was
    on when it was made."""
    model, rows = random_model(kind, num_key_value_heads=2), texts(SHARED)
    before = causal_lm.logits(model, rows).detach()
    generator = torch.Generator().manual_seed(3)
    add_lora(model, LoraSettings(r=3, lora_alpha=6, **options), generator)
    for _, layer in lora_layers(model):
        torch.nn.init.normal_(layer.lora_B.weight, std=0.3, generator=generator)
    assert is_plain_llama(model)
    trained, results = [weight for weight in model.parameters() if weight.requires_grad], []
    for plain in (False, True):
        with use_plain_forms(plain):
            logits = causal_lm.logits(model, rows)
        results.append(
            (logits.detach(), *torch.autograd.grad(logits.log_softmax(-1)[..., 5].mean(), trained))
        )
    terms = 2 * widths(model) + rows.completion.numel()
    assert_near(*results, terms=terms, size=largest(results[1]))
    assert (results[0][0] - before).abs().max() > 0.1
    on = causal_lm.decoder(model)
    with disable_adapters(model):
        off = causal_lm.decoder(model)
        assert torch.equal(causal_lm.logits(model, rows).detach(), before)
    assert isinstance(on, LlamaDecoder) and isinstance(off, LlamaDecoder)
    for decoder, expected in ((on, results[0][0]), (off, before)):
        assert_near(decoder.prefill(rows, new_tokens=1), expected[:, 0], terms=widths(model))
        assert_near(decoder.step(rows.completion[:, 0]), expected[:, 1], terms=widths(model))


def test_dropout_of_an_adapter_is_left_to_transformers(random_model: Callable[..., Any]) -> None:
    """Completions of one prompt would otherwise share its mask."""
    model = random_model("llama", num_key_value_heads=2)
    add_lora(model, LoraSettings(lora_dropout=0.1), torch.Generator().manual_seed(0))
    assert not is_plain_llama(model)
