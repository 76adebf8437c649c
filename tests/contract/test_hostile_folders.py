"""A run's folder may come from a stranger, or from a process that was killed: nothing outside it is
read or written."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlbook
from rlbook.agent import FrozenPart
from rlbook.cli import main as cli
from rlbook.diagnosis.doctor import complaints
from rlbook.plots.curves import plot_curves
from rlbook.runs.storage.checkpoints import latest_step, load_checkpoint, save_checkpoint
from rlbook.runs.storage.files import CheckpointError
from rlbook.runs.storage.folder import seal
from rlbook.runs.storage.plain_yaml import parse_yaml

OPTIONS: dict[str, Any] = {"seed": 0, "epsilon": 0.1, "eval_every": 0}
REFUSED = (CheckpointError, rlbook.RequestError, rlbook.TrainingError)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    rlbook.train("q_learning", "Maze-v0", steps=300, out=folder, **OPTIONS)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# Reading


def is_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def is_endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def is_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def is_vast(path: Path) -> None:
    os.truncate(path, 2**40)


def is_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [is_link, is_endless, is_pipe, is_vast, is_folder])
@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "episodes.csv"])
def test_only_regular_files_of_a_sensible_size_are_read(
    copy: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    spoil(copy / name)
    start = time.monotonic()
    uses = [
        rlbook.load,
        lambda folder: rlbook.train("q_learning", "Maze-v0", out=folder, resume=True),
    ]
    for use in [*uses, plot_curves] if name != "episodes.csv" else uses:
        with pytest.raises(REFUSED) as caught:
            use(copy)
        assert "\n" not in str(caught.value) and name in str(caught.value)
    assert time.monotonic() - start < 2


def test_a_linked_folder_of_checkpoints_is_not_entered(copy: Path, tmp_path: Path) -> None:
    (copy / "checkpoints").rename(tmp_path / "elsewhere")
    (copy / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match="checkpoints is a link"):
        rlbook.load(copy)
    (copy / "config.yaml").unlink()
    with pytest.raises(rlbook.RequestError, match="checkpoints is a link"):
        rlbook.train("q_learning", "Maze-v0", steps=20, out=copy)
    assert [path for path in before if path.name != "config.yaml"] == sorted(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b'{"loss": 1.0}',
        b'{"step": "5"}',
        b'{"step": -1}',
        b'{"step": 1, "loss": "high"}',
        b'{"step": 1, "loss": NaN}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_line_of_the_log_that_is_no_report_is_named(copy: Path, line: bytes) -> None:
    with open(copy / "metrics.jsonl", "ab") as file:
        file.write(line + b"\n")
    number = (copy / "metrics.jsonl").read_bytes().count(b"\n")
    for use in (rlbook.load, plot_curves):
        with pytest.raises(
            REFUSED,
            match=rf"line {number} of metrics\.jsonl is not in the format that a run writes",
        ):
            use(copy)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a [1]\nb: *a", "aliases are not allowed"),
        ("a: 1\na: 2", "'a' occurs twice"),
        ("[" * 500, "it is not YAML"),
        ("!!python/name:os.system x", "it is not YAML"),
    ],
)
def test_a_config_has_no_aliases_no_name_twice_and_no_objects(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text)


# Writing


LINKED = [
    "metrics.jsonl",
    "episodes.csv",
    "config.yaml",
    ".tmp-config.yaml",
    ".lock",
    "checkpoints",
    "curve.png",
    ".tmp-curve.png",
]


@pytest.mark.parametrize("name", [*LINKED, "tensorboard", "wandb"])
def test_nothing_is_written_through_a_link_in_the_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, precious = tmp_path / "run", tmp_path / "precious"
    folder.mkdir()
    if name in ("checkpoints", "tensorboard", "wandb"):
        (precious / "17").mkdir(parents=True)
    else:
        precious.write_text("the user's")
    (folder / name).symlink_to(precious)
    words = [
        "train",
        "q_learning",
        "Maze-v0",
        "--steps",
        "30",
        "--eval-every",
        "0",
        "--out",
        str(folder),
    ]
    code = cli.main([*words, "--track", name] if name in ("tensorboard", "wandb") else words)
    assert code == (0 if name.startswith(".tmp") or name == "curve.png" else 2), (
        capsys.readouterr().err
    )
    if precious.is_dir():
        assert [path.name for path in precious.rglob("*")] == ["17"]
    else:
        assert precious.read_text() == "the user's"


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.csv", ".lock"])
def test_nothing_is_written_into_a_file_that_has_another_name(
    copy: Path, name: str, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    os.link(copy / name, precious)
    before = precious.read_bytes()
    with pytest.raises(REFUSED, match=f"{name} is a hard link") as caught:
        rlbook.load(copy).resume(steps=400)
    assert "\n" not in str(caught.value) and precious.read_bytes() == before
    (copy / name).unlink()
    shutil.copy(precious, copy / name)
    assert rlbook.load(copy).resume(steps=400).steps == 400


def test_a_link_that_the_user_made_leads_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "large-disk")
    rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "runs", **OPTIONS)
    assert rlbook.load(tmp_path / "runs").steps == 20


# The config belongs to the checkpoint


def test_a_flipped_digit_in_the_config_is_noticed(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    assert "\nseed: 0\n" in text
    (copy / "config.yaml").write_text(text.replace("\nseed: 0\n", "\nseed: 1\n"))
    for use in (
        rlbook.load,
        lambda folder: rlbook.train("q_learning", "Maze-v0", out=folder, resume=True),
    ):
        with pytest.raises(CheckpointError, match=r"belongs to another config\.yaml"):
            use(copy)


def test_a_config_that_changed_since_the_run_was_loaded_is_noticed(copy: Path) -> None:
    held = rlbook.load(copy)
    rlbook.load(copy).resume(steps=320)
    with pytest.raises(rlbook.RequestError, match="has changed since this run was loaded"):
        held.resume(steps=400)


def dies_at(call: int, work: Callable[[], Any]) -> bool:
    """Does the work in a process that is gone before the `call`-th time it would rename or flush a
    file. False where it finished."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = call

    def fatal(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            return function(*args, **options)

        return counted

    os.replace, os.rename, os.fsync = fatal(os.replace), fatal(os.rename), fatal(os.fsync)  # type: ignore[assignment]
    work()
    os._exit(0)


@pytest.mark.thorough
def test_a_folder_killed_while_it_is_claimed_is_resumed_or_begun_anew(tmp_path: Path) -> None:
    def train(folder: Path) -> rlbook.Run:
        return rlbook.train("q_learning", "Maze-v0", steps=2, out=folder, **OPTIONS)

    whole, anew = train(tmp_path / "whole"), 0
    for moment in range(1, 13):  # the logs, a checkpoint and the config: eleven calls
        folder = tmp_path / str(moment)
        assert dies_at(moment, lambda: train(folder))  # noqa: B023 - called at once
        try:
            run = rlbook.load(folder).resume()
        except REFUSED:
            run, anew = train(folder), anew + 1
        assert (run.steps, run.metrics) == (2, whole.metrics)
        assert (run.agent.action_values() == whole.agent.action_values()).all()  # type: ignore[attr-defined]
        for name in ("config.yaml", "metrics.jsonl", "episodes.csv"):
            assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert 0 < anew < 12


def test_frozen_parts_are_there_before_a_checkpoint_names_them_whenever_the_process_is_killed(
    tmp_path: Path,
) -> None:
    def save(folder: Path, step: int) -> None:
        save_checkpoint(
            folder,
            step,
            {"step": step, "reference": FrozenPart({"weight": np.full(4, float(step))})},
        )

    for moment in range(1, 9):  # the frozen file, the checkpoint's two, their names: eight calls
        folder = tmp_path / str(moment)
        save(folder, 1)
        assert dies_at(moment, lambda: save(folder, 2))  # noqa: B023 - called at once
        step, state = load_checkpoint(folder)
        assert step == state["step"] and (state["reference"]["weight"] == step).all()
        save(folder, 3)
        save(folder, 4)
        assert (load_checkpoint(folder)[1]["reference"]["weight"] == 4).all()
        files = {path.name for path in (folder / "checkpoints").iterdir()}
        assert (
            len([name for name in files if name.endswith(".safetensors")]) == 2
            and {"3", "4"} < files
            and len(files) == 4
        )
    assert not dies_at(99, lambda: save(folder, 5))


@pytest.mark.thorough
def test_a_budget_may_be_extended_and_the_process_killed_at_any_moment(
    copy: Path, tmp_path: Path
) -> None:
    whole, extended = rlbook.train("q_learning", "Maze-v0", steps=302, **OPTIONS), 0
    for moment in range(1, 12):  # the seals of two checkpoints and the config: nine calls
        folder = Path(shutil.copytree(copy, tmp_path / str(moment)))
        assert dies_at(moment, lambda: rlbook.load(folder).resume(steps=302))  # noqa: B023 - called at once
        earlier = [
            rlbook.load(folder, checkpoint=int(path.name)).steps
            for path in (folder / "checkpoints").glob("[0-9]*")
        ]
        assert 300 in earlier and len(earlier) > 1
        run = rlbook.load(folder)
        extended += run.request.budget.steps == 302
        run = run.resume(steps=302) if run.request.budget.steps == 300 else run.resume()
        assert (run.steps, run.episode_returns) == (302, whole.episode_returns)
        assert np.array_equal(run.agent.action_values(), whole.agent.action_values())  # type: ignore[attr-defined]
        assert run.metrics[-1]["step"] == rlbook.load(folder).metrics[-1]["step"] == 302
    assert 0 < extended < 11


# A checkpoint that was forged, all its seals right


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrites the last checkpoint after `change(state)`, and seals it with the config that stands
    there."""
    step = latest_step(folder)
    assert step is not None
    _, state = load_checkpoint(folder)
    change(state)
    shutil.rmtree(folder / "checkpoints" / str(step))
    save_checkpoint(folder, step, state, config=seal((folder / "config.yaml").read_bytes()))


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a state that does not exist": (
        lambda state: state["source"].update(obs=999),
        r"source/obs is not an observation of Discrete\(25\)",
    ),
    "a state below the first": (
        lambda state: state["source"].update(obs=-1),
        "source/obs is not an observation",
    ),
    "text for a state": (
        lambda state: state["source"].update(obs="1"),
        "source/obs is not an observation",
    ),
    "text for a counter": (
        lambda state: state["source"].update(steps="300"),
        "source/steps is str '300' where int 0 belongs",
    ),
    "a negative counter": (
        lambda state: state["source"].update(episodes=-1),
        "source/episodes is -1, which is below 0",
    ),
    "a counter of another step": (
        lambda state: state["source"].update(steps=2**62),
        "it is named step 300, but records 4611686018427387904",
    ),
    "a part that is missing": (lambda state: state["source"].pop("rng"), "source lacks 'rng'"),
    "a part too many": (lambda state: state["agent"].update(more=1), "agent has an unknown 'more'"),
    "a report without sums": (lambda state: state["report"].update(sums=[1]), "report/sums"),
    "marks beyond the last": (
        lambda state: state["report"].update(marks=10**9),
        "report/marks must be an integer from 0 to 101",
    ),
    "a best that is no step": (
        lambda state: state["report"].update(best=["x", 1.0]),
        "report/best",
    ),
    "lengths of other files": (
        lambda state: state["report"].update(log={"metrics.jsonl": -5}),
        "report/log",
    ),
    "no report": (lambda state: state.update(report=None), "the report is NoneType"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_checkpoint_is_refused_in_one_sentence(copy: Path, what: str) -> None:
    change, reason = FORGERIES[what]
    forge(copy, lambda state: None)
    assert rlbook.load(copy).steps == 300, "the refusals below are not about the seals"
    forge(copy, change)
    for use in (
        rlbook.load,
        lambda folder: rlbook.train("q_learning", "Maze-v0", out=folder, resume=True),
    ):
        with pytest.raises(CheckpointError, match=reason) as caught:
            use(copy)
        assert "does not fit q_learning on Maze-v0" in str(caught.value) and "\n" not in str(
            caught.value
        )


def tables(state: Any, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Changes every table of floats with a row a state."""
    for name, value in state.items():
        if isinstance(value, dict):
            tables(value, change)
        elif isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float64:
            state[name] = change(value)


@pytest.mark.parametrize(
    "change",
    [lambda q: q[:-1], lambda q: q.astype(np.float32), lambda q: q.T.copy(), lambda q: q[0]],
)
def test_a_table_of_another_shape_or_dtype_is_refused(
    copy: Path, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    forge(copy, lambda state: tables(state["agent"], change))
    with pytest.raises(CheckpointError, match=r"where float64 \[25, 4\] belongs"):
        rlbook.load(copy)


COUNTED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an outcome that does not exist": (
        lambda state: state["counts"]["keys"].__setitem__(-1, 10**9),
        r"keys must be in \[0, 5000\)",
    ),
    "an outcome below the first": (
        lambda state: state["counts"]["keys"].__setitem__(0, -1),
        "keys must be in",
    ),
    "outcomes out of order": (
        lambda state: state["counts"].update(keys=state["counts"]["keys"][::-1].copy()),
        "keys must be strictly increasing",
    ),
    "fewer counts than outcomes": (
        lambda state: state["counts"].update(counts=state["counts"]["counts"][:-1]),
        "counts must have shape",
    ),
    "a count of 0": (
        lambda state: state["counts"]["counts"].__setitem__(0, 0),
        r"counts must be in \[1, ",
    ),
    "fewer rewards": (
        lambda state: state["counts"].update(rewards=np.zeros(1)),
        "rewards must have shape",
    ),
    "starts below 0": (
        lambda state: state["counts"]["starts"].__setitem__(0, -1),
        "starts must be in",
    ),
    "text for a reward": (
        lambda state: state["counts"].update(largest_reward="1"),
        "largest_reward",
    ),
    "a fresh step from nowhere": (
        lambda state: state["fresh"].__setitem__((0, 0), 25.0),
        r"fresh state must be in \[0, 25\)",
    ),
    "a fresh action below 0": (
        lambda state: state["fresh"].__setitem__((0, 1), -1.0),
        r"fresh action must be in \[0, 4\)",
    ),
    "a fresh step to half a state": (
        lambda state: state["fresh"].__setitem__((0, 3), 0.5),
        "fresh successor must be whole",
    ),
    "steps of other columns": (lambda state: state.update(fresh=np.zeros((1, 4))), "fresh"),
    "a policy of actions that are not there": (
        lambda state: state["policy"].__setitem__(0, 4),
        r"policy must be in \[0, 4\)",
    ),
    "values of other states": (lambda state: state.update(values=np.zeros(24)), "values"),
    "text for what was told": (
        lambda state: state.update(told={"sweeps": "many"}),
        "sweeps must be a finite number",
    ),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "counted"
    rlbook.train(
        "certainty_equivalence",
        "Maze-v0",
        steps=30,
        plan_every=20,
        gamma=0.9,
        out=folder,
        eval_every=0,
    )
    return folder


@pytest.mark.parametrize("what", COUNTED)
def test_a_forged_count_is_refused(counted: Path, tmp_path: Path, what: str) -> None:
    """S = 25 and A = 4: an outcome is a number below S · A · S · 2 = 5000."""
    folder, (change, reason) = Path(shutil.copytree(counted, tmp_path / "run")), COUNTED[what]
    forge(folder, lambda state: None)
    assert rlbook.load(folder).steps == 30
    forge(folder, lambda state: change(state["agent"]))
    with pytest.raises(CheckpointError, match=reason) as caught:
        rlbook.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "place"),
    [("Maze-v0", 999), ("Maze-v0", -1), ("RandomWalk-v0", 999), ("RandomWalk-v0", -1)],
)
def test_an_environment_is_not_put_where_it_has_no_state(env: str, place: int) -> None:
    single, many = rlbook.make(env).unwrapped, gymnasium.make_vec(f"rlbook/{env}", num_envs=2)
    for made in (single, many):
        made.reset(seed=0)
        snapshot = made.unwrapped.snapshot()
        name = "state" if "state" in snapshot else "place"
        snapshot[name] = (
            place if made is single else np.full_like(snapshot[name], 10**6 if place > 0 else place)
        )
        with pytest.raises(ValueError, match="a snapshot's state"):
            made.unwrapped.restore(snapshot)


