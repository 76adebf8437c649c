"""Exercises on language models. The right answers are the library's own functions, wherever it has
one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import advantages, divergences
from rlbook.functional.post_training import preference_losses, success_rates
from rlbook.functional.post_training.distillation_losses import soft_label_loss
from rlbook.functional.score_weights import score_weights
from rlbook.functional.word_vectors import negative_sampling_gradients
from rlbook.llm.tokenizers.batches import pad


def log_probs(rng: Generator, *shape: int) -> Array:
    return -rng.uniform(0.1, 3.0, shape).round(2)


@exercise(
    "tokens",
    lambda rng: (rng.integers(0, 6, 5), float(rng.choice([0.1, 0.5, 1.0]))),
    {
        "k is added to the count of each of the V words, so k V is added to their sum": (
            lambda counts, k: (counts + k) / (counts.sum() + k)
        ),
        "the words that were seen get k, too": lambda counts, k: (
            np.maximum(counts, k) / np.maximum(counts, k).sum()
        ),
    },
)
def add_k_probabilities(counts: Array, k: float) -> Array:
    """The probabilities of the next word after a history, with add-k smoothing: [V].

    counts [V] say how often each word has followed this history.
    """
    return (counts + k) / (counts.sum() + k * len(counts))


def draw_words(rng: Generator) -> tuple[Array, Array]:
    return rng.integers(0, 4, (4, 5)), rng.integers(1, 5, 4)


@exercise(
    "tokens",
    draw_words,
    {
        "a word that occurs three times counts three times": lambda words, counts: _best(
            words, np.ones_like(counts)
        ),
        "of pairs that are equally frequent, the one with the lowest ids is merged": (
            lambda words, counts: _best(words, counts, last=True)
        ),
    },
)
def best_pair(words: Array, counts: Array) -> Array:
    """The two ids that byte-pair encoding merges next: [2].

    words [W, L] are rows of ids, one a word; counts [W] say how often each word occurs. Of pairs
    that are equally frequent the one with the lowest first id is taken, and then with the lowest
    second one.
    """
    return _best(words, counts)


def _best(words: Array, counts: Array, *, last: bool = False) -> Array:
    pairs = Counter[tuple[int, int]]()
    for row, count in zip(words.tolist(), counts.tolist(), strict=True):
        for pair in pairwise(row):
            pairs[pair] += count
    sign = 1 if last else -1
    return np.array(max(pairs, key=lambda pair: (pairs[pair], sign * pair[0], sign * pair[1])))


@exercise(
    "tokens",
    lambda rng: tuple(rng.normal(size=shape).round(2) for shape in (3, 3, (2, 3))),
    {
        "the word that was there has the error σ − 1, not σ": lambda h, there, drawn: (
            _sigmoid(there @ h) * there + _sigmoid(drawn @ h) @ drawn
        ),
        "the gradient points where the loss grows: the words that were drawn have a plus": (
            lambda h, there, drawn: (_sigmoid(there @ h) - 1) * there - _sigmoid(drawn @ h) @ drawn
        ),
    },
)
def pull_of_company(hidden: Array, there: Array, drawn: Array) -> Array:
    """The gradient of negative sampling's loss with respect to the vector that is read: [D].

    hidden [D] is that vector, there [D] the output vector of the word that was beside it, and
    drawn [K, D] those of the words from the noise.
    """
    parts = tensor(hidden)[None], tensor(there)[None], tensor(drawn)[None]
    return negative_sampling_gradients(*parts).hidden[0].numpy()


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@exercise(
    "tokens",
    lambda rng: (rng.integers(1, 6, 3),),
    {
        "a model goes on at the end of a row, so the padding stands on the left": lambda lengths: (
            np.arange(lengths.max()) < lengths[:, None]
        ).astype(int),
        "1 is a token, and 0 is padding": lambda lengths: (
            1 - pad(_ones(lengths), 0, side="left")[1]
        ),
    },
)
def padding_mask(lengths: Array) -> Array:
    """The attention mask of a batch of prompts that a model goes on with: [B, T].

    lengths [B] are the prompts' numbers of tokens, and T is the largest of them.
    """
    return pad(_ones(lengths), 0, side="left")[1]


def _ones(lengths: Array) -> list[list[int]]:
    return [[1] * int(length) for length in lengths]


@exercise(
    "tokens",
    lambda rng: (rng.normal(size=5).round(2),),
    {
        "the mean is that of the logits, not of the probabilities": lambda logits: float(
            1 / (len(logits) + 1)
        ),
        "the new token is a part of the sum, too": lambda logits: float(
            np.exp(logits.mean()) / np.exp(logits).sum()
        ),
    },
)
def new_token_probability(logits: Array) -> float:
    """The probability of a token that was added to the vocabulary, with the mean of all rows of the
    output layer as its row.

    logits [V] are those of the old tokens.
    """
    return float(torch.softmax(tensor(np.append(logits, logits.mean())), 0)[-1])


@exercise(
    "language-models",
    lambda rng: (log_probs(rng, 5),),
    {
        "it is the exponential of minus the mean logarithm": lambda log_prob: float(
            np.exp(-log_prob).mean()
        ),
        "the logarithms are natural, so the base is e and not 2": lambda log_prob: float(
            2 ** -log_prob.mean()
        ),
    },
)
def perplexity(log_prob: Array) -> float:
    """The perplexity of a text from the natural logarithms of its tokens' probabilities [T]."""
    return float(success_rates.perplexity(-tensor(log_prob).mean()))


