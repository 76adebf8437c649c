"""Poles stepped in arrays: what one after the other gives, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from rlbook.envs.space_batches import is_equal
from rlbook.fast import cart_pole
from rlbook.fast.cart_pole import COMPARED, FEWEST
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.vector_envs.sync_vector import SyncVector

pytestmark = pytest.mark.numeric


def make_poles(n: int = FEWEST, **kwargs: Any) -> SyncVector:
    return SyncVector([gymnasium.make("CartPole-v1", **kwargs) for _ in range(n)])


def poles_in(vector: SyncVector) -> list[Any]:
    return [recorder.unwrapped for recorder in vector.envs]


def play(vector: SyncVector, steps: int, waits: bool, plain: bool) -> list[Any]:
    """Everything that `steps` steps show, of actions that fall to one side now and then; a pole
    that has fallen is reset at once, or it waits until all have."""
    rng, seen = np.random.default_rng(0), list[Any]()
    with use_plain_forms(plain):
        vector.reset(seed=5)
        for _ in range(steps):
            actions = (rng.random(vector.num_envs) < rng.choice([0.5, 0.5, 0.9])).astype(np.int64)
            seen += [vector.step(actions), copy.deepcopy(vector.snapshot())]
            seen.append(
                [(pole.state.tobytes(), pole.steps_beyond_terminated) for pole in poles_in(vector)]
            )
            over = vector.is_over
            if over.all() if waits else over.any():
                vector.reset(options={"reset_mask": over})
    return seen


@pytest.mark.parametrize("waits", [False, True], ids=["reset at once", "waiting"])
@pytest.mark.parametrize(
    "kwargs", [{}, {"sutton_barto_reward": True}, {"max_episode_steps": 15}], ids=str
)
def test_poles_move_as_gymnasiums_do(
    monkeypatch: pytest.MonkeyPatch, kwargs: dict[str, Any], waits: bool
) -> None:
    fast, plain = make_poles(**kwargs), make_poles(**kwargs)
    told = play(plain, 400, waits, plain=True)
    assert sum(step[2].sum() for step in told[::3]) > 10 or kwargs == {"max_episode_steps": 15}
    by_one = list[int]()
    monkeypatch.setattr(cart_pole, "_plain", count_calls(by_one, cart_pole._plain))
    assert is_equal(play(fast, 400, waits, plain=False), told)
    assert COMPARED <= len(by_one) <= COMPARED + 2


def count_calls(calls: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        calls.append(1)
        return function(*args)

    return counted


def test_the_other_integrator_and_a_state_that_was_set_by_hand_are_followed() -> None:
    fast, plain = make_poles(), make_poles()
    for vector in (fast, plain):
        for pole in poles_in(vector):
            pole.kinematics_integrator = "semi-implicit euler"
    assert is_equal(play(fast, 100, False, plain=False), play(plain, 100, False, plain=True))
    for vector, forms in ((fast, False), (plain, True)):
        poles_in(vector)[2].state = np.array([0.5, -1.0, 0.1, 2.0])
        with use_plain_forms(forms):
            vector.answer = vector.step(np.ones(FEWEST, dtype=np.int64))  # type: ignore[attr-defined]
    assert is_equal(fast.answer, plain.answer)  # type: ignore[attr-defined]


@pytest.mark.parametrize("plain", [False, True], ids=["arrays", "one by one"])
def test_a_pole_ends_beyond_each_of_its_four_bounds(plain: bool) -> None:
    """In τ = 0.02 s a cart at ±2.39 with 1 m/s comes to ±2.41, beyond 2.4; a pole at ±0.2 with 1
    rad/s to ±0.22, beyond 12° = 0.209. Slower ones stay within."""
    vector = make_poles(8)
    play(vector, 2 * COMPARED, False, plain=plain)
    vector.reset(seed=5)
    begun = [(s * 2.39, s * v, 0.0, 0.0) for v in (1.0, 0.1) for s in (-1, 1)]
    begun += [(0.0, 0.0, s * 0.2, s * v) for v in (1.0, 0.1) for s in (-1, 1)]
    for pole, state in zip(poles_in(vector), begun, strict=True):
        pole.state = np.array(state)
    with use_plain_forms(plain):
        _, rewards, terminated, truncated, _ = vector.step(np.zeros(8, dtype=np.int64))
    assert terminated.tolist() == [True, True, False, False] * 2
    assert (rewards == 1.0).all() and not truncated.any()


def test_a_pole_that_differs_from_the_others_is_stepped_as_what_it_is() -> None:
    fast, plain = make_poles(), make_poles()
    for vector, forms in ((fast, False), (plain, True)):
        play(vector, 2 * COMPARED, False, plain=forms)
    for vector in (fast, plain):
        poles_in(vector)[1].gravity = 1.6
    assert is_equal(play(fast, 100, False, plain=False), play(plain, 100, False, plain=True))


class Heavier(CartPoleEnv):
    """Something else than gymnasium's cart pole."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeLimit(Heavier(), 500),
        lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1")),
        lambda: CartPoleEnv(),
    ],
    ids=["subclass", "wrapper", "without a time limit"],
)
def test_anything_else_is_stepped_one_by_one(make: Callable[[], gymnasium.Env]) -> None:
    assert cart_pole._poles_of(SyncVector([make() for _ in range(FEWEST)])) is None
    assert cart_pole._poles_of(make_poles()) is not None
    assert cart_pole._poles_of(make_poles(FEWEST - 1)) is None


@pytest.mark.parametrize("part", ["states", "rewards", "terminated"])
def test_other_dynamics_are_noticed_in_the_first_steps(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """As if gymnasium had changed its equations, what it pays, or when a pole has fallen."""
    vector, plain = make_poles(), make_poles()
    right = cart_pole.step_poles

    def wrong(poles: list[Any], actions: Any) -> Any:
        step = right(poles, actions)
        if step is None:
            return None
        values = getattr(step, part)
        values = (
            ~values if part == "terminated" else values + 1e-16 if part == "states" else 2 * values
        )
        return step._replace(**{part: values})

    monkeypatch.setattr(cart_pole, "step_poles", wrong)
    assert is_equal(play(vector, 50, False, plain=False), play(plain, 50, False, plain=True))
    assert vector.poles is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("actions", [[0, 1, 2, 0, 0, 0], [0.0] * FEWEST], ids=["2", "floats"])
def test_a_wrong_action_is_refused_as_gymnasium_refuses_it(actions: list[Any]) -> None:
    vector = make_poles()
    play(vector, 2 * COMPARED, False, plain=False)
    with pytest.raises(AssertionError, match="invalid"):
        vector.step(np.array(actions))
