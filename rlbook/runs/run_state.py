"""The parts of a run, what a checkpoint stores of them, and how they are restored."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.agent import Agent, Metrics, State, Totals
from rlbook.errors import TrainingError
from rlbook.interaction.action_masks import ACTION_MASK
from rlbook.interaction.episodes import Episode
from rlbook.interaction.vector_envs.vector import UNSCORED
from rlbook.interaction.vector_envs.workers import Workers
from rlbook.runs.hooks import join_descriptions, modifications
from rlbook.runs.processes.interrupts import Interrupts
from rlbook.runs.request import Request
from rlbook.runs.sources import EnvironmentSource, Source
from rlbook.runs.storage.checkpoints import mark_best, save_checkpoint
from rlbook.runs.storage.files import CheckpointError
from rlbook.runs.storage.folder import report_disk_errors
from rlbook.runs.storage.log import MetricsLog, read_episodes, read_metrics
from rlbook.runs.storage.saved_parts import check_parts
from rlbook.runs.storage.state_check import check_alike, check_report, check_shown
from rlbook.runs.storage.state_encoding import StateError
from rlbook.seeding import GlobalGenerators

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP
    from rlbook.runs.token_record import TokenRecorder

REPORTS = 100  # in a run; a planner reports every sweep
SOMETIMES = (ACTION_MASK, UNSCORED)
"""Optional parts of an interaction's state; it checks them itself."""


@dataclass
class Reports:
    """The metrics collected since the last report, the position of that report, and the best
    evaluation."""

    sums: dict[str, list[float]] = field(default_factory=dict)
    """For each metric: total, count."""
    marks: int = 0
    """The index of the last report, in `REPORTS`-ths of the budget; above `REPORTS` the run has
    ended."""
    best: list[float] | None = None
    """Step and score of the best evaluation."""

    def collect(self, metrics: Metrics | Totals) -> tuple[str, float] | None:
        """Adds the metrics of one item; returns the last non-finite one, if there is any."""
        strange = None
        try:
            items = metrics.items()
        except AttributeError:
            raise TrainingError(
                "learn must return a dict of numbers to log, {} where nothing was learned, "
                f"and plan and fit must yield such dicts; got {metrics!r:.60}"
            ) from None
        for name, item in items:
            value, count = item if isinstance(item, tuple) else (item, 1)
            try:
                if not math.isfinite(value):
                    strange = name, value
            except TypeError:
                raise TrainingError(
                    f"{name!r} is to be logged, so it must be a number, got {value!r:.60}"
                ) from None
            pair = self.sums.setdefault(name, [0.0, 0])
            pair[0] += value
            pair[1] += count
        return strange

    def means(self) -> dict[str, float]:
        """The means of what was collected; the next report starts empty."""
        found = {name: total / count for name, (total, count) in self.sums.items()}
        self.sums = {}
        return found

    @property
    def is_ended(self) -> bool:
        return self.marks > REPORTS


