"""Success rates of a model with several attempts per prompt, estimated from n samples of which some
are correct.

pass@k asks whether one of k samples is right, maj@k whether the most frequent answer of k samples
is, and perplexity how many tokens the model hesitates between where the right one is given.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pass_at_k(right: Tensor, samples: int, k: int) -> Tensor:
    """1 - C(n - c, k) / C(n, k): the probability that at least one of k samples is correct.

    It is the mean over all choices of k of the n samples, and so unbiased. The obvious estimate
    1 - (1 - c/n)^k is too low for k > 1: that curve is concave in c/n, and c/n is noisy.

    Args:
        right: int [P], c, how many samples of each prompt are right.
        samples: n, how many there are of each.
        k: from 1 to n.

    Returns:
        float64 [P], in [0, 1].

    Source: Chen et al. 2021 (Codex), arXiv:2107.03374, eq. 1. Here C(n - c, k) / C(n, k) is the
    product of (n - c - j) / (n - j) over j < k.
    """
    _check(k, samples)
    if bool(((right < 0) | (right > samples)).any()):
        raise ValueError(f"right must be from 0 to {samples}, the samples of each prompt")
    j = torch.arange(k, dtype=torch.float64)
    wrong = (samples - right.double()[:, None] - j).clamp(min=0.0)  # [P, k]
    return 1.0 - (wrong / (samples - j)).prod(-1)


def majority_at_k(answer: Tensor, right: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """How often the most frequent of k sampled answers is correct, and how often it is tied.

    The n samples are cut into ⌊n / k⌋ blocks that do not overlap, each of which votes. Answers that
    are tied share the vote: the right one of two counts ½, as if a coin were thrown. Where nobody
    votes, nothing is right.

    Args:
        answer: int [P, n], equal numbers from 0 to n - 1 for equal answers of a prompt; below 0 for
            samples that give none.
        right: bool [P, n].
        k: from 1 to n.

    Returns:
        The share of right votes and the share of ties, each float64 [P], in [0, 1].

    Source: Wang et al. 2022 (self-consistency), arXiv:2203.11171, section 2. It leaves ties open.
    """
    prompts, samples = answer.shape
    _check(k, samples)
    if right.shape != answer.shape:
        raise ValueError(f"right must be {list(answer.shape)}, got {list(right.shape)}")
    blocks = samples // k
    answer, right = (x[:, : blocks * k].reshape(prompts, blocks, k) for x in (answer, right))
    votes = answer >= 0
    number = answer.clamp(min=0)
    tally = torch.zeros(prompts, blocks, samples, dtype=torch.int64)
    count = tally.scatter_add(-1, number, votes.long()).gather(-1, number)  # [P, blocks, k]
    most = (count * votes).amax(-1, keepdim=True)
    winning = votes & (count == most)  # as many samples of each winning answer
    voted = winning.sum(-1)
    share = (winning & right).sum(-1).double() / voted.clamp(min=1)
    tied = voted > most[..., 0]
    return share.mean(-1), tied.double().mean(-1)


def perplexity(cross_entropy: Tensor, *, base: float = math.e) -> Tensor:
    """base^H: the number of equally likely tokens that would give the same cross-entropy.

    The base is that of the logarithm in H: e for nats, 2 for bits. The result does not depend on
    it; 2^H of an H in nats is wrong.

    Args:
        cross_entropy: [...], H, the mean of -log p of each token that was to be written.
        base: of its logarithm, above 1.

    Returns:
        [...], at least 1.

    Source: Jelinek, Mercer, Bahl & Baker 1977, "Perplexity: a measure of the difficulty of speech
    recognition tasks".
    """
    if base <= 1.0:
        raise ValueError(f"base must be above 1, got {base}")
    return torch.exp(cross_entropy * math.log(base))


def _check(k: int, samples: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k must be from 1 to {samples}, the samples of each prompt; got {k}")
