"""The settings of a chat environment: the source of its examples, how they become prompts, and what
ends a completion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.checks import (
    Kind,
    check,
    non_negative_int,
    one_of,
    open_unit_interval,
    optional,
    positive_int,
)
from rlbook.data.schemas import Example, Message, describe_columns
from rlbook.llm.environments.examples import (
    SPLITS,
    ComputedItems,
    Examples,
    Source,
    file_examples,
    function_examples,
    named_task,
    task_examples,
)
from rlbook.llm.environments.token_rows import BUILT_IN, NEW, TokenRules, check_room
from rlbook.llm.models.token_lists import PackedIds
from rlbook.llm.rewards import Asked, Completion, Rewards
from rlbook.llm.tasks import recorded_task
from rlbook.llm.tasks.task import Task
from rlbook.llm.tokenizers.chat_codec import ChatCodec, chat_codec, shots_of
from rlbook.llm.tokenizers.tokenizer import (
    CHARACTERS,
    Codec,
    character_codec,
    folder_codec,
    remove_words,
)
from rlbook.llm.tokenizers.trained_codec import TokenizerChoice, trained_codec

MAX_NEW_TOKENS = 64
"""The default length of a completion, if nothing determines the length of answers."""
COMPARISONS = ("correct", "exact", "prefix", "edit")
"""Rewards that compare with the reference answer. Evaluation counts correct ones instead."""

_text = Kind("a text", lambda value: isinstance(value, str))
_name = Kind("a text that is not empty", lambda value: isinstance(value, str) and bool(value))
_texts = Kind(
    "a text or a list of texts, none of them empty",
    lambda value: all(map(_name.allows, _as_list(value))),
)


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


@dataclass(frozen=True)
class ChatSettings:
    """The arguments of `rlbook.llm.environments.chat_env.Chat` that determine the prompts; lists
    and mappings are stored as text.
    """

    task: str | None
    function: str | Source | None
    allow_import: bool
    data: str | None
    held_out_data: str | None
    held_out: float
    model: str | None
    tokenizer: TokenizerChoice
    system: str | None
    shots: str
    template: str | None
    template_arguments: str
    end_tokens: tuple[str, ...]
    max_prompt_tokens: int | None
    overlong: str


@dataclass(frozen=True)
class Split:
    """Examples with their prompts as token ids."""

    examples: Examples
    kept: NDArray[np.int64]  # [P], which examples these are
    ids: PackedIds  # of their prompts
    lengths: NDArray[np.int64]  # [P], tokens of each

    def example(self, index: int) -> Example:
        """The example of prompt `index`."""
        return self.examples.items[int(self.kept[index])]


@dataclass(frozen=True)
class Prompts:
    """Both splits of an environment's prompts, and the codec that encoded them."""

    codec: ChatCodec
    task: Any  # a Task, or what the built-in model asks of one: name, characters and words
    # the task that judges answers, if it does more than compare with the reference
    judge: Task | None
    splits: dict[str, Split]
    max_new_tokens: int  # where nothing else is asked for

    @property
    def longest_prompt(self) -> tuple[int, str]:
        """The length of the longest prompt in either split, in tokens, and where it stands."""
        split = max(self.splits.values(), key=lambda split: int(split.lengths.max()))
        index = int(split.lengths.argmax())
        return int(split.lengths[index]), split.examples.where(int(split.kept[index]))


def prompts_of(settings: ChatSettings) -> Prompts:
    """The prompts of an environment, cached as long as the files that they come from do not
    change."""
    return _prompts_of(
        settings,
        tuple(
            _stamp(path)
            for path in (
                settings.data,
                settings.held_out_data,
                settings.model,
                settings.template,
                settings.tokenizer.file,
            )
        ),
    )


def _stamp(path: str | None) -> tuple[tuple[str, int, int], ...]:
    """A fingerprint that changes if a file, or a file in a folder, changes."""
    if path is None or not Path(path).exists():
        return ()
    files = sorted(Path(path).rglob("*")) if Path(path).is_dir() else [Path(path)]
    return tuple(
        (str(file), status.st_size, status.st_mtime_ns)
        for file in files
        for status in (file.stat(),)
    )


