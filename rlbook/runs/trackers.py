"""Sends a run's reports to TensorBoard and Weights & Biases, through their own libraries.

with track(["tensorboard", "wandb"], folder) as log:
    rlbook.train("ppo", "CartPole-v1", out=folder, on_report=log)
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError
from rlbook.runs.run_state import RunState
from rlbook.runs.storage.files import read_file, replace_file

Report = Callable[[RunState], None]
UNSENT = ("offline", "disabled", "dryrun")  # modes of W&B that need no account
WANDB_ID, ID_LIMIT = "run-id", 100  # in FOLDER/wandb, so that a resumed run goes on; its bytes


@contextlib.contextmanager
def track(names: Sequence[str], folder: Path) -> Iterator[Report]:
    """Yields a function that forwards each report.

    Args:
        names: of `TRACKERS`.
        folder: the run's, where the trackers keep what they write.

    Raises:
        RequestError: an unknown tracker, one whose library is not installed, or that has no
            account.
    """
    for name in names:
        if name not in TRACKERS:
            hint = did_you_mean(name, TRACKERS)
            raise RequestError(
                f"track has no {name!r}{hint} (known: {', '.join(TRACKERS)}); the numbers are in the"
                " folder out as well, in metrics.jsonl and episodes.csv"
            )
    with contextlib.ExitStack() as stack:
        reports = [stack.enter_context(TRACKERS[name](folder)) for name in dict.fromkeys(names)]

        def report(run: RunState) -> None:
            for each in reports:
                each(run)

        yield report


def _numbers(run: RunState) -> dict[str, float]:
    """The finite numbers of the latest report."""
    return {
        name: value
        for name, value in run.metrics[-1].items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _own_folder(folder: Path, name: str) -> Path:
    """FOLDER/NAME, which a tracker writes to."""
    if (folder / name).is_symlink():
        raise RequestError(f"{folder / name} is a link, which is not followed")
    return folder / name


@contextlib.contextmanager
def _tensorboard(folder: Path) -> Iterator[Report]:
    place = _own_folder(folder, "tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RequestError(
            "track tensorboard needs the tensorboard package: pip install 'rlbook[log]'"
        ) from None
    writers: list[Any] = []

    def report(run: RunState) -> None:
        if not writers:  # the folder is the run's by now, and not before
            writers.append(SummaryWriter(str(place), purge_step=run.steps))
        numbers = _numbers(run)
        for name, value in numbers.items():
            if name != "step":
                writers[0].add_scalar(name, value, numbers["step"])

    try:
        yield report
    finally:
        for writer in writers:
            writer.close()


@contextlib.contextmanager
def _wandb(folder: Path) -> Iterator[Report]:
    place = _own_folder(folder, "wandb")
    try:
        import wandb
    except ImportError:
        raise RequestError(
            "track wandb needs the wandb package: pip install 'rlbook[wandb]'"
        ) from None
    quiet = wandb.Settings(console="off", silent=True)
    if os.environ.get("WANDB_MODE") not in UNSENT and not _is_logged_in(wandb):
        raise RequestError(
            "track wandb needs an account: run `wandb login`, or set WANDB_MODE=offline"
        )
    started: list[Any] = []

    def report(run: RunState) -> None:
        if not started:
            started.append(
                wandb.init(
                    project=os.environ.get("WANDB_PROJECT", "rlbook"),
                    name=folder.name,
                    id=_run_id(place),
                    resume="allow",
                    dir=str(folder.absolute()),  # its process may have another working directory
                    config=yaml.safe_load(run.request.as_yaml()),
                    settings=quiet,
                )
            )
            started[0].define_metric("*", step_metric="step")
        started[0].log(_numbers(run))

    code = 1
    try:
        yield report
        code = 0
    finally:
        for each in started:
            each.finish(exit_code=code)


def _is_logged_in(wandb: Any) -> bool:
    try:
        return bool(wandb.login(prompt=False))
    except wandb.errors.UsageError:
        return False


def _run_id(place: Path) -> str:
    """The run's id at W&B, unchanged when the run is resumed."""
    place.mkdir(exist_ok=True)
    try:
        return read_file(place / WANDB_ID, ID_LIMIT).decode()
    except FileNotFoundError:
        drawn = secrets.token_hex(4)
        replace_file(place / WANDB_ID, drawn.encode())
        return drawn


TRACKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Report]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
