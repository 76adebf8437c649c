"""Rewards: what they look at, several together, and what is said of one that goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.errors import RequestError
from rlbook.interaction.guards import BadAnswer
from rlbook.llm.environments.token_env import Addition, AdditionVector
from rlbook.llm.rewards import (
    Completion,
    Rewards,
    boxed,
    edit,
    form,
    is_number,
    language,
    last_boxed,
    last_number,
    length,
    mark_batched,
    number,
    numeric,
    overlong,
    remainder,
    repetition,
    tagged,
    tags,
    think,
)
from rlbook.llm.rewards.composite import Part, verifier_results
from rlbook.llm.tokenizers.tokenizer import IDS

EOS = IDS["<eos>"]


def wrote(text: str, answer: str | None = "46", *, ended: bool = True, **more: Any) -> Completion:
    return Completion("11+35=", answer, text, ended, **more)


def test_several_rewards_add_up_by_their_weights() -> None:
    total, named = Rewards({"exact": 2.0, "edit": {"weight": 0.5}})([wrote("46"), wrote("47")])
    # one of 4, 6, EOS to replace
    assert total.tolist() == [
        2.0 * 1 + 0.5 * 1,
        2.0 * 0 + 0.5 * (1 - 1 / 3),
    ]
    assert {name: values.tolist() for name, values in named.items()} == {
        "reward/exact": [1.0, 0.0],
        "reward/edit": [1.0, 1 - 1 / 3],
    }
    # without weights, each has 1
    assert Rewards(["exact", "edit"])([wrote("46")])[0].tolist() == [2.0]


def test_a_reward_that_does_not_apply_adds_nothing() -> None:
    rewards = Rewards(
        {
            "exact": 1.0,
            "even": {"function": lambda c: None if c.text == "" else 1.0 - int(c.text) % 2},
        }
    )
    total, named = rewards([wrote("46"), wrote("")])
    assert total.tolist() == [2.0, 0.0]
    np.testing.assert_array_equal(named["reward/even"], [1.0, np.nan])


def test_a_batched_reward_sees_all_completions_that_end_together() -> None:
    seen: list[int] = []

    @mark_batched
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
    assert (list(seen[0].ids), seen[0].limit, dict(seen[0].columns), seen[0].messages) == (
        [8, 9, EOS],
        5,
        {},
        None,
    )


def test_each_of_several_rewards_is_in_the_log_and_one_alone_is_not(tmp_path: Path) -> None:
    for asked, expected in (
        ({"exact": 1.0, "edit": 0.2}, {"reward/exact", "reward/edit"}),
        ("exact", set()),
    ):
        folder = tmp_path / str(len(expected))
        rlbook.train(
            "grpo",
            "Addition-v0",
            steps=80,
            num_envs=8,
            eval_every=0,
            env_kwargs={"reward": asked},
            out=folder,
        )
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert {name for line in lines for name in line if name.startswith("reward/")} == expected


def fails(completion: Completion) -> float:
    return 1 / len(completion.text)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            lambda c: float("nan"),
            (
                "reward 'mine' must return a finite number or None, got nan for the completion ''"
                " of '11+35='"
            ),
        ),
        (lambda c: "good", "got 'good' for the completion '' of '11+35='"),
        (
            fails,
            (
                "reward 'mine' failed on the completion '' of '11+35=': ZeroDivisionError: division"
                " by zero"
            ),
        ),
        (
            mark_batched(lambda cs: [1.0] * 3),
            "reward 'mine' must return 1 numbers, one a completion, got 3",
        ),
        (
            mark_batched(lambda cs: [1.0 / 0.0]),
            "reward 'mine' failed on 1 completions: ZeroDivisionError",
        ),
    ],
)
def test_a_reward_that_goes_wrong_is_named_with_the_completion(
    function: Any, sentence: str
) -> None:
    with pytest.raises(BadAnswer) as failure:
        Rewards({"mine": {"function": function}})([wrote("")])
    assert sentence in str(failure.value) and "\n" not in str(failure.value)


def of_texts(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


def with_a_prompt(prompt: str, completion: Completion) -> float:
    return float(len(prompt))


CALLED = "a reward is called with one Completion, whose text is completion.text, and one written"


def test_a_reward_of_other_arguments_is_told_how_it_is_called() -> None:
    with pytest.raises(BadAnswer, match=f"object is not iterable; {CALLED} for TRL"):
        Rewards(of_texts)([wrote("3")])
    asked = r"reward 'with_a_prompt' is a function of \(prompt: .*completion: .*\)"
    with pytest.raises(ValueError, match=f"{asked}.*; {CALLED}"):
        Rewards(with_a_prompt)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("best", "reward must be one of 'exact'"),
        ({"edt": 1.0}, "got 'edt' (did you mean 'edit'?)"),
        ({"edit": "much"}, "the weight of reward 'edit' must be a finite number, got 'much'"),
        ({"edit": {"wieght": 2}}, "reward 'edit' has no option 'wieght'"),
        (["edit", "edit"], "reward names 'edit' twice"),
        (
            [],
            (
                "reward must be a name, a function, a list of those or a mapping of names to"
                " weights, got []"
            ),
        ),
        (3, "got 3"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(asked: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Rewards(asked)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_numbers_are_read_exactly() -> None:
    same = {
        "1,000": 1000,
        "-0.5": Fraction(-1, 2),
        "$3.00$": 3,
        "1/2": Fraction(1, 2),
        r"\frac{1}{2}": Fraction(1, 2),
        "50%": Fraction(1, 2),
        r"-\dfrac{3}{-4}": Fraction(3, 4),
        "7.": 7,
        ".25": Fraction(1, 4),
    }
    assert {text: number(text) for text in same} == same
    assert [number(text) for text in ("", "1/0", "12 apples", "1,00", "9" * 500, "1e3", "--1")] == [
        None
    ] * 7


def test_the_last_number_is_no_difference_and_no_half_of_a_name() -> None:
    texts = {
        "10-3": 3,
        "so x = -3": -3,
        "(-3)": -3,
        "3 and 4.": 4,
        "a7": 7,
        "none": None,
        "1,234,567 cars": 1_234_567,
    }
    assert {text: last_number(text) for text in texts} == texts


def test_numeric_equality_by_hand() -> None:
    assert numeric(wrote("I think it is 46.0, dear", "46")) == 1.0
    assert numeric(wrote("46 or 47", "46")) == 0.0
    assert (
        numeric(wrote("#### 46", "46"), after="####"),
        numeric(wrote("46", "46"), after="####"),
    ) == (1.0, 0.0)
    # 1/46 = .0217
    assert (
        numeric(wrote("45", "46"), tolerance=0.03),
        numeric(wrote("45", "46"), tolerance=0.02),
    ) == (
        1.0,
        0.0,
    )
    with pytest.raises(ValueError, match="the answer 'blue' is not a number"):
        numeric(wrote("46", "blue"))


def test_a_box_with_braces_within_it_is_read_to_its_own_end() -> None:
    texts = {
        r"\boxed{46}": "46",
        r"\boxed{1}, \boxed{\frac{1}{2}}!": r"\frac{1}{2}",
        r"\boxed{\{1, 2\}": None,
        "46": None,
    }
    assert {text: last_boxed(text) for text in texts} == texts
    assert boxed(wrote(r"so \boxed{\frac{1}{2}}", "0.5")) == 1.0
    assert boxed(wrote(r"\boxed{x + y}", "x+y")) == 1.0 and boxed(wrote(r"\boxed{46}", "47")) == 0.0


def test_the_regular_expression_of_the_notes_loses_nested_braces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planted(text: str) -> str | None:
        found = re.findall(r"oxed{(.*?)}", text)
        return found[-1] if found else None

    right = wrote(r"\boxed{\frac{1}{2}}", "1/2")
    assert boxed(right) == 1.0
    monkeypatch.setattr("rlbook.llm.rewards.answers.last_boxed", planted)
    assert planted(right.text) == r"\frac{1" and boxed(right) == 0.0


def test_whole_numbers_may_be_compared_by_their_remainders() -> None:
    assert [remainder(text, 1000) for text in ("1007", "-3", r"\frac{14}{2}", "1/2", "x")] == [
        7,
        997,
        7,
        None,
        None,
    ]
    assert (
        boxed(wrote(r"\boxed{1007}", "7"), modulo=1000) == 1.0
        and boxed(wrote(r"\boxed{1007}", "7")) == 0.0
    )
    # no whole numbers: compared as they are
    assert boxed(wrote(r"\boxed{1/2}", "0.5"), modulo=1000) == 1.0
    assert (
        tagged(wrote("<answer>1046</answer>"), modulo=1000) == 1.0
        and tagged(wrote("46"), modulo=1000) == 0.0
    )
    with pytest.raises(ValueError, match="modulo of reward 'boxed' must be"):
        Rewards({"boxed": {"modulo": 0}})


def test_the_edit_distance_may_look_behind_the_thoughts_alone() -> None:
    # 47 against 46 and EOS
    assert edit(wrote("<think>4 + 2</think> 47"), after="</think>") == 1 - 1 / 3
    assert edit(wrote("47"), after="</think>") == edit(wrote("47"))


def test_a_number_alone_is_a_form_whatever_the_number() -> None:
    assert [is_number(wrote(text)) for text in ("46", "-7.5", "46 apples", "")] == [
        1.0,
        1.0,
        0.0,
        0.0,
    ]
    assert is_number(wrote("46", ended=False)) == 0.0


def test_tags_and_form_by_hand() -> None:
    good = "<think>4 + 2</think>\n<answer>6</answer>"
    assert (tags(wrote(good)), form(wrote(good)), think(wrote(good)), tagged(wrote(good, "6"))) == (
        1.0,
        1.0,
        1.0,
        1.0,
    )
    twice = "<think>a</think><think>b</think><answer>6</answer>"
    assert tags(wrote(twice)) == 2 / 4 and form(wrote(twice)) == 0.0 and think(wrote(twice)) == 0.0
    assert (
        form(wrote("Well: " + good)) == 0.0
        and form(wrote("<answer>6</answer><think>a</think>")) == 0.0
    )
    assert (
        form(wrote("<think>a</think>"), names=["think"]) == 1.0 and tags(wrote("<think>a")) == 1 / 4
    )
    assert (
        tagged(wrote("<answer>5</answer> no, <answer> 6 </answer>", "6")) == 1.0
        and tagged(wrote("6", "6")) == 0.0
    )


def test_language_is_the_share_of_letters_of_a_script() -> None:
    assert language(wrote("ab, 12")) == 1.0 and language(wrote("12 + 3")) is None
    assert language(wrote("ab好的")) == 2 / 4 == language(wrote("ab好的"), script="cjk")
    assert language(wrote("é и")) == 1 / 2  # a letter with an accent is a Latin one


def test_lengths_by_hand() -> None:
    def long(count: int) -> Completion:
        return wrote("", ids=range(count), limit=20)

    assert length(long(5)) == -5 / 20
    assert [overlong(long(n), buffer=4) for n in (15, 16, 17, 20, 22)] == [
        0.0,
        0.0,
        -1 / 4,
        -1.0,
        -1.0,
    ]
    # (22-16)/4 · .5
    assert [overlong(long(n), buffer=4, factor=0.5, bounded=False) for n in (16, 18, 22)] == [
        0.0,
        -0.25,
        -0.75,
    ]
    assert (
        repetition(wrote("", ids=[5, 5, 5, 5, 5]), n=2) == -(1 - 1 / 4)
        and repetition(wrote("", ids=[1, 2]), n=3) == 0.0
    )
    with pytest.raises(ValueError, match="the completion has no limit; give one"):
        overlong(wrote(""), buffer=4)


def test_an_example_without_an_answer_is_left_out_of_comparisons() -> None:
    _, named = Rewards({"exact": 1.0, "boxed": 1.0, "think": 1.0})([wrote("46", None), wrote("46")])
    np.testing.assert_array_equal(named["reward/exact"], [np.nan, 1.0])
    np.testing.assert_array_equal(named["reward/boxed"], [np.nan, 0.0])
    np.testing.assert_array_equal(named["reward/think"], [0.0, 0.0])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            "overlong",
            "reward 'overlong' needs the option 'buffer', such as {overlong: {buffer: 16}}",
        ),
        (
            {"overlong": {"buffer": 0}},
            "buffer of reward 'overlong' must be an integer of at least 1, got 0",
        ),
        (
            {"format": {"names": "think"}},
            "names of reward 'format' must be a list of names, got 'think'",
        ),
        (
            {"overlong": {"bufer": 3}},
            (
                "reward 'overlong' has no option 'bufer'; did you mean 'buffer'? (it has: weight,"
                " buffer, limit"
            ),
        ),
        (
            "own_rewards:close",
            "reward 'own_rewards:close' would import the module 'own_rewards'; give --allow-import",
        ),
        ("trl:os:getcwd", "reward 'trl:os:getcwd' would import the module 'os'"),
        ("code", "reward 'code' runs programs that a model has written; give --allow-import"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(asked: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Rewards(asked)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_modules_are_imported_only_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rewards.py").write_text(
        "def close(completion):\n    return -abs(len(completion.text) - 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = {"exact": 1.0, "own_rewards:close": 0.5}
    with pytest.raises(RequestError, match="would import the module 'own_rewards'"):
        rlbook.make("Addition-v0", reward=asked)
    run = rlbook.train(
        "grpo",
        "Addition-v0",
        steps=40,
        num_envs=8,
        eval_every=0,
        env_kwargs={"reward": asked},
        allow_import=True,
        out=tmp_path / "run",
    )
    assert any("reward/close" in line for line in run.metrics)
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "own_rewards:close" in config and "allow_import" not in config
    with pytest.raises(RequestError, match=r"^reward 'own_rewards:close' would import"):
        rlbook.load(tmp_path / "run")
    with pytest.raises(RequestError, match="allow_import is not an argument of an environment"):
        rlbook.train(
            "grpo", "Addition-v0", steps=40, env_kwargs={"reward": asked, "allow_import": True}
        )


def test_evaluation_counts_what_it_is_told_to() -> None:
    options: dict[str, Any] = {"steps": 8, "num_envs": 8, "eval_every": 0}
    by_edit = rlbook.train(
        "grpo", "Addition-v0", env_kwargs={"evaluation_reward": "edit"}, **options
    )
    by_exact = rlbook.train("grpo", "Addition-v0", **options)
    assert rlbook.evaluate(by_edit, episodes=64).mean > rlbook.evaluate(by_exact, episodes=64).mean


def test_a_reward_model_may_be_one_of_several_rewards(tmp_path: Path) -> None:
    judge = rlbook.train(
        "reward_model", "Addition-v0", steps=2, eval_every=0, out=tmp_path / "judge"
    )
    options: dict[str, Any] = {"steps": 40, "num_envs": 8, "eval_every": 0, "seed": 3}
    asked = {"edit": 1.0, "model": 0.25}
    with pytest.raises(
        RequestError, match="one of its rewards is 'model'; give --reward-model RUN"
    ):
        rlbook.train("grpo", "Addition-v0", env_kwargs={"reward": asked}, **options)
    both = rlbook.train(
        "grpo", "Addition-v0", env_kwargs={"reward": asked}, reward_model=judge, **options
    )
    alone = rlbook.train(
        "grpo", "Addition-v0", env_kwargs={"reward": ["exact"]}, reward_model=judge, **options
    )
    lines = [line for line in both.metrics if "return" in line]
    assert lines and not any("reward/model" in line for line in alone.metrics)
    for line in lines:
        assert line["return"] == near(
            line["reward/edit"] + 0.25 * line["reward/model"],
            dtype="float32",
            terms=8 * 2,
            size=1.0,
        )


def test_a_verifier_calls_right_what_has_all_of_its_reward() -> None:
    """Half of a program's tests is not right; where it says nothing, nothing is known."""
    said = {"whole": 1.0, "half": 0.5, "none": 0.0, "silent": None}
    part = Part("tests", 0.3, lambda completion: said[completion.text])
    found = verifier_results(part, [Completion("", None, text, True) for text in said])
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.0, np.nan])
