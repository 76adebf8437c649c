"""The rules of the token environment for N rows at once: resets, tokens and terminations. Shared by
the single and the vector form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils.seeding import np_random

from rlbook.checks import check, non_negative_int, optional, positive_int
from rlbook.data.schemas import Example, Message
from rlbook.envs.tabular.snapshots import check_array
from rlbook.interaction.round_rewards import Scored
from rlbook.llm.rewards import Asked, Completion, Rewards, print_samples
from rlbook.llm.tasks.task import Task
from rlbook.llm.tokenizers.batches import pad
from rlbook.llm.tokenizers.tokenizer import Codec, character_codec, folder_codec
from rlbook.llm.tokenizers.trained_codec import TokenizerChoice, file_codec, trained_codec

NEW = "new"
"""In place of a model's folder: the built-in small model with random weights."""
BUILT_IN = "the built-in model"
"""The name in messages of a model without a folder."""


class TokenRules:
    """The immutable settings of an environment: prompts as ids, the reward, the limits.

    Attributes:
        prompts: int64 [P, longest prompt], filled up with PAD to the right; `prompt_lengths` [P]
            says where each ends.
        context_length: L, the longest prompt plus `max_new_tokens`, in tokens.
    """

    stop: tuple[str, ...] = ()
    """Texts that end a completion."""
    longest_at: str = ""
    """The location of the longest prompt of a data set, for error messages."""
    choice: TokenizerChoice
    codec: Codec

    def __init__(
        self,
        task: Task,
        *,
        split: str,
        reward: Asked,
        model: str | None,
        max_new_tokens: int | None,
        tokenizer: str | None = None,
        vocab_size: int | None = None,
        num_examine: int = 0,
        allow_import: bool = False,
    ) -> None:
        check("num_examine", num_examine, non_negative_int)
        self.num_examine = num_examine
        self.rewards = Rewards(reward, allow_import=allow_import)
        check("max_new_tokens", max_new_tokens, optional(positive_int))
        self.task, self.split = task, split
        self.texts = task.prompts(split)
        built_in = model is None or model == NEW
        self.choice = TokenizerChoice(tokenizer, vocab_size)
        if built_in:
            self.codec = task_codec(task, self.choice)
        else:
            self.choice.check_model(str(model))
            self.codec = folder_codec(str(model))
        known = (_load_known if task.shared else _load_known.__wrapped__)(task, split, self.codec)
        self.answers, self.columns = known.answers, known.columns
        self.demonstrations = known.demonstrations
        if not built_in:
            self._decode_by_tokenizer(str(model))
        # room for the longest demonstration, its EOS, and one token too many: running over the end
        # is then a state like any other
        self.max_new_tokens = max_new_tokens or known.longest_demonstration + 1
        self.prompts, self.prompt_lengths = known.prompts, known.prompt_lengths
        self.context_length = known.longest_prompt + self.max_new_tokens
        check_room(model or BUILT_IN, self.codec.limit, known.longest_prompt, self.max_new_tokens)
        self.observed_vocabulary = max(self.codec.vocabulary_size, self.codec.pad + 1)

    def _decode_by_tokenizer(self, model: str) -> None:
        """Passes the answers through the folder's tokenizer and back, because some decoders add
        spaces."""
        texts = self.texts, self.answers, self.demonstrations
        strange, self.answers = _round_trip(self.codec, *texts)
        if strange is not None:
            raise ValueError(f"model: the tokenizer in {model!r} must have tokens for {strange!r}")

    @property
    def digests(self) -> dict[str, str]:
        """Argument → the sha256 of the content that it refers to, if that may change."""
        chosen = self.chosen_tokenizer
        return {} if chosen is None else {"env.tokenizer": hashlib.sha256(chosen).hexdigest()}

    @property
    def chosen_tokenizer(self) -> bytes | None:
        """The tokenizer.json of the tokenizer that was asked for; None if none was."""
        return None if self.choice.name is None else self.codec.backend.to_str().encode()

    def describe_prompts(self) -> str:
        """How many prompts there are, and where they come from, for a report."""
        shown = self.split.replace("held_out", "held-out").replace("train", "training")
        return f"{len(self.texts)} {shown} prompts of the task {self.task.name}"

    def location(self, prompt: int) -> str:
        """The source of a prompt, for error messages."""
        return f"example {prompt + 1}"

    def describe_missing_answer(self, prompt: int) -> str:
        """Which example has no answer to learn from."""
        return f"{self.location(prompt)} has no answer"

    def prompt_ids(self, index: int) -> np.ndarray:
        """The ids of prompt `index`: int64 [L]."""
        return self.prompts[index, : self.prompt_lengths[index]]

    def prompt_of(self, seed: int) -> int:
        """The prompt that a reset with this seed begins: in training the first draw of its
        generator, else the held-out prompts in turn."""
        count = len(self.texts)
        if self.split == "train":
            return int(np_random(seed)[0].integers(count))
        return seed % count

    def is_stopped(self, ids: np.ndarray) -> bool:
        """Whether an unfinished completion (ids) contains a stop string."""
        return False

    def example(self, index: int) -> tuple[Example, list[Message]]:
        """The metadata of prompt `index`, and the prompt as a chat."""
        text = self.texts[index]
        return Example(text, self.answers[index], self.columns[index]), [
            {"role": "user", "content": text}
        ]

    def to_completion(self, prompt: int, ids: np.ndarray) -> Completion:
        """A finished completion (ids, including EOS if it was generated) as rewards receive it."""
        written = ids.tolist()
        ended = bool(written) and written[-1] in self.codec.ends
        text = self.codec.decode(written[:-1] if ended else written).strip()
        judge = partial(self.task.score, self.texts[prompt])
        facts = self.columns[prompt], None, written, judge, self.max_new_tokens, self.codec.special
        return Completion(self.texts[prompt], self.answers[prompt], text, ended, *facts)


