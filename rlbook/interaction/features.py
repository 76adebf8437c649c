"""Feature vectors x(s) of observations, for linear function approximation.

    table        one feature a state: 1 for the state that is seen. The tabular case.
    aggregate    the box between `low` and `high` cut into `bins` cells per dimension: 1 for the cell that s lies in
    tiles        `tilings` such grids, each displaced against the first: 1 for the tile of each grid that s lies in
    polynomial   Π_i x_i^c_i for all exponents c_i from 0 to `order`
    fourier      cos(π Σ_i c_i x_i) for all frequencies c_i from 0 to `order`
    rows         of each numbered state the vector given for it

Table, aggregate and tiles are binary: K of the d features are 1, and only these are named, as `[K]`
integers. The others are
dense: `[d]` numbers. Polynomial and Fourier features see s scaled to [0, 1] between `low` and
`high`.

A tile is (high - low) / bins wide. Tiling t of T is displaced by t · (1, 3, 5, ...) / T mod 1 tiles
along the dimensions, so that the tilings do not lie along one diagonal; it has a tile more per
dimension, since a displaced grid would else not cover the box. With d dimensions that makes T ·
(bins + 1)^d features. A whole number k out of n counts as the interval [k, k + 1) of [0, n].

Along the dimension of the odd number k, the T displacements differ only if k and T share no factor:
with T = 3 the second dimension is displaced by whole tiles, that is not at all. With a power of 2
they differ in all dimensions; the book recommends one of at least 4 D.

Source: Sutton & Barto 2018, sections 9.3 (aggregation) and 9.5.1 to 9.5.4, eq. 9.17 and 9.18; the
displacements: Miller & Glanz
1996. Difference: no hashing; what is outside the box is seen at its edge.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from rlbook.checks import at_least, did_you_mean, finite, positive_int
from rlbook.errors import RequestError
from rlbook.hyperparameters import Hyperparameters

AUTO, TABLE, AGGREGATE, TILES, POLYNOMIAL, FOURIER = NAMES = (
    "auto",
    "table",
    "aggregate",
    "tiles",
    "polynomial",
    "fourier",
)
MAX_FEATURES = 10_000_000  # features times actions
FeatureChoice = str | tuple[tuple[float, ...], ...]
"""The possible values of the hyper-parameter."""


@dataclass(frozen=True)
class FeatureConfig(Hyperparameters):
    """Hyper-parameters of the feature construction."""

    # table, aggregate, tiles, polynomial, fourier, a feature vector per discrete state, or auto:
    # table for discrete states, otherwise tiles
    features: FeatureChoice = AUTO
    # tiles: number of tilings, each offset from the others, at least 1
    tilings: Annotated[int, positive_int] = 8
    # tiles and aggregate: cells per dimension between low and high, at least 1
    bins: Annotated[int, positive_int] = 8
    # polynomial and fourier: largest exponent or frequency, at least 0
    order: Annotated[int, at_least(0)] = 3
    # lower bound of each dimension; empty: taken from the observation space
    low: tuple[float, ...] = ()
    # upper bound of each dimension; empty: taken from the observation space
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "features", _plain(self.features))
        for name in ("low", "high"):
            values = getattr(self, name)
            if not isinstance(values, tuple | list) or not all(
                finite.allows(value) for value in values
            ):
                raise ValueError(
                    f"{name} must be a tuple of finite numbers, one for each dimension, got"
                    f" {values!r}"
                )
            object.__setattr__(self, name, tuple(float(value) for value in values))


def _plain(features: object) -> FeatureChoice:
    wanted = (
        f"features must be one of {', '.join(map(repr, NAMES))} or a vector for each state, got"
    )
    if isinstance(features, np.ndarray):
        features = features.tolist()
    if isinstance(features, str):
        if features not in NAMES:
            raise ValueError(f"{wanted} {features!r}{did_you_mean(features, NAMES, ' ({})')}")
        return features
    if (
        isinstance(features, tuple | list)
        and features
        and all(isinstance(row, tuple | list) for row in features)
    ):
        rows = tuple(tuple(row) for row in features)
        if rows[0] and all(
            len(row) == len(rows[0]) and all(finite.allows(x) for x in row) for row in rows
        ):
            return tuple(tuple(float(x) for x in row) for row in rows)
    raise ValueError(f"{wanted} {str(features)[:60]}")


class Features(ABC):
    """A feature map x(s). Observations are numbered states, scalar or [N], or vectors of D numbers,
    [D] or [N, D]."""

    num_features: int
    """d, the number of features."""
    num_active = 1
    """K, the number of active features; 1 for dense features, which do not divide the step size."""
    note: str
    """A description of the features, for the run's notes."""
    binary = True
    """Whether `self(observation)` returns the indices of the K features that are 1, rather than all
    d numbers."""

    @abstractmethod
    def __call__(self, observations: ArrayLike) -> NDArray:
        """Binary features: the distinct indices of the features that are 1, [K] or [N, K] int64.
        Dense features: [d] or [N, d] float64."""

    def active_features(self, observations: ArrayLike) -> NDArray[np.int64]:
        """The indices of the active features, [K] or [N, K]. Raises TypeError if features are
        dense."""
        if not self.binary:
            raise TypeError(
                f"{type(self).__name__} features are dense, so there is no list of active ones"
            )
        return self(observations)

    def vector(self, observations: ArrayLike) -> NDArray[np.float64]:
        """The full feature vector, [d] or [N, d]."""
        found = self(observations)
        if not self.binary:
            return found
        whole = np.zeros((*found.shape[:-1], self.num_features))
        np.put_along_axis(whole, found, 1.0, axis=-1)
        return whole


