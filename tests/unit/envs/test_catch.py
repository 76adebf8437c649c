"""Catch: its pixels, its exact answer, and that it is learned from them."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import near
from gymnasium.utils.env_checker import check_env

import rlbook
from rlbook.envs.catch import NUM_STATES, Catch, CatchVector, catch_frames, catch_model
from rlbook.errors import RequestError
from rlbook.evaluation.optimal_return import horizon_values, optimal_return, random_return
from rlbook.interaction.environments import EnvRecipe

STEPS = 9
"""Rows that the ball falls."""


def test_the_optimum_is_exactly_1_by_backward_induction() -> None:
    model = catch_model(observable=True)
    values = horizon_values(model, STEPS)
    assert float(model.initial @ values) == near(1.0, dtype="float64", terms=5)
    assert optimal_return(EnvRecipe.from_env("Catch-v0")) == 1.0


def test_a_random_paddle_catches_a_fifth() -> None:
    """1/5 - 4/5 = -3/5, wherever the paddle is, since the ball's column is uniform."""
    recipe = EnvRecipe.from_env("Catch-v0", kwargs={"pixels": False})
    assert random_return(recipe) == near(-0.6, dtype="float64", terms=STEPS * 15)


def test_a_frame_shows_the_state_until_the_ball_is_down() -> None:
    """225 states before the end, and no two of them look alike; at the end ball and paddle lie in
    one row, and which is which cannot be seen."""
    frames = catch_frames().reshape(NUM_STATES, -1)
    assert len(np.unique(frames[:225], axis=0)) == 225
    assert frames.sum() == 255 * (2 * 245 + 5)  # one pixel where it is caught, else two


def test_it_is_an_environment_that_ends_after_nine_steps() -> None:
    env = Catch()
    check_env(env, skip_render_check=True)
    for action, won in ((0, 0), (1, 2), (2, 4)):
        obs, _ = env.reset(seed=action)
        ball = int(obs[0, :, 0].argmax())
        for step in range(STEPS):
            obs, reward, terminated, truncated, _ = env.step(action)
            assert terminated == (step == STEPS - 1) and not truncated
        assert reward == (1.0 if ball == won else -1.0)
        assert obs.shape == (10, 5, 1) and obs.dtype == np.uint8


def test_many_games_show_what_one_shows() -> None:
    many, ones = CatchVector(3), [Catch() for _ in range(3)]
    seen, _ = many.reset(seed=7)
    for row, env in enumerate(ones):
        assert np.array_equal(seen[row], env.reset(seed=7 + row)[0])
    for action in np.random.default_rng(0).integers(3, size=(STEPS, 3)):
        seen, rewards, terminated, _, _ = many.step(action)
        for row, env in enumerate(ones):
            obs, reward, ended, _, _ = env.step(int(action[row]))
            assert np.array_equal(seen[row], obs) and (rewards[row], terminated[row]) == (
                reward,
                ended,
            )


def test_it_is_drawn_as_text_and_as_an_image() -> None:
    env = Catch()
    env.reset(seed=0)
    lines = env.draw_text(env._state).splitlines()
    assert len(lines) == 10 and lines[0].count("O") == 1 and lines[-1] == "..#.."
    assert env.draw_pixels(env._state).shape == (480, 240, 3)


def test_a_planner_solves_the_states_and_is_told_that_pixels_are_none() -> None:
    run = rlbook.train("value_iteration", "Catch-v0", env_kwargs={"pixels": False}, gamma=1.0)
    assert set(run.evaluate(episodes=20).returns) == {1.0}
    with pytest.raises(RequestError):
        rlbook.train("q_learning", "Catch-v0", steps=10)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "sac"])
def test_it_is_solved_from_pixels_on_ten_seeds(algorithm: str) -> None:
    """Each run takes less than a minute; the optimum is 1."""
    for seed in range(20, 30):
        run = rlbook.train(algorithm, "Catch-v0", seed=seed, eval_every=0)
        assert set(run.evaluate(episodes=100).returns) == {1.0}


@pytest.mark.slow
def test_dqn_catches_from_pixels() -> None:
    """4 000 steps, half of the preset's budget: far above the -0.6 of random play, by more than
    half of the way to the optimum."""
    run = rlbook.train("dqn", "Catch-v0", steps=4_000, seed=10, eval_every=0)
    assert run.evaluate(episodes=50).mean > (-0.6 + 1.0) / 2
