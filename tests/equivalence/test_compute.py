"""bfloat16 products, recomputed layers, prompts that are read once and rows that leave: each takes
less memory or time, and changes the numbers by no more than it says."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, widths
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import rlbook
from benchmarks.allocations import Allocations, peak_bytes
from rlbook.fast.llama import LlamaDecoder
from rlbook.fast_forms import use_plain_forms
from rlbook.llm.generation import kv_cache
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.kv_cache import ActingState
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.generation.running_batch import running_batch
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.models import causal_lm
from rlbook.llm.models.adapters import add_adapter
from rlbook.llm.models.causal_lm import CausalDecoder
from rlbook.llm.models.compute import compute_of, set_compute
from rlbook.llm.models.language_model import Critic, LanguageModelPolicy
from rlbook.llm.models.lora import lora_layers
from rlbook.networks.model_spec import ModelSpec
from rlbook.runs.request import Request
from rlbook.runs.run import Run

U = 2.0**-8
"""The unit roundoff of bfloat16: how far off a number is at most when it is rounded, relatively."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 2}),
    "qwen2": ("qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 10}),
    "gpt2": ("gpt2", {}),
}
FORMS = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, random_model: Callable[..., Any]) -> Any:
    kind, sizes = KINDS[request.param]
    if kind == "gpt2":
        sizes = {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 64}
    return random_model(kind, **sizes)


@pytest.mark.thorough
def test_bfloat16_attends_where_torch_is_held_below_the_processor() -> None:
    """torch 2.13 raises "pack_vnni2 is only supported when avx512 is supported" there."""
    lines = (
        "import torch, rlbook.llm.models.compute",
        "x = torch.ones(1, 1, 100, 32, dtype=torch.bfloat16)",
        "print(torch.nn.functional.scaled_dot_product_attention(x, x, x).mean().item())",
    )
    for capability in ("default", "avx2"):
        attended = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            text=True,
        )
        assert attended.stdout == "1.0\n", attended.stderr


def texts(time: int = 5) -> PromptRows:
    """Six completions of three prompts of 7, 3 and 5 tokens."""
    rng = np.random.default_rng(0)
    prompt = torch.from_numpy(rng.integers(3, 31, (3, 7))).repeat_interleave(2, dim=0)
    completion = torch.from_numpy(rng.integers(3, 31, (6, time)))
    return rows_of(prompt, torch.tensor([7, 7, 3, 3, 5, 5]), completion)


def results(model: Any, rows: PromptRows) -> tuple[Tensor, list[Tensor]]:
    """Logits, and the gradient of a loss of them."""
    logits = causal_lm.logits(model, rows)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    loss = logits.float().log_softmax(-1)[..., 5].mean()
    return logits.detach(), list(torch.autograd.grad(loss, trained))


def rounding(model: Any) -> float:
    """The relative error of a result behind products whose two factors and whose result are
    rounded, on average.

    Three independent roundings of at most U for each weight matrix that it went through, of random
    sign, so their squares add up; a gradient goes through each matrix twice.
    """
    matrices = sum(weight.dim() == 2 for weight in model.parameters())
    return U * math.sqrt(3 * 2 * matrices)


def distance(found: list[Tensor], expected: list[Tensor]) -> float:
    """‖found - expected‖ / ‖expected‖ over all numbers."""
    pairs = list(zip(found, expected, strict=True))
    off = sum(float((one - other).double().square().sum()) for one, other in pairs)
    return math.sqrt(off / sum(float(other.double().square().sum()) for _, other in pairs))


# ---- bfloat16


@FORMS
def test_bfloat16_changes_logits_and_gradients_by_its_rounding(model: Any, plain: bool) -> None:
    rows = texts()
    with use_plain_forms(plain):
        logits, gradient = results(model, rows)
        set_compute(model, "bfloat16", False)
        rounded, rounded_gradient = results(model, rows)
    assert rounded.dtype == torch.float32 and rounded_gradient[0].dtype == torch.float32
    assert 0.0 < distance([rounded], [logits]) < rounding(model)
    assert 0.0 < distance(rounded_gradient, gradient) < rounding(model)


def test_the_output_layer_is_computed_in_float32(random_model: Callable[..., Any]) -> None:
    """Only what runs through the layers is rounded: from the hidden states on, logits are exact."""
    model, rows = random_model("llama", num_key_value_heads=2), texts()
    set_compute(model, "bfloat16", False)
    for plain in (False, True):
        with use_plain_forms(plain):
            hidden = causal_lm.hidden_states(model.model, rows)
            logits = causal_lm.logits(model, rows)
        exact = hidden.float() @ model.lm_head.weight.t()
        assert_near(logits, exact, terms=model.config.hidden_size, size=largest([exact]))


