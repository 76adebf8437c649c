"""Multiple choice by likelihood, and lm-evaluation-harness on an exported model beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near, widths

import rlbook
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.evaluation import lm_eval_tasks
from rlbook.evaluation.choices import ChoiceQuestion, choose, draw_questions, evaluate_choices
from rlbook.evaluation.episodes import evaluate_samples
from rlbook.evaluation.lm_eval_tasks.held_out_rows import held_out_rows, score_answer
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.runs.request import Request
from rlbook.runs.run import Run

TASKS = Path(lm_eval_tasks.__path__[0])


def test_the_right_choice_moves_on_and_the_others_are_its_neighbours() -> None:
    texts, answers = ["a", "b", "c", "d", "e"], ["7", "10", None, "7", "9"]
    found = draw_questions(texts, answers, 3)  # in order: 7, 9, 10
    assert [(question.prompt, question.text) for question in found] == [
        (0, "a"),
        (1, "b"),
        (3, "d"),
        (4, "e"),
    ]
    assert [question.choices for question in found] == [
        ("7", "9", "10"),
        ("7", "10", "9"),
        ("9", "10", "7"),
        ("9", "10", "7"),
    ]
    assert [question.right for question in found] == [0, 1, 2, 0]
    assert all(question.choices[question.right] == answers[question.prompt] for question in found)
    with pytest.raises(RequestError, match=r"choices 4 needs as many different answers .* got 3"):
        draw_questions(texts, answers, 4)


def test_a_short_choice_has_a_head_start_that_the_norm_takes_away() -> None:
    """log p = -2 for one character, -3 for "100": -2 > -3, and -3 / 3 > -2 / 1."""
    questions = [ChoiceQuestion(0, "x", ("1", "100"), 1), ChoiceQuestion(1, "y", ("1", "100"), 0)]
    found = choose(np.array([[-2.0, -3.0], [-2.0, -3.0]]), questions)
    assert found.acc.tolist() == [0.0, 1.0] and found.acc_norm.tolist() == [1.0, 0.0]


def test_a_choice_is_its_characters_without_the_ending_after_a_held_out_prompt() -> None:
    run = Run(Request.build("grpo", "Addition-v0"))
    env: Any = run.request.recipe.for_evaluation().make().unwrapped
    found = evaluate_choices(run.agent, run.request.recipe, 2, prompts=4)
    assert [question.text for question in found.questions] == list(env.rules.texts[:4])
    policy: Any = run.agent.policy  # type: ignore[attr-defined]
    for number, question in enumerate(found.questions):
        for place, choice in enumerate(question.choices):
            ids, total = [*env.rules.prompt_ids(number)], 0.0
            for token in env.rules.codec.encode_answer(choice)[: len(choice)]:
                obs = {"tokens": torch.tensor([ids]), "length": torch.tensor([len(ids)])}
                total += policy.distribution(obs).log_prob(torch.tensor([token])).item()
                ids.append(token)
            assert found.log_likelihood[number, place] == near(
                total, dtype="float32", terms=3 * widths(policy), size=8.5
            )


def test_it_needs_a_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0)
    with pytest.raises(RequestError, match="so it needs a language model"):
        evaluate_choices(run.agent, run.request.recipe, 4)


def test_the_rows_of_the_harness_are_the_held_out_prompts() -> None:
    pytest.importorskip("datasets")
    rows = held_out_rows(env="Reverse-v0", prompts=6, choices=2, pretrained="ignored")["test"]
    assert len(rows) == 6 and rows[0]["answer"] == rows[0]["prompt"].strip("=")[::-1]
    assert rows[0]["choices"][rows[0]["right"]] == rows[0]["answer"]
    assert score_answer(rows[0], [rows[0]["answer"] + " "])["exact_match"] == 1.0
    assert score_answer(rows[0], [rows[0]["answer"] + "a"]) == {"exact_match": 0.0, "chars": 7.0}


def test_the_arguments_of_a_run_with_a_tokenizer_of_its_own_fit_its_exported_folder(
    tmp_path: Path,
) -> None:
    """config.yaml has `tokenizer`, and the folder brings that tokenizer: the two were refused."""
    pytest.importorskip("datasets")
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(tmp_path / "model")
    character_tokenizer().save_pretrained(tmp_path / "model")
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(f'{{"prompt": "{i}+1=", "answer": "{i + 1}"}}\n' for i in range(40)))
    asked = {"data": str(data), "tokenizer": "bpe", "vocab_size": 300, "max_new_tokens": 4}
    folder = str(tmp_path / "model")
    rows = held_out_rows(env="Chat-v0", env_kwargs=asked, choices=2, pretrained=folder)["test"]
    assert len(rows) == 4 and rows[0]["answer"] == str(int(rows[0]["prompt"].split("+")[0]) + 1)


@pytest.mark.slow
def test_the_harness_gives_the_numbers_of_rlbook_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Greedy answers and choices of a small model, by its exported folder: the same numbers."""
    pytest.importorskip("lm_eval")
    run = rlbook.train("sft", "Addition-v0", passes=1, eval_every=0, out=tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 0
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--device", "cpu"]
    command += ["--model_args", f"pretrained={tmp_path / 'model'},dtype=float32"]
    command += ["--tasks", "rlbook_answers,rlbook_choices", "--include_path", str(TASKS)]
    command += ["--batch_size", "64", "--log_samples", "--output_path", str(tmp_path / "out")]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | offline, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(file.read_text())["results"]
    samples = evaluate_samples(run, 1)
    greedy = [float(bool(one.right)) for one in samples.greedy]
    assert 0.2 < np.mean(greedy) < 0.99 and len(greedy) == 512
    assert found["rlbook_answers"]["exact_match,none"] == np.mean(greedy)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--choices", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    for name in ("acc", "acc_norm"):
        assert found["rlbook_choices"][f"{name},none"] == said[name]["value"]
    (file,) = (tmp_path / "out").rglob("samples_rlbook_choices_*.jsonl")
    logged = [json.loads(line) for line in file.read_text().splitlines()]
    ours = evaluate_choices(run.agent, run.request.recipe, 4)
    for row, question, values in zip(logged, ours.questions, ours.log_likelihood, strict=True):
        assert row["doc"]["prompt"] == question.text and row["doc"]["right"] == question.right
        theirs = [float(number) for ((number, _),) in row["resps"]]
        assert theirs == near(values.tolist(), dtype="float32", terms=64 * 4, size=10.0)
