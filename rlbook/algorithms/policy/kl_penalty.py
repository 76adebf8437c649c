"""The KL penalty: its weight β, fixed or adapted to a target or band, added to reward or loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.agent import Metrics, State
from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.algorithms.policy.options import ReferenceOptions
from rlbook.checks import value_at
from rlbook.data.rollout import Batch, Rollout
from rlbook.functional.averages import weighted_sum
from rlbook.functional.divergences import (
    adapted_kl_coef,
    banded_kl_coef,
    find_estimator,
    temperature_of_kl,
)
from rlbook.networks.data_parallel import log_prob_by_rows
from rlbook.networks.policy import Policy


class KLPenalty:
    """β KL(π ‖ π_ref), with β fixed, scheduled, or adapted towards `kl_target`.

    Attributes:
        coef: β where `kl_target` changes it, in reward units per nat.
        kl: the KL per step of the last rollout, in nats.
    """

    def __init__(self, config: ReferenceOptions) -> None:
        self.config, self.coef, self.kl = config, value_at(config.kl_coef, 0.0), 0.0

    @torch.no_grad()
    def penalize(
        self, reward: Tensor, policy: Policy, reference: Policy, rollout: Rollout, kl_coef: float
    ) -> tuple[Tensor, Tensor]:
        """The reward less the penalty, r - β (log π - log π_ref), where the penalty goes there.

        Args:
            reward: [T, N], in reward units.
            policy, reference: π and π_ref.
            rollout: T steps of N environments, drawn by π.
            kl_coef: β.

        Returns:
            The reward [T, N], and log π_ref(a|s) [T, N] in nats.
        """
        mask, episodes = rollout.tensor("valid"), policy.batch(rollout, "episode")
        reference_log_prob = log_prob_by_rows(reference, episodes).T
        estimate = find_estimator(self.config.kl_estimator, self.config.kl_clamp)
        kl = estimate(episodes.log_prob.T, reference_log_prob, mask)
        self.kl = float(weighted_sum(kl, mask))
        if self.config.kl_in == "reward":
            reward = reward - kl_coef * kl
        return reward, reference_log_prob

    def adapt(self, rows: int) -> Metrics:
        """Adapts β after an update on a rollout of this many rows; returns β of that update."""
        config, used = self.config, self.coef
        assert config.kl_target is not None
        self.coef = adapted_kl_coef(
            used,
            self.kl,
            target=config.kl_target,
            share=rows / config.kl_horizon,
            low=config.kl_coef_min,
            high=config.kl_coef_max,
        )
        return {"kl_coef": used}


class KLControl:
    """β and τ of GRPO, adapted if `kl_band` is set.

    Attributes:
        kl_coef: β, in reward units per nat.
        kl: the KL per step as it was measured last, in nats.
    """

    def __init__(self, config: GRPOConfig) -> None:
        self.config, self.kl_coef, self.kl = config, value_at(config.kl_coef, 0.0), 0.0

    def update_coef(self, kl: float) -> Metrics:
        """Adapts β after an update that led to this KL; returns β of that update."""
        config, used, self.kl = self.config, self.kl_coef, kl
        if config.kl_band is None:
            return {}
        self.kl_coef = banded_kl_coef(
            used,
            kl,
            band=config.kl_band,
            factor=config.kl_factor,
            low=config.kl_coef_min,
            high=config.kl_coef_max,
        )
        return {"kl_coef": used}

    @property
    def temperature(self) -> float | None:
        """τ for the last measured KL; None if it is fixed."""
        config = self.config
        if config.kl_band is None or config.score_temperatures is None:
            return None
        return temperature_of_kl(self.kl, band=config.kl_band, range=config.score_temperatures)

    @property
    def is_within_band(self) -> bool:
        """Whether the KL is at most the upper end of the band."""
        return self.config.kl_band is None or self.kl <= self.config.kl_band[1]

    def state_dict(self) -> State:
        return {"kl_coef": self.kl_coef, "kl": self.kl}

    def load_state_dict(self, state: State) -> None:
        self.kl_coef, self.kl = float(state["kl_coef"]), float(state["kl"])


def loss_penalty(log_prob: Tensor, batch: Batch, config: ReferenceOptions | GRPOConfig) -> Tensor:
    """KL(π ‖ π_ref) per step, in nats, for a penalty that is part of the loss."""
    estimate = find_estimator(config.kl_estimator, config.kl_clamp)
    kl = estimate(log_prob, batch.reference_log_prob, batch.share.get("mask"))
    return weighted_sum(kl, **batch.share)
