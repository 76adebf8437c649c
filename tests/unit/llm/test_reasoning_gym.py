"""reasoning-gym's generators as tasks, where the package is installed; and the sentence where it is
not."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.llm.tasks.reasoning_gym import RUNS_WHAT_IS_WRITTEN, ReasoningGymTask

gym: Any = pytest.importorskip("reasoning_gym")
SUMS: dict[str, Any] = {
    "dataset": "chain_sum",
    "settings": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
}


def test_problems_are_split_scored_and_the_same_every_time() -> None:
    task, again = ReasoningGymTask(**SUMS), ReasoningGymTask(**SUMS)
    assert (
        task.held_out == again.held_out
        and len(task.held_out) == 512
        and not {*task.held_out} & {*task.train}
    )
    prompt = task.held_out[0]
    left, sign, right = re.findall(r"(-?\d+) ([+-]) (-?\d+) =", prompt)[0]
    assert task.answer(prompt) == str(
        int(left) + int(right) if sign == "+" else int(left) - int(right)
    )
    assert task.score(prompt, task.answer(prompt)) == 1.0 and task.score(prompt, "x") == 0.0


def test_the_environment_pays_what_the_generator_says() -> None:
    env: Any = rlbook.make("ReasoningGym-v0", split="held_out", **SUMS).unwrapped
    rules, (prompt, answer) = env.rules, env.answers()[0]
    assert (prompt == rules.prompts[0, : len(prompt)]).all()
    env.reset(options={"prompt_id": 0})
    *before, last = [env.step(token)[1:3] for token in answer]
    assert last == (1.0, True) and all(step == (0.0, False) for step in before)
    assert (
        rlbook.make(
            "ReasoningGym-v0", dataset="leg_counting", size=600
        ).unwrapped.rules.codec.decode([4])
        != ""
    )  # type: ignore[attr-defined]


def test_partial_credit_is_the_generators() -> None:
    task = ReasoningGymTask("spell_backward", 1024, {"min_word_len": 6})
    prompt = task.held_out[0]
    half = task.answer(prompt)[:-1] + "?"
    assert task.score(prompt, half) == task.data.score_answer(half, task.entries[prompt])


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        (
            {"dataset": "chain_sun"},
            "reasoning-gym has no generator 'chain_sun'; did you mean 'chain_sum'?",
        ),
        (
            {"dataset": "countdown"},
            (
                "the score of 'countdown' would run a completion as Python code, so it is"
                " not offered"
            ),
        ),
        (
            {"dataset": "chain_sum", "size": 512},
            "size must be an integer from 513 to 100000, got 512",
        ),
        (
            {"dataset": "chain_sum", "settings": {"min_termz": 2}},
            "settings: 'chain_sum' refuses them: .*min_termz",
        ),
        (
            {"dataset": "chain_sum", "settings": {"min_terms": 0}},
            "settings: 'chain_sum' refuses them",
        ),
        (
            {"dataset": "coin_flip", "size": 600, "settings": {"min_trials": 3, "max_trials": 3}},
            "different problems among 600",
        ),
        ({}, "missing 1 required keyword-only argument: 'dataset'"),
    ],
)
def test_bad_arguments_are_one_sentence(kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rlbook.RequestError, match=sentence):
        rlbook.make("ReasoningGym-v0", **kwargs)


def test_no_generator_that_is_offered_runs_a_completion() -> None:
    """`eval` and sympy's `parse_expr` in a score, by the source of the installed package."""
    from reasoning_gym.factory import DATASETS

    dangerous = re.compile(r"\beval\(|parse_expr\(|\bexec\(|sympify\(")
    own = {"number_sorting"}  # evaluates its own answer, not the completion
    kinds = {name: kind for name, (kind, _) in DATASETS.items()}
    running = {
        name
        for name, kind in kinds.items()
        if dangerous.search(inspect.getsource(kind.score_answer))
    }
    assert running - own <= RUNS_WHAT_IS_WRITTEN < kinds.keys()


def test_it_is_no_environment_of_the_list_and_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "ReasoningGym-v0" not in rlbook.environments()
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        rlbook.RequestError,
        match=r'reasoning-gym environments need `pip install "rlbook\[reasoning\]"`',
    ):
        rlbook.make("ReasoningGym-v0", dataset="chain_sum")


def test_a_model_learns_from_it() -> None:
    run = rlbook.train(
        "sft",
        "ReasoningGym-v0",
        env_kwargs=SUMS | {"model": "new"},
        steps=2,
        batch_size=8,
        eval_every=0,
    )
    assert np.isfinite(run.metrics[-1]["loss"]) and rlbook.evaluate(
        run, episodes=2
    ).returns.shape == (2,)
