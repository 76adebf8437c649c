"""A recurrent core computes what its equations say, a step at a time or a whole sequence."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_near, largest, near, rounding_bound
from gymnasium import spaces
from torch import Tensor, nn

from rlbook.fast_forms import use_plain_forms
from rlbook.functional.recurrent_cells import gru_cell, lstm_cell
from rlbook.networks.mlp import MLPPolicy
from rlbook.networks.recurrent import KEEP_BIAS, RecurrentCore, RecurrentPolicy

KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])
T, B, F, H = 9, 5, 3, 4


def core_of(kind: str, dtype: torch.dtype = torch.float64) -> RecurrentCore:
    core = RecurrentCore(kind, F, H, torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad():  # biases count as well
        for bias in (core.input_bias, core.state_bias):
            bias.normal_(generator=torch.Generator().manual_seed(1))
    return core


def sequences(core: RecurrentCore, chance: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    generator, dtype = torch.Generator().manual_seed(2), core.input_weight.dtype
    features = torch.randn(T, B, F, generator=generator, dtype=dtype)
    state = torch.randn(B, core.state_size, generator=generator, dtype=dtype)
    starts = torch.rand(T, B, generator=generator) < chance
    return features, state, starts


def step_by_step(
    core: RecurrentCore, features: Tensor, state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """As an agent acts: what is remembered of an episode is gone when the next one starts."""
    outputs = []
    for seen, start in zip(features, starts, strict=True):
        state = torch.where(start[:, None], torch.zeros_like(state), state)
        output, state = core.step(seen, state)
        outputs.append(output)
    return torch.stack(outputs), state


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_gru_of_one_unit_is_its_equations_by_hand():
    from_input, from_state, h = [0.5, -1.0, 2.0], [0.25, 0.5, -0.5], 0.8
    r, z = sigmoid(0.5 + 0.25), sigmoid(-1.0 + 0.5)
    n = math.tanh(2.0 + r * -0.5)
    expected = (1 - z) * n + z * 0.8
    found = gru_cell(
        *(torch.tensor([row], dtype=torch.float64) for row in (from_input, from_state, [h]))
    )
    assert found.item() == near(expected, terms=3)


def test_an_lstm_of_one_unit_is_its_equations_by_hand():
    from_input, from_state, c = [0.5, -1.0, 2.0, 0.1], [0.25, 0.5, -0.5, 0.2], 0.8
    i, f, g, o = sigmoid(0.75), sigmoid(-0.5), math.tanh(1.5), sigmoid(0.1 + 0.2)
    cell = f * 0.8 + i * g
    rows = (torch.tensor([row], dtype=torch.float64) for row in (from_input, from_state, [c]))
    h, found = lstm_cell(*rows)
    assert found.item() == near(cell, terms=3)
    assert h.item() == near(o * math.tanh(cell), terms=3)


@KINDS
def test_a_step_is_the_cell_of_torch(kind: str):
    core = core_of(kind)
    cell = (nn.GRUCell if kind == "gru" else nn.LSTMCell)(F, H).double()
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = (core.input_weight, core.state_weight, core.input_bias, core.state_bias)
    cell.load_state_dict(dict(zip(names, weights, strict=True)))
    features, state, _ = sequences(core)
    given = state if kind == "gru" else tuple(state.chunk(2, -1))
    expected = cell(features[0], given)
    output, after = core.step(features[0], state)
    assert_near(after, expected if kind == "gru" else torch.cat(expected, -1), terms=F + H)
    assert_near(output, after[:, :H])


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])
@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@KINDS
def test_a_whole_sequence_is_its_steps(kind: str, dtype: torch.dtype, chance: float, plain: bool):
    """Outputs, the last state, and the gradients of all that they depend on: of the weights, of the
    features, and of the state at the beginning."""
    core = core_of(kind, dtype)
    features, state, starts = sequences(core, chance)
    generator = torch.Generator().manual_seed(3)
    found = []
    for way in (step_by_step, core):
        inputs = [features.clone().requires_grad_(), state.clone().requires_grad_()]
        with use_plain_forms(plain):
            output, after = way(*([core] if way is step_by_step else []), *inputs, starts)
        generator.manual_seed(3)
        weight = torch.randn(output.shape, generator=generator, dtype=dtype)
        loss = (output * weight).sum() + after.square().sum()
        leaves = [*inputs, *core.parameters()]
        found.append([output, after, *torch.autograd.grad(loss, leaves)])
    assert_near(found[1], found[0], terms=T * B * (F + H), size=largest(found[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@KINDS
def test_nothing_before_a_start_is_remembered(kind: str, dtype: torch.dtype):
    """Neither value nor gradient: what follows a start does not depend on what came before."""
    core = core_of(kind, dtype)
    features, state, _ = sequences(core)
    starts = torch.zeros(T, B, dtype=torch.bool)
    starts[4, 2] = True
    seen = features.clone().requires_grad_()
    outputs, _ = core(seen, state, starts)
    alone, _ = core(features[4:], core.initial_state(B), starts[4:])
    assert_near(outputs[4:, 2], alone[:, 2], terms=T * (F + H))
    (slope,) = torch.autograd.grad(outputs[4:, 2].sum(), seen)
    assert (slope[:4] == 0).all() and (slope[4:, 2] != 0).all()


@KINDS
def test_sequences_in_two_parts_are_one_sequence(kind: str):
    core = core_of(kind)
    features, state, starts = sequences(core)
    whole, end = core(features, state, starts)
    first, between = core(features[:5], state, starts[:5])
    second, after = core(features[5:], between, starts[5:])
    assert_near(torch.cat([first, second]), whole, terms=T * (F + H))
    assert_near(after, end, terms=T * (F + H))


@pytest.mark.parametrize("shared", [True, False])
def test_a_policy_with_memory_standardises_what_it_observes(shared: bool):
    """As one without statistics does that is given standardised observations."""

    def policy_of(normalize: bool) -> RecurrentPolicy:
        generator = torch.Generator().manual_seed(0)
        plain = MLPPolicy(
            F,
            spaces.Discrete(2),
            generator,
            critic=True,
            hidden_sizes=(H, H),
            shared=shared,
            normalize_observation=normalize,
        )
        return RecurrentPolicy(plain, "gru", generator)

    policy, without = policy_of(True), policy_of(False)
    obs = 3.0 + 2.0 * torch.randn(T, B, F, generator=torch.Generator().manual_seed(1))
    starts, state = torch.zeros(T, B, dtype=torch.bool), torch.zeros(B, policy.state_size)
    policy.normalizer.update(obs.flatten(0, 1))  # type: ignore[operator]
    seen = policy.normalizer(obs)
    for found, expected in (
        (policy(obs, state, starts), without(seen, state, starts)),
        (policy.step(obs[0], state), without.step(seen[0], state)),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            assert_near(ours, theirs, terms=T * (F + H), size=1.0)


@KINDS
def test_a_hook_on_the_core_counts(kind: str):
    core = core_of(kind)
    features, state, starts = sequences(core)
    before, _ = core(features, state, starts)
    core.step = lambda seen, state: (seen.new_zeros(B, H), state)  # type: ignore[method-assign]
    outputs, _ = core(features, state, starts)
    assert (outputs == 0).all() and not (before == 0).any()


@KINDS
def test_initial_weights_are_orthogonal_and_drawn_from_the_generator_alone(kind: str):
    torch.manual_seed(1)
    one = RecurrentCore(kind, F, H, torch.Generator().manual_seed(0))
    torch.manual_seed(2)
    other = RecurrentCore(kind, F, H, torch.Generator().manual_seed(0))
    for name, weight in one.named_parameters():
        assert torch.equal(weight, other.get_parameter(name))
    gram = one.state_weight.T @ one.state_weight
    assert_near(gram, torch.eye(H), terms=4 * H)
    keeps = torch.zeros_like(one.state_bias).index_fill(0, torch.arange(H, 2 * H), KEEP_BIAS)
    assert torch.equal(one.state_bias, keeps) and (one.input_bias == 0).all()
    bound = H**-0.5 * (1 + rounding_bound("float32"))
    plain = RecurrentCore(kind, F, H, torch.Generator().manual_seed(0), orthogonal=False)
    drawn = [plain.input_weight, plain.state_weight, plain.input_bias, plain.state_bias - keeps]
    assert all(0 < weight.abs().max() <= bound for weight in drawn)


@KINDS
def test_the_bias_that_keeps_is_that_of_the_gate_that_keeps(kind: str):
    """With nothing but a large bias there, what is remembered stays."""
    core = core_of(kind)
    with torch.no_grad():
        for weight in core.parameters():
            weight.zero_()
        core.state_bias[H : 2 * H] = 100.0
        if kind == "lstm":
            core.state_bias[:H] = -100.0
    state = sequences(core)[1]
    after = core.step(torch.zeros(B, F, dtype=torch.float64), state)[1]
    kept = slice(None) if kind == "gru" else slice(H, None)  # of an LSTM c
    assert_near(after[:, kept], state[:, kept])
