"""A run: the request, the agent, its log, and its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rlbook.agent import Agent, Data, Parts, State
from rlbook.checks import as_path, check_arguments, did_you_mean, parse_json
from rlbook.data.text_files import TextFile
from rlbook.errors import RequestError, message_stream, system_reason
from rlbook.interaction.budget import Budget
from rlbook.interaction.environments import EnvLike, EnvRecipe
from rlbook.interaction.process_group import process_group
from rlbook.interaction.threads import deterministic_kernels, use_one_thread
from rlbook.interaction.vector_envs.workers import Workers
from rlbook.runs.callbacks import NO_CALLBACKS, Callback, Callbacks
from rlbook.runs.options import RunOptions, budgets_of
from rlbook.runs.parts import (
    check_device,
    check_digests,
    check_replay_folder,
    check_saveable,
    device_of,
    digests_of,
)
from rlbook.runs.processes.interrupts import Interrupted, interruptible
from rlbook.runs.processes.parallel import check_parallel
from rlbook.runs.progress import done_and_total, is_quiet, progress
from rlbook.runs.request import Request, schedule_names
from rlbook.runs.run_state import REPORTS
from rlbook.runs.run_tokenizer import add_tokenizer, write_tokenizer
from rlbook.runs.run_views import RunViews
from rlbook.runs.setup import set_up
from rlbook.runs.sources import DataSource, EnvironmentSource
from rlbook.runs.storage.checkpoints import (
    discard_after,
    load_checkpoint,
    mark_best,
    seal_with,
)
from rlbook.runs.storage.files import CheckpointError, read_file, replace_file
from rlbook.runs.storage.folder import (
    ROWS,
    check_free,
    lock_folder,
    read_config,
    report_disk_errors,
    seal,
    write_config,
)
from rlbook.runs.storage.log import MetricsLog
from rlbook.runs.storage.plain_yaml import config_of
from rlbook.runs.training_loop import TrainingLoop
from rlbook.seeding import GlobalGenerators

if TYPE_CHECKING:
    from rlbook.runs.token_record import TokenRecorder

STRETCH, HOLD = "stretch", "hold"
"""The possible behaviours of schedules when a run's budget grows."""
SECONDS, SECONDS_LIMIT = "seconds.json", 10_000  # where the time went, and its bytes at most


