"""A run: what was asked, the agent, its log, and the folder they live in."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.agent import Agent, Data, Metrics, Parts, State, Totals
from rlbook.checks import parse_json
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.action_masks import ACTION_MASK
from rlbook.interaction.environments import EnvLike
from rlbook.interaction.episodes import Episode
from rlbook.interaction.loop import Budget
from rlbook.interaction.threads import repeatable, single_threaded
from rlbook.interaction.workers import Workers
from rlbook.runs.evaluating import evaluated, shortened, usual_length
from rlbook.runs.exact_evaluation import ExactEvaluation, exact_evaluation_of
from rlbook.runs.hooks import in_words, modifications
from rlbook.runs.interrupts import Interrupted, Interrupts, interruptible
from rlbook.runs.options import RunOptions
from rlbook.runs.parts import check_device, check_digests, device_of, digests_of
from rlbook.runs.request import Request
from rlbook.runs.setup import set_up
from rlbook.runs.sources import DataSource, EnvironmentSource
from rlbook.runs.storage.checkpoints import (
    discard_after,
    load_checkpoint,
    mark_best,
    save_checkpoint,
    seal_with,
)
from rlbook.runs.storage.files import CheckpointError, read_file, replace_file
from rlbook.runs.storage.folder import (
    check_free,
    locked,
    read_config,
    report_disk_errors,
    seal,
    write_config,
)
from rlbook.runs.storage.log import MetricsLog, read_episodes, read_metrics
from rlbook.runs.storage.saved_parts import check_parts
from rlbook.runs.storage.state_check import check_alike, check_report, check_shown
from rlbook.runs.storage.state_encoding import StateError, encode

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP
    from rlbook.runs.token_record import Recorder

REPORTS = 100  # in a run; a planner reports every sweep
EVALUATIONS = 10  # in a run, where nothing else is asked for
CHECKPOINTS = 10  # in a run, beside those of evaluations, of the start and of the end

SECONDS, SECONDS_LIMIT = "seconds.json", 10_000  # where the time went, and its bytes at most

Report = Callable[["Run"], None]


class Run:
    """A training run: finished, interrupted, or loaded from its folder."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.folder: Path | None = None
        self.metrics: list[dict[str, Any]] = []
        """One report a line: `step`, `episodes`, `return`, `length`, the algorithm's own numbers,
        and `eval_return` where evaluated."""
        self._episodes: list[Episode] = []
        # of the metrics since the last report: total, count
        self._sums: dict[str, list[float]] = {}
        self.seconds: dict[str, float] = {}
        """Where the time of `train` went: "environment" and "act", estimated from some of the
        steps; "evaluate", with reports and checkpoints; "learn", all that is left: of compiled
        loops, which do all at once, everything."""
        self._marks = 0  # how many REPORTS-ths of the budget the last report stood at
        self._best: list[float] | None = None  # step and score of the best evaluation
        self._log: MetricsLog | None = None
        self._recorder: Recorder | None = None  # notes what the policy does at each report
        self._interrupts = Interrupts()
        self._modified: list[str] = []  # hooks and the like that the run was trained with
        self._untouched = True  # nothing was learned or restored yet
        self._sealed: str | None = None  # the seal of the config.yaml in the folder
        count = request.options.workers or 1
        self.workers = Workers(count) if count > 1 else None
        """The processes that step the environments, where this one does not."""
        with single_threaded():
            ready = set_up(request, self._agent_in, self.workers)
        self.agent, self._source, self.notes = ready
        """`notes`: what was done to make the environment suit the agent, and where the run learns
        from."""

    def _agent_in(self, folder: Path) -> Agent:
        """The agent of a run that this one names, as much trusted as this one."""
        return load(folder, allow_import=self.request.recipe.allow_import).agent

    def open(self) -> Run:
        """Reads and starts what training needs and acting does not, such as recorded data; checks
        that it is what the run was started with.

        Raises:
            RequestError: it cannot be read, or has changed, or the device is not here.
        """
        check_device(self.request.options.device)
        if self.request.options.inspect:
            # torch's agents, which tables do without
            from rlbook.runs.inspecting import (
                check_inspectable,
            )

            check_inspectable(self.agent)
        found = digests_of(self.request, self.recorded())
        check_digests(self.request.digests, found)
        self.request = dataclasses.replace(self.request, digests=found)
        if self.workers is not None and isinstance(self._source, EnvironmentSource):
            if self.workers.count > self.request.num_envs:
                raise RequestError(
                    f"workers must be at most num_envs, {self.request.num_envs}, got"
                    f" {self.workers.count}"
                )
            env: Any = self._source.interaction.env.unwrapped
            env.start()
        return self

    def recorded(self) -> Data | None:
        """What is learned from beside an environment, or in its place."""
        if isinstance(self._source, DataSource):
            return self._source.data
        shown = getattr(self.agent, "parts", Parts()).demonstrations
        return None if shown is None else shown()

    @property
    def steps(self) -> int:
        """Environment steps taken; for a planner, sweeps; for recorded data, minibatches."""
        return self._source.steps

    @property
    def model(self) -> TabularMDP | None:
        """The environment's exact model, where it is known."""
        return self._source.model

    @property
    def passes(self) -> float:
        """Passes over recorded data."""
        return self._source.passes

    @property
    def unit(self) -> str:
        """What `steps` counts: "steps", "sweeps" or "minibatches"."""
        return self._source.unit

    @property
    def episode_returns(self) -> list[float]:
        """Undiscounted returns of the training episodes, in the order they ended."""
        return [episode[1] for episode in [*self._episodes, *self._source.finished]]

    @property
    def episode_lengths(self) -> list[int]:
        """Lengths of the training episodes in environment steps, in the order they ended."""
        return [episode[2] for episode in [*self._episodes, *self._source.finished]]

    # ---- the folder

    def claim(self, folder: Path) -> None:
        """Takes a folder for this run: writes the first checkpoint, and then its config.

        Raises:
            RequestError: the folder already holds a run, another process writes it, or it cannot be
                written.
            TrainingError: the first checkpoint could not be written.
        """
        config = self.request.as_yaml()
        check_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder), MetricsLog(folder) as self._log:
                check_free(folder)
                self.folder, self._sealed = folder, seal(config.encode())
                self.save()
                write_config(folder, config)
        except CheckpointError as error:
            raise RequestError(str(error).removesuffix(".")) from error
        except OSError as error:
            raise RequestError(f"cannot write to {folder}: {error.strerror}") from error

    def save(self, *, best: bool = False) -> None:
        """Writes a checkpoint of this moment, where there is a folder. `best` marks it as the best
        so far.

        Raises:
            TrainingError: it could not be written; the earlier ones stay.
        """
        if self.folder is None:
            return
        assert self._log is not None
        with report_disk_errors(self.folder):
            self._log.flush()
            save_checkpoint(self.folder, self.steps, self._state(self._log), config=self._sealed)
            if best and self._best is not None:
                mark_best(self.folder, self.steps, self._best[1])

    def _state(self, log: MetricsLog) -> State:
        report = {
            "sums": self._sums,
            "marks": self._marks,
            "best": self._best,
            "progress": self.agent.progress,
            "log": log.position(),
            "log_sha256": log.digests(),
        } | ({"modified": self._modified} if self._modified else {})
        return {
            "agent": self.agent.state_dict(),
            "source": self._source.state_dict(),
            "report": report,
        }

    def _restore(self, step: int, state: State, *, source: bool) -> None:
        """Puts everything where `state` has it; without `source` environment and data are left
        alone, as evaluation needs no more."""
        try:
            self._check(state)
            self.agent.load_state_dict(state["agent"])
            report = state["report"]
            self._sums = {name: list(pair) for name, pair in report["sums"].items()}
            self._best = report["best"]
            self._modified = list(report.get("modified", []))
            if self._modified:
                found = in_words(self._modified)
                self._add_note(f"until step {step} trained with {found}; no checkpoint keeps that")
            (self._source.load_state_dict if source else self._source.load_counts)(state["source"])
            self.agent.progress = self._source.progress(self.request.budget)
            # or has the budget grown?
            ended = report["marks"] > REPORTS and (
                self.agent.progress >= 1.0 or report["progress"] < 1.0
            )
            held = (
                report["marks"]
                if self.agent.progress == report["progress"]
                else math.floor(self.agent.progress * REPORTS)
            )
            self._marks = REPORTS + 1 if ended else held
            if self.steps != step:
                raise StateError(f"it is of step {step} and says that {self.steps} were taken")
        except TrainingError:
            raise
        except Exception as error:  # whatever a state may make of those who read it
            name = f"{self.request.algorithm} on {self.request.recipe.name}"
            raise CheckpointError(
                f"the checkpoint in {self.folder} does not fit {name}:"
                f" {' '.join(str(error).split())}"
            ) from error

    def _check(self, state: State) -> None:
        """Raises StateError unless a saved state is one of this run's. An agent that has learned is
        no measure of how one begins."""
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
            interaction = self._source.interaction
            # the interaction checks that
            saved = {name: part for name, part in state["source"].items() if name != ACTION_MASK}
            check_alike(saved, interaction.state_dict(), "source")
            if state["source"]["obs"] is not None:
                check_shown(interaction.env.observation_space, state["source"]["obs"], "source/obs")

    def _read_log(self) -> None:
        assert self.folder is not None
        try:
            self.metrics, self._episodes = read_metrics(self.folder), read_episodes(self.folder)
        except ValueError as error:
            raise CheckpointError(f"the log in {self.folder} is damaged: {error}") from error

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes += (note,)

    def _note_modifications(self) -> None:
        """Hooks may be set at any time, by whoever has the agent."""
        found = modifications(self.agent)
        if found:
            self._modified = list(dict.fromkeys([*self._modified, *found]))
            changes = "which changes what is computed; no checkpoint keeps that"
            self._add_note(f"trained with {in_words(found)}, {changes}")

    # ---- training

    def train(self, *, on_report: Report | None = None, restored: State | None = None) -> Run:
        """Trains until the budget is used up, from the start or from where `restored` stands.

        Raises:
            TrainingError: a NaN, an infinity, or a checkpoint that could not be written.
            Interrupted: SIGINT or SIGTERM; the checkpoint is written.
        """
        self._untouched = False
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.workers or contextlib.nullcontext())
            stack.enter_context(single_threaded())
            stack.enter_context(repeatable(device_of(self.request.options.device)))
            if self.folder is not None:
                stack.enter_context(locked(self.folder))
                with report_disk_errors(self.folder):
                    self._log = stack.enter_context(MetricsLog(self.folder))
                    if restored is not None:
                        self._rewind(self.folder, self._log, restored)
                    self._recorder = self._opened_record(stack)
            stack.callback(self._write_seconds)
            stack.enter_context(self._timed())
            self._interrupts = stack.enter_context(interruptible())
            try:
                self._go(on_report)
            except Interrupted:
                self.save()
                raise
        return self

    def _opened_record(self, stack: contextlib.ExitStack) -> Recorder | None:
        """What records the policy's actions, where that is asked for or was begun."""
        assert self.folder is not None
        if not self.request.options.inspect and not (self.folder / "tokens.jsonl").exists():
            return None
        from rlbook.runs.token_record import recorder_of

        recorder = recorder_of(self.agent, self.request, self.folder, self.steps, self._agent_in)
        return None if recorder is None else stack.enter_context(recorder)

    def _record(self) -> None:
        """Notes what the policy does now, where that is recorded."""
        if self._recorder is not None:
            with report_disk_errors(self.folder):
                self._recorder.record(self.steps)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Inside, it is measured where the time goes."""
        start, clock = time.perf_counter(), self._source.clock
        self.seconds = {"evaluate": 0.0}
        try:
            yield
        finally:
            parts = (
                {"environment": clock.stepping, "act": clock.acting}
                if clock is not None and clock.stepping
                else {}
            )
            rest = time.perf_counter() - start - sum(parts.values()) - self.seconds["evaluate"]
            self.seconds = parts | {"learn": max(0.0, rest)} | self.seconds

    def _write_seconds(self) -> None:
        """Adds the seconds to those in the folder. They differ from run to run, so they are no part
        of the log or of a checkpoint."""
        if self.folder is None:
            return
        path = self.folder / SECONDS
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, CheckpointError):
            before = parse_json(read_file(path, SECONDS_LIMIT)) if path.exists() else {}
            total = {
                name: round(before.get(name, 0.0) + value, 3)
                for name, value in self.seconds.items()
            }
            replace_file(path, json.dumps(total).encode() + b"\n")

    def _rewind(self, folder: Path, log: MetricsLog, state: State) -> None:
        """Drops what was logged after the checkpoint; it will be logged again, to the byte."""
        try:
            log.truncate(state["report"]["log"], state["report"].get("log_sha256"))
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        discard_after(folder, self.steps)
        if self._best is not None:
            mark_best(folder, int(self._best[0]), self._best[1])
        self._read_log()

    def _go(self, on_report: Report | None) -> None:
        alone = self._source.reports_each and on_report is None and self.folder is None
        on_report = on_report or (lambda run: None)
        if self._marks > REPORTS:
            return
        self._note_modifications()
        self._record()
        # a signal came before it was written
        if not self._source.reports_each and self._report_due():
            self._report(on_report)
        for metrics in self._source.items(self.agent, self.request.budget):
            if not (alone and self._report_sweep(metrics)):
                self._collect(metrics)
                if self._report_due():
                    self._report(on_report)
            self._interrupts()
            if self._marks > REPORTS:
                break
        if self._marks <= REPORTS:
            self._finish(on_report)

    def _collect(self, metrics: Metrics | Totals) -> None:
        for name, item in metrics.items():
            value, count = item if isinstance(item, tuple) else (item, 1)
            if not math.isfinite(value):
                self._check_state(name, value)
            pair = self._sums.setdefault(name, [0.0, 0])
            pair[0] += value
            pair[1] += count

    def _report_sweep(self, metrics: dict[str, Any]) -> bool:
        """Does for a planner's sweep what `_collect` and `_report` do, in less time; False where
        there is more to do than to note it."""
        if self.agent.progress >= 1.0 or not all(map(math.isfinite, metrics.values())):
            return False
        self._marks = math.floor(self.agent.progress * REPORTS)
        self.metrics.append(
            {"step": self.steps, "episodes": 0}
            | {name: float(value) for name, value in metrics.items()}
        )
        return True

    def _check_state(self, name: str, value: float) -> None:
        """A number in the log may be NaN where nothing is wrong (a variance of one sample); a
        weight may not."""
        try:
            encode(self.agent.state_dict())
        except StateError as error:
            raise TrainingError(
                f"training diverged at step {self.steps}: {name} is {value}, and {error}"
            ) from error

    def _report_due(self) -> bool:
        """The last report is `_finish`'s."""
        if self.agent.progress >= 1.0 or not self.agent.can_checkpoint:
            return False
        return self._source.reports_each or self.agent.progress * REPORTS >= self._marks + 1

    def _report(self, on_report: Report) -> None:
        """One line of the log; every so often an evaluation and a checkpoint."""
        start = time.perf_counter()
        before, marks = self._marks, math.floor(self.agent.progress * REPORTS)
        due = self._evaluation_due(before, marks)
        evaluation = self._evaluate() if due else {}
        self._marks = marks
        best = self._write(evaluation)
        self._record()
        if evaluation.get("eval_return", -math.inf) >= self.request.stop_at_return:
            self._marks = REPORTS + 1  # the run ends here
        on_report(self)
        if due or _crossed(REPORTS // CHECKPOINTS, before, self._marks):
            self.save(best=best)
        self.seconds["evaluate"] += time.perf_counter() - start

    def _finish(self, on_report: Report) -> None:
        """The last line of the log, evaluation and checkpoint."""
        start = time.perf_counter()
        evaluation = self._evaluate(last=True)
        self._marks = REPORTS + 1
        if self._source.reports_each and self.metrics and not self._sums:
            self._sums = {
                name: [value, 1]
                for name, value in self.metrics[-1].items()
                if name in self.agent.METRICS
            }
        best = self._write(evaluation)
        self._record()
        on_report(self)
        self.save(best=best)
        self.seconds["evaluate"] += time.perf_counter() - start

    def _evaluation_due(self, before: int, marks: int) -> bool:
        if self._source.reports_each or self.request.eval_every == 0:
            return False
        if self.request.eval_every is None:
            return _crossed(REPORTS // EVALUATIONS, before, marks)
        return _crossed(
            self.request.eval_every, self.metrics[-1]["step"] if self.metrics else 0, self.steps
        )

    def _evaluate(self, *, last: bool = False) -> Metrics:
        """On the way an evaluation may be shortened; the `last` one never is, nor where a return
        decides when training ends."""
        if self.request.eval_every == 0:
            return {}
        # half an evaluation is dropped; it begins anew when the run goes on
        with self._interrupts.at_once():
            before = next(
                (report["step"] for report in reversed(self.metrics) if "eval_return" in report), 0
            )
            since = self.steps - before if isinstance(self._source, EnvironmentSource) else None
            length = (
                None
                if last or self.request.stop_at_return < math.inf
                else usual_length(self._source.finished, self.metrics)
            )
            found = evaluated(
                self.agent,
                self.request,
                self._exact_evaluation,
                self.steps,
                self.workers,
                effort=since,
                length=length,
            )
        note = shortened(self.request.eval_episodes)
        if (
            "eval_episodes" in found
            and note not in self.notes
            and not self.request.recipe.may_never_end
        ):
            self.notes += (note,)
        return found

    @cached_property
    def _exact_evaluation(self) -> ExactEvaluation | None:
        return exact_evaluation_of(self.agent, self.model)

    def _write(self, found: Metrics) -> bool:
        """Logs what happened since the last report. True where the evaluation is the best so
        far."""
        self.notes += tuple(note for note in self._source.notes if note not in self.notes)
        self._note_modifications()
        finished = self._source.finished
        report: dict[str, Any] = {"step": self.steps, "episodes": self._source.episodes}
        if self._source.passes:
            report["passes"] = self._source.passes
        if finished:
            report["return"] = math.fsum(item[1] for item in finished) / len(finished)
            report["length"] = sum(item[2] for item in finished) / len(finished)
        report |= {name: total / count for name, (total, count) in self._sums.items()}
        report |= found
        if self._log is not None:
            with report_disk_errors(self.folder):
                for item in finished:
                    self._log.episode(*item)
                self._log.report(self.steps, report)
        self.metrics.append(report)
        self._episodes += finished
        finished.clear()
        self._sums = {}
        score = found.get("eval_return")
        if (
            score is None
            or not self.agent.may_be_best
            or (self._best is not None and score < self._best[1])
        ):
            return False
        self._best = [self.steps, score]
        return True

    def resume(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        passes: int | None = None,
        on_report: Report | None = None,
    ) -> Run:
        """Continues a run from the last checkpoint in its folder, bit for bit; a finished run stays
        as it is.

        Args:
            steps, episodes, passes: a new budget, counted from the run's beginning, larger than
                what is done; it is written to config.yaml. Schedules and the annealing of step
                sizes follow it from here on, so the weights are those of a run that was given this
                budget from the start only where nothing is scheduled.
            on_report: as in `rlbook.train`.

        Raises:
            RequestError: no folder, or a budget that is already used up.
            CheckpointError, TrainingError, Interrupted: as in `rlbook.load` and `rlbook.train`.
        """
        if self.folder is None:
            raise RequestError("this run has no folder to continue in")
        if read_config(self.folder)[1] != self._sealed:
            raise RequestError(
                f"{self.folder}/config.yaml has changed since this run was loaded; load it again"
            )
        self.open()
        step, state = load_checkpoint(self.folder, config=self._sealed)
        self._restore(step, state, source=True)
        budget = RunOptions(steps=steps, episodes=episodes, passes=passes)
        if budget.given():
            self._extend(self.folder, budget)
        return self.train(on_report=on_report, restored=state)

    def _extend(self, folder: Path, budget: RunOptions) -> None:
        progress = self._source.progress(Budget(budget.steps, budget.episodes, budget.passes))
        if progress >= 1.0:
            done = f"{self.steps} {self.unit} and {self._source.episodes} episodes"
            raise RequestError(f"the run has already taken {done}; give a larger budget")
        self.request = self.request.with_options(
            steps=budget.steps, episodes=budget.episodes, passes=budget.passes
        )
        self._marks = math.floor(progress * REPORTS)
        config = self.request.as_yaml()
        with locked(folder), report_disk_errors(folder):
            # killed here, the old config still fits
            seal_with(folder, [str(self._sealed), seal(config.encode())])
            self._sealed = write_config(folder, config)


def load(
    folder: str | Path,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
    env: EnvLike | None = None,
    algorithm: type[Agent] | None = None,
    data: Data | None = None,
    workers: int | None = None,
    inspect: int | None = None,
) -> Run:
    """A run from its folder, ready to evaluate or to `resume`.

    Args:
        folder: a run folder.
        checkpoint: "best", a step, or None for the last.
        allow_import: let an environment or an algorithm of the form "module:Name" import that
            module.
        env: the environment, for a run whose environment was made without an id or in wrappers.
        algorithm: the class, for a run of a class that cannot be imported.
        data: the data set, for a run that learned from one that lay in no file.
        workers: how many processes step the environments of a run that is resumed or evaluated; 1
            where left out.
        inspect: held-out starts to record when the run is resumed; where left out, as many as
            before.

    Raises:
        RequestError: no such folder, or a config that is not valid.
        CheckpointError: no checkpoint, or one that is damaged; one sentence.
    """
    folder = Path(folder)
    config, sealed = read_config(folder)
    # before torch is imported, so that a damaged one is refused at once
    step, state = load_checkpoint(folder, checkpoint, config=sealed)  # type: ignore[arg-type]
    given = {
        name: value
        for name, value in (("data", data), ("workers", workers), ("inspect", inspect))
        if value is not None
    }
    request = Request.from_yaml(
        config, allow_import=allow_import, env=env, algorithm=algorithm, **given
    )
    run = Run(request)
    run.folder, run._sealed = folder, sealed
    run._restore(step, state, source=False)
    run._read_log()
    return run


def _crossed(period: int, before: int, after: int) -> bool:
    """Whether a multiple of `period` lies in (before, after]."""
    return after // period > before // period