def check_room(
    model: str, limit: int, prompt: int, new_tokens: int, *, at: str = "", ways: str = ""
) -> None:
    """Checks that a model's context has room for every prompt and its completion.

    Args:
        model: what messages call it.
        limit: its context, in tokens.
        prompt: tokens of the longest prompt.
        new_tokens: tokens that a completion may have, the option max_new_tokens.
        at: where that prompt stands.
        ways: what the user may do besides.

    Raises:
        ValueError: it is too short; the sentence names the option and the value that fits.
    """
    if prompt + new_tokens <= limit:
        return
    room = limit - prompt
    fits = f"give max_new_tokens {room} or less" if room > 0 else "no completion fits"
    raise ValueError(
        f"model: {model if model == BUILT_IN else repr(model)} reads {limit} tokens, and a prompt and its completion need"
        f" {prompt + new_tokens} (a prompt has up to {prompt}, {f'that of {at}, ' if at else ''}and"
        f" max_new_tokens is {new_tokens});"
        f" {fits}{ways}"
    )


def task_codec(task: Task, choice: TokenizerChoice) -> Codec:
    """The codec of a task for the built-in model: one token per character, or the chosen
    tokenizer."""
    if choice.name is None:
        return character_codec(task.characters, task.words)
    if not choice.is_trained:
        return file_codec(choice.name)
    splits = {"train": task.train, "held_out": task.held_out}
    shown = (prompt for split in choice.splits for prompt in splits[split])
    texts = tuple(text for prompt in shown for text in (prompt, task.demonstration(prompt)))
    return _trained_codec(choice, texts, task.characters, task.words)


@lru_cache(maxsize=16)
def _trained_codec(
    choice: TokenizerChoice, texts: tuple[str, ...], characters: str, words: tuple[str, ...]
) -> Codec:
    """Trains a tokenizer once for equal texts, for any number of environments."""
    return trained_codec(choice, texts, characters=characters, words=words)


