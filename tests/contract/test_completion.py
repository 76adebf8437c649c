"""Completion by TAB, asked of a real shell: commands, algorithms, environments, options, folders."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rlbook.cli import main as cli
from rlbook.cli.completion import (
    COMMANDS,
    OF_ALGORITHMS,
    SHELLS,
    completion_parser,
    script,
)

BASH = shutil.which("bash")
in_bash = pytest.mark.skipif(BASH is None, reason="needs bash")


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return completion_parser()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shell → its script, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("completion")
    found = {}
    for shell in SHELLS:
        if shutil.which(shell):
            found[shell] = folder / shell
            found[shell].write_text(script(shell), encoding="utf-8")
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    # what the scripts hold is tested beside; to make one takes seconds
    monkeypatch.setattr("rlbook.cli.completion.script", lambda shell: f"# {shell}\n")
    return tmp_path


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(found.choices)


def completed(script: Path, words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last word."""
    program = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
function_name=$(complete -p rlbook | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function_name" rlbook "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        [str(BASH), "--norc", "-c", program, "bash", str(script), "rlbook", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return done.stdout.split()


# What is known


@pytest.mark.thorough
def test_every_command_is_completed(parser: argparse.ArgumentParser) -> None:
    assert sorted([*COMMANDS, *OF_ALGORITHMS]) == sorted(cli.COMMANDS)
    assert list(subcommands(parser)) and set(subcommands(parser)) == set(cli.COMMANDS)


@pytest.mark.parametrize(
    "words", [*([name] for name in cli.COMMANDS), ["train", "grpo"], ["animate", "sarsa"]]
)
def test_every_option_of_the_help_is_completed(
    words: list[str],
    parser: argparse.ArgumentParser,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main([*words, "--help"]) == 0
    shown = set(re.findall(r"^[│ ]+(--[a-z][a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    for word in words:
        parser = subcommands(parser)[word]
    assert shown and shown <= set(parser._option_string_actions)


@pytest.mark.thorough(quick=1)
@in_bash
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tra", ["train"]),
        ("--install", ["--install-completion"]),
        ("--install-completion ", ["bash", "zsh", "fish"]),
        ("train pp", ["ppo"]),
        ("train rlo", ["rloo"]),
        ("train ddpg ", ["MountainCarContinuous-v0", "Pendulum-v1"]),  # where it trains
        ("train ppo Maz", ["Maze-v0"]),
        ("train ppo --steps 100 Maz", ["Maze-v0"]),
        ("train ppo Maze-v0 --gae", ["--gae-lambda"]),
        ("train ppo Maze-v0 --kl-in ", ["reward", "loss"]),
        ("train ppo Maze-v0 --normalize-advantage f", ["false"]),
        ("train ppo Maze-v0 --out ", ["runs"]),
        ("train --resume ru", ["runs"]),
        ("train sft Maze-v0 --data ", ["runs", "walks.jsonl"]),
        ("animate q_learning Cli", ["CliffWalking-v1", "CliffWalkingSlippery-v1"]),
        ("ablate ppo CartPole-v1 --of", ["--off"]),
        ("tune ppo Cart", ["CartPole-v1"]),
        ("tune ppo CartPole-v1 --tri", ["--trials"]),
        ("evaluate ", ["runs"]),
        ("evaluate runs --ep", ["--episodes"]),
        ("plot runs ru", ["runs"]),
        ("list reward_m", ["reward_model"]),
        ("explain entr", ["entropy"]),
        ("exercise che", ["check"]),
        ("exercise check ret", ["returns", "returns_for_a_clear_choice"]),
        ("exercise check wal", ["walks.jsonl"]),
        ("bug show ppo-r", ["ppo-ratio-always-one"]),
        ("recipe rl", ["rlhf"]),
        ("record Mountain", ["MountainCar-v0", "MountainCarContinuous-v0"]),
        ("record ru", ["runs"]),
        ("course week 1", ["1", "10", "11", "12"]),
        ("play t", ["tokens"]),
    ],
)
def test_bash_offers_what_can_stand_there(
    typed: str, offered: list[str], scripts: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "walks.jsonl").touch()
    found = completed(scripts["bash"], typed.split(" "), tmp_path)
    assert sorted(found) == sorted(offered)


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_offers_the_same(scripts: dict[str, Path]) -> None:
    asked = f"source {scripts['fish']}; complete -C 'rlbook train ppo Maze-v0 --gae'"
    shown = subprocess.run(["fish", "-N", "-c", asked], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[0] == "--gae-lambda"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_reads_its_script(scripts: dict[str, Path]) -> None:
    subprocess.run(["zsh", "-f", "-n", str(scripts["zsh"])], check=True)
    assert "#compdef rlbook" in scripts["zsh"].read_text(encoding="utf-8").splitlines()[0]


# Installing it


def test_installing_for_bash_adds_two_lines_once_and_keeps_the_rest(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".bashrc").write_bytes(b"alias caf\xe9=ls")  # in Latin-1
    for _ in range(2):
        assert cli.main(["--install-completion", "bash"]) == 0
    place = home / ".local/share/rlbook/completion/rlbook.bash"
    assert capsys.readouterr().out == f"{place}\n" * 2 and place.read_text() == "# bash\n"
    text = (home / ".bashrc").read_text(encoding="latin-1")
    assert text.startswith("alias caf\xe9=ls\n\n# rlbook: ")
    assert text.count("complete -F _rlbook_completion rlbook") == 1


@in_bash
def test_the_lines_in_bashrc_read_the_script_at_the_first_tab(
    home: Path, scripts: dict[str, Path]
) -> None:
    assert cli.main(["--install-completion", "bash"]) == 0
    place = home / ".local/share/rlbook/completion/rlbook.bash"
    shutil.copy(scripts["bash"], place)
    asked = "source .bashrc; _rlbook_completion; echo $?; complete -p rlbook"
    shown = subprocess.run(
        [str(BASH), "--norc", "-c", asked], capture_output=True, text=True, cwd=home
    ).stdout.split("\n")
    assert shown[0] == "124"  # which has bash ask again
    assert "_rlbook_completion" not in shown[1] and shown[1].endswith(" rlbook")


def test_the_shell_is_the_users_own_where_none_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert cli.main(["--install-completion"]) == 0
    assert (home / ".local/share/rlbook/completion/_rlbook").read_text() == "# zsh\n"
    assert "autoload -Uz compinit && compinit\n" in (home / ".zshrc").read_text()
    assert cli.main(["--install-completion", "fish"]) == 0
    assert (home / ".config/fish/completions/rlbook.fish").read_text() == "# fish\n"


def test_show_completion_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--show-completion", "bash"]) == 0
    assert capsys.readouterr().out == "# bash\n" and list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("shell", "said"),
    [("bsh", "got 'bsh'; did you mean 'bash'?"), ("bash zsh", "got 'bash zsh'"), ("", "got ''")],
)
def test_another_shell_is_refused(
    shell: str,
    said: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SHELL", "")
    assert cli.main(["--install-completion", *shell.split()]) == 2
    assert said in capsys.readouterr().err and list(home.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".local").write_text("a file, where a folder is wanted")
    assert cli.main(["--install-completion", "bash"]) == 2
    said = capsys.readouterr().err
    assert "completion cannot be installed" in said and ".local" in said and said.count("\n") == 1
