"""Verdicts as they are read, both orders of a pair, rubrics, and answers from a passage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import near

from rlbook.llm.judging.answer_cache import AnswerCache
from rlbook.llm.judging.comparisons import Preference, compare_answers
from rlbook.llm.judging.judge_model import JudgeModel, JudgeSettings
from rlbook.llm.judging.verdicts import fill_template, parse_choice, parse_score, parse_verdict
from rlbook.llm.rewards import Completion, Rewards
from rlbook.llm.rewards.passages import exact_match, normalize_answer, word_f1


def wrote(text: str, answer: str | None = None, **columns: object) -> Completion:
    return Completion("Who?", answer, text, True, columns)


def asked_of(answer: Callable[[str], str | None]) -> JudgeModel:
    return JudgeModel(lambda prompts: [answer(one) for one in prompts], "test", JudgeSettings())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Good. [[8]]", (8 - 1) / 9),
        ("First [[2]], then [[ 10 ]]", 1.0),
        ("7.5", 6.5 / 9),
        ("7", 6 / 9),
        ("7 of 10", 6 / 9),
        ("[[11]]", None),
        ("[[eight]]", None),
        ("It is 7.", None),
        ("7x", None),
        ("", None),
    ],
)
def test_a_rating_is_the_last_number_in_brackets_as_a_share_of_the_scale(
    text: str, value: float | None
) -> None:
    assert parse_score(text, 1.0, 10.0) == value


@pytest.mark.parametrize(
    ("text", "choice", "verdict"),
    [
        ("A is shorter, B is right: [[B]]", 0.0, None),
        ("[[A]]", 1.0, None),
        ("[[C]]", 0.5, None),
        ("tie", 0.5, None),
        ("B", 0.0, None),
        ("Bad", None, None),
        ("Yes.", None, 1.0),
        ("I think not [[no]]", None, 0.0),
        ("yesterday", None, None),
        ("", None, None),
    ],
)
def test_a_verdict_is_what_stands_in_brackets_or_alone_at_the_beginning(
    text: str, choice: float | None, verdict: float | None
) -> None:
    assert (parse_choice(text), parse_verdict(text)) == (choice, verdict)


def test_a_text_that_holds_a_placeholder_is_not_filled_in() -> None:
    fields = {"prompt": "{text}", "text": "{prompt} {other}"}
    assert fill_template("{prompt}|{text}|{other}", fields) == "{text}|{prompt} {other}|{other}"


def test_both_orders_of_a_pair_make_one_preference() -> None:
    """A judge that wants the longer text is consistent; one that always says A is not: its pairs
    are ties. Where one order has no verdict there is none."""
    pairs = [({"prompt": "?"}, "long text", "short"), ({"prompt": "?"}, "short", "long text")]
    template = "{first}|{second}"

    def longer(asked: str) -> str:
        first, _, second = asked.partition("|")
        return "[[A]]" if len(first) > len(second) else "[[B]]"

    told: dict[str, Any] = {"template": template}
    found = compare_answers(asked_of(longer), pairs, **told)
    assert found == [Preference(1.0, True, 0.5), Preference(0.0, True, 0.5)]
    found = compare_answers(asked_of(lambda asked: "[[A]]"), pairs, **told)
    assert found == [Preference(0.5, False, 1.0)] * 2
    found = compare_answers(asked_of(lambda asked: "[[A]]"), pairs, swap=False, **told)
    assert found == [Preference(1.0, None, 1.0)] * 2
    first = asked_of(lambda asked: "[[A]]" if asked.startswith("long") else "what?")
    assert compare_answers(first, pairs, **told) == [Preference(None)] * 2


def test_equal_prompts_are_asked_once_and_a_cache_outlives_the_judge(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(prompts: list[str]) -> list[str | None]:
        seen.extend(prompts)
        return [None if one == "silence" else one.upper() for one in prompts]

    settings = JudgeSettings(cache=str(tmp_path / "answers.db"))
    judge = JudgeModel(answer, "one", settings)
    assert judge.ask(["a", "b", "a", "silence"]) == ["A", "B", "A", None]
    assert judge.ask(["a"]) == ["A"] and seen == ["a", "b", "silence"] and judge.asked == 3
    again = JudgeModel(answer, "one", settings)
    # what has not been answered is asked again
    assert again.ask(["b", "silence", "c"]) == ["B", None, "C"]
    assert seen[3:] == ["silence", "c"]
    assert JudgeModel(answer, "other", settings).ask(["b"]) == ["B"] and seen[-1] == "b"


def test_a_cache_that_cannot_be_used_is_refused_and_a_locked_one_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 9)
    with pytest.raises(ValueError, match=r"cache .*text cannot be used \(file is not a database\)"):
        AnswerCache(str(tmp_path / "text"))
    monkeypatch.setattr("rlbook.llm.judging.answer_cache.WAIT", 0.01)
    file = tmp_path / "answers.db"
    cache = AnswerCache(str(file))
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        cache.keep({"key": "answer"})
        assert cache.find(["key", "more"]) == {"key": "answer"}
    assert AnswerCache(str(file)).find(["key"]) == {}


RUBRIC: dict[str, dict[str, Any]] = {
    "names": {"contains": "newton", "weight": 3.0},
    "year": {"matches": r"\b1[67]\d\d\b"},
    "short": {"max_words": 6, "weight": 1.0},
    "shouts": {"contains": "!", "weight": -2.0},
}


@pytest.mark.parametrize(
    ("text", "met", "score"),
    [
        ("Newton, in 1687.", [1, 1, 1, 0], 5 / 5),
        ("Newton, in 1687!", [1, 1, 1, 1], (5 - 2) / 5),
        ("It was Isaac Newton, a long time ago.", [1, 0, 0, 0], 3 / 5),
        ("Long ago, as everybody in here knows!", [0, 0, 0, 1], 0.0),
    ],
)
def test_a_rubric_adds_points_and_takes_off_for_faults(
    text: str, met: list[float], score: float
) -> None:
    total, named = Rewards({"rubric": {"criteria": RUBRIC}})([wrote(text)])
    assert total == near([score], terms=4)
    assert [named[f"reward/rubric/{name}"][0] for name in RUBRIC] == met


def test_a_rubric_may_stand_in_the_row() -> None:
    rows = [
        wrote("Newton", rubric={"right": {"contains": "newton"}}),
        wrote("Newton", rubric={"right": {"contains": "leibniz"}, "said": {"min_words": 1}}),
    ]
    assert Rewards("rubric")(rows)[0].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"rubric": {"criteria": {}}}, "criteria of a rubric must be names with a test"),
        (
            {"rubric": {"criteria": {"a": {"contain": "x"}}}},
            "the test of criterion 'a' must be one of .*, got 'contain'",
        ),
        (
            {"rubric": {"criteria": {"a": {"contains": "x", "max_words": 3}}}},
            "criterion 'a' must have one test",
        ),
        ({"rubric": {"criteria": {"a": {"max_words": 0}}}}, "max_words of criterion 'a' must be"),
        ({"rubric": {"criteria": {"a": {"matches": "("}}}}, "must be a regular expression"),
        (
            {"rubric": {"criteria": {"a": {"contains": "x", "weight": -1}}}},
            "needs a criterion with a weight above 0",
        ),
        ({"rubric": {"criteria": {"a": {"ask": "x"}}}}, "reward 'rubric' needs a judge: server"),
        ("judge", "reward 'judge' needs a judge: server, .* got neither"),
        (
            {"judge": {"server": "http://x/v1", "folder": "y"}},
            "needs a judge: .* got server and folder",
        ),
        ({"judge": {"server": "localhost"}}, "server of reward 'judge' must be a URL such as"),
        (
            {"judge": {"server": "http://x/v1", "mode": "scores"}},
            "mode of reward 'judge' must be one of .*, got 'scores'",
        ),
        ({"judge": {"server": "http://x/v1", "scale": [3, 3]}}, "must rise, got 3 and 3"),
        ("reward_model", "reward 'reward_model' needs the option 'folder'"),
        ({"reward_model": {"folder": "nowhere"}}, "must be a Hugging Face folder"),
        ({"exact": {"where": "sums"}}, "where of reward 'exact' must be a mapping, got 'sums'"),
    ],
)
def test_bad_options_are_one_sentence(asked: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        Rewards(asked)
    assert "\n" not in str(refused.value)


def test_a_reward_may_be_for_some_prompts_alone() -> None:
    """Each says what it says of its own prompts, and nothing of the others."""
    rewards = Rewards(
        {
            "exact": {"where": {"task": "sums"}},
            "long": {
                "function": lambda c: float(len(c.text)),
                "weight": 0.1,
                "where": {"task": ["words", "copies"]},
            },
        }
    )
    rows = [wrote("46", "46", task=task) for task in ("sums", "words", "copies", "other")]
    total, named = rewards(rows)
    assert total == near([1.0, 0.2, 0.2, 0.0], terms=2)
    np.testing.assert_array_equal(named["reward/exact"], [1.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(named["reward/long"], [np.nan, 2.0, 2.0, np.nan])


@pytest.mark.parametrize(
    ("written", "right", "em", "f1"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0, 1.0),
        ("in the Eiffel Tower", "Eiffel Tower", 0.0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("Paris", "London", 0.0, 0.0),
        # one "a" is an article; of the two "to"s of one and the three of the other two are common
        ("to be to a", "to to to", 0.0, 2 * (2 / 3) * (2 / 3) / (2 / 3 + 2 / 3)),
        ("", "", 1.0, 1.0),
        ("the", "", 1.0, 1.0),
        ("Paris", "", 0.0, 0.0),
    ],
)
def test_squads_measures_by_hand(written: str, right: str, em: float, f1: float) -> None:
    assert exact_match(written, right) == em and word_f1(written, right) == near(f1, terms=4)
    total, named = Rewards(["squad_em", "squad_f1"])([wrote(written, right)])
    assert named["reward/squad_em"][0] == em and total[0] == near(em + f1, terms=4)


def test_the_best_of_several_right_answers_counts() -> None:
    rows = [
        wrote("<think>no</think>in 1687", answers={"text": ["1687", "in 1687"]}),
        wrote("1687", answers=["the year 1687"]),
        wrote("cannot be decoded", answers=[]),  # SQuAD 2.0: there is none
        wrote("", answers=[]),
        wrote("x"),
    ]
    _, named = Rewards(["squad_em", "squad_f1"])(rows)
    np.testing.assert_array_equal(named["reward/squad_em"], [1.0, 0.0, 0.0, 1.0, np.nan])
    assert named["reward/squad_f1"][1] == near(2 * 1 * 0.5 / 1.5, terms=4)


@pytest.mark.parametrize(
    ("text", "quotes", "value"),
    [
        ("Isaac Newton", False, 1.0),
        ("the isaac newton.", False, 1.0),
        ("Newton Isaac", False, 0.0),
        ("saac New", False, 0.0),  # half words stand nowhere
        ("", False, 0.0),
        ('It says "Isaac Newton" and "an apple fell on him".', True, 1 / 2),
        ("It says nothing.", True, 0.0),
    ],
)
def test_an_answer_stands_in_its_passage_or_not(text: str, quotes: bool, value: float) -> None:
    passage = "The book was written by Isaac Newton, in Latin."
    asked = {"grounding": {"quotes": quotes}}
    assert Rewards(asked)([wrote(text, context=passage)])[0].tolist() == [value]
    assert Rewards(asked)([wrote(text)])[0].tolist() == [0.0]
    assert normalize_answer(" An  apple, a day! ") == "apple day"
