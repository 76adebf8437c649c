"""Random network distillation (RND): novelty as the prediction error of a network that learns the
outputs of a fixed random network.

    b(s') = β ‖ĝ(s') - f(s')‖² / σ,      ĝ ← ĝ - η ∇ mean ‖ĝ(s') - f(s')‖²

Where many steps have led, ĝ has learned f; where none has, the two differ. No state need ever be
seen twice: neighbours of what is known have a small error, too.

Source: Burda et al. 2018, arXiv:1810.12894, section 2.2, and its section 2.4 for the normalisation.
Differences: the predictor takes a step with each step of the environments, and σ is the running
root mean square of the errors instead of the deviation of the bonus's returns; the bonus is added
to the reward, so that both have one value and one discount.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.interaction.spaces import Observations, as_vector
from rlbook.networks.mlp import MLP
from rlbook.networks.normalizer import Normalizer
from rlbook.networks.optimizer import Group, adam
from rlbook.networks.policy import as_array
from rlbook.seeding import torch_generator

WIDTH, OUTPUTS = 64, 32
"""Units of each hidden layer, and of the output to predict."""
LEARNING_RATE = 1e-3
CLIP = 5.0
"""The bound to which standardised observations are clipped."""
MODULES = "target", "predictor", "normalizer"
"""The attributes with tensors to save."""


class RandomDistillation:
    """RND's bonus; see the module docstring.

    Args:
        space: of one observation.
        coef: β, in reward units: the bonus of a step whose error is as large as errors were so far.
        rng: draws both networks.

    Raises:
        RequestError: observations of this space have no fixed length.
    """

    learns = True
    """It changes with each step that it scores."""

    def __init__(self, space: spaces.Space, coef: float, rng: Generator) -> None:
        size, self._observe = as_vector(space, [])
        self.coef, generator = coef, torch_generator(rng)
        sizes = (size, WIDTH, WIDTH, OUTPUTS)
        self.target = MLP(sizes, generator, activation="relu").requires_grad_(False)
        self.predictor = MLP(sizes, generator, activation="relu")
        self.optimizer = adam([Group([self.predictor])], LEARNING_RATE)
        self.normalizer = Normalizer(size)
        self.square, self.seen = 0.0, 0  # the sum of squared errors, and of how many rows

    def adapt_observations(self, observations: Observations) -> NDArray[np.float32]:
        """As vectors: [N, ...] → [N, O]."""
        return self._observe(observations)

    def score_steps(
        self,
        obs: NDArray[np.float32],
        action: NDArray[Any],
        next_obs: NDArray[np.float32],
        done: NDArray[np.bool_],
        active: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float64], None]:
        """The bonuses [N] of the steps that are `active`, from which the predictor then learns
        (None: all); 0 for the others."""
        active = np.ones(len(done), dtype=bool) if active is None else active
        bonus = np.zeros(len(active))
        if not active.any():
            return bonus, None
        rows = torch.from_numpy(np.asarray(next_obs, dtype=np.float32)[active])
        self.normalizer.update(rows)
        x = self.normalizer(rows).clamp(-CLIP, CLIP)
        error = (self.predictor(x) - self.target(x)).square().mean(-1)  # [B]
        found = as_array(error.detach()).astype(np.float64)
        self.square, self.seen = self.square + float((found**2).sum()), self.seen + len(found)
        bonus[active] = self.coef * found / (np.sqrt(self.square / self.seen) + 1e-8)
        self.optimizer.step(error.mean())
        return bonus, None

    def state_dict(self) -> State:
        """Both networks, the optimiser's moments, and the running statistics."""
        parts = {name: dict(getattr(self, name).state_dict()) for name in MODULES}
        return {
            **parts,
            "optimizer": self.optimizer.state_dict(),
            "square": self.square,
            "seen": self.seen,
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        for name in MODULES:
            getattr(self, name).load_state_dict(state[name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.square, self.seen = float(state["square"]), int(state["seen"])
