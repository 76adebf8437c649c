"""The hyper-parameters of DQN, and settings of them that were found to work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbook.checks import (
    at_least,
    bound,
    finite,
    non_negative,
    non_negative_int,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.functional.schedules import Linear, Schedule
from rlbook.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class DQNConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # anneal the learning rate linearly to 0 over the run
    # probability of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval] = Linear(1.0, 0.05, 0.3)
    buffer_size: Annotated[int, positive_int] = 50_000  # maximum number of transitions stored
    # environment steps before the first update
    learning_starts: Annotated[int, non_negative_int] = 500
    batch_size: Annotated[int, positive_int] = 64  # transitions per minibatch
    train_every: Annotated[int, positive_int] = 4  # environment steps between updates
    gradient_steps: Annotated[int, positive_int] = 1  # gradient steps per update
    # C, environment steps between copies of Q into the target network
    target_period: Annotated[int, positive_int] = 500
    double: bool = True  # double DQN: choose the next action by Q, evaluate it by Q⁻
    dueling: bool = False  # separate streams for V(s) and the advantages
    prioritized: bool = False  # sample transitions in proportion to |δ|^priority_exponent
    priority_exponent: Annotated[float, non_negative] = 0.5  # ω, at least 0; 0 samples uniformly
    # β of prioritised replay's importance weights, in [0, 1]
    importance_exponent: Annotated[Schedule, unit_interval] = Linear(0.4, 1.0)
    n_step: Annotated[int, positive_int] = 1  # n, steps of reward in a target
    noisy: bool = False  # explore by noisy weights instead of epsilon
    noise_scale: Annotated[float, non_negative] = 0.5  # σ_0, initial noise of the noisy layers, ≥ 0
    distributional: bool = False  # learn the distribution of returns (C51); ignores huber
    num_atoms: Annotated[int, at_least(2)] = 51  # K, atoms of the distribution, at least 2
    # smallest atom of the distribution, in reward units
    v_min: Annotated[float, finite] = -10.0
    v_max: Annotated[float, finite] = 10.0  # largest atom, in reward units
    huber: bool = True  # Huber loss (δ = 1); false is ½ squared error
    max_grad_norm: Annotated[float, bound] = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units in each hidden layer
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    action_bins: Annotated[int, at_least(2)] = 5  # values per dimension of a continuous action, ≥ 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.v_min < self.v_max:
            raise ValueError(f"v_max must be a number above v_min {self.v_min}, got {self.v_max}")
