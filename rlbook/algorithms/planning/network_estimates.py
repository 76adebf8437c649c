"""What a network says of the states that a search comes to: which actions look good, and what they
are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.algorithms.planning.simulators import content
from rlbook.functional.bandits import softmax
from rlbook.policies.policy_value_network import PolicyValueNetwork


class NetworkEstimates:
    """P(s, ·) and V(s) by observation, asked of the network once and remembered until `forget`.

    Args:
        network: logits [B, A] and standardised values [B] of observations [B, O].
        encode: from the environment's observations to [..., O].
        allowed: from one observation to a mask [A] bool: P is 0 elsewhere. None: no such mask.

    Attributes:
        center, deviation: of the returns that the network has learned standardised, in reward
            units.
    """

    def __init__(
        self, network: PolicyValueNetwork, encode: Callable[[Any], np.ndarray],
        allowed: Callable[[object], NDArray[np.bool_]] | None,
    ) -> None:  # fmt: skip
        self.network, self._encode, self._allowed = network, encode, allowed
        self.center, self.deviation = 0.0, 1.0
        self._known: dict[int | tuple[int, ...], tuple[list[float], float]] = {}

    def __call__(
        self, observation: object, allowed: list[int] | None = None
    ) -> tuple[list[float], float]:
        """Of one observation: P [A], and V in reward units.

        Args:
            allowed: the actions that are allowed there; None: as the mask says.
        """
        key = content(observation) if allowed is None else (content(observation), *allowed)
        if key not in self._known:
            with torch.inference_mode():
                logits, value = self.network(self.vector(observation)[None])
            scores = logits[0].double().numpy()
            if allowed is not None:
                mask = np.isin(np.arange(len(scores)), allowed)
                scores = np.where(mask, scores, -np.inf)
            elif self._allowed is not None and (mask := self._allowed(observation)).any():
                scores = np.where(mask, scores, -np.inf)
            self._known[key] = softmax(scores).tolist(), self.center + self.deviation * float(value)
        return self._known[key]

    def values(self, observations: ArrayLike) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        with torch.inference_mode():
            value = self.network(self.vector(observations))[1]
        return self.center + self.deviation * value.numpy()

    def vector(self, observation: object) -> Tensor:
        """As the network sees it: float32 [..., O]."""
        return torch.from_numpy(np.asarray(self._encode(observation), dtype=np.float32))

    def standardise(self, returns: Tensor) -> None:
        """From now on the network learns returns by their mean and deviation among these."""
        self.center = float(returns.mean())
        self.deviation = max(float(returns.std(correction=0)), 1e-3)

    def forget(self) -> None:
        """The network has changed."""
        self._known = {}
