"""The loop of a run: items from its source, a report every hundredth of the budget, and evaluations
and checkpoints at intervals."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar

from rlbook.agent import Agent, Metrics
from rlbook.checks import crosses
from rlbook.errors import TrainingError
from rlbook.interaction.process_group import ProcessGroup
from rlbook.runs.callbacks import Callbacks
from rlbook.runs.exact_evaluation import ExactEvaluation, exact_evaluation_of
from rlbook.runs.greedy_evaluation import evaluation_metrics, short_evaluation_note, typical_length
from rlbook.runs.processes.interrupts import Interrupted, signal_of
from rlbook.runs.run_state import REPORTS, RunState
from rlbook.runs.sources import EnvironmentSource
from rlbook.runs.storage.folder import report_disk_errors
from rlbook.runs.storage.state_encoding import StateError, encode

T = TypeVar("T")
EVALUATIONS = 10  # in a run, where nothing else is asked for
CHECKPOINTS = 10  # in a run, beside those of evaluations, of the start and of the end


class TrainingLoop:
    """Trains a run until its budget is used up or it reaches its target return."""

    def __init__(self, run: RunState, callbacks: Callbacks) -> None:
        self.callbacks = callbacks
        self.silent = run._source.reports_each and not callbacks.on_report and run.folder is None
        """Whether the reports are read only at the end."""
        self.trained, self.agent = run, run.agent
        self.source, self.reports = run._source, run.reports
        self.source.one_by_one = bool(callbacks.on_episode)
        self.noticed = len(self.source.finished_episodes)
        """Episodes since the last report whose callbacks have been called."""
        self.strange: set[str] = set()
        """The metrics that a note has reported as not finite."""
        self.stopped = False
        """Whether a callback has asked to stop."""
        self.group = ProcessGroup.training
        if self.group is not None:
            self.group.received = self.trained._interrupts.received
        self.rest = self.source.rest_of_round(whole_rounds=not self.agent.can_checkpoint)
        """The next finished episodes that are left out of the means of the log."""
        self.exchanged = -1  # how many exchanges there were after the last item

    def run(self) -> None:
        """Runs until training has ended."""
        if self.reports.is_ended:
            return
        self.trained._note_modifications()
        self._record()
        # a signal came before it was written
        if not self.source.reports_each and self._is_due():
            self._report()
        for metrics in self.source.items(self.agent, self.trained.request.budget):
            if not (self.silent and self._report_sweep(metrics)):
                strange = self.reports.collect(metrics)
                if strange is not None:
                    self._check_state(*strange)
                self._notice_episodes()
                if self._is_due():
                    self._report()
            self._obey_signals()
            if self.reports.is_ended or self.stopped:
                break
        if not self.reports.is_ended:
            self._finish()

    def _obey_signals(self) -> None:
        """Raises `Interrupted` after a signal; several processes do so at the same item, where all
        can be saved."""
        group, interrupts = self.group, self.trained._interrupts
        if group is None:
            interrupts()
            return
        if group.exchanges == self.exchanged:  # nothing was said in this item
            group.exchange_signals()
        self.exchanged = group.exchanges
        if group.stopping and self.agent.can_checkpoint:
            raise Interrupted([*interrupts.received, signal.SIGTERM][0])

    def _run_on_leader(self, function: Callable[[], T]) -> T:
        """The result of a function; of several processes only the leader runs it."""
        if self.group is None:
            return function()
        try:
            return self.group.run_on_leader(function)
        except KeyboardInterrupt as stop:
            raise Interrupted(signal_of(stop)) from None

    def _notice_episodes(self) -> None:
        """Calls the episode callbacks once for each episode that ended since the last item."""
        if not self.callbacks.on_episode:
            return
        ended = self.source.finished_episodes
        new = ended[self.noticed :]
        del ended[self.noticed :]
        for number, episode in enumerate(new, 1):
            ended.append(episode)
            self.trained._untold_episodes = new[number:]
            self.stopped |= self._run_on_leader(
                partial(self.callbacks.stop, "on_episode", self.trained)
            )
        self.noticed = len(ended)

    def _report_sweep(self, metrics: dict[str, Any]) -> bool:
        """Handles a planner's sweep as `collect` and `_report` would, in less time; returns False
        if there is more to do."""
        if self.agent.progress >= 1.0 or not all(map(math.isfinite, metrics.values())):
            return False
        self.reports.marks = math.floor(self.agent.progress * REPORTS)
        self.trained.metrics.append(
            {"step": self.trained.steps, "episodes": 0}
            | {name: float(value) for name, value in metrics.items()}
        )
        return True

    def _check_state(self, name: str, value: float) -> None:
        """Checks for NaN. A metric may be NaN although nothing is wrong (a variance of one sample),
        which is noted for agents that are not part of rlbook; a weight may not."""
        if not type(self.agent).__module__.startswith("rlbook.") and name not in self.strange:
            self.strange.add(name)
            self.trained._add_note(
                f"learn returned {value} as {name!r} at step {self.trained.steps:,}; the log has null"
                " in the reports of such steps, and curves leave them out"
            )
        if type(self.agent).state_dict is Agent.state_dict:
            return
        try:
            encode(self.agent.state_dict())
        except StateError as error:
            raise TrainingError(
                f"training diverged at step {self.trained.steps}: {name} is {value}, and {error}"
            ) from error

    def _is_due(self) -> bool:
        """Whether a report is due; `_finish` makes the last one."""
        if self.agent.progress >= 1.0 or not self.agent.can_checkpoint:
            return False
        return self.source.reports_each or self.agent.progress * REPORTS >= self.reports.marks + 1

    def _report(self) -> None:
        """Writes a line of the log; at intervals also an evaluation and a checkpoint."""
        before, marks = self.reports.marks, math.floor(self.agent.progress * REPORTS)
        due = self._run_on_leader(partial(self._evaluation_due, before, marks))
        evaluation = self._evaluate() if due else {}
        start = time.perf_counter()
        self.reports.marks = marks
        best = self._write(evaluation)
        self._record()
        if evaluation.get("eval_return", -math.inf) >= self.trained.request.stop_at_return:
            self.reports.marks = REPORTS + 1  # the run ends here
        self._call_callbacks(evaluation)
        if due or crosses(REPORTS // CHECKPOINTS, before, self.reports.marks):
            self.trained.write_checkpoint(best=best)
        self.trained.seconds["save"] += time.perf_counter() - start

    def _finish(self) -> None:
        """Writes the last line of the log, evaluation and checkpoint."""
        evaluation = self._evaluate(last=True)
        start = time.perf_counter()
        self.reports.marks = REPORTS + 1
        metrics = self.trained.metrics
        if self.source.reports_each and metrics and not self.reports.sums:
            self.reports.collect(
                {name: value for name, value in metrics[-1].items() if name in self.agent.METRICS}
            )
        best = self._write(evaluation)
        self._record()
        self._call_callbacks(evaluation)
        self.trained.write_checkpoint(best=best)
        self.trained.seconds["save"] += time.perf_counter() - start

    def _call_callbacks(self, evaluation: Metrics) -> None:
        """Calls the callbacks for a report, and for its evaluation."""
        moments = ["on_report"] + (["on_evaluation"] if "eval_return" in evaluation else [])
        for moment in moments:
            self.stopped |= self._run_on_leader(partial(self.callbacks.stop, moment, self.trained))

    def _evaluation_due(self, before: int, marks: int) -> bool:
        every, metrics = self.trained.request.eval_every, self.trained.metrics
        if self.source.reports_each or every == 0:
            return False
        if every is None:
            return crosses(REPORTS // EVALUATIONS, before, marks)
        return crosses(every, metrics[-1]["step"] if metrics else 0, self.trained.steps)

    def _evaluate(self, *, last: bool = False) -> Metrics:
        """Evaluates the agent. During training this may be shortened; the `last` one never is, nor
        if a return decides when training ends."""
        if self.trained.request.eval_every == 0:
            return {}
        start = time.perf_counter()
        found = self._run_on_leader(partial(self._evaluation, last=last))
        self.trained.seconds["evaluate"] += time.perf_counter() - start
        request = self.trained.request
        if "eval_episodes" in found and not request.recipe.may_never_end:
            self.trained._add_note(short_evaluation_note(request.eval_episodes))
        return found

    def _evaluation(self, *, last: bool) -> Metrics:
        request, metrics = self.trained.request, self.trained.metrics
        # half an evaluation is dropped; it begins again when the run continues
        with self.trained._interrupts.raise_immediately():
            before = next(
                (report["step"] for report in reversed(metrics) if "eval_return" in report), 0
            )
            in_environment = isinstance(self.source, EnvironmentSource)
            whole = last or request.stop_at_return < math.inf
            return evaluation_metrics(
                self.agent,
                request,
                self._exact_evaluation,
                self.trained.steps,
                self.trained.workers,
                effort=self.trained.steps - before if in_environment else None,
                length=None if whole else typical_length(self.source.finished_episodes, metrics),
            )

    @cached_property
    def _exact_evaluation(self) -> ExactEvaluation | None:
        return exact_evaluation_of(self.agent, self.trained.model)

    def _write(self, found: Metrics) -> bool:
        """Logs what happened since the last report. Returns whether the evaluation is the best so
        far."""
        run, finished = self.trained, self.source.finished_episodes
        for note in self.source.notes:
            run._add_note(note)
        run._note_modifications()
        report: dict[str, Any] = {"step": run.steps, "episodes": self.source.episodes}
        if self.source.passes:
            report["passes"] = self.source.passes
        rest = min(self.rest, len(finished))
        self.rest -= rest
        cut = self.source.cut_short(whole_rounds=not self.agent.can_checkpoint)
        counted = finished[rest : max(rest, len(finished) - cut)]
        if counted:
            report["return"] = math.fsum(item[1] for item in counted) / len(counted)
            report["length"] = sum(item[2] for item in counted) / len(counted)
        report |= self.reports.means() | found
        if run._log is not None:
            with report_disk_errors(run.folder):
                for item in finished:
                    run._log.episode(*item)
                run._log.report(run.steps, report)
        run.metrics.append(report)
        run._episodes += finished
        finished.clear()
        self.noticed = 0
        return self._is_best(found.get("eval_return"))

    def _is_best(self, score: float | None) -> bool:
        """Whether an evaluation is the best so far; the last one among ties."""
        best = self.reports.best
        if score is None or not self.agent.may_be_best or (best is not None and score < best[1]):
            return False
        self.reports.best = [self.trained.steps, score]
        return True

    def _record(self) -> None:
        """Records the policy's current actions, if that is requested."""
        if self.trained._recorder is not None or self.group is not None:
            self._run_on_leader(self._record_tokens)

    def _record_tokens(self) -> None:
        if self.trained._recorder is not None:
            with report_disk_errors(self.trained.folder):
                self.trained._recorder.record(self.trained.steps)
