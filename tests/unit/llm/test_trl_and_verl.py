"""Rewards under the signatures of TRL and verl, beside what those two make of them."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from closeness import near

from rlbook.interaction.guards import BadAnswer
from rlbook.llm.rewards import Completion, Rewards, overlong, repetition, think
from rlbook.llm.rewards.score_worker import to_score


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module `theirs` of somebody else's functions."""
    made = types.ModuleType("theirs")
    sys.modules["theirs"] = made
    yield made
    del sys.modules["theirs"]


def rewards(asked: Any) -> Rewards:
    return Rewards(asked, allow_import=True)


def wrote(text: str, answer: str | None = "46", **columns: Any) -> Completion:
    return Completion("11+35=", answer, text, True, columns, ids=[7] * len(text), limit=20)


def test_a_trl_reward_gets_prompts_completions_ids_and_columns(module: types.ModuleType) -> None:
    seen: dict[str, Any] = {}

    def score(
        prompts: list[str], completions: list[str], completion_ids: list[list[int]], **columns: Any
    ) -> list[float | None]:
        seen.update(
            columns, prompts=prompts, completions=completions, completion_ids=completion_ids
        )
        return [1.0, None, math.nan]

    module.score = score  # type: ignore[attr-defined]
    three = [wrote("46", level=1), wrote("", level=2, hint="add"), wrote("4", level=3)]
    total, named = rewards({"trl:theirs:score": 2.0, "exact": 1.0})(three)
    assert (
        seen["prompts"] == ["11+35="] * 3
        and seen["completions"] == ["46", "", "4"]
        and seen["completion_ids"] == [[7, 7], [], [7]]
    )
    assert (
        seen["level"] == [1, 2, 3]
        and seen["hint"] == [None, "add", None]  # a column that the first row lacks
        and seen["answer"] == ["46"] * 3
        and seen["trainer_state"] is None
    )
    seen["log_metric"]("anything", 1.0)
    np.testing.assert_array_equal(named["reward/score"], [1.0, np.nan, np.nan])
    assert total.tolist() == [3.0, 0.0, 0.0]


def test_a_trl_reward_of_a_chat_gets_messages(module: types.ModuleType) -> None:
    async def score(prompts: Any, completions: Any, solution: Any, **_: Any) -> list[float]:
        return [
            float(
                prompt[-1]["content"] == "11+35="
                and reply[0] == {"role": "assistant", "content": right}
            )
            for prompt, reply, right in zip(prompts, completions, solution, strict=True)
        ]

    module.score = score  # type: ignore[attr-defined]
    asked = {"trl:theirs:score": {"chat": True, "columns": {"solution": "answer"}}}
    assert rewards(asked)([wrote("46"), wrote("47")])[0].tolist() == [1.0, 0.0]
    chat = Completion(
        "(a chat)", "46", "46", True, messages=[{"role": "user", "content": "11+35="}]
    )
    assert rewards({"trl:theirs:score": {"columns": {"solution": "answer"}}})([chat])[
        0
    ].tolist() == [1.0]


def test_a_verl_score_gets_the_fields_of_its_row(module: types.ModuleType) -> None:
    seen: list[dict[str, Any]] = []

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: dict[str, Any],
        bonus: float = 0.0,
    ) -> Any:
        seen.append(
            {"data_source": data_source, "ground_truth": ground_truth, "extra_info": extra_info}
        )
        right = solution_str == ground_truth
        return {"score": right + bonus, "acc": right, "pred": solution_str}

    module.compute_score = compute_score  # type: ignore[attr-defined]
    row = {
        "data_source": "sums",
        "reward_model": {"style": "rule", "ground_truth": "46"},
        "extra_info": {"index": 3},
    }
    asked = {
        "sums": {"function": "verl:theirs:compute_score", "kwargs": {"bonus": 0.5}, "weight": 2.0}
    }
    total, named = rewards(asked)([wrote("46", None, **row), wrote("47")])
    assert total.tolist() == [3.0, 1.0] and named["reward/sums"].tolist() == [1.5, 0.5]
    assert named["reward/sums/acc"].tolist() == [1.0, 0.0] and "reward/sums/pred" not in named
    assert seen[0] == {"data_source": "sums", "ground_truth": "46", "extra_info": {"index": 3}}
    assert seen[1] == {"data_source": "", "ground_truth": "46", "extra_info": {}}