class TableFeatures(Features):
    """One-hot features: one for each state.

    Args:
        sizes: how many values each component of an observation has. Several are numbered in mixed
            radix, the last one fastest, as for agents with a table.
        numbered: observations are single numbers, and no vectors.
    """

    def __init__(self, sizes: NDArray[np.int64], *, numbered: bool) -> None:
        self.num_features = math.prod(int(size) for size in sizes)
        self._weights = None if numbered else place_values(sizes)
        self.note = f"features: one for each of {self.num_features:,} states"

    def __call__(self, observations: ArrayLike) -> NDArray[np.int64]:
        digits = np.asarray(observations, dtype=np.int64)
        return (digits if self._weights is None else digits @ self._weights)[..., None]


class FeatureRows(Features):
    """Features looked up in a table with a row for each of S numbered states.

    Args:
        rows: [S, d], given by the user; or [S, d] or [S, K], as another feature map has them.
        like: that map.
    """

    binary = False

    def __init__(self, rows: NDArray, like: Features | None = None) -> None:
        self.rows, self.num_features = rows, rows.shape[1]
        self.note = f"features: the {rows.shape[1]} given for each of {len(rows):,} states"
        if like is not None:
            self.num_features, self.num_active = like.num_features, like.num_active
            self.binary, self.note = like.binary, like.note

    def __call__(self, observations: ArrayLike) -> NDArray:
        return self.rows[np.asarray(observations)]


class BoxFeatures(Features):
    """Base class for features of numbers between `low` and `high`.

    Args:
        low, high: [D].
        numbered: observations are single numbers, and no vectors of D.
    """

    def __init__(
        self, low: NDArray[np.float64], high: NDArray[np.float64], *, numbered: bool
    ) -> None:
        self._low, self._width, self._numbered = low, high - low, numbered
        self.over = f"{len(low)} dimensions, over {interval(low, high)}"

    def from_low(self, observations: ArrayLike) -> NDArray[np.float64]:
        """Distance of observations above `low`: [D] or [N, D]."""
        found = np.asarray(observations, dtype=np.float64)
        return (found[..., None] if self._numbered else found) - self._low

    def scale(self, observations: ArrayLike) -> NDArray[np.float64]:
        """Observations scaled to [0, 1], [D] or [N, D]."""
        return np.clip(self.from_low(observations) / self._width, 0.0, 1.0)


