"""The losses on pairs that `dpo` knows by name, and which of its settings each of them reads."""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor

from rlbook.functional import preference_losses as losses
from rlbook.functional.averages import Average
from rlbook.functional.kto_losses import kto_loss

PairLoss = Literal[
    "sigmoid", "ipo", "hinge", "robust", "exo", "apo_zero", "apo_down", "kto", "simpo", "orpo"
]
REFERENCE_FREE = ("simpo", "orpo")
"""Those that compare the policy with nothing: no reference is kept in memory."""
SMOOTHED = ("sigmoid", "robust", "exo")
"""Those that read `label_smoothing`."""

LOSSES = {
    "sigmoid": losses.dpo_loss,
    "ipo": losses.ipo_loss,
    "hinge": losses.hinge_preference_loss,
    "robust": losses.robust_dpo_loss,
    "exo": losses.exo_loss,
    "apo_zero": losses.apo_zero_loss,
    "apo_down": losses.apo_down_loss,
    "kto": kto_loss,
    "simpo": losses.simpo_loss,
    "orpo": losses.orpo_loss,
}


class PairSettings(Protocol):
    """The fields of `DPOConfig` that the losses read."""

    @property
    def preference_loss(self) -> PairLoss: ...

    @property
    def beta(self) -> float: ...

    @property
    def label_smoothing(self) -> float: ...

    @property
    def simpo_margin(self) -> float: ...

    @property
    def nll_coef(self) -> float: ...

    @property
    def good_weight(self) -> float: ...

    @property
    def batch_size(self) -> int: ...


def pair_loss(
    config: PairSettings,
    policy: tuple[Tensor, Tensor],
    reference: tuple[Tensor, Tensor],
    kl: Tensor | None,
    average: Average,
) -> Tensor:
    """The loss that a config names.

    Args:
        config: which loss, and its settings.
        policy: log π of the better and of the worse episodes, [P] each, in nats; sums, or means
            where `per_step` says so or the loss is made of them.
        reference: the same under the reference.
        kl: KTO's point of reference, a scalar.
        average: how the pairs become one number.
    """
    name = config.preference_loss
    given: dict[str, object] = {"beta": config.beta, "average": average}
    if name in SMOOTHED:
        given["label_smoothing"] = config.label_smoothing
    if name == "simpo":
        given["margin"] = config.simpo_margin
    if name == "kto":
        given["good_weight"] = config.good_weight
    compared = () if name in REFERENCE_FREE else reference
    extra = (kl,) if name == "kto" else ()
    return LOSSES[name](*policy, *compared, *extra, **given)  # type: ignore[operator]


def check_pair_loss(config: PairSettings) -> None:
    """Raises ValueError where a setting has no effect on the loss, or the loss lacks one."""
    name, smoothing = config.preference_loss, config.label_smoothing
    if name in ("robust", "exo") and not 0.0 < smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in (0, 0.5) for {name}, got {smoothing!r}")
    if name == "orpo" and config.nll_coef == 0.0:
        raise ValueError(
            "nll_coef must be above 0 for orpo, whose other half is the better episode's "
            "likelihood (1 in the paper), got 0.0"
        )
    if name == "kto" and config.batch_size < 2:
        raise ValueError("batch_size must be at least 2 for kto, which mixes starts and episodes")
    idle = {
        "label_smoothing": name not in SMOOTHED,
        "simpo_margin": name != "simpo",
        "good_weight": name != "kto",
        "reference_period": name in REFERENCE_FREE,
        "per_step": name in REFERENCE_FREE,
    }
    for setting, unread in idle.items():
        value = getattr(config, setting)
        if unread and value != getattr(type(config), setting):
            raise ValueError(
                f"{setting} has no effect on the loss {name!r}; got {value!r}, leave it out"
            )
