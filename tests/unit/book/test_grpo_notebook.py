"""The stages of the GRPO notebook that are no training: which problems are kept, how they are
split, what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from closeness import assert_near

import rlbook
from rlbook.book.experiments.language_models import grpo_notebook
from rlbook.book.experiments.language_models.grpo_notebook import (
    answer_of,
    answered_rows,
    word_problems,
    write_problems,
)
from rlbook.book.experiments.language_models.laptop import completion_rewards, write_sums
from rlbook.errors import RequestError


def rows_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_whole_answers_are_found_modulo_1000_and_others_are_left_out() -> None:
    solutions = {
        r"so \boxed{7}.": 7,
        r"\boxed{1}, then \boxed{2}": 2,
        r"\boxed{\frac{14}{2}}": 7,
        r"\boxed{12,345}": 345,
        r"\boxed{-1}": 999,
        r"\boxed{\frac{1}{2}}": None,
        r"\boxed{x}": None,
        r"\boxed{7": None,
        "7": None,
    }
    assert {solution: answer_of(solution) for solution in solutions} == solutions


def test_made_problems_say_what_they_ask(tmp_path: Path) -> None:
    problems = word_problems(seed=1)
    found = list(answered_rows(next(problems) for _ in range(300)))
    assert 200 < len(found) < 280  # five forms of six have a whole number
    halves = [row for row in found if row["prompt"].startswith("What is half of")]
    assert halves and all(
        2 * int(row["answer"]) == int(row["prompt"].split()[-1].rstrip("?")) for row in halves
    )


@pytest.mark.parametrize("kind", grpo_notebook.KINDS)
def test_ninety_problems_and_ten_that_are_others(tmp_path: Path, kind: str) -> None:
    sizes = [
        write_problems(tmp_path / f"{split}.jsonl", seed=0, split=split, kind=kind)
        for split in ("train", "held_out")
    ]
    assert sizes == [{"rows": 90}, {"rows": 10}]
    train, held_out = (rows_of(tmp_path / f"{split}.jsonl") for split in ("train", "held_out"))
    problems = grpo_notebook.KINDS[kind](0)
    firsts = []
    for row in answered_rows(problems):
        firsts.append(row)
        if len(firsts) == 100:
            break
    order = np.random.default_rng(42).permutation(100)
    assert held_out == [firsts[i] for i in order[:10]] and train == [firsts[i] for i in order[10:]]


def test_of_two_problems_one_is_held_out_and_512_sums_are_not_513(tmp_path: Path) -> None:
    for split in ("train", "held_out"):
        sizes = write_problems(tmp_path / "rows.jsonl", seed=0, split=split, count=2)
        assert sizes == {"rows": 1}
    with pytest.raises(RequestError, match=r"^kind sums has 512 with .* 513 are"):
        write_problems(tmp_path / "rows.jsonl", seed=0, kind="sums", count=513)


def test_problems_of_a_file_of_the_users_own(tmp_path: Path) -> None:
    rows = [
        {"problem": f"What is {i}/2?", "solution": rf"\boxed{{\frac{{{i}}}{{2}}}}"}
        for i in range(40)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = str(tmp_path / "problems.jsonl")
    assert write_problems(tmp_path / "train.jsonl", seed=0, problems=given, count=20) == {
        "rows": 18
    }
    assert all(
        int(row["answer"]) * 2 == int(row["prompt"][8:-3])
        for row in rows_of(tmp_path / "train.jsonl")
    )
    with pytest.raises(RequestError, match="has 20 with a whole number"):
        write_problems(tmp_path / "all.jsonl", seed=0, problems=given, count=21)
    (tmp_path / "other.jsonl").write_text('{"question": "a", "solution": "b"}\n')
    with pytest.raises(
        RequestError, match="must have the texts problem and solution, got question, solution"
    ):
        write_problems(tmp_path / "all.jsonl", seed=0, problems=str(tmp_path / "other.jsonl"))
    with pytest.raises(ValueError, match="kind must be"):
        write_problems(tmp_path / "all.jsonl", seed=0, kind="sum")


def test_sums_of_two_digits_are_all_there_once(tmp_path: Path) -> None:
    assert write_sums(tmp_path / "rows.jsonl", seed=3) == {"rows": 100}
    rows = rows_of(tmp_path / "rows.jsonl")
    assert len({row["prompt"] for row in rows}) == 100
    assert all(
        sum(map(int, row["prompt"].rstrip("=").split("+"))) == int(row["answer"]) for row in rows
    )


def test_a_run_may_be_measured_by_a_reward_that_it_was_not_paid_for() -> None:
    run = rlbook.train("grpo", "Addition-v0", steps=8, num_envs=8, group_size=4, eval_every=0)
    right = completion_rewards(run, reward="exact", episodes=32)
    assert right.mean() == rlbook.evaluate(run, episodes=32, seed=0).mean
    assert_near(
        completion_rewards(run, reward={"exact": 2.0}, episodes=32), 2 * right, dtype="float32"
    )
    sampled = completion_rewards(run, reward="number", episodes=64, temperature=1.0)
    assert sampled.shape == (64,) and sampled.mean() > 0.9


def test_the_small_model_is_shown_both_ways_to_answer(tmp_path: Path) -> None:
    assert grpo_notebook.write_demonstrations(tmp_path / "rows.jsonl", seed=0) == {"rows": 7680}
    rows = rows_of(tmp_path / "rows.jsonl")
    stepwise = [row["completion"].startswith("<think>") for row in rows]
    assert 0.47 < np.mean(stepwise) < 0.53  # one half; the standard error is 0.006
    assert all(
        row["completion"][-1] == str(sum(map(int, row["prompt"].rstrip("=").split("+"))) % 10)
        for row in rows
    )
