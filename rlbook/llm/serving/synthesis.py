"""Asks a server to reason about each option of multiple-choice rows, many requests at a time.

    for each row, for each of its options, unless its key is in the file already
        wait until fewer than 20 requests run
        ask why the option is right or wrong          (again after a pause, where the server is busy)
        append {"key": …, "reasoning": …} to the file

A line is appended as soon as its answer is there, so a run that is killed loses only what was being
generated, and the same command goes on where it was.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlbook.data.text_files import read_rows
from rlbook.errors import RequestError, system_reason
from rlbook.llm.judging.verdicts import fill_template
from rlbook.llm.serving.complaints import server_complaint

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PROGRESS = 50  # answers between two lines about them
LINE_START = b'{"key": "'  # of every line that is written
QUESTIONS, OPTIONS, ANSWERS = (
    ("question", "prompt"),
    ("options", "choices"),
    ("answer", "answerKey"),
)
TEMPLATE = (
    "Question: {question}\n\n{options}\n\nOption {label} is {verdict}. Explain step by step why."
)
UNKNOWN_TEMPLATE = (
    "Question: {question}\n\n{options}\n\nIs option {label} right? Reason step by step, and end"
    " with yes or no."
)
"""Used if a row states no answer."""


@dataclass(frozen=True)
class OptionTask:
    """One option of one row."""

    key: str  # of the row, a slash, and the option's label
    question: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    place: int  # of the option
    right: bool | None  # None where the row names no answer

    def prompt(self, template: str | None) -> str:
        """The prompt for the server."""
        usual = UNKNOWN_TEMPLATE if self.right is None else TEMPLATE
        lines = [f"{one}. {text}" for one, text in zip(self.labels, self.texts, strict=True)]
        fields = {
            "question": self.question,
            "options": "\n".join(lines),
            "label": self.labels[self.place],
            "option": self.texts[self.place],
            "verdict": {True: "right", False: "wrong", None: "right or wrong"}[self.right],
        }
        return fill_template(template or usual, fields)


@dataclass(frozen=True)
class SynthesisOptions:
    """The settings of the requests."""

    server: str  # its URL
    model: str | None = None  # None: the only one that it has
    concurrency: int = 20  # requests at a time
    retries: int = 6  # of a request, after a pause that doubles from half a second to eight
    max_tokens: int = 512
    temperature: float = 1.0
    seed: int = 0
    template: str | None = None
    key: str | None = None  # the API key


@dataclass
class SynthesisResult:
    """The result of a synthesis."""

    total: int  # options in the rows
    kept: int  # whose keys were in the file before
    written: int = 0
    failed: int = 0
    reason: str | None = None  # of the first failure

    @property
    def is_complete(self) -> bool:
        """Whether every option has its line."""
        return self.kept + self.written == self.total


def tasks_of(row: Mapping[str, Any], where: str) -> Iterator[OptionTask]:
    """The options of a row.

    Options are a list, {label: text}, or {"label": […], "text": […]}; the answer is a label, a
    place from 0 on, or an option's text. The row's key is its `id`, or else a digest of it.

    Raises:
        RequestError: it is not such a row; `where` says which.
    """
    question = next((row[name] for name in QUESTIONS if isinstance(row.get(name), str)), None)
    given = next((row[name] for name in OPTIONS if row.get(name)), None)
    if question is None or given is None:
        raise RequestError(f"{where}: a row must have a text 'question' and 'options'")
    if isinstance(given, Mapping) and isinstance(given.get("text"), Sequence):
        labels, texts = given.get("label") or [], given["text"]
    elif isinstance(given, Mapping):
        labels, texts = list(given), list(given.values())
    else:
        texts = given
        labels = [chr(ord("A") + place) for place in range(len(texts))] if len(texts) <= 26 else []
    if (
        len(labels) != len(texts)
        or len(set(map(str, labels))) != len(labels)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise RequestError(f"{where}: options must be texts, each with a label of its own")
    labels = [str(label) for label in labels]
    answer = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    right = _place_of(answer, labels, list(texts), where)
    content = json.dumps([question, labels, list(texts)]).encode()
    named = row.get("id")
    key = hashlib.sha256(content).hexdigest()[:16] if named is None else str(named)
    for place, label in enumerate(labels):
        known = None if right is None else place == right
        yield OptionTask(f"{key}/{label}", question, tuple(labels), tuple(texts), place, known)


def _place_of(answer: object, labels: list[str], texts: list[str], where: str) -> int | None:
    if answer is None:
        return None
    if str(answer) in labels:  # before a place: labels may be numbers from 1 on
        return labels.index(str(answer))
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(labels):
        return answer
    if str(answer) in texts:
        return texts.index(str(answer))
    raise RequestError(
        f"{where}: the answer must be one of {', '.join(labels)}, got {answer!r:.60}"
    )


def synthesize(
    rows: str | Path,
    out: str | Path,
    options: SynthesisOptions,
    tell: Callable[[str], object] = lambda line: None,
) -> SynthesisResult:
    """Requests the reasoning for every option whose key the file does not have.

    Args:
        rows: JSON Lines, a JSON array, Parquet or a `datasets` folder.
        out: JSON Lines; continued if it is there.
        options: how to ask.
        tell: is given a line about every 50 answers.

    Raises:
        RequestError: a row or a line of the file cannot be read, another process writes the file,
            or the server refuses the key or the model.
    """
    tasks: dict[str, OptionTask] = {}
    for number, row in enumerate(read_rows(Path(rows)), 1):
        where = f"{rows}, row {number}"
        for task in tasks_of(row, where):
            if tasks.setdefault(task.key, task) != task:
                same = "question" if row.get("id") is None else "'id'"
                raise RequestError(f"{where}: an earlier row has the same {same} and differs")
    is_new = not os.path.lexists(out)
    with _lock_file(Path(out)) as file:
        try:
            done = _written_keys(file, Path(out))
            left = [task for key, task in tasks.items() if key not in done]
            result = SynthesisResult(len(tasks), len(tasks) - len(left))
            if left:
                asyncio.run(_ask_all(left, file, options, result, tell))
        except RequestError:
            if is_new and not file.tell():
                os.unlink(out)
            raise
    return result


def _lock_file(path: Path) -> IO[bytes]:
    """The file, locked against other processes."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    except OSError as error:
        raise RequestError(f"{path} cannot be written ({system_reason(error)})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RequestError(f"another process writes {path}") from None
    return file


def _written_keys(file: IO[bytes], path: Path) -> set[str]:
    """The keys in the file; a partial line at its end, left by a run that was killed, is
    removed. A file that is not from here is refused, and keeps its content."""
    keys: set[str] = set()
    end, whole = 0, True
    for number, line in enumerate(file, 1):
        try:
            keys.add(json.loads(line)["key"])
        except (ValueError, TypeError, KeyError):
            if not line.endswith(b"\n") and line[: len(LINE_START)] == LINE_START[: len(line)]:
                break
            raise RequestError(
                f"{path}, line {number}: there is no JSON object with a key"
            ) from None
        end, whole = end + len(line), line.endswith(b"\n")
    file.truncate(end)
    file.seek(end)
    if end and not whole:  # a complete line, but for its end
        file.write(b"\n")
    return keys


async def _ask_all(
    tasks: Sequence[OptionTask],
    file: IO[bytes],
    options: SynthesisOptions,
    result: SynthesisResult,
    tell: Callable[[str], object],
) -> None:
    """Requests every task, at most `concurrency` at a time, and appends each answer immediately."""
    import openai

    semaphore, start, lost = asyncio.Semaphore(options.concurrency), time.monotonic(), False
    where = f"the server at {options.server}"
    async with openai.AsyncOpenAI(
        base_url=options.server,
        api_key=options.key or "none",
        max_retries=options.retries,
        timeout=600.0,
    ) as client:
        model = options.model or await _only_model(client, where)

        async def ask(task: OptionTask) -> None:
            nonlocal lost
            try:
                line = await _ask_one(client, model, task, options)
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                file.flush()
                result.written += 1
            except (
                openai.AuthenticationError,
                openai.PermissionDeniedError,
                openai.NotFoundError,
            ) as error:
                raise RequestError(server_complaint(error, where)) from None
            except openai.OpenAIError as error:
                lost = lost or isinstance(error, openai.APIConnectionError)
                result.failed += 1
                result.reason = result.reason or server_complaint(error, where)
            finally:
                semaphore.release()
            ended = result.written + result.failed
            if ended % PROGRESS == 0 or ended == len(tasks):
                rate = ended / (time.monotonic() - start)
                failed = f", {result.failed} failed" if result.failed else ""
                tell(f"{result.kept + ended} of {result.total}, {rate:.1f} a second{failed}")

        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    await semaphore.acquire()
                    if lost:  # after all its retries: what is left is for another time
                        break
                    group.create_task(ask(task))
        except* RequestError as refusals:
            raise refusals.exceptions[0] from None


async def _ask_one(
    client: AsyncOpenAI, model: str, task: OptionTask, options: SynthesisOptions
) -> dict[str, Any]:
    """The output line of one option."""
    noise = hashlib.sha256(f"{options.seed}/{task.key}".encode()).digest()
    answer = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": task.prompt(options.template)}],
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        seed=int.from_bytes(noise[:4]) >> 1,
    )
    choice = answer.choices[0]
    return {
        "key": task.key,
        "question": task.question,
        "label": task.labels[task.place],
        "option": task.texts[task.place],
        "right": task.right,
        "reasoning": choice.message.content or "",
        "finish_reason": choice.finish_reason,
        "model": model,
        "usage": None if answer.usage is None else answer.usage.model_dump(exclude_none=True),
    }


async def _only_model(client: AsyncOpenAI, where: str) -> str:
    import openai

    try:
        names = [model.id async for model in client.models.list()]
    except openai.OpenAIError as error:
        raise RequestError(server_complaint(error, where)) from None
    if len(names) != 1:
        raise RequestError(f"{where} has {len(names)} models; name one with --model (model=…)")
    return names[0]
