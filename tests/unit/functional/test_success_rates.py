"""pass@k, maj@k and perplexity: by hand, against every choice of k samples, and in the mean over
draws."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from closeness import near

from rlbook.functional.post_training.success_rates import majority_at_k, pass_at_k, perplexity


def test_pass_at_k_by_hand() -> None:
    """Two of four are right. Of the 6 pairs only the pair of wrong ones fails; any three hold a
    right one."""
    right = torch.tensor([2])
    assert pass_at_k(right, 4, 1).item() == 2 / 4
    assert pass_at_k(right, 4, 2).item() == near(1 - 1 / 6, terms=3)
    assert pass_at_k(right, 4, 3).item() == 1.0


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_is_the_mean_over_all_choices(samples: int) -> None:
    for count in range(samples + 1):
        outcomes = [1] * count + [0] * (samples - count)
        for k in range(1, samples + 1):
            choices = list(combinations(outcomes, k))
            wanted = sum(any(choice) for choice in choices) / len(choices)
            assert pass_at_k(torch.tensor([count]), samples, k).item() == near(
                wanted, terms=2 * k, size=1.0
            )


def test_pass_at_k_is_unbiased_and_the_obvious_estimate_is_too_low() -> None:
    """Over the binomial distribution of c, with a chance of .3 each: exactly 1 - .7^k."""
    samples, chance, k = 6, 0.3, 4
    counts = torch.arange(samples + 1)
    chances = [
        math.comb(samples, c) * chance**c * (1 - chance) ** (samples - c)
        for c in range(samples + 1)
    ]
    weights = torch.tensor(chances, dtype=torch.float64)
    assert (weights * pass_at_k(counts, samples, k)).sum().item() == near(
        1 - 0.7**k, terms=4 * samples
    )
    obvious = 1 - (1 - counts.double() / samples) ** k
    assert (weights * obvious).sum().item() < 1 - 0.7**k - 0.04


def test_pass_at_k_of_many_samples_stays_exact() -> None:
    assert pass_at_k(torch.tensor([1]), 10_000, 100).item() == near(
        100 / 10_000, terms=2 * 100, size=1.0
    )


def test_the_majority_by_hand() -> None:
    """2 2 4 | 4 0 -: in the first block the right 2 wins; in the second 4 and 0 are tied, and
    neither is right."""
    answer = torch.tensor([[2, 2, 4, 4, 0, -1]])
    rate, ties = majority_at_k(answer, answer == 2, 3)
    assert (rate.item(), ties.item()) == (1 / 2, 1 / 2)
    rate, ties = majority_at_k(answer, answer == 2, 6)  # 2 and 4 twice each: half a vote is right
    assert (rate.item(), ties.item()) == (1 / 2, 1.0)
    rate, ties = majority_at_k(answer, answer == 4, 5)  # what is left over does not vote
    assert (rate.item(), ties.item()) == (1 / 2, 1.0)


def test_one_sample_is_its_own_majority() -> None:
    right = torch.tensor([[True, False, True, True], [False, False, False, True]])
    rate, ties = majority_at_k(torch.where(right, 0, torch.arange(4)), right, 1)
    assert torch.equal(rate, pass_at_k(right.sum(1), 4, 1)) and not ties.any()


def test_where_nobody_answers_nothing_is_right() -> None:
    nobody = torch.full((1, 4), -1)
    rate, ties = majority_at_k(nobody, torch.ones(1, 4, dtype=torch.bool), 4)
    assert (rate.item(), ties.item()) == (0.0, 0.0)


def test_the_majority_of_many_is_the_likeliest_answer() -> None:
    """A right answer with the chance .5 against wrong ones of .3 and .2 is right in half of the
    samples, and nearly always in the vote."""
    generator = torch.Generator().manual_seed(0)
    answer = torch.multinomial(
        torch.tensor([0.5, 0.3, 0.2]), 100 * 201, replacement=True, generator=generator
    ).view(100, 201)
    five = 5 * 0.5 / math.sqrt(100 * 201)  # standard errors of a share of so many
    assert pass_at_k((answer == 0).sum(1), 201, 1).mean().item() == pytest.approx(
        0.5, rel=0, abs=five
    )
    assert majority_at_k(answer, answer == 0, 201)[0].mean().item() > 0.97


def test_perplexity_does_not_depend_on_the_base_of_the_logarithm() -> None:
    probability = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)
    nats, bits = -probability.log().mean(), -probability.log2().mean()
    assert bits.item() == near((1 + 2 + 3) / 3, terms=3)
    assert perplexity(bits, base=2).item() == near(4.0, terms=4, size=4 * 2.0)
    assert perplexity(nats).item() == near(4.0, terms=4, size=4 * 2.0)
    # the mistake: 2.61 and not 4
    assert perplexity(nats, base=2).item() == near(4 ** math.log(2), terms=4, size=4 * 2.0)


def test_a_uniform_model_is_as_perplexed_as_it_has_tokens() -> None:
    assert perplexity(torch.tensor(math.log(26.0))).item() == near(
        26.0, dtype="float32", size=26 * math.log(26)
    )


@pytest.mark.parametrize("k", [0, 5])
def test_k_is_one_of_the_samples(k: int) -> None:
    with pytest.raises(ValueError, match="k must be from 1 to 4"):
        pass_at_k(torch.tensor([1]), 4, k)
    with pytest.raises(ValueError, match="k must be from 1 to 4"):
        majority_at_k(torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4, dtype=torch.bool), k)


def test_there_are_not_more_right_ones_than_samples() -> None:
    with pytest.raises(ValueError, match="right must be from 0 to 4"):
        pass_at_k(torch.tensor([5]), 4, 1)
    with pytest.raises(ValueError, match="base must be above 1"):
        perplexity(torch.tensor(1.0), base=1.0)
