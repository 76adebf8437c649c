"""The hyper-parameters of the reward model; see `rlbook.algorithms.imitation.reward_model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.checks import (
    at_least,
    bound,
    non_negative,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.hyperparameters import Hyperparameters, Rate


@dataclass(frozen=True)
class RewardModelConfig(Hyperparameters):
    batch_size: Annotated[int, positive_int] = 64  # pairs or groups per minibatch
    learning_rate: Annotated[Rate, positive] = 1e-3  # Adam's step size, > 0
    # decoupled weight decay, as in AdamW; keeps the scores small
    weight_decay: Annotated[float, non_negative] = 0.0
    # margin by which the better of a pair should win, in reward units; a column of the data
    # overrides it
    margin: Annotated[float, non_negative] = 0.0
    # c, weight of the squared sum of a pair's scores, per reward unit²; an ensemble needs it
    center_coef: Annotated[float, non_negative] = 0.0
    members: Annotated[int, positive_int] = 1  # networks; more than one form an ensemble
    # fraction of the rows held out from training and tested after each pass, in [0, 1)
    held_out: Annotated[float, unit_interval] = 0.1
    # random walks to record and rank if no data set is given
    walks: Annotated[int, at_least(2)] = 500
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    max_grad_norm: Annotated[float, bound] = 1.0  # the gradient's L2 norm is clipped to this
    # units in each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members > 1 and self.center_coef == 0.0:
            raise ValueError(
                f"center_coef must be above 0 where members is {self.members}: scores without a "
                "zero cannot be compared between members; got 0.0"
            )