class Tiles(BoxFeatures):
    """Tile coding: `tilings` offset grids with `bins` tiles per dimension; a single tiling is state
    aggregation."""

    def __init__(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        bins: int,
        tilings: int,
        *,
        numbered: bool,
    ) -> None:
        super().__init__(low, high, numbered=numbered)
        cells = bins if tilings == 1 else bins + 1
        each, odd = cells ** len(low), 2 * np.arange(len(low)) + 1
        self.num_features, self.num_active = tilings * each, tilings
        self._bins, self._last = float(bins), math.nextafter(bins, 0)
        self._shifts = np.arange(tilings)[:, None] * odd % tilings / tilings  # [T, D], in tiles
        self._weights, self._first = (
            place_values(np.full(len(low), cells)),
            np.arange(tilings) * each,
        )
        what = f"{bins} cells" if tilings == 1 else f"{tilings} tilings of {bins} tiles"
        self.note = f"features: {self.num_features:,}, {what} for each of {self.over}"

    def __call__(self, observations: ArrayLike) -> NDArray[np.int64]:
        tile = self.from_low(observations) * self._bins / self._width  # [..., D], in tiles
        tile = np.minimum(np.maximum(tile, 0.0), self._last)
        return (tile[..., None, :] + self._shifts).astype(np.int64) @ self._weights + self._first


class Polynomial(BoxFeatures):
    """Polynomial features: products of powers up to `order` of the scaled components."""

    binary = False

    def __init__(
        self, low: NDArray[np.float64], high: NDArray[np.float64], order: int, *, numbered: bool
    ) -> None:
        super().__init__(low, high, numbered=numbered)
        self.exponents = _grid(order, len(low))
        self.num_features = len(self.exponents)
        self.note = (
            f"features: {self.num_features:,}, products of powers up to {order} of each of"
            f" {self.over}"
        )

    def __call__(self, observations: ArrayLike) -> NDArray[np.float64]:
        return (self.scale(observations)[..., None, :] ** self.exponents).prod(axis=-1)


class Fourier(BoxFeatures):
    """Fourier features: cosines of the scaled components, with frequencies up to `order`."""

    binary = False

    def __init__(
        self, low: NDArray[np.float64], high: NDArray[np.float64], order: int, *, numbered: bool
    ) -> None:
        super().__init__(low, high, numbered=numbered)
        self.frequencies = _grid(order, len(low))
        self.num_features = len(self.frequencies)
        self.note = (
            f"features: {self.num_features:,}, cosines of frequencies up to {order} of each of"
            f" {self.over}"
        )

    def __call__(self, observations: ArrayLike) -> NDArray[np.float64]:
        return np.cos(math.pi * (self.scale(observations) @ self.frequencies.T))


def linear(weights: NDArray[np.float64], features: NDArray) -> NDArray[np.float64]:
    """The linear value w·x(s), in the units of the weights.

    Args:
        weights: [d], or [d, A] for A products at once.
        features: as `Features` gives them, of one observation or of N.

    Returns:
        [] or [N]; with weights [d, A], [A] or [N, A].
    """
    if features.dtype.kind == "f":
        return features @ weights
    return weights[features].sum(axis=features.ndim - 1)


def add(weights: NDArray[np.float64], features: NDArray, amount: float) -> None:
    """w ← w + amount · x(s), in place on weights [d], for one observation."""
    if features.dtype.kind == "f":
        weights += amount * features
    else:
        weights[features] += amount


def make_features(space: spaces.Space, config: FeatureConfig, num_actions: int = 1) -> Features:
    """Builds the feature map for observations of this space.

    Args:
        space: Discrete or MultiDiscrete from 0, or a Box [D]: what `adapt` makes of any space for
            observations = "numbers".
        config: which features.
        num_actions: A, where there is a weight for each action.

    Raises:
        RequestError: one sentence: the space has no bounds, or is not finite, or there would be too
            many features.
    """
    choice, numbered = config.features, isinstance(space, spaces.Discrete)
    if choice == AUTO:
        choice = TILES if isinstance(space, spaces.Box) else TABLE
    if not isinstance(choice, str):
        return _given_rows(space, choice)
    if choice == TABLE:
        if isinstance(space, spaces.Box):
            raise RequestError(
                "features 'table' need discrete states, but these observations are continuous; "
                "use tiles or aggregate"
            )
        sizes = _sizes(space)
        _check_number(choice, math.prod(int(size) for size in sizes), num_actions)
        return TableFeatures(sizes, numbered=numbered)
    found = _box_features(space, config, choice, num_actions)
    if (
        isinstance(space, spaces.Discrete)
        and int(space.n) * (found.num_active if found.binary else found.num_features)
        <= MAX_FEATURES
    ):
        return FeatureRows(found(np.arange(space.n)), found)
    return found