def fragile(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> Any:
    return (1.0 / len(solution_str), "and more")


def at_once(
    data_sources: list[str],
    solution_strs: list[str],
    ground_truths: list[str],
    extra_infos: list[Any],
) -> list[float]:
    return [float(len(text) == max(map(len, solution_strs))) for text in solution_strs]


def alone(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> float:
    return float(solution_str == ground_truth)


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        (alone, {}, [1.0, 0.0, 0.0]),
        (at_once, {"manager": "batch"}, [0.0, 0.0, 1.0]),
        (
            fragile,
            {"manager": "concurrent"},
            [1 / 2, 0.0, 1 / 20],
        ),  # the first of a tuple; 0 for one that fails
        (
            alone,
            {"manager": "dapo", "buffer": 8, "factor": 2.0},
            [1.0, 0.0, -2.0],
        ),  # 20 tokens of 20: 8 too many, of 8, times 2
        (
            alone,
            {"manager": "dapo", "buffer": 4, "limit": 12},
            [1.0, 0.0, -3.0],
        ),  # 12 tokens over 8, of 4: not bounded
    ],
)
def test_verls_managers_differ_as_verls_do(
    module: types.ModuleType,
    function: Callable[..., Any],
    options: dict[str, Any],
    expected: list[float],
) -> None:
    module.f = function  # type: ignore[attr-defined]
    asked = {"verl:theirs:f": options} if options else ["verl:theirs:f"]
    assert rewards(asked)([wrote("46"), wrote(""), wrote("4" * 20)])[0].tolist() == expected


def test_a_slow_score_is_0_to_the_concurrent_manager(module: types.ModuleType) -> None:
    import threading

    waits = threading.Event()
    module.f = lambda *_: waits.wait(5)  # type: ignore[attr-defined]
    assert rewards({"verl:theirs:f": {"manager": "concurrent", "timeout": 0.05}})([wrote("46")])[
        0
    ].tolist() == [0.0]
    waits.set()


@pytest.mark.thorough
def test_the_prime_manager_scores_in_processes_and_ends_those_that_hang(
    module: types.ModuleType,
) -> None:
    import os

    ours = os.getpid()

    def score(source: str, text: str, truth: str, extra: dict[str, Any]) -> Any:
        if text == "loop":
            while True:  # a thread in this could not be ended
                pass
        if text == "exit":
            os._exit(3)
        if text == "fail":
            raise KeyError(text)
        if text == "dict":
            return {"score": 0.5, "acc": 1.0}
        return (float(text == truth and os.getpid() != ours), "and more")

    module.f = score  # type: ignore[attr-defined]
    found = rewards({"verl:theirs:f": {"manager": "prime", "timeout": 1.0, "jobs": 2}})
    texts = ["46", "loop", "47", "exit", "fail", "dict", "46"]
    assert found(list(map(wrote, texts)))[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0]
    # the processes that are left, and those that took the places of the ended ones, go on
    assert found([wrote("46")] * 3)[0].tolist() == [1.0] * 3


class Homesick:
    """A function that only this process can load."""

    __name__ = "homesick"

    def __reduce__(self) -> Any:
        return int, ("no number",)

    def __call__(self, *row: object) -> float:
        return 1.0


