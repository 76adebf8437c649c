"""Examples written as verl's rows and read again, from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlbook.cli.main import main
from rlbook.data.schemas import Example, example_of
from rlbook.data.text_files import read_rows
from rlbook.data.verl_rows import verl_row, write_rows
from rlbook.errors import RequestError
from rlbook.llm.environments.chat_env import Chat
from rlbook.llm.environments.token_env import TokenEnv
from rlbook.llm.tasks import CountdownTask, Task
from rlbook.llm.tasks.retrieval import RetrievalTask

MESSAGES = [{"role": "user", "content": "1+1="}]


def row(example: Example, index: int = 0) -> dict[str, Any]:
    return verl_row(example, MESSAGES, source="rlbook/sums", split="train", index=index)


def test_a_row_has_verls_columns() -> None:
    assert row(Example("1+1=", "2", {"level": 3}), 7) == {
        "data_source": "rlbook/sums",
        "prompt": MESSAGES,
        "ability": "sums",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"split": "train", "index": 7, "level": 3},
    }
    own = {"extra_info": {"index": 3, "level": 1}, "level": 2, "ability": "algebra"}
    kept = row(Example("1+1=", "2", own), 7)  # what verl put there stays as it was
    assert kept["extra_info"] == {"split": "train", "index": 3, "level": 1}
    assert kept["ability"] == "algebra"
    with pytest.raises(
        ValueError,
        match="example 4 of split 'train' has no answer, but verl's format requires a ground truth",
    ):
        row(Example("1+1="), 4)
    with pytest.raises(ValueError, match="a column that is not plain data"):
        row(Example("1+1=", "2", {"level": {1, 2}}))


def test_a_row_read_and_written_is_the_same_row() -> None:
    given = {
        "data_source": "gsm8k",
        "prompt": MESSAGES,
        "ability": "math",
        "reward_model": {"style": "model", "ground_truth": ["2", "two"]},
        "extra_info": {"split": "test", "index": 9, "answer": "1+1=2"},
    }
    assert row(example_of(given)) == given


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_an_environments_examples_are_written_and_read(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    env = ["--env.task", "modular", "--env.split", "held_out"]
    assert main(["record", "Chat-v0", "--schema", "verl", *env, "--out", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {
        "env": "Chat-v0",
        "schema": "verl",
        "split": "held_out",
        "rows": 512,
        "data": str(path),
    }
    made, read = (
        Chat(task="modular", split="held_out").rules,
        Chat(data=str(path), held_out_data=str(path)).rules,
    )
    assert list(read.texts) == list(made.texts) and list(read.answers) == list(made.answers)
    assert read.columns[5]["extra_info"] == {"split": "held_out", "index": 5}
    assert [column["data_source"] for column in read.columns[:2]] == ["rlbook/modular"] * 2


def written(words: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The facts about rows that `rlbook record` has written."""
    assert main(["record", *words, "--schema", "verl", "--out", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def earned(rules: Any, prompt: str, text: str) -> float:
    """What a completion earns that ends with EOS."""
    index = list(rules.texts).index(prompt)
    return float(
        rules.rewards([rules.to_completion(index, np.array(rules.codec.encode_answer(text)))])[0][0]
    )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "words", [["Countdown-v0"], ["Chat-v0", "--env.task", "countdown", "--env.system", "Say it!"]]
)
def test_rows_of_countdown_are_scored_by_its_rule_and_not_by_the_one_expression_in_them(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    assert "note" not in written([*words, "--env.split", "held_out"], path, capsys)
    rules = Chat(data=str(path), held_out_data=str(path)).rules
    task = CountdownTask()
    prompt = next(
        prompt
        for prompt in rules.texts
        if task.answer(prompt) == "+".join(sorted(task.answer(prompt).split("+")))
    )
    answer = task.answer(prompt)
    other = "+".join(reversed(answer.split("+")))
    assert other != answer and earned(rules, prompt, answer) == earned(rules, prompt, other) == 1.0
    assert earned(rules, prompt, f"{other}+1") == earned(rules, prompt, other[:-1]) == 0.0


@pytest.mark.thorough
def test_rows_of_sums_in_steps_are_scored_behind_the_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From `Reasoning-v0`, and from a mixture, whose rows name the task that each is of."""
    for words in (["Reasoning-v0"], ["Mixture-v0"]):
        path = tmp_path / f"{words[0]}.jsonl"
        written([*words, "--env.split", "held_out"], path, capsys)
        rules = Chat(data=str(path), held_out_data=str(path)).rules
        index = next(
            i
            for i in range(len(rules.texts))
            if rules.columns[i]["data_source"] == "rlbook/reasoning"
        )
        answer, judge = (
            rules.answers[index],
            rules.to_completion(index, np.array(rules.codec.encode_answer("1"))).judge,
        )
        assert (
            judge is not None
            and judge(f"<think>1</think>{answer}") == 1.0
            and judge(f"<think>{answer}") == 0.0
        )


def test_rows_of_retrieval_are_worth_what_their_shots_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    written(["Retrieval-v0", "--env.split", "held_out", "--episodes", "4"], path, capsys)
    rules = Chat(data=str(path), held_out_data=str(path), reward="judged").rules
    judge = rules.to_completion(0, np.array(rules.codec.encode_answer("1"))).judge
    assert (
        judge is not None
        and judge("<17><42>") == RetrievalTask().score(rules.texts[0], "<17><42>") != 0.0
    )


class Halves(Task):
    """A task of somebody's own, whose score cannot be told from a row."""

    name, characters = "halves", "0123456789="

    def all_prompts(self) -> list[str]:
        return [f"{2 * i}=" for i in range(600)]

    def answer(self, prompt: str) -> str:
        return str(int(prompt[:-1]) // 2)

    def score(self, prompt: str, text: str) -> float:
        return 0.5


class HalvesEnv(TokenEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Halves(), **kwargs)


def test_a_score_that_cannot_be_told_from_a_row_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gymnasium.register("Halves-v0", HalvesEnv)
    try:
        facts = written(["Halves-v0"], tmp_path / "rows.jsonl", capsys)
    finally:
        del gymnasium.registry["Halves-v0"]
    assert (
        facts["note"]
        == "Halves-v0 scores by more than the rows say; read again, they are compared with the"
        " ground truth"
    )


def test_many_rows_are_written_in_pieces_and_a_parquet_file_has_one_form(tmp_path: Path) -> None:
    rows = [row(Example("1+1=", str(i)), i) for i in range(2_500)]
    assert write_rows(tmp_path / "rows.parquet", rows) == 2_500
    assert list(read_rows(tmp_path / "rows.parquet")) == rows
    rows[2_200]["extra_info"]["index"] = "many"
    with pytest.raises(RequestError, match="its rows must have one form"):
        write_rows(tmp_path / "odd.parquet", rows)
    assert not (tmp_path / "odd.parquet").exists()


WRONG = [
    (["Maze-v0"], "schema applies to the examples of a token environment, but Maze-v0 has none"),
    (
        ["Addition-v0", "--schema", "verll"],
        "schema must be one of 'verl', got 'verll' (did you mean 'verl'?)",
    ),
    (
        ["Addition-v0", "--seed", "1"],
        "--schema writes examples and plays no episodes, so it has no use for --seed",
    ),
    (["Addition-v0", "--explore"], "so it has no use for --explore"),
    (["Addition-v0", "--episodes", "0"], "episodes must be an integer of at least 1, got 0"),
    (["Chat-v0", "--env.task", "additon"], "did you mean 'addition'?"),
    (
        ["."],
        "schema applies to the examples of an environment given by its id, but a run was given",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), WRONG)
def test_a_wrong_command_is_one_sentence_and_writes_nothing(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = [] if "--schema" in words else ["--schema", "verl"]
    assert main(["record", *words, *schema, "--out", "rows.jsonl"]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and not (tmp_path / "rows.jsonl").exists()


def test_what_stands_there_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text("mine")
    assert (
        main(["record", "Addition-v0", "--schema", "verl", "--out", str(tmp_path / "rows.jsonl")])
        == 2
    )
    assert (
        "exists already; name a new file" in capsys.readouterr().err
        and (tmp_path / "rows.jsonl").read_text() == "mine"
    )
