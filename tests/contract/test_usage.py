"""The help: every command in one of four groups, at any width, and what one changes most first."""

from __future__ import annotations

import dataclasses
import inspect
import io
import re
import sys

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.main import main
from rlbook.cli.output import width
from rlbook.cli.usage import GROUPS, usage
from rlbook.errors import RequestError

WIDTHS = [40, 60, 80, 120]


def test_every_command_stands_in_one_group() -> None:
    named = [line.split()[0] for commands in GROUPS.values() for line in commands]
    assert sorted(named) == sorted(cli.COMMANDS)
    assert list(GROUPS) == ["learn", "look", "understand", "teach"]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_usage_fits_the_terminal_and_keeps_examples_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = usage()
    lines = text.splitlines()
    examples = [
        example
        for commands in GROUPS.values()
        for said in commands.values()
        for example in re.findall(r": (rlbook .*)$", said)
    ]
    assert len(examples) > 5
    for example in examples:
        assert any(example in line for line in lines), example
    longest = max(len(example) for example in examples) + 6  # an example is never broken
    assert max(map(len, lines)) <= max(columns, longest)
    assert columns < 60 or max(map(len, lines)) <= columns
    assert "\0" not in text
    for group in GROUPS:
        assert f"{group.capitalize()}:" in lines