def test_a_function_that_no_process_can_load_is_no_score_of_0(module: types.ModuleType) -> None:
    module.f = Homesick()  # type: ignore[attr-defined]
    with pytest.raises(BadAnswer, match=r"a process cannot load the function \(ValueError: "):
        rewards({"verl:theirs:f": {"manager": "prime"}})([wrote("46")])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"verl:theirs:f": {"manager": "primes"}},
            (
                "reward 'f': manager must be one of 'naive', 'prime', 'batch', 'dapo',"
                " 'concurrent', got 'primes'"
            ),
        ),
        (
            {"verl:theirs:f": {"buffer": 4}},
            "buffer is the overlong buffer of the manager dapo, got 4 with the manager 'naive'",
        ),
        (
            {"verl:theirs:f": {"manager": "dapo"}},
            "buffer is the overlong buffer of the manager dapo, got None",
        ),
        ({"trl:theirs:f": {"mak": {}}}, "reward 'f' has no option 'mak'; did you mean 'make'?"),
        ({"trl:theirs:f": {"make": {"size": 3}}}, "reward 'f': TypeError"),
        (
            "trl:theirs:g",
            (
                "reward 'trl:theirs:g' cannot be imported (AttributeError: module 'theirs' has no"
                " attribute 'g')"
            ),
        ),
        ("theirs:__name__", "reward 'theirs:__name__' must be a function, got theirs"),
        ("theirs.py:f", "named without .py, from the current folder on: theirs:f"),
        ("./mine/theirs.py:f", "named without .py, from the current folder on: mine.theirs:f"),
        ("nowhere_at_all:f", "reward 'nowhere_at_all:f' cannot be imported (ModuleNotFoundError"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(
    module: types.ModuleType, asked: Any, sentence: str
) -> None:
    module.f = alone  # type: ignore[attr-defined]
    with pytest.raises(ValueError) as refusal:
        rewards(asked)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_score_that_fails_is_named(module: types.ModuleType) -> None:
    module.f = fragile  # type: ignore[attr-defined]
    with pytest.raises(
        BadAnswer, match=r"reward 'f' failed on the completion '' of '11\+35=': ZeroDivisionError"
    ):
        rewards("verl:theirs:f")([wrote("")])


def test_ours_equal_trls_own() -> None:
    pytest.importorskip("trl", reason="TRL is the peer")
    ids = [[1, 2, 3, 4], [5] * 5, [1, 2, 1, 2, 1], [9], [], list(range(20)), [3] * 17]
    texts = [
        "<think>a</think>b",
        "<think>\na\n</think>\nb",
        "<think>a",
        "a<think>b</think>",
        "<think>a<think>b</think>",
        "<think></think>",
        "<think>a</think><think>b</think>",
        "<think>a</think></think>",
        "\n<think>a</think>",
        "</think><think>",
    ]
    written = [Completion("", None, text, True, ids=row, limit=20) for text in texts for row in ids]
    peers: dict[str, tuple[dict[str, Any], Callable[[Completion], float]]] = {
        "think_format_reward": ({"chat": True}, think),
        "get_repetition_penalty_reward": (
            {"make": {"ngram_size": 2, "max_penalty": -0.5}},
            partial(repetition, n=2, factor=0.5),
        ),
        "get_soft_overlong_punishment": (
            {"make": {"max_completion_len": 18, "soft_punish_cache": 4}},
            partial(overlong, limit=18, buffer=4),
        ),
    }
    for name, (options, ours) in peers.items():
        theirs, _ = rewards({f"trl:trl.rewards:{name}": options})(written)
        assert list(theirs) == near([ours(completion) for completion in written], terms=4), name


def test_a_score_is_a_number_or_the_first_of_several_or_that_of_a_mapping() -> None:
    given: list[Any] = [
        None,
        2,
        True,
        (1.0, 3.0),
        {"score": 4.0, "acc": 0.0},
        {"score": [5.0, 6.0]},
    ]
    assert [to_score(one) for one in given] == [0.0, 2.0, 1.0, 1.0, 4.0, 5.0]
