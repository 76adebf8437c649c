"""Exercises on transformers and on how their tokens are drawn. The right answers are the library's
own functions, wherever it has one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.llm.generation.sampling import Sampling, penalize, top_p_filter
from rlbook.llm.models.architectures import attention, encoder_decoder
from rlbook.llm.models.architectures.norms import RMSNorm


def vectors(rng: Generator, *shape: int) -> Array:
    return rng.normal(size=shape).round(2)


def _softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum()


@exercise(
    "transformer",
    lambda rng: (vectors(rng, 4), vectors(rng, 3, 4), vectors(rng, 3, 2)),
    {
        "divide the scores by √D before the softmax": lambda q, K, V: _softmax(K @ q) @ V,
        "the root of D, and not D itself": lambda q, K, V: _softmax(K @ q / len(q)) @ V,
        "what is averaged are the values; the scores only weigh them": lambda q, K, V: _softmax(
            K @ q / len(q) ** 0.5
        ),
    },
)
def attend(q: Array, K: Array, V: Array) -> Array:
    """What one query takes up: the mean of the values, weighted by softmax(K q / √D): [d].

    q [D] is the query, K [m, D] are the keys, V [m, d] the values.
    """
    return attention.attention(tensor(q)[None], tensor(K), tensor(V))[0].numpy()


@exercise(
    "transformer",
    lambda rng: (vectors(rng, 4, 2),),
    {
        "a token looks at itself and the ones before it": lambda X: np.stack(
            [_softmax(X @ x / 2**0.5) @ X for x in X]
        ),
        "the mask comes before the softmax, so that each row of weights sums to 1": (
            lambda X: np.stack(
                [(_softmax(X @ x / 2**0.5) * (np.arange(len(X)) <= t)) @ X for t, x in enumerate(X)]
            )
        ),
    },
)
def causal_attention(X: Array) -> Array:
    """Causal self-attention where query, key and value of a token are its own numbers: [n, d].

    X [n, d] are n tokens of d numbers; the scores are divided by √d.
    """
    x = tensor(X)
    return attention.attention(x, x, x, attention.causal_mask(len(X))).numpy()


def _rotate(x: Array, position: int, sign: float = 1.0) -> Array:
    half = len(x) // 2
    angle = sign * position * 10_000.0 ** (-np.arange(half) / half)
    left, right = x[:half], x[half:]
    return np.concatenate(
        [
            left * np.cos(angle) - right * np.sin(angle),
            right * np.cos(angle) + left * np.sin(angle),
        ]
    )


@exercise(
    "transformer",
    lambda rng: (vectors(rng, 4), int(rng.integers(1, 9))),
    {
        "component i turns with component i + D/2, and not with its neighbour": (
            lambda x, position: _rotate(x[[0, 2, 1, 3]], position)[[0, 2, 1, 3]]
        ),
        "this turns the other way round": lambda x, position: _rotate(x, position, -1.0),
    },
)
def rotate_by_position(x: Array, position: int) -> Array:
    """A query or key at its position, by rotary positions with θ = 10 000: [D].

    Components i and i + D/2 of x [D] turn, as a point (x_i, x_{i + D/2}) in the plane, by the angle
    position · θ^(-2i/D), from the first axis to the second.
    """
    turned = attention.apply_rope(tensor(x)[None, None, None], torch.tensor([position]), 10_000.0)
    return turned[0, 0, 0].numpy()


@exercise(
    "transformer",
    lambda rng: (vectors(rng, 4), vectors(rng, 4)),
    {
        "RMSNorm subtracts no mean": lambda x, w: (x - x.mean()) / (x.var() + 1e-6) ** 0.5 * w,
        "the mean of the squares, and not their sum": lambda x, w: (
            x / ((x**2).sum() + 1e-6) ** 0.5 * w
        ),
    },
)
def rms_norm(x: Array, w: Array) -> Array:
    """RMSNorm of a token's numbers, with ε = 1e-6: x / √(mean of x² + ε) · w. x [d], w [d]."""
    norm = RMSNorm(len(x), 1e-6).double()
    norm.weight.data = tensor(w)
    return norm(tensor(x)).detach().numpy()


@exercise(
    "transformer",
    lambda rng: (
        int(rng.integers(2, 40)),
        int(rng.choice([16, 64])),
        int(rng.choice([64, 128])),
    ),
    {
        "attention multiplies twice: queries with keys, and weights with values": (
            lambda n, d, f: n * (4 * d * d + 3 * d * f) + n * n * d
        ),
        "each of the n tokens goes through the matrices": lambda n, d, f: (
            4 * d * d + 3 * d * f + 2 * n * n * d
        ),
        "the feed-forward part has three matrices: gate, up and down": lambda n, d, f: (
            n * (4 * d * d + 2 * d * f) + 2 * n * n * d
        ),
    },
)
def layer_products(n: int, d: int, f: int) -> int:
    """How many multiplications a layer of Llama takes for n tokens of d numbers, with f units in
    its feed-forward part.

    Its matrices are those of queries, keys, values and output [d, d], and gate, up and down of d
    and f. Attention counts all pairs of tokens, those that the mask hides included.
    """
    return n * (4 * d * d + 3 * d * f) + 2 * n * n * d


