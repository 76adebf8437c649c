"""The hyper-parameters of DQN, and the numbers that it logs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from rlbook.checks import (
    at_least,
    bound,
    check_idle,
    finite,
    non_negative,
    non_negative_int,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.functional.schedules import Linear, Schedule
from rlbook.hyperparameters import Activation, Hyperparameters, check_activation


@dataclass(frozen=True)
class SequenceConfig(Hyperparameters):
    """What a Q-network with a memory learns from, with `recurrent`."""

    sequence_length: Annotated[int, positive_int] = 20  # L, steps of a sequence that are trained
    # steps that a sequence shares with the next one of its episode, below sequence_length
    overlap: Annotated[int, non_negative_int] = 10
    # B, steps before a sequence that bring its stored recurrent state up to date
    burn_in: Annotated[int, non_negative_int] = 10
    # units in each hidden layer between the memory and the outputs
    post_hidden_sizes: Annotated[tuple[int, ...], positive_ints] = ()


@dataclass(frozen=True)
class DQNConfig(SequenceConfig):
    gamma: Annotated[float, unit_interval] = 0.99  # discount per environment step, in [0, 1]
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # anneal the learning rate linearly to 0 over the run
    # probability of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval] = Linear(1.0, 0.05, 0.3)
    buffer_size: Annotated[int, positive_int] = 50_000  # maximum number of transitions stored
    # environment steps before the first update
    learning_starts: Annotated[int, non_negative_int] = 500
    # transitions per minibatch; with `recurrent`, sequences
    batch_size: Annotated[int, positive_int] = 64
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
    activation: Activation = "relu"  # activation function of the hidden layers
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    action_bins: Annotated[int, at_least(2)] = 5  # values per dimension of a continuous action, ≥ 2
    # a memory: the last hidden layer becomes recurrent, and sequences are replayed (R2D2)
    recurrent: Literal["gru", "lstm"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_activation(self)
        if not self.v_min < self.v_max:
            raise ValueError(f"v_max must be a number above v_min {self.v_min}, got {self.v_max}")
        for switch, needs in NEEDS.items():
            if not getattr(self, switch):
                for name in needs:
                    check_idle(self, name, f"without {switch}")
        if self.recurrent is None:
            return
        for part in ("prioritized", "noisy", "distributional"):
            if getattr(self, part):
                raise ValueError(
                    f"{part} does not work with recurrent; double, dueling and n_step do"
                )
        if self.overlap >= self.sequence_length:
            raise ValueError(
                f"overlap must be below sequence_length {self.sequence_length}, got {self.overlap}"
            )


NEEDS = {
    "prioritized": ("priority_exponent", "importance_exponent"),
    "noisy": ("noise_scale",),
    "distributional": ("num_atoms", "v_min", "v_max"),
    "recurrent": tuple(item.name for item in fields(SequenceConfig)),
}
"""Hyper-parameter → those that nothing reads without it."""


METRICS = {
    "td_loss": "Huber (or ½ squared) loss of Q(s, a) against its target, or with "
    "`distributional` the KL divergence in nats; of the update's last minibatch",
    "q": "mean Q(s, a) over that minibatch, in reward units; "
    "far above any possible return means divergence",
    "grad_norm": "L2 norm of the gradient before clipping",
    "epsilon": "probability of a random action; 0 with `noisy`",
    "clipped_mass": "with `distributional`, the fraction of the target's probability outside "
    "[v_min, v_max], which is clipped to them; well above 0, the range is too narrow",
}
"""The meaning of each logged metric."""