class _TaskData(NamedTuple):
    """Data derived from a task, a split and a tokenizer: P prompts, and the task's metadata for
    each."""

    answers: tuple[str, ...]
    columns: tuple[Mapping[str, object], ...]
    demonstrations: tuple[str, ...]
    prompts: np.ndarray  # [P, longest prompt of the split], read-only
    prompt_lengths: np.ndarray  # [P], read-only
    longest_prompt: (
        int  # tokens, of both splits, so that training and evaluation have one observation space
    )
    longest_demonstration: int  # tokens with EOS, of both splits


@lru_cache(maxsize=16)
def _load_known(task: Task, split: str, codec: Codec) -> _TaskData:
    """Computes this data once per shared task, for any number of environments; it is immutable.

    Raises:
        ValueError: a character without a token.
    """
    texts = task.prompts(split)
    answers, demonstrations = tuple(map(task.answer, texts)), tuple(map(task.demonstration, texts))
    codec.check_answers([*answers, *demonstrations])
    ids = {name: _prompt_ids(codec, task.prompts(name)) for name in ("train", "held_out")}
    prompts, lengths = (
        pad_rows(ids[split], codec.pad),
        np.array([len(row) for row in ids[split]], dtype=np.int64),
    )
    prompts.flags.writeable = lengths.flags.writeable = False
    longest = _longest_demonstration if task.shared else _longest_demonstration.__wrapped__
    return _TaskData(
        answers,
        tuple(map(task.columns, texts)),
        demonstrations,
        prompts,
        lengths,
        max(len(row) for rows in ids.values() for row in rows),
        longest(task, codec),
    )


@lru_cache(maxsize=16)
def _longest_demonstration(task: Task, codec: Codec) -> int:
    return codec.longest_answer(map(task.demonstration, (*task.train, *task.held_out)))


@lru_cache(maxsize=16)
def _prompt_ids(codec: Codec, texts: tuple[str, ...]) -> list[list[int]]:
    """The ids of each prompt. Equal texts are encoded once, for any number of environments."""
    return codec.encode_prompts(texts)


