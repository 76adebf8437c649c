"""Statistics of K completions per prompt: success rates, lengths and likelihoods.

The prompts are the unit of all intervals: two completions of one prompt are not independent. A mean
has Student's t interval over the prompts' own means; perplexity, which is a ratio of two sums,
scipy's percentile bootstrap over prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbook.errors import RequestError
from rlbook.functional.intervals import t_interval
from rlbook.functional.post_training.success_rates import majority_at_k, pass_at_k, perplexity
from rlbook.interaction.play_episodes import Evaluation

RESAMPLES = 2_000  # of the bootstrap
TOTAL = "return"


class Estimate(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Sample:
    """One completion and its results."""

    prompt: str
    wanted: str | None  # the right answer; None where the example has none
    completion: str  # without EOS
    tokens: int  # EOS included
    ended: bool  # False: cut off by the limit
    rewards: dict[str, float | None]  # by name; None where one does not apply
    total: float  # the environment's reward
    answer: str | None  # the answer that counts in a vote; None if there is none
    right: bool | None  # None where there is nothing to compare with


@dataclass(frozen=True, repr=False, eq=False)
class SampledEvaluation(Evaluation):
    """K completions of each of P prompts; `returns` and `lengths` (in tokens) are those of the
    completions, adjacent for one prompt."""

    samples: list[list[Sample]]  # [P][K]
    greedy: list[Sample]  # [P], each prompt's likeliest tokens
    # [P], -log p of the right answer in nats, the sum over its tokens; NaN where there is none
    surprise: NDArray[np.float64]
    answer_tokens: NDArray[np.float64]  # [P], EOS included
    verifier: str  # the reward that says what is right
    sampling: str  # how the tokens were drawn
    seed: int

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """95 % interval of the mean return, over prompts."""
        return t_interval(self.returns.reshape(len(self.samples), -1).mean(1))

    def prompt_means(self) -> dict[str, NDArray[np.float64]]:
        """Name → [P], the mean over each prompt's completions; NaN where it does not apply.
        Perplexity is not included."""
        rows = self.samples
        found: dict[str, NDArray[np.float64]] = {}
        if all(sample.right is not None for row in rows for sample in row):
            found["right, greedy"] = np.array(
                [bool(sample.right) for sample in self.greedy], dtype=np.float64
            )
            found |= self._rates()
        names = dict.fromkeys(name for row in rows for sample in row for name in sample.rewards)
        found |= {
            name: _means([[sample.rewards.get(name) for sample in row] for row in rows])
            for name in names
        }
        found[TOTAL] = _means([[sample.total for sample in row] for row in rows])
        found["length"] = _means([[sample.tokens for sample in row] for row in rows])
        found["truncated"] = _means([[not sample.ended for sample in row] for row in rows])
        return found

    def _rates(self) -> dict[str, NDArray[np.float64]]:
        """pass@k and maj@k for k = 1, 2, 4, … up to K, and the share of tied votes among K."""
        samples = len(self.samples[0])
        right = torch.tensor([[bool(sample.right) for sample in row] for row in self.samples])
        answers = torch.tensor(
            [_group_numbers([sample.answer for sample in row]) for row in self.samples]
        )
        ks = sorted({2**i for i in range(samples.bit_length())} | {samples})
        passed = {f"pass@{k}": pass_at_k(right.sum(1), samples, k).numpy() for k in ks}
        voted = {f"maj@{k}": majority_at_k(answers, right, k) for k in ks if k > 1}
        ties = {f"ties among {k}": voted[f"maj@{k}"][1].numpy() for k in ks[-1:] if k > 1}
        return passed | {name: votes[0].numpy() for name, votes in voted.items()} | ties

    def measures(self) -> dict[str, Estimate]:
        """Name → mean over prompts and interval."""
        found = {name: mean_of(values) for name, values in self.prompt_means().items()}
        if self._has_answers:
            found["perplexity"] = _bootstrap(
                _perplexity, [self.surprise, self.answer_tokens], self.seed
            )
        return found

    @property
    def _has_answers(self) -> bool:
        return not bool(np.isnan(self.surprise).any())


@dataclass(frozen=True)
class Difference:
    """The difference between two evaluations on the same prompts."""

    before: dict[str, Estimate]
    after: dict[str, Estimate]
    difference: dict[str, Estimate]  # after less before, paired by prompt
    # the greedy completions of prompts that became right: before, after
    gained: list[tuple[Sample, Sample]]
    lost: list[tuple[Sample, Sample]]  # of those that became wrong
    # reward → how often a completion of after beats one of before; see `win_rate`
    win_rates: dict[str, Estimate]


def difference(before: SampledEvaluation, after: SampledEvaluation) -> Difference:
    """Compares two evaluations prompt by prompt.

    Raises:
        RequestError: they are not of the same prompts.
    """
    if [sample.prompt for sample in before.greedy] != [sample.prompt for sample in after.greedy]:
        raise RequestError(
            "compare: the two runs used different prompts, so their completions cannot be compared"
            " one by one"
        )
    first, second = before.prompt_means(), after.prompt_means()
    found = {name: mean_of(second[name] - first[name]) for name in second if name in first}
    if before._has_answers and after._has_answers:
        columns = [before.surprise, before.answer_tokens, after.surprise, after.answer_tokens]
        found["perplexity"] = _bootstrap(_perplexity_change, columns, after.seed)
    pairs = list(zip(before.greedy, after.greedy, strict=True))
    gained = [pair for pair in pairs if pair[0].right is False and pair[1].right]
    lost = [pair for pair in pairs if pair[0].right and pair[1].right is False]
    rates = win_rates(before, after)
    return Difference(before.measures(), after.measures(), found, gained, lost, rates)


def win_rates(before: SampledEvaluation, after: SampledEvaluation) -> dict[str, Estimate]:
    """The win rates of one evaluation against another on the same prompts: by each reward that both
    have for every completion, and by the environment's reward."""

    def scores(found: SampledEvaluation, name: str) -> list[list[float | None]]:
        return [
            [sample.total if name == TOTAL else sample.rewards.get(name) for sample in row]
            for row in found.samples
        ]

    names = dict.fromkeys(name for row in after.samples for one in row for name in one.rewards)
    rates: dict[str, Estimate] = {}
    for name in (*names, TOTAL):
        pair = scores(before, name), scores(after, name)
        if not any(score is None for table in pair for row in table for score in row):
            rates[name] = win_rate(*(np.array(table, dtype=np.float64) for table in pair))
    return rates


