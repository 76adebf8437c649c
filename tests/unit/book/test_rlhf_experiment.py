"""The experiment of RLHF's page: what people like, which answers become pairs, and what the four
stages come to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.book.experiments.language_models import rlhf
from rlbook.data import Episode
from rlbook.llm.rewards import Completion
from rlbook.llm.tokenizers.tokenizer import character_codec
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe


@pytest.mark.parametrize(
    ("text", "ended", "score"),
    [
        ("46c", True, 1.0),
        ("46", True, 0.5),  # the number, without its unit
        ("41c", True, 0.5 * (1 - 5 / 20) + 0.5),
        ("99c", True, 0.5),  # the unit alone
        ("46cc", True, 0.5),  # "46c" is not a number
        ("46c", False, 0.5),  # never ended
        ("", True, 0.0),
    ],
)
def test_an_answer_is_worth_its_number_and_its_unit(text: str, ended: bool, score: float) -> None:
    assert rlhf.true_score(Completion("12+34=", "46", text, ended)) == near(score, terms=4)


def test_half_of_the_demonstrations_have_the_unit() -> None:
    rows = rlhf.demonstrations(0)
    assert (
        0.45 < np.mean([answer.endswith(rlhf.UNIT) for _, answer in rows]) < 0.55
        and len(rows) == 7_588
    )
    assert all(
        sum(map(int, prompt.rstrip("=").split("+"))) == int(answer.rstrip(rlhf.UNIT))
        for prompt, answer in rows
    )


def test_the_better_neighbour_is_first_and_equals_make_no_pair() -> None:
    episodes = [
        Episode(np.array([1, prompt]), np.array([answer, 2]))
        for prompt in range(3)
        for answer in (7, 8)
    ]
    pairs = rlhf.neighbours(episodes, np.array([0.5, 1.0, 0.3, 0.3, 0.9, 0.2]))
    assert [(row.obs[1], row.action[0]) for row in pairs.better] == [(0, 8), (2, 7)]
    assert [(row.obs[1], row.action[0]) for row in pairs.worse] == [(0, 7), (2, 8)]


@pytest.mark.slow
def test_two_answers_to_a_prompt_stand_side_by_side(tmp_path: Path) -> None:
    assert rlhf.write_demonstrations(tmp_path / "rows.jsonl", seed=0) == {"rows": 7_588}
    sft = rlbook.train("sft", rlhf.ENV, data=tmp_path / "rows.jsonl", steps=3, eval_every=0)
    episodes, scores = rlhf.sample_pairs(sft, 20, seed=1)
    assert len(episodes) == 40 and scores.min() >= 0.0 and scores.max() <= 1.0
    assert all(
        np.array_equal(one.obs, other.obs)
        for one, other in zip(episodes[::2], episodes[1::2], strict=True)
    )
    codec = character_codec()
    for episode, score in zip(episodes[:10], scores, strict=False):
        prompt, text = (
            codec.decode(episode.obs[1:]),
            codec.decode(episode.action).removesuffix("<eos>"),
        )
        answer = str(sum(map(int, prompt.rstrip("=").split("+"))))
        wanted = rlhf.true_score(
            Completion(prompt, answer, text.strip(), bool(episode.action[-1] == codec.eos))
        )
        assert score == near(wanted, dtype="float32")  # as rewards are


@pytest.mark.slow
def test_the_true_score_rises_by_15_points_with_the_penalty_and_ends_lower_without_it(
    tmp_path: Path,
) -> None:
    """On ten other seeds: docs/results.json, `rlhf`. How far it falls from its best varies more
    from seed to seed than one of them can hold."""
    table = run_recipe(Recipe.find("rlhf"), tmp_path / "run")["table"]
    found = {(row["stage"], row["measure"]): row for row in table}
    assert found["ppo", "true_score"]["gain"]["confidence_interval"][0] >= 0.15
    for stage in ("ppo", "too_far"):  # the learned score says nothing of the difference
        assert found[stage, "learned_sampled"]["gain"]["mean"] > 1.0
    assert (
        found["ppo", "true_sampled"]["after"]["mean"]
        > found["too_far", "true_sampled"]["after"]["mean"] + 0.1
    )
    assert found["reward_model", "unit_seen"]["after"]["mean"] > 0.9
    assert found["reward_model", "number_seen"]["after"]["mean"] < 0.7
