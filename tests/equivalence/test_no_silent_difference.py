"""What is put into, between or over the layers of a network counts: the fast forms compute the
same, or step aside."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, rounding_bound, widths
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.utils import prune

import rlbook
from rlbook.algorithms.policy.actor_critic_agent import surrogate_loss
from rlbook.data.rollout import Batch
from rlbook.errors import RequestError, TrainingError
from rlbook.fast import matrix_product
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.llama import is_plain_llama
from rlbook.fast_forms import use_plain_forms
from rlbook.llm.generation.generate import generate
from rlbook.llm.generation.prompt_rows import PromptRows, rows_of
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model
from rlbook.networks.mlp import MLP, MLPPolicy
from rlbook.networks.optimizer import Adam, Group, adam
from rlbook.networks.policy import load_saved, saved_tensors


class Adapter(nn.Module):
    """A linear layer and a low-rank product beside it, as LoRA has it."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear, self.scale = linear, 1.0
        weight: Any = linear.weight
        generator = torch.Generator().manual_seed(5)
        self.down = nn.Parameter(
            torch.randn(2, weight.shape[1], generator=generator, dtype=weight.dtype)
        )
        self.up = nn.Parameter(
            torch.randn(weight.shape[0], 2, generator=generator, dtype=weight.dtype)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.scale * (x @ self.down.t() @ self.up.t())


def hook(module: Any, inputs: Any, output: Tensor) -> Tensor:
    return output * 1.5


def halved(module: Any, inputs: Any) -> Any:
    return (inputs[0] * 0.5,)


# ---- the multi-layer perceptron


def swapped(mlp: MLP) -> None:
    mlp.layers[1] = Adapter(mlp.layers[1])


def replaced_forward(mlp: MLP) -> None:
    layer = mlp.layers[0]
    layer.forward = lambda x: torch.zeros(*x.shape[:-1], 7) + x.sum()  # type: ignore[method-assign]


CHANGES: dict[str, Callable[[MLP], Any]] = {
    "an adapter": swapped,
    "a hook on a layer": lambda mlp: mlp.layers[0].register_forward_hook(hook),
    "a hook before a layer": lambda mlp: mlp.layers[2].register_forward_pre_hook(halved),
    "a hook on the network": lambda mlp: mlp.register_forward_hook(hook),
    "spectral norm": lambda mlp: nn.utils.parametrizations.spectral_norm(mlp.layers[1]).eval(),
    "weight norm": lambda mlp: nn.utils.parametrizations.weight_norm(mlp.layers[0]),
    "pruning": lambda mlp: prune.l1_unstructured(mlp.layers[0], "weight", 0.5),
    "another forward": replaced_forward,
    "no bias": lambda mlp: setattr(mlp.layers[0], "bias", None),
}


def outputs(policy: MLPPolicy, obs: Tensor) -> list[Tensor]:
    batch = Batch(
        obs,
        torch.zeros(len(obs), dtype=torch.int64),
        torch.zeros(len(obs)),
        torch.ones(len(obs), dtype=torch.bool),
    )
    log_prob, entropy, value = policy.evaluate(batch)
    assert entropy is not None and value is not None
    acted = torch.from_numpy(policy.act(obs.numpy(), None)[1])
    return [policy.actor(obs), log_prob, entropy, value, policy.value(obs), acted]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_put_into_an_mlp_counts(change: str, shared: bool) -> None:
    """Acting, evaluating and valuing are what torch's own modules compute, and not what they were
    before the change."""
    policy = MLPPolicy(
        3,
        spaces.Discrete(4),
        torch.Generator().manual_seed(0),
        critic=True,
        hidden_sizes=(7, 5),
        shared=shared,
    )
    with torch.no_grad():
        policy.actor.weights[-2].mul_(100)
    obs = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    before = outputs(policy, obs)
    CHANGES[change](policy.actor)
    fast = outputs(policy, obs)
    with use_plain_forms():
        slow = outputs(policy, obs)
    assert_near(fast, slow, terms=widths(policy), size=largest(slow))
    # which write the same weights, or biases of 0, anew
    if change not in (
        "weight norm",
        "no bias",
    ):
        assert (fast[0] - before[0]).abs().max() > 100 * rounding_bound(
            "float32", terms=widths(policy), size=largest(before)
        )


def test_other_precisions_are_honoured() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        mlp = MLP((3, 5, 2), torch.Generator().manual_seed(0)).to(dtype)
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=dtype)
        with use_plain_forms():
            expected = mlp(x)
        assert mlp(x).dtype == dtype
        # each layer's sum is rounded to it once
        assert_near(mlp(x), expected, dtype=dtype, terms=2)
        policy = MLPPolicy(3, spaces.Discrete(4), torch.Generator(), critic=True).to(dtype)
        assert policy.act(np.ones((2, 3), np.float32), None)[1].dtype == np.float32