@lru_cache(maxsize=4)
def _prompts_of(settings: ChatSettings, stamps: object) -> Prompts:
    task = None if settings.data or settings.function else named_task(settings.task or "addition")
    splits = _examples(settings, task)
    shots, skipped = _shots(settings, splits["train"])
    text = [settings.system or "", *(message["content"] for message in shots)]
    plain, name, characters = _plain_codec(settings, task, splits, text)
    codec = chat_codec(
        plain,
        system=settings.system,
        shots=shots,
        template=settings.template,
        arguments=json.loads(settings.template_arguments),
        end_tokens=settings.end_tokens,
    )
    made = {
        split: _encode_split(settings, codec, examples, skipped if split == "train" else 0)
        for split, examples in splits.items()
    }
    longest = MAX_NEW_TOKENS
    if task is not None:
        prompts = (*task.train, *task.held_out)
        longest = codec.longest_answer(map(task.demonstration, prompts)) + 1
    known = (
        task
        if task is not None and name == task.name
        else SimpleNamespace(name=name, characters=characters, words=plain.words)
    )
    return Prompts(codec, known, task, made, longest)


def _examples(settings: ChatSettings, task: Task | None) -> dict[str, Examples]:
    if task is not None:
        return task_examples(task)
    if settings.data is not None:
        return file_examples(settings.data, settings.held_out_data, settings.held_out)
    assert settings.function is not None
    return function_examples(settings.function, allow_import=settings.allow_import)


def _shots(settings: ChatSettings, train: Examples) -> tuple[list[Message], int]:
    """The turns before each prompt, and the number of training examples used as shots and therefore
    not as prompts."""
    shots = json.loads(settings.shots)
    if not isinstance(shots, int):
        return shots, 0
    if shots >= len(train.items):
        raise ValueError(
            f"shots must be fewer than the {len(train.items)} training examples, got {shots}"
        )
    return shots_of([train.items[i] for i in range(shots)]), shots


def _plain_codec(
    settings: ChatSettings, task: Task | None, splits: dict[str, Examples], more: Sequence[str]
) -> tuple[Codec, str, str]:
    """The model's codec, the name of the task that its weights were trained for, and the characters
    in order."""
    if settings.model not in (None, NEW):
        settings.tokenizer.check_model(str(settings.model))
        return (
            folder_codec(str(settings.model)),
            "chat" if task is None else task.name,
            "" if task is None else task.characters,
        )
    words = () if task is None else task.words
    if task is not None:
        characters = task.characters
    else:
        found: set[str] = set()
        for examples in splits.values():
            for example in examples.items:
                found.update(*_contents(example), example.answer or "", *example.others)
        characters = CHARACTERS if found <= set(CHARACTERS) else "".join(sorted(found))
    extra = "".join(
        sorted(set().union(*(remove_words(words, text) for text in more)) - set(characters))
    )
    characters += extra
    if settings.tokenizer.name is None:
        codec = character_codec(characters, words)
    else:
        shown = (example for split in settings.tokenizer.splits for example in splits[split].items)
        texts = chain(more, (text for example in shown for text in _texts_of(example)))
        codec = trained_codec(settings.tokenizer, texts, characters=characters, words=words)
    return codec, "chat" if task is None or extra else task.name, characters


def _texts_of(example: Example) -> list[str]:
    """The texts of a prompt, the displayed answer, and the other completions."""
    return [*_contents(example), example.demonstration or example.answer or "", *example.others]


def _contents(example: Example) -> list[str]:
    prompt = example.prompt
    return [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]


def _encode_split(
    settings: ChatSettings, codec: ChatCodec, examples: Examples, skipped: int
) -> Split:
    """Encodes the prompts of a split, within the limit."""
    kept: list[int] = []
    ids = PackedIds(
        _filter_by_length(settings, codec, examples, range(skipped, len(examples.items)), kept)
    )
    if not kept:
        longer = (
            f"max_prompt_tokens is {settings.max_prompt_tokens}, and every prompt of a split is"
            " longer"
        )
        raise ValueError(longer if len(examples.items) else "a split has no examples")
    return Split(examples, np.array(kept, dtype=np.int64), ids, ids.lengths)


def _filter_by_length(
    settings: ChatSettings,
    codec: ChatCodec,
    examples: Examples,
    indices: Iterable[int],
    kept_indices: list[int],
) -> Iterator[Sequence[int]]:
    """Yields the ids of each prompt that is kept, and appends its index to `kept_indices`."""
    limit = settings.max_prompt_tokens or codec.limit - 1  # with a token to be written
    ways = 'overlong "left" truncates such prompts, "filter" drops them'
    named = f"max_prompt_tokens is {limit} ({ways})"
    if settings.max_prompt_tokens is None:
        named = (
            f"the model's limit is {codec.limit}, its answer included"
            f" (with max_prompt_tokens, {ways})"
        )
    for index in indices:
        try:
            example = examples.items[index]
            ids = codec.encode_prompt(example.prompt)
            if codec.unknown is not None:  # other vocabularies have tokens for all that is asked
                codec.check_answer(example.demonstration or example.answer or "")
        except ValueError as error:
            raise _located_error(examples, index, str(error)) from None
        if not ids:
            raise _located_error(examples, index, "the prompt has no tokens")
        if len(ids) > limit:
            if settings.overlong == "filter":
                continue
            if settings.overlong == "error":
                raise _located_error(
                    examples, index, f"the prompt has {len(ids)} tokens, but {named}"
                )
            ids = ids[-limit:]
        kept_indices.append(index)
        yield ids


