"""The rows of a job: prompts with the columns that rewards use, answers to learn from, or pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlbook.data.episodes import Pairs
from rlbook.data.schemas import RowText, schema_of
from rlbook.data.text_files import read_rows
from rlbook.errors import RequestError
from rlbook.llm.environments.token_rows import TokenRules
from rlbook.llm.tasks import RECORDED, MixtureTask
from rlbook.llm.tokenizers.chat_codec import ChatCodec
from rlbook.llm.tokenizers.tokenizer import Codec
from rlbook.recipes.jobs.job import Job

Row = dict[str, Any]
Prompt = str | list[dict[str, str]]
"""A text, if no chat template makes the prompt, or messages."""


class AnswerRow(NamedTuple):
    """A prompt with an answer to learn from."""

    prompt: Prompt
    answer: str


class PairRow(NamedTuple):
    """A prompt with a better and a worse answer."""

    prompt: Prompt
    chosen: str
    rejected: str
    margin: float = 0.0


class LabelledRow(NamedTuple):
    """A prompt with an answer that is labelled good or bad."""

    prompt: Prompt
    answer: str
    good: bool


def prompt_of(codec: Codec, prompt: Prompt) -> Prompt:
    """A prompt in the environment's form: a text without special tokens, or messages for the chat
    template."""
    plain = isinstance(codec, ChatCodec) and codec.plain
    templated = codec.template_text is not None and not plain
    if isinstance(codec, ChatCodec):
        return codec.messages(prompt) if templated else codec.render(prompt)
    if isinstance(prompt, str):
        return prompt
    return prompt if templated else "".join(message["content"] for message in prompt)


def example_rows(rules: TokenRules) -> Iterator[Row]:
    """Each prompt of a split: `prompt`, and the columns that rewards use: `question`, `answer`,
    `data_source` and the example's own columns."""
    for index in range(len(rules.texts)):
        example, _ = rules.example(index)
        text, answer = rules.texts[index], rules.answers[index]
        own = {name: value for name, value in example.columns.items() if name != "prompt"}
        yield {
            "prompt": prompt_of(rules.codec, example.prompt),
            **own,
            "question": text,
            "answer": answer,
            "data_source": own.get("data_source", source_of(rules, text)),
        }


def source_of(rules: TokenRules, text: str) -> str:
    """The name of a prompt's task, such as "rlbook/addition"."""
    task = getattr(rules, "judge", None) or rules.task
    return RECORDED + str(task.of[text] if isinstance(task, MixtureTask) else task.name)


def answer_rows(job: Job) -> Iterator[AnswerRow]:
    """The rows for supervised learning: those of the run's data set, or else the environment's
    reference answers."""
    codec = job.rules.codec
    if job.from_rows:
        for text in _texts(job):
            yield AnswerRow(_prompt(codec, text), _answer(text, 0))
        return
    yield from reference_rows(job.rules)


def reference_rows(rules: TokenRules) -> Iterator[AnswerRow]:
    """The prompts of a split with their reference answers, steps included."""
    for index in range(len(rules.texts)):
        example, _ = rules.example(index)
        text = rules.demonstrations[index]
        if text is None:
            raise RequestError(f"{rules.location(index)} has no answer to learn from")
        yield AnswerRow(prompt_of(rules.codec, example.prompt), str(text))


def pair_rows(job: Job) -> Iterator[PairRow]:
    """The pairs of the run's data set, or those that a reward model's training makes of reference
    answers."""
    codec = job.rules.codec
    if job.from_rows:
        for text in _texts(job):
            if len(text.completions) < 2:
                raise RequestError(f"{job.request.options.data} holds no pairs of answers")
            yield PairRow(_prompt(codec, text), _answer(text, 0), _answer(text, 1), text.margin)
        return
    data: Any = job.run.data_source()
    if not isinstance(data, Pairs):
        raise RequestError(f"{job.request.algorithm} learns from no recorded pairs here")
    prompts = {tuple(job.rules.prompt_ids(i).tolist()): i for i in range(len(job.rules.texts))}
    for better, worse in zip(data.better, data.worse, strict=True):
        example, _ = job.rules.example(prompts[tuple(better.obs.tolist())])
        chosen, rejected = (_decode(codec, episode.action) for episode in (better, worse))
        yield PairRow(prompt_of(codec, example.prompt), chosen, rejected)


def labelled_rows(job: Job) -> Iterator[LabelledRow]:
    """The labelled answers of the run's data set; a pair becomes a good and a bad one."""
    codec = job.rules.codec
    for text in _texts(job):
        prompt = _prompt(codec, text)
        if len(text.completions) < 2:
            yield LabelledRow(prompt, _answer(text, 0), text.good)
            continue
        yield LabelledRow(prompt, _answer(text, 0), True)
        yield LabelledRow(prompt, _answer(text, 1), False)


def _decode(codec: Codec, action: np.ndarray) -> str:
    ids = action.tolist()
    return codec.decode(ids[:-1] if ids[-1] in codec.ends else ids)


def _texts(job: Job) -> Iterator[RowText]:
    """The rows of the run's data set, which must be one of texts."""
    path = job.request.options.data
    if not isinstance(path, str | Path):
        raise RequestError("the data of a job are a file, and this run learned from an object")
    rows = read_rows(Path(path))
    if not len(rows):
        raise RequestError(f"data: {path} has no rows")
    schema = schema_of(rows[0], counted="LabelledEpisodes" in job.request.agent.data_kinds)
    for index in range(len(rows)):
        try:
            text = schema.read(rows[index])
        except ValueError as error:
            raise RequestError(f"{rows.location(index)}: {error}") from None
        if text.alone:
            raise RequestError(
                f"data: {path} has rows of 'text' alone, for which no job can be written; give "
                "them to the other library directly"
            )
        if text.turns:
            job.fields.left_out["earlier turns"] = (
                "the assistant's earlier answers of a chat are not learned from"
            )
        yield text


def _prompt(codec: Codec, text: RowText) -> Prompt:
    prompt: Any = text.prompt
    if isinstance(prompt, list) and isinstance(prompt[0], int):
        raise RequestError("the rows hold token ids, which other libraries' rows do not support")
    return prompt_of(codec, prompt)


def _answer(text: RowText, place: int) -> str:
    answer = text.completions[place]
    if not isinstance(answer, str):
        raise RequestError("the rows hold token ids, which other libraries' rows do not support")
    return answer


def as_messages(prompt: Prompt) -> list[dict[str, str]]:
    """A prompt as messages: a text becomes a user message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes rows as JSON lines; returns their number."""
    number = 0
    with path.open("x", encoding="utf-8") as file:
        for number, row in enumerate(rows, start=1):
            try:
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            except (TypeError, ValueError) as error:
                raise RequestError(f"row {number} is not plain data ({error})") from None
    return number