class Run(RunViews):
    """A training run: finished, interrupted, or loaded from its folder."""

    def __init__(self, request: Request) -> None:
        count = request.options.workers or 1
        workers = Workers(count) if count > 1 else None
        self.group = process_group()
        """The processes that train it together; None if this is the only one."""
        own = GlobalGenerators(request.seed)
        with use_one_thread(), own.swap_states():
            agent, source, notes = set_up(request, partial(agent_in, request), workers)
        super().__init__(request, agent, source, notes, workers, own)
        self._is_training = False

    def open(self) -> Run:
        """Opens what training needs but acting does not, such as recorded data, and checks that it
        is what the run was started with.

        Raises:
            RequestError: it cannot be read, or has changed, or the device is not here.
        """
        check_device(self.request.options.device)
        check_replay_folder(self.request.options.replay_folder)
        if self.group is not None:
            check_parallel(self.request, self._source, self.group.size)
        if self.request.options.inspect:
            # torch's agents, which tables do without
            from rlbook.runs.inspection import (
                check_inspectable,
            )

            check_inspectable(self.agent)
        try:
            data = self.data_source()
        except RequestError as error:
            asked = self.request.options
            if "data" in self.request.digests and asked.data is None and asked.expert is None:
                raise RequestError(
                    "this run learned from data in memory; give them again, as in"
                    " rlbook.load(folder, data=my_data)"
                ) from error
            raise
        found = digests_of(self.request, data)
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

    def data_source(self) -> Data | None:
        """The source that is learned from besides, or instead of, an environment."""
        if isinstance(self._source, DataSource):
            return self._source.data
        shown = getattr(self.agent, "parts", Parts()).demonstrations
        return None if shown is None else shown()

    def claim(self, folder: Path) -> None:
        """Takes over a folder for this run: writes the first checkpoint, and then its config.

        Raises:
            RequestError: the folder already holds a run, another process writes it, or it cannot be
                written.
            TrainingError: the first checkpoint could not be written.
        """
        check_saveable(self.agent)
        if self.group is None:
            self._claim(folder)
            return
        self.group.run_on_leader(partial(self._claim, folder))
        self.written_elsewhere = not self.group.is_leader

    def _claim(self, folder: Path) -> None:
        request, rows = self.request, self.request.options.data
        if isinstance(rows, TextFile):
            request = request.with_options(data=str(folder / ROWS))
        config = request.as_yaml()
        check_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock_folder(folder), MetricsLog(folder) as self._log:
                check_free(folder)
                self.folder, self._sealed = folder, seal(config.encode())
                best = self._write_log(self._log)
                write_tokenizer(folder, self.request)
                if isinstance(rows, TextFile):
                    replace_file(folder / ROWS, rows.content())
                self.write_checkpoint(best=best)
                write_config(folder, config)
                self.request = request
        except CheckpointError as error:
            raise RequestError(str(error).removesuffix(".")) from error
        except OSError as error:
            raise RequestError(f"cannot write to {folder}: {system_reason(error)}") from error

    def _write_log(self, log: MetricsLog) -> bool:
        """Writes the log of a run that had no folder. Returns whether its current state is its
        best, because earlier ones can no longer be saved."""
        for episode in self._episodes:
            log.episode(*episode)
        for report in self.metrics:
            log.report(report["step"], report)
        best = self.reports.best
        if best is not None and best[0] != self.steps:
            self.reports.best = None
        return self.reports.best is not None

    def complete(
        self,
        callbacks: Callbacks = NO_CALLBACKS,
        *,
        quiet: bool | None = True,
        restored: State | None = None,
    ) -> Run:
        """Trains until the budget is used up, from the start or from the `restored` state.

        Args:
            callbacks: called on the way; each may end the run.
            quiet: as in `rlbook.train`.
            restored: the state of the checkpoint that the run was put back to.

        Raises:
            TrainingError: a NaN, an infinity, or a checkpoint that could not be written.
            Interrupted: SIGINT or SIGTERM; the checkpoint is written.
        """
        self._check_idle()
        self._untouched = False
        follows = self.group is not None and not self.group.is_leader
        start, shown = time.monotonic(), not is_quiet(quiet) and not follows
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "_is_training", False)
            self._is_training = True
            stack.enter_context(self.workers or contextlib.nullcontext())
            stack.enter_context(use_one_thread())
            stack.enter_context(self._globals.swap_states())
            stack.enter_context(deterministic_kernels(device_of(self.request.options.device)))
            if self.folder is not None:
                stack.enter_context(lock_folder(self.folder))
                with report_disk_errors(self.folder):
                    self._log = stack.enter_context(MetricsLog(self.folder))
                    if restored is not None:
                        self._rewind(self.folder, self._log, restored)
                    self._recorder = self._open_record(stack)
            if self.group is not None:
                stack.enter_context(self.group.train_together())
            if shown:
                display = stack.enter_context(progress())
                callbacks = replace(callbacks, on_report=(*callbacks.on_report, display))
            if not self.reports.is_ended:  # a finished run's folder stays as it is
                stack.callback(self._write_seconds)
            stack.enter_context(self._measure_time())
            self._interrupts = stack.enter_context(interruptible())
            try:
                TrainingLoop(self, callbacks).run()
            except Interrupted as stop:
                self.write_checkpoint()
                stop.run = self
                stop.add_note(self._resume_hint())
                raise
        if shown:
            print(f"{self.summary()}; {time.monotonic() - start:.1f} s", file=message_stream())
        return self

    def _resume_hint(self) -> str:
        """The command that continues after an interruption."""
        done, total, unit = done_and_total(self)
        stopped = f"stopped at {done:,} {unit}" + ("" if total is None else f" of {total:,}")
        if self.folder is not None:
            return f"{stopped}; rlbook.load({str(self.folder)!r}).train() goes on"
        return f"{stopped}; to go on: import sys; run = sys.last_value.run; run.train()"

    def _check_idle(self) -> None:
        """Raises RequestError during training: a callback must not train its own run."""
        if self._is_training:
            raise RequestError("the run is training; a callback cannot train it as well")

    def __reduce__(self) -> NoReturn:
        raise RequestError(
            "a run is not pickled or copied: run.save(folder) keeps it, and rlbook.load(folder) brings"
            " it back"
        )

    @check_arguments("run.train(steps=10_000)")
    def train(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        passes: int | None = None,
        callbacks: Sequence[object] | object = (),
        on_report: Callback | None = None,
        on_episode: Callback | None = None,
        on_evaluation: Callback | None = None,
        quiet: bool | None = None,
        schedules: str = STRETCH,
    ) -> Run:
        """Continues training for the given number of further steps, episodes or passes; with none
        of the three, for the rest of the budget.

        A run with a folder continues from its last checkpoint there, a run without one from its
        current state. Schedules, such as an annealed learning rate, are stretched over the whole
        new budget or held at their last values, and a note lists them.

        Args:
            steps, episodes, passes: added to what the run has already taken.
            callbacks, on_report, on_episode, on_evaluation, quiet: as in `rlbook.train`.
            schedules: "stretch" or "hold", as in `resume`.

        Raises:
            RequestError: the budget is used up, or a callback or `stop_at_return` ended the run,
                and none of the three is given.
            TrainingError, Interrupted: as in `rlbook.train`.
        """
        self._check_idle()
        more = RunOptions(steps=steps, episodes=episodes, passes=passes).explicit_options()
        if not more and self._source.progress(self.request.budget) >= 1.0:
            raise RequestError(
                f"the run has used its budget, {self._progress_text()}; give a larger budget: "
                f"run.train({next(iter(budgets_of(self.request.options)), 'steps')}=…)"
            )
        # a planner has nothing more to do where it has converged
        if not more and self.reports.is_ended and not self._source.reports_each:
            raise RequestError(
                f"the run ended before its budget was used, after {self._progress_text()}, at a"
                " callback or at stop_at_return; give the steps that follow: run.train(steps=…)"
            )
        taken = {
            "steps": self.steps,
            "episodes": self._source.episodes,
            "passes": math.ceil(self.passes),
        }
        budget = {name: taken[name] + value for name, value in more.items()}
        hooks = Callbacks.collect(
            callbacks, on_report=on_report, on_episode=on_episode, on_evaluation=on_evaluation
        )
        if self.folder is not None:
            return self.resume(**budget, callbacks=[hooks], quiet=quiet, schedules=schedules)
        if self.workers is not None:
            raise RequestError(
                "a run with workers can be continued only from a folder; train it with out"
            )
        if budget:
            self._extend(RunOptions(**budget), schedules)
        return self.complete(hooks, quiet=quiet)

    @check_arguments('run.save("runs/pole")')
    def save(self, folder: str | Path) -> Path:
        """Saves the run to a new folder and returns the folder; `rlbook.load` restores it.

        A run that already has a folder is copied whole. A run without one writes its log and a
        checkpoint of its current state, and has this folder from now on. In a callback both write
        what is there now, and the run goes on where it is: `load` and `resume` go on from here.

        Raises:
            RequestError: something is there already, it cannot be written, or a callback asks in
                the middle of a round of texts or of a run of several processes.
        """
        folder = as_path("folder", folder)
        if self._is_training:
            self._save_as_it_is(folder)
            return folder
        if self.folder is None:
            self.claim(folder)
            return folder
        check_free(folder)
        try:
            with lock_folder(self.folder):
                shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            raise RequestError(f"cannot write to {folder}: {error}") from error
        return folder

    def _save_as_it_is(self, folder: Path) -> None:
        """Writes the current log and checkpoint to a folder that the run does not take over."""
        if self.group is not None:
            raise RequestError("a run of several processes cannot be saved by a callback")
        if not self.agent.can_checkpoint:
            raise RequestError("a round is in progress; save it in on_report or on_evaluation")
        check_saveable(self.agent)
        before = self.request, self.folder, self._sealed, self._log, self.reports.best
        ended = self._source.finished_episodes
        told = len(ended)
        ended += self._untold_episodes
        try:
            self._claim(folder)
        finally:
            self.request, self.folder, self._sealed, self._log, self.reports.best = before
            del ended[told:]

    def _open_record(self, stack: contextlib.ExitStack) -> TokenRecorder | None:
        """The recorder of the policy's actions, if that is requested or was started."""
        assert self.folder is not None
        if not self.request.options.inspect and not (self.folder / "tokens.jsonl").exists():
            return None
        from rlbook.runs.token_record import recorder_of

        recorder = recorder_of(
            self.agent, self.request, self.folder, self.steps, partial(agent_in, self.request)
        )
        return None if recorder is None else stack.enter_context(recorder)

    @contextlib.contextmanager
    def _measure_time(self) -> Iterator[None]:
        """Within the context, the time is measured by activity."""
        start, clock = time.perf_counter(), self._source.clock
        self.seconds = {"evaluate": 0.0, "save": 0.0}
        try:
            yield
        finally:
            parts = (
                {"environment": clock.stepping, "act": clock.acting}
                if clock is not None and clock.stepping
                else {}
            )
            known = parts | self.seconds
            rest = time.perf_counter() - start - sum(known.values())
            self.seconds = parts | {"learn": max(0.0, rest)} | self.seconds

    def _write_seconds(self) -> None:
        """Adds the seconds to those in the folder. They vary between runs, so they are not part of
        the log or of a checkpoint."""
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
        """Removes what was logged after the checkpoint; it will be logged again, byte for byte."""
        try:
            log.truncate(state["report"]["log"], state["report"].get("log_sha256"))
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        discard_after(folder, self.steps)
        if self.reports.best is not None:
            mark_best(folder, int(self.reports.best[0]), self.reports.best[1])
        self._read_log()

    def resume(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        passes: int | None = None,
        callbacks: Sequence[object] | object = (),
        on_report: Callback | None = None,
        on_episode: Callback | None = None,
        on_evaluation: Callback | None = None,
        quiet: bool | None = None,
        schedules: str = STRETCH,
    ) -> Run:
        """Continues a run from the last checkpoint in its folder, bit for bit; a finished run is
        not changed.

        Args:
            steps, episodes, passes: a new budget, counted from the run's beginning, larger than
                what is done; it is written to config.yaml. Schedules and the annealing of step
                sizes follow it from here on, so the weights are those of a run that was given this
                budget from the start only where nothing is scheduled.
            callbacks, on_report, on_episode, on_evaluation, quiet: as in `rlbook.train`.

        Raises:
            RequestError: no folder, or a budget that is already used up.
            CheckpointError, TrainingError, Interrupted: as in `rlbook.load` and `rlbook.train`.
        """
        if self.folder is None:
            raise RequestError("this run has no folder to continue in")
        self._check_idle()
        if read_config(self.folder)[1] != self._sealed:
            raise RequestError(
                f"{self.folder}/config.yaml has changed since this run was loaded; load it again"
            )
        self.open()
        step, state = load_checkpoint(self.folder, config=self._sealed)
        self._restore(step, state, source=True)
        if self.group is not None:
            self._follow_leader(self.folder)
        budget = RunOptions(steps=steps, episodes=episodes, passes=passes)
        if budget.explicit_options():
            self._extend(budget, schedules)
        hooks = Callbacks.collect(
            callbacks, on_report=on_report, on_episode=on_episode, on_evaluation=on_evaluation
        )
        return self.complete(hooks, quiet=quiet, restored=state)

    def _follow_leader(self, folder: Path) -> None:
        """Among several processes that have read a checkpoint, leaves the folder to the leader; the
        log is truncated at the checkpoint for all of them."""
        assert self.group is not None
        self.group.exchange_signals()  # all have read it
        if self.group.is_leader:
            return
        self.folder, self.written_elsewhere = None, True
        self.metrics = [report for report in self.metrics if report["step"] <= self.steps]
        self._episodes = [episode for episode in self._episodes if episode[0] <= self.steps]

    def _extend(self, budget: RunOptions, schedules: str) -> None:
        """Gives the run a larger budget, and stores it if there is a folder."""
        if schedules not in (STRETCH, HOLD):
            hint = did_you_mean(schedules, (STRETCH, HOLD))
            raise RequestError(
                f"schedules must be one of {STRETCH!r}, {HOLD!r}, got {schedules!r}{hint}"
            )
        done = self._source.progress(Budget(budget.steps, budget.episodes, budget.passes))
        if done >= 1.0:
            raise RequestError(
                f"the run has already taken {self._progress_text()}; give a larger budget"
            )
        before, scheduled = budgets_of(self.request.options), schedule_names(self.request.config)
        request = self.request.with_budget(budget)
        if schedules == HOLD and scheduled:
            request = request.with_held_schedules(before)
            self._replace_agent(request)
        self.request = request
        if scheduled:
            after = budgets_of(request.options)
            ways = [
                " and ".join(f"{n:,} {name}" for name, n in item.items())
                for item in (before, after)
            ]
            what = "keeps its last value" if schedules == HOLD else "is stretched over the new one"
            grew = "shrank" if any(n < before.get(name, n) for name, n in after.items()) else "grew"
            self._add_note(
                f"the budget {grew} from {ways[0]} to {ways[1]}; what follows it {what}:"
                f" {', '.join(scheduled)}"
            )
        self.agent.progress, self.reports.marks = done, math.floor(done * REPORTS)
        if self.folder is None:
            return
        config = self.request.as_yaml()
        with lock_folder(self.folder), report_disk_errors(self.folder):
            # killed here, the old config still fits
            seal_with(self.folder, [str(self._sealed), seal(config.encode())])
            self._sealed = write_config(self.folder, config)

    def _replace_agent(self, request: Request) -> None:
        """The same agent in its current state, with other settings."""
        if self.workers is not None:
            raise RequestError("schedules can be held by one worker only; leave workers out")
        check_saveable(self.agent)
        fresh = Run(request).open()
        fresh.agent.load_state_dict(self.agent.state_dict())
        fresh._source.load_state_dict(self._source.state_dict())
        self.agent, self._source = fresh.agent, fresh._source

    def _progress_text(self) -> str:
        return f"{self.steps:,} {self.unit} and {self._source.episodes:,} episodes"


