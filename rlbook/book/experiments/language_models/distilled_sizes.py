"""A teacher's two-digit sums, learned by a language model a third of its size: from its most likely
answers, and from its probabilities.

    found = run(seeds=3)
    found.accuracy["soft labels"]                [R], held-out exact match of the greedy student

The teacher is the shipped model after rejection sampling. All students begin with new weights, read
what the teacher writes, as many tokens of it, and take as many steps. They differ in their labels
alone: the tokens that it wrote, or its probabilities of all tokens.

Source: Hinton et al. 2015, arXiv:1503.02531, sections 3 and 4: soft labels teach more with each
case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.runs.run import Run

SIZES = {
    "hidden_size": 40,
    "intermediate_size": 120,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
LABELS: dict[str, dict[str, Any]] = {
    "hard labels": {"soft_coef": 0.0, "hard_coef": 1.0},
    "soft labels": {"soft_coef": 1.0, "hard_coef": 0.0},
}
STUDENT: dict[str, Any] = {
    "num_envs": 256,
    "student_share": 0.0,
    "batch_size": 64,
    "epochs": 2,
    "learning_rate": 3e-3,
    "anneal_learning_rate": True,
}
HELD_OUT = 512


@dataclass(frozen=True)
class DistilledSizes:
    """The teacher, and R students of each kind."""

    parameters: tuple[int, int]  # of the teacher and of a student
    teacher: float  # held-out exact match, in [0, 1]
    accuracy: dict[str, NDArray[np.float64]]  # by the labels, [R]


def run(
    seeds: int = 3, first: int = 0, steps: int = 150_000, teacher_steps: int = 70_000
) -> DistilledSizes:
    """Trains the teacher and its students.

    Args:
        seeds: R.
        first: the lowest seed.
        steps: tokens that each student learns from.
        teacher_steps: tokens that the teacher has practised with.
    """
    teacher = rlbook.train(
        "rejection_sampling", "Addition-v0", steps=teacher_steps, seed=0, eval_every=0
    )
    options: dict[str, Any] = {
        "steps": steps,
        "model": SIZES,
        "teacher": teacher,
        "eval_every": 0,
    } | STUDENT
    accuracy, size = {}, 0
    for labels, weights in LABELS.items():
        students = [
            rlbook.train("distillation", "Addition-v0", seed=seed, **options, **weights)
            for seed in range(first, first + seeds)
        ]
        accuracy[labels] = np.array([_held_out_share(student) for student in students])
        size = _parameters(students[0])
    return DistilledSizes((_parameters(teacher), size), _held_out_share(teacher), accuracy)


def _held_out_share(run: Run) -> float:
    return rlbook.evaluate(run, episodes=HELD_OUT).mean


def _parameters(run: Run) -> int:
    return sum(parameter.numel() for parameter in run.agent.policy.parameters())  # type: ignore[attr-defined]


def measurements(result: DistilledSizes) -> dict[str, float]:
    """The shares of correct sums: the teacher's, the students' means, and each student's."""
    means = {f"{labels}, mean": float(each.mean()) for labels, each in result.accuracy.items()}
    single = {
        f"{labels}, run {number}": float(one)
        for labels, each in result.accuracy.items()
        for number, one in enumerate(each, start=1)
    }
    size = result.parameters[1] / result.parameters[0]
    return (
        {"parameters of a student / of the teacher": size, "teacher": result.teacher}
        | means
        | single
    )


def draw(result: DistilledSizes) -> Figure:
    """A dot for each student, and a line for the teacher."""
    from rlbook.book.figures.axes import curve_colour, labelled_figure, legend

    figure, axes = labelled_figure(5.0, 3.2, "labels", "held-out sums right")
    for place, each in enumerate(result.accuracy.values()):
        axes.plot([place] * len(each), each, "o", color=curve_colour(place), alpha=0.7)
        axes.plot(
            place, each.mean(), "_", color=curve_colour(place), markersize=26, markeredgewidth=2.5
        )
    axes.axhline(result.teacher, color="0.5", linestyle="--", linewidth=1.2, label="teacher")
    axes.set(
        xticks=range(len(result.accuracy)),
        xticklabels=list(result.accuracy),
        xlim=(-0.6, len(result.accuracy) - 0.4),
    )
    legend(axes, "lower right")
    return figure
