"""`rlbook.recipes.tuning.tune`: searches for hyper-parameters on some seeds, and evaluates them on
others.

A trial trains the algorithm with drawn hyper-parameters once for each tuning seed, and its score is
the mean of what these runs come to. Optuna's tree-structured Parzen estimator draws, more and more
often where scores were high; the median rule ends a trial whose evaluations stay below those of
half of the earlier ones at the same point. The first trial is what one would have without a search.

The best of many noisy scores is too high: it was chosen for its luck, too. So the best and the
first trial are trained again, on seeds that had no part in choosing, and that is what is reported.

TUNED/tune.yaml             what was asked; another search is refused in this folder
TUNED/study.journal         every trial, in Optuna's format
TUNED/trial-N/seed-S/       the runs of trial N on the fresh seeds, for `rlbook compare` and `plot`
TUNED/tuned.yaml            the preset, for `rlbook train --config`

Source: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", section 4, and the
median rule of Golovin et al. 2017, doi:10.1145/3097983.3098043, section 3.2.1, both as Optuna
(Akiba et al. 2019, arXiv:1907.10902) has them. Seeds apart: Eimer et al. 2023, arXiv:2306.01324.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.agent import Agent
from rlbook.checks import whole_number
from rlbook.errors import RequestError, TrainingError, system_reason
from rlbook.evaluation.comparison import final_return
from rlbook.recipes.pruning import PruningCallback, import_optuna
from rlbook.recipes.search_space import draw, start_of
from rlbook.recipes.study import (
    ERROR,
    SCORES,
    SETTINGS,
    check_journal,
    close_open_trials,
    enqueue_first,
    open_study,
    repair_journal,
    trials_that_count,
)
from rlbook.recipes.tuning_plan import PLAN, TuningPlan, read_plan
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.processes.on_cluster import start_commands
from rlbook.runs.processes.side_by_side import reason_of_end
from rlbook.runs.storage.files import CheckpointError, replace_file
from rlbook.runs.storage.folder import check_free, lock_folder, report_disk_errors, seed_folder

if TYPE_CHECKING:
    import optuna


PRESET = "tuned.yaml"
TRIALS, SEEDS, FRESH_SEEDS = 50, 3, 5
MOST = 100_000  # of each
WORKER = "rlbook.recipes.one_trial"
INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
BLOCK = 10  # fresh seeds begin at a multiple of this


@dataclass(frozen=True)
class Trial:
    """Hyper-parameters and their results."""

    number: int
    state: str
    """complete, pruned, or interrupted; one that diverged counts as pruned."""
    hyperparameters: dict[str, Any]
    scores: list[float]
    """[R]: the return for each tuning seed, in reward units."""
    share: float = 1.0
    """The fraction of its runs that was completed."""
    error: str | None = None
    """Why it failed or was stopped: training diverged, or two values are incompatible."""

    @property
    def score(self) -> float | None:
        """The mean over the tuning seeds; None for a trial that did not finish them."""
        return statistics.fmean(self.scores) if self.state == "complete" else None


OnTrial = Callable[[Trial, int], None]


@dataclass(frozen=True)
class Tuning:
    """The result of a search."""

    folder: Path
    preset: Path
    """The file for `rlbook train --config`."""
    trials: list[Trial]
    best: Trial
    first: Trial | None
    """The trial with the starting values; None if a range excludes them."""
    seeds: list[int]
    """The seeds on which the trials were trained and selected."""
    fresh_seeds: list[int]
    fresh: dict[int, list[float]] = field(default_factory=dict)
    """For the best and the first trial: number → the return for each fresh seed."""

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyper-parameters of the best trial: searched ones and given ones."""
        return self.best.hyperparameters


