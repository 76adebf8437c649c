"""Features of linear methods, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from closeness import assert_near
from gymnasium import spaces

import rlbook
from rlbook.interaction.features import FeatureConfig, Features, add, linear, make_features
from rlbook.interaction.spaces import adapt

SQUARE = spaces.Box(np.array([0.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64)


class Linear:
    observations, actions = "numbers", "discrete"


def made(space: spaces.Space, **options: object) -> Features:
    return make_features(space, FeatureConfig(**options))  # type: ignore[arg-type]


def test_table_features_number_the_states() -> None:
    states = made(spaces.Discrete(5))
    assert (states.num_features, states.binary, list(states.active_features(3))) == (5, True, [3])
    cards = made(spaces.MultiDiscrete([3, 4]))
    assert cards.num_features == 12 and list(cards.active_features(np.array([2, 1]))) == [2 * 4 + 1]
    np.testing.assert_array_equal(cards.active_features(np.array([[0, 0], [2, 3]])), [[0], [11]])
    np.testing.assert_array_equal(states.vector(np.array([4])), [[0, 0, 0, 0, 1]])


def test_aggregation_makes_equal_groups_of_whole_numbers() -> None:
    groups = made(spaces.Discrete(1000), features="aggregate", bins=10)
    found = groups.active_features(np.arange(1000))
    np.testing.assert_array_equal(found[:, 0], np.arange(1000) // 100)
    between = made(spaces.Discrete(1002), features="aggregate", bins=10, low=(1,), high=(1001,))
    assert [int(between.active_features(state)[0]) for state in (0, 1, 100, 101, 1000, 1001)] == [
        0,
        0,
        0,
        1,
        9,
        9,
    ]


def test_cells_of_a_box_are_numbered_with_the_last_dimension_fastest() -> None:
    cells = made(SQUARE, features="aggregate", bins=4)  # 0.25 and 1 wide
    assert cells.num_features == 16
    assert list(cells.active_features(np.array([0.3, 1.5]))) == [1 * 4 + 3]
    assert list(cells.active_features(np.array([-9.0, 2.0]))) == [0 * 4 + 3], (
        "what is outside is seen at the edge, and the upper edge belongs to it"
    )


def test_tilings_are_displaced_by_the_first_odd_numbers() -> None:
    tiles = made(SQUARE, features="tiles", bins=2, tilings=4)  # tiles of 0.5 x 2, three a dimension
    assert tiles.num_features == 4 * 3 * 3
    # (0.3, -0.5) lies 0.6 and 0.75 tiles from the low corner; tiling t is displaced by t/4 and 3t/4
    # mod 1: t = 0: (0.6, 0.75) → 0, 0;  t = 1: (0.85, 1.5) → 0, 1;  t = 2: (1.1, 1.25) → 1, 1;  t =
    # 3: (1.35, 1.0) → 1, 1
    expected = [0 * 9 + 0 * 3 + 0, 1 * 9 + 0 * 3 + 1, 2 * 9 + 1 * 3 + 1, 3 * 9 + 1 * 3 + 1]
    assert list(tiles.active_features(np.array([0.3, -0.5]))) == expected
    assert tiles.vector(np.array([0.3, -0.5])).sum() == 4


def test_a_displacement_of_a_tile_moves_every_tiling_by_one() -> None:
    tiles, rng = made(SQUARE, tilings=8, bins=5), np.random.default_rng(0)
    near = rng.uniform([0.0, -2.0], [0.8, 2.0], size=(200, 2))
    far = near + np.array([0.2, 0.0])  # one tile further in the first dimension
    inside = tiles.active_features(far) - tiles.active_features(near)
    assert np.isin(inside, [0, 6, 12]).all() and (np.abs(inside.mean() - 6) < 0.1)


@pytest.mark.parametrize(
    ("tilings", "places"), [(3, [3, 1]), (6, [6, 2]), (4, [4, 4]), (8, [8, 8])]
)
def test_a_power_of_two_displaces_every_tiling_along_every_dimension(
    tilings: int, places: list[int]
) -> None:
    """How many places the borders of one tile of 5 have, along each dimension: those of a multiple
    of 3 coincide in the second one."""
    tiles, along = made(SQUARE, tilings=tilings, bins=5), np.linspace(0.2, 0.4, 242)[1:-1]
    corner = np.array([0.0, -2.0])
    for dimension, expected in enumerate(places):
        seen = np.tile(corner, (len(along), 1))
        seen[:, dimension] += along * [1.0, 4.0][dimension]
        changes = np.diff(tiles.active_features(seen), axis=0).any(axis=1)
        assert changes.sum() + 1 == expected


def test_polynomials_and_cosines() -> None:
    powers = made(SQUARE, features="polynomial", order=2)
    x, y = 0.3, 0.375  # (-0.5 + 2) / 4
    expected = [1, y, y * y, x, x * y, x * y * y, x * x, x * x * y, x * x * y * y]
    assert_near(powers(np.array([0.3, -0.5])), expected, terms=4)
    waves = made(SQUARE, features="fourier", order=1)
    expected = [1, math.cos(math.pi * y), math.cos(math.pi * x), math.cos(math.pi * (x + y))]
    assert_near(waves(np.array([0.3, -0.5])), expected, terms=2, size=2 * math.pi)
    with pytest.raises(TypeError, match="Fourier features are dense"):
        waves.active_features(np.array([0.3, -0.5]))


@pytest.mark.parametrize("name", ["aggregate", "tiles", "polynomial", "fourier"])
def test_what_is_outside_of_the_box_is_seen_at_its_edge(name: str) -> None:
    found = made(SQUARE, features=name, low=[0.0, -1.0], high=[0.5, 1.0])
    outside, edge = np.array([[9.0, 0.3], [-9.0, 1.5]]), np.array([[0.5, 0.3], [0.0, 1.0]])
    assert found.vector(outside).tolist() == found.vector(edge).tolist()
    assert (found.vector(edge) != found.vector(edge - [0.2, 0.3])).any(axis=-1).all()


def test_features_may_be_given_for_each_state() -> None:
    rows = made(spaces.Discrete(2), features=[[2, 0, 1], [0, 2, 1]])
    assert rows.num_features == 3 and not rows.binary
    np.testing.assert_array_equal(rows(np.array([1, 0])), [[0, 2, 1], [2, 0, 1]])


@pytest.mark.parametrize("name", ["aggregate", "tiles", "polynomial", "fourier"])
@pytest.mark.parametrize("space", [SQUARE, spaces.Discrete(7), spaces.MultiDiscrete([3, 5])])
def test_many_observations_are_seen_like_each_alone(name: str, space: spaces.Space) -> None:
    features, weights = (
        made(space, features=name, bins=3, order=2, tilings=4),
        np.random.default_rng(0),
    )
    space.seed(0)
    some = [space.sample() for _ in range(5)]
    alone = [features(one) for one in some]
    assert_near(features(np.array(some)), np.array(alone), terms=features.num_features)
    first = features.vector(np.array(some[:1]))
    assert_near(first, np.array([features.vector(some[0])]), terms=features.num_features)
    w = weights.random((features.num_features, 2))
    count = features.num_features
    rounded: dict[str, float] = {"terms": count, "size": count}
    assert_near(
        linear(w, features(np.array(some))),
        np.array([features.vector(one) @ w for one in some]),
        **rounded,
    )
    assert_near(linear(w[:, 0], alone[0]), features.vector(some[0]) @ w[:, 0], **rounded)
    grown = w[:, 0].copy()
    add(grown, alone[0], 0.5)
    assert_near(grown, w[:, 0] + 0.5 * features.vector(some[0]), terms=2)


def test_what_has_no_features_is_refused_in_one_sentence() -> None:
    endless = spaces.Box(np.array([0.0, -np.inf]), np.array([1.0, np.inf]), dtype=np.float64)
    for space, options, sentence in (
        (
            endless,
            {},
            (
                "features 'tiles' need bounds, but dimension 1 of the observations has none: give"
                " low and high, one number for each of 2 dimensions"
            ),
        ),
        (
            endless,
            {"low": (0, 1), "high": (1,)},
            "high must have one number for each of the 2 dimensions of an observation, got 1",
        ),
        (
            endless,
            {"low": (0, 1), "high": (1, 0)},
            "low must be below high in each dimension, got 1 and 0 in dimension 1",
        ),
        (
            SQUARE,
            {"features": "table"},
            (
                "features 'table' need discrete states, but these observations are continuous; use"
                " tiles or aggregate"
            ),
        ),
        (
            SQUARE,
            {"features": ((1.0,),)},
            "features given as vectors need discrete states, but these observations are continuous",
        ),
        (
            spaces.Discrete(3),
            {"features": ((1.0,),)},
            "features must be one vector for each of the 3 states, got 1",
        ),
        (
            SQUARE,
            {"bins": 9_999},
            "features 'tiles' would be 800,000,000 here (at most 10,000,000); lower bins",
        ),
        (
            SQUARE,
            {"features": "fourier", "order": 10**9},
            "features 'fourier' would be about 10^18 here (at most 10,000,000); lower order",
        ),
    ):
        with pytest.raises(rlbook.RequestError) as refused:
            made(space, **options)
        assert str(refused.value) == sentence
    for wrong, sentence in (
        ({"features": "tile"}, "got 'tile' (did you mean 'tiles'?)"),
        ({"features": [[1.0], [1.0, 2.0]]}, "or a vector for each state, got"),
        ({"tilings": 0}, "tilings must be an integer of at least 1"),
        ({"low": (math.inf,)}, "low must be a tuple of finite numbers"),
    ):
        with pytest.raises(ValueError, match=r"^(features|tilings|low) must be") as refused:
            FeatureConfig(**wrong)  # type: ignore[arg-type]
        assert sentence in str(refused.value)


def test_spaces_become_numbers() -> None:
    hand = spaces.Tuple((spaces.Discrete(4, start=2), spaces.MultiBinary(2)))
    whole = adapt(hand, spaces.Discrete(2), Linear)  # type: ignore[arg-type]
    assert whole.observation_space == spaces.MultiDiscrete([4, 2, 2]) and whole.observe is not None
    np.testing.assert_array_equal(whole.observe((3, np.array([0, 1]))), [1, 0, 1])
    mixed = adapt(
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, np.inf, (1, 1))}),
        spaces.Discrete(2),
        Linear,
    )  # type: ignore[arg-type]
    space = mixed.observation_space
    assert isinstance(space, spaces.Box) and mixed.observe is not None
    assert (list(space.low), list(space.high)) == ([0, -1], [3, np.inf])
    np.testing.assert_array_equal(mixed.observe({"a": 2, "b": np.array([[0.5]])}), [2, 0.5])
    with pytest.raises(FloatingPointError):
        mixed.observe({"a": 2, "b": np.array([[np.nan]])})
    assert adapt(spaces.Discrete(3), spaces.Discrete(2), Linear).observe is None  # type: ignore[arg-type]
