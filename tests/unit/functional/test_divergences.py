"""KL estimators: their values, their gradients, and which of the two is unbiased; entropies."""

import math

import pytest
import torch
from closeness import assert_near, near, rounding_bound
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook.functional.divergences import (
    ESTIMATORS,
    categorical_entropy,
    find_estimator,
    gaussian_entropy,
    k1,
    k2,
    k3,
    k3_plus,
)

NAN = float("nan")


def test_k1_and_k3_are_the_ppo_fixtures(fixtures):
    case = fixtures["losses"]["ppo"]
    new, old = (torch.tensor(case[name], dtype=torch.float64) for name in ("logp_new", "logp_old"))
    # KL(old ‖ new) from samples of old: the roles are swapped
    assert k1(old, new).mean().item() == near(case["approx_kl_k1"], terms=4, size=1.0)
    assert k3(old, new).mean().item() == near(case["approx_kl_k3"], decimals=10)


def test_a_clamped_estimate_stays_inside_and_is_verls_for_k3():
    """verl: the log-ratio inside ±20, then exp(-x) + x - 1 inside ±10. Beyond the clamp there is no
    gradient; k3+ keeps k2's, which is x."""
    x = torch.tensor([0.0, 0.5, -0.5, 3.0, -3.0, -30.0, 30.0], dtype=torch.float64)
    log_prob, reference = x.clone().requires_grad_(), torch.zeros_like(x)
    plain = k3(x, reference)
    found = find_estimator("k3", 10.0)(log_prob, reference)
    assert_near(found.detach(), [*plain[:4].tolist(), 10.0, 10.0, 10.0], terms=4)
    found.sum().backward()
    gradient = (1 - (-x).exp()).where((plain < 10.0) & (x.abs() < 20.0), 0.0)
    assert_near(log_prob.grad, gradient, terms=4, size=1.0)
    log_prob.grad = None
    plus = find_estimator("k3+", 10.0)(log_prob, reference)
    plus.sum().backward()
    assert torch.equal(plus.detach(), found.detach()) or plus.detach().tolist() == near(
        found.tolist(),
        terms=4,
        size=450.0,  # k2 of 30, which cancels
    )
    assert torch.equal(log_prob.grad, x)
    for name in ("k1", "k2"):
        clamped = find_estimator(name, 0.3)(x, reference)
        assert torch.equal(clamped, ESTIMATORS[name](x, reference).clamp(-0.3, 0.3))
    for name, estimator in ESTIMATORS.items():
        assert find_estimator(name) is estimator
    mask = torch.tensor([True] * 6 + [False])
    assert find_estimator("k3", 10.0)(x, torch.full_like(x, NAN), ~mask)[:6].tolist() == [0.0] * 6


def test_a_clamped_k3_is_verls_own():
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    x = torch.tensor([0.0, 0.5, -0.5, 3.0, -3.0, -30.0, 30.0])
    theirs = core.kl_penalty(x, torch.zeros_like(x), "low_var_kl")
    assert_near(find_estimator("k3", 10.0)(x, torch.zeros_like(x)), theirs, terms=8, size=10.0)


def test_expectations_and_variances_are_the_exact_ones(fixtures):
    case = fixtures["losses"]["kl_estimators"]
    p, q = (torch.tensor(case[name], dtype=torch.float64) for name in "pq")
    for name, estimator in (("k1", k1), ("k2", k2), ("k3", k3)):
        sample = estimator(p.log(), q.log())
        mean = (p * sample).sum()
        assert mean.item() == near(case[f"E[{name}]"], decimals=10)
        if f"Var[{name}]" in case:
            assert (p * (sample - mean).square()).sum().item() == near(
                case[f"Var[{name}]"], decimals=10
            )


def expected_gradient(estimator, p_logits, q):
    """E_{a ~ p}[∇ estimator], with p held fixed as the distribution that is sampled from."""
    log_p = p_logits.log_softmax(0)
    sample = estimator(log_p, q.log())
    return torch.autograd.grad((log_p.exp().detach() * sample).sum(), p_logits)[0]


