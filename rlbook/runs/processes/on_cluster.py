"""Runs commands as tasks of a Ray cluster, as `side_by_side` does on one machine. Needs `pip
install "rlbook[scale]"`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from rlbook.errors import RequestError, one_line
from rlbook.interaction.processes import python_path
from rlbook.runs.processes.side_by_side import LOOK_EVERY, CommandResult, run_side_by_side

PATIENCE = 10.0  # seconds in which a cluster must answer
LONGEST_STOP = 60.0  # seconds that commands have to stop after an interrupt


def run_on_cluster(
    module: str, commands: Sequence[Sequence[str]], jobs: int, address: str
) -> Generator[CommandResult, None, None]:
    """As `side_by_side`, but each command runs on one core of some machine of the cluster.

    It runs where this process does, so every machine must see that folder, and have rlbook.

    Raises:
        RequestError: Ray is not installed, or there is no cluster at `address`.
    """
    ray = _connect(address)
    task, waiting = ray.remote(num_cpus=1, max_retries=0)(_run), deque(enumerate(commands))
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, arguments = waiting.popleft()
                running[task.remote(module, list(arguments), os.getcwd())] = index
            ended, _ = ray.wait(list(running), timeout=LOOK_EVERY)
            for reference in ended:
                yield _to_ended(ray, reference, running.pop(reference))
    finally:
        for reference in running:
            ray.cancel(reference)  # a KeyboardInterrupt in `_run`
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=LONGEST_STOP)
        ray.shutdown()


def start_commands(
    module: str, commands: Sequence[Sequence[str]], jobs: int, cluster: str | None
) -> Generator[CommandResult, None, None]:
    """Starts the commands in parallel on this machine, or on the Ray cluster at that address."""
    if cluster is None:
        return run_side_by_side(module, commands, jobs)
    return run_on_cluster(module, commands, jobs, cluster)


def _connect(address: str) -> Any:
    """Ray, connected to the cluster; this process's signal handlers are kept."""
    try:
        import ray  # type: ignore[import-not-found]
    except ImportError:
        raise RequestError('--cluster needs Ray: pip install "rlbook[scale]"') from None
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    host, colon, port = address.rpartition(":")
    modules = {"env_vars": {"PYTHONPATH": python_path()}}
    try:
        if colon and port.isdecimal() and "/" not in host:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), PATIENCE).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env=modules)
    except Exception as error:  # of many kinds: a wrong address, nobody there, another version
        reason = one_line(error)
        raise RequestError(
            f"no Ray cluster can be reached at {address!r} ({reason[:200]})"
        ) from error
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    return ray


def _run(module: str, arguments: list[str], folder: str) -> tuple[Any, ...]:
    """The Ray task. If it is cancelled, its command receives SIGTERM and is waited for."""
    os.chdir(folder)
    with contextlib.closing(run_side_by_side(module, [arguments], 1)) as ended:
        return tuple(next(ended))


def _to_ended(ray: Any, reference: object, index: int) -> CommandResult:
    try:
        return CommandResult(*ray.get(reference))._replace(index=index)
    except Exception as error:  # its machine has gone, or does not see the folder
        return CommandResult(
            index, 1, "", " ".join(str(error).split("\n")[-1].split()) or type(error).__name__
        )
