"""Uniform numbers for N environments with one generator each, drawn in blocks: the same numbers as
one at a time, but faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlbook.envs.tabular.snapshots import check_array
from rlbook.seeding import set_rng_state

BLOCK = 64


class EnvGenerators:
    """A random generator for each of N environments; one that was never seeded is made when it is
    first used, and seeded by the operating system."""

    def __init__(self, num_envs: int) -> None:
        self._rngs: list[np.random.Generator | None] = [None] * num_envs

    def __getitem__(self, index: int) -> np.random.Generator:
        rng = self._rngs[index]
        if rng is None:
            rng = self._rngs[index] = np.random.default_rng()
        return rng

    def seed(self, index: int, seed: int) -> None:
        """Makes the environment's generator `numpy.random.default_rng(seed)`."""
        self._rngs[index] = np.random.default_rng(seed)

    def snapshot(self) -> list[Any]:
        """The state of each; None for one that was not used."""
        return [None if rng is None else rng.bit_generator.state for rng in self._rngs]

    def restore(self, states: Sequence[Any]) -> None:
        """The inverse of `snapshot`."""
        if len(states) != len(self._rngs):
            raise ValueError(f"a snapshot must have {len(self._rngs)} generators.")
        for index, state in enumerate(states):
            self._rngs[index] = None
            if state is not None:
                set_rng_state(self[index], state)


class Uniforms:
    """The stream of `rng.random()` of each environment's generator."""

    def __init__(self, num_envs: int) -> None:
        self._rngs = EnvGenerators(num_envs)
        self._ahead = np.zeros((num_envs, BLOCK))
        self._used = np.full(num_envs, BLOCK)

    def seed(self, index: int, seed: int) -> None:
        """Restarts the environment's stream as that of `numpy.random.default_rng(seed)`."""
        self._rngs.seed(index, seed)
        self._used[index] = BLOCK

    def draw(self, indices: np.ndarray) -> np.ndarray:
        """The next number in [0, 1) for each of the distinct environments `indices` [M]: [M]."""
        used = self._used[indices]
        if used.max(initial=0) == BLOCK:
            for index in indices[used == BLOCK].tolist():
                self._rngs[index].random(out=self._ahead[index])
                self._used[index] = 0
            used = self._used[indices]
        self._used[indices] = used + 1
        return self._ahead[indices, used]

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue drawing."""
        numbers = {"ahead": self._ahead.copy(), "used": self._used.copy()}
        return {"rngs": self._rngs.snapshot(), **numbers}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._ahead = check_array("uniform numbers", snapshot["ahead"], self._ahead, low=0, high=1)
        self._used = check_array("used numbers", snapshot["used"], self._used, low=0, high=BLOCK)
        self._rngs.restore(snapshot["rngs"])