@FORMS
def test_a_decoder_computes_in_bfloat16_too(model: Any, plain: bool) -> None:
    rows = texts()
    exact = causal_lm.logits(model, rows).detach()
    set_compute(model, "bfloat16", False)
    with use_plain_forms(plain):
        decoder: Any = causal_lm.decoder(model)
        found = [decoder.prefill(rows, 5)]
        for column in range(5):
            if column == 2:  # saved and taken up by another one
                state, decoder = decoder.state_dict(), type(decoder)(model)
                decoder.load_state_dict(state)
            found.append(decoder.step(rows.completion[:, column]))
    assert 0.0 < distance([torch.stack(found, 1)], [exact]) < rounding(model)
    held = decoder.cache if isinstance(decoder, LlamaDecoder) else decoder.cache.layers[0].keys
    assert held.dtype == torch.bfloat16


@FORMS
def test_a_running_batch_computes_in_bfloat16_too(model: Any, plain: bool) -> None:
    rows = texts()
    exact = causal_lm.logits(model, rows).detach()
    set_compute(model, "bfloat16", False)
    whole = [
        rows.prompt[rows.index[row], rows.padding[rows.index[row]] :].tolist() for row in range(6)
    ]
    with use_plain_forms(plain):
        batch = running_batch(model)
    found = [torch.cat([batch.add(whole[:2]), batch.add(whole[2:])])]
    assert plain or len(getattr(batch, "parts", ())) == (type(batch).__name__ == "CausalBatch")
    for column in range(5):
        found.append(batch.step(rows.completion[:, column]))
    assert 0.0 < distance([torch.stack(found, 1)], [exact]) < rounding(model)


def test_copies_and_the_critic_compute_as_the_model_does(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    set_compute(model, "bfloat16", True)
    policy = LanguageModelPolicy(model, critic=True)
    assert policy.critic is not None
    for made in (policy.frozen_copy().model, policy.critic.trunk, Critic(model).trunk):
        assert compute_of(made) == compute_of(model) == (torch.bfloat16, True)
    assert compute_of(random_model("llama")) == (None, False)


ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {"num_envs": 16, "group_size": 4, "steps": 200, "kl_coef": 0.02}),
    "grpo in micro-batches": (
        "grpo",
        {"num_envs": 16, "group_size": 4, "steps": 200, "micro_batch_size": 4},
    ),
    "ppo": ("ppo", {"num_envs": 16, "steps": 200}),
    "a2c": ("a2c", {"num_envs": 16, "steps": 200}),
    "trpo": ("trpo", {"num_envs": 8, "steps": 60}),
    "dpo": ("dpo", {"num_envs": 16, "group_size": 4, "steps": 200}),
    "sft": ("sft", {"steps": 10, "batch_size": 16}),
    "sft, packed": ("sft", {"steps": 10, "batch_size": 16, "packing": 64}),
    "reward_model": ("reward_model", {"steps": 5, "batch_size": 8}),
}


GIVEN: tuple[dict[str, Any], ...] = (
    {},
    {"model": {"gradient_checkpointing": True}},
    {"model": {"compute": "bfloat16"}},
)


def weights_of(agent: Any) -> Tensor:
    network = agent.network if hasattr(agent, "network") else agent.policy
    return torch.cat([weight.detach().reshape(-1).clone() for weight in network.parameters()])


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "case",
    [
        case
        if case in ("grpo in micro-batches", "ppo", "sft, packed")
        else pytest.param(case, marks=pytest.mark.slow)
        for case in ALGORITHMS
    ],
)
def test_every_optimiser_goes_the_same_way_on_float32_weights(case: str) -> None:
    """Recomputed layers change no bit of a run. In bfloat16 the weights are float32 and end where
    they would have, but for less than a quarter of the way that they went."""
    algorithm, options = ALGORITHMS[case]
    start = weights_of(Run(Request.build(algorithm, "Addition-v0")).agent)
    plain, recomputed, rounded = (
        weights_of(rlbook.train(algorithm, "Addition-v0", eval_every=0, **options, **given).agent)
        for given in GIVEN
    )
    assert torch.equal(recomputed, plain)
    assert 0.0 < (rounded - plain).norm() < 0.25 * (plain - start).norm()
    assert not torch.equal(rounded, rounded.bfloat16().float())  # the low bits are in use


# ---- gradient checkpointing


