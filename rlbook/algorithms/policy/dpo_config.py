"""The hyper-parameters of DPO, and which of them each of its losses uses; see
`rlbook.algorithms.policy.dpo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rlbook.algorithms.policy.options import AdamOptions, PolicyOptions
from rlbook.checks import (
    at_least,
    check_idle,
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
"""The losses that use no reference; none is kept in memory."""
SMOOTHED = ("sigmoid", "robust", "exo")
"""The losses that use `label_smoothing`."""


@dataclass(frozen=True)
class DPOConfig(PolicyOptions, AdamOptions):
    # G, episodes per start, at least 2; must divide num_envs; yields up to G / 2 pairs
    group_size: Annotated[int, at_least(2)] = 2
    # β, strength of the pull towards the reference, in nats⁻¹, > 0
    beta: Annotated[float, positive] = 0.1
    # loss on the pairs; sigmoid is DPO's own
    preference_loss: PairLoss = "sigmoid"
    # divide log π(τ) by the length of τ, for policy and reference; simpo and orpo always do
    per_step: bool = False
    # probability that a preference label is flipped, in [0, 0.5]; used by sigmoid (conservative
    # DPO), robust and exo
    label_smoothing: Annotated[float, number_in(0.0, 0.5)] = 0.0
    simpo_margin: Annotated[float, non_negative] = 0.5  # simpo's γ, dimensionless
    # kto: weight of a good episode relative to a bad one, > 0
    good_weight: Annotated[float, positive] = 1.0
    # c, weight of the negative log-likelihood of the better episodes' steps (their mean), per nat
    nll_coef: Annotated[float, non_negative] = 0.0
    # rounds between updates of the reference to the current policy; 0 never updates it
    reference_period: Annotated[int, non_negative_int] = 0
    batch_size: Annotated[int, positive_int] = 64  # pairs per minibatch
    epochs: Annotated[int, positive_int] = 1  # passes over the pairs of a round
    # pairs backpropagated at once; affects memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name, smoothing = self.preference_loss, self.label_smoothing
        if name in ("robust", "exo") and not 0.0 < smoothing < 0.5:
            raise ValueError(f"label_smoothing must be in (0, 0.5) for {name}, got {smoothing!r}")
        if name == "orpo" and self.nll_coef == 0.0:
            raise ValueError(
                "nll_coef must be above 0 for orpo, whose other term is the better episode's "
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
            if unread:
                check_idle(self, setting, f"on the loss {name!r}")
