"""The prediction errors of a learned model over one step, and over many steps in a row.

    found = run(seeds=3)
    found.errors                                 [R, D, K], the error of a prediction `horizons` steps ahead

A pendulum is pushed at random. Ensembles learn from the first 200, 1 000 and 5 000 of these steps.
Then they predict other episodes: each prediction starts from the last one, with the actions that
were really taken, as when a plan is made or a rollout is imagined. The error is that of the state
after the last step, RMS, in standard deviations of the state over those other episodes, so that a
constant, their mean, has an error of 1.

Source: Chua et al. 2018, arXiv:1805.12114, section 4, on errors that add up; Janner et al. 2019,
arXiv:1906.08253, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium.vector import SyncVectorEnv
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.model_based.world_model import world_model_update
from rlbook.book.figures.axes import curve_colour, draw_median, labelled_figure, legend
from rlbook.data.replay import ReplayBuffer
from rlbook.networks.dynamics import WorldModel, one_step_errors, rollout_errors
from rlbook.networks.optimizer import Group, adam
from rlbook.seeding import rng_for, torch_generator

AMOUNTS = (200, 1_000, 5_000)
"""Numbers of training steps."""
HORIZONS = (1, 2, 4, 8, 16, 32, 64)
LENGTH, HELD_OUT = 200, 20


@dataclass(frozen=True)
class ModelErrors:
    """R models for each of D amounts of data."""

    amounts: NDArray[np.int64]  # [D], steps that a model has learned from
    horizons: NDArray[np.int64]  # [K], steps that are predicted in a row
    errors: NDArray[np.float64]  # [R, D, K], in standard deviations of the held-out states
    one_step: NDArray[np.float64]  # [R, D], of one step, in standard deviations of the difference


def record_random_pushes(episodes: int, seed: int) -> ReplayBuffer:
    """Parallel episodes of the pendulum, 200 steps each, with uniform actions."""
    env = SyncVectorEnv([lambda: rlbook.make("Pendulum-v1")] * episodes)  # type: ignore[list-item]
    rng, replay = rng_for(seed, "exploration"), ReplayBuffer(episodes * LENGTH, 3)
    # consecutive seeds would share starts: N environments take seed, …, seed + N - 1
    starts = rng_for(seed, "environment").integers(2**31, size=episodes)
    obs, _ = env.reset(seed=starts.tolist())
    for _ in range(LENGTH):
        action = rng.uniform(-2.0, 2.0, size=(episodes, 1)).astype(np.float32)
        after, reward, terminated, truncated, _ = env.step(action)
        replay.add(Step(obs, action, reward.astype(np.float32), after, terminated, truncated))
        obs = after.copy()
    env.close()
    return replay


def run(seeds: int = 3, first: int = 0, gradient_steps: int = 1_000) -> ModelErrors:
    """Trains and evaluates the models.

    Args:
        seeds: R.
        first: the first of the seeds.
        gradient_steps: of each model.
    """
    found = [
        _errors(seed, amount, gradient_steps)
        for seed in range(first, first + seeds)
        for amount in AMOUNTS
    ]
    errors, one_step = (
        np.array(each).reshape(seeds, len(AMOUNTS), -1) for each in zip(*found, strict=True)
    )
    return ModelErrors(np.array(AMOUNTS), np.array(HORIZONS), errors, one_step[..., 0])


def _errors(seed: int, amount: int, gradient_steps: int) -> tuple[list[float], float]:
    replay, held_out = (
        record_random_pushes(amount // LENGTH, seed),
        record_random_pushes(HELD_OUT, seed + 1_000),
    )
    model = WorldModel(3, 1, 3, (64, 64), torch_generator(rng_for(seed, "initialisation")))
    optimizer = adam([Group([model])], 1e-3)
    world_model_update(
        model,
        optimizer,
        replay,
        rng_for(seed, "minibatches"),
        batch_size=256,
        gradient_steps=gradient_steps,
    )
    rows = held_out.rows_at(held_out.newest_indices(held_out.size))
    unit = rows.obs.std(dim=0, correction=0)
    errors = [
        rollout_errors(model, rows, rows.action, HELD_OUT, steps, unit=unit)["rollout_error"]
        for steps in HORIZONS
    ]
    return errors, one_step_errors(model, rows, rows.action)["one_step_error"]


def measurements(result: ModelErrors) -> dict[str, float]:
    """Medians over the seeds."""
    middle = np.median(result.errors, axis=0)
    return {
        f"{amount} steps of data, {horizon} steps ahead": float(middle[row, column])
        for row, amount in enumerate(result.amounts)
        for column, horizon in enumerate(result.horizons)
        if horizon in (1, 16, 64)
    }


def draw(result: ModelErrors) -> Figure:
    """The errors over the horizon, on logarithmic axes: a line for each amount of data."""
    figure, axes = labelled_figure(
        6.4, 4.0, "steps predicted in a row", "error of the last state, in standard deviations"
    )
    for place, amount in enumerate(result.amounts):
        errors, colour = result.errors[:, place], curve_colour(place)
        label = f"{amount} steps of data"
        draw_median(axes, result.horizons, errors, colour, label, marker="o", markersize=4)
    axes.axhline(1.0, color="0.5", linestyle="--", linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set(
        yscale="log", xticks=result.horizons, xticklabels=[str(each) for each in result.horizons]
    )
    legend(axes, "lower right")
    return figure
