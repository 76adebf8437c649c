"""A flipped bit in a run's folder is refused in one sentence, or changes nothing that is loaded."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.cli.main import main
from rlbook.diagnosis.doctor import complaints
from rlbook.errors import RequestError, TrainingError
from rlbook.runs.storage.checkpoints import CheckpointError, latest_seal, list_checkpoints
from rlbook.runs.storage.folder import write_config
from rlbook.runs.storage.log import METRICS, MetricsLog, read_episodes, read_metrics
from rlbook.runs.storage.plain_yaml import config_of
from rlbook.runs.storage.state_encoding import encode

FILES = (
    "config.yaml",
    "metrics.jsonl",
    "episodes.csv",
    "best.json",
    "header.json",
    "arrays.safetensors",
)
"""What a run's folder holds, beside the picture and the seconds, which nothing loads."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    rlbook.train("q_learning", "Maze-v0", steps=600, eval_every=200, eval_episodes=2, out=folder)
    assert len(list_checkpoints(folder)) >= 2
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def loaded(folder: Path, checkpoint: Any = None) -> str:
    """Everything that is known of a run that was loaded."""
    found = rlbook.load(folder, checkpoint=checkpoint)
    shown, arrays = encode(found.agent.state_dict())
    parts = [shown, sorted((name, array.tolist()) for name, array in arrays.items())]
    parts += [found.metrics, found.steps, found.episode_returns, found.episode_lengths]
    return repr([*parts, found.request.as_yaml()])


def compared(folder: Path) -> str:
    rows = rlbook.compare(folder)
    return repr([(row.algorithm, row.world, row.settings, row.scores.tolist()) for row in rows])


LOOKS = (
    loaded,
    lambda folder: loaded(folder, "best"),
    compared,
    lambda run: repr(read_episodes(run)),
)


def flips(folder: Path, each: int, rng: np.random.Generator) -> Iterator[tuple[Path, int]]:
    """Bits of each file: all eight of its first and of its last byte, and of `each` bytes
    between."""
    for path in sorted(item for item in folder.rglob("*") if item.name in FILES):
        size = path.stat().st_size
        places = {0, size - 1, *rng.integers(size, size=each).tolist()}
        yield from ((path, 8 * place + bit) for place in sorted(places) for bit in range(8))


def check_flips(folder: Path, each: int, seed: int) -> int:
    right, count = [look(folder) for look in LOOKS], 0
    for path, bit in flips(folder, each, np.random.default_rng(seed)):
        data = path.read_bytes()
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        path.write_bytes(wrong)
        for look, expected in zip(LOOKS, right, strict=True):
            try:
                found = look(folder)
            except (RequestError, CheckpointError, TrainingError, ValueError) as error:
                assert "\n" not in str(error) and len(str(error)) < 400
                continue
            assert found == expected, f"bit {bit} of {path.relative_to(folder)} was loaded"
        path.write_bytes(data)
        count += 1
    return count


@pytest.mark.thorough
def test_a_flipped_bit_is_refused_or_makes_no_difference(run: Path) -> None:
    assert check_flips(run, each=1, seed=0) >= 8 * 2 * len(FILES)


@pytest.mark.slow
def test_a_thousand_flipped_bits(run: Path) -> None:
    assert check_flips(run, each=20, seed=1) > 1_000


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.csv", "config.yaml"])
def test_a_digit_that_is_another_one_is_refused_by_every_command(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flip leaves a line that a run could have written: only its checksum tells."""
    text = (run / name).read_text()
    old, new = {
        "metrics.jsonl": ('"episodes": ', '"episodes": 1'),
        "episodes.csv": (",-", ",-1"),
        "config.yaml": ("seed: 0", "seed: 1"),
    }[name]
    assert old in text
    (run / name).write_text(text.replace(old, new, 1))
    words: list[list[str]] = [["evaluate", str(run)], ["train", "--resume", str(run)]]
    if name != "episodes.csv":  # which a comparison and a curve do not need
        words += [["compare", str(run)], ["plot", str(run)]]
    for command in words:
        assert main(command) == 2, command
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "changed" in said and name in said, said
    assert any(name in line for line in complaints(run))


def test_the_best_checkpoint_is_known_without_its_file(run: Path) -> None:
    best = run / "checkpoints" / "best.json"
    right, bytes_before = loaded(run, "best"), best.read_bytes()
    step = json.loads(bytes_before)["step"]
    wrong = {
        b"{}": "is damaged",
        b'{"score": 9.0, "step": 7}': "names step 7, of which there is no checkpoint",
        b'{"score": 99.0, "step": %d}' % step: "names the score 99.0, and the checkpoints ",
    }
    for content, said in wrong.items():
        best.write_bytes(content)
        assert loaded(run, "best") == right
        assert [said in line for line in complaints(run)] == [True]
    assert main(["train", "--resume", str(run)]) == 0
    assert best.read_bytes() == bytes_before and complaints(run) == []


def test_lines_after_the_last_checkpoint_are_read_and_dropped_by_a_resumed_run(run: Path) -> None:
    before = [(run / name).read_bytes() for name in (METRICS, "episodes.csv")]
    with MetricsLog(run) as log:
        log.report(601, {"episodes": 7})
        log.episode(601, 1.0, 2)
    assert read_metrics(run)[-1] == {"step": 601, "episodes": 7}
    assert read_episodes(run)[-1] == (601, 1.0, 2)
    rlbook.load(run).resume()
    assert [(run / name).read_bytes() for name in (METRICS, "episodes.csv")] == before


def test_a_damaged_checkpoint_leaves_the_checksums_to_the_one_before(run: Path) -> None:
    steps = list_checkpoints(run)
    header = run / "checkpoints" / str(steps[-1]) / "header.json"
    header.write_bytes(header.read_bytes()[:-9] + b"000000000")
    sealed = latest_seal(run)
    assert sealed is not None and sealed.step == steps[-2] and len(read_metrics(run)) > 0
    lines = (run / METRICS).read_text().splitlines(keepends=True)
    lines[0] = lines[0].replace('"episodes": ', '"episodes": 1')
    (run / METRICS).write_text("".join(lines))
    with pytest.raises(
        ValueError, match=rf"since the checkpoint of step {steps[-2]}: its bytes do"
    ):
        read_metrics(run)


def test_the_log_of_an_older_checkpoint_is_read_without_checksums(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.report(1, {"loss": 0.5})
        position = log.position()
        log.report(2, {"loss": 0.25})
        log.truncate(position)
        assert log.digests()[METRICS] != ""
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 0.5}]
    write_config(tmp_path, "algorithm: q_learning\nenv: Maze-v0\n")
    assert config_of(tmp_path)["env"] == "Maze-v0"


def test_both_files_stay_what_pandas_reads(finished: Path) -> None:
    pandas = pytest.importorskip("pandas")
    assert list(pandas.read_csv(finished / "episodes.csv")) == ["step", "return", "length"]
    assert pandas.read_json(finished / METRICS, lines=True)["step"].tolist()[-1] == 600
    rows = csv.DictReader((finished / "episodes.csv").read_text().splitlines())
    assert [int(row["step"]) for row in rows] == [step for step, *_ in read_episodes(finished)]
    lines = (finished / METRICS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == read_metrics(finished)
