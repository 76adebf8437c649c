"""The hyper-parameters of DQN, and values of them that were found to work."""

from __future__ import annotations

from dataclasses import dataclass

from rlbook import checks
from rlbook.functional.schedules import Linear, Schedule

COUNTS = "buffer_size", "batch_size", "train_every", "gradient_steps", "target_period", "n_step"
SWITCHES = (
    "anneal_learning_rate", "double", "dueling", "prioritized", "noisy", "distributional", "huber",
)  # fmt: skip


@dataclass(frozen=True)
class DQNConfig:
    gamma: float = 0.99  # discount per environment step, in [0, 1]
    learning_rate: float | Schedule = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # lower the step size linearly to 0 over the run
    epsilon: Schedule = Linear(1.0, 0.05, 0.3)  # probability of a random action, in [0, 1]
    buffer_size: int = 50_000  # transitions kept
    learning_starts: int = 500  # environment steps before the first update
    batch_size: int = 64  # transitions of a minibatch
    train_every: int = 4  # environment steps between updates
    gradient_steps: int = 1  # gradient steps of an update
    # C, environment steps between copies of Q into the target network
    target_period: int = 500
    double: bool = True  # choose the next action by Q, value it by Q⁻
    dueling: bool = False  # learn V(s) and the advantages in two streams
    prioritized: bool = False  # draw rows in proportion to |δ|^priority_exponent
    priority_exponent: float = 0.5  # ω, at least 0; 0 draws uniformly
    importance_exponent: Schedule = Linear(0.4, 1.0)  # β of prioritised replay's weights, in [0, 1]
    n_step: int = 1  # n, steps of reward in a target
    noisy: bool = False  # explore by noisy weights; epsilon has no effect then
    noise_scale: float = 0.5  # σ_0 of the noisy layers at the start, ≥ 0
    distributional: bool = False  # learn each return's probability; huber has no effect then
    num_atoms: int = 51  # returns that a distribution tells apart, ≥ 2
    v_min: float = -10.0  # the least return that a distribution tells apart, in reward units
    v_max: float = 10.0  # the largest
    huber: bool = True  # Huber loss (δ = 1); false is ½ squared error
    max_grad_norm: float = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer
    adam_eps: float = 1e-8  # Adam's ε
    action_bins: int = 5  # values per dimension of a continuous action, ≥ 2

    def __post_init__(self) -> None:
        checks.check_schedules(
            self, epsilon=checks.unit_interval, importance_exponent=checks.unit_interval
        )
        checks.check_rates(self, learning_rate=checks.positive)
        checks.check_fields(
            self, **dict.fromkeys(SWITCHES, checks.boolean),
            **dict.fromkeys(COUNTS, checks.positive_int),
            gamma=checks.unit_interval, learning_starts=checks.non_negative_int,
            priority_exponent=checks.non_negative, noise_scale=checks.non_negative,
            num_atoms=checks.at_least(2), v_min=checks.finite, v_max=checks.finite,
            max_grad_norm=checks.bound, hidden_sizes=checks.positive_ints,
            adam_eps=checks.positive, action_bins=checks.at_least(2),
        )  # fmt: skip
        if not self.v_min < self.v_max:
            raise ValueError(f"v_max must be a number above v_min {self.v_min}, got {self.v_max}")
