"""A teacher with two peaks, and what a student with a single peak learns under each divergence.

    found = run()
    found.students["reverse"]                    mean and deviation

The actions are the points of a grid. The teacher is the even mixture of two normal distributions
with deviation ½, around -2 and 2. The student is one normal distribution, and its mean and
deviation are what is learned, from 1 and ½ on. Forward KL is least where mean and variance are the
teacher's, 0 and 2² + ½²; reverse KL is least near one of the peaks, and there it is ln 2. The
Jensen-Shannon divergence is bounded, and has minima at both peaks and across them: where the
student begins decides.

Source: Bishop 2006, Pattern Recognition and Machine Learning, section 10.1.2 and figure 10.3.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlbook.functional.post_training.distillation_losses import DIVERGENCES, divergence

PEAK, DEVIATION = 2.0, 0.5
GRID = torch.linspace(-20.0, 20.0, 1601, dtype=torch.float64)
START = 1.0, 0.5
"""The initial mean and deviation of every student."""


class Student(NamedTuple):
    """The result of minimising one divergence."""

    mean: float
    deviation: float
    divergence: float  # in nats


class ModeCovering(NamedTuple):
    """The teacher's probabilities on the grid, and the students by divergence."""

    teacher: Tensor  # [A]
    students: dict[str, Student]


def normal_logits(mean: Tensor | float, deviation: Tensor | float) -> Tensor:
    """log of a normal density at the points of the grid, up to a constant: [A]."""
    return -0.5 * ((GRID - mean) / deviation).square()


def teacher_logits() -> Tensor:
    """The two peaks: [A]."""
    return torch.logaddexp(normal_logits(-PEAK, DEVIATION), normal_logits(PEAK, DEVIATION))


def fit_student(kind: str) -> Student:
    """The student with the smallest divergence of this kind, found from `START`."""
    mean, log_deviation = (
        torch.tensor(value, dtype=torch.float64) for value in (START[0], START[1])
    )
    log_deviation = log_deviation.log()
    learned, teacher = [mean.requires_grad_(), log_deviation.requires_grad_()], teacher_logits()
    optimizer = torch.optim.LBFGS(
        learned, max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = divergence(normal_logits(mean, log_deviation.exp()), teacher, kind)
        found.backward()
        return found

    optimizer.step(loss)  # type: ignore[arg-type]
    return Student(mean.item(), log_deviation.exp().item(), loss().item())


def run() -> ModeCovering:
    """Fits a student by each divergence."""
    return ModeCovering(
        teacher_logits().softmax(-1), {kind: fit_student(kind) for kind in DIVERGENCES}
    )


def measurements(result: ModeCovering) -> dict[str, float]:
    """Mean and deviation of each student, and its remaining divergence."""
    return {
        f"{kind}, {name}": round(value, 6)
        for kind, student in result.students.items()
        for name, value in student._asdict().items()
    }


def draw(result: ModeCovering) -> Figure:
    """The densities."""
    from rlbook.book.figures.axes import curve_colour, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(6.4, 3.6)
    axes, step = (
        label_axes(figure.subplots(), "action", "probability density"),
        float(GRID[1] - GRID[0]),
    )
    axes.fill_between(
        GRID.numpy(), result.teacher.numpy() / step, color="0.8", linewidth=0, label="teacher"
    )
    for place, (kind, student) in enumerate(result.students.items()):
        density = normal_logits(student.mean, student.deviation).softmax(-1) / step
        style = "--" if kind == "jsd" else "-"  # it lies on the reverse KL's curve
        axes.plot(
            GRID.numpy(),
            density.numpy(),
            color=curve_colour(place),
            linestyle=style,
            label=f"student, {kind}",
        )
    axes.set_xlim(-6, 6)
    legend(axes, "upper left")
    return figure
