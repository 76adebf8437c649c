"""Sampling draws what the probabilities say; densities and entropies are the textbook's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near
from scipy import integrate, stats

from rlbook.networks import distributions
from rlbook.networks.distributions import (
    Categorical,
    Gaussian,
    mode_categorical,
    sample_categorical,
    sample_logits,
)

LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32))
ALMOST_ONE = np.nextafter(1.0, 0.0)  # the largest number that Generator.random may return


def test_actions_come_as_often_as_they_should() -> None:
    count = 100_000
    action, _ = sample_categorical(
        np.tile(LOGITS + 5.0, (count, 1)), np.random.default_rng(0).random(count)
    )
    counts = np.bincount(action, minlength=4)
    assert stats.chisquare(counts, count * np.array([0.1, 0.2, 0.3, 0.4])).pvalue > 1e-3


def test_the_noise_falls_into_the_actions_slice_of_the_cumulative_distribution() -> None:
    """Slices [0, .1), [.1, .3), [.3, .6), [.6, 1)."""
    noise = np.array([0.0, 0.0999, 0.1001, 0.2999, 0.3001, 0.5999, 0.6001, ALMOST_ONE])
    action, _ = sample_categorical(np.tile(LOGITS, (8, 1)), noise)
    assert action.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("num_actions", [1, 2, 3, 7, 1000])
def test_noise_at_either_end_gives_an_action_that_is_possible(num_actions: int) -> None:
    """The first and the last action are forbidden (logit -inf), where there are enough of them."""
    logits = np.random.default_rng(1).normal(size=(200, num_actions)).astype(np.float32)
    if num_actions > 2:
        logits[:, [0, -1]] = -np.inf
    for noise in (0.0, ALMOST_ONE):
        action, log_prob = sample_categorical(logits, np.full(200, noise))
        assert ((action >= 0) & (action < num_actions)).all()
        assert np.isfinite(log_prob).all()
        assert np.isfinite(logits[np.arange(200), action]).all()


def test_a_drawn_action_comes_with_its_log_probability() -> None:
    rng = np.random.default_rng(2)
    logits = (30 * rng.normal(size=(500, 6))).astype(np.float32)
    for action, log_prob in (sample_categorical(logits, rng.random(500)), mode_categorical(logits)):
        expected = Categorical(torch.from_numpy(logits)).log_prob(torch.from_numpy(action))
        assert_near(log_prob, expected, terms=6, size=float(np.abs(logits).max()))
        assert log_prob.dtype == np.float32 and action.dtype == np.int64


def test_the_mode_is_the_lowest_index_among_equals() -> None:
    action, log_prob = mode_categorical(
        np.array([[0.0, 1.0, 1.0], [2.0, 2.0, 2.0]], dtype=np.float32)
    )
    assert action.tolist() == [1, 0]
    assert_near(log_prob, [1 - math.log(1 + 2 * math.e), -math.log(3)], terms=3, size=2.0)


def test_a_categorical_keeps_leading_axes() -> None:
    logits, action = (
        torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[0, 1, 2], [3, 4, 0]]),
    )
    distribution = Categorical(logits)
    assert distribution.log_prob(action).shape == distribution.entropy().shape == (2, 3)
    prob = logits[1, 2].softmax(-1)
    assert_near(distribution.log_prob(action)[1, 2], prob[0].log(), terms=5)
    assert_near(distribution.entropy()[1, 2], float(stats.entropy(prob.numpy())), terms=5)


def test_an_entropy_without_gradient_leaves_the_log_probability_its_own() -> None:
    """∂ log π(a) / ∂ logit_b = 1[b = a] - π(b), in whichever order the two are asked for."""
    logits = torch.tensor([0.0, 1.0, -1.0], requires_grad=True)
    distribution = Categorical(logits)
    with torch.no_grad():
        distribution.entropy()
    (gradient,) = torch.autograd.grad(distribution.log_prob(torch.tensor(1)), logits)
    pi = logits.detach().softmax(0)
    assert_near(gradient, torch.tensor([0.0, 1.0, 0.0]) - pi, terms=3, size=1.0)


def test_an_impossible_action_adds_nothing_to_the_entropy_and_no_nan_to_its_gradient() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0]], requires_grad=True)
    entropy = Categorical(logits).entropy()
    assert entropy.item() == near(math.log(2), dtype="float32", terms=3)
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    # uniform over what is possible: a maximum
    assert_near(gradient, torch.zeros(1, 3), terms=3, size=1.0)


def test_the_density_of_a_gaussian_action_is_the_product_over_its_components() -> None:
    rng = np.random.default_rng(3)
    mean, action, log_std = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), np.array([-1.0, 0.7])
    expected = stats.norm.logpdf(action, mean, np.exp(log_std)).sum(-1)
    computed = Gaussian(torch.from_numpy(mean), torch.from_numpy(log_std)).log_prob(
        torch.from_numpy(action)
    )
    assert computed.shape == (4,)
    assert_near(computed, expected, terms=6)


def test_the_density_of_a_gaussian_integrates_to_one_and_gives_its_entropy() -> None:
    """H = -∫ p log p, by quadrature; the closed form is ½ log(2πe σ²)."""
    log_std = torch.tensor([math.log(1.7)], dtype=torch.float64)
    distribution = Gaussian(torch.tensor([0.4], dtype=torch.float64), log_std)

    def log_density(x: float) -> float:
        return distribution.log_prob(torch.tensor([x], dtype=torch.float64)).item()

    total, error = integrate.quad(lambda x: math.exp(log_density(x)), -20, 20)
    assert abs(total - 1.0) < error < 1e-7  # quadrature's own estimate
    entropy, error = integrate.quad(lambda x: -math.exp(log_density(x)) * log_density(x), -20, 20)
    exact = 0.5 * math.log(2 * math.pi * math.e * 1.7**2)
    assert abs(entropy - exact) < error < 1e-7  # quadrature's own estimate
    assert distribution.entropy().item() == near(exact, terms=3)


def test_the_entropy_of_two_components_is_the_sum() -> None:
    log_std = torch.tensor([0.3, -0.8], dtype=torch.float64)
    both = Gaussian(torch.zeros(5, 2, dtype=torch.float64), log_std).entropy()
    alone = sum(0.5 * math.log(2 * math.pi * math.e * math.exp(2 * x)) for x in (0.3, -0.8))
    assert_near(both, torch.full((5,), alone, dtype=torch.float64), terms=6, size=3.0)


# ---- distributions as objects


def both() -> list[Any]:
    """A categorical and a Gaussian policy's distribution over 3 states, whose parameters have
    gradients."""
    generator = torch.Generator().manual_seed(0)
    logits, mean = (
        torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(2)
    )
    log_std = torch.tensor([-0.5, 0.0, 0.3, 1.0], dtype=torch.float64, requires_grad=True)
    return [Categorical(logits), Gaussian(mean, log_std.expand(3, 4))]


def test_samples_have_the_frequencies_and_moments_that_they_should() -> None:
    """20 000 draws: a frequency within 5 standard errors of its probability, a mean within 5 σ /
    √n."""
    count, generator = 20_000, torch.Generator().manual_seed(1)
    categorical, gaussian = both()
    p = categorical.log_probs[0].detach().exp()
    drawn = Categorical(categorical.logits[:1].detach().expand(count, 4)).sample(generator)
    frequency = torch.bincount(drawn, minlength=4) / count
    assert ((frequency - p).abs() < 5 * (p * (1 - p) / count).sqrt()).all()
    mean, std = gaussian.mean[0].detach(), gaussian.log_std[0].detach().exp()
    values = Gaussian(mean.expand(count, 4), gaussian.log_std[0].detach()).sample(generator)
    assert ((values.mean(0) - mean).abs() < 5 * std / count**0.5).all()
    assert ((values.std(0) / std - 1).abs() < 5 / (2 * count) ** 0.5).all()


def test_only_continuous_samples_carry_a_gradient() -> None:
    """∂(μ + σ ε)/∂μ = 1 and ∂/∂log σ = σ ε."""
    categorical, gaussian = both()
    generator = torch.Generator().manual_seed(1)
    assert (
        not categorical.sample(generator).is_floating_point()
        and not gaussian.sample(generator).requires_grad
    )
    with pytest.raises(ValueError, match="use sample"):
        categorical.rsample()
    value = gaussian.rsample(generator)
    for_mean, for_log_std = torch.autograd.grad(value.sum(), [gaussian.mean, gaussian.log_std])
    assert torch.equal(for_mean, torch.ones(3, 4, dtype=torch.float64))
    assert_near(for_log_std, value - gaussian.mean, terms=2, size=value.abs().max().item())


def test_the_mode_is_likelier_than_any_sample() -> None:
    for distribution in both():
        best = distribution.log_prob(distribution.mode())
        for seed in range(20):
            assert (
                distribution.log_prob(distribution.sample(torch.Generator().manual_seed(seed)))
                <= best
            ).all()


def test_the_divergence_is_the_mean_log_ratio_and_zero_to_itself() -> None:
    """torch's closed forms; and an action that is never taken adds nothing."""
    categorical, gaussian = both()
    shift = 0.3 * torch.arange(4.0)
    others = (
        Categorical(categorical.logits + shift),
        Gaussian(gaussian.mean + shift, gaussian.log_std[0] + shift),
    )
    for one, other in zip((categorical, gaussian), others, strict=True):
        assert not one.kl(one).any()
        made = [
            torch.distributions.Categorical(logits=x.logits)
            if isinstance(x, Categorical)
            else torch.distributions.Independent(
                torch.distributions.Normal(x.mean, x.log_std.exp()), 1
            )
            for x in (one, other)
        ]
        assert_near(one.kl(other), torch.distributions.kl_divergence(*made), terms=4, size=10.0)
    never = Categorical(torch.tensor([[0.0, -torch.inf]]))
    assert_near(never.kl(Categorical(torch.tensor([[0.0, 0.0]]))), [math.log(2)], terms=2)


