"""Support code in an exported file of rewards: it converts TRL's and verl's arguments to
completions, and the rewards' values to the format that those expect.

This code is copied into jobs (see `rlbook.recipes.jobs.self_contained`), where it runs without
rlbook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlbook.llm.rewards.completion import Completion
from rlbook.llm.tokenizers.tokenizer import special_tokens


class ExportedReward(NamedTuple):
    """One term of the weighted sum of rewards."""

    name: str
    weight: float
    function: Callable[..., Any]
    batched: bool = False  # of many completions at once
    needs_answer: bool = False  # 0 for an example without an answer
    judged: bool = False  # or with a task that judges a text
    # (column, values): 0 for an example whose column is none of these
    where: tuple[tuple[str, tuple[object, ...]], ...] = ()


class TextRules(NamedTuple):
    """Converts token ids to text and metadata."""

    tokenizer: Any  # a tokenizers.Tokenizer
    ends: tuple[int, ...]  # the tokens that end a completion
    limit: int  # tokens that a completion may have
    # data source → a function of prompt, answer and text: 1 for a right one
    judges: Mapping[str, Callable[[str, str, str], float]]

    def completion(
        self, ids: Sequence[int], row: Mapping[str, Any], messages: Any = None
    ) -> Completion:
        """A finished completion of a row: its ids, the columns `question`, `answer` and others, and
        the prompt as a chat if it is one."""
        ids, columns = list(ids), dict(row)
        question, answer = columns.pop("question"), columns.pop("answer")
        ended = bool(ids) and ids[-1] in self.ends
        text = self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False)
        judge = self.judges.get(str(columns.get("data_source")))
        return Completion(
            question,
            answer,
            text.strip(),
            ended,
            columns,
            messages if isinstance(messages, list) else None,
            ids=ids,
            judge=None if judge is None or answer is None else partial(judge, question, answer),
            limit=self.limit,
            special=special_tokens(self.tokenizer),
        )


def reward_values(reward: ExportedReward, completions: Sequence[Completion]) -> list[float]:
    """A reward of N completions: [N], 0 where it does not apply."""
    counted = [
        all(completion.columns.get(name) in values for name, values in reward.where)
        and (
            not reward.needs_answer
            or completion.answer is not None
            or (reward.judged and completion.judge is not None)
        )
        for completion in completions
    ]
    shown = [completion for completion, counts in zip(completions, counted, strict=True) if counts]
    at_once = reward.batched and bool(shown)
    found = iter(reward.function(shown) if at_once else map(reward.function, shown))
    return [_number(next(found)) if counts else 0.0 for counts in counted]


def _number(value: object) -> float:
    """A reward's value as a number: the score of a mapping, and 0 for None."""
    value = value["score"] if isinstance(value, Mapping) else value
    return 0.0 if value is None else float(value)  # type: ignore[arg-type]


def as_trl_function(reward: ExportedReward, rules: TextRules) -> Callable[..., list[float]]:
    """The reward as TRL calls one: with lists of prompts, completions, their ids, and the columns
    of their rows."""

    def function(
        prompts: list[Any], completions: list[Any], completion_ids: list[list[int]], **columns: Any
    ) -> list[float]:
        given = {name: column for name, column in columns.items() if isinstance(column, list)}
        rows = [{name: given[name][i] for name in given} for i in range(len(prompts))]
        texts = list(map(rules.completion, completion_ids, rows, prompts))
        return reward_values(reward, texts)

    function.__name__ = reward.name
    return function


class ModelReward:
    """A reward model as TRL's reward function: the score of a prompt and its completion, at the
    last token.

    Args:
        folder: a sequence classifier of one label.
        tokenizer: the folder of the tokenizer that makes the prompts' ids.
        arguments: of its chat template.
    """

    __name__ = "model"

    def __init__(self, folder: str, tokenizer: str, arguments: Mapping[str, Any]) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self.arguments = arguments

    @torch.no_grad()
    def __call__(
        self, prompts: list[Any], completion_ids: list[list[int]], **_: object
    ) -> list[float]:
        shown = [
            [*self.prompt_ids(prompt), *ids]
            for prompt, ids in zip(prompts, completion_ids, strict=True)
        ]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(device)
        return [self.score(torch.tensor([ids], device=device)) for ids in shown]

    def prompt_ids(self, prompt: str | list[Any]) -> list[int]:
        """The ids of a text, or of a chat up to the next answer."""
        if isinstance(prompt, str):
            return self.tokenizer(prompt)["input_ids"]
        return self.tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, return_dict=True, **self.arguments
        )["input_ids"]

    def score(self, ids: torch.Tensor) -> float:
        """The score of one text, ids [1, L], in reward units."""
        hidden = self.model.base_model(input_ids=ids).last_hidden_state
        return float(self.model.score(hidden[0, -1]))


def score_for_verl(
    rewards: Sequence[ExportedReward],
    rules: TextRules,
    data_source: str,
    solution_str: str,
    ground_truth: str | None,
    extra_info: Mapping[str, Any] | None,
) -> dict[str, float]:
    """The weighted sum as verl's `score`, and each reward by its name.

    verl passes a text without its end token. One that fills the limit was cut off; any other ended.
    """
    ids = list(rules.tokenizer.encode(solution_str, add_special_tokens=False).ids)
    if len(ids) < rules.limit:
        ids.append(rules.ends[0])
    row = {**(extra_info or {}), "data_source": data_source, "answer": ground_truth}
    completion = rules.completion(ids, {"question": "", **row})
    values = {reward.name: reward_values(reward, [completion])[0] for reward in rewards}
    total = sum(reward.weight * values[reward.name] for reward in rewards)
    return {"score": total, **values}