def test_a_layer_that_was_replaced_by_its_like_counts() -> None:
    mlp, x = MLP((3, 5, 2), torch.Generator().manual_seed(0)), torch.ones(1, 3)
    before = mlp(x)
    mlp.layers[0].weight = nn.Parameter(torch.zeros(5, 3))
    assert not torch.equal(mlp(x), before)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)], ids=str)
def test_gradients_of_gradients_are_autograds(activation: str, hidden: tuple[int, ...]) -> None:
    """A gradient penalty, as in an input-gradient regulariser, differentiated for x and for the
    weights."""
    mlp = MLP((3, *hidden, 2), torch.Generator().manual_seed(0), activation=activation).double()
    x = torch.randn(
        5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True
    )

    def second() -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(mlp(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(
            first.square().sum(), [x, *mlp.parameters()], allow_unused=True, materialize_grads=True
        )

    ours = second()
    with use_plain_forms():
        theirs = second()
    # there and back, twice
    assert_near(ours, theirs, terms=len(x) + 4 * widths(mlp), size=largest(theirs))


def test_gradients_of_gradients_through_the_matrix_product_are_right() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (
        torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(2)
    )
    assert torch.autograd.gradgradcheck(matrix_product._Linear.apply, (x, w))


# ---- the optimiser


def trained(change: Callable[[nn.Module], Any], make: Callable[..., Any]) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = make(module)
    change(module)
    x = torch.ones(2, 3, dtype=next(module.parameters()).dtype)
    optimizer.step(module(x).square().sum())


MAKERS = {
    "fast": lambda module: FlatAdam([Group([module])], 1e-2),
    "plain": lambda module: Adam([Group([module])], 1e-2, eps=1e-8, betas=(0.9, 0.999)),
}
BREAKS: dict[str, Callable[[Any], Any]] = {
    "double": lambda module: module.double(),
    "another parameter": lambda module: setattr(
        module[0], "weight", nn.Parameter(torch.ones(4, 3))
    ),
    "another layer": lambda module: module.__setitem__(2, nn.Linear(4, 1)),
    "a layer more": lambda module: module.append(nn.Linear(1, 1)),
    "frozen": lambda module: module[0].requires_grad_(False),
    "an adapter": lambda module: module.__setitem__(0, Adapter(module[0])),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS)
def test_an_optimiser_refuses_a_network_that_is_no_longer_its_own(
    change: Callable[[Any], Any], make: Callable[..., Any]
) -> None:
    with pytest.raises(TrainingError, match="no longer the one the optimiser was made for"):
        trained(change, make)


def test_weights_put_elsewhere_in_memory_are_refused() -> None:
    def moved(module: Any) -> None:
        module[0].weight.data = torch.ones(4, 3)

    with pytest.raises(TrainingError, match="no longer"):
        trained(moved, MAKERS["fast"])
    trained(moved, MAKERS["plain"])  # which reads them where they are


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_is_harmless(to_none: bool) -> None:
    moved = []
    for zero in (False, True):
        module = nn.Linear(3, 1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(0.5)
        optimizer = FlatAdam([Group([module])], 1e-2)
        for _ in range(3):
            if zero:
                module.zero_grad(set_to_none=to_none)
            optimizer.step(module(torch.ones(2, 3)).square().sum())
        moved.append(optimizer.flat.clone())
    assert torch.equal(*moved) and not torch.equal(moved[0], torch.full((4,), 0.5))


def test_a_step_invalidates_the_graphs_of_earlier_losses() -> None:
    """As with torch's own optimisers: a loss that was computed with the weights of before the step
    cannot be backpropagated after it."""
    mlp = MLP((3, 4, 1), torch.Generator().manual_seed(0))
    optimizer, stale = FlatAdam([Group([mlp])], 1e-2), mlp(torch.ones(2, 3)).sum()
    optimizer.step(mlp(torch.ones(2, 3)).sum())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


def test_the_fast_optimiser_is_the_plain_one() -> None:
    """Two groups with rates and decays of their own, clipped, in double precision; half-way each
    goes on from the other's state."""

    def network() -> nn.Sequential:
        made = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(generator=generator)
        return made

    networks, optimizers = [network(), network()], []
    for module, plain in zip(networks, (False, True), strict=True):
        with use_plain_forms(plain):
            optimizers.append(
                adam([Group([module[0]], weight_decay=0.1), Group([module[2]], rate=0.3)], 1e-2)
            )
    assert [type(one) for one in optimizers] == [FlatAdam, Adam]
    generator = torch.Generator().manual_seed(1)
    # Adam's η g / (|g| + ε) makes η / ε = 1e6 of what is rounded in a g of about 0
    rounded: Any = {"terms": 100, "size": 1e6}
    for step in range(100):
        if step == 50:
            states = [one.state_dict() for one in optimizers]
            for one, state in zip(optimizers, reversed(states), strict=True):
                one.load_state_dict(state)
        x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        norms = [
            one.step((module(x) - 1).square().sum(), 0.5)
            for one, module in zip(optimizers, networks, strict=True)
        ]
        assert_near(*norms, **rounded)
    parameters = [list(module.parameters()) for module in networks]
    assert_near(*parameters, **rounded)


# ---- the language model


def in_layers(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda model: [change(layer) for layer in model.model.layers]


def adapted(layer: Any) -> None:
    layer.self_attn.q_proj = Adapter(layer.self_attn.q_proj)
    layer.mlp.down_proj = Adapter(layer.mlp.down_proj)


INTO_LLAMA: dict[str, Callable[[Any], Any]] = {
    "adapters": in_layers(adapted),
    "a hook on a projection": lambda model: model.model.layers[
        0
    ].self_attn.v_proj.register_forward_hook(hook),
    "a hook on a layer": lambda model: model.model.layers[1].mlp.register_forward_hook(hook),
    "a hook on the output": lambda model: model.lm_head.register_forward_hook(hook),
    "a hook before a projection": lambda model: model.model.layers[
        0
    ].mlp.up_proj.register_forward_pre_hook(halved),
    "spectral norm": lambda model: nn.utils.parametrizations.spectral_norm(
        model.model.layers[0].mlp.up_proj
    ).eval(),
    "double precision": lambda model: model.double(),
    "half precision": lambda model: model.to(torch.bfloat16),
}


def texts(rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Ragged prompts of 1 to 8 tokens, with room for 4 more."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 26, (rows, 12)), rng.integers(1, 9, rows)


def next_logits(model: Any, tokens: np.ndarray, length: np.ndarray) -> np.ndarray:
    """By transformers' own forward pass, each text by itself."""
    rows = [
        model(input_ids=torch.from_numpy(row[:count])[None]).logits[0, -1]
        for row, count in zip(tokens, length, strict=True)
    ]
    return torch.stack(rows).detach().float().numpy()


def rounding(model: Any, logits: Any) -> float:
    return rounding_bound("float32", terms=widths(model), size=largest([logits]))


def check(policy: LanguageModelPolicy, state: Any, tolerance: float | None = None) -> None:
    """Acting from nothing and from a cache, writing, and evaluating agree with transformers on the
    model as it is now."""
    tokens, length = texts()
    expected = next_logits(policy.model, tokens, length)
    tolerance = tolerance or rounding(policy.model, expected)
    for logits in (state.logits(tokens, length), policy.initial_state().logits(tokens, length)):
        assert np.abs(logits.float().numpy() - expected).max() < tolerance
    written = generate(policy, tokens, length, eos=-1, max_new_tokens=3)
    batch = Batch(
        {"tokens": torch.from_numpy(tokens), "length": torch.from_numpy(length)},
        torch.from_numpy(written.tokens),
        torch.zeros(6, 3),
        torch.ones(6, 3, dtype=torch.bool),
    )
    log_prob, _, _ = policy.evaluate(batch)
    assert np.abs(log_prob.detach().float().numpy() - written.log_prob).max() < tolerance
    first = torch.from_numpy(expected).log_softmax(-1).gather(1, batch.action[:, :1])[:, 0]
    assert (log_prob[:, 0].detach().float() - first).abs().max() < tolerance


@pytest.mark.parametrize("change", INTO_LLAMA)
def test_what_is_put_into_a_language_model_counts(
    change: str, lively_llama: Callable[..., Any]
) -> None:
    """Also in the middle of an episode, where a KV cache remembers what the model said before."""
    policy = LanguageModelPolicy(lively_llama(kv_heads=2))
    state, (tokens, length) = policy.initial_state(), texts()
    before = state.logits(tokens, length).clone()
    check(policy, state)
    INTO_LLAMA[change](policy.model)
    assert not is_plain_llama(policy.model)
    # bfloat16 keeps 8 bits of a logit of about 4
    check(policy, state, 0.1 if change == "half precision" else None)
    after = state.logits(tokens, length).float()
    assert ((after - before).abs().max() > 0.1) == (
        change not in ("double precision", "half precision")
    )


def test_an_adapter_that_is_switched_off_counts(lively_llama: Callable[..., Any]) -> None:
    policy = LanguageModelPolicy(lively_llama())
    state = policy.initial_state()
    in_layers(adapted)(policy.model)
    check(policy, state)
    policy.model.model.layers[0].mlp.down_proj.scale = 0.0
    check(policy, state)


CHANGES_OF_WEIGHTS: dict[str, Callable[[LanguageModelPolicy, FlatAdam], Any]] = {
    "the optimiser": lambda policy, optimizer: optimizer.step(
        policy.model(input_ids=torch.tensor([[1, 2]])).logits.square().sum()
    ),
    "load_state_dict": lambda policy, _: policy.load_state_dict(
        {k: v * 1.1 for k, v in policy.state_dict().items()}
    ),
    "one matrix": lambda policy, _: torch.no_grad()(
        lambda: policy.model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    )(),
    "the output layer": lambda policy, _: torch.no_grad()(
        lambda: policy.model.lm_head.weight.mul_(1.5)
    )(),
    "other memory": lambda policy, _: setattr(
        policy.model.lm_head.weight, "data", policy.model.lm_head.weight.data * 1.5
    ),
}


@pytest.mark.parametrize("change", CHANGES_OF_WEIGHTS)
def test_the_cache_knows_that_weights_have_changed(
    change: str, lively_llama: Callable[..., Any]
) -> None:
    policy = LanguageModelPolicy(lively_llama())
    optimizer, state, (tokens, length) = (
        FlatAdam([Group([policy.model])], 1e-2),
        policy.initial_state(),
        texts(),
    )
    before = state.logits(tokens, length).clone()
    assert state.logits(tokens, length) is state.logits(tokens, length)  # nothing is computed twice
    CHANGES_OF_WEIGHTS[change](policy, optimizer)
    assert state.state_dict() == {}
    after = state.logits(tokens, length)
    assert_near(after, next_logits(policy.model, tokens, length), terms=widths(policy))
    assert not torch.equal(after, before)


def test_peft_adapters_are_honoured(lively_llama: Callable[..., Any]) -> None:
    """A LoRA of peft, whose B is not 0: put in place, switched off, and on again."""
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    model = lively_llama(kv_heads=2)
    policy = LanguageModelPolicy(model)
    state, (tokens, length) = policy.initial_state(), texts()
    plain = state.logits(tokens, length).clone()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft reads a property that transformers has renamed
        warnings.simplefilter("ignore", FutureWarning)
        wrapped = peft.get_peft_model(
            model,
            peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], init_lora_weights=False),
        )
    check(policy, state)
    assert (state.logits(tokens, length) - plain).abs().max() > 0.01
    with wrapped.disable_adapter():
        assert_near(state.logits(tokens, length), plain, terms=widths(model))
    check(policy, state)
    check(LanguageModelPolicy(wrapped, critic=True), LanguageModelPolicy(wrapped).initial_state())


def with_lora(model: Any, **settings: Any) -> Any:
    """The model in a `PeftModel` whose adapters change nothing yet."""
    peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(0)
        return peft.get_peft_model(
            model, peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], **settings)
        )


def completions() -> Batch:
    """Three tokens behind each of the texts."""
    tokens, length = map(torch.from_numpy, texts())
    action = torch.arange(3 * len(tokens)).reshape(len(tokens), 3) % 10 + 3
    nothing = torch.zeros(action.shape)
    return Batch(
        obs={"tokens": tokens, "length": length}, action=action, log_prob=nothing, mask=nothing == 0
    )


def test_the_reference_of_an_adapted_model_is_the_model_without_adapters(
    lively_llama: Callable[..., Any],
) -> None:
    """The same tensors, not a second copy; the base model's log-probabilities while the adapters
    are trained; nothing to save."""
    batch, (tokens, length) = completions(), texts()
    before = LanguageModelPolicy(lively_llama()).evaluate(batch)[0].detach()
    policy = LanguageModelPolicy(with_lora(lively_llama()))
    reference, optimizer = policy.reference(), FlatAdam([Group([policy])], 0.05)
    assert (
        reference.model is policy.model
        and not list(reference.parameters())
        and reference.state_dict() == {}
    )
    trained = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    # A and B, two matrices, two layers
    assert len(trained) == 2 * 2 * 2 and all("lora_" in name for name in trained)
    for _ in range(3):
        optimizer.step(policy.evaluate(batch)[0].mean())
        found = reference.evaluate(batch)[0]
        assert not found.requires_grad
        assert_near(found, before, terms=widths(policy))
        assert [
            name for name, parameter in policy.named_parameters() if parameter.requires_grad
        ] == trained
    assert (policy.evaluate(batch)[0] - before).abs().max() > 0.1
    plain = lively_llama()
    expected = next_logits(plain, tokens, length)
    assert_near(reference.decoder().prefill(prompts(), 1), expected, terms=widths(plain))
    assert_near(reference.distribution(batch.obs).logits, expected, terms=widths(plain))
    assert (
        reference.act(batch_of_arrays(), None)[0]
        == LanguageModelPolicy(plain).act(batch_of_arrays(), None)[0]
    ).all()


def test_a_layer_that_peft_trains_beside_its_adapters_is_off_with_them(
    lively_llama: Callable[..., Any],
) -> None:
    batch, before = (
        completions(),
        LanguageModelPolicy(lively_llama()).evaluate(completions())[0].detach(),
    )
    policy = LanguageModelPolicy(with_lora(lively_llama(), modules_to_save=["lm_head"]))
    reference = policy.reference()
    FlatAdam([Group([policy])], 0.05).step(policy.evaluate(batch)[0].mean())
    assert reference.model is policy.model
    assert_near(reference.evaluate(batch)[0], before, terms=widths(policy))
    assert (policy.evaluate(batch)[0] - before).abs().max() > 0.1


def prompts() -> PromptRows:
    tokens, length = map(torch.from_numpy, texts())
    return rows_of(tokens, length, tokens[:, :0])


def batch_of_arrays() -> dict[str, Any]:
    return dict(zip(("tokens", "length"), texts(), strict=True))


def test_a_model_that_trains_more_than_adapters_gets_a_copy_as_its_reference(
    lively_llama: Callable[..., Any],
) -> None:
    plain, more = (
        LanguageModelPolicy(lively_llama()),
        LanguageModelPolicy(with_lora(lively_llama())),
    )
    more.model.get_base_model().lm_head.weight.requires_grad_(True)
    for policy in (plain, more):
        reference, batch = policy.reference(), completions()
        held = reference.evaluate(batch)[0]
        FlatAdam([Group([policy])], 0.05).step(policy.evaluate(batch)[0].mean())
        assert reference.model is not policy.model and torch.equal(
            reference.evaluate(batch)[0], held
        )
        assert not torch.equal(policy.evaluate(batch)[0], held)


def test_a_copy_is_as_plain_as_what_it_was_copied_from(lively_llama: Callable[..., Any]) -> None:
    policy = LanguageModelPolicy(lively_llama())
    assert (
        is_plain_llama(policy.model)
        and is_plain_llama(policy.frozen_copy().model)
        and is_plain_llama(copy.deepcopy(policy.model))
    )


# ---- settings without effect


@pytest.mark.parametrize(
    ("env", "setting"),
    [
        ("Addition-v0", {"separate_networks": False}),
        ("Addition-v0", {"hidden_sizes": (8,)}),
        ("Addition-v0", {"rollout_steps": 7}),
        ("Addition-v0", {"normalize_observation": True}),
    ],
    ids=str,
)
def test_a_setting_that_has_no_effect_is_refused(
    env: str, setting: dict[str, Any], gpt2_folder: Any
) -> None:
    model = {"env_kwargs": {"model": str(gpt2_folder)}} if env == "Addition-v0" else {}
    (name,) = setting
    with pytest.raises(RequestError, match=f"{name} has no effect here, because"):
        rlbook.train("ppo", env, steps=8, num_envs=2, **model, **setting)


# ---- losses as one node


@pytest.mark.parametrize("shift", [0.0, 0.3, -0.3, 30.0])
@pytest.mark.parametrize("clips", [{}, {"clip": 0.1, "clip_high": 0.4}], ids=str)
def test_the_clipped_loss_in_one_node_is_the_plain_one(
    clips: dict[str, float], shift: float
) -> None:
    """To the last bit in value and gradient: at ratios of 1, outside of the clip on either side,
    and beyond the bound on log ρ."""
    generator = torch.Generator().manual_seed(0)
    log_prob = torch.randn(64, generator=generator, requires_grad=True)
    old = log_prob.detach() - shift + (0.2 * torch.randn(64, generator=generator) if shift else 0.0)
    advantage = torch.randn(64, generator=generator)
    advantage[:3] = 0.0
    results = []
    for plain in (False, True):
        with use_plain_forms(plain):
            loss = surrogate_loss(log_prob, old, advantage, **clips)
            results.append((loss.detach(), *torch.autograd.grad(3.0 * loss, log_prob)))
    assert all(map(torch.equal, *results))


def test_the_curvature_of_the_clipped_loss_is_the_plain_ones() -> None:
    log_prob = torch.linspace(-0.5, 0.5, 9, dtype=torch.float64, requires_grad=True)
    seconds = []
    for plain in (False, True):
        with use_plain_forms(plain):
            loss = surrogate_loss(
                log_prob, torch.zeros(9, dtype=torch.float64), torch.ones(9, dtype=torch.float64)
            )
            (first,) = torch.autograd.grad(loss, log_prob, create_graph=True)
            seconds.append(torch.autograd.grad(first.square().sum(), log_prob)[0])
    assert seconds[0].any()
    assert_near(*seconds, terms=9)


# ---- checkpoints, and the book without its engine


def test_a_tied_tensor_is_saved_once(gpt2_folder: Any) -> None:
    """GPT-2's output layer is its embedding; what was saved goes back into both, and anything else
    is refused."""
    policy = LanguageModelPolicy(folder_model(gpt2_folder))
    state = {name: tensor + 1.0 for name, tensor in saved_tensors(policy).items()}
    assert "model.transformer.wte.weight" in state and "model.lm_head.weight" not in state
    load_saved(policy, state)
    assert torch.equal(policy.model.lm_head.weight, state["model.transformer.wte.weight"])
    for wrong in (
        {k: v for k, v in state.items() if "wte" not in k},
        state | {"more": torch.zeros(1)},
    ):
        with pytest.raises(RuntimeError, match="missing or unexpected tensors"):
            load_saved(policy, wrong)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", {"num_envs": 4, "rollout_steps": 16}),
        ("ppo", {"num_envs": 4, "rollout_steps": 16, "separate_networks": False}),
        ("dqn", {"learning_starts": 50}),
        ("grpo", {"num_envs": 8, "group_size": 4, "steps": 1600}),
    ],
    ids=str,
)
def test_the_plain_code_learns_the_same(algorithm: str, options: dict[str, Any]) -> None:
    """A few updates on the maze: the same actions, and weights that differ by a rounding for each
    update.

    With ε = η a step η g / (|g| + ε) is rounded no more than its gradient.
    """
    weights, options = [], {"steps": 200, "learning_rate": 1e-3, "adam_eps": 1e-3} | options
    for plain in (False, True):
        with use_plain_forms(plain):
            agent: Any = rlbook.train(algorithm, "Maze-v0", eval_every=0, **options).agent
            network = agent.q if algorithm == "dqn" else agent.policy
            weights.append(torch.cat([p.detach().reshape(-1) for p in network.parameters()]))
    assert agent.optimizer.steps > 1
    assert_near(*weights, terms=agent.optimizer.steps)