@pytest.mark.thorough(quick=1)
@FORMS
@pytest.mark.parametrize("compute", [None, "bfloat16"])
def test_recomputed_layers_change_no_bit(model: Any, plain: bool, compute: str | None) -> None:
    rows = texts()
    with use_plain_forms(plain):
        set_compute(model, compute, False)
        logits, gradient = results(model, rows)
        set_compute(model, compute, True)
        again, again_gradient = results(model, rows)
    assert torch.equal(logits, again)
    assert all(torch.equal(one, other) for one, other in zip(gradient, again_gradient, strict=True))
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_recomputed_dropout_drops_the_same_numbers(random_model: Callable[..., Any]) -> None:
    model, rows, found = random_model("llama"), texts(), []
    adapted = add_adapter(model, {"r": 2, "lora_dropout": 0.5}, np.random.default_rng(0))
    for _, layer in lora_layers(adapted):
        torch.nn.init.normal_(layer.lora_B.weight, generator=torch.Generator().manual_seed(0))
    drop = next(layer.dropout for _, layer in lora_layers(adapted))
    assert drop is not None
    for recomputed in (False, True):
        set_compute(adapted, None, recomputed)
        drop.drawn.zero_()
        found.append((*results(adapted, rows), int(drop.drawn)))
    (logits, gradient, count), (again, again_gradient, again_count) = found
    assert count == again_count > 0 and torch.equal(logits, again)
    assert all(torch.equal(one, other) for one, other in zip(gradient, again_gradient, strict=True))


def test_recomputed_attention_has_the_kernel_of_the_first_time(
    random_model: Callable[..., Any],
) -> None:
    """Second derivatives, which only one of the kernels has: gᵀ H through two backward passes, the
    second outside of the context that chose it."""
    model, rows, found = random_model("llama", num_key_value_heads=2), texts(), []
    weights = [model.model.layers[0].self_attn.q_proj.weight]
    for recomputed in (False, True):
        set_compute(model, None, recomputed)
        with sdpa_kernel(SDPBackend.MATH):
            loss = causal_lm.logits(model, rows).log_softmax(-1)[..., 5].mean()
        (slope,) = torch.autograd.grad(loss, weights, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), weights)[0])
    assert torch.equal(*found) and found[0].any()


@FORMS
def test_recomputing_keeps_less(plain: bool) -> None:
    """Eight layers of width 64: what one layer keeps, and of the other seven their inputs."""
    policy = middle_policy()
    rows = rows_of(torch.ones(2, 4).long(), torch.tensor([4, 4]), torch.ones(2, 60).long())

    def update() -> None:
        causal_lm.logits(policy.model, rows).log_softmax(-1)[..., 5].mean().backward()
        policy.zero_grad(set_to_none=True)

    peaks = {}
    for compute, recomputed in ((None, False), (None, True), ("bfloat16", False)):
        set_compute(policy.model, compute, recomputed)
        with use_plain_forms(plain):
            peaks[compute, recomputed] = peak_bytes(update)
    weights = sum(weight.nbytes for weight in policy.parameters())
    # beside the gradients, which are as large as the weights
    kept = {case: peak - weights for case, peak in peaks.items()}
    assert kept[None, True] < kept[None, False] / 2
    assert kept["bfloat16", False] < kept[None, False]


def middle_policy(**sizes: Any) -> LanguageModelPolicy:
    from rlbook.llm.models.sources import small_llama

    sizes = {"layers": 8, "context": 128, "feed_forward": 128} | sizes
    return LanguageModelPolicy(small_llama(torch.Generator().manual_seed(0), **sizes))


# ---- prompts that are read once


@pytest.mark.thorough(quick=1)
def test_the_plain_pass_reads_a_prompt_of_several_completions_once(model: Any) -> None:
    """4 completions of each prompt; logits and gradients are those of each text alone."""
    rng = np.random.default_rng(1)
    prompt = torch.from_numpy(rng.integers(3, 31, (2, 20))).repeat_interleave(4, dim=0)
    completion = torch.from_numpy(rng.integers(3, 31, (8, 5)))
    rows = rows_of(prompt, torch.tensor([20] * 4 + [15] * 4), completion)
    single = [
        rows_of(prompt[i : i + 1], torch.tensor([20 if i < 4 else 15]), completion[i : i + 1])
        for i in range(8)
    ]
    with use_plain_forms():
        logits, gradient = results(model, rows)
        alone, gradients = zip(*(results(model, one) for one in single), strict=True)
        with FlopCounterMode(display=False) as together:
            causal_lm.logits(model, rows)
        with FlopCounterMode(display=False) as apart:
            for one in single:
                causal_lm.logits(model, one)
    assert_near(logits, torch.cat(alone), terms=widths(model))
    expected = [torch.stack(each).mean(0) for each in zip(*gradients, strict=True)]
    terms = 2 * widths(model) + rows.completion.numel()
    assert_near(gradient, expected, terms=terms, size=largest(expected))
    # 2 · 20 + 8 · 5 = 80 columns in place of 8 · 25 = 200, and up to 75 of them padding or not
    assert together.get_total_flops() < 0.55 * apart.get_total_flops()


