"""Whatever the spaces: a sensible fit that says what it did, or the reason why there is none."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near
from gymnasium import spaces

import rlbook
from rlbook.errors import RequestError
from rlbook.fast.library_choice import CHOICE
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.spaces import Adaptation, adapt

FLAT = spaces.Discrete(2)
WIDTHS = np.arange(1, 10, dtype=np.float32)


class Tabular:
    observations, actions = "index", "discrete"


class Value:
    observations, actions = "vector", "discrete"


class Policy:
    observations, actions = "policy", "any"


class Scaled:
    observations, actions = "vector", "scaled"


class ScaledBox:
    observations, actions = "vector", "scaled box"


def fitted(space: spaces.Space, agent: Any, **options: Any) -> Adaptation:
    return adapt(space, FLAT, agent, **options)


def shown(made: Adaptation, x: Any) -> Any:
    return x if made.observe is None else made.observe(x)


NESTED = spaces.Dict(
    {
        "where": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(2))),
        "how": spaces.MultiDiscrete([2, 4]),
    }
)

# space → an observation, its vector, and its number
OBSERVATIONS: dict[str, tuple[spaces.Space, Any, list[float], int]] = {
    "Discrete": (spaces.Discrete(4), 2, [0, 0, 1, 0], 2),
    "Discrete with a start": (spaces.Discrete(4, start=-1), 1, [0, 0, 1, 0], 2),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1], 1 * 3 + 2),
    "MultiDiscrete with a start": (
        spaces.MultiDiscrete([2, 3], start=[4, 7]),
        np.array([5, 9]),
        [0, 1, 0, 0, 1],
        1 * 3 + 2,
    ),
    "MultiDiscrete of two axes": (
        spaces.MultiDiscrete([[2], [3]]),
        np.array([[1], [2]]),
        [0, 1, 0, 0, 1],
        1 * 3 + 2,
    ),
    "MultiBinary": (spaces.MultiBinary(3), np.array([1, 0, 1], dtype=np.int8), [1, 0, 1], 0b101),
    "MultiBinary of two axes": (
        spaces.MultiBinary([2, 2]),
        np.array([[1, 0], [1, 1]], dtype=np.int8),
        [1, 0, 1, 1],
        0b1011,
    ),
    "Box": (
        spaces.Box(0, 10, (2,)),
        np.array([4.5, 9.0], dtype=np.float32),
        [4.5, 9.0],
        4 * 10 + 9,
    ),
    "Box of no axes": (spaces.Box(0, 10, ()), np.array(4.5, dtype=np.float32), [4.5], 4),
    "image": (
        spaces.Box(0, 255, (1, 2, 1), np.uint8),
        np.array([[[26], [255]]], dtype=np.uint8),
        [26, 255],
        1 * 10 + 9,
    ),
    # 10 bins on [-3, 3], on [2, 2 + 6] and on [1 - 6, 1]: -3 + 6 · 0.45 = -0.3 is in bin 4, 2 + 6 ·
    # 0.75 in bin 7, far below -5 in bin 0
    "Box without bounds": (
        spaces.Box(
            np.array([-np.inf, 2, -np.inf]), np.array([np.inf, np.inf, 1]), dtype=np.float64
        ),
        np.array([-0.3, 6.5, -99.0]),
        [-0.3, 6.5, -99.0],
        470,
    ),
    "Box of one value": (
        spaces.Box(np.array([1.0, 0.0]), np.array([1.0, 1.0]), dtype=np.float64),
        np.array([1.0, 0.35]),
        [1.0, 0.35],
        3,
    ),
    "nested": (
        NESTED,
        {"where": (6, np.array([1, 0], dtype=np.int8)), "how": np.array([1, 3])},
        [0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0],
        ((((1 * 4 + 3) * 3 + 1) * 2 + 1) * 2 + 0),
    ),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_observation_becomes_a_vector_and_a_number(name: str) -> None:
    space, x, vector, number = OBSERVATIONS[name]
    assert space.contains(x)
    as_vector, as_index = fitted(space, Value), fitted(space, Tabular)
    found = shown(as_vector, x)
    assert found.dtype == np.float32 and as_vector.observation_space.shape == found.shape
    assert_near(found, vector, terms=2)
    index = shown(as_index, x)
    assert index == number and type(index) is int
    assert isinstance(
        as_index.observation_space, spaces.Discrete
    ) and as_index.observation_space.contains(index)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_many_observations_at_once_are_fitted_like_each_alone(name: str) -> None:
    space = OBSERVATIONS[name][0]
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    batch = gymnasium.vector.utils.concatenate(
        space, samples, gymnasium.vector.utils.create_empty_array(space, 6)
    )
    for agent in (Value, Tabular):
        made = fitted(space, agent)
        np.testing.assert_array_equal(
            shown(made, batch), np.stack([shown(made, sample) for sample in samples])
        )


def test_different_states_have_different_numbers_that_fill_the_table() -> None:
    space = spaces.Dict(
        {
            "a": spaces.MultiDiscrete([2, 3]),
            "b": spaces.Tuple((spaces.Discrete(2, start=3), spaces.MultiBinary(1))),
        }
    )
    made = fitted(space, Tabular)
    states = [
        {"a": np.array([i, j]), "b": (k, np.array([m]))}
        for i in range(2)
        for j in range(3)
        for k in (3, 4)
        for m in range(2)
    ]
    assert sorted(shown(made, state) for state in states) == list(range(2 * 3 * 2 * 2))
    assert made.observation_space == spaces.Discrete(24)


@pytest.mark.parametrize(
    ("space", "agent", "reason"),
    [
        (spaces.Text(5), Value, "Text observations have no fixed length"),
        (spaces.Sequence(spaces.Discrete(2)), Value, "Sequence observations have no fixed length"),
        (spaces.Graph(spaces.Discrete(2), None), Policy, "Graph observations have no fixed length"),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(3)}),
            Value,
            "Text observations have no fixed length",
        ),
        (spaces.Text(5), Tabular, "Text observations cannot be numbered"),
        (
            spaces.Tuple((spaces.Sequence(spaces.Discrete(2)),)),
            Tabular,
            "Sequence observations cannot be numbered",
        ),
        (
            spaces.MultiDiscrete([100] * 9),
            Tabular,
            "one row a state, and this observation space has about 10^18 of them",
        ),
        (spaces.Box(0, 255, (210, 160, 3), np.uint8), Tabular, "about 10^100800 of them"),
        (spaces.Box(0, 1, (2000, 1000)), Value, "flattens to 2,000,000 numbers"),
    ],
)
def test_where_no_fit_exists_the_reason_is_given(
    space: spaces.Space, agent: Any, reason: str
) -> None:
    with pytest.raises(rlbook.RequestError, match=reason.replace("^", r"\^")):
        fitted(space, agent)


@pytest.mark.parametrize(
    ("space", "agent", "size", "example"),
    [
        (spaces.Discrete(3, start=2), Tabular, 3, (1, 3)),
        (spaces.MultiDiscrete([2, 3]), Policy, 6, (4, [1, 1])),
        (spaces.MultiDiscrete([2, 3], start=[1, 5]), Tabular, 6, (4, [2, 6])),
        (spaces.MultiBinary(3), Value, 8, (0b110, [1, 1, 0])),
        (spaces.Box(-1, 1, (2,)), Value, 25, (1 * 5 + 4, [-0.5, 1.0])),
        (spaces.Box(-2, 2, (1, 1)), Tabular, 5, (0, [[-2.0]])),
        (spaces.Box(-2, 2, ()), Tabular, 5, (3, 1.0)),
    ],
)
def test_actions_are_joined_or_binned(
    space: spaces.Space, agent: Any, size: int, example: tuple[int, Any]
) -> None:
    made = adapt(spaces.Discrete(2), space, agent)
    assert made.action_space == spaces.Discrete(size)
    assert made.act is not None
    one, many = made.act(np.int64(example[0])), made.act(np.arange(size))
    np.testing.assert_array_equal(one, example[1])
    assert space.contains(np.asarray(one, dtype=space.dtype)) and len(many) == size
    np.testing.assert_array_equal(many[example[0]], one)


def test_a_gaussian_action_is_clipped_and_takes_the_shape_that_the_environment_wants() -> None:
    space = spaces.Box(np.array([[-1.0], [-np.inf]]), np.array([[1.0], [5.0]]), dtype=np.float64)
    made = adapt(spaces.Discrete(2), space, Policy)
    assert made.action_space == spaces.Box(
        np.array([-1, -np.inf], np.float32), np.array([1, 5], np.float32), dtype=np.float32
    )
    assert made.act is not None
    np.testing.assert_array_equal(made.act(np.array([3.0, -40.0], np.float32)), [[1.0], [-40.0]])
    assert made.act(np.zeros((7, 2), np.float32)).shape == (7, 2, 1)
    whole = adapt(spaces.Discrete(2), spaces.Box(0, 9, (1,), np.int64), Policy)
    assert whole.act is not None and whole.act(np.array([3.7], np.float32)) == np.array([4])


def test_a_scaled_action_covers_the_box_and_takes_the_shape_that_the_environment_wants() -> None:
    space = spaces.Box(np.array([[-1.0], [2.0]]), np.array([[1.0], [10.0]]), dtype=np.float64)
    made = adapt(spaces.Discrete(2), space, Scaled)
    assert made.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert made.act is not None
    np.testing.assert_array_equal(made.act(np.array([-1.0, -1.0], np.float32)), [[-1.0], [2.0]])
    np.testing.assert_array_equal(
        made.act(np.array([[0.5, 0.0], [1.0, 1.5]], np.float32)), [[[0.5], [6.0]], [[1.0], [10.0]]]
    )
    assert adapt(
        spaces.Discrete(2), spaces.Discrete(3, start=1), Scaled
    ).action_space == spaces.Discrete(3)


@pytest.mark.parametrize(
    ("space", "agent", "reason"),
    [
        (
            spaces.Box(np.array([0.0, 0.0]), np.array([1.0, np.inf]), (2,), np.float64),
            Scaled,
            "needs bounded actions, got an unbounded Box",
        ),
        (
            spaces.Discrete(3),
            ScaledBox,
            r"needs continuous actions \(Box\), got Discrete",
        ),
        (spaces.Box(-np.inf, np.inf, (1,)), Value, "an unbounded Box cannot be divided into bins"),
        (spaces.Box(-1, 1, (17,)), Value, "make 762,939,453,125 actions"),
        (spaces.MultiDiscrete([50, 50, 50]), Policy, "the joint action has 125,000 values"),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1))),
            Policy,
            "Tuple actions are neither discrete nor a box",
        ),
        (spaces.Text(3), Tabular, "Text actions are neither discrete nor a box"),
    ],
)
def test_actions_that_no_agent_can_choose_are_refused(
    space: spaces.Space, agent: Any, reason: str
) -> None:
    with pytest.raises(rlbook.RequestError, match=reason):
        adapt(spaces.Discrete(2), space, agent)


def test_an_environment_with_its_own_policy_shows_it_the_observation_itself() -> None:
    made = fitted(spaces.Text(5), Policy, own_policy=True)
    assert made.observe is None and made.observation_space == spaces.Text(5)


@pytest.mark.parametrize(
    ("box", "told"),
    [
        (spaces.Box(-1, 1, (6,)), None),
        (spaces.Box(-0.4, 0.4, (6,)), "[-0.4, 0.4]"),
        (spaces.Box(-WIDTHS[:2], WIDTHS[:2]), "[-1, 1], [-2, 2]"),
        (spaces.Box(-1.0, WIDTHS), ", ".join(f"[-1, {n}]" for n in range(1, 9)) + ", …"),
    ],
)
def test_bounds_that_are_alike_are_said_once(box: spaces.Box, told: str | None) -> None:
    line = f"action: the network's numbers from -1 to 1 are scaled to {told}"
    assert adapt(spaces.Box(0, 1), box, Scaled).notes == (() if told is None else (line,))


@pytest.mark.parametrize(
    ("algorithm", "env", "notes"),
    [
        (
            "ppo",
            "Maze-v0",
            ["observation: one-hot (for each state a vector with one 1 and zeros else)"],
        ),
        ("ppo", "CartPole-v1", []),
        (
            "ppo",
            "Pendulum-v1",
            ["action: drawn from a Gaussian, and clipped to the environment's bounds"],
        ),
        (
            "sac",
            "Pendulum-v1",
            ["action: the network's numbers from -1 to 1 are scaled to [-2, 2]"],
        ),
        ("dqn", "Pendulum-v1", ["action: 5 values for each of 1 dimensions, over [-2, 2]"]),
        ("q_learning", "Blackjack-v1", []),
        (
            "q_learning",
            "CartPole-v1",
            [
                "observation: 8 bins for each of 4 dimensions, over [-4.8, 4.8], [-3, 3], [-0.4189,"
                " 0.4189], [-3, 3]; each combination is a state"
            ],
        ),
    ],
)
def test_the_run_says_what_was_done(
    algorithm: str, env: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CHOICE, raising=False)  # a library that is asked for is noted too
    assert list(rlbook.train(algorithm, env, steps=8, eval_every=0).notes) == notes


class Everything(gymnasium.Env):
    """Lasts 12 steps. Pays 1 where the joint action is the one that the observation asks for."""

    metadata: dict[str, Any] = {"render_modes": []}
    observation_space = spaces.Dict(
        {"ask": spaces.MultiDiscrete([2, 2]), "noise": spaces.Box(-1, 1, (1, 2))}
    )
    action_space = spaces.MultiDiscrete([2, 2], start=[0, 1])

    def __init__(self, length: int = 12, uncopyable: Any = None) -> None:
        self.length, self.uncopyable = length, uncopyable

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.time += 1
        right = (action - [0, 1] == self.ask).all()
        return self._shown(), float(right), self.time == self.length, False, {}

    def _shown(self) -> Any:
        self.ask = self.np_random.integers(2, size=2)
        return {"ask": self.ask, "noise": self.np_random.uniform(-1, 1, (1, 2)).astype(np.float32)}


@pytest.mark.parametrize(
    "algorithm",
    [
        "q_learning",
        "ppo",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dqn", "grpo", "dpo")),
    ],
)
def test_an_instance_without_an_id_trains_and_is_evaluated(algorithm: str, tmp_path: Any) -> None:
    run = rlbook.train(algorithm, Everything(), steps=600, out=tmp_path / "run", eval_episodes=4)
    assert run.request.recipe.name == "Everything"
    assert set(rlbook.evaluate(run, episodes=5).lengths) == {12}
    with pytest.raises(rlbook.RequestError, match="made without an id or in wrappers; give env"):
        rlbook.load(tmp_path / "run")
    again = rlbook.load(tmp_path / "run", env=Everything())
    assert again.steps == run.steps and rlbook.evaluate(
        tmp_path / "run", env=Everything(5), episodes=3
    ).lengths.tolist() == [5, 5, 5]


@pytest.mark.thorough
def test_an_agent_learns_through_fitted_spaces() -> None:
    run = rlbook.train(
        "ppo",
        Everything(),
        steps=15_000,
        learning_rate=3e-3,
        rollout_steps=32,
        gamma=0.5,
        seed=0,
        eval_every=0,
    )
    # right in each of the 12 steps is 12; guessing gives 12 / 4 = 3
    assert rlbook.evaluate(run, episodes=20).mean > 11


def test_the_instance_itself_is_the_first_stream() -> None:
    env = Everything()
    rlbook.train("q_learning", env, steps=29, eval_every=0)
    assert env.time == 29 - 2 * 12


def test_an_instance_that_cannot_be_copied_says_so() -> None:
    with pytest.raises(
        rlbook.RequestError,
        match=r"'Everything' has no id and cannot be copied .*; register it and give its id",
    ):
        rlbook.train("ppo", Everything(uncopyable=threading.Lock()), steps=100)


def test_an_environment_registered_by_the_user_is_known_by_its_name() -> None:
    gymnasium.register("mine/Everything-v3", Everything, kwargs={"length": 4})
    try:
        assert "mine/Everything-v3" in rlbook.environments()
        run = rlbook.train("q_learning", "mine/Everything-v3", env_kwargs={"length": 3}, episodes=7)
        assert run.steps == 21
        with pytest.raises(
            rlbook.RequestError, match=r"has no argument 'lenght'; did you mean 'length'\?"
        ):
            rlbook.make("mine/Everything-v3", lenght=3)
    finally:
        del gymnasium.registry["mine/Everything-v3"]


class Halved(gymnasium.RewardWrapper):
    """A wrapper that does not tell gymnasium how it was made."""

    def __init__(self, env: gymnasium.Env, factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


def halved(env: Any) -> Any:
    return gymnasium.wrappers.TransformReward(env, lambda r: r / 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "wrap"),
    [
        ("q_learning", lambda env: Halved(env, 0.5)),
        ("ppo", halved),
        pytest.param("ppo", lambda env: Halved(env, 0.5), marks=pytest.mark.slow),
        pytest.param("q_learning", halved, marks=pytest.mark.slow),
    ],
)
def test_wrappers_stay_on_while_training_evaluating_and_resuming(
    algorithm: str, wrap: Any, tmp_path: Any
) -> None:
    env = wrap(rlbook.make("CartPole-v1", max_episode_steps=6))
    run = rlbook.train(algorithm, env, steps=96, out=tmp_path / "run", num_envs=1, eval_every=0)
    assert set(run.episode_returns) == {3.0}, "six rewards of one half"
    assert set(rlbook.evaluate(run, episodes=3).returns) == {3.0}
    with pytest.raises(rlbook.RequestError, match="give env"):
        rlbook.load(tmp_path / "run")
    fresh = wrap(rlbook.make("CartPole-v1", max_episode_steps=6))
    longer = rlbook.load(tmp_path / "run", env=fresh).resume(steps=120)
    assert set(longer.episode_returns) == {3.0} and len(longer.episode_returns) == 120 // 6


@pytest.mark.parametrize(
    ("algorithm", "limit"),
    [
        ("q_learning", 7),
        ("ppo", -1),
        pytest.param("q_learning", -1, marks=pytest.mark.slow),
        pytest.param("ppo", 7, marks=pytest.mark.slow),
    ],
)
def test_an_instance_keeps_its_arguments_and_its_time_limit(
    algorithm: str, limit: int, tmp_path: Any
) -> None:
    env = rlbook.make("Maze-v0", slip=0.25, max_episode_steps=limit)
    run = rlbook.train(algorithm, env, steps=2000, out=tmp_path / "run", eval_every=0)
    recipe = rlbook.load(tmp_path / "run").request.recipe
    assert recipe.kwargs["slip"] == 0.25 and recipe.time_limit == (None if limit == -1 else 7)
    lengths = [
        int(line.split(",")[2])
        for line in (tmp_path / "run" / "episodes.csv").read_text().splitlines()[1:]
    ]
    assert len(lengths) == len(run.episode_returns)
    assert max(lengths) == 7 if limit == 7 else max(lengths) > 100


def test_an_argument_that_is_not_data_cannot_be_written_down(tmp_path: Any) -> None:
    gymnasium.register("mine/Everything-v3", Everything)
    try:
        with pytest.raises(
            rlbook.RequestError, match=r"env_kwargs cannot be written to config\.yaml"
        ):
            rlbook.train(
                "q_learning",
                "mine/Everything-v3",
                env_kwargs={"uncopyable": object()},
                steps=10,
                out=tmp_path / "run",
            )
        assert not (tmp_path / "run").exists()
    finally:
        del gymnasium.registry["mine/Everything-v3"]


@pytest.mark.parametrize(
    "algorithm", ["value_iteration", "q_learning", "dqn", "ppo", "grpo", "dpo"]
)
def test_a_request_survives_its_file(algorithm: str) -> None:
    from rlbook.runs.request import Request

    env = "FrozenLake-v1"
    request = Request.build(
        algorithm,
        env,
        steps=7,
        seed=2**70,
        eval_every=3,
        env_kwargs={"is_slippery": False, "map_name": "8x8"},
    )
    again = Request.from_yaml(request.as_yaml())
    assert (
        again == request and EnvRecipe.from_env(env, kwargs=again.recipe.kwargs) == request.recipe
    )


def test_a_small_file_cannot_stand_for_a_vast_one() -> None:
    from rlbook.runs.request import Request

    bomb = "a: &a [1, 1]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(rlbook.RequestError, match="aliases are not allowed"):
        Request.from_yaml(f"algorithm: ppo\nenv: Maze-v0\nhyperparameters:\n{bomb}")


class Anything(gymnasium.Env):
    """One of these spaces, or none."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        if space is not None:
            self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise AssertionError("nobody gets that far")