def test_lines_are_no_longer_than_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, used in (("60", 60), ("100", 100), ("250", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert width() == used


def test_rlbook_alone_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    alone = capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert alone == capsys.readouterr().out == usage()


@pytest.mark.parametrize(
    "columns", [60, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (80, 120))]
)
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_fits_the_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    assert "DESCRIPTION" not in shown and shown.count(f"usage: rlbook {name}") == 1
    assert not re.search(r"^│ *│$|\(default: \)", shown, re.MULTILINE)


def test_help_of_a_command_is_that_commands(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["help", "doctor"], ["doctor", "--help"]):
        assert cli.main(words) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and shown[0].startswith("usage: rlbook doctor")


@pytest.mark.parametrize("name", ["ppo", "q_learning", "grpo"])
def test_the_idea_of_an_algorithm_fits_the_terminal_and_its_formulas_stay(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert cli.main(["explain", name]) == 0
        shown.append(capsys.readouterr().out.split("\n\nHyper-parameters")[0].splitlines()[2:])
    narrow, wide = ([line for line in lines if not line.startswith(" ")] for lines in shown)
    assert max(map(len, narrow)) <= 60 < max(map(len, wide)) <= 100
    assert " ".join(narrow).split() == " ".join(wide).split()
    assert [line for line in shown[0] if line not in narrow] == [
        line for line in shown[1] if line not in wide
    ]


def test_colours_do_not_break_the_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"  # type: ignore[assignment]

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli.main(["inspect", "--help"]) == 0
    monkeypatch.undo()
    first, second, *rest = terminal.getvalue().splitlines()
    assert first == "usage: rlbook inspect [-h] FOLDER [--out FILE] [--prompts N]"
    assert second == "  [--json] [--allow-import] [--debug]"
    assert any("\x1b[" in line for line in rest)  # the boxes are in colour


def test_a_long_example_is_continued_so_that_it_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["compare", "--help"]) == 0
    shown = capsys.readouterr().out
    example = shown[shown.index("Example:") : shown.index("\n\n", shown.index("Example:"))]
    assert " ".join(example.replace("\\\n", "").split()) == (
        "Example: rlbook compare runs/ppo-Maze-v0-0 runs/ppo-Maze-v0-1 runs/dqn-Maze-v0-0"
    )


def test_the_help_of_an_algorithm_begins_with_what_one_changes_most(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["train", "ppo", "--help"]) == 0
    shown = capsys.readouterr().out
    options = re.findall(r"^│ --([a-z-]+)", shown, flags=re.MULTILINE)
    most = "steps episodes seed out learning-rate gamma num-envs rollout-steps batch-size"
    assert options[: len(most.split())] == most.split()
    assert len(options) == len(set(options))
    boxes = re.findall(r"^╭─ (.*?) ─", shown, flags=re.MULTILINE)
    assert boxes == [
        "positional arguments",
        "options",
        "ppo options",
        "evaluation options",
        "several-seeds options",
        "data-and-model options",
        "pixels options",
        "other options",
    ]
    assert "type: ignore" not in shown  # what a comment says to a type checker
    assert cli.main(["train", "sft", "--help"]) == 0
    of_data = re.findall(r"^│ --([a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert of_data.index("passes") < of_data.index("learning-rate")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sac", "CartPole-v1", "--recurrent", "gru"], "dqn, reinforce, a2c and ppo have it"),
        (["mcts", "TMaze-v0", "--recurrent=lstm"], "mcts has no hyper-parameter 'recurrent'; dqn,"),
        (["ppo", "CartPole-v1", "--no-dueling"], "ppo has no hyper-parameter 'dueling'; dqn"),
        (["bandit", "TenArmedTestbed-v0", "--max-grad-norm", "1"], "others have it"),
        (["bandit", "TenArmedTestbed-v0", "--learning-rate", "1"], "did you mean '--alpha'?"),
        (["ppo", "CartPole-v1", "--learning-rte", "1"], "did you mean '--learning-rate'?"),
        (["ppo", "CartPole-v1", "--verbose", "0"], "progress to standard error: 2> FILE hides it"),
        (["ppo", "CartPole-v1", "--seeds", "0-4"], "how many, from --seed on: --seed 0 --seeds 5"),
    ],
)
def test_an_option_of_other_algorithms_is_said_to_be_theirs(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_a_setting_of_other_algorithms_is_said_to_be_theirs_in_python_too() -> None:
    with pytest.raises(RequestError, match="'recurrent'; dqn, reinforce, a2c and ppo have"):
        rlbook.train("sac", "CartPole-v1", recurrent="gru")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sft", "--num-train-epochs", "3"], "did you mean '--passes'?"),
        (["sft", "--epochs", "3"], "`passes` counts those over recorded data"),
        (["sft", "--lora_rank", "8"], "did you mean '--model.adapter.r'?"),
        (["grpo", "--num_generations=8"], "did you mean '--group-size'?"),
        (["grpo", "--max-completion-length", "9"], "did you mean '--env.max-new-tokens'?"),
        (["grpo", "--beta", "0.1"], "did you mean '--kl-coef'?"),
        (["dpo", "--loss-type", "ipo"], "did you mean '--preference-loss'?"),
    ],
)
def test_an_option_of_trl_or_verl_leads_to_ours(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", words[0], "Chat-v0", *words[1:]]) == 2
    assert hint in capsys.readouterr().err


def test_rows_of_text_without_an_environment_lead_to_chat(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, env in (
        (["sft", "--data", "rows.jsonl"], "Chat-v0"),
        (["grpo", "--env.data", "rows.parquet"], "Chat-v0"),
        (["grpo", "--model", "folder"], "Chat-v0"),
        (["cql", "--data", "walks"], "Maze-v0"),
    ):
        assert main(["train", *words]) == 2
        assert f"such as: rlbook train {words[0]} {env}\n" in capsys.readouterr().err


def test_every_synonym_is_a_name_somewhere() -> None:
    from rlbook.checks import SYNONYMS
    from rlbook.llm.models.lora import LoraSettings
    from rlbook.networks.model_spec import ModelSpec
    from rlbook.registry import algorithms
    from rlbook.runs.callbacks import MOMENTS
    from rlbook.runs.options import NAMES
    from rlbook.runs.request import BESIDE_OPTIONS

    fields = [agent.Config for agent in algorithms().values()] + [LoraSettings]
    known = {item.name for config in fields for item in dataclasses.fields(config)} | {*NAMES}
    known |= {
        *BESIDE_OPTIONS,
        *MOMENTS,
        "resume",
        "max_new_tokens",
        "max_prompt_tokens",
        "template",
        "reward",
    }
    known |= {*dir(rlbook.Run), "agent", *inspect.signature(rlbook.Run.predict).parameters}
    known |= {f"model.adapter.{item.name}" for item in dataclasses.fields(LoraSettings)}
    known |= {f"model.{item.name}" for item in dataclasses.fields(ModelSpec)}
    known |= {
        f"env.{name}" for name in ("max_new_tokens", "max_prompt_tokens", "template", "reward")
    }
    named = {name for names in SYNONYMS.values() for name in names}
    assert named - known == set()
