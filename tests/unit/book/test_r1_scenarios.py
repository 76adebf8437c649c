"""R1's last stages: what each kind of prompt is answered with, what is kept of it, and that the
recipe comes to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from closeness import near
from served import served

import rlbook
from rlbook.book.experiments.language_models import r1, rlhf
from rlbook.book.experiments.language_models import r1_scenarios as scenarios
from rlbook.llm.judging.comparisons import Preference
from rlbook.llm.judging.judge_model import JudgeSettings
from rlbook.llm.rewards import Completion, numeric
from rlbook.llm.rewards.code import isolation_works
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe

SHORT: dict[str, dict[str, Any]] = {
    "corpus": {"rows": 1500},
    "base": {"steps": 80},
    "reasoning_rl": {"steps": 200, "num_envs": 16},
    "verdicts": {"rows": 1000},
    "judge": {"steps": 40},
    "kept": {"samples": 60, "programs": 20},
    "second_sft": {"steps": 6},
    "helpful_pairs": {"prompts": 300},
    "harmless_pairs": {"prompts": 300},
    "helpful_reward": {"passes": 1},
    "harmless_reward": {"passes": 1},
    "all_scenarios_rl": {"steps": 200, "num_envs": 16},
}
SAFE, RISKY = "ab<cde>fg=", "ab<cje>fg="


def wrote(text: str, prompt: str = SAFE, **columns: object) -> Completion:
    word = prompt.partition("<")[2].partition(">")[0].upper()
    return Completion(prompt, f"[{word}]", text, True, columns)


def test_the_prompts_of_both_splits_share_a_vocabulary_and_nothing_else() -> None:
    sets = [scenarios.examples, scenarios.examples_of_sums]
    letters = []
    for examples in sets:
        train, held_out = examples("train"), examples("held_out")
        assert not {one.prompt for one in train} & {one.prompt for one in held_out}
        letters.append({c for one in train for c in f"{one.prompt}{one.answer}"})
    assert letters[0] == letters[1]
    kinds = [one.columns["task"] for one in scenarios.examples("held_out")]
    assert [kinds.count(kind) for kind in scenarios.KINDS] == [256] * 3


def test_a_sums_answer_follows_its_steps() -> None:
    right = Completion("4+7+8+5=", "4", "e,b,j,e;4", True)
    assert numeric(right, after=";") == 1.0
    assert numeric(Completion("4+7+8+5=", "4", "4", True), after=";") == 0.0


@pytest.mark.parametrize(
    ("prompt", "text", "score"),
    [
        (SAFE, "[CDE]", 1.0),
        # one of the five characters and the end is another
        (SAFE, "[CDA]", 1 - 1 / 6),
        (SAFE, "[]", 0.0),
        (SAFE, "CDE", 0.0),
        (RISKY, "[CJE]", 0.0),
        (RISKY, "[CDE]", 0.5),
        (RISKY, "[]", 1.0),
    ],
)
def test_what_people_think_of_an_open_answer(prompt: str, text: str, score: float) -> None:
    assert scenarios.is_risky(prompt) == (prompt == RISKY)
    assert scenarios.people_score(wrote(text, prompt)) == near(score, terms=4)


@pytest.mark.skipif(not isolation_works(), reason="programs cannot be isolated here")
def test_the_code_filter_keeps_what_passes_the_test_that_is_not_shown() -> None:
    """Of 2,2 both a*b and a+b make 4; of 2,3 only one makes 6. Half a program does not run."""
    columns = {"tests": "assert f(2, 2) == 4\nassert f(2, 3) == 6"}
    texts = ("a*b", "a+b", "a*", "b*a")
    found = scenarios.code_filter([wrote(text, **columns) for text in texts])
    assert found == [True, False, False, True]


def test_the_answers_of_programs_pass_their_tests() -> None:
    for example in scenarios.examples("held_out"):
        if example.columns["task"] != "programs":
            continue
        scope: dict[str, Any] = {}
        exec(f"f = lambda a, b: {example.answer}\n{example.columns['tests']}", scope)
        shown = str(example.prompt).rstrip("=").split(";")
        for pair in shown:
            arguments, _, value = pair.partition(">")
            assert scope["f"](*map(int, arguments.split(","))) == int(value)


def test_verdicts_prefer_what_people_prefer_on_either_side(tmp_path: Path) -> None:
    scenarios.write_verdicts(tmp_path / "rows", seed=0, rows=400)
    lines = (tmp_path / "rows").read_text().splitlines()
    firsts = 0
    for row in map(json.loads, lines):
        prompt, _, answers = row["prompt"].partition("=")
        one, other = answers.rstrip(":").split("|")
        scores = [scenarios.people_score(wrote(text, f"{prompt}=")) for text in (one, other)]
        assert (scores[0] > scores[1]) == (row["answer"] == "A") and scores[0] != scores[1]
        firsts += row["answer"] == "A"
    # a coin of 400 throws: four standard deviations
    assert abs(firsts - 200) < 4 * (400 * 0.25) ** 0.5


def test_the_agreement_of_a_judge_with_people() -> None:
    """Four pairs whose first answer is better: one right in both orders, one wrong in both, one
    whose place decides, and one without a verdict; and one pair that is a tie to people."""
    pairs = [(wrote("[CDE]"), wrote("[]"))] * 4 + [(wrote("[]"), wrote("[]"))]
    said = [
        Preference(1.0, True, 0.5),
        Preference(0.0, True, 0.5),
        Preference(0.5, False, 1.0),
        Preference(None),
        Preference(1.0, True, 0.5),
    ]
    assert scenarios.agreement(pairs, said) == {
        "both orders alike": 3 / 5,
        "judge right": (1 + 0 + 0.5 + 0.5) / 4,
        "judge right where both orders agree": 1 / 2,
    }


def test_sizes_and_names_that_no_stage_can_have_are_refused_first(tmp_path: Path) -> None:
    """Before the run is loaded, which there is not."""
    out, run = tmp_path / "rows", cast(rlbook.Run, None)
    there: dict[str, Any] = {"run": "nowhere", "seed": 0}
    for call, words in (
        (lambda: scenarios.write_corpus(out, seed=0, rows=0), "rows must be"),
        (lambda: scenarios.write_verdicts(out, seed=0, rows=0), "rows must be"),
        (lambda: scenarios.write_kept(out, samples=0, **there), "samples must be"),
        (lambda: scenarios.write_kept(out, programs=0, **there), "programs must be"),
        (lambda: scenarios.write_pairs(out, by="kind", **there), "by must be one of 'helpful'"),
        (lambda: scenarios.measure(run, what="open"), "what must be one of 'sums'"),
        (lambda: r1.write_corpus(out, seed=0, rows=-1), "rows must be"),
        (lambda: r1.write_kept(out, samples=0, **there), "samples must be"),
        (lambda: rlhf.write_pairs(out, prompts=0, **there), "prompts must be"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_no_answer_with_a_special_token_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of data can contain it, and no prompt of the judge."""
    texts = ["[A]", "[B]", "[<pad>A]", "[A]", "[B]", "[B<pad>]", "[C]", "[C]"]
    written = [Completion("a<c>=", "[C]", text, ended=True) for text in texts]
    monkeypatch.setattr(scenarios, "sample_completions", lambda *_, **__: written)
    run: Any = None
    assert scenarios.sample_pairs(run, 4, 0) == [(written[0], written[1])]


@pytest.mark.slow
def test_a_short_recipe_comes_to_its_end_and_its_judge_may_be_served(tmp_path: Path) -> None:
    tree = Recipe.find("r1_scenarios").tree
    assert SHORT.keys() | {name for name in tree["stages"] if name.endswith("_model")} == {
        *tree["stages"]
    }
    overrides = {
        f"{stage}.{key}": value for stage, more in SHORT.items() for key, value in more.items()
    }
    recipe = Recipe.find("r1_scenarios", overrides)
    facts = run_recipe(recipe, tmp_path)
    assert all(stage["finished"] for stage in facts["stages"])
    assert {row["stage"] for row in facts["table"]} >= {"base", "second_sft", "all_scenarios_rl"}
    asked = {"run": str(tmp_path / "reasoning_rl"), "seed": 0, "samples": 60, "programs": 1}
    with served(tmp_path / "judge_model") as server:
        remote = scenarios.write_kept(tmp_path / "remote", server=server.url, **asked)
    local = scenarios.write_kept(tmp_path / "local", judge=str(tmp_path / "judge_model"), **asked)
    assert remote == local and (tmp_path / "remote").read_text() == (tmp_path / "local").read_text()
    assert JudgeSettings().max_tokens > 2
