"""A network's estimates for the states that a search reaches: action probabilities and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.algorithms.planning.search.observation_digest import content
from rlbook.errors import TrainingError
from rlbook.functional.bandits import softmax
from rlbook.networks.policy_value_network import PolicyValueNetwork


class NetworkEstimates:
    """P(s, ·) and V(s) by observation, computed once by the network and cached until `forget`.

    Args:
        network: logits [B, A] and standardised values [B] of observations [B, O].
        encode: from the environment's observations to [..., O].

    Attributes:
        center, deviation: of the returns that the network has learned standardised, in reward
            units.
    """

    def __init__(self, network: PolicyValueNetwork, encode: Callable[[Any], np.ndarray]) -> None:
        self.network, self._encode = network, encode
        self.center, self.deviation = 0.0, 1.0
        self._known: dict[int, tuple[NDArray[np.float64], float]] = {}

    def __call__(
        self, observation: object, allowed: ArrayLike | None = None
    ) -> tuple[list[float], float]:
        """For one observation: P [A], and V in reward units.

        P is 0 for actions that are not `allowed`, [A]; None: all are.
        """
        key = content(observation)
        if key not in self._known:
            with torch.inference_mode():
                logits, value = self.network(self.vector(observation)[None])
            scores = logits[0].double().numpy()
            self._known[key] = scores, self.center + self.deviation * float(value)
        scores, value = self._known[key]
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        return softmax(scores).tolist(), value

    def values(self, observations: ArrayLike) -> NDArray[np.float32]:
        """V of the environment's observations: [N, ...] → [N], in reward units."""
        with torch.inference_mode():
            value = self.network(self.vector(observations))[1]
        return self.center + self.deviation * value.numpy()

    def vector(self, observation: object) -> Tensor:
        """An observation in the network's format: float32 [..., O].

        Raises:
            TrainingError: a number is not finite, or is not in float32. What is shown in a
                simulation has been seen by nobody else.
        """
        try:
            seen = np.asarray(self._encode(observation), dtype=np.float32)
            if not np.isfinite(seen).all():
                raise FloatingPointError("observation", seen[~np.isfinite(seen)].flat[0])
        except FloatingPointError as error:
            raise TrainingError(
                f"the observation of a simulated step is not finite: {error.args[1]}"
            ) from None
        return torch.from_numpy(seen)

    def standardise(self, returns: Tensor) -> None:
        """Sets the mean and standard deviation of the returns that the network learns."""
        self.center = float(returns.mean())
        self.deviation = max(float(returns.std(correction=0)), 1e-3)

    def forget(self) -> None:
        """Clears the cache, because the network has changed."""
        self._known = {}