@exercise(
    "transformer",
    lambda rng: (rng.integers(3, 9, 4), int(rng.integers(3))),
    {
        "the last token is asked for, and read by nobody": lambda target, start: np.roll(target, 1),
        "it would read the token that it is asked for": lambda target, start: target,
    },
)
def decoder_input(target: Array, start: int) -> Array:
    """What a decoder reads in teacher forcing while it is asked for target [n]: the start token,
    then each token one place later: [n]."""
    return encoder_decoder.shift_right(torch.as_tensor(target)[None], start)[0].numpy()


def draw_next_token(rng: Generator) -> Array:
    return _softmax(rng.normal(size=5) * 2)


def _largest(p: Array, keep: int) -> Array:
    kept = np.where(p >= np.sort(p)[::-1][keep - 1], p, 0.0)
    return kept / kept.sum()


def _size(p: Array, mass: float) -> int:
    return int((np.sort(p)[::-1].cumsum() < mass).sum()) + 1


@exercise(
    "sampling",
    lambda rng: (draw_next_token(rng), float(rng.choice([0.5, 0.8, 0.9]))),
    {
        "the token with which the sum reaches p stays": lambda p, mass: _largest(
            p, max(_size(p, mass) - 1, 1)
        ),
        "what is left is divided by its sum": lambda p, mass: (
            _largest(p, _size(p, mass)) * (np.sort(p)[::-1][: _size(p, mass)].sum())
        ),
    },
)
def top_p(p: Array, mass: float) -> Array:
    """The probabilities that a token is drawn from with top-p: [V].

    The smallest set of the most likely tokens is kept whose probabilities p [V] sum to `mass` or
    more; the rest gets 0.
    """
    return top_p_filter(tensor(p).log()[None], mass)[0].softmax(-1).numpy()


@exercise(
    "sampling",
    lambda rng: (draw_next_token(rng), float(rng.choice([0.05, 0.1, 0.3]))),
    {
        "the bound is a share of the largest probability": lambda p, share: (
            np.where((p >= share) | (p == p.max()), p, 0.0)
            / np.where((p >= share) | (p == p.max()), p, 0.0).sum()
        ),
        "what is left is divided by its sum": lambda p, share: np.where(
            p >= share * p.max(), p, 0.0
        ),
    },
)
def min_p(p: Array, share: float) -> Array:
    """The probabilities that a token is drawn from with min-p: [V].

    Tokens are kept whose probability in p [V] is at least `share` of the largest one.
    """
    return Sampling(min_p=share).scores(tensor(p).log()[None])[0].softmax(-1).numpy()


@exercise(
    "sampling",
    lambda rng: (vectors(rng, 5) * 2, rng.integers(0, 2, 5), float(rng.choice([1.2, 1.5]))),
    {
        "a negative logit is multiplied: divided, it would become larger": (
            lambda logits, seen, penalty: np.where(seen == 1, logits / penalty, logits)
        ),
        "only tokens that stand in the text are changed": lambda logits, seen, penalty: np.where(
            logits < 0, logits * penalty, logits / penalty
        ),
    },
)
def repetition_penalty(logits: Array, seen: Array, penalty: float) -> Array:
    """The logits after the repetition penalty: [V].

    seen [V] is 1 for the tokens that stand in the text. Their logits are divided by the penalty
    where they are positive, and multiplied by it where they are negative.
    """
    return np.where(seen == 1, penalize(tensor(logits), penalty).numpy(), logits)


def draw_two_beams(rng: Generator) -> tuple[Array, Array]:
    log_prob = np.log(np.stack([draw_next_token(rng) for _ in range(2)]))
    return -rng.uniform(0.1, 1.0, 2).round(2), log_prob


@exercise(
    "sampling",
    draw_two_beams,
    {
        "the best of all candidates, and not the best of each beam": lambda score, log_prob: (
            np.sort(score + log_prob.max(axis=1))[::-1]
        ),
        "a text's log-probability is the sum over its tokens": lambda score, log_prob: np.sort(
            log_prob.flatten()
        )[::-1][:2],
    },
)
def best_beams(score: Array, log_prob: Array) -> Array:
    """The log-probabilities of the texts that a beam search goes on with, the best one first: [K].

    score [K] are those of the texts so far, log_prob [K, V] those of each next token after each of
    them. No token ends a text here.
    """
    total = tensor(score)[:, None] + tensor(log_prob)
    return total.flatten().topk(len(score)).values.numpy()