@exercise(
    "language-models",
    lambda rng: (rng.normal(size=4).round(2), float(rng.choice([0.5, 1.0, 2.0]))),
    {
        "the logits are divided by the temperature": lambda logits, T: (
            np.exp(logits * T) / np.exp(logits * T).sum()
        ),
    },
)
def at_temperature(logits: Array, temperature: float) -> Array:
    """The probabilities from which a token is drawn: [V].

    logits [V] are the model's. A low temperature sharpens the distribution, a high one flattens it,
    and 1 leaves the softmax as it is.
    """
    return torch.softmax(tensor(logits) / temperature, 0).numpy()


def draw_masked(rng: Generator) -> tuple[Array, Array]:
    lengths = rng.integers(1, 5, 3)
    return log_probs(rng, 3, 4), (np.arange(4) < lengths[:, None]).astype(int)


@exercise(
    "learning-from-data",
    draw_masked,
    {
        "padding is not a token: divide by the number of tokens that count": lambda log_prob, mask: (
            -float((log_prob * mask).mean())
        ),
        "this is the mean over texts of their means; every token counts alike here": (
            lambda log_prob, mask: -float(((log_prob * mask).sum(1) / mask.sum(1)).mean())
        ),
    },
)
def sft_loss(log_prob: Array, mask: Array) -> float:
    """The loss of supervised fine-tuning: the mean of −log p over all tokens of the completions.

    log_prob [B, T] are the logarithms of the tokens' probabilities; mask [B, T] is 1 for the tokens
    that count, and 0 for padding.
    """
    return -float((log_prob * mask).sum() / mask.sum())


@exercise(
    "learning-from-data",
    lambda rng: (
        rng.normal(size=4).round(2),
        rng.normal(size=4).round(2),
        float(rng.choice([2.0, 4.0])),
    ),
    {
        "with a temperature the gradients shrink by T², so the loss is multiplied by T²": (
            lambda s, t, T: _soft(s, t, T) / T**2
        ),
        "forward KL is measured under the teacher": lambda s, t, T: _soft(t, s, T),
    },
)
def distillation_loss(student: Array, teacher: Array, temperature: float) -> float:
    """T² KL(teacher ‖ student) of one position, both softened by the temperature T.

    student [V] and teacher [V] are logits.
    """
    return _soft(student, teacher, temperature)


def _soft(student: Array, teacher: Array, temperature: float) -> float:
    return float(
        soft_label_loss(tensor(student)[None], tensor(teacher)[None], temperature=temperature)
    )


@exercise(
    "learning-from-data",
    lambda rng: (
        rng.integers(0, 9, 5) * int(rng.integers(0, 4) > 0) / 200 + 0.02,
        float(rng.choice([0.5, 2.0])),
    ),
    {
        "scores so close to each other give equal weights: standardise them first": (
            lambda scores, tau: np.exp(scores / tau) / np.exp(scores / tau).sum()
        ),
        "it is the deviation of the group itself, divided by G and not by G − 1": (
            lambda scores, tau: _shares(
                (scores - scores.mean()) / (np.std(scores, ddof=1) or 1.0) / tau
            )
        ),
    },
)
def beam_weights(scores: Array, tau: float) -> Array:
    """The weights of a group's beams: [G], the softmax of the standardised scores over tau.

    scores [G] are standardised with the group's own standard deviation (divided by G); where all
    are equal the weights are too.
    """
    return score_weights(tensor(scores)[None], torch.ones(1, len(scores), dtype=torch.bool), tau)[
        0
    ].numpy()


def _shares(logits: Array) -> Array:
    return np.exp(logits) / np.exp(logits).sum()


@exercise(
    "preferences",
    lambda rng: (rng.normal(size=4).round(2), rng.normal(size=4).round(2)),
    {
        "it is minus the logarithm of the probability that the better one wins": (
            lambda better, worse: float((1 / (1 + np.exp(-(better - worse)))).mean())
        ),
        "the better one's score comes first": lambda better, worse: float(
            np.log1p(np.exp(better - worse)).mean()
        ),
    },
)
def reward_model_loss(better: Array, worse: Array) -> float:
    """The pairwise loss of a reward model, the mean over pairs: −log σ(better − worse). Both [B]
    are scores."""
    return float(preference_losses.bradley_terry_loss(tensor(better), tensor(worse)))


def draw_log_probs(rng: Generator) -> tuple[float, float, float, float]:
    a, b, c, d = (float(x) for x in -rng.uniform(1, 6, 4).round(2))
    return a, b, c, d