@check_arguments('rlbook.load("runs/pole")')
def load(
    folder: str | Path,
    *,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
    env: EnvLike | None = None,
    algorithm: type[Agent] | None = None,
    network: Callable[..., Any] | None = None,
    data: Data | Sequence[Mapping[str, Any]] | str | Path | None = None,
    workers: int | None = None,
    inspect: int | None = None,
) -> Run:
    """Loads a run from its folder, ready to evaluate or to `resume`.

    Args:
        folder: a run folder.
        checkpoint: "best", a step, or None for the last.
        allow_import: let an environment, an algorithm or a network of the form "module:Name" import
            that module.
        env: the environment, for a run whose environment was made without an id or in wrappers. To
            resume the run it must be the same; to evaluate it, it may be any that the agent fits.
        algorithm: the class, for a run of a class that cannot be imported.
        network: likewise, the class of the run's own network.
        data: the data set, for a run that learned from episodes in memory, or whose file has moved.
        workers: how many processes step the environments of a run that is resumed or evaluated; 1
            where left out.
        inspect: held-out starts to record when the run is resumed; where left out, as many as
            before.

    Raises:
        RequestError: no such folder, or a config that is not valid.
        CheckpointError: no checkpoint, or one that is damaged; one sentence.
    """
    folder = _run_folder(folder)
    config, sealed = read_config(folder)
    # before torch is imported, so that a damaged one is refused at once
    step, state = load_checkpoint(folder, checkpoint, config=sealed)  # type: ignore[arg-type]
    given = {
        name: value
        for name, value in (("data", data), ("workers", workers), ("inspect", inspect))
        if value is not None
    }
    request = Request.from_yaml(
        config,
        allow_import=allow_import,
        env=env,
        algorithm=algorithm,
        network=network,
        **given,
    )
    if data is None:
        request = _with_own_rows(folder, request)
    if env is not None:
        _check_env(request.recipe, env, allow_import=allow_import)
    return _restore_run(folder, request, sealed, step, state, any_env=env is not None)


