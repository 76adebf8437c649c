"""Converts between single observations of a Gymnasium space and batches of them, and tells the two
apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import ArrayLike

from rlbook.errors import ShortTraceback

Elements = ArrayLike | Mapping[str, "Elements"] | tuple["Elements", ...]
"""One or more elements of a space, in the space's format."""


class WrongObservation(ShortTraceback, ValueError):
    """A value to act on is neither an observation of the environment nor a batch of them."""


def is_batch(space: spaces.Space, observation: Elements) -> bool:
    """Whether these are N observations of a space rather than a single one.

    Raises:
        WrongObservation: they are neither.
    """
    depth = _depth(space, observation)
    if depth in (0, 1):
        return depth == 1
    raise WrongObservation(
        f"predict takes one observation of {space_text(space)}, or a batch of them, got"
        f" {_description(observation)}"
    )


def as_batch(space: spaces.Space, rows: list[Any]) -> Any:
    """N elements of a space as a Gymnasium batch: an array, or a dict or a tuple of arrays."""
    return concatenate(space, rows, create_empty_array(space, len(rows)))


def as_arrays(space: spaces.Space, observation: Elements) -> Any:
    """One or several observations, with lists as arrays and numbers in the space's type.

    Raises:
        ValueError: a number is none of that type, such as 0.5 in an image of bytes.
    """
    if isinstance(space, spaces.Dict):
        return {name: as_arrays(part, observation[name]) for name, part in space.spaces.items()}  # type: ignore[call-overload,index]
    if isinstance(space, spaces.Tuple):
        return tuple(map(as_arrays, space.spaces, observation))  # type: ignore[arg-type]
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return observation
    array = np.asarray(observation)
    with np.errstate(invalid="ignore"):
        same = array.astype(space.dtype, copy=False)
    if same.dtype.kind in "iu" and not np.array_equal(same, array):
        raise ValueError(
            f"predict takes an observation of {space_text(space)} with numbers of {same.dtype},"
            f" got {array[same != array].flat[0]}"
        )
    return same


def rows_of(space: spaces.Space, batch: Elements) -> list[Any]:
    """The elements of a batch, one by one."""
    found: Iterator[Any] = iterate(batch_space(space, length(space, batch)), batch)
    return [*found]


def length(space: spaces.Space, observations: Elements) -> int:
    """The size N of a batch."""
    if isinstance(space, spaces.Dict):
        name, part = next(iter(space.spaces.items()))
        return length(part, observations[name])  # type: ignore[call-overload,index]
    if isinstance(space, spaces.Tuple):
        return length(space.spaces[0], observations[0])  # type: ignore[index]
    return len(observations)  # type: ignore[arg-type]


def plain(action: ArrayLike) -> Any:
    """A NumPy scalar as a Python number."""
    return action.item() if isinstance(action, np.generic) else action


def space_text(space: spaces.Space[Any]) -> str:
    """A short description of a space: its kind and its size."""
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.reshape(-1)
        same = math.prod(space.nvec.shape) > 1 and (sizes == sizes[0]).all()
        return (
            f"MultiDiscrete({sizes[0]}, {len(sizes)} times)"
            if same
            else f"MultiDiscrete({[*map(int, sizes)]})"
        )
    if isinstance(space, spaces.Box):
        return f"Box{space.shape}"
    if isinstance(space, spaces.Dict):
        parts = (f"{key}={space_text(part)}" for key, part in space.spaces.items())
        return f"Dict({', '.join(parts)})"
    if isinstance(space, spaces.Tuple):
        return f"Tuple({', '.join(map(space_text, space.spaces))})"
    return str(space)


def _depth(space: spaces.Space, observation: Elements) -> int:
    """The number of axes that an observation has in addition to the space's; negative if it is not
    such an array."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
            return -1
        depths = {_depth(part, observation[name]) for name, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        if not isinstance(observation, tuple) or len(observation) != len(space.spaces):
            return -1
        depths = {_depth(*pair) for pair in zip(space.spaces, observation, strict=True)}
    elif space.shape is None:
        return 0 if space.contains(observation) else 1 if isinstance(observation, tuple) else -1
    else:
        found = _as_numbers(observation)
        begin = -1 if found is None else found.ndim - len(space.shape)
        fits = found is not None and begin >= 0 and found.shape[begin:] == space.shape
        depths = {begin if fits else -1}
    return depths.pop() if len(depths) == 1 else -1


def _as_numbers(observation: Elements) -> np.ndarray | None:
    """What one or several observations are as an array of numbers; None where they are none."""
    try:
        found = np.asarray(observation)
    except ValueError:  # rows of several lengths, or a pair of an array and a dict
        return None
    return found if found.dtype.kind in "fiub" else None


def _description(observation: Elements) -> str:
    if isinstance(observation, tuple) and observation and isinstance(observation[-1], Mapping):
        made = {
            2: "obs, info = env.reset(…)",
            5: "obs, reward, terminated, truncated, info = env.step(…)",
        }
        if len(observation) in made:
            return f"a tuple that ends with a dict; unpack it: {made[len(observation)]}"
    if isinstance(observation, Mapping):
        parts = (f"{name}={_part_text(part)}" for name, part in observation.items())
        return f"Dict({', '.join(parts)})"
    if isinstance(observation, np.ndarray | list) and _as_numbers(observation) is not None:
        return f"an array of shape {np.shape(observation)}"
    return f"{' '.join(repr(observation).split()):.60}"


def _part_text(part: Elements) -> str:
    """A part of a wrong observation: a number or another thing, or an array by its shape."""
    found = _as_numbers(part)
    return f"array{found.shape}" if found is not None and found.ndim else f"{part!r:.20}"


def is_equal(one: object, other: object) -> bool:
    """Whether two observations, or two states of random generators, are the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return np.array_equal(one, other)  # type: ignore[arg-type]
