"""Uniform numbers for N streams with a generator each, drawn ahead in blocks: the same numbers as one at a time, and cheaper."""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 64


class Uniforms:
    """What `rng.random()` of each stream's own generator gives next. A stream that was never seeded takes a seed of the system's."""

    def __init__(self, num_streams: int) -> None:
        self._rngs: list[np.random.Generator | None] = [None] * num_streams
        self._ahead = np.zeros((num_streams, BLOCK))
        self._used = np.full(num_streams, BLOCK)

    def seed(self, stream: int, seed: int) -> None:
        """The stream's numbers become those of `numpy.random.default_rng(seed)`, from the first."""
        self._rngs[stream] = np.random.default_rng(seed)
        self._used[stream] = BLOCK

    def draw(self, streams: np.ndarray) -> np.ndarray:
        """The next number in [0, 1) of each of the streams [M], without repetition: [M]."""
        used = self._used[streams]
        if used.max(initial=0) == BLOCK:
            for stream in streams[used == BLOCK].tolist():
                self._rng(stream).random(out=self._ahead[stream])
                self._used[stream] = 0
            used = self._used[streams]
        self._used[streams] = used + 1
        return self._ahead[streams, used]

    def _rng(self, stream: int) -> np.random.Generator:
        rng = self._rngs[stream]
        if rng is None:
            rng = self._rngs[stream] = np.random.default_rng()
        return rng

    def snapshot(self) -> dict[str, Any]:
        """Everything that drawing on needs."""
        rngs = [None if rng is None else rng.bit_generator.state for rng in self._rngs]
        return {"rngs": rngs, "ahead": self._ahead.copy(), "used": self._used.copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._ahead, self._used = snapshot["ahead"].copy(), snapshot["used"].copy()
        for stream, state in enumerate(snapshot["rngs"]):
            self._rngs[stream] = None
            if state is not None:
                self._rng(stream).bit_generator.state = state
