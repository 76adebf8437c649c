"""The values learned from a narrow recording, and the true value of the greedy policy: fitted Q
iteration and CQL.

Beside the cliff an exact player walks the shortest path, and one in ten of its actions is random.
Off the way nearly every action is untried. Nothing is paid there but -1 a step and -100 for a fall,
so that no value can be above -1; and no way is shorter than 13 steps.

    found = run(seeds=3)
    found.claimed["fitted_q"]                    [R, K], max_a Q(start, a) after minibatch found.minibatch[k]
    found.exact["fitted_q"]                      [R], what the greedy policy is worth in the end, computed from the model

Source: Fujimoto, Meger & Precup 2019, arXiv:1812.02900, section 3 (extrapolation error); Kumar et
al. 2020, arXiv:2006.04779.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.algorithms.value.fitted_q import FittedQ
from rlbook.book.experiments.compounding_errors import Array
from rlbook.data import Steps
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.registry import model_of
from rlbook.runs.demonstrations import exact_expert, record_episodes
from rlbook.runs.run import Run

CLIFF, START, GAMMA = "CliffWalking-v1", 36, 0.99
BEST = -(1 - GAMMA**13) / (1 - GAMMA)
ALGORITHMS = {"fitted_q": "fitted Q iteration", "cql": "CQL"}


@dataclass(frozen=True)
class OfflineValueCurves:
    """R runs of each algorithm, evaluated K times."""

    minibatch: NDArray[np.int64]  # [K]
    claimed: dict[str, Array]  # [R, K], max_a Q(start, a), in reward units, discounted
    # [R, K], share of the recorded states whose greedy action was never tried
    untried: dict[str, Array]
    exact: dict[str, Array]  # [R], V of the last greedy policy at the start


def narrow_recording(seed: int, episodes: int = 30) -> Steps:
    """Episodes of the optimal policy beside the cliff, in which one action in ten is random."""
    recipe = EnvRecipe.from_env(CLIFF)
    raw, seen = recipe.make(), adapted_vector(FittedQ, recipe, 1, FittedQ.Config())
    played = islice(record_episodes(exact_expert(recipe), recipe, seed, epsilon=0.1), episodes)
    return Steps(
        [
            episode.to_episode(seen.adaptation, (raw.observation_space, raw.action_space))
            for episode in played
        ]
    )


def run(seeds: int = 3, first: int = 0, minibatches: int = 1_200) -> OfflineValueCurves:
    """Both algorithms on the same recordings.

    Args:
        seeds: R, of recordings and of learners.
        first: the first of the seeds.
        minibatches: how many each learns from.
    """
    found: dict[str, list[tuple[Array, ...]]] = {name: [] for name in ALGORITHMS}
    for seed in range(first, first + seeds):
        data = narrow_recording(seed)
        for name, runs in found.items():
            runs.append(_trace_run(name, Steps(data.episodes), seed, minibatches))
    at = found["cql"][0][0].astype(np.int64)
    return OfflineValueCurves(
        at,
        *(
            {name: np.array([each[part] for each in runs]) for name, runs in found.items()}
            for part in (1, 2, 3)
        ),
    )


def _trace_run(name: str, data: Steps, seed: int, minibatches: int) -> tuple[Array, ...]:
    """For one run, at each report: minibatch, learned value of the start, share of untried greedy
    actions; and the exact value."""
    model, looks = model_of(rlbook.make(CLIFF)), []
    tried = np.zeros((model.num_states, model.num_actions), dtype=bool)
    tried[data.rows.obs.argmax(-1).numpy(), data.rows.action.numpy()] = True
    recorded_states = tried.any(axis=1)

    def action_values(run: Run) -> NDArray[np.float32]:
        assert isinstance(run.agent, FittedQ)
        return run.agent.action_values(np.arange(model.num_states))

    def record_values(run: Run) -> None:
        q = action_values(run)
        good = tried[np.arange(len(q)), q.argmax(axis=1)]
        looks.append((run.steps, q[START].max(), 1 - good[recorded_states].mean()))

    run = rlbook.train(
        name, CLIFF, data=data, steps=minibatches, seed=seed, eval_every=0, on_report=record_values
    )
    at, claimed, untried = np.array(looks).T
    return (
        at,
        claimed,
        untried,
        model.policy_values(action_values(run).argmax(axis=1), GAMMA)[START],
    )


def measurements(result: OfflineValueCurves) -> dict[str, float]:
    """Medians over the seeds, after the last minibatch."""
    numbers = {}
    for name, title in ALGORITHMS.items():
        numbers[f"{title}: claimed value of the start"] = float(
            np.median(result.claimed[name][:, -1])
        )
        numbers[f"{title}: exact value of its greedy policy"] = float(np.median(result.exact[name]))
        numbers[f"{title}: share of greedy actions that nobody tried"] = float(
            np.median(result.untried[name][:, -1])
        )
    return numbers | {"the best possible value": BEST}


def draw(result: OfflineValueCurves) -> Figure:
    """The learned values, and how often the greedy action is an untried one."""
    from rlbook.book.figures.axes import curve_colour, draw_median, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(9.0, 3.6)
    values, shares = figure.subplots(1, 2)
    label_axes(values, "minibatches", "claimed value of the start")
    label_axes(shares, "minibatches", "share of untried greedy actions")
    values.axhline(
        BEST, color=curve_colour(2), linestyle="--", linewidth=1.2, label="the best possible value"
    )
    for axes, curves in ((values, result.claimed), (shares, result.untried)):
        for place, (name, title) in enumerate(ALGORITHMS.items()):
            draw_median(axes, result.minibatch, curves[name], curve_colour(place), title)
    shares.set_ylim(0, 1)
    values.set_ylim(top=2.5)  # room for the legend
    legend(values, "upper right")
    return figure
