"""Exercises on images: filters, frames, clipped rewards, and what a replay buffer stores."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rlbook.book.exercises.exercise import exercise
from rlbook.book.exercises.part_one import Array, tensor
from rlbook.functional import convolution
from rlbook.functional.value_losses import q_target


def draw_side_and_filter(rng: Generator) -> tuple[int, int, int, int]:
    kernel = int(rng.integers(2, 9))
    stride, padding = int(rng.integers(1, 5)), int(rng.integers(0, 3))
    return int(rng.integers(kernel, 90)), kernel, stride, padding


@exercise(
    "pixels",
    draw_side_and_filter,
    {
        "the first place of the filter counts, too: one more": lambda n, k, s, p: (
            (n + 2 * p - k) // s
        ),
        "pixels are added at both ends": lambda n, k, s, p: (n + p - k) // s + 1,
        "what is left over at the end is not a place: round down": lambda n, k, s, p: (
            -((k - n - 2 * p) // s) + 1
        ),
        "a filter that begins at a pixel needs k - 1 more: subtract its size": (
            lambda n, k, s, p: (n + 2 * p) // s + 1
        ),
    },
)
def filter_places(n: int, kernel: int, stride: int, padding: int) -> int:
    """How many pixels a side has after a convolution.

    n is the side's number of pixels, kernel that of the filter, stride the distance of two places
    of the filter, and padding the number of zeros that are added at either end.
    """
    return convolution.output_size(n, kernel, stride, padding)


def weighted_patches(x: Array, w: Array, b: float, stride: int) -> Array:
    """The weighted sums at every place, without the ReLU."""
    images = tensor(x)[None], tensor(w)[None, None]
    return convolution.convolve(*images, tensor([b]), stride=stride)[0].numpy()


@exercise(
    "pixels",
    lambda rng: (
        rng.integers(0, 4, (5, 4)).astype(float),
        rng.integers(-2, 3, (2, 2)).astype(float),
        float(rng.integers(-2, 3)),
        int(rng.integers(1, 3)),
    ),
    {
        "after the bias comes the ReLU": weighted_patches,
        "the filter is not turned round: its upper left number meets the upper left pixel": (
            lambda x, w, b, s: np.maximum(weighted_patches(x, np.flip(w).copy(), b, s), 0.0)
        ),
        "the bias comes before the ReLU": lambda x, w, b, s: (
            np.maximum(weighted_patches(x, w, 0.0, s), 0.0) + b
        ),
        "the filter moves on by `stride` pixels": lambda x, w, b, s: np.maximum(
            weighted_patches(x, w, b, 1), 0.0
        ),
    },
)
def feature_map(x: Array, w: Array, b: float, stride: int) -> Array:
    """What one filter with a bias and a ReLU makes of an image of one channel: [H', W'].

    x [H, W] is the image, w [2, 2] the filter, b its bias. Nothing is added around the image.
    """
    return np.maximum(weighted_patches(x, w, b, stride), 0.0)


@exercise(
    "pixels",
    lambda rng: (
        rng.integers(0, 256, (4, 3)).astype(float),
        rng.integers(-3, 4, 4).astype(float),
    ),
    {
        "the maximum of the last two frames is shown, not of all": lambda frames, rewards: (
            np.append(frames.max(axis=0), rewards.sum())
        ),
        "a sprite may be missing in the last frame alone": lambda frames, rewards: np.append(
            frames[-1], rewards.sum()
        ),
        "all four rewards are paid": lambda frames, rewards: np.append(
            frames[-2:].max(axis=0), rewards[-1]
        ),
        "rewards are added, not averaged": lambda frames, rewards: np.append(
            frames[-2:].max(axis=0), rewards.mean()
        ),
    },
)
def max_and_skip(frames: Array, rewards: Array) -> Array:
    """What an agent gets that takes one action for four frames: [P + 1].

    frames [4, P] are the four frames of P pixels, and rewards [4] what each of them paid. The
    answer is the frame that is shown, followed by the reward.
    """
    return np.append(frames[-2:].max(axis=0), rewards.sum())


def discounted_first(rewards: Array) -> float:
    """The return from the first step on, with discount 0.9."""
    return float(rewards @ 0.9 ** np.arange(len(rewards)))


@exercise(
    "pixels",
    lambda rng: (rng.choice([-20.0, -1.0, -0.5, 0.0, 0.5, 1.0, 7.0], int(rng.integers(2, 7))),),
    {
        "each reward is clipped, and then they are added up": lambda rewards: float(
            np.clip(discounted_first(rewards), -1, 1)
        ),
        "the reported return is not clipped; the one that is maximised is": discounted_first,
        "clipped means cut to -1 and 1: rewards in between stay as they are, and 0 stays 0": (
            lambda rewards: discounted_first(np.where(rewards < 0, -1.0, 1.0))
        ),
        "what comes later is discounted": lambda rewards: float(np.clip(rewards, -1, 1).sum()),
    },
)
def clipped_return(rewards: Array) -> float:
    """The return that an agent with clipped rewards maximises, with discount 0.9.

    rewards [T] are what the environment paid; each is cut to lie between -1 and 1.
    """
    return discounted_first(np.clip(rewards, -1, 1))


@exercise(
    "pixels",
    lambda rng: (rng.integers(1, 400, int(rng.integers(1, 6))),),
    {
        "an episode of T steps shows T + 1 frames, its last one among them": lambda lengths: (
            84 * 84 * lengths.sum()
        ),
        "each frame is stored once, whatever the stack": lambda lengths: (
            2 * 4 * 84 * 84 * lengths.sum()
        ),
        "the stack of the first observation repeats one frame, which is stored once": (
            lambda lengths: 84 * 84 * (lengths + 4).sum()
        ),
        "every episode has a first frame of its own": lambda lengths: 84 * 84 * (lengths.sum() + 1),
    },
)
def frame_bytes(lengths: Array) -> float:
    """Bytes of all frames of these episodes, in a buffer that stores each frame once.

    lengths [E] are the numbers of steps of the episodes. A frame has 84 x 84 pixels of one byte,
    and an observation is a stack of four.
    """
    return float(84 * 84 * (lengths + 1).sum())


def life_batch(rng: Generator) -> tuple[Array, Array, Array, Array, Array]:
    over = rng.random(6) < 0.2
    return (
        rng.integers(-8, 9, 6).astype(float),
        rng.normal(size=(6, 3)).round(2),
        over,
        (rng.random(6) < 0.4) & ~over,
        (rng.random(6) < 0.3) & ~over,
    )


def targets(reward: Array, next_q: Array, ended: Array) -> Array:
    clipped = tensor(np.clip(reward, -1, 1))
    return q_target(clipped, tensor(ended).bool(), tensor(next_q), 0.99).numpy()


@exercise(
    "pixels",
    life_batch,
    {
        "after a lost life nothing follows, either": lambda r, q, over, lost, cut: targets(
            r, q, over
        ),
        "a time limit is not an ending: the estimate goes on beyond it": (
            lambda r, q, over, lost, cut: targets(r, q, over | lost | cut)
        ),
        "the game's end is an ending, too": lambda r, q, over, lost, cut: targets(r, q, lost),
        "the reward is clipped": lambda r, q, over, lost, cut: (
            r + 0.99 * ~(over | lost) * q.max(axis=1)
        ),
    },
)
def life_targets(reward: Array, next_q: Array, over: Array, lost: Array, cut: Array) -> Array:
    """DQN's targets with clipped rewards and episodic life: [B], with discount 0.99.

    reward [B] is what the game paid, next_q [B, A] the target network's values of the next
    observation. over [B] is true where the game was over, lost [B] where a life was lost and the
    game went on, cut [B] where a time limit ended it.
    """
    return targets(reward, next_q, over | lost)