class RunState:
    """The parts of a run."""

    def __init__(
        self,
        request: Request,
        agent: Agent,
        source: Source,
        notes: tuple[str, ...],
        workers: Workers | None,
        global_generators: GlobalGenerators,
    ) -> None:
        self.request, self.agent, self._source = request, agent, source
        self.notes = notes
        """The adaptations of the environment to the agent, and what the run learns from."""
        self.notes_shown = 0  # how many of them a display has shown
        self.workers = workers
        """The processes that step the environments, if this one does not."""
        self.folder: Path | None = None
        """Its folder; None in a process that leaves the writing to another one."""
        self.written_elsewhere = False
        """Whether it has a folder that another process writes."""
        self.metrics: list[dict[str, Any]] = []
        """One report a line: `step`, `episodes`, `return`, `length`, the algorithm's own numbers,
        and `eval_return` where evaluated."""
        self._episodes: list[Episode] = []
        self.seconds: dict[str, float] = {}
        """Where the time of `train` went: "environment" and "act", estimated from some of the
        steps; "evaluate"; "save", reports, callbacks and checkpoints; "learn", all that is left: of
        compiled loops, which do all at once, everything."""
        self.reports = Reports()
        self._log: MetricsLog | None = None
        self._untold_episodes: list[Episode] = []  # ended as well, and callbacks come to them next
        self._recorder: TokenRecorder | None = None  # notes what the policy does at each report
        self._interrupts = Interrupts()
        self._modified: list[str] = []  # hooks and the like that the run was trained with
        self._globals = global_generators  # for environments that draw from these
        self._untouched = True  # nothing was learned or restored yet
        self._other_env: StateError | None = (
            None  # why its environment is not the one it trained in
        )
        self._sealed: str | None = None  # the seal of the config.yaml in the folder

    @property
    def steps(self) -> int:
        """Environment steps taken; for a planner, sweeps; for recorded data, minibatches."""
        return self._source.steps

    @property
    def model(self) -> TabularMDP | None:
        """The environment's exact model, if it is known."""
        return self._source.model

    @property
    def passes(self) -> float:
        """The number of passes over recorded data."""
        return self._source.passes

    @property
    def unit(self) -> str:
        """What `steps` counts: "steps", "sweeps" or "minibatches"."""
        return self._source.unit

    @property
    def episode_returns(self) -> list[float]:
        """Undiscounted returns of the training episodes, in the order they ended."""
        return [episode[1] for episode in [*self._episodes, *self._source.finished_episodes]]

    @property
    def episode_lengths(self) -> list[int]:
        """Lengths of the training episodes in environment steps, in the order they ended."""
        return [episode[2] for episode in [*self._episodes, *self._source.finished_episodes]]

    def write_checkpoint(self, *, best: bool = False) -> None:
        """Writes a checkpoint, if there is a folder. `best` marks it as the best so far.

        Raises:
            TrainingError: it could not be written; the earlier ones stay.
        """
        if self.folder is None:
            if self.written_elsewhere:
                self._source.state_dict()  # the other process needs its part
            return
        assert self._log is not None
        with report_disk_errors(self.folder):
            self._log.flush()
            save_checkpoint(self.folder, self.steps, self._state(self._log), config=self._sealed)
            if best and self.reports.best is not None:
                mark_best(self.folder, self.steps, self.reports.best[1])

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes += (note,)

    def _note_modifications(self) -> None:
        """Notes hooks and similar changes to the agent, which user code may make at any time."""
        found = modifications(self.agent)
        if found:
            self._modified = list(dict.fromkeys([*self._modified, *found]))
            changes = "which changes what is computed; no checkpoint keeps that"
            self._add_note(f"trained with {join_descriptions(found)}, {changes}")

    def _state(self, log: MetricsLog) -> State:
        """The state of the agent and of its data source, and what was collected since the last
        report."""
        report = {
            "sums": self.reports.sums,
            "marks": self.reports.marks,
            "best": self.reports.best,
            "progress": self.agent.progress,
            "log": log.position(),
            "log_sha256": log.digests(),
        } | ({"modified": self._modified} if self._modified else {})
        return {
            "agent": self.agent.state_dict(),
            "source": self._source.state_dict(),
            "report": report,
        }

    def _restore(self, step: int, state: State, *, source: bool, any_env: bool = False) -> None:
        """Restores everything from `state`; without `source`, environment and data are not
        restored, which is enough for evaluation, and with `any_env` the environment need not be
        one that the state fits.

        Raises:
            CheckpointError: it is none of this run's.
        """
        try:
            self._check(state, any_env)
            if source and self._other_env is not None:
                raise self._other_env
            self.agent.load_state_dict(state["agent"])
            report = state["report"]
            self.reports.sums = {name: list(pair) for name, pair in report["sums"].items()}
            self.reports.best = report["best"]
            self._modified = list(report.get("modified", []))
            if self._modified:
                found = join_descriptions(self._modified)
                self._add_note(f"until step {step} trained with {found}; no checkpoint keeps that")
            with self._globals.swap_states():  # where replayed episodes may leave them
                restore = self._source.load_state_dict if source else self._source.load_counts
                restore(state["source"])
            self.agent.progress = self._source.progress(self.request.budget)
            self.reports.marks = _marks(self.agent.progress, report)
            if self.steps != step:
                raise StateError(f"it is named step {step}, but records {self.steps} steps")
        except TrainingError:
            raise
        except Exception as error:  # whatever a state may make of those who read it
            name = f"{self.request.algorithm} on {self.request.recipe.name}"
            raise CheckpointError(
                f"the checkpoint in {self.folder} does not fit {name}: {' '.join(str(error).split())}"
            ) from error

    def _check(self, state: State, any_env: bool) -> None:
        """Raises StateError unless a saved state matches this run's, or with `any_env` its agent's.
        A trained agent does not show what a new agent's state looks like."""
        env = self._source.interaction.env if isinstance(self._source, EnvironmentSource) else None
        if env is None:
            seen, taken = None, None
        else:
            seen = getattr(env, "single_observation_space", env.observation_space)
            taken = getattr(env, "single_action_space", env.action_space)
        check_parts(state, "", seen, taken)
        check_report(state["report"], REPORTS + 1)
        untouched, self._untouched = self._untouched, False
        # a class of the user's own may keep what it likes
        if untouched and type(self.agent).__module__.startswith("rlbook."):
            check_alike(state["agent"], self.agent.state_dict(), "agent")
        if untouched and isinstance(self._source, EnvironmentSource):
            try:
                self._check_interaction(self._source, state["source"])
            except StateError as error:
                if not any_env:
                    raise
                self._other_env = error

    def _check_interaction(self, source: EnvironmentSource, state: State) -> None:
        """Raises StateError unless a saved state matches the environment's."""
        interaction = source.interaction
        saved = {name: part for name, part in state.items() if name not in SOMETIMES}
        check_alike(saved, interaction.state_dict(), "source")
        if state["obs"] is not None:
            check_shown(interaction.env.observation_space, state["obs"], "source/obs")

    def _read_log(self) -> None:
        """Reads the metrics and the episodes from its folder.

        Raises:
            CheckpointError: the log is damaged.
        """
        assert self.folder is not None
        try:
            self.metrics, self._episodes = read_metrics(self.folder), read_episodes(self.folder)
        except ValueError as error:
            raise CheckpointError(f"the log in {self.folder} is damaged: {error}") from error


def _marks(progress: float, report: State) -> int:
    """The index of the last report; the budget may have grown since."""
    if report["marks"] > REPORTS and (progress >= 1.0 or report["progress"] < 1.0):
        return REPORTS + 1
    return report["marks"] if progress == report["progress"] else math.floor(progress * REPORTS)