def test_a_sliding_window_is_read_text_by_text(random_model: Callable[..., Any]) -> None:
    model = random_model(
        "qwen2",
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=1,
    )
    rows = texts()
    logits = causal_lm.logits(model, rows)
    whole = rows.with_prefix()
    for row in range(6):
        prompt = whole.prompt[whole.index[row], whole.padding[whole.index[row]] :]
        ids = torch.cat([prompt, whole.completion[row]])[None]
        expected = model(input_ids=ids).logits[0, len(prompt) - 1 :]
        assert_near(logits[row], expected, terms=widths(model))


def test_positions_reach_a_model_inside_peft_s_wrapper(random_model: Callable[..., Any]) -> None:
    """GPT-2's positions are learned, so a padded prompt needs them said."""
    pytest.importorskip("peft", reason="peft is in the extra [lora]")
    model = random_model("gpt2", n_embd=24, n_layer=2, n_head=4, n_positions=64)
    rows = texts()
    expected = causal_lm.logits(model, rows).detach()
    wrapped = add_adapter(model, {"r": 2, "target_modules": ["c_attn"]}, np.random.default_rng(0))
    assert_near(causal_lm.logits(wrapped, rows), expected, terms=widths(model))
    decoder = causal_lm.decoder(wrapped)
    assert_near(decoder.prefill(rows, 1), expected[:, 0], terms=widths(model))
    assert_near(decoder.step(rows.completion[:, 0]), expected[:, 1], terms=widths(model))


# ---- prefill and the cache


def test_prefill_makes_logits_of_the_last_column_alone() -> None:
    """64 prompts of 512 tokens, 152 000 tokens in the vocabulary: 20 GB if each column had logits.
    Measured on a device that has shapes alone."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "attn_implementation": "eager", "vocab_size": 152_000}
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    rows = PromptRows(
        torch.ones(64, 512).long(), torch.zeros(64).long(), torch.arange(64),
        torch.ones(64, 0).long(),
    )  # fmt: skip
    with Allocations() as counted:
        assert CausalDecoder(model).prefill(rows, 1).shape == (64, 152_000)
    # the largest is attention's [64, 2, 512, 512]
    assert counted.peak < 1e9 < 4 * 64 * 512 * 152_000 and 512 * 152_000 not in counted.largest


def test_a_cache_is_written_in_place(random_model: Callable[..., Any]) -> None:
    """A step with transformers' own cache copies all that was read, 30 columns here, again."""
    from transformers import DynamicCache

    model, rows = random_model("llama"), texts(time=30)
    decoder = CausalDecoder(model)
    found, places = [decoder.prefill(rows, new_tokens=30)], set()
    for column in range(30):
        found.append(decoder.step(rows.completion[:, column]))
        layer: Any = decoder.cache.layers[0]
        places.add(layer.keys.data_ptr())
    assert len(places) == 1
    assert_near(torch.stack(found, 1), causal_lm.logits(model, rows), terms=widths(model))
    assert len(decoder.cache.layers) == len(DynamicCache(config=model.config).layers)
    # room for more than was asked for is made
    more = [decoder.step(rows.completion[:, column]) for column in range(3)]
    assert all(logits.isfinite().all() for logits in more)


# ---- rows that leave


@contextmanager
def everything_large() -> Iterator[None]:
    """Small models let rows leave as large ones do."""
    before = kv_cache.LARGE
    kv_cache.LARGE = 0
    try:
        yield
    finally:
        kv_cache.LARGE = before


def rows_of_steps(decoder: Any) -> list[int]:
    """The number of rows of each step, which is filled as the decoder steps."""
    counts, step = [], decoder.step

    def counted(token: Tensor) -> Tensor:
        counts.append(len(token))
        return step(token)

    decoder.step = counted
    return counts


