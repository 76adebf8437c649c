"""A signal is obeyed wherever it arrives, and the run that goes on is the one that nobody
stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.algorithms.policy.grpo import GRPO
from rlbook.runs import training_loop as runs
from rlbook.runs.storage.checkpoints import list_checkpoints, load_checkpoint

SETTINGS: dict[str, Any] = {
    "steps": 400,
    "num_envs": 8,
    "group_size": 4,
    "eval_every": 100,
    "eval_episodes": 8,
}


def nth(call: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function, which is sent a SIGTERM when it is called for the n-th time."""
    calls: list[None] = []

    def called(*given: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) == count:
            signal.raise_signal(signal.SIGTERM)
        return call(*given, **named)

    return called


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run that nobody stops."""
    return rlbook.train(
        "grpo", "Addition-v0", out=tmp_path_factory.mktemp("runs") / "whole", **SETTINGS
    )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("where", ["acting", "update", "evaluation", "last evaluation"])
def test_a_language_model_stops_and_goes_on_bit_for_bit(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    stopped: list[int] = []
    with monkeypatch.context() as patched:
        if where == "acting":
            patched.setattr(GRPO, "act", nth(GRPO.act, 42))
        elif where == "update":
            patched.setattr(GRPO, "update", nth(GRPO.update, 5))
        else:
            last = sum("eval_return" in line for line in whole.metrics)
            patched.setattr(
                runs,
                "evaluation_metrics",
                nth(runs.evaluation_metrics, last if "last" in where else 2),
            )
        with pytest.raises(KeyboardInterrupt):
            rlbook.train("grpo", "Addition-v0", out=tmp_path / "parts", **SETTINGS)
        stopped += list_checkpoints(tmp_path / "parts")
    assert (stopped[-1] < whole.steps) == (where != "last evaluation")
    rlbook.train("grpo", "Addition-v0", out=tmp_path / "parts", **SETTINGS, resume=True)
    one, other = files(whole.folder), files(tmp_path / "parts")
    assert {name for name in one if one[name] != other.get(name)} <= {"seconds.json", "curve.png"}


@pytest.mark.parametrize(
    "calls", [33, *(pytest.param(calls, marks=pytest.mark.slow) for calls in (31, 35))]
)
def test_a_round_goes_on_in_which_some_texts_have_ended_and_are_not_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    settings: dict[str, Any] = {"steps": 600, "num_envs": 16, "seed": 3, "eval_every": 0}
    rlbook.train("grpo", "Addition-v0", out=tmp_path / "whole", **settings)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(GRPO, "act", nth(GRPO.act, calls))
        rlbook.train("grpo", "Addition-v0", out=tmp_path / "parts", **settings)
    rlbook.load(tmp_path / "parts").resume()
    one, other = files(tmp_path / "whole"), files(tmp_path / "parts")
    assert {name for name in one if one[name] != other.get(name)} <= {"seconds.json", "curve.png"}


def test_checkpoints_of_a_language_model_stand_between_rounds(tmp_path: Path) -> None:
    """There they hold neither half a round nor the memory of what is being written, which may be
    larger than all that is trained."""
    seen: list[int] = []
    run = rlbook.train(
        "grpo",
        "Addition-v0",
        out=tmp_path / "run",
        **SETTINGS,
        on_report=lambda run: seen.append(run.steps),
    )
    assert len(seen) > 5
    kept = [step for step in list_checkpoints(tmp_path / "run") if step < run.steps]
    assert kept
    for step in kept:
        _, state = load_checkpoint(tmp_path / "run", step)
        assert state["agent"]["acting"] == {} and not state["agent"]["rollout"]["steps"]
