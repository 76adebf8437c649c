"""The loop, and `train`, which sets it going."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlbook.agent import Agent, Metrics, Totals
from rlbook.errors import RequestError

if TYPE_CHECKING:
    from rlbook.runs import Run
    from rlbook.streams import ManyStreams, OneStream


@dataclass(frozen=True)
class Budget:
    """How long to train: environment steps, finished episodes, or whichever is used up first."""

    steps: int | None
    episodes: int | None

    def progress(self, steps: int, episodes: int) -> float:
        """The fraction used so far, in [0, 1]."""
        by_steps = steps / self.steps if self.steps else 0.0
        by_episodes = episodes / self.episodes if self.episodes else 0.0
        return min(1.0, max(by_steps, by_episodes))


@runtime_checkable
class Chunked(Protocol):
    """Streams that take many steps at once."""

    def advance(self, agent: Any, budget: Budget) -> Totals: ...


def loop(agent: Agent, streams: OneStream | ManyStreams, budget: Budget) -> Iterator[Metrics | Totals]:
    """Acts and learns until the budget is used up; one item a (vector) step. Between two items everything may be saved.

    The same loop serves every algorithm: planners have planned before it, TD learns at each step, PPO when its rollout is full.
    An agent with a table has a stream that does the same for many steps at once (`rlbook.table_streams`).
    """
    if streams.obs is None:
        streams.start()
        agent.begin()
    agent.progress = budget.progress(streams.steps, streams.episodes)
    while isinstance(streams, Chunked) and agent.progress < 1.0:
        yield streams.advance(agent, budget)
    while agent.progress < 1.0:
        step = streams.step(agent.act(streams.obs))
        metrics = agent.learn(step)
        if streams.reset_finished():
            agent.begin()
        agent.progress = budget.progress(streams.steps, streams.episodes)
        yield metrics


def train(
    algorithm: str, env: Any, *, steps: int | None = None, episodes: int | None = None, seed: int = 0, folder: str | Path | None = None,
    num_envs: int | None = None, eval_every: int | None = None, eval_episodes: int | None = None, resume: bool = False,
    allow_import: bool = False, env_kwargs: dict[str, Any] | None = None, on_report: Callable[[Run], None] | None = None,
    **hyperparameters: Any,
) -> Run:  # fmt: skip
    """Trains an algorithm on an environment.

    Args:
        algorithm: a name from `rlbook.algorithms()`.
        env: an environment id, an environment made by `rlbook.make` or `gymnasium.make`, or a `TabularMDP`: episodes are then drawn from
            it, at most 1 000 steps long, and a planner plays none unless `eval_every` asks for it.
        steps, episodes: the budget, in environment steps or finished episodes (planners: sweeps). Neither: a sensible one for the pair.
        seed: feeds every source of randomness; the same seed gives the same bytes.
        folder: where to keep config, metrics and checkpoints; None keeps nothing.
        num_envs: streams side by side, for algorithms that take many.
        eval_every: environment steps between evaluations; 0 for none; None for ten in the run.
        eval_episodes: episodes of each evaluation.
        resume: continue the run in `folder` where its last checkpoint stands, instead of starting a new one; what else is given must be
            what it was started with.
        allow_import: let an id of the form "module:Name" import that module.
        env_kwargs: arguments for an environment given by its id.
        on_report: called after each report with the run, for progress bars.
        hyperparameters: fields of the algorithm's config.

    Returns:
        The finished run: `run.agent`, `run.metrics`, `run.folder`, `run.steps`, `run.episode_returns`.

    Raises:
        RequestError: the request was wrong; nothing was written.
        TrainingError: training failed; the last good checkpoint stays.
    """
    from rlbook.request import Request
    from rlbook.run_folder import check_free
    from rlbook.runs import Run, load

    options = {"steps": steps, "episodes": episodes, "num_envs": num_envs, "eval_every": eval_every, "eval_episodes": eval_episodes}
    request = Request.build(
        algorithm, env, **options, seed=seed, allow_import=allow_import, env_kwargs=env_kwargs, hyperparameters=hyperparameters
    )
    if resume and folder is None:
        raise RequestError("resume needs the folder of the run to continue")
    if resume:
        run = load(Path(str(folder)), allow_import=allow_import, env=None if isinstance(env, str) else env)
        given = [name for name, value in options.items() if value is not None]
        request.check_continues(run.request, [*given, *hyperparameters, *(env_kwargs or {}), *(["seed"] if seed else [])])
        return run.resume(on_report=on_report)
    if folder is None:
        return Run(request).train(on_report=on_report)
    check_free(Path(folder))
    run = Run(request)
    run.claim(Path(folder))
    return run.train(on_report=on_report)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop, and it has: the checkpoint is written where the run has a folder."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """While open, SIGINT and SIGTERM wait for the next call of the yielded function, which then raises `Interrupted`.

    A second SIGINT does not wait. Outside the main thread nothing is changed.
    """
    received: list[int] = []

    def remember(signum: int, _frame: Any) -> None:
        if received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signum)

    def check() -> None:
        if received:
            raise Interrupted(received[0])

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    previous = {signum: signal.signal(signum, remember) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler or signal.SIG_DFL)
