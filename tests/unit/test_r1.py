"""What the stages of R1 read, what is filtered out, and that each stage takes up where the one before it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbook.book import r1
from rlbook.book.recipes.running import run_recipe
from rlbook.llm.rewards import Completion, language
from rlbook.runs.recipe import Recipe

SHORT: dict[str, dict[str, Any]] = {
    "corpus": {"rows": 64}, "base": {"steps": 5}, "examples": {"rows": 16}, "cold_start": {"steps": 1},
    "kept": {"samples": 32, "copies": 8}, "second_sft": {"steps": 2}, "small_base": {"steps": 5}, "small_cold_start": {"steps": 1},
} | {name: {"steps": 200, "num_envs": 16} for name in ("zero", "reasoning_rl", "all_tasks_rl", "small_rl", "distilled")}  # fmt: skip


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def wrote(text: str, tokens: int = 11) -> Completion:
    return Completion("4+7+8+5=", "4", text, ended=True, ids=[9] * tokens)


def test_the_corpus_has_right_answers_alone_and_behind_steps_in_both_scripts(tmp_path: Path) -> None:
    assert r1.write_corpus(tmp_path / "corpus", seed=0, rows=2_000) == {"rows": 2_000}
    task, rows = r1.sums(), read(tmp_path / "corpus")
    assert all(task.score(row["prompt"], row["completion"]) == 1.0 for row in rows) and len({row["prompt"] for row in rows}) == 2_000
    shares = [language(wrote(row["completion"])) for row in rows]
    alone = shares.count(None) / len(rows)
    assert abs(alone - 0.4) < 4 * (0.4 * 0.6 / 2_000) ** 0.5
    mixed = np.mean([0.0 < share < 1.0 for share in shares if share is not None])
    assert abs(mixed - (1 - 0.8**3)) < 4 * (0.8**3 * (1 - 0.8**3) / 1_200) ** 0.5     # three steps may change the script, each with 0.2
    assert abs(np.mean([share for share in shares if share is not None]) - 0.5) < 4 * 0.5 / 1_200**0.5
    r1.write_corpus(tmp_path / "again", seed=0, rows=2_000)
    r1.write_corpus(tmp_path / "other", seed=1, rows=2_000)
    assert read(tmp_path / "again") == rows != read(tmp_path / "other")


def test_the_examples_are_clean_and_of_training_prompts(tmp_path: Path) -> None:
    assert r1.write_examples(tmp_path / "examples", seed=0, rows=100) == {"rows": 100}
    for row in read(tmp_path / "examples"):
        assert row["prompt"] in r1.sums().train and r1.readable(wrote(row["completion"]), None)


@pytest.mark.parametrize(("text", "longest", "kept"), [
    ("<think>e,b,j,e</think>4", None, True), ("<think>e,b,j,e</think>4", 11, True), ("<think>e,b,j,e</think>4", 10, False),
    ("<think>e,β,j,e</think>4", None, False), ("<think>ε,β,κ,ε</think>4", None, False), ("4", None, False),
    ("<think></think>4", None, False), ("e,b,j,e</think>4", None, False),
])  # fmt: skip
def test_what_is_mixed_or_too_long_or_has_no_steps_is_not_kept(text: str, longest: int | None, kept: bool) -> None:
    assert r1.readable(wrote(text), longest) == kept


@pytest.mark.parametrize("name", ["r1", "r1_zero"])
def test_each_stage_of_the_recipes_is_a_request_that_can_be_made(name: str, tmp_path: Path) -> None:
    Recipe.find(name).check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r1", "r1_zero"])
def test_a_short_recipe_comes_to_its_end_and_is_then_done(name: str, tmp_path: Path) -> None:
    tree = Recipe.find(name).tree
    overrides = {f"{stage}.{key}": value for stage in tree["stages"] for key, value in SHORT[stage].items()}
    recipe, told = Recipe.find(name, overrides), []
    facts = run_recipe(recipe, tmp_path, on_stage=lambda stage, what: told.append(what))
    assert all(stage["finished"] for stage in facts["stages"]) and {*told} == {"begins", "finished"}
    assert [row["after"]["count"] for row in facts["table"]] == [512] * len(facts["table"])
    told.clear()
    assert run_recipe(recipe, tmp_path, on_stage=lambda stage, what: told.append(what)) == facts and {*told} == {"skipped"}
