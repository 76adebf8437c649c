"""Observations as integers, so that a search recognises a state it has met."""

from __future__ import annotations

import hashlib

import numpy as np
from gymnasium import spaces


def content(observation: object) -> int:
    """An observation as an integer: equal ones give equal integers, different ones different
    integers except with probability 2^-60.
    """
    if isinstance(observation, int | np.integer):
        return int(observation)
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, observation)
    return int.from_bytes(digest.digest(), "little") >> 4


def _feed(digest: hashlib.blake2b, part: object) -> None:
    if isinstance(part, dict):
        for item in part.values():
            _feed(digest, item)
    elif isinstance(part, tuple | list):
        for item in part:
            _feed(digest, item)
    elif isinstance(part, str):
        digest.update(part.encode())
    else:
        digest.update(np.asarray(part).tobytes())


def repeats(space: spaces.Space) -> bool:
    """Whether the same observation can be expected to occur again, so that chance nodes make
    sense."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return all(
            map(repeats, space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)
        )
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
