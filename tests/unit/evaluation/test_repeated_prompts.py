"""An evaluation with more episodes than prompts: the repeats say nothing new, so the interval is
that of the prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.cli.main import main
from rlbook.functional.intervals import t_interval
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import Evaluation, prompts_of
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe

PROMPTS = 9


def examples(split: str) -> list[dict[str, str]]:
    """27 training prompts and 9 others that are held out."""
    numbers = range(20, 20 + PROMPTS) if split == "held_out" else range(20 - 2 * PROMPTS, 20)
    return [{"prompt": f"{n}+1=", "completion": str(n + 1)} for n in numbers]


FUNCTION = {"function": f"{__name__}:examples", "max_new_tokens": 3}


def of_length(completion: Any) -> float:
    """A reward that differs between prompts even where nothing was learned."""
    return float(int(completion.prompt[:2]) % 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rlbook.Run:
    kwargs = {"function": examples, "max_new_tokens": 3, "evaluation_reward": of_length}
    return rlbook.train("sft", "Chat-v0", env_kwargs=kwargs, steps=1, eval_every=0, quiet=True)


def test_samples_of_a_group_count_once() -> None:
    """Each of the three numbers twice: the mean is theirs and the interval too. Of unequal groups,
    1, 1, 1 and 0, with the mean 3/4: the sums of the deviations are 3/4 and -3/4, so
    s² = 2/1 · (9/16 + 9/16) / 4 = 9/16; and the 97.5 % quantile of t with one degree of freedom, the
    Cauchy distribution, is tan(0.475 π)."""
    values, twice = np.array([1.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.0, 0.0, 0.5, 0.5])
    assert t_interval(twice, np.array([0, 0, 1, 1, 2, 2])) == near(t_interval(values), terms=8)
    assert t_interval(values, np.array([2, 0, 1])) == t_interval(values)
    unequal = np.array([1.0, 1.0, 1.0, 0.0])
    low, high = t_interval(unequal, np.array([0, 0, 0, 1]))
    half = np.tan(0.475 * np.pi) * (9 / 16) ** 0.5 / 4**0.5
    # SciPy before 1.17 finds a quantile of t to ten digits
    assert (low, high) == pytest.approx((0.75 - half, 0.75 + half), rel=1e-10)
    assert t_interval(unequal, np.zeros(4, dtype=np.int64)) == (0.75, 0.75)


def test_more_episodes_of_the_same_prompts_narrow_nothing(run: rlbook.Run) -> None:
    once, often = (rlbook.evaluate(run, episodes=k * PROMPTS) for k in (1, 11))
    assert once.num_prompts == often.num_prompts == PROMPTS
    assert once.returns.std() > 0 and often.mean == near(once.mean, terms=11 * PROMPTS, size=4)
    tolerance = {"terms": 11 * PROMPTS, "size": 16}
    assert often.confidence_interval == near(once.confidence_interval, **tolerance)
    assert often.standard_error == near(once.standard_error, **tolerance)
    assert often.mean_by_prompt(often.returns).tolist() == often.returns[:PROMPTS].tolist()


@pytest.mark.parametrize("search", ["majority", "beam"])
def test_a_search_tells_the_repeats_too(run: rlbook.Run, search: str) -> None:
    found = rlbook.evaluate(run, episodes=2 * PROMPTS, search=search, samples=2)
    assert found.num_prompts == PROMPTS


def test_an_environment_without_prompts_has_independent_episodes() -> None:
    run = rlbook.train("q_learning", "Maze-v0", episodes=5, eval_every=0, quiet=True)
    found = rlbook.evaluate(run, episodes=3)
    assert found.prompts is None and found.num_prompts is None
    assert Evaluation(np.arange(3.0), np.ones(3)).confidence_interval == t_interval(np.arange(3.0))


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_prompt_of_a_seed_is_the_one_that_a_reset_begins(split: str) -> None:
    recipe = EnvRecipe.from_env("Chat-v0", kwargs={"function": examples, "split": split})
    one, many = recipe.make(), recipe.make_native_vector(40)
    seeds = range(7, 47)
    texts = [one.reset(seed=seed)[0]["tokens"].tobytes() for seed in seeds]
    assert many is not None
    rows = [row.tobytes() for row in many.reset(seed=7)[0]["tokens"]]
    assert rows == texts
    for env in (one, many):
        numbers = prompts_of(env, seeds)
        assert numbers is not None and len(set(texts)) < 40
        pairs = set(zip(numbers.tolist(), texts, strict=True))
        assert len(pairs) == len(set(texts)) == len(set(numbers.tolist()))


def test_a_recipe_measures_prompts(tmp_path: Path) -> None:
    tree = {
        "title": "a stage",
        "seed": 0,
        "measure": {"score": {"episodes": 4 * PROMPTS}},
        "stages": {
            "first": {
                "train": "sft",
                "env": "Chat-v0",
                "env_kwargs": FUNCTION,
                "steps": 1,
                "eval_every": 0,
            }
        },
    }
    facts = run_recipe(Recipe("once", tree, allow_import=True), tmp_path)
    assert [row["after"]["count"] for row in facts["table"]] == [PROMPTS]


def test_the_command_says_how_many_prompts_there_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rlbook.train(
        "sft", "Chat-v0", env_kwargs=FUNCTION, steps=1, quiet=True, allow_import=True
    )
    folder = str(run.save(tmp_path / "run"))
    for episodes, told in ((PROMPTS, "9, greedy"), (2 * PROMPTS, "18 of 9 prompts, greedy")):
        main(["evaluate", folder, "--episodes", str(episodes), "--allow-import"])
        assert f"episodes      {told}\n" in capsys.readouterr().out