def test_a_masked_action_is_as_if_it_were_not_there() -> None:
    """All six agree with the distribution over the actions that are left, and no gradient is
    NaN."""
    mask = torch.tensor([True, False, True, True, False])
    logits = torch.randn(
        2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).requires_grad_()
    one, other = (Categorical(raw.masked_fill(~mask, -torch.inf)) for raw in (logits, logits.sin()))
    left, left_other = (
        torch.distributions.Categorical(logits=raw[:, mask]) for raw in (logits, logits.sin())
    )
    assert_near(one.log_prob(torch.tensor([2, 2])), left.log_prob(torch.tensor([1, 1])), terms=3)
    assert one.log_prob(torch.tensor([1, 4])).tolist() == [-math.inf, -math.inf]
    assert_near(one.entropy(), left.entropy(), terms=3, size=3.0)
    assert_near(
        one.kl(other), torch.distributions.kl_divergence(left, left_other), terms=3, size=3.0
    )
    assert Categorical(logits).kl(one).tolist() == [math.inf, math.inf]
    assert mask[one.mode()].all() and all(
        mask[one.sample(torch.Generator().manual_seed(seed))].all() for seed in range(20)
    )
    with pytest.raises(ValueError, match="use sample"):
        one.rsample()
    (gradient,) = torch.autograd.grad((one.entropy() + one.kl(other)).sum(), logits)
    assert gradient.isfinite().all() and not gradient[:, ~mask].any()