def _box_features(
    space: spaces.Space, config: FeatureConfig, choice: str, num_actions: int
) -> Features:
    low, high = _bounds(space, config, choice)
    numbered = isinstance(space, spaces.Discrete)
    if choice in (TILES, AGGREGATE):
        tilings = config.tilings if choice == TILES else 1
        _check_number(
            choice, tilings * (config.bins + (tilings > 1)) ** len(low), num_actions, "; lower bins"
        )
        return Tiles(low, high, config.bins, tilings, numbered=numbered)
    _check_number(choice, (config.order + 1) ** len(low), num_actions, "; lower order")
    return (Polynomial if choice == POLYNOMIAL else Fourier)(
        low, high, config.order, numbered=numbered
    )


def _check_number(choice: str, found: int, num_actions: int, remedy: str = "") -> None:
    if found * num_actions > MAX_FEATURES:
        raise RequestError(
            f"features {choice!r} would be {power(found)} here (at most"
            f" {MAX_FEATURES // num_actions:,}){remedy}"
        )


def _given_rows(space: spaces.Space, rows: tuple[tuple[float, ...], ...]) -> FeatureRows:
    if not isinstance(space, spaces.Discrete):
        raise RequestError(
            "features given as vectors need discrete states, but these observations are continuous"
        )
    if len(rows) != space.n:
        raise RequestError(
            f"features must be one vector for each of the {space.n} states, got {len(rows)}"
        )
    return FeatureRows(np.array(rows))


def _bounds(
    space: spaces.Space, config: FeatureConfig, choice: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds, [D] each: `low` and `high` of the config, else of the space."""
    if isinstance(space, spaces.Box):
        own = (space.low, space.high)
    else:
        sizes = _sizes(space)
        own = (np.zeros(len(sizes)), sizes.astype(float))
    found = []
    for name, bound in zip(("low", "high"), own, strict=True):
        given = getattr(config, name)
        if given and len(given) != len(bound):
            raise RequestError(
                f"{name} must have one number for each of the {len(bound)} dimensions of an"
                f" observation, got {len(given)}"
            )
        if not given and not np.isfinite(bound).all():
            where = np.flatnonzero(~np.isfinite(bound))[0]
            wanted = f"low and high, one number for each of {len(bound)} dimensions"
            raise RequestError(
                f"features {choice!r} need bounds, but dimension {where} of the observations has "
                f"none: give {wanted}"
            )
        found.append(np.array(given or bound, dtype=float))
    low, high = found
    if not (low < high).all():
        where = np.flatnonzero(~(low < high))[0]
        raise RequestError(
            f"low must be below high in each dimension, got {low[where]:g} and {high[where]:g} in"
            f" dimension {where}"
        )
    return low, high


def _sizes(space: spaces.Space) -> NDArray[np.int64]:
    """The number of values of each component."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    assert isinstance(space, spaces.MultiDiscrete)
    return space.nvec


def interval(low: NDArray[np.float64], high: NDArray[np.float64]) -> str:
    """The intervals, as text: one if all are alike, else the first eight."""
    texts = [f"[{a:.4g}, {b:.4g}]" for a, b in zip(low, high, strict=True)]
    if len(set(texts)) == 1:
        return texts[0]
    return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "")


def power(size: int) -> str:
    """A count as text: exact below 10^12, else its order of magnitude."""
    return f"{size:,}" if size < 10**12 else f"about 10^{math.floor(math.log10(size))}"


def place_values(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """The place values of a mixed-radix number: [D], the last one 1."""
    return np.array(
        [math.prod(int(size) for size in sizes[i + 1 :]) for i in range(len(sizes))], dtype=np.int64
    )


def _grid(order: int, dimensions: int) -> NDArray[np.float64]:
    """All exponent vectors with D components from 0 to `order`, last component fastest: [(order +
    1)^D, D]."""
    return np.stack(
        np.unravel_index(np.arange((order + 1) ** dimensions), (order + 1,) * dimensions), axis=-1
    ).astype(float)
