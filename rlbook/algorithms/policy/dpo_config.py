"""The hyper-parameters of DPO, and which of them each of its losses reads; see
`rlbook.algorithms.policy.dpo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import AdamOptions, PolicyOptions
from rlbook.checks import (
    at_least,
    non_negative,
    non_negative_int,
    number_in,
    positive,
    positive_int,
)

PairLoss = Literal[
    "sigmoid", "ipo", "hinge", "robust", "exo", "apo_zero", "apo_down", "kto", "simpo", "orpo"
]
REFERENCE_FREE = ("simpo", "orpo")
"""Those that compare the policy with nothing: no reference is kept in memory."""
SMOOTHED = ("sigmoid", "robust", "exo")
"""Those that read `label_smoothing`."""


@dataclass(frozen=True)
class DPOConfig(PolicyOptions, AdamOptions):
    # G, episodes from one start, at least 2; divides num_envs; makes up to G / 2 pairs
    group_size: Annotated[int, at_least(2)] = 2
    # β, how strongly the policy is held to the reference, in nats⁻¹, > 0
    beta: Annotated[float, positive] = 0.1
    # which loss on the pairs; sigmoid is DPO's own
    preference_loss: PairLoss = "sigmoid"
    # divide log π(τ) by the steps of τ, under policy and reference; simpo and orpo always do
    per_step: bool = False
    # probability that a preference is the wrong way round, in [0, 0.5]: of sigmoid (conservative
    # DPO), robust and exo
    label_smoothing: Annotated[float, number_in(0.0, 0.5)] = 0.0
    simpo_margin: Annotated[float, non_negative] = 0.5  # γ of simpo, dimensionless
    # weight of a good episode where a bad one's is 1, of kto, > 0
    good_weight: Annotated[float, positive] = 1.0
    # c, weight of the better episode's negative log-likelihood, in loss per nat
    nll_coef: Annotated[float, non_negative] = 0.0
    # rounds of play after which the reference becomes the present policy; 0 never
    reference_period: Annotated[int, non_negative_int] = 0
    batch_size: Annotated[int, positive_int] = 64  # pairs of a minibatch
    epochs: Annotated[int, positive_int] = 1  # passes over the pairs of a round of play
    # pairs that are backpropagated at once; changes memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name, smoothing = self.preference_loss, self.label_smoothing
        if name in ("robust", "exo") and not 0.0 < smoothing < 0.5:
            raise ValueError(f"label_smoothing must be in (0, 0.5) for {name}, got {smoothing!r}")
        if name == "orpo" and self.nll_coef == 0.0:
            raise ValueError(
                "nll_coef must be above 0 for orpo, whose other half is the better episode's "
                "likelihood (1 in the paper), got 0.0"
            )
        if name == "kto" and self.batch_size < 2:
            raise ValueError(
                "batch_size must be at least 2 for kto, which mixes starts and episodes"
            )
        idle = {
            "label_smoothing": name not in SMOOTHED,
            "simpo_margin": name != "simpo",
            "good_weight": name != "kto",
            "reference_period": name in REFERENCE_FREE,
            "per_step": name in REFERENCE_FREE,
        }
        for setting, unread in idle.items():
            value = getattr(self, setting)
            if unread and value != getattr(type(self), setting):
                raise ValueError(
                    f"{setting} has no effect on the loss {name!r}; got {value!r}, leave it out"
                )