def load_policy(
    folder: str | Path, *, checkpoint: int | str | None = None, allow_import: bool = False
) -> Run:
    """As `load`, for a program that only asks the agent for actions: the modules of its
    environment's rewards are not imported."""
    folder = _run_folder(folder)
    config, sealed = read_config(folder)
    step, state = load_checkpoint(folder, checkpoint, config=sealed)  # type: ignore[arg-type]
    request = Request.from_yaml(config, allow_import=allow_import).without_rewards()
    return _restore_run(folder, _with_own_rows(folder, request), sealed, step, state)


def _run_folder(folder: str | Path) -> Path:
    """The argument of `load` as a path; RequestError if it is something else."""
    if not isinstance(folder, str | os.PathLike):
        raise RequestError(f"a run is loaded from its folder, got a {type(folder).__name__}")
    return Path(folder)


def _restore_run(
    folder: Path, request: Request, sealed: Any, step: int, state: Any, *, any_env: bool = False
) -> Run:
    """The run of a folder at a checkpoint; `any_env` as for `RunState._restore`."""
    run = Run(add_tokenizer(folder, request))
    run.folder, run._sealed = folder, sealed
    run._restore(step, state, source=False, any_env=any_env)
    run._read_log()
    return run


def lacks_env(folder: Path) -> bool:
    """Whether a run's folder names no environment, because it was made without an id or in
    wrappers."""
    return config_of(folder)["env"] is None