@exercise(
    "preferences",
    draw_log_probs,
    {
        "what counts is how much more likely than under the reference": lambda w, l, rw, rl: float(
            np.log1p(np.exp(-0.1 * (w - l)))
        ),
        "β multiplies the difference": lambda w, l, rw, rl: float(
            np.log1p(np.exp(-((w - rw) - (l - rl))))
        ),
    },
)
def dpo_loss(
    chosen: float, rejected: float, reference_chosen: float, reference_rejected: float
) -> float:
    """DPO's loss of one pair with β = 0.1, from the log-probabilities of whole completions under
    the policy and the reference."""
    return float(
        preference_losses.dpo_loss(
            *(tensor([x]) for x in (chosen, rejected, reference_chosen, reference_rejected)),
            beta=0.1,
        )
    )


@exercise(
    "preferences",
    lambda rng: (log_probs(rng, 4), log_probs(rng, 4), float(rng.integers(-2, 3))),
    {
        "the score of the whole text is paid once, with the last token": lambda lp, ref, score: (
            score - 0.1 * (lp - ref)
        ),
        "the penalty is for being likelier than under the reference": lambda lp, ref, score: (
            _kl_rewards(ref, lp, score)
        ),
    },
)
def rlhf_rewards(log_prob: Array, reference_log_prob: Array, score: float) -> Array:
    """The reward of each token in RLHF: [T].

    A KL penalty with β = 0.1 at each token (k1, the difference of the two log-probabilities), and
    the reward model's score with the last one. log_prob [T] are the tokens' under the policy,
    reference_log_prob [T] under the reference.
    """
    return _kl_rewards(log_prob, reference_log_prob, score)


def _kl_rewards(log_prob: Array, reference: Array, score: float) -> Array:
    rewards = -0.1 * divergences.k1(tensor(log_prob), tensor(reference)).numpy()
    rewards[-1] += score
    return rewards


@exercise(
    "groups",
    lambda rng: (rng.integers(0, 2, 4).astype(float),),
    {
        "divide by the standard deviation too": lambda R: R - R.mean(),
        "it is the sample's standard deviation, with G − 1": lambda R: (
            (R - R.mean()) / (R.std() + 1e-4)
        ),
    },
)
def group_advantages(R: Array) -> Array:
    """GRPO's advantages of one group: [G]. (R − mean) / (std + 1e-4), with the sample's standard
    deviation.

    That one divides by G − 1. R [G] are the group's returns.
    """
    return advantages.group_advantage(tensor(R), len(R)).numpy()


@exercise(
    "groups",
    lambda rng: (rng.integers(0, 6, 4).astype(float),),
    {
        "an episode's own return is not part of its baseline": lambda R: R - R.mean(),
    },
)
def leave_one_out(R: Array) -> Array:
    """RLOO's advantages of one group: [G]. Each return less the mean of the others."""
    return advantages.leave_one_out_advantage(tensor(R), len(R)).numpy()


@exercise(
    "groups",
    lambda rng: (log_probs(rng, 4), log_probs(rng, 4)),
    {
        "k3 is e^d − d − 1 with d = log π_ref − log π; this is the other direction": (
            lambda lp, ref: np.exp(lp - ref) - (lp - ref) - 1
        ),
        "without the −d the mean is not the KL divergence": lambda lp, ref: np.exp(ref - lp) - 1,
        "this is k1; it can be negative": lambda lp, ref: lp - ref,
    },
)
def k3(log_prob: Array, reference_log_prob: Array) -> Array:
    """Schulman's estimate k3 of KL(π ‖ π_ref) at each token: [T]. The tokens were drawn from π; no
    estimate is negative.

    With d = log π_ref − log π, the estimate k1 is −d. k3 adds e^d − 1, whose mean is 0 and which
    varies against it.
    """
    return divergences.k3(tensor(log_prob), tensor(reference_log_prob)).numpy()


@exercise(
    "groups",
    draw_masked,
    {
        "this is DAPO's average: every token counts alike": lambda loss, mask: float(
            (loss * mask).sum() / mask.sum()
        ),
        "a text's mean is taken over its own tokens": lambda loss, mask: float(
            (loss * mask).mean(axis=1).mean()
        ),
    },
)
def per_text(loss: Array, mask: Array) -> float:
    """GRPO's first average: the mean over texts of the mean over their tokens. loss [B, T], mask
    [B, T] of 0 and 1."""
    return float(((loss * mask).sum(axis=1) / mask.sum(axis=1)).mean())


@exercise(
    "groups",
    lambda rng: (
        int(rng.integers(0, (samples := int(rng.integers(4, 11))) + 1)),
        samples,
        int(rng.choice([1, 2, 4])),
    ),
    {
        "draws are without putting back: it is 1 − C(n−c, k) / C(n, k)": lambda c, n, k: (
            1 - (1 - c / n) ** k
        ),
        "this is the probability that the first one is right": lambda c, n, k: c / n,
    },
)
def pass_at_k(right: int, samples: int, k: int) -> float:
    """The unbiased estimate of pass@k: the probability that at least one of k answers is right, if
    `right` of so many samples were."""
    return float(success_rates.pass_at_k(torch.tensor([right]), samples, k))
