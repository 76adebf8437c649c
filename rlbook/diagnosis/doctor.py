"""Diagnoses a run's folder, in sentences; the folder is not changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rlbook.errors import ImportRefusedError, RequestError, TrainingError, one_line
from rlbook.interaction.environments import EnvLike
from rlbook.runs.run import Run, lacks_env, load, load_policy
from rlbook.runs.storage.checkpoints import (
    BEST,
    latest_seal,
    list_checkpoints,
    load_checkpoint,
    read_best_file,
)
from rlbook.runs.storage.files import CheckpointError
from rlbook.runs.storage.folder import read_config
from rlbook.runs.storage.log import read_episodes, read_metrics

LOOKS = 5
"""The number of times a folder is examined if it changes in the meantime."""


def complaints(
    folder: str | Path, *, allow_import: bool = False, env: EnvLike | None = None
) -> list[str]:
    """One sentence for each problem; none for a folder that can be evaluated and resumed.

    Args:
        folder: a run folder.
        allow_import: let an environment id of the form "module:Name" import that module, and its
            rewards theirs.
        env: the environment, for a run whose environment was made without an id or in wrappers;
            without it such a folder is not loaded.

    Raises:
        RequestError: there is no such folder, or loading the run would import a module that may
            not be imported.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder")
    found: list[str] = []
    for _ in range(LOOKS):  # a run in training takes old checkpoints away
        before, found = _checkpoints(folder), list(dict.fromkeys(_complaints(folder)))
        if not found or _checkpoints(folder) == before:
            break
    if not found and (
        env is not None or not lacks_env(folder)
    ):  # each part is sound: do they fit together, and with this version?
        found += _failure_lines(lambda: load_run(folder, allow_import, env))
    return found


def load_run(folder: Path, allow_import: bool, env: EnvLike | None) -> Run:
    """The run of a folder; without permission, no module of its rewards is imported."""
    if env is None:
        return load_policy(folder, allow_import=allow_import)
    return load(folder, allow_import=allow_import, env=env)


def _complaints(folder: Path) -> Iterator[str]:
    sealed: list[str] = []
    yield from _failure_lines(lambda: sealed.append(read_config(folder)[1]))
    yield from _failure_lines(lambda: read_metrics(folder))
    yield from _failure_lines(lambda: read_episodes(folder))
    steps: list[int] = []
    yield from _failure_lines(lambda: steps.extend(list_checkpoints(folder)))
    if not steps:
        yield f"{folder} has no checkpoint"
    for step in steps:
        config = sealed[0] if sealed else None
        yield from _failure_lines(partial(load_checkpoint, folder, step, config=config))
    if steps:
        yield from _failure_lines(lambda: _check_best(folder, steps))


def _checkpoints(folder: Path) -> list[str]:
    """The names of the checkpoints' folders."""
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def _check_best(folder: Path, steps: list[int]) -> None:
    path = folder / "checkpoints" / BEST
    best, sealed = read_best_file(folder), latest_seal(folder)
    if best is not None and best[0] not in steps:
        raise CheckpointError(f"{path} names step {best[0]}, of which there is no checkpoint")
    known = None if sealed is None else sealed.best
    if best is not None and known is not None and best[0] == known[0] and best != known:
        raise CheckpointError(f"{path} names the score {best[1]}, and the checkpoints {known[1]}")


def _failure_lines(look: Callable[[], object]) -> list[str]:
    """The messages for checks that failed themselves."""
    try:
        look()
    except ImportRefusedError:
        raise
    except (RequestError, CheckpointError, TrainingError, ValueError, OSError) as error:
        return [one_line(error).removesuffix(".")]
    return []
