"""Rewards: what they look at, several together, and what is said of one that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.interaction.guards import BadAnswer
from rlbook.llm.rewards import Completion, Rewards, batched
from rlbook.llm.token_env import Addition, AdditionVector
from rlbook.llm.tokenizer import IDS

EOS = IDS["<eos>"]


def wrote(text: str, answer: str | None = "46", *, ended: bool = True, **more: Any) -> Completion:
    return Completion("11+35=", answer, text, ended, **more)


def test_several_rewards_add_up_by_their_weights() -> None:
    total, named = Rewards({"exact": 2.0, "edit": {"weight": 0.5}})([wrote("46"), wrote("47")])
    assert total.tolist() == [2.0 * 1 + 0.5 * 1, 2.0 * 0 + 0.5 * (1 - 1 / 3)]         # one of 4, 6, EOS to replace
    assert {name: values.tolist() for name, values in named.items()} == {"reward/exact": [1.0, 0.0], "reward/edit": [1.0, 1 - 1 / 3]}
    assert Rewards(["exact", "edit"])([wrote("46")])[0].tolist() == [2.0]             # without weights, each has 1


def test_a_reward_that_does_not_apply_adds_nothing() -> None:
    rewards = Rewards({"exact": 1.0, "even": {"function": lambda c: None if c.text == "" else 1.0 - int(c.text) % 2}})
    total, named = rewards([wrote("46"), wrote("")])
    assert total.tolist() == [2.0, 0.0]
    np.testing.assert_array_equal(named["reward/even"], [1.0, np.nan])


def test_a_batched_reward_sees_all_completions_that_end_together() -> None:
    seen: list[int] = []

    @batched
    def rank(completions: Sequence[Completion]) -> list[float]:
        seen.append(len(completions))
        return [float(len(completion.ids)) for completion in completions]

    env = AdditionVector(3, reward={"rank": {"function": rank}})
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([EOS, 4, EOS]))
    assert seen == [2] and reward.tolist() == [1.0, 0.0, 1.0]
    np.testing.assert_array_equal(info["metrics"]["reward/rank"], [1.0, np.nan, 1.0])
    assert env.step(np.array([4, EOS, 4]))[1].tolist() == [0.0, 2.0, 0.0] and seen == [2, 1]


def test_a_completion_says_its_ids_and_its_limit() -> None:
    seen: list[Completion] = []
    env = Addition(reward=lambda completion: seen.append(completion) or 0.0)
    env.reset(seed=0)
    for token in (8, 9, EOS):
        env.step(token)
    assert (list(seen[0].ids), seen[0].limit, dict(seen[0].columns), seen[0].messages) == ([8, 9, EOS], 5, {}, None)


def test_each_of_several_rewards_is_in_the_log_and_one_alone_is_not(tmp_path: Path) -> None:
    for asked, expected in (({"exact": 1.0, "edit": 0.2}, {"reward/exact", "reward/edit"}), ("exact", set())):
        folder = tmp_path / str(len(expected))
        rlbook.train("grpo", "Addition-v0", steps=80, num_envs=8, eval_every=0, env_kwargs={"reward": asked}, folder=folder)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert {name for line in lines for name in line if name.startswith("reward/")} == expected


def fails(completion: Completion) -> float:
    return 1 / len(completion.text)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda c: float("nan"), "reward 'mine' must return a finite number or None, got nan for the completion '' of '11+35='"),
        (lambda c: "good", "got 'good' for the completion '' of '11+35='"),
        (fails, "reward 'mine' failed on the completion '' of '11+35=': ZeroDivisionError: division by zero"),
        (batched(lambda cs: [1.0] * 3), "reward 'mine' must return 1 numbers, one a completion, got 3"),
        (batched(lambda cs: [1.0 / 0.0]), "reward 'mine' failed on 1 completions: ZeroDivisionError"),
    ],
)
def test_a_reward_that_goes_wrong_is_named_with_the_completion(function: Any, sentence: str) -> None:
    with pytest.raises(BadAnswer) as failure:
        Rewards({"mine": {"function": function}})([wrote("")])
    assert sentence in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("best", "reward must be one of 'exact'"),
        ({"edt": 1.0}, "got 'edt' (did you mean 'edit'?)"),
        ({"edit": "much"}, "the weight of reward 'edit' must be a finite number, got 'much'"),
        ({"edit": {"wieght": 2}}, "reward 'edit' has no option 'wieght'"),
        (["edit", "edit"], "reward names 'edit' twice"),
        ([], "reward must be a name, a function, a list of those or a mapping of names to weights, got []"),
        (3, "got 3"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(asked: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Rewards(asked)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)