def test_as_a_loss_k1_has_no_gradient_k2_the_kls_and_k3_the_reverse_kls():
    logits = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    p = logits.softmax(0)
    kl = (p * (p.log() - q.log())).sum()
    reverse = (q * (q.log() - p.log())).sum()
    (kl_gradient,) = torch.autograd.grad(kl, logits, retain_graph=True)
    (reverse_gradient,) = torch.autograd.grad(reverse, logits)
    assert_near(expected_gradient(k1, logits, q), [0.0] * 3, terms=3, size=1.0)
    assert_near(expected_gradient(k3, logits, q), reverse_gradient, terms=9, size=1.0)
    for name in ("k2", "k1+", "k3+"):
        assert_near(expected_gradient(ESTIMATORS[name], logits, q), kl_gradient, terms=9, size=1.0)


def test_the_plus_forms_keep_the_value_and_take_k2s_gradient():
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    reference = torch.tensor([-1.5, -1.0])
    for name in ("k1", "k3"):
        assert_near(
            ESTIMATORS[f"{name}+"](log_prob, reference),
            ESTIMATORS[name](log_prob, reference),
            terms=4,
        )
    (gradient,) = torch.autograd.grad(k3_plus(log_prob, reference).sum(), log_prob)
    assert_near(gradient, log_prob - reference, terms=4)
    (gradient,) = torch.autograd.grad(k3(log_prob, reference).sum(), log_prob)
    assert_near(gradient, 1 - (reference - log_prob).exp(), terms=4)


@settings(deadline=None)
@given(x=st.floats(-30, 30, width=32))
def test_k3_keeps_its_digits_and_is_never_negative(x):
    log_prob, reference = torch.tensor([x]), torch.zeros(1)
    exact = math.expm1(-x) + x
    result = k3(log_prob, reference).item()
    assert result >= -rounding_bound("float32", size=abs(x))
    assert result == near(exact, dtype="float32", terms=2, size=abs(math.expm1(-x)) + abs(x))


def test_the_naive_form_of_k3_would_lose_what_ours_keeps():
    x = torch.tensor([1e-3])
    exact = 1e-6 / 2 - 1e-9 / 6
    # 3e-9, of terms of size 1e-3; theirs are of size 1
    kept = near(exact, dtype="float32", terms=2, size=2e-3)
    assert k3(x, torch.zeros(1)).item() == kept != ((-x).exp() - 1 + x).item()


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_padding_is_zero_in_value_and_gradient(name):
    mask = torch.tensor([True, False, False])
    log_prob = torch.tensor([-1.0, NAN, 300.0], requires_grad=True)
    result = ESTIMATORS[name](log_prob, torch.tensor([-1.3, -1.0, -300.0]), mask)
    assert result[1:].tolist() == [0.0, 0.0] and result[0] != 0
    (gradient,) = torch.autograd.grad(result.sum(), log_prob)
    assert gradient[1:].tolist() == [0.0, 0.0] and gradient.isfinite().all()
    with pytest.raises(ValueError, match="reference_log_prob must have the shape of log_prob"):
        ESTIMATORS[name](torch.zeros(2), torch.zeros(2, 1))


def test_k2_is_half_the_square():
    assert k2(torch.tensor([-1.0]), torch.tensor([-3.0])).item() == 2.0


def test_the_entropy_of_a_uniform_choice_is_the_log_of_its_size():
    assert_near(
        categorical_entropy(torch.zeros(2, 3, 8).log_softmax(-1)), [[math.log(8)] * 3] * 2, terms=8
    )
    prob = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    expected = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
    assert categorical_entropy((prob.log() + 7.0).log_softmax(-1)).item() == near(
        expected, terms=3, size=7.0
    )


def test_forbidden_and_impossible_actions_leave_entropy_and_gradient_finite():
    logits = torch.tensor(
        [[0.0, -math.inf, 0.0], [5.0, -math.inf, -math.inf], [0.0, -500.0, 0.0]], requires_grad=True
    )
    entropy = categorical_entropy(logits.log_softmax(-1))
    assert_near(entropy, [math.log(2), 0.0, math.log(2)], terms=3)
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    assert gradient.isfinite().all()


def test_the_entropy_of_a_gaussian_is_the_textbook_one():
    std = torch.tensor([[0.5, 2.0]], dtype=torch.float64)
    expected = sum(0.5 * math.log(2 * math.pi * math.e * s**2) for s in (0.5, 2.0))
    assert_near(gaussian_entropy(std.log()), [expected], terms=4)
    assert_near(
        gaussian_entropy(std.log()), torch.distributions.Normal(0.0, std).entropy().sum(-1), terms=4
    )
