"""A run: what was asked, the agent, its log, and the folder they live in."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlbook.agent import Agent, Metrics, Planner, State
from rlbook.checkpoints import checkpoint_path, discard_after, latest, load_checkpoint, mark_best, read_best, save_checkpoint
from rlbook.environments import Recipe
from rlbook.errors import RequestError, TrainingError
from rlbook.evaluation import fitted_vector, play
from rlbook.metrics_log import MetricsLog, read_episodes, read_metrics
from rlbook.registry import ENUMERATED, agent_class, fit_to, preset
from rlbook.safe_files import CheckpointError, lock, write_file
from rlbook.seeding import stream
from rlbook.spaces import FittedEnv
from rlbook.state_encoding import StateError
from rlbook.streams import ManyStreams, OneStream, Recorder
from rlbook.training import Budget, Interrupted, interruptible, loop

REPORTS = 100          # in a run
DEFAULT_EVALUATIONS = 10
CHECKPOINTS = 10
CONFIG_LIMIT = 1_000_000


@dataclass(frozen=True)
class Request:
    """Everything needed to run it again: `config.yaml`."""

    algorithm: str
    recipe: Recipe
    budget: Budget
    seed: int
    num_envs: int
    eval_every: int | None
    eval_episodes: int
    config: Any
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def build(
        cls, algorithm: str, env: Any, *, steps: int | None, episodes: int | None, seed: int, num_envs: int | None, eval_every: int | None,
        eval_episodes: int | None, allow_import: bool, env_kwargs: dict[str, Any], hyperparameters: dict[str, Any],
    ) -> Request:  # fmt: skip
        """Checks everything that can be checked before anything is created.

        Raises:
            RequestError: one sentence: what, which value, what is allowed.
        """
        agent = agent_class(algorithm)
        recipe = Recipe.of(env, allow_import=allow_import, kwargs=env_kwargs)
        for name, value, least in (("steps", steps, 1), ("episodes", episodes, 1), ("num_envs", num_envs, 1), ("seed", seed, 0),
                                   ("eval_every", eval_every, 0), ("eval_episodes", eval_episodes, 1)):  # fmt: skip
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise RequestError(f"{name} must be an integer of at least {least}, got {value!r}")
        settings = preset(algorithm, recipe.name)
        budget = Budget(steps, episodes) if steps or episodes else Budget(settings.pop("steps", None), settings.pop("episodes", None))
        streams = settings.pop("num_envs", agent.default_num_envs)
        evaluations = settings.pop("eval_episodes", 20)
        settings = {key: value for key, value in settings.items() if key not in ("steps", "episodes")} | hyperparameters
        config = _config(agent, algorithm, settings)
        if not agent.batched and (num_envs or 1) != 1:
            raise RequestError(f"{algorithm} learns from one stream; num_envs must be 1, got {num_envs}")
        resolved = (num_envs or streams) if agent.batched else 1
        return cls(algorithm, recipe, budget, seed, resolved, eval_every, eval_episodes or evaluations, config, _plain(config))

    def as_yaml(self) -> str:
        return yaml.safe_dump({
            "algorithm": self.algorithm, "env": self.recipe.id, "env_kwargs": self.recipe.kwargs, "steps": self.budget.steps,
            "episodes": self.budget.episodes, "seed": self.seed, "num_envs": self.num_envs, "eval_every": self.eval_every,
            "eval_episodes": self.eval_episodes, "hyperparameters": self.hyperparameters,
        }, sort_keys=False)  # fmt: skip

    @classmethod
    def from_yaml(cls, text: str, *, allow_import: bool, env: Any = None) -> Request:
        """The inverse of `as_yaml`; checked like any other request."""
        try:
            fields = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise RequestError(f"config.yaml is not YAML: {' '.join(str(error).split())[:200]}") from None
        if not isinstance(fields, dict) or not {"algorithm", "env"} <= set(fields):
            raise RequestError("config.yaml must hold at least 'algorithm' and 'env'")
        unknown = set(fields) - {"algorithm", "env", "env_kwargs", "hyperparameters", *_OPTIONS}
        if unknown:
            raise RequestError(f"config.yaml has an unknown entry {sorted(map(str, unknown))[0]!r}")
        target = fields["env"] if env is None else env
        if target is None:
            raise RequestError("this run's environment was made without an id; give env")
        options = {name: fields.get(name) for name in _OPTIONS}
        options["seed"] = 0 if options["seed"] is None else options["seed"]
        mappings = {name: fields.get(name) or {} for name in ("env_kwargs", "hyperparameters")}
        if not isinstance(fields["algorithm"], str) or not all(isinstance(value, dict) for value in mappings.values()):
            raise RequestError("config.yaml: 'algorithm' must be a name, 'env_kwargs' and 'hyperparameters' mappings")
        return cls.build(fields["algorithm"], target, **options, allow_import=allow_import, **mappings)


_OPTIONS = ("steps", "episodes", "seed", "num_envs", "eval_every", "eval_episodes")


def _config(agent: type[Agent], algorithm: str, hyperparameters: dict[str, Any]) -> Any:
    import difflib

    names = [item.name for item in dataclasses.fields(agent.Config)]
    for key in hyperparameters:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.4)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise RequestError(f"{algorithm} has no hyper-parameter {key!r}{hint} (it has: {', '.join(names)})")
    try:
        return agent.Config(**{key: tuple(value) if isinstance(value, list) else value for key, value in hyperparameters.items()})
    except (ValueError, TypeError) as error:
        raise RequestError(str(error)) from error


def _plain(config: Any) -> dict[str, Any]:
    """A config as plain YAML types; a schedule as its text."""
    fields = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    return {name: list(v) if isinstance(v, tuple) else str(v) if dataclasses.is_dataclass(v) else v for name, v in fields.items()}


class Run:
    """A training run: finished, interrupted, or loaded from its folder."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.folder: Path | None = None
        self.metrics: list[dict[str, Any]] = []
        """One report a line: `step`, `episodes`, `return`, `length`, the algorithm's own numbers, and `eval_return` where evaluated."""
        self._episodes: list[tuple[int, float, int]] = []
        self._sums: dict[str, list[float]] = {}
        self._marks = 0
        self._sweeps = 0
        self._log: MetricsLog | None = None
        self._best: float | None = None
        agent = agent_class(request.algorithm)
        if agent.batched:
            self._env: Any = fitted_vector(agent, request.recipe, request.num_envs, request.config)
        else:
            raw = Recorder(request.recipe.make())
            try:
                self._env = FittedEnv(raw, fit_to(agent, raw, request.config))
            except RequestError as error:
                raise RequestError(f"{request.algorithm} does not fit {request.recipe.name}: {error}") from None
        self.notes = self._env.fit.notes
        """What was done to make the environment fit the agent."""
        self._model = self._tabular_model(agent)
        try:
            self.agent: Agent = agent(self._env, request.config, request.seed)
        except ValueError as error:
            raise RequestError(str(error)) from error
        rng = stream(request.seed, "environment")
        self._streams = (
            ManyStreams(self._env, rng, rollout=self.agent.rollout, group_size=self.agent.group_size)
            if agent.batched
            else OneStream(self._env, rng)
        )

    def _tabular_model(self, agent: type[Agent]) -> Any:
        if not issubclass(agent, Planner):
            return None
        from rlbook.envs.mdp import TabularMDP

        try:
            return TabularMDP.from_env(self.request.recipe.make(), max_transitions=ENUMERATED)
        except ValueError as error:
            raise RequestError(f"{self.request.algorithm} plans from a model: {error}") from error

    @property
    def steps(self) -> int:
        """Environment steps taken; for a planner, sweeps."""
        return self._sweeps if isinstance(self.agent, Planner) else self._streams.steps

    @property
    def episode_returns(self) -> list[float]:
        """Undiscounted returns of the training episodes, in the order they ended."""
        return [episode_return for _, episode_return, _ in [*self._episodes, *self._streams.finished]]

    # ---- the folder

    def claim(self, folder: Path) -> None:
        """Takes a folder for this run, and writes its config.

        Raises:
            RequestError: the folder already holds a run, or cannot be written.
        """
        if (folder / "config.yaml").exists() or latest(folder) is not None:
            raise RequestError(f"{folder} already holds a run; continue it with --resume (resume=True), or choose another folder")
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / "config.yaml", self.request.as_yaml().encode())
        except OSError as error:
            raise RequestError(f"cannot write to {folder}: {error.strerror}") from error

    def save(self, *, best: float | None = None) -> None:
        """Writes a checkpoint of this moment, where there is a folder. `best` marks it as the best so far, with its score."""
        if self.folder is None:
            return
        assert self._log is not None
        self._log.flush()
        try:
            kept = read_best(self.folder)
            save_checkpoint(self.folder, self.steps, self._state(), keep=self.steps if best is not None else kept[0] if kept else None)
            if best is not None:
                mark_best(self.folder, self.steps, best)
        except StateError as error:
            raise TrainingError(f"at step {self.steps}: {error}; no checkpoint was written of it") from error

    def _state(self) -> State:
        assert self._log is not None
        return {
            "agent": self.agent.state_dict(),
            "streams": {} if isinstance(self.agent, Planner) else self._streams.state_dict(),
            "report": {"sums": self._sums, "marks": self._marks, "best": self._best, "sweeps": self._sweeps,
                       "log": self._log.position()},
        }  # fmt: skip

    def _restore(self, state: State, *, streams: bool) -> None:
        self.agent.load_state_dict(state["agent"])
        report = state["report"]
        self._sums = {name: list(pair) for name, pair in report["sums"].items()}
        self._marks, self._best, self._sweeps = report["marks"], report["best"], report["sweeps"]
        if streams and state["streams"]:
            self._streams.load_state_dict(state["streams"])
        elif state["streams"]:
            self._streams.steps, self._streams.episodes = state["streams"]["steps"], state["streams"]["episodes"]

    # ---- training

    def train(self, *, on_report: Callable[[Run], None] | None = None, restored: State | None = None) -> Run:
        """Trains until the budget is used up, from the start or from where `restored` stands.

        Raises:
            TrainingError: a NaN, an infinity, or a checkpoint that could not be written.
            Interrupted: SIGINT or SIGTERM; the checkpoint is written.
        """
        with contextlib.ExitStack() as stack:
            if self.folder is not None:
                stack.enter_context(lock(self.folder))
                self._log = stack.enter_context(MetricsLog(self.folder))
            if restored is not None:
                self._rewind(restored)
            check_interrupt = stack.enter_context(interruptible())
            try:
                self._go(on_report or (lambda run: None), check_interrupt)
            except Interrupted:
                self.save()
                raise
            except OSError as error:
                raise TrainingError(f"cannot write to {self.folder}: {error.strerror}") from error
            except CheckpointError as error:
                raise TrainingError(str(error)) from error
        return self

    def _rewind(self, state: State) -> None:
        """Drops what was logged after the checkpoint; it will be logged again, to the byte."""
        assert self.folder is not None and self._log is not None
        self._log.truncate(state["report"]["log"])
        discard_after(self.folder, self.steps)
        self.metrics, self._episodes = read_metrics(self.folder), read_episodes(self.folder)

    def _go(self, on_report: Callable[[Run], None], check_interrupt: Callable[[], None]) -> None:
        for metrics in self._plan() if isinstance(self.agent, Planner) else loop(self.agent, self._streams, self.request.budget):
            for name, value in metrics.items():
                total = self._sums.setdefault(name, [0.0, 0])
                total[0] += value
                total[1] += 1
            if self.agent.progress * REPORTS >= self._marks + 1:
                self._report(on_report)
            check_interrupt()
        if self.agent.progress * REPORTS >= self._marks or self._sums:
            self._finish(on_report)

    def _plan(self) -> Any:
        assert isinstance(self.agent, Planner)
        for metrics in self.agent.plan(self._model):
            self._sweeps += 1
            self.agent.progress = self.request.budget.progress(self._sweeps, 0)
            yield metrics
            if self.agent.progress >= 1.0:
                return

    def _report(self, on_report: Callable[[Run], None]) -> None:
        """One line of the log; every so often an evaluation and a checkpoint."""
        self._marks = math.floor(self.agent.progress * REPORTS)
        evaluated = self._evaluation_due() and self.agent.progress < 1.0
        self._write(self._evaluate() if evaluated else None)
        on_report(self)
        if self._marks % (REPORTS // CHECKPOINTS) == 0 and self.agent.progress < 1.0 and not evaluated:
            self.save()

    def _finish(self, on_report: Callable[[Run], None]) -> None:
        self._marks = REPORTS + 1
        self._write(self._evaluate() if self.request.eval_every != 0 else None)
        on_report(self)
        self.save()

    def _evaluation_due(self) -> bool:
        if self.request.eval_every == 0 or isinstance(self.agent, Planner):
            return False
        every = REPORTS // DEFAULT_EVALUATIONS
        if self.request.eval_every is not None and self.request.budget.steps:
            every = max(1, round(self.request.eval_every / self.request.budget.steps * REPORTS))
        return self._marks % every == 0

    def _evaluate(self) -> float:
        mean = play(self.agent, self.request.recipe.for_evaluation(), self.request.eval_episodes, self.request.seed).mean
        return mean

    def _write(self, eval_return: float | None) -> None:
        finished = self._streams.finished
        report: Metrics = {"step": self.steps, "episodes": self._streams.episodes}
        if finished:
            report["return"] = math.fsum(item[1] for item in finished) / len(finished)
            report["length"] = sum(item[2] for item in finished) / len(finished)
        report |= {name: total / count for name, (total, count) in self._sums.items()}
        if eval_return is not None:
            report["eval_return"] = eval_return
        self.metrics.append(report)
        self._episodes += finished
        if self._log is not None:
            for item in finished:
                self._log.episode(*item)
            self._log.report(self.steps, report)
        finished.clear()
        self._sums = {}
        if eval_return is not None and (self._best is None or eval_return >= self._best):
            self._best = eval_return
            self.save(best=eval_return)
        elif eval_return is not None:
            self.save()

    def resume(self, *, on_report: Callable[[Run], None] | None = None) -> Run:
        """Continues a loaded run from its last checkpoint, bit for bit."""
        if self.folder is None:
            raise RequestError("this run has no folder to continue in")
        _, state = load_checkpoint(self.folder)
        self._restore(state, streams=True)
        return self.train(on_report=on_report, restored=state)


def load(folder: str | Path, *, checkpoint: int | str | None = None, allow_import: bool = False, env: Any = None) -> Run:
    """A run from its folder, ready to evaluate or to `resume`.

    Args:
        folder: a run folder.
        checkpoint: "best", a step, or None for the last.
        allow_import: let an environment id of the form "module:Name" import that module.
        env: the environment, for a run whose environment was made without an id.

    Raises:
        RequestError: no such folder, or a config that is not valid.
        CheckpointError: no checkpoint, or one that is damaged; one sentence.
    """
    folder = Path(folder)
    config = folder / "config.yaml"
    if not config.is_file() or config.is_symlink():
        raise RequestError(f"{folder} is not a run folder: it has no config.yaml")
    if config.stat().st_size > CONFIG_LIMIT:
        raise RequestError(f"{config} is larger than {CONFIG_LIMIT:,} bytes")
    checkpoint_path(folder, checkpoint)  # type: ignore[arg-type]
    request = Request.from_yaml(config.read_text(encoding="utf-8", errors="replace"), allow_import=allow_import, env=env)
    _, state = load_checkpoint(folder, checkpoint)  # type: ignore[arg-type]
    run = Run(request)
    run.folder = folder
    try:
        run._restore(state, streams=False)
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint in {folder} does not fit {request.algorithm} on {request.recipe.name}: {error}") from error
    run.metrics, run._episodes = read_metrics(folder), read_episodes(folder)
    return run
