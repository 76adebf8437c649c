"""The assignment grpo_sums: its rubric and hidden cases."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rlbook.book.assignments.assignment import (
    Assignment,
    Case,
    RubricLine,
    has_properties,
    matches_solution,
    reaches,
)
from rlbook.book.assignments.dqn_catch import numbers


def texts(rng: Generator) -> list[Case]:
    """Tokens with an end at every position, with two ends, or with none."""
    ends = [[10, 3, 4], [1, 10, 5], [1, 2, 10], [10, 10, 7], [4, 10, 10], [1, 2, 3]]
    return [{"tokens": rng.permutation(np.array(ends)).tolist()} for _ in range(2)]


def token_draws(rng: Generator) -> list[Case]:
    """Logits, and the tokens that were drawn."""
    return [
        {"logits": numbers(rng, 4, 3, 11), "tokens": rng.integers(11, size=(4, 3)).tolist()}
        for _ in range(2)
    ]


def groups(rng: Generator) -> list[Case]:
    """Rewards of groups with different rewards, of other sizes than the number of prompts, and so
    large that adding 1e-4 to the deviation makes no difference."""
    found = []
    for prompts, size in ((3, 5), (5, 3), (2, 8)):
        reward = rng.integers(0, 2, (prompts, size)).astype(float)
        reward[:, 0], reward[:, 1] = 0.0, 1.0
        found.append({"reward": (1_000 * reward).tolist()})
    return found


def draw_unanimous_groups(rng: Generator) -> list[Case]:
    """Groups in which every text earns the same, beside one that differs."""
    return [{"reward": [[1.0] * 4, [0.0] * 4, rng.permutation([1.0, 0.0, 0.0, 1.0]).tolist()]}]


def losses(rng: Generator) -> list[Case]:
    """Texts of one, two and three tokens."""
    found = []
    for clip in (0.2, 0.4):
        lengths = np.array([1, 3, 2, 3, 2])
        mask = np.arange(3) < lengths[:, None]
        log_prob = rng.normal(-1, 0.5, (5, 3)).round(2)
        found.append(
            {
                "log_prob": log_prob.tolist(),
                "old_log_prob": rng.normal(-1, 0.5, (5, 3)).round(2).tolist(),
                "advantage": [1.5, -1.0, *numbers(rng, 3)],
                "mask": mask.tolist(),
                "clip": clip,
            }
        )
    return found


def additions(rng: Generator) -> list[Case]:
    """Sums to which a hidden number is added."""
    return [
        {
            "highest": 6,
            "offset": int(offset),
            "iterations": 120,
            "seed": int(rng.integers(1_000, 10_000)),
        }
        for offset in rng.integers(0, 5, 3)
    ]


def _accuracy(case: Case, found: np.ndarray) -> float:
    pairs = [
        (one, other) for one in range(case["highest"] + 1) for other in range(case["highest"] + 1)
    ]
    right = 0
    for (one, other), text in zip(pairs, found.astype(int).tolist(), strict=True):
        digits = [*map(int, str(one + other + case["offset"]))]
        right += text[: len(digits) + 1] == [*digits, 10]
    return right / len(pairs)


ASSIGNMENT = Assignment(
    name="grpo_sums",
    title="Group-relative policy optimisation on sums",
    week=12,
    chapters=("language-models", "groups"),
    hours=5,
    rubric=(
        RubricLine(
            "mask",
            2,
            "completion_mask marks the tokens up to the first END, that one included",
            "grpo_mask",
            texts,
            matches_solution("a text's last token is its first END, and without one all count"),
        ),
        RubricLine(
            "log-probabilities",
            1,
            "token_log_probs are those of the tokens that were written",
            "grpo_log_probs",
            token_draws,
            matches_solution("the logits at [:, t] are of token t itself, softmax over the last"),
        ),
        RubricLine(
            "groups",
            3,
            "group_advantages compares the texts of the same prompt",
            "grpo_advantages",
            groups,
            matches_solution("mean and deviation are over the texts of a prompt, the axis G"),
        ),
        RubricLine(
            "identical rewards",
            1,
            "a group in which every reward is the same has advantages of 0",
            "grpo_advantages",
            draw_unanimous_groups,
            matches_solution("1e-4 is added to the deviation, so that nothing is divided by 0"),
        ),
        RubricLine(
            "loss",
            3,
            "grpo_loss clips each token's ratio and averages within a text, then over the texts",
            "grpo_loss",
            losses,
            matches_solution("ρ = exp(log_prob − old_log_prob); each text counts alike"),
        ),
        RubricLine(
            "padding",
            2,
            "what stands after a text's end changes nothing, however large it is",
            "grpo_padding",
            losses,
            has_properties((True, "mask before the exponential: infinity times 0 is not 0")),
        ),
        RubricLine(
            "gradient",
            2,
            "the gradient flows through log_prob alone",
            "grpo_gradient",
            losses,
            has_properties(
                (True, "no gradient reaches log_prob"),
                (False, "the old log-probabilities are constants, but a gradient reaches them"),
                (False, "the advantages are constants, but a gradient reaches them"),
            ),
        ),
        RubricLine(
            "learns",
            6,
            "after 120 iterations nine of ten most likely texts are right, in each of three runs "
            "(two points each)",
            "grpo_train",
            additions,
            reaches(0.9, 1, "a share of right answers of", _accuracy),
            trains=True,
        ),
    ),
)
