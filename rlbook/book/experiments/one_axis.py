"""Tables and networks on one axis: how far the greedy policy is from optimal during learning.

    curves = learning_curves("ppo", "FrozenLake-v1", seeds=3)
    curves.steps                               # [R], environment steps
    curves.distance                            # [K, R], in reward units, a row a seed
    curves.first_step_within(0.01)                  # [K]: steps until it is within 1 % of V*, infinite where it never was

The distance is V*(start) - v_π(start), averaged over where episodes begin. π is the policy that the
agent follows without exploring. Both values are solutions of the environment's exact equations with
the run's discount, so nothing here is left to the chance of evaluation episodes. An agent with a
network is asked for its action in every state, one state after the other in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import rlbook
from rlbook.agent import Agent
from rlbook.book.figures.axes import label_axes
from rlbook.interaction.action_masks import mask_table
from rlbook.interaction.expert_actions import greedy_action
from rlbook.plots.colours import CURVES, GREY, fraction_rgb
from rlbook.plots.figure import is_narrow, new_figure, words
from rlbook.registry import model_of
from rlbook.runs.exact_evaluation import ExactEvaluation
from rlbook.runs.run import Run

WORLDS = {
    "Maze-v0": "the maze",
    "FrozenLake-v1": "FrozenLake",
    "Taxi-v4": "Taxi",
    "CliffWalking-v1": "the cliff",
}
"""Environment → its name. All four show a state index."""
TABLES = ("q_learning", "sarsa", "expected_sarsa", "dyna_q")
NETWORKS = ("dqn", "ppo", "a2c", "sac")
LEARNERS = dict.fromkeys(TABLES, 5) | dict.fromkeys(NETWORKS, 3)
"""Algorithm → the number of seeds that the site shows."""
TABLE: dict[str, dict[str, Any]] = {
    "Maze-v0": {"steps": 10_000},
    "FrozenLake-v1": {"steps": 300_000, "alpha": 0.05},
    "Taxi-v4": {"steps": 300_000, "alpha": 0.2},
    "CliffWalking-v1": {"steps": 20_000, "alpha": 0.5},
}
"""Environment → the settings of every table."""
WIDE = {"num_envs": 16, "rollout_steps": 64, "batch_size": 256, "learning_rate": 1e-3}
SMALL = {"hidden_sizes": (64,), "learning_rate": 3e-3, "batch_size": 64, "tau": 0.05}
NETWORK: dict[str, dict[str, dict[str, Any]]] = {
    "Maze-v0": {},
    "FrozenLake-v1": {
        "dqn": {"steps": 30_000},
        "ppo": {"steps": 100_000, **WIDE},
        "sac": {"steps": 12_000, **SMALL},
        "a2c": {"steps": 150_000, "num_envs": 16, "learning_rate": 1e-3, "entropy_coef": 0.005},
    },
    "Taxi-v4": {
        "dqn": {"steps": 40_000},
        "ppo": {"steps": 200_000, **WIDE, "entropy_coef": 0.5},
        "sac": {"steps": 8_000, **SMALL},
        "a2c": {"steps": 200_000, "num_envs": 16, "learning_rate": 1e-3, "entropy_coef": 0.5},
    },
    "CliffWalking-v1": {
        "dqn": {"steps": 15_000},
        "sac": {"steps": 8_000, **SMALL},
        "ppo": {"steps": 80_000, **WIDE, "normalize_reward": True, "entropy_coef": 0.02},
        "a2c": {
            "steps": 80_000,
            "num_envs": 16,
            "learning_rate": 1e-3,
            "normalize_reward": True,
            "entropy_coef": 0.02,
        },
    },
}
"""Environment → algorithm → the settings of a network; in the maze each has a preset."""
CLOSE = 0.01
"""The fraction of |V*(start)| that counts as close."""
MARKS = 10


@dataclass(frozen=True)
class LearningCurves:
    """K seeds of one learner in one world."""

    steps: np.ndarray  # [R], environment steps, increasing
    distance: np.ndarray  # [K, R], V*(start) - v_π(start), in reward units
    best: float  # V*(start), in reward units

    def first_step_within(self, share: float) -> np.ndarray:
        """[K]: the first of `steps` at which the distance is at most share · |V*(start)|; infinite
        where it never is."""
        near = self.distance <= share * abs(self.best)
        return np.where(near.any(axis=1), self.steps[near.argmax(axis=1)].astype(float), np.inf)

    def as_lists(self) -> dict[str, Any]:
        """For a JSON file; distances with four digits."""
        distance = [[float(f"{value:.4g}") for value in row] for row in self.distance]
        return {"steps": self.steps.tolist(), "distance": distance, "best": self.best}

    @classmethod
    def from_lists(cls, lists: dict[str, Any]) -> LearningCurves:
        """The inverse of `as_lists`."""
        return cls(np.array(lists["steps"]), np.array(lists["distance"]), float(lists["best"]))


def settings_of(algorithm: str, env: str) -> dict[str, Any]:
    """The arguments of `rlbook.train` besides the seed, where they differ from the preset."""
    return TABLE[env] if algorithm in TABLES else NETWORK[env].get(algorithm, {})


def command(algorithm: str, env: str) -> str:
    """The same on the command line."""
    options = "".join(
        f" --{name.replace('_', '-')} {_as_word(value)}"
        for name, value in settings_of(algorithm, env).items()
    )
    return f"rlbook train {algorithm} {env}{options}"


def _as_word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def greedy_policy(agent: Agent, num_states: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """[S] int: the agent's greedy action in each state, in an environment whose observation is the
    state's index.

    `allowed`: [S, A] bool, where the environment forbids actions; None: everything.
    """
    if not agent.batched:
        masks = [None] * num_states if allowed is None else allowed
        return np.array(
            [
                greedy_action(agent, state, mask)
                for state, mask in zip(range(num_states), masks, strict=True)
            ]
        )
    return np.asarray(greedy_action(agent, np.arange(num_states), allowed))


def learning_curves(algorithm: str, env: str, seeds: int = 3, first: int = 0) -> LearningCurves:
    """Trains with several seeds, and computes the distance from optimal a hundred times during
    training."""
    made, rows = rlbook.make(env), []
    model = model_of(made)
    allowed = mask_table(made, range(model.num_states))
    for seed in range(first, first + seeds):
        policies: dict[int, np.ndarray] = {}

        def keep(run: Run, policies: dict[int, np.ndarray] = policies) -> None:
            policies[run.steps] = greedy_policy(run.agent, model.num_states, allowed)

        run = rlbook.train(
            algorithm, env, seed=seed, eval_every=0, on_report=keep, **settings_of(algorithm, env)
        )
        exact = ExactEvaluation(model, run.agent.config.gamma)
        rows.append({steps: exact.regret(policy) for steps, policy in policies.items()})
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(
            f"the runs of {algorithm} on {env} reported after different numbers of steps"
        )
    return LearningCurves(
        np.array([*rows[0]]),
        np.array([[*row.values()] for row in rows]),
        float(model.initial @ exact.exact),
    )


def steps_to_optimum(curves: LearningCurves) -> str:
    """The steps to within 1 % of V*: the median over the seeds, the least and the most; or the
    final distance."""
    first = np.sort(curves.first_step_within(CLOSE))
    low, middle, high = (
        f"{steps:,.0f}".replace(",", " ") for steps in (first[0], np.median(first), first[-1])
    )
    if np.isinf(np.median(first)):
        return f"not in {curves.steps[-1]:,}: {np.median(curves.distance[:, -1]):.3g} away in the end".replace(
            ",", " "
        )
    return f"{middle} ({low} to {high})".replace("inf", "never")


def quartile_bands(curves: LearningCurves, floor: float) -> tuple[np.ndarray, ...]:
    """Steps, lower quartile, median and upper quartile, [B] each: of all seeds and all reports
    between two neighbouring marks.

    There are `MARKS` marks to a factor of ten, since a greedy policy flickers between two reports.

    Args:
        curves: of one learner in one world.
        floor: what is nearer counts as that near, in reward units; a logarithmic axis has no 0.
    """
    place = np.floor(np.log10(curves.steps) * MARKS)
    parts = [place == mark for mark in np.unique(place)]
    steps = np.array([np.exp(np.log(curves.steps[part]).mean()) for part in parts])
    quartiles = [
        np.quantile(np.maximum(curves.distance[:, part], floor), (0.25, 0.5, 0.75))
        for part in parts
    ]
    return steps, *np.array(quartiles).T


def draw(worlds: dict[str, dict[str, LearningCurves]]) -> Figure:
    """A panel per world: the median, and a band from quartile to quartile; see `quartile_bands`.

    Args:
        worlds: environment → algorithm → its curves; four at most.
    """
    figure = new_figure(7.8, 6.4)
    panels = figure.subplots(2, 2).ravel()
    for axes in panels[len(worlds) :]:
        axes.set_visible(False)
    for axes, (env, learners) in zip(panels, worlds.items(), strict=False):
        best = next(iter(learners.values())).best
        floor = CLOSE / 10 * abs(best)
        label_axes(
            axes,
            "environment steps",
            "V*(start) − v(start), reward units",
            f"{WORLDS[env]}: V* = {best:.4g}".replace("-", "−"),
        )
        for name, curves in learners.items():
            colour, style = _line_style(name)
            steps, low, middle, high = quartile_bands(curves, floor)
            axes.plot(steps, middle, color=colour, linestyle=style, linewidth=1.6, label=name)
            axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.axhline(CLOSE * abs(best), color=fraction_rgb(GREY), linestyle=":", linewidth=1.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=2 if is_narrow() else 4,
        frameon=False,
        fontsize=9,
        labelcolor=words()["color"],
    )
    return figure


def _line_style(algorithm: str) -> tuple[tuple[float, float, float], str]:
    """The line style: solid for a table, dashed for a network."""
    family = TABLES if algorithm in TABLES else NETWORKS
    return fraction_rgb(CURVES[family.index(algorithm)]), "-" if family is TABLES else "--"