def win_rate(before: NDArray[np.float64], after: NDArray[np.float64], *, seed: int = 0) -> Estimate:
    """How often a completion of one model has a higher score than one of another model for the same
    prompt; a tie counts as half a win.

    Args:
        before: [P, K], the scores of one model's completions.
        after: [P, L], those of the model whose wins are counted.
        seed: of the bootstrap.

    Returns:
        The mean over prompts of the share of the K · L pairs that are won, and the 95 % percentile
        bootstrap interval over prompts.

    Raises:
        ValueError: they are not of the same number of prompts.

    Source: Stiennon et al. 2020, arXiv:2009.01325, section 4.1; the half for a tie is that of
    Mann and Whitney 1947.
    """
    if before.ndim != 2 or after.ndim != 2 or len(before) != len(after) or not len(before):
        raise ValueError(
            f"the scores must be [P, K] and [P, L], got {list(before.shape)} and {list(after.shape)}"
        )
    sign = np.sign(after[:, :, None] - before[:, None, :])  # [P, L, K]
    won = (sign.mean(axis=(1, 2)) + 1.0) / 2.0
    return _bootstrap(_mean, [won], seed)


def mean_of(values: NDArray[np.float64]) -> Estimate:
    """The mean of the values [P] that are not NaN, with its t interval."""
    values = values[~np.isnan(values)]
    return (
        Estimate(float(values.mean()), *t_interval(values))
        if len(values)
        else Estimate(math.nan, math.nan, math.nan)
    )


def _mean(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    return values.mean(axis)


def _perplexity(
    surprise: NDArray[np.float64], tokens: NDArray[np.float64], axis: int = -1
) -> NDArray[np.float64]:
    return perplexity(torch.from_numpy(np.asarray(surprise.sum(axis) / tokens.sum(axis)))).numpy()


def _perplexity_change(*columns: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    return _perplexity(*columns[2:], axis=axis) - _perplexity(*columns[:2], axis=axis)


def _bootstrap(
    statistic: Callable[..., NDArray[np.float64]], columns: Sequence[NDArray[np.float64]], seed: int
) -> Estimate:
    """The bootstrap interval of a statistic of columns [P], resampled row by row."""
    from scipy.stats import bootstrap

    value = float(statistic(*columns))
    if len(columns[0]) < 2:
        return Estimate(value, value, value)
    interval = bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))


def _means(rows: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """The mean of each row, ignoring None; NaN if nothing is left."""
    there = [[value for value in row if value is not None] for row in rows]
    return np.array([float(np.mean(row)) if row else math.nan for row in there])


def _group_numbers(answers: Sequence[str | None]) -> list[int]:
    """Numbers answers so that equal answers have equal numbers; -1 for no answer."""
    numbers: dict[str, int] = {}
    return [
        -1 if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers
    ]
