"""What the stages of R1 read, what is filtered out, and that each stage takes up where the one
before it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near
from scipy import stats

from rlbook.book.experiments.language_models import r1
from rlbook.llm.rewards import Completion, language
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe

SHORT: dict[str, dict[str, Any]] = {
    "corpus": {"rows": 64},
    "base": {"steps": 5},
    "examples": {"rows": 16},
    "cold_start": {"steps": 1},
    "kept": {"samples": 32, "copies": 8},
    "second_sft": {"steps": 2},
    "small_base": {"steps": 5},
    "small_cold_start": {"steps": 1},
} | {
    name: {"steps": 200, "num_envs": 16}
    for name in ("zero", "reasoning_rl", "all_tasks_rl", "small_rl", "distilled")
}


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def wrote(text: str, tokens: int = 11) -> Completion:
    return Completion("4+7+8+5=", "4", text, ended=True, ids=[9] * tokens)


def test_the_corpus_has_right_answers_alone_and_behind_steps_in_both_scripts(
    tmp_path: Path,
) -> None:
    assert r1.write_corpus(tmp_path / "corpus", seed=0, rows=2_000) == {"rows": 2_000}
    task, rows = r1.sums(), read(tmp_path / "corpus")
    assert (
        all(task.score(row["prompt"], row["completion"]) == 1.0 for row in rows)
        and len({row["prompt"] for row in rows}) == 2_000
    )
    shares = [language(wrote(row["completion"])) for row in rows]
    alone = shares.count(None) / len(rows)
    assert abs(alone - 0.4) < 4 * (0.4 * 0.6 / 2_000) ** 0.5
    mixed = np.mean([0.0 < share < 1.0 for share in shares if share is not None])
    # three steps may change the script, each with 0.2
    assert abs(mixed - (1 - 0.8**3)) < 4 * (0.8**3 * (1 - 0.8**3) / 1_200) ** 0.5
    assert (
        abs(np.mean([share for share in shares if share is not None]) - 0.5) < 4 * 0.5 / 1_200**0.5
    )
    r1.write_corpus(tmp_path / "again", seed=0, rows=2_000)
    r1.write_corpus(tmp_path / "other", seed=1, rows=2_000)
    assert read(tmp_path / "again") == rows != read(tmp_path / "other")


def test_the_examples_are_clean_and_of_training_prompts(tmp_path: Path) -> None:
    assert r1.write_examples(tmp_path / "examples", seed=0, rows=100) == {"rows": 100}
    for row in read(tmp_path / "examples"):
        assert row["prompt"] in r1.sums().train and r1.is_readable(wrote(row["completion"]), None)


@pytest.mark.parametrize(
    ("text", "longest", "kept"),
    [
        ("<think>e,b,j,e</think>4", None, True),
        ("<think>e,b,j,e</think>4", 11, True),
        ("<think>e,b,j,e</think>4", 10, False),
        ("<think>e,β,j,e</think>4", None, False),
        ("<think>ε,β,κ,ε</think>4", None, False),
        ("4", None, False),
        ("<think></think>4", None, False),
        ("e,b,j,e</think>4", None, False),
        ("<think>e,b,<pad>j,e</think>4", None, False),
    ],
)
def test_what_is_mixed_or_too_long_or_has_no_steps_is_not_kept(
    text: str, longest: int | None, kept: bool
) -> None:
    assert r1.is_readable(wrote(text), longest) == kept


def found(seed: int, right: dict[str, list[float]]) -> r1.R1Measures:
    """One seed whose answers to four prompts are the same in every measure."""
    after = {
        stage: {key: np.array([values]) for key in r1.SIDES | {"sums": ""}}
        for stage, values in right.items()
    }
    return r1.R1Measures(
        after,
        np.full((1, 3), 0.5),
        np.full((1, 2, r1.BINS), 0.1 * seed),
        {stage: np.array([1.0 + seed]) for stage in right},
    )


def test_the_gain_of_a_stage_is_a_mean_over_seeds_with_its_interval() -> None:
    """Differences 1, 0, 0, 0 and 1, 0, 0, 1: 1/4 and 1/2, whose mean is 3/8 and whose deviation is
    1 / √32; Student's t of one degree of freedom is 12.706."""
    stages = [*r1.STAGES, *r1.SMALL, "zero"]
    one = found(
        0,
        {
            stage: [1.0, 0.0, 1.0, 0.0] if stage == "cold_start" else [0.0, 0.0, 1.0, 0.0]
            for stage in stages
        },
    )
    two = found(
        1,
        {
            stage: [1.0, 0.0, 0.0, 1.0] if stage == "cold_start" else [0.0, 0.0, 0.0, 0.0]
            for stage in stages
        },
    )
    both = r1.concatenate([one, two])
    numbers = r1.measurements(both)
    assert numbers["cold_start - base: sums, greedy"] == 3 / 8
    half = stats.t.ppf(0.975, 1) * (1 / 32) ** 0.5 / 2**0.5
    assert numbers["cold_start - base: sums, greedy, ±"] == near(half, terms=8)
    assert numbers["zero: sums, sampled, lowest"] == 0.0
    # 0 of 2 with the second seed
    assert numbers["all_tasks_rl / cold_start: sums, sampled, least of the seeds"] == 0.0
    assert numbers["distilled: seconds"] == 1.5 and "base: copies, greedy" not in numbers
    assert len(r1.draw(both).axes) == 2


def test_a_part_of_the_budget_without_a_report_is_left_open(tmp_path: Path) -> None:
    """Reports after 1, 2 and 40 steps of 40: the first two lie in the first of 20 parts, with 1 and
    3 episodes; a report in which no episode ended has no return."""
    rows = [
        {"step": 1, "episodes": 1, "return": 1.1, "reward/correct": 1.0, "reward/think": 1.0},
        {"step": 2, "episodes": 4, "return": 0.0, "reward/correct": 0.0, "reward/think": None},
        {"step": 20, "episodes": 4},
        {"step": 40, "episodes": 5, "return": 0.1, "reward/correct": 0.0, "reward/think": 1.0},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    found = r1.curve(tmp_path)
    assert found[:, 0].tolist() == [1 / 4, 1 / 4] and found[:, -1].tolist() == [0.0, 1.0]
    assert np.isnan(found[:, 1:-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r1", "r1_zero"])
def test_a_short_recipe_comes_to_its_end_and_is_then_done(name: str, tmp_path: Path) -> None:
    tree = Recipe.find(name).tree
    overrides: dict[str, Any] = {
        f"{stage}.{key}": value for stage in tree["stages"] for key, value in SHORT[stage].items()
    }
    overrides |= {f"measure.{measure}.episodes": 8 for measure in tree["measure"]}
    recipe, told = Recipe.find(name, overrides), []
    facts = run_recipe(recipe, tmp_path, on_stage=lambda stage, what: told.append(what))
    assert all(stage["finished"] for stage in facts["stages"]) and {*told} == {"begins", "finished"}
    assert [row["after"]["count"] for row in facts["table"]] == [8] * len(facts["table"])
    told.clear()
    assert run_recipe(
        recipe, tmp_path, on_stage=lambda stage, what: told.append(what)
    ) == facts and {*told} == {"skipped"}