def test_large_vocabularies_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, gradient too: 5 rows of 20 actions, 2 rows at a time."""
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(0), requires_grad=True)
    action, results = torch.arange(5) * 3, []
    for large in (1000, 10):
        monkeypatch.setattr(distributions, "LARGE", large)
        monkeypatch.setattr(distributions, "CHUNK", 40)
        log_prob, entropy = Categorical(logits).log_prob(action), Categorical(logits).entropy()
        slopes = [
            torch.autograd.grad(numbers.sin().sum(), logits)[0] for numbers in (log_prob, entropy)
        ]
        results.append((log_prob, entropy, *slopes))
    assert all(map(torch.equal, *results))


# ---- drawing where the logits are


@pytest.mark.thorough
def test_a_large_vocabulary_draws_the_actions_of_a_small_one() -> None:
    """2000 draws from 10 000 actions, block by block, are those of one cumulative sum."""
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(2000, 10_000))).astype(np.float32)
    noise = rng.random(2000)
    for drawn, expected in (
        (sample_logits(torch.from_numpy(logits), noise), sample_categorical(logits, noise)),
        (sample_logits(torch.from_numpy(logits), None), mode_categorical(logits)),
    ):
        assert (drawn[0] == expected[0]).all() and drawn[0].dtype == np.int64
        assert_near(drawn[1], expected[1], terms=10_000, size=1.0)
        assert drawn[1].dtype == np.float32


@pytest.mark.parametrize("noise", [0.0, 0.3, ALMOST_ONE])
def test_a_large_vocabulary_draws_only_what_is_possible(noise: float) -> None:
    """Three actions, on both sides of a border between two blocks and in the last, unfilled one."""
    logits = torch.full((3, 5000), -torch.inf)
    for row, allowed in enumerate(([511, 512, 4999], [0, 1, 2], [4997])):
        logits[row, allowed] = torch.arange(len(allowed)).float()
    action, log_prob = sample_logits(logits, np.full(3, noise))
    assert np.isfinite(log_prob).all()
    expected, _ = sample_categorical(logits.numpy(), np.full(3, noise))
    assert action.tolist() == expected.tolist()


def test_bfloat16_logits_are_drawn_in_float32() -> None:
    logits = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0)).bfloat16()
    noise = np.array([0.1, 0.5, 0.7, 0.9])
    one, other = sample_logits(logits, noise), sample_logits(logits.float(), noise)
    assert (one[0] == other[0]).all() and (one[1] == other[1]).all()


def test_only_what_was_drawn_leaves_the_device() -> None:
    """On a device that has shapes alone the draw goes on to the last operation, where numbers would
    be needed; the sums stand there for the logits' cumulative distribution."""
    action, log_prob = distributions._draw(
        torch.zeros(4, 5000, device="meta"), torch.zeros(4, device="meta", dtype=torch.float64)
    )
    assert action.is_meta and log_prob.is_meta and action.shape == log_prob.shape == (4,)