@dataclass(frozen=True)
class _WorkerPool:
    """The number of worker processes, and where they run."""

    folder: Path
    jobs: int
    cluster: str | None
    allow_import: bool

    def run(self, commands: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields each command's position and result as they finish. Raises Interrupted if one was
        asked to stop."""
        if self.jobs == 1 and self.cluster is None:
            for index, words in enumerate(commands):
                yield index, run_command(self.folder, words, allow_import=self.allow_import)
            return
        trust = ["--allow-import"] if self.allow_import else []
        lines = [[str(self.folder), *words, *trust] for words in commands]
        with contextlib.closing(start_commands(WORKER, lines, self.jobs, self.cluster)) as ended:
            for item in ended:
                if item.code in INTERRUPTED:
                    raise Interrupted(item.code - 128 if item.code > 0 else -item.code)
                try:
                    facts = json.loads(item.out)
                except ValueError:
                    facts = {ERROR: reason_of_end(item)}
                yield item.index, facts


def tune(
    algorithm: str | type[Agent],
    env: str,
    *,
    out: str | Path | None = None,
    trials: int = TRIALS,
    search: Sequence[str] = (),
    seeds: int = SEEDS,
    fresh_seeds: int = FRESH_SEEDS,
    jobs: int = 1,
    cluster: str | None = None,
    prune: bool = True,
    allow_import: bool = False,
    env_kwargs: dict[str, Any] | None = None,
    on_trial: OnTrial | None = None,
    **settings: Any,
) -> Tuning:
    """Searches for hyper-parameters, and evaluates the best on seeds that had no part in choosing.

    Called again with the same arguments it goes on: with trials that are missing, or with more.

    Args:
        algorithm, env, env_kwargs, allow_import: as in `rlbook.train`; the environment by its id.
        out: the folder of the search; None is runs/ALGORITHM-ENV-tune.
        trials: how many in all; one counts when it is complete or pruned.
        search: what to vary: names such as "learning_rate", whose range follows from their
            annotation and from the value they would have, and "clip=0.1..0.4" or
            "batch_size=32/64/128". Empty: the usual ones of the algorithm.
        seeds: runs of each trial, with `seed`, `seed` + 1, …; their mean is its score.
        fresh_seeds: runs that measure the best trial and the first one; their seeds begin at the
            next multiple of 10.
        jobs: processes that run trials at the same time; 1 is this process.
        cluster: the address of a Ray cluster, whose machines see `out`.
        prune: end trials that stay below the median.
        on_trial: called after each trial with it and with how many have ended.
        settings: run options and hyper-parameters, as in `rlbook.train`; they stay as they are.

    Raises:
        RequestError: the request is wrong, or `out` holds another search; nothing was written.
        TrainingError: no trial was complete.
        Interrupted: SIGINT or SIGTERM; what has ended is kept.
    """
    if settings.get("seed", 0) is None:
        raise RequestError(
            "seed must be a number, got None: a search is continued by repeating its arguments, "
            "so a new seed would start another one"
        )
    plan = TuningPlan.build(
        algorithm,
        env,
        settings,
        search=search,
        seeds=seeds,
        prune=prune,
        env_kwargs=env_kwargs,
        allow_import=allow_import,
    )
    return search_hyperparameters(
        plan,
        plan_folder(plan) if out is None else out,
        trials=trials,
        fresh_seeds=fresh_seeds,
        jobs=jobs,
        cluster=cluster,
        allow_import=allow_import,
        on_trial=on_trial,
    )


def search_hyperparameters(
    plan: TuningPlan,
    out: str | Path,
    *,
    trials: int = TRIALS,
    fresh_seeds: int = FRESH_SEEDS,
    jobs: int = 1,
    cluster: str | None = None,
    allow_import: bool = False,
    on_trial: OnTrial | None = None,
) -> Tuning:
    """Runs the unfinished part of a search; arguments and errors as for `tune`."""
    folder, trials = Path(out), whole_number("trials", trials, 1, MOST)
    fresh = next_fresh_seeds(plan, whole_number("fresh_seeds", fresh_seeds, 0, MOST))
    crew = _WorkerPool(folder, whole_number("jobs", jobs, 1, MOST), cluster, allow_import)
    import_optuna()
    if cluster is not None:  # is it there? before anything is written
        list(start_commands(WORKER, [], 1, cluster))
    begin_search(plan, folder)
    with lock_folder(folder), report_disk_errors(folder):
        return _search(plan, crew, trials, fresh, on_trial or (lambda trial, ended: None))


def begin_search(plan: TuningPlan, folder: Path) -> None:
    """Creates the folder and writes the plan, if they do not exist.

    Raises:
        RequestError: the folder holds another search or a run, or cannot be written.
    """
    try:
        check_journal(folder)
        if os.path.lexists(folder / PLAN):
            plan.check_same(folder)
            return
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder):
            plan.write(folder)
    except OSError as error:
        raise RequestError(f"cannot write to {folder}: {system_reason(error)}") from error
    except CheckpointError as error:
        raise RequestError(str(error).removesuffix(".")) from error


def next_fresh_seeds(plan: TuningPlan, count: int) -> list[int]:
    """The fresh seeds, which had no part in choosing: from the next multiple of 10 on."""
    first = -(-(plan.seeds[-1] + 1) // BLOCK) * BLOCK
    return list(range(first, first + count))


def _search(
    plan: TuningPlan,
    crew: _WorkerPool,
    trials: int,
    fresh_seeds: list[int],
    on_trial: OnTrial,
) -> Tuning:
    folder, trust = crew.folder, crew.allow_import
    start = start_of(plan.space, plan.request(allow_import=trust).config)
    repair_journal(folder)
    with open_study(folder, plan.seeds[0], 0) as study:
        close_open_trials(study, again=True)
        enqueue_first(study, start)
        ended = len(trials_that_count(study))
    todo = [("trial", str(index)) for index in range(ended, trials)]
    failure = ""
    for _, facts in crew.run(todo):
        failure = facts.get(ERROR) or failure
        if "number" in facts:
            trial = Trial(**facts)
            ended += trial.state != "interrupted"
            on_trial(trial, ended)
    with open_study(folder, plan.seeds[0], 0) as study:
        close_open_trials(study, again=False)
        found = [_trial_of(trial, plan) for trial in study.get_trials(deepcopy=False)]
    complete = [trial for trial in found if trial.state == "complete"]
    if not complete:
        raise TrainingError(f"no trial was complete; the last one said: {failure or 'nothing'}")
    best = max(complete, key=lambda trial: statistics.fmean(trial.scores))
    first = None
    if start is not None:
        drawn = draw(plan.space, import_optuna().trial.FixedTrial(start))
        known = read_plan(folder).settings(drawn, allow_import=trust)  # as the trials have it
        first = next((trial for trial in complete if trial.hyperparameters == known), None)
    tuning = Tuning(folder, folder / PRESET, found, best, first, list(plan.seeds), fresh_seeds)
    _measure(plan, crew, tuning)
    comments = preset_comments(tuning)
    replace_file(tuning.preset, plan.as_preset(best.hyperparameters, *comments).encode())
    return tuning


def _measure(plan: TuningPlan, crew: _WorkerPool, tuning: Tuning) -> None:
    """Trains the best and the first trial on the fresh seeds."""
    chosen = {tuning.best.number: tuning.best}
    if tuning.first is not None:
        chosen |= {tuning.first.number: tuning.first}
    pairs = [(number, seed) for number in chosen for seed in tuning.fresh_seeds]
    came: dict[tuple[int, int], float] = {}
    for index, facts in crew.run([("fresh", str(number), str(seed)) for number, seed in pairs]):
        number, seed = pairs[index]
        if "score" not in facts:
            raise TrainingError(f"trial {number} on the fresh seed {seed} failed: {facts[ERROR]}")
        came[number, seed] = facts["score"]
    for number in chosen if tuning.fresh_seeds else ():
        tuning.fresh[number] = [came[number, seed] for seed in tuning.fresh_seeds]


def preset_comments(tuning: Tuning) -> list[str]:
    """Comments on the origin of a preset's numbers, one line each."""
    best, count = tuning.best, len(tuning.trials)
    lines = [
        f"trial {best.number} of {count}, chosen by its mean return on"
        f" {seeds_in_words(tuning.seeds)}: {best.score:.4g}"
    ]
    if best.number in tuning.fresh:
        lines.append(
            f"mean return on {seeds_in_words(tuning.fresh_seeds)}, which had no part in choosing:"
            f" {statistics.fmean(tuning.fresh[best.number]):.4g}"
        )
    return lines


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Consecutive seeds as text, such as "seeds 0 to 2"."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def run_command(folder: Path, words: Sequence[str], *, allow_import: bool) -> dict[str, Any]:
    """The work of one process: `trial INDEX`, or `fresh NUMBER SEED`. Returns the result as JSON
    values."""
    plan, (what, *numbers) = read_plan(folder), words
    if what == "trial":
        return vars(_run_trial(plan, folder, int(numbers[0]), allow_import))
    number, seed = map(int, numbers)
    place = seed_folder(folder / f"trial-{number}", seed)
    with open_study(folder, plan.seeds[0], 0) as study:
        chosen = study.get_trials(deepcopy=False)[number].user_attrs[SETTINGS]
    try:
        run = plan.train(chosen, seed, folder=place, allow_import=allow_import)
    except TrainingError as error:
        return {ERROR: str(error)}
    score = final_return(run.metrics)
    return {"score": score} if score is not None else {ERROR: "no episode has finished"}


def _run_trial(plan: TuningPlan, folder: Path, index: int, allow_import: bool) -> Trial:
    optuna = import_optuna()
    states = optuna.trial.TrialState
    with open_study(folder, plan.seeds[0], index) as study:
        trial = study.ask()
        chosen = plan.settings(draw(plan.space, trial), allow_import=allow_import)
        trial.set_user_attr(SETTINGS, chosen)
        scores: list[float] = []
        try:
            for seed in plan.seeds:
                watch = PruningCallback(trial, scores, plan.prune)
                run = plan.train(chosen, seed, on_report=watch, allow_import=allow_import)
                score = final_return(run.metrics)
                if score is None:
                    raise TrainingError("no episode was played; give more steps")
                scores.append(score)
                trial.set_user_attr(SCORES, scores)
            study.tell(trial, statistics.fmean(scores))
        except optuna.TrialPruned:
            study.tell(trial, state=states.PRUNED)
        except (TrainingError, RequestError) as error:  # as bad as a trial can be
            trial.set_user_attr(ERROR, str(error))
            study.tell(trial, state=states.PRUNED)
        return _trial_of(study.get_trials(deepcopy=False)[trial.number], plan)


def _trial_of(trial: optuna.trial.FrozenTrial, plan: TuningPlan) -> Trial:
    said = trial.user_attrs
    state = {"COMPLETE": "complete", "PRUNED": "pruned"}.get(trial.state.name, "interrupted")
    share = 1.0 if state == "complete" else (trial.last_step or 0) / (100 * len(plan.seeds))
    scores = list(said.get(SCORES, []))
    return Trial(trial.number, state, said.get(SETTINGS, {}), scores, share, said.get(ERROR))


def plan_folder(plan: TuningPlan) -> Path:
    """runs/ALGORITHM-ENV-tune, or the first of -2, -3, … that is free or holds this same search."""
    env = plan.env.removeprefix("rlbook/").replace("/", "-").replace(":", "-")
    base, number = f"runs/{plan.algorithm.replace(':', '-')}-{env}-tune", 1
    while True:
        path = Path(base if number == 1 else f"{base}-{number}")
        if not os.path.lexists(path):
            return path
        with contextlib.suppress(RequestError):
            plan.check_same(path)
            return path
        number += 1
