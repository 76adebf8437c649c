"""`rlbook ablate`: the variants differ in what is switched off alone, each run is its own
command's, and wrong requests start nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.ablate import _variants
from rlbook.cli.train import parse_train
from rlbook.runs.processes.side_by_side import CommandResult

SHORT = ["ablate", "sarsa", "Maze-v0", "--steps", "300", "--eval-episodes", "2"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_each_variant_differs_in_what_is_switched_off_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*SHORT, "--off", "alpha=0.5", "--seeds", "1", "--jobs", "1", "--out", "all"]
    assert cli.main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    held = {name: rlbook.load(f"all/{name}/seed-0").request for name in ("whole", "alpha=0.5")}
    whole = held["whole"].hyperparameters
    assert held["alpha=0.5"].hyperparameters == whole | {"alpha": "0.5"} != whole
    assert len({request.options for request in held.values()}) == 1
    assert [row["folders"] for row in facts["rows"]] == [[f"all/{name}/seed-0"] for name in held]
    assert [(item["better"], item["than"]) for item in facts["improvements"]] == [
        ("sarsa, alpha 0.1", "sarsa, alpha 0.5")
    ]
    assert (
        facts["failed"] == []
        and facts["written"] == ["all/ablation.png"]
        and Path("all/ablation.png").exists()
    )
    assert cli.main(words) == 2, "the folders hold runs"
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SHORT, "ablate needs --off"),
        ([*SHORT, "--off", "epsilom"], "did you mean 'epsilon'"),
        ([*SHORT, "--off", "alpha"], "alpha must be"),
        ([*SHORT, "--off", "simulate=true"], "simulate is already true"),
        ([*SHORT, "--off", "exploration"], "which cannot be switched off"),
        ([*SHORT, "--off", "epsilon,epsilon"], "each once"),
        (["ablate", "srsa", "Maze-v0", "--off", "epsilon"], "did you mean 'sarsa'"),
        (["ablate", "sarsa", "--off", "epsilon"], "needs an ENV"),
        (["ablate", "--off", "epsilon"], "such as: rlbook ablate --off epsilon ppo Maze-v0"),
        ([*SHORT, "--off", "epsilon", "--jbs", "2"], "did you mean '--jobs'"),
        (["ablate", "--off", "clip", "dapo", "--jbs"], "did you mean '--jobs'"),
        ([*SHORT, "--off", "epsilon", "--resume", "nowhere"], "start the ablation without"),
        ([*SHORT, "--off", "epsilon", "--cluster", "127.0.0.1:1"], "luster"),
    ],
)
def test_a_wrong_request_starts_nothing(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err and not list(Path().iterdir())


def test_where_a_signal_stops_one_run_the_ablation_can_be_continued(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(
        module: str, commands: list[list[str]], *_: object
    ) -> Generator[CommandResult, None, None]:
        Path("all").mkdir()
        yield CommandResult(0, 143, "", "interrupted")

    monkeypatch.setattr("rlbook.cli.seeds.start_commands", start)
    assert cli.main([*SHORT, "--off", "alpha=0.5", "--out", "all"]) == 143
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("--off alpha=0.5 --out all --resume"), said


def test_a_bare_call_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ablate", "--help"]) == 0
    assert "--off NAME" in capsys.readouterr().out


def test_a_part_is_switched_off_with_what_only_it_reads() -> None:
    words = "dqn CartPole-v1 --noisy true --noise-scale 0.3 --distributional true --v-max 34"
    training = parse_train(words.split())
    assert _variants(training, "noisy,distributional,double") == [
        ("noisy=false", ["--noisy=false", "--noise-scale=0.5"]),
        ("distributional=false", ["--distributional=false", "--v-max=10"]),
        ("double=false", ["--double=false"]),
    ]
    recurrent = [*words.split()[:2], "--recurrent", "gru", "--post-hidden-sizes", "8"]
    ((_, added),) = _variants(parse_train(recurrent), "recurrent")
    assert added == ["--recurrent=none", "--post-hidden-sizes=none"]
    assert parse_train([*recurrent, *added]).build_request().config.post_hidden_sizes == ()
