"""Hyper-parameters that SAC, TD3 and DDPG share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.checks import (
    non_negative,
    non_negative_int,
    positive,
    positive_fraction,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.functional.schedules import Schedule
from rlbook.hyperparameters import Activation, Hyperparameters, check_activation


@dataclass(frozen=True)
class ReplayConfig(Hyperparameters):
    """The data, steps and networks that the three learn from and with."""

    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    learning_rate: Annotated[float | Schedule, positive] = 3e-4  # Adam's step size, > 0
    # gradient steps in which the learning rate rises linearly from 0; 0: no warm-up
    warmup_steps: Annotated[int, non_negative_int] = 0
    # w, decoupled weight decay (AdamW): a step multiplies the weights by 1 - w × step size
    weight_decay: Annotated[float, non_negative] = 0.0
    buffer_size: Annotated[int, positive_int] = 1_000_000  # maximum number of transitions stored
    # environment steps with uniform actions before the first update
    learning_starts: Annotated[int, non_negative_int] = 100
    batch_size: Annotated[int, positive_int] = 256  # transitions per minibatch
    train_every: Annotated[int, positive_int] = 1  # environment steps between updates
    gradient_steps: Annotated[int, positive_int] = 1  # gradient steps per update
    # τ, fraction by which the target networks move towards the current ones at each step
    tau: Annotated[float, positive_fraction] = 0.005
    # environment steps for which the same exploration noise is held
    hold: Annotated[int, positive_int] = 1
    # units in each hidden layer
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (256, 256)
    activation: Activation = "relu"  # activation function of the hidden layers
    # precision of float32 matrix products in updates; "medium" is faster (bfloat16 if supported)
    matmul_precision: Literal["highest", "high", "medium"] = "highest"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_activation(self)
