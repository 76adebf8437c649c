"""Groups of hyper-parameters that several policy agents share; configs inherit what they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from rlbook.checks import (
    bound,
    check_idle,
    non_negative,
    non_negative_int,
    positive,
    positive_int,
    positive_ints,
)
from rlbook.functional import averages
from rlbook.functional.divergences import check_estimator
from rlbook.hyperparameters import Activation, Hyperparameters, Rate, check_activation, check_moving
from rlbook.networks.build import PolicySettings


@dataclass(frozen=True)
class PolicyOptions(Hyperparameters):
    """A policy network."""

    # units in each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)
    activation: Activation = "tanh"  # activation function of the hidden layers
    # divisor of a discrete policy's logits, when acting and when learning, > 0
    temperature: Annotated[float, positive] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_activation(self)

    def policy_settings(self, *, critic: bool) -> PolicySettings:
        """The settings from which the networks are built."""
        return PolicySettings(
            critic=critic,
            hidden_sizes=tuple(self.hidden_sizes),
            activation=self.activation,
            temperature=self.temperature,
        )


@dataclass(frozen=True)
class ScalingOptions(PolicyOptions):
    """A policy network whose inputs and rewards may be scaled."""

    # standardise observations by running statistics, clipped to ±10
    normalize_observation: bool = False
    # divide rewards by the running standard deviation of the discounted return, clipped to ±10
    normalize_reward: bool = False

    def policy_settings(self, *, critic: bool) -> PolicySettings:
        settings = super().policy_settings(critic=critic)
        return replace(settings, normalize_observation=self.normalize_observation)


@dataclass(frozen=True)
class RecurrentOptions(PolicyOptions):
    """A policy network that remembers what it saw earlier in the episode."""

    # a memory: gru or lstm, between hidden and output layers; none: the policy sees only the
    # current observation
    recurrent: Literal["gru", "lstm"] | None = None
    # steps of the sequences that a recurrent network is trained on (truncated backpropagation
    # through time); none: all steps of a rollout
    sequence_length: Annotated[int, positive_int] | None = None
    # units in each hidden layer between a recurrent network's memory and its outputs
    post_hidden_sizes: Annotated[tuple[int, ...], positive_ints] = ()
    refused: ClassVar[Mapping[str, str]] = {}
    """Inherited fields that cannot be set, and why."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, why in self.refused.items():
            value, default = getattr(self, name), getattr(type(self), name)
            if value != default:
                wanted = "none" if default is None else default
                raise ValueError(f"{name} must be {wanted}, got {value!r}: {why}")
        for name in ("sequence_length", "post_hidden_sizes"):
            if self.recurrent is None:
                switch = "set recurrent to 'gru' or 'lstm', or leave it out"
                check_idle(self, name, "without recurrent", switch)
        if self.recurrent is not None and getattr(self, "kl_coef", 0.0) != 0.0:
            raise ValueError(
                f"kl_coef must be 0 where recurrent is {self.recurrent!r}, because the reference"
                f" would need a memory of its own, got {getattr(self, 'kl_coef')}"  # noqa: B009
            )

    def policy_settings(self, *, critic: bool) -> PolicySettings:
        settings = super().policy_settings(critic=critic)
        return replace(
            settings,
            recurrent=self.recurrent,
            sequence_length=self.sequence_length,
            post_hidden_sizes=tuple(self.post_hidden_sizes),
        )


@dataclass(frozen=True)
class SeparateNetworkOptions(ScalingOptions):
    """A policy network and a value network."""

    # orthogonal initialisation: gain √2, policy output 0.01, value output 1 (detail 2)
    orthogonal_init: bool = True

    def policy_settings(self, *, critic: bool) -> PolicySettings:
        return replace(super().policy_settings(critic=critic), orthogonal=self.orthogonal_init)


@dataclass(frozen=True)
class NetworkOptions(SeparateNetworkOptions, RecurrentOptions):
    """An actor and a critic, in two networks or in one."""

    # a separate network for V; false makes V a second head on the policy network (detail 13)
    separate_networks: bool = True

    def policy_settings(self, *, critic: bool) -> PolicySettings:
        return replace(super().policy_settings(critic=critic), shared=not self.separate_networks)


