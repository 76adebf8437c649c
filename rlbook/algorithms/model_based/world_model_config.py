"""The hyper-parameters of the world model: those of the ensemble, and those of planning with it."""

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
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units in each hidden layer
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    batch_size: Annotated[int, positive_int] = 256  # transitions per minibatch, for each member
    buffer_size: Annotated[int, positive_int] = 100_000  # maximum number of transitions stored
    # environment steps with random actions before the first model update
    learning_starts: Annotated[int, positive_int] = 200
    # environment steps between model updates
    train_every: Annotated[int, positive_int] = 200
    gradient_steps: Annotated[int, positive_int] = 400  # gradient steps per model update
    max_grad_norm: Annotated[float, bound] = 100.0  # the gradient's L2 norm is clipped to this
    horizon: Annotated[int, positive_int] = 15  # H, steps per plan
    candidates: Annotated[int, positive_int] = 60  # C, plans sampled in each iteration
    # E, best plans that the next distribution is fitted to; at most C
    elites: Annotated[int, positive_int] = 6
    # iterations of the cross-entropy method per action
    iterations: Annotated[int, positive_int] = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites > self.candidates:
            raise ValueError(
                f"elites must be at most candidates {self.candidates}, got {self.elites}"
            )
