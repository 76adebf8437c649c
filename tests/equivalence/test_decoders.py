"""The decoder of a GPU says what the plain one says: on a CPU one kernel after another, and where
there is a GPU from the recorded step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from torch import Tensor

from rlbook.fast import decoders
from rlbook.fast.decoders import WARM, GraphDecoder, can_be_recorded
from rlbook.fast_forms import use_plain_forms
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.models import causal_lm
from rlbook.llm.models.causal_lm import CausalDecoder
from rlbook.llm.models.compute import set_compute
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.lora import LoraSettings, add_lora

GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
)
FAMILY: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 4, "head_dim": 8},
}
STEPS = 3 * WARM


@pytest.fixture(params=FAMILY)
def model(request: pytest.FixtureRequest, random_model: Callable[..., Any]) -> Any:
    return random_model(request.param, **FAMILY[request.param])


def decoded(decoder: CausalDecoder, new_tokens: int = STEPS) -> list[Tensor]:
    """Logits of four prompts and of what stands behind them; on the way one row leaves, one comes
    twice, and the state is saved and taken up by another decoder."""
    rng = np.random.default_rng(0)
    prompts = torch.from_numpy(rng.integers(1, 31, (4, 7)))
    rows = rows_of(prompts, torch.tensor([7, 3, 5, 3]), prompts[:, :0])
    found = [decoder.prefill(rows, new_tokens)]
    for column in range(STEPS):
        if column == WARM + 2:
            decoder.select(torch.tensor([3, 1, 1]))
        if column == WARM + 3:
            state = copy.deepcopy(decoder.state_dict())
            decoder = type(decoder)(decoder.model)
            decoder.load_state_dict(state)
        token = torch.from_numpy(rng.integers(1, 31, len(found[-1]) if column != WARM + 2 else 3))
        found.append(decoder.step(token))
    return [logits.cpu() for logits in found]


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("new_tokens", [STEPS, 2], ids=["room", "too little room"])
def test_it_says_what_the_plain_decoder_says(model: Any, device: str, new_tokens: int) -> None:
    model.to(device)
    for one, other in zip(
        decoded(GraphDecoder(model), new_tokens), decoded(CausalDecoder(model)), strict=True
    ):
        assert_near(one, other, terms=widths(model))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_so_it_does_with_an_adapter_and_in_bfloat16(
    device: str, random_model: Callable[..., Any]
) -> None:
    model = random_model("llama", num_key_value_heads=2)
    add_lora(model, LoraSettings(r=2), torch.Generator().manual_seed(0))
    for compute in (None, "bfloat16"):
        set_compute(model.to(device), compute, False)
        for one, other in zip(
            decoded(GraphDecoder(model)), decoded(CausalDecoder(model)), strict=True
        ):
            assert_near(one, other, terms=widths(model), dtype=compute)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_recorded_step_has_the_bits_of_the_step_it_was_recorded_from(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = decoded(GraphDecoder(model.to("cuda")))
    monkeypatch.setattr(decoders, "WARM", STEPS)
    for one, other in zip(recorded, decoded(GraphDecoder(model)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_is_given_it_and_draws_the_tokens_of_the_plain_form(model: Any) -> None:
    policy = LanguageModelPolicy(model.to("cuda"))
    assert isinstance(policy.decoder(), GraphDecoder)
    prompts = np.random.default_rng(0).integers(1, 31, (8, 5))

    def drawn() -> np.ndarray:
        rng = np.random.default_rng(1)
        return generate(policy, prompts, np.full(8, 5), eos=2, max_new_tokens=STEPS, rng=rng).tokens

    fast = drawn()
    with use_plain_forms():
        assert type(policy.decoder()) is CausalDecoder
        assert np.array_equal(fast, drawn())


def test_only_untouched_models_on_a_gpu_are_recorded(model: Any) -> None:
    assert not can_be_recorded(model)  # which is on a CPU
    if torch.cuda.is_available():
        model.to("cuda")
        assert can_be_recorded(model)
        hook = model.model.layers[0].register_forward_hook(lambda *_: None)
        assert not can_be_recorded(model)
        assert type(causal_lm.decoder(model)) is CausalDecoder
        hook.remove()
        model.set_attn_implementation("eager")
        assert not can_be_recorded(model)
