"""Rewards from a model that judges with a prompt; see `rlbook.llm.judging`.

A verdict that does not come, or that cannot be read, is not a reward: the completion earns nothing
from this one, and `reward/judge/failed` counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlbook.checks import check, one_of
from rlbook.llm.judging.comparisons import Preference, compare_answers
from rlbook.llm.judging.judge_model import JudgeModel, JudgeSettings, check_judge, open_judge
from rlbook.llm.judging.verdicts import (
    SCORE_TEMPLATE,
    VERDICT_TEMPLATE,
    fill_template,
    parse_score,
    parse_verdict,
)
from rlbook.llm.rewards.completion import Completion, mark_batched

MODES = ("score", "verdict", "reference", "group")


@mark_batched
def judge(
    completions: Sequence[Completion],
    *,
    server: str | None = None,
    folder: str | None = None,
    model: str | None = None,
    mode: str = "score",
    template: str | None = None,
    scale: Sequence[float] = (1, 10),
    swap: bool = True,
    opponents: int = 1,
    after: str = "",
    max_tokens: int = 256,
    timeout: float = 60.0,
    retries: int = 4,
    jobs: int = 20,
    cache: str | None = None,
) -> list[Mapping[str, float | None]]:
    """A model's verdict on a completion, in [0, 1].

    Args:
        completions: what was written.
        server, folder, model: who is asked: a server of OpenAI's protocol (and which of its models,
            if it has several), or a model in a local folder. The API key of a server is in the
            environment variable RLBOOK_API_KEY.
        mode: score, a rating on the scale; verdict, whether it agrees with the answer, yes or no;
            reference, whether it is better than the answer, asked in both orders (1, 1/2 for a tie,
            0); group, the share of its comparisons with others of its group that it wins.
        template: the question, with {prompt}, {text} and {answer}, and {low} and {high} of the
            scale; for reference and group {first} and {second} in place of {text}.
        scale: the lowest and the highest rating.
        swap: ask for both orders of two answers; false asks once, and favours a place.
        opponents: of group, with how many others each is compared.
        after: only what follows the last place of this is judged, such as "</think>".
        max_tokens, timeout, retries, jobs, cache: see `JudgeSettings`.

    Source: the forms of a judge: Zheng et al. 2023, arXiv:2306.05685, section 3.1; a judge that
    compares with the right answer: DeepSeek-AI 2025, arXiv:2501.12948, section 2.3.3.
    """
    asked = open_judge(
        JudgeSettings(server, folder, model, max_tokens, timeout, retries, jobs, cache)
    )
    shown = [one.text.rpartition(after)[2].strip() if after else one.text for one in completions]
    if mode in ("reference", "group"):
        return _compare(asked, completions, shown, mode, template, swap, opponents)
    low, high = (float(bound) for bound in scale)
    usual = SCORE_TEMPLATE if mode == "score" else VERDICT_TEMPLATE
    named = {"low": f"{low:g}", "high": f"{high:g}"}
    said = asked.ask(
        [
            fill_template(template or usual, {**_fields(one), **named, "text": text})
            for one, text in zip(completions, shown, strict=True)
        ]
    )
    return [
        _reward(
            None
            if text is None
            else parse_score(text, low, high)
            if mode == "score"
            else parse_verdict(text)
        )
        for text in said
    ]


def check_judge_reward(options: Mapping[str, Any]) -> None:
    """Raises ValueError for options that do not go together."""
    check_judge("judge", options)
    check("mode of reward 'judge'", options.get("mode", "score"), one_of(*MODES))
    low, high = options.get("scale", (1, 10))
    if not low < high:
        raise ValueError(f"scale of reward 'judge' must rise, got {low:g} and {high:g}")


def _compare(
    judge: JudgeModel,
    completions: Sequence[Completion],
    shown: Sequence[str],
    mode: str,
    template: str | None,
    swap: bool,
    opponents: int,
) -> list[Mapping[str, float | None]]:
    """The rewards of completions that are compared with the reference answer, or with each
    other."""
    if mode == "reference":
        found = compare_answers(
            judge,
            [
                (_fields(one), text, one.answer or "")
                for one, text in zip(completions, shown, strict=True)
            ],
            template=template,
            swap=swap,
        )
        return [
            _reward(None if one.answer is None else said.value, [said])
            for one, said in zip(completions, found, strict=True)
        ]
    pairs = list(_pairs_of_groups(completions, opponents))
    told = [(_fields(completions[one]), shown[one], shown[other]) for one, other in pairs]
    found = compare_answers(judge, told, template=template, swap=swap)
    won: list[list[float]] = [[] for _ in completions]
    seen: list[list[Preference]] = [[] for _ in completions]
    for (one, other), said in zip(pairs, found, strict=True):
        for place, value in ((one, said.value), (other, said.value)):
            seen[place].append(said)
            if value is not None:
                won[place].append(value if place == one else 1.0 - value)
    return [
        _reward(float(np.mean(values)) if values else None, both)
        for values, both in zip(won, seen, strict=True)
    ]


def _pairs_of_groups(
    completions: Sequence[Completion], opponents: int
) -> Iterator[tuple[int, int]]:
    """Each completion with the next ones to the same prompt, in a circle; a pair once."""
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(completions):
        groups.setdefault(_fields(one)["prompt"], []).append(place)  # all of a chat
    for places in groups.values():
        pairs = {
            frozenset((place, places[(number + step) % len(places)]))
            for step in range(1, opponents + 1)
            for number, place in enumerate(places)
        }
        yield from sorted((min(pair), max(pair)) for pair in pairs if len(pair) == 2)


def _fields(completion: Completion) -> dict[str, str]:
    """The fields of a completion that every template may use."""
    prompt = completion.prompt
    if completion.messages is not None:
        prompt = "\n".join(str(turn["content"]) for turn in completion.messages)
    return {"prompt": prompt, "answer": completion.answer or ""}


def _reward(value: float | None, compared: Sequence[Preference] = ()) -> Mapping[str, float | None]:
    """A verdict as a reward, and what is logged beside it."""
    said: dict[str, float | None] = {"score": value, "failed": float(value is None)}
    same = [float(one.consistent) for one in compared if one.consistent is not None]
    return said | ({"consistent": float(np.mean(same))} if same else {})
