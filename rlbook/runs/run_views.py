"""The methods of a run that use what was learned: predict, evaluate, plot, watch, and its
summary."""

from __future__ import annotations

import html
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import NO_STATE, OF_PREDICT
from rlbook.ascii_signs import printable
from rlbook.checks import as_path, check_arguments, name_hint
from rlbook.errors import RequestError, UnknownName, runs_in_notebook
from rlbook.runs.other_libraries import OF_A_RUN
from rlbook.runs.run_state import RunState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlbook.envs.space_batches import Elements
    from rlbook.interaction.environments import EnvLike

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 20  # characters of a sparkline at most
DPI = 70  # of the curve that a notebook shows


class RunViews(RunState):
    """The methods of `rlbook.Run` that leave the run unchanged."""

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property, inside which an attribute is missing
            return object.__getattribute__(self, name)
        public = [known for known in dir(type(self)) if not known.startswith("_")]
        hint = "" if name.startswith("_") else name_hint(name, OF_A_RUN, public)
        raise UnknownName(f"a run has no {name!r}{hint}")

    @check_arguments("run.predict(observation)", OF_PREDICT)
    def predict(
        self,
        observation: Elements,
        *,
        state: Any = NO_STATE,
        episode_start: ArrayLike = False,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Any:
        """Returns the agent's action for one of the environment's observations, or a batch of
        them, and with a `state` the next one; see `rlbook.Agent.predict`. They are those of
        `make_env`."""
        from rlbook.envs.space_batches import WrongObservation

        try:
            return self.agent.predict(
                observation,
                state=state,
                episode_start=episode_start,
                explore=explore,
                action_mask=action_mask,
            )
        except WrongObservation as error:
            raise WrongObservation(f"{error}{self._space_hint(observation)}") from None

    def _space_hint(self, observation: Elements) -> str:
        """The end of the message about an observation in gymnasium's form, if the agent sees a
        different one."""
        from rlbook.envs.space_batches import is_batch

        recipe = self.request.recipe
        if recipe.id is None:
            return ""
        try:
            is_batch(gymnasium.make(recipe.id, **recipe.kwargs).observation_space, observation)
        except Exception:  # another environment's observation, or arguments of rlbook's own
            return ""
        made = "" if recipe.preprocessing.is_used else f", as rlbook.make({recipe.id!r}) does"
        return (
            "; that is the observation of gymnasium.make, but the agent sees a different one: "
            f"use run.make_env(), which shows what the agent expects{made}"
        )

    def make_env(self) -> gymnasium.Env:
        """Makes an environment as used in evaluation, for use with `predict`: with the run's
        arguments and its preprocessing of images, such as stacked frames."""
        return self.request.recipe.for_evaluation().make()

    def evaluate(
        self, episodes: int | None = None, seed: int | None = None, **options: object
    ) -> Any:
        """Plays whole greedy episodes; arguments and result as of `rlbook.evaluate`."""
        if isinstance(episodes, str | gymnasium.Env):
            raise RequestError("another environment is given by name: run.evaluate(env=…)")
        return _package().evaluate(self, episodes=episodes, seed=seed, **options)

    @check_arguments('run.plot("curve.png")')
    def plot(self, out: str | Path | None = None, *, smooth: int = 1) -> Figure:
        """Draws the learning curve, and writes it to `out` (.png, .svg or .pdf); see
        `rlbook.plots.plot_curves`."""
        return _package().plots.plot_curves(self, out, smooth=smooth)

    @check_arguments('run.watch(gif="episode.gif")')
    def watch(
        self,
        episodes: int | None = None,
        seed: int | None = None,
        *,
        env: EnvLike | None = None,
        gif: str | Path | None = None,
        render_mode: str | None = None,
    ) -> Any:
        """Shows greedy episodes: as a film in a notebook's cell, otherwise in the terminal.

        Args:
            episodes: how many (1; of a language model 5 prompts).
            seed: decides how they start; None is the run's seed.
            env: another environment, by its id or as an environment, in place of the run's own.
            gif: write the film there.
            render_mode: "human" opens the environment's own window.

        Returns:
            In a notebook the film; else the return of each episode, in reward units.

        Raises:
            RequestError: an agent that does not act, or an environment that cannot be drawn so.
        """
        if isinstance(episodes, str | Path):
            raise RequestError(
                f"the film's file is given by name: run.watch(gif={str(episodes)!r})"
            )
        gif = None if gif is None else as_path("gif", gif)
        plots = _package().plots
        if gif is None and render_mode is None and runs_in_notebook() and not self._writes_texts():
            return plots.film_in_cell(self, episodes=episodes or 1, seed=seed, env=env)
        return plots.watch(self, gif, episodes, seed, env=env, render_mode=render_mode)

    def _writes_texts(self) -> bool:
        return getattr(self.agent, "codec", None) is not None

    @property
    def optimal_return(self) -> float | None:
        """The optimal expected return of an evaluation episode, in reward units; None if
        unknown."""
        known = importlib.import_module("rlbook.evaluation.optimal_return")
        return known.optimal_return(self.request.recipe.for_evaluation())

    def evaluations(self) -> list[float]:
        """The mean returns of the evaluations so far, in their order."""
        return [
            float(value)
            for report in self.metrics
            if (value := report.get("eval_return")) is not None
        ]

    def summary(self) -> str:
        """One line with algorithm, environment, steps, the last and the best evaluation, the
        optimum where known, and a sparkline of the training returns."""
        done = f"{self.steps:,} {self.unit}"
        if self.unit == "steps":
            done += f", {self._source.episodes:,} episodes"
        # of a run at an earlier checkpoint the log goes on after it
        reports = [report for report in self.metrics if report["step"] <= self.steps]
        found = [value for report in reports if (value := report.get("eval_return")) is not None]
        parts = []
        if found:
            best, optimum = self.reports.best, self.optimal_return
            beside = [] if best is None else [f"best {best[1]:.4g}"]
            beside += [] if optimum is None else [f"optimum {optimum:.4g}"]
            told = f" ({', '.join(beside)})" if beside else ""
            parts.append(f"evaluation {found[-1]:.4g}{told}")
        line = sparkline(
            [float(value) for report in reports if (value := report.get("return")) is not None]
        )
        parts += [line] if line else []
        name = f"{self.request.algorithm} on {self.request.recipe.name}"
        return "; ".join([f"{name}: {done}", *parts])

    def __repr__(self) -> str:
        where = "" if self.folder is None else f"; {self.folder}"
        return printable(f"<Run {self.summary()}{where}>")

    def _repr_html_(self) -> str:
        """The notebook display: the summary, the learning curve, and the value map if there is
        one."""
        pictures = []
        plots = _package().plots
        for draw in (plots.plot_curves, plots.plot_value_map):
            try:
                pictures.append(_inline_image(draw(self)))
            except RequestError:  # nothing to draw yet, or no map
                continue
        return f"<p><code>{html.escape(repr(self))}</code></p>" + "".join(pictures)


def sparkline(values: Sequence[float]) -> str:
    """Draws numbers as at most 20 bars, each the mean of an equal share; "" for fewer than two."""
    finite = np.array([value for value in values if np.isfinite(value)])
    if len(finite) < 2:
        return ""
    means = np.array([part.mean() for part in np.array_split(finite, min(SPARKS, len(finite)))])
    low, span = means.min(), means.max() - means.min()
    heights = np.zeros(len(means)) if span == 0 else (means - low) / span
    return "".join(BARS[round(height * (len(BARS) - 1))] for height in heights)


def _inline_image(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return importlib.import_module("rlbook.plots.figure").image_in_cell(buffer.getvalue())


def _package() -> Any:
    """The package itself, which gives access to the layers above this one."""
    return importlib.import_module("rlbook")
