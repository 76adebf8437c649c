"""The two growing files of a run: readable after any accident, and equal to an uninterrupted run's
after a resume."""

from __future__ import annotations

import json
import math
import os
import textwrap
from pathlib import Path

import numpy as np
import pytest
from warm_process import WarmProcess, run_python

from rlbook.runs.storage import log as metrics_log
from rlbook.runs.storage.log import MetricsLog, read_episodes, read_metrics


def write(log: MetricsLog, steps: range) -> None:
    for step in steps:
        log.report(step, {"loss": 1 / (step + 1), "count": step})
        log.episode(step, -0.1 * step, 7)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.report(
            3,
            {
                "loss": 0.1,
                "kl": math.nan,
                "span": math.inf,
                "count": np.int64(2),
                "float32": np.float32(0.5),
            },
        )
        log.episode(3, np.float64(-1.5), np.int64(9))
    assert (
        (tmp_path / "metrics.jsonl").read_text()
        == '{"step": 3, "loss": 0.1, "kl": null, "span": null, "count": 2, "float32": 0.5}\n'
    )
    assert (tmp_path / "episodes.csv").read_text() == "step,return,length\n3,-1.5,9\n"
    assert read_metrics(tmp_path) == [
        {"step": 3, "loss": 0.1, "kl": None, "span": None, "count": 2, "float32": 0.5}
    ]
    assert read_episodes(tmp_path) == [(3, -1.5, 9)]


def test_a_resumed_run_has_the_bytes_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    whole.mkdir()
    resumed.mkdir()
    with MetricsLog(whole) as log:
        write(log, range(10))
    with MetricsLog(resumed) as log:
        write(log, range(4))
        position = json.loads(json.dumps(log.position()))
        write(log, range(4, 7))  # lost: done after the checkpoint
    with open(resumed / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 7, "lo')  # and killed in the middle of a line
    with MetricsLog(resumed) as log:
        log.truncate(position)
        write(log, range(4, 10))
    for name in ("metrics.jsonl", "episodes.csv"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        write(log, range(3))
    for name in ("metrics.jsonl", "episodes.csv"):
        os.truncate(tmp_path / name, (tmp_path / name).stat().st_size - 2)
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1]
    assert [step for step, _, _ in read_episodes(tmp_path)] == [0, 1]


def test_a_run_without_files_has_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == [] == read_episodes(tmp_path)


def test_a_file_shorter_than_the_checkpoint_saw_is_refused_and_left_alone(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        write(log, range(3))
        position = log.position()
        os.truncate(tmp_path / "episodes.csv", 5)
        with pytest.raises(ValueError, match=r"episodes\.csv has 5 bytes"):
            log.truncate(position)
    assert len(read_metrics(tmp_path)) == 3


def test_a_file_that_was_changed_where_the_checkpoint_saw_it_is_refused(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.report(1, {"loss": 0.5})
        position, digests = log.position(), log.digests()
        log.report(2, {"loss": 0.5})
        log.truncate(position, digests)
        assert log.digests() == digests
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    with MetricsLog(tmp_path) as log, pytest.raises(ValueError, match="has been changed"):
        log.truncate(position, digests)


def test_every_line_is_on_disk_at_once_and_parses_after_a_kill(tmp_path: Path) -> None:
    code = """
        import sys
        from rlbook.runs.storage.log import MetricsLog
        log = MetricsLog(sys.argv[1])
        for step in range(10**9):
            log.report(step, {"loss": 0.5})
            log.episode(step, 1.0, 2)
            if step == 100:
                print("ready", flush=True)
    """
    environment = os.environ | {"PYTHONPATH": str(Path(metrics_log.__file__).parents[1])}
    process = WarmProcess(["-c", textwrap.dedent(code), tmp_path], env=environment)
    process.stdout.readline()
    process.kill()
    process.communicate()
    steps = [line["step"] for line in read_metrics(tmp_path)]
    assert steps == list(range(len(steps))) and len(steps) > 100
    assert len(read_episodes(tmp_path)) in (len(steps), len(steps) - 1)


def test_a_line_that_did_not_fit_is_taken_back_whole(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from rlbook.runs.storage.log import MetricsLog
        log = MetricsLog(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (110, 110))
        try:
            for step in range(100):
                log.report(step, {"loss": 0.5})
        except OSError as error:
            print(error.strerror)
    """
    environment = os.environ | {"PYTHONPATH": str(Path(metrics_log.__file__).parents[1])}
    done = run_python(["-c", textwrap.dedent(code), tmp_path], env=environment)
    assert done.stdout == "File too large\n", done.stderr
    # a line such as {"step": 0, "loss": 0.5} and its end are 25 bytes, so four fit into 110, and
    # ten bytes of a fifth
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 4
    assert (tmp_path / "metrics.jsonl").stat().st_size == 100