def env_for(folder: str | Path, env: EnvLike | None) -> EnvLike | None:
    """The argument `env` with which a run is loaded to act in `env`: None if its folder names its
    own."""
    return env if env is not None and lacks_env(_run_folder(folder)) else None


def _check_env(own: EnvRecipe, env: EnvLike, *, allow_import: bool) -> None:
    """Raises RequestError if a run is to be loaded with another environment than its own."""
    given = EnvRecipe.from_env(env, allow_import=allow_import)
    if own.instance is None and (given.written_id is None or given.id != own.id):
        wrapped = " in wrappers" if given.id == own.id else ""
        raise RequestError(
            f"the run's environment is {own.name}, not {given.name}{wrapped}; rlbook.evaluate(folder, env)"
            " plays in another one, and rlbook.train(…, env, start=folder) trains the policy there"
        )


def _with_own_rows(folder: Path, request: Request) -> Request:
    """The request with the rows that its run was given in memory, wherever its folder was moved
    to."""
    rows = folder / ROWS
    named = request.options.data
    if not isinstance(named, str) or Path(named).name != ROWS or not rows.is_file():
        return request
    return request.with_options(data=str(rows))


def agent_in(request: Request, folder: Path) -> Agent:
    """The agent of a run that `request` names, trusted as much as the request."""
    return load_policy(folder, allow_import=request.recipe.allow_import).agent