def _located_error(examples: Examples, index: int, reason: str) -> ValueError:
    return ValueError(f"{examples.where(index)}: {reason}")


class ChatRules(TokenRules):
    """`TokenRules` for examples with messages, several end-of-text tokens and stop strings."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        split: str,
        reward: Asked,
        stop: Sequence[str],
        max_new_tokens: int | None,
        num_examine: int = 0,
    ) -> None:
        check("split", split, one_of(*SPLITS))
        check("num_examine", num_examine, non_negative_int)
        self.num_examine = num_examine
        check("max_new_tokens", max_new_tokens, optional(positive_int))
        self.rewards = Rewards(reward, allow_import=settings.allow_import)
        made = prompts_of(settings)
        self.settings, self.split, self.stop, self.task = settings, split, tuple(stop), made.task
        self.choice = settings.tokenizer
        self.judge = made.judge
        self.chat, self.examples = made.codec, made.splits[split]
        self.codec: Codec = self.chat
        self.prompt_lengths = self.examples.lengths
        self.max_new_tokens = max_new_tokens or made.max_new_tokens
        longest, where = made.longest_prompt
        if settings.max_prompt_tokens is not None:
            longest = settings.max_prompt_tokens
        elif settings.data is not None:
            self.longest_at = where
        self.context_length = longest + self.max_new_tokens
        ways = ", or max_prompt_tokens and overlong, which truncate or drop prompts"
        check_room(
            settings.model or BUILT_IN,
            self.codec.limit,
            longest,
            self.max_new_tokens,
            at=self.longest_at,
            ways=ways,
        )
        self.observed_vocabulary = max(self.codec.vocabulary_size, self.codec.pad + 1)
        count, example = len(self.prompt_lengths), self.examples.example
        self.texts = ComputedItems(count, lambda i: _contents(example(i))[-1])
        self.answers = ComputedItems(count, lambda i: example(i).answer)
        self.columns = ComputedItems(count, lambda i: example(i).columns)
        self.demonstrations = ComputedItems(
            count, lambda i: example(i).demonstration or example(i).answer
        )
        if isinstance(reward, str) and reward in COMPARISONS and example(0).answer is None:
            raise ValueError(
                f"reward {reward!r} compares with the answer, but {self.describe_missing_answer(0)}; for"
                " prompts alone name a reward that compares with none"
            )

    @property
    def digests(self) -> dict[str, str]:
        """Argument → the sha256 of the rows in its file."""
        splits = prompts_of(self.settings).splits
        files = {
            "data": (self.settings.data, "train"),
            "held_out_data": (self.settings.held_out_data, "held_out"),
        }
        return super().digests | {
            f"env.{name}": splits[split].examples.digest
            for name, (path, split) in files.items()
            if path is not None
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> ChatRules:
        return self  # nothing in it changes

    def describe_prompts(self) -> str:
        """As in `TokenRules`."""
        asked, held_out = self.settings, self.split == "held_out"
        whole = held_out and asked.held_out_data is not None
        shown = "" if whole else "held-out " if held_out else "training "
        if asked.data is not None:
            file = asked.held_out_data if whole else asked.data
            return f"{len(self.texts)} {shown}rows of {file}"
        if asked.function is not None:
            name = getattr(asked.function, "__name__", asked.function)
            return f"{len(self.texts)} {shown}prompts of the function {name}"
        return f"{len(self.texts)} {shown}prompts of the task {asked.task or 'addition'}"

    def location(self, prompt: int) -> str:
        """As in `TokenRules`."""
        return self.examples.examples.where(int(self.examples.kept[prompt]))

    def describe_missing_answer(self, prompt: int) -> str:
        """Which row has no answer, and what it has."""
        return f"{self.location(prompt)} {describe_columns(self.examples.example(prompt))}"

    def prompt_ids(self, index: int) -> NDArray[np.int64]:
        return self.examples.ids[index]

    def example(self, index: int) -> tuple[Example, list[Message]]:
        example = self.examples.example(index)
        return example, self.chat.messages(example.prompt)

    def is_stopped(self, ids: NDArray[np.int64]) -> bool:
        text = self.codec.decode(ids)
        return any(stop in text for stop in self.stop)

    def to_completion(self, prompt: int, ids: NDArray[np.int64]) -> Completion:
        """A finished completion as rewards receive it: without its end-of-text token, with its stop
        string."""
        written, example = ids.tolist(), self.examples.example(prompt)
        ended = bool(written) and written[-1] in self.codec.ends
        text = self.codec.decode(written[:-1] if ended else written)
        ended, prompt_text = (
            ended or any(stop in text for stop in self.stop),
            _contents(example)[-1],
        )
        return Completion(
            prompt_text,
            example.answer,
            text.strip(),
            ended,
            example.columns,
            self.chat.messages(example.prompt),
            ids=written,
            judge=self._judge_of(example, prompt_text),
            limit=self.max_new_tokens,
            special=self.codec.special,
        )

    def _judge_of(self, example: Example, prompt_text: str) -> Callable[[str], float] | None:
        """The function that scores a completion: the task's, or that of the task named in a
        recorded row."""
        if self.judge is not None:
            return partial(self.judge.score, prompt_text)
        task = recorded_task(example.columns.get("data_source"))
        if task is None or example.answer is None:
            return None
        return partial(task.score_recorded, prompt_text, example.answer)


def chat_settings(
    *,
    task: str | None,
    function: str | Source | None,
    allow_import: bool,
    data: str | Path | None,
    held_out_data: str | Path | None,
    held_out: float,
    model: str | None,
    tokenizer: str | None,
    vocab_size: int | None,
    system: str | None,
    shots: int | Sequence[Message],
    template: str | None,
    template_arguments: dict[str, Any] | None,
    end_tokens: str | Sequence[str],
    max_prompt_tokens: int | None,
    overlong: str,
) -> ChatSettings:
    """Validates the arguments. Raises ValueError with one sentence: what, which value, what is
    allowed."""
    named = [
        name
        for name, value in (("task", task), ("function", function), ("data", data))
        if value is not None
    ]
    if len(named) > 1:
        raise ValueError(
            f"examples come from a task, a function or data, but {' and '.join(named)} were given"
        )
    if held_out_data is not None and data is None:
        raise ValueError("held_out_data applies to examples from data, but none were given")
    data, held_out_data = _file_name("data", data), _file_name("held_out_data", held_out_data)
    for name, value in (
        ("system", system),
        ("template", template),
        ("model", model),
    ):
        check(name, value, optional(_text if name == "system" else _name))
    check("held_out", held_out, open_unit_interval)
    check("max_prompt_tokens", max_prompt_tokens, optional(positive_int))
    check("overlong", overlong, one_of("error", "left", "filter"))
    check("end_tokens", end_tokens, _texts)
    if max_prompt_tokens is None and overlong != "error":
        raise ValueError(f"overlong {overlong!r} needs max_prompt_tokens")
    if not isinstance(template_arguments or {}, dict) or not all(
        isinstance(name, str) for name in template_arguments or {}
    ):
        raise ValueError(
            "template_arguments must be a mapping such as {enable_thinking: false}, got"
            f" {template_arguments!r}"
        )
    return ChatSettings(
        task=task,
        function=function,
        allow_import=allow_import,
        data=data,
        held_out_data=held_out_data,
        held_out=held_out,
        model=model,
        tokenizer=TokenizerChoice(tokenizer, vocab_size),
        system=system,
        shots=_checked_shots(shots),
        template=template,
        template_arguments=_as_json("template_arguments", template_arguments or {}),
        end_tokens=tuple(map(str, _as_list(end_tokens))),
        max_prompt_tokens=max_prompt_tokens,
        overlong=overlong,
    )


def _file_name(name: str, value: object) -> str | None:
    """The path of a file of rows, as text."""
    if value is None or (isinstance(value, str | Path) and str(value)):
        return None if value is None else str(value)
    raise ValueError(
        f"{name} must be the path of a file or a folder of rows, got {value!r:.60}; rows in memory"
        " are written to a file first, one JSON object a line"
    )


def stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    """Validates the stop strings."""
    check("stop", stop, _texts)
    return tuple(map(str, _as_list(stop)))


def _checked_shots(shots: object) -> str:
    if isinstance(shots, list | tuple):
        for message in shots:
            if not isinstance(message, dict) or not all(
                isinstance(message.get(key), str) for key in ("role", "content")
            ):
                raise ValueError(
                    f"shots must be a number or messages with a role and a content, got {message!r}"[
                        :300
                    ]
                )
    elif type(shots) is not int or shots < 0:
        raise ValueError(
            f"shots must be a number of training examples, at least 0, or a list of messages, got {shots!r}"[
                :300
            ]
        )
    return _as_json("shots", shots)


def _as_json(name: str, value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be plain data ({error})") from None
