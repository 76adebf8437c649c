"""`--track`: each report reaches TensorBoard and Weights & Biases as it stands in the log."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.command_line import join_names
from rlbook.runs.storage.log import read_metrics
from rlbook.runs.trackers import TRACKERS, track

SHORT = ["q_learning", "Maze-v0", "--steps", "400", "--out", "a"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path


def records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: after 7 bytes LevelDB's log format, blocks of 32 KiB in which
    each piece has a checksum, its length, and whether it is whole (1), first, middle or last."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def wandb_records(path: Path) -> list[Any]:
    """The records of a finished run; W&B's own process writes the last ones a little later."""
    from wandb.proto import wandb_internal_pb2

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = []
        for data in records(path.read_bytes()):
            found.append(wandb_internal_pb2.Record())  # pyright: ignore[reportAttributeAccessIssue]
            found[-1].ParseFromString(data)
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path} has no end")


def wandb_history(folder: Path) -> list[dict[str, float]]:
    """What W&B has kept of a run that was offline, in the order of its starts."""
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(path):
            items = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            if items:
                rows.append({name: value for name, value in items.items() if name[0] != "_"})
    return rows


def logged(folder: Path) -> list[dict[str, float]]:
    return [
        {name: value for name, value in report.items() if value is not None}
        for report in read_metrics(folder)
    ]


@pytest.mark.thorough
def test_wandb_keeps_the_reports_of_the_log(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb")
    assert cli.main(["train", *SHORT, "--track", "wandb"]) == 0
    kept = wandb_history(here / "a")
    assert kept == logged(here / "a") and len(kept) > 50
    assert "wandb" not in capsys.readouterr().out


@pytest.mark.thorough
def test_tensorboard_shows_once_what_a_resumed_run_logs_again(tmp_path: Path) -> None:
    """Interrupted after the report at 30, and resumed from the checkpoint at 10."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((10, 20, 30), (20, 30)):
        with track(["tensorboard"], tmp_path) as log:
            for step in steps:
                run: Any = SimpleNamespace(steps=step, metrics=[{"step": step, "return": 1.0}])
                log(run)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("return")] == [10, 20, 30]


@pytest.mark.thorough
def test_wandb_and_tensorboard_take_the_same_reports(here: Path) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cli.main(["train", "--track", "tensorboard", "wandb", *SHORT]) == 0
    events = EventAccumulator(str(here / "a/tensorboard"))
    events.Reload()
    greedy = [(event.step, event.value) for event in events.Scalars("eval_return")]
    found = [
        (report["step"], report["eval_return"])
        for report in wandb_history(here / "a")
        if "eval_return" in report
    ]
    assert found == greedy and len(found) >= 10


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run_in_wandb(here: Path) -> None:
    pytest.importorskip("wandb")

    def stop(run: rlbook.Run) -> None:
        log(run)
        if run.steps >= 200:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"steps": 400, "out": here / "a"}
    with pytest.raises(KeyboardInterrupt), track(["wandb"], here / "a") as log:
        rlbook.train("q_learning", "Maze-v0", on_report=stop, **settings)
    name = (here / "a/wandb/run-id").read_text()
    time.sleep(1.1)  # W&B names its folder for the second of the start
    with track(["wandb"], here / "a") as log:
        rlbook.train("q_learning", "Maze-v0", on_report=log, resume=True, **settings)
    assert (here / "a/wandb/run-id").read_text() == name
    assert {path.stem for path in (here / "a").glob("wandb/offline-run-*/*.wandb")} == {
        f"run-{name}"
    }
    steps = [report["step"] for report in wandb_history(here / "a")]
    assert sorted(set(steps)) == [report["step"] for report in logged(here / "a")]


@pytest.mark.parametrize(
    ("name", "missing", "said"),
    [
        ("wandb", "wandb", "rlbook[wandb]"),
        ("tensorboard", "torch.utils.tensorboard", "rlbook[log]"),
        ("tensorbord", None, "did you mean 'tensorboard'?"),
    ],
)
def test_a_tracker_that_is_not_there_is_refused_in_a_sentence(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    missing: str | None,
    said: str,
) -> None:
    if missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    assert cli.main(["train", *SHORT, "--track", name]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1] and not list(here.iterdir())


def test_wandb_without_an_account_is_refused_before_training(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(here / "home"))
    monkeypatch.setenv("NETRC", str(here / "home/.netrc"))
    assert cli.main(["train", *SHORT, "--track", "wandb"]) == 2
    assert "set WANDB_MODE=offline" in capsys.readouterr().err.splitlines()[-1]
    assert not (here / "a").exists()


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        ("--track tensorboard wandb ppo Maze-v0", "--track=tensorboard,wandb ppo Maze-v0"),
        ("ppo Maze-v0 --track wandb", "ppo Maze-v0 --track=wandb"),
        ("--track=wandb tensorboard ppo", "--track=wandb,tensorboard ppo"),
        ("--track other ppo --seed 1", "--track=other ppo --seed 1"),
        ("ppo --track --json", "ppo --track --json"),
    ],
)
def test_an_option_of_many_names_takes_its_own(words: str, joined: str) -> None:
    assert join_names(words.split(), "--track", TRACKERS) == joined.split()
