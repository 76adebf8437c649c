"""The hyper-parameters of the world model: of the ensemble, and of the search for plans in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.checks import bound, positive, positive_int, positive_ints, unit_interval
from rlbook.functional.schedules import Schedule
from rlbook.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class WorldModelConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    members: Annotated[int, positive_int] = 3  # K, networks of the ensemble
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units of each hidden layer
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    batch_size: Annotated[int, positive_int] = 256  # transitions of a minibatch, for each member
    buffer_size: Annotated[int, positive_int] = 100_000  # transitions kept
    # environment steps with random actions, before the first training
    learning_starts: Annotated[int, positive_int] = 200
    # environment steps between trainings of the model
    train_every: Annotated[int, positive_int] = 200
    gradient_steps: Annotated[int, positive_int] = 400  # gradient steps of a training
    max_grad_norm: Annotated[float, bound] = 100.0  # the gradient's L2 norm is clipped to this
    horizon: Annotated[int, positive_int] = 15  # H, steps of a plan
    candidates: Annotated[int, positive_int] = 60  # C, plans drawn in each iteration
    # E, plans that the next ones are drawn like; at most C
    elites: Annotated[int, positive_int] = 6
    # iterations of the cross-entropy method for each action
    iterations: Annotated[int, positive_int] = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites > self.candidates:
            raise ValueError(
                f"elites must be at most candidates {self.candidates}, got {self.elites}"
            )