HUGE = spaces.Box(-np.inf, np.inf, (1,))
HUGE._shape = (10**9,)  # as if its bounds had been allocated


@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo", "mcts", "sac"])
@pytest.mark.parametrize(
    ("space", "said"),
    [
        (None, "environment 'Anything' must have an observation_space of gymnasium's, got none"),
        (
            "numbers",
            "environment 'Anything' must have an observation_space of gymnasium's, got 'numbers'",
        ),
        (
            spaces.Dict({}),
            (
                "environment 'Anything' has an observation_space without components: there is"
                " nothing to observe"
            ),
        ),
        (
            spaces.Tuple(()),
            (
                "environment 'Anything' has an observation_space without components: there is"
                " nothing to observe"
            ),
        ),
        (
            spaces.Box(-1, 1, (0,)),
            (
                r"environment 'Anything' has an observation_space of shape \(0,\): there"
                r" is nothing to observe"
            ),
        ),
        (
            spaces.Dict({"a": spaces.Box(-1, 1, (3, 0))}),
            r"has an observation_space of shape \(3, 0\)",
        ),
        (HUGE, r"has an observation_space of 1,000,000,000 numbers \(at most 100,000,000\)"),
    ],
    ids=["none", "text", "no names", "no parts", "empty", "empty part", "huge"],
)
def test_a_space_in_which_nobody_could_learn_is_refused_at_once(
    algorithm: str, space: Any, said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        rlbook.train(algorithm, Anything(space), steps=20)
