"""The hyper-parameters of AlphaZero: those of the search, and those of learning from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.checks import (
    at_least,
    bound,
    check_idle,
    non_negative,
    one_of,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.functional.schedules import Schedule
from rlbook.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class AlphaZeroConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount γ per environment step, in [0, 1]
    # simulations per move in training, at least 1
    simulations: Annotated[int, positive_int] = 32
    # simulations per move when acting greedily, at least 1
    greedy_simulations: Annotated[int, positive_int] = 64
    # weight of the prior's bonus relative to returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 1.25
    # fraction of noise mixed into P at the root, in [0, 1]
    noise_fraction: Annotated[float, unit_interval] = 0.25
    # α of the Dirichlet noise; a small α concentrates it on a few actions
    noise_alpha: Annotated[float, positive] = 1.0
    # τ for sampling moves in training; 0 plays the most visited
    temperature: Annotated[float | Schedule, non_negative] = 1.0
    # how the tree treats random outcomes: "chance" nodes, "open-loop", or "auto" as in mcts
    stochastic: Annotated[str, one_of("auto", "chance", "open-loop")] = "auto"
    buffer_size: Annotated[int, positive_int] = 5_000  # capacity: the most recent states
    batch_size: Annotated[int, positive_int] = 64  # states per minibatch
    train_every: Annotated[int, positive_int] = 1  # episodes between updates
    gradient_steps: Annotated[int, positive_int] = 16  # minibatches per update
    learning_rate: Annotated[float | Schedule, positive] = 2e-3  # Adam's step size, > 0
    # decoupled weight decay, as in AdamW
    weight_decay: Annotated[float, non_negative] = 1e-4
    symmetries: bool = True  # augment with rotations and reflections, if the env defines them
    value_coef: Annotated[float, non_negative] = 1.0  # weight of ½ (z - v)²; the paper's is 2
    max_grad_norm: Annotated[float, bound] = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units in each hidden layer
    action_bins: Annotated[int, at_least(2)] = 5  # values per dimension of a continuous action, ≥ 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_fraction == 0.0:
            check_idle(self, "noise_alpha", "without noise_fraction")