@lru_cache(maxsize=16)
def _round_trip(
    codec: Codec, texts: tuple[str, ...], answers: tuple[str, ...], demonstrations: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """The first of these texts that has a character without a token; and the answers after encoding
    and decoding, none if there is such a text."""
    for text in (*texts, *answers, *demonstrations):
        if not codec.writes(text):
            return text, ()
    decoded = (codec.decode(codec.encode_answer(answer)[:-1]).strip() for answer in answers)
    return None, tuple(decoded)


class TokenRows:
    """N completions in progress. A row that has ended ignores its token until it is reset."""

    def __init__(self, rules: TokenRules, rows: int) -> None:
        self.rules = rules
        self.tokens = np.full((rows, rules.context_length), rules.codec.pad, dtype=np.int64)
        self.lengths = np.zeros(rows, dtype=np.int64)
        self.prompt = np.arange(rows, dtype=np.int64) - rows
        self.terminated = np.zeros(rows, dtype=bool)
        self.truncated = np.zeros(rows, dtype=bool)
        self.deferred = False
        """Whether rewards wait until `score` is called; otherwise a completion is scored at its last
        token."""
        self.named: dict[str, np.ndarray] = {}
        """Name → [N], what each reward of several said at the last token; NaN where it said
        nothing."""

    def start(self, row: int, prompt: int) -> None:
        """Starts prompt number `prompt` in a row."""
        length = int(self.rules.prompt_lengths[prompt])
        self.tokens[row] = self.rules.codec.pad
        self.tokens[row, :length] = self.rules.prompt_ids(prompt)
        self.lengths[row], self.prompt[row] = length, prompt
        self.terminated[row] = self.truncated[row] = False

    def pick(
        self, row: int, *, index: int | None, seed: int | None, rng: np.random.Generator
    ) -> int:
        """The prompt for a reset: the requested one; else a random one in training, or the next in
        order on held-out prompts."""
        count = len(self.rules.texts)
        if index is not None:
            if not 0 <= index < count:
                raise ValueError(
                    f"prompt_id: {index} must be from 0 to {count - 1}, the prompts of split"
                    f" {self.rules.split!r}"
                )
            return index
        if self.rules.split == "train":
            return int(rng.integers(count))
        if seed is not None:
            return self.rules.prompt_of(seed)
        return int(self.prompt[row] + len(self.lengths)) % count

    def write(self, action: np.ndarray) -> np.ndarray:
        """Appends a token to every row that has not ended. Returns the rewards [N], float64."""
        codec = self.rules.codec
        if (
            action.shape != self.lengths.shape
            or ((action < 0) | (action >= codec.vocabulary_size)).any()
        ):
            raise ValueError(
                f"action {action.tolist()} must be {len(self.lengths)} token ids from 0 to "
                f"{codec.vocabulary_size - 1}"
            )
        live = (~(self.terminated | self.truncated)).nonzero()[0]
        self.tokens[live, self.lengths[live]] = action[live]
        self.lengths[live] += 1
        ended = (
            action[live] == codec.ends[0]
            if len(codec.ends) == 1
            else np.isin(action[live], codec.ends)
        )
        for place in np.flatnonzero(~ended) if self.rules.stop else ():
            ended[place] = self.rules.is_stopped(self.completion(live[place]))
        full = (
            self.lengths[live] - self.rules.prompt_lengths[self.prompt[live]]
            >= self.rules.max_new_tokens
        )
        self.terminated[live], self.truncated[live] = ended, full & ~ended
        if self.deferred or not (over := live[ended | full]).size:
            self.named = {}
            return np.zeros(len(self.lengths))
        reward, self.named = self.score(over)
        return reward

    def score(self, done: np.ndarray) -> Scored:
        """The rewards [N] of the finished completions in the rows `done` [K], in one call, and 0 in
        the others; and the parts of a reward that has several, NaN in the others."""
        prompts, lengths = self.prompt[done].tolist(), self.lengths[done].tolist()
        starts = self.rules.prompt_lengths[self.prompt[done]].tolist()
        finished = [
            self.rules.to_completion(prompt, self.tokens[row, start:end])
            for row, prompt, start, end in zip(done, prompts, starts, lengths, strict=True)
        ]
        found, parts = self.rules.rewards(finished)
        if self.rules.num_examine:
            some = {"count": self.rules.num_examine, "split": self.rules.split}
            print_samples(finished, found, parts, **some)
        if len(done) == len(self.lengths):
            return found, parts
        reward, named = np.zeros(len(self.lengths)), {}
        reward[done] = found
        for name, values in parts.items():
            named[name] = np.full(len(reward), np.nan)
            named[name][done] = values
        return reward, named

    def completion(self, row: int) -> np.ndarray:
        """The ids generated so far in a row."""
        return self.tokens[row, self.rules.prompt_lengths[self.prompt[row]] : self.lengths[row]]

    def text(self, row: int) -> str:
        """The prompt and the completion as readable text."""
        start = int(self.rules.prompt_lengths[self.prompt[row]]) if self.lengths[row] else 0
        return self.rules.texts[self.prompt[row]] + self.rules.codec.decode(
            self.tokens[row, start : self.lengths[row]]
        )

    def state(self) -> dict[str, Any]:
        """The state as plain arrays, for `set_state`."""
        return {
            "tokens": self.tokens.copy(),
            "lengths": self.lengths.copy(),
            "prompt": self.prompt.copy(),
            "terminated": self.terminated.copy(),
            "truncated": self.truncated.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        width, largest = self.tokens.shape[1], self.rules.observed_vocabulary - 1
        prompts = (-len(self.prompt), len(self.rules.texts) - 1)  # below 0: not started
        ranges = {"tokens": (0, largest), "lengths": (0, width), "prompt": prompts}
        for name in ("tokens", "lengths", "prompt", "terminated", "truncated"):
            low, high = ranges.get(name, (-np.inf, np.inf))
            getattr(self, name)[...] = check_array(
                name, state[name], getattr(self, name), low=low, high=high
            )


def pad_rows(rows: Sequence[Sequence[int]], fill: int) -> np.ndarray:
    """Ragged lists of ids as one int64 array, padded on the right."""
    return pad(rows, fill)[0]