@dataclass(frozen=True)
class StepOptions(Hyperparameters):
    """What a gradient step needs."""

    # anneal the learning rate linearly to 0 over the run (detail 4)
    anneal_learning_rate: bool = True
    adam_eps: Annotated[float, positive] = 1e-5  # the optimiser's ε (detail 3)
    # the gradient's L2 norm is clipped to this (detail 11)
    max_grad_norm: Annotated[float, bound] = 0.5


@dataclass(frozen=True)
class OptimizerOptions(StepOptions):
    """What the optimiser of a whole policy needs."""

    # gradient steps in which the learning rate rises linearly from 0; 0: no warm-up
    warmup_steps: Annotated[int, non_negative_int] = 0
    # w, decoupled weight decay (AdamW), at least 0: a step multiplies weights by 1 - w × step size
    weight_decay: Annotated[float, non_negative] = 0.0


@dataclass(frozen=True)
class AdamOptions(OptimizerOptions):
    """The optimiser's options with the defaults of most algorithms."""

    learning_rate: Annotated[Rate, positive] = 1e-3  # Adam's step size, > 0
    anneal_learning_rate: bool = False  # anneal the learning rate linearly to 0 over the run
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    max_grad_norm: Annotated[float, bound] = 1.0  # the gradient's L2 norm is clipped to this


@dataclass(frozen=True)
class AverageOptions(OptimizerOptions):
    """How the losses of a batch of episodes become one number."""

    # how the losses of a batch of episodes are averaged
    average: Literal["token", "sequence"] = "token"
    # rows backpropagated at once; affects memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None

    def averaging(self) -> averages.Weighting:
        """The average of the loss, as a function of the mask."""
        return averages.per_sequence if self.average == "sequence" else averages.per_token


@dataclass(frozen=True)
class MinibatchOptions(AverageOptions):
    """How a minibatch becomes one number and one gradient."""

    # how the losses of a batch of episodes are averaged
    average: Literal["token", "sequence", "constant"] = "token"  # type: ignore[assignment]
    # number of elements per episode that average = constant divides by
    average_divisor: Annotated[int, positive_int] = 1

    idle_unless = {"average_divisor": ("average", "constant")}

    def averaging(self) -> averages.Weighting:
        if self.average == "constant":
            return averages.constant(self.average_divisor)
        return averages.per_sequence if self.average == "sequence" else averages.per_token


@dataclass(frozen=True)
class ImportanceOptions(Hyperparameters):
    """Importance weights for samples from another program."""

    # C, cap on the importance weight π_old(learner) / π_old(sampler) of samples from another
    # program, above 0; none: no importance weights (default with a sampler: 2)
    importance_cap: Annotated[float, bound] | None = None
    # importance weight per step, or of the whole episode
    importance_of: Literal["token", "sequence"] = "token"


@dataclass(frozen=True)
class ReferenceOptions(Hyperparameters):
    """The KL penalty towards a reference policy."""

    # β, weight of the KL penalty towards the initial policy or a given reference, in reward units
    # per nat
    kl_coef: Annotated[Rate, non_negative] = 0.0
    # target of the KL per step, in nats, towards which β is adapted after each rollout; none keeps
    # β fixed
    kl_target: Annotated[float, positive] | None = None
    # number of rows (steps; episodes for a sequence model) over which β changes by at most a fifth
    kl_horizon: Annotated[int, positive_int] = 10_000
    # lower bound of β if kl_target is set
    kl_coef_min: Annotated[float, positive] = 1e-4
    # upper bound of β if kl_target is set
    kl_coef_max: Annotated[float, positive] = 10.0
    kl_in: Literal["reward", "loss"] = "reward"  # add the penalty to the reward or the loss
    # estimator of the KL; k1+ and k3+ have k2's gradient; k1 is for the reward only
    kl_estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k1"
    # clamp each step's estimate to ± this many nats, and k3's log-ratio to ±20; verl's low_var_kl
    # has 10; none: no clamp
    kl_clamp: Annotated[float, positive] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_estimator(self.kl_estimator, self.kl_in)
        if self.kl_coef == 0.0:
            check_idle(self, "kl_estimator", "without kl_coef")
            check_idle(self, "kl_clamp", "without kl_coef")
        check_moving(self, "kl_coef", "kl_target", ("kl_horizon", "kl_coef_min", "kl_coef_max"))