@FORMS
@pytest.mark.parametrize("compute", [None, "bfloat16"])
def test_rows_that_leave_change_no_row_that_stays(
    model: Any, plain: bool, compute: str | None
) -> None:
    rows = texts()
    set_compute(model, compute, False)
    with use_plain_forms(plain):
        whole = causal_lm.decoder(model)
        fewer: Any = causal_lm.decoder(model)
        whole.prefill(rows, 5)
        fewer.prefill(rows, 5)
        kept = torch.arange(6)
        for column in range(5):
            if column == 1:
                chosen = torch.tensor([0, 2, 3, 5])
                fewer.select(chosen)
                kept = kept[chosen]
            if column == 3:  # in another order, and saved and taken up by another one
                fewer.select(torch.tensor([3, 1]))
                kept = kept[torch.tensor([3, 1])]
                state, fewer = fewer.state_dict(), type(fewer)(model)
                fewer.load_state_dict(state)
            expected = whole.step(rows.completion[:, column])
            found = fewer.step(rows.completion[kept, column])
            dtype = "float32" if compute is None else "bfloat16"
            assert_near(found, expected[kept], dtype=dtype, terms=widths(model))


@FORMS
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(repetition_penalty=1.3, top_k=20)], ids=str
)
def test_generate_writes_the_same_where_rows_leave(
    plain: bool, sampling: Sampling, random_model: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    policy = LanguageModelPolicy(random_model("llama", num_key_value_heads=2))
    rng = np.random.default_rng(0)
    tokens, length = rng.integers(3, 31, (16, 6)), rng.integers(1, 7, 16)

    def written(eos: int) -> Any:
        return generate(
            policy,
            tokens,
            length,
            eos=eos,
            max_new_tokens=30,
            rng=np.random.default_rng(3),
            sampling=sampling,
        )

    eos = int(np.bincount(written(-1).tokens[:, 3:].ravel()).argmax())  # one that comes often
    made: list[list[int]] = []
    made_by = policy.decoder

    def decoder() -> Any:
        one = made_by()
        made.append(rows_of_steps(one))
        return one

    monkeypatch.setattr(policy, "decoder", decoder)
    with use_plain_forms(plain):
        together = written(eos)
        with everything_large():
            leaving = written(eos)
    assert (together.mask == leaving.mask).all() and together.mask.sum() < together.mask.size
    assert (together.tokens[together.mask] == leaving.tokens[leaving.mask]).all()
    terms = widths(policy) + 31
    assert_near(
        together.log_prob[together.mask], leaving.log_prob[leaving.mask], terms=terms, size=10.0
    )
    assert set(made[0]) == {16} and made[1] == sorted(made[1], reverse=True) and made[1][-1] <= 8


@FORMS
def test_episodes_are_the_same_where_rows_leave(
    plain: bool, random_model: Callable[..., Any]
) -> None:
    """Texts that grow one token at a time and end one after the other, saved in the middle."""
    model = random_model("llama", num_key_value_heads=2)
    rng = np.random.default_rng(0)
    tokens, start = rng.integers(3, 31, (8, 20)), rng.integers(1, 7, 8)
    ends = start + np.arange(1, 9)
    with use_plain_forms(plain):
        together, leaving = ActingState(model), ActingState(model)
        for time in range(9):
            length = np.minimum(start + time, ends)
            expected = together.logits(tokens, length)
            with everything_large():
                found = leaving.logits(tokens, length)
            assert_near(found, expected, terms=widths(model))
            if time == 5:
                state = leaving.state_dict()
                assert len(state["rows"]) < 8
                leaving = ActingState(model)
                leaving.load_state_dict(state)
        # a row that has left comes back: everything is read again
        assert_near(
            leaving.logits(tokens, start + 1), ActingState(model).logits(tokens, start + 1),
            terms=widths(model),
        )  # fmt: skip


# ---- what may be said


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"compute": "bf16"}, "compute must be one of 'float32', 'bfloat16', or none, got 'bf16'"),
        (
            {"compute": "bfloat16", "dtype": "float64"},
            "compute bfloat16 needs weights of dtype float32, got dtype float64",
        ),
        ({"gradient_checkpointing": 1}, "gradient_checkpointing must be true or false, got 1"),
        ({"gradient_checkpoint": True, "compute": "bfloat16"}, "did you mean 'gradient_checkpoin"),
    ],
)
def test_how_a_model_cannot_be_computed(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ModelSpec.from_value(given)


@pytest.mark.parametrize("given", [{"compute": "bfloat16"}, {"gradient_checkpointing": True}])
def test_an_mlp_has_neither(given: Any) -> None:
    with pytest.raises(ValueError, match=f"the model's {next(iter(given))} applies to language"):
        rlbook.train("ppo", "Maze-v0", steps=64, model=given)


def test_layers_that_cannot_be_recomputed_are_refused() -> None:
    with pytest.raises(ValueError, match="layers that transformers can recompute, and Linear has"):
        set_compute(torch.nn.Linear(2, 3), None, True)
