"""What follows the KL divergence from the reference: β, its penalty's weight, and a temperature."""

from __future__ import annotations

from rlbook.agent import Metrics, State
from rlbook.algorithms.policy.grpo_config import GRPOConfig
from rlbook.checks import value_at
from rlbook.functional.divergences import banded_kl_coef, temperature_of_kl


class KLControl:
    """β and τ of GRPO, which move where `kl_band` asks for it.

    Attributes:
        kl_coef: β, in reward units per nat.
        kl: the KL per step as it was measured last, in nats.
    """

    def __init__(self, config: GRPOConfig) -> None:
        self.config, self.kl_coef, self.kl = config, value_at(config.kl_coef, 0.0), 0.0

    def coef_at(self, progress: float) -> float:
        """β at a point of training in [0, 1]."""
        return (
            value_at(self.config.kl_coef, progress) if self.config.kl_band is None else self.kl_coef
        )

    def follow(self, kl: float) -> Metrics:
        """Moves β after an update that has led to this KL; returns what β was."""
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
        """τ at the KL that was measured last; None where nothing follows it."""
        config = self.config
        if config.kl_band is None or config.score_temperatures is None:
            return None
        return temperature_of_kl(self.kl, band=config.kl_band, range=config.score_temperatures)

    @property
    def inside(self) -> bool:
        """Whether the policy is no farther from the reference than the band allows."""
        return self.config.kl_band is None or self.kl <= self.config.kl_band[1]

    def state_dict(self) -> State:
        return {"kl_coef": self.kl_coef, "kl": self.kl}

    def load_state_dict(self, state: State) -> None:
        self.kl_coef, self.kl = float(state["kl_coef"]), float(state["kl"])
