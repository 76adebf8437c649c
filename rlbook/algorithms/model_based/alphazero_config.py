"""The hyper-parameters of AlphaZero: of its search, and of learning from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.checks import (
    at_least,
    bound,
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
    # simulations for each move in training, at least 1
    simulations: Annotated[int, positive_int] = 32
    # the same for each move without exploration
    greedy_simulations: Annotated[int, positive_int] = 64
    # weight of the prior against returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 1.25
    # share of the noise in P at the root, in [0, 1]
    noise_fraction: Annotated[float, unit_interval] = 0.25
    # the noise is Dirichlet(α, …, α): small α favours single actions
    noise_alpha: Annotated[float, positive] = 1.0
    # τ of the moves played in training; 0 is the most visited
    temperature: Annotated[float | Schedule, non_negative] = 1.0
    # random outcomes: "chance" nodes, "open-loop", or "auto" as in mcts
    stochastic: Annotated[str, one_of("auto", "chance", "open-loop")] = "auto"
    buffer_size: Annotated[int, positive_int] = 5_000  # states kept, the last ones
    batch_size: Annotated[int, positive_int] = 64  # states of a minibatch
    train_every: Annotated[int, positive_int] = 1  # episodes between updates
    gradient_steps: Annotated[int, positive_int] = 16  # minibatches of an update
    learning_rate: Annotated[float | Schedule, positive] = 2e-3  # Adam's step size, > 0
    # share of the weights taken off per unit of learning rate
    weight_decay: Annotated[float, non_negative] = 1e-4
    symmetries: bool = True  # learn from states turned and mirrored, where the environment says how
    value_coef: Annotated[float, non_negative] = 1.0  # weight of ½ (z - v)²; 2 is the paper's
    max_grad_norm: Annotated[float, bound] = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units of each hidden layer
    action_bins: Annotated[int, at_least(2)] = 5  # values per dimension of a continuous action, ≥ 2