@pytest.mark.parametrize(
    "content",
    [
        '{"step": 300.0, "score": 1.0}',
        '{"step": "300", "score": 1.0}',
        '{"step": 300, "score": NaN}',
    ],
)
def test_the_best_step_is_a_step(copy: Path, content: str) -> None:
    (copy / "checkpoints" / "best.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"best\.json is damaged"):
        rlbook.load(copy, checkpoint="best")
    (copy / "checkpoints" / "best.json").write_text('{"step": 7, "score": 1.0}')
    with pytest.raises(CheckpointError, match="no checkpoint of step 7"):
        rlbook.load(copy, checkpoint="best")


def test_the_doctor_says_what_is_wrong_and_changes_nothing(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", str(copy)]) == 0
    short = (
        "budget too short: only 4 episodes have ended, which is too few to learn from; raise"
        " steps or episodes"
    )
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"the files of {copy} are undamaged", short] and len(said) == 3
    assert said[2].startswith("short of the optimum: greedy play returns -100 of 3: ")
    with open(copy / "metrics.jsonl", "ab") as file:
        file.write(b"[]\n")
    (copy / "checkpoints" / "best.json").write_text('{"step": 7, "score": 1.0}')
    (copy / "checkpoints" / "300" / "arrays.safetensors").write_bytes(b"")
    (copy / "config.yaml").write_text((copy / "config.yaml").read_text() + "\n")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert cli.main(["doctor", str(copy)]) == 1
    said = capsys.readouterr().out.splitlines()
    reasons = (
        "is not in the format that a run writes",
        "do not match their checksum",
        "best.json names step 7",
    )
    assert all(any(reason in line for line in said) for reason in reasons)
    assert any("belongs to another config.yaml" in line for line in said)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_the_doctor_may_look_while_the_run_goes_on(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that training takes away after it was counted, and before it is read, is no
    complaint."""
    oldest = shutil.copytree(copy / "checkpoints" / "300", copy / "checkpoints" / "200")

    def taken_away(folder: Path, step: int, **options: Any) -> Any:
        if oldest.exists():
            shutil.rmtree(oldest)
        return load_checkpoint(folder, step, **options)

    monkeypatch.setattr("rlbook.diagnosis.doctor.load_checkpoint", taken_away)
    assert complaints(copy) == []
    monkeypatch.setattr("rlbook.diagnosis.doctor.LOOKS", 1)
    shutil.copytree(copy / "checkpoints" / "300", oldest)
    assert complaints(copy) != []


def test_the_doctor_sees_parts_that_do_not_fit_together(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(copy, lambda state: state["source"].update(obs=999))
    assert cli.main(["doctor", str(copy)]) == 1
    assert "source/obs is not an observation" in capsys.readouterr().out
