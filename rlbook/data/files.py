"""`rlbook.data.load`: reads a data set from a file or a folder, in any supported format, in the
form that agents learn from."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlbook.data.episodes import Episode, Episodes, Groups, Pairs
from rlbook.data.labelled import LabelledEpisodes
from rlbook.data.minari_files import data_folder, read_minari
from rlbook.data.schemas import Conversation, Message, Prompt, RowText, Schema, schema_of
from rlbook.data.text_files import ComputedItems, ItemsOnDemand, TextFile, read_rows
from rlbook.errors import RequestError

IN_MEMORY = "rlbook.data.Episodes([rlbook.data.Episode(obs, action, reward), …])"
"""How recorded episodes are given that lie in no file."""
ROOM = 16  # tokens that a chat template may put around a message


class Encoder(Protocol):
    """The tokenizer interface: turns texts into token ids. A token environment's codec implements
    it."""

    @property
    def vocabulary_size(self) -> int:
        """The number of token ids."""
        ...

    @property
    def limit(self) -> int:
        """The longest prompt plus answer, in tokens."""
        ...

    def check_length(self, tokens: int) -> None:
        """Raises ValueError for a prompt and its answer with more tokens than the limit."""
        ...

    def encode_prompt(self, prompt: str | list[Message]) -> list[int]:
        """The ids of a prompt, including the tokens that start a text."""
        ...

    def encode_answer(self, text: str) -> list[int]:
        """The ids of an answer, including the end-of-text token."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text that answers nothing, from the tokens that start a text to the
        end-of-text token."""
        ...

    def encode_conversation(self, messages: list[Message]) -> Conversation | None:
        """The ids of a whole chat, and a mask of the assistant's tokens; None if the end of a turn
        cannot be determined."""
        ...

    def check_text(self, text: str) -> None:
        """Raises ValueError if a character of `text` is not in the vocabulary."""
        ...

    def check_messages(self, messages: Sequence[Message]) -> None:
        """As `check_text`, of a chat, and raises ValueError too for an unknown role."""
        ...

    def check_answer(self, text: str) -> None:
        """As `check_text`, and raises ValueError too if a word of an answer would be written as
        unknown."""
        ...


def load(
    path: str | Path | TextFile, env: Any, *, kinds: Sequence[str] = ()
) -> Episodes | Pairs | Groups | LabelledEpisodes:
    """Loads the data set in a file or a folder.

    A Minari folder and rows with one answer each become `Episodes`, rows with a chosen and a
    rejected answer `Pairs`, rows with several `Groups`, rows with one answer that is good or bad
    `LabelledEpisodes`; see `rlbook.data.schemas` for the forms that are known. Every row is
    checked here, and encoded when it is used. Where completions have scores, these are the
    episodes' rewards, each at the last token.

    Args:
        path: a Minari folder, a file of JSON lines or with one JSON array, a parquet file, or a
            folder that `datasets` has saved; or rows that have been read.
        env: the environment that the agent was made for, adapted by `rlbook.interaction.spaces`: it
            says how observations are shown to the agent, and brings the tokens for texts.
        kinds: names of the classes that the agent learns from; with "LabelledEpisodes" among them
            a label of 1 or 0 is one, and no column like any other.

    Raises:
        RequestError: nothing that can be read, or a row that is not as it should be, with its line;
            one sentence.
    """
    encoder, counted = getattr(env.unwrapped, "codec", None), "LabelledEpisodes" in kinds
    if isinstance(path, TextFile):
        if encoder is None:
            raise RequestError(
                "data: rows of text cannot be used where observations are not text; give"
                f" {IN_MEMORY}, or a Minari data set"
            )
        return _texts(path, encoder, counted=counted)
    path = Path(path)
    if not path.exists():
        hint = "" if path.is_absolute() or path.suffix else "; nothing is downloaded"
        raise RequestError(f"data: {path} does not exist{hint}")
    folder = data_folder(path) if path.is_dir() else None
    if folder is not None:
        episodes, digest = read_minari(folder, env.adaptation, _raw_spaces(env.env))
        return Episodes(episodes, digest=digest)
    if (path / "config.yaml").is_file():
        raise RequestError(
            f"data: {path} is a run; record episodes of it, and give those: rlbook record"
            f" {shlex.quote(str(path))} --out DATA"
        )
    if encoder is None:
        raise RequestError(
            f"data: {path} is no Minari data set, which this environment needs: its observations are"
            " not text, so rows of text cannot be used"
        )
    return _texts(read_rows(path), encoder, counted=counted)


def _raw_spaces(env: Any) -> tuple[Any, Any]:
    if hasattr(env, "single_observation_space"):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _texts(
    rows: TextFile, encoder: Encoder, *, counted: bool
) -> Episodes | Pairs | Groups | LabelledEpisodes:
    if not len(rows):
        raise RequestError(f"data: {rows.path} has no rows")
    texts = EncodedTexts(rows, encoder, counted)
    texts.check()
    if texts.kind == "groups":
        return Groups(texts, digest=rows.digest)
    best = ComputedItems(len(rows), lambda index: texts[index][0])
    if texts.kind == "pairs":
        second = ComputedItems(len(rows), lambda index: texts[index][1])
        margins = ComputedItems(len(rows), lambda index: texts.text(index).margin)
        pairs = Pairs(best, second, margins=margins if texts.margins else None, digest=rows.digest)
        if texts.equal:
            pairs.notes = (
                f"{len(texts.equal):,} of {len(rows):,} pairs have the same answer as chosen and as"
                " rejected, from which no preference is learned; the first is"
                f" {rows.location(texts.equal[0])}",
            )
        return pairs
    if texts.kind == "labelled":
        labels = ComputedItems(len(rows), lambda index: texts.text(index).good)
        return LabelledEpisodes(best, labels, digest=rows.digest)
    return Episodes(best, digest=rows.digest)


class EncodedTexts(ItemsOnDemand[list[Episode]]):
    """Rows of text as episodes, one per completion; each row is read and encoded on demand."""

    def __init__(self, rows: TextFile, encoder: Encoder, counted: bool = False) -> None:
        self.rows, self.encoder, self.counted = rows, encoder, counted
        self.schema: Schema = self._locate_errors(0, lambda: schema_of(rows[0], counted=counted))
        self.kind = self.schema.kind
        self.margins = self.kind == "pairs" and "margin" in rows[0]
        self.equal: list[int] = []
        """The rows whose chosen and rejected answers are the same, once they are checked."""

    def check(self) -> None:
        """Raises RequestError at the first invalid row, with its line number."""
        tried = False
        for index in range(len(self.rows)):
            text = self.text(index)
            self._locate_errors(
                index,
                lambda text=text: [
                    self._check(text.prompt, self.encoder.check_text),
                    *(self._check(part, self.encoder.check_answer) for part in text.completions),
                ],
            )
            self._check_length(index, text)
            if self.kind == "pairs" and text.completions[0] == text.completions[1]:
                self.equal.append(index)
            if text.turns and not tried:
                tried = True  # the template, which all rows have in common
                self._conversation(index, text)

    def _check_length(self, index: int, text: RowText) -> None:
        """Raises RequestError if a row has more tokens than the model's context. A token has at
        least one byte, so short rows are not encoded."""
        most = _bytes(text.prompt) + max(map(_bytes, text.completions))
        turns = len(text.prompt) if text.turns else 0
        if most + ROOM * turns <= self.encoder.limit:
            return
        for episode in self[index]:
            tokens = len(episode.obs) + len(episode.action)
            self._locate_errors(index, lambda tokens=tokens: self.encoder.check_length(tokens))

    def _check(self, part: Prompt, check: Callable[[str], None]) -> None:
        """Raises ValueError if a text cannot be encoded, or if a token id does not exist."""
        if isinstance(part, str):
            check(part)
            return
        for item in part:
            if isinstance(item, dict):
                self.encoder.check_messages([item])
            elif item >= self.encoder.vocabulary_size:
                raise ValueError(
                    f"the token id {item} is not among the {self.encoder.vocabulary_size} of the"
                    " vocabulary"
                )

    def text(self, index: int) -> RowText:
        """What row `index` says."""
        row = self.rows[index]
        missing = [column for column in self.schema.columns if column not in row]
        if missing:
            raise RequestError(
                f"{self.rows.location(index)} lacks {missing[0]!r}, which the first row has"
            )
        found = self._locate_errors(index, lambda: schema_of(row, counted=self.counted))
        if found is not self.schema:
            if all(column in row for column in self.schema.columns):
                # may say what is wrong, such as a label that is a text
                self._locate_errors(index, lambda: self.schema.read(row))
            here, first = (", ".join(schema.columns) for schema in (found, self.schema))
            where = self.rows.location(index)
            raise RequestError(f"{where} has the form {here}, and the first row has {first}")
        if self.kind == "pairs" and not self.margins and "margin" in row:
            raise RequestError(
                f"{self.rows.location(index)} has 'margin', which the first row lacks"
            )
        return self._locate_errors(index, lambda: self.schema.read(row))

    def _locate_errors(self, index: int, read: Any) -> Any:
        try:
            return read()
        except RequestError:
            raise
        except ValueError as error:
            raise RequestError(f"{self.rows.location(index)}: {error}") from None

    def _conversation(self, index: int, text: RowText) -> Episode | None:
        """A chat with several assistant turns as one episode whose loss mask covers those turns; it
        starts at the first of them."""
        messages: list[Message] = [
            *text.prompt,
            {"role": "assistant", "content": text.completions[0]},
        ]  # type: ignore[list-item, dict-item]
        found = self._locate_errors(index, lambda: self.encoder.encode_conversation(messages))
        if found is None:
            return None
        ids, counts = np.array(found.ids, dtype=np.int64), np.array(found.counts)
        first, end = int(counts.argmax()), len(counts) - int(counts[::-1].argmax())
        return Episode(ids[:first], ids[first:end], counts=counts[first:end])

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, index: int) -> list[Episode]:
        text = self.text(index)
        if text.turns and (whole := self._conversation(index, text)) is not None:
            return [whole]
        if text.alone:
            tokens = np.array(self.encoder.encode_text(str(text.completions[0])), dtype=np.int64)
            return [Episode(tokens[:1], tokens[1:])]
        encode = self.encoder.encode_answer
        prompt = np.array(
            _ids(text.prompt) or self.encoder.encode_prompt(text.prompt),  # type: ignore[arg-type]
            dtype=np.int64,
        )
        answers = [
            np.array(_ids(answer) or encode(answer), dtype=np.int64)  # type: ignore[arg-type]
            for answer in text.completions
        ]
        if text.scores is None:
            return [Episode(prompt, answer) for answer in answers]
        return [
            Episode(prompt, answer, _reward_at_end(score, len(answer)))
            for answer, score in zip(answers, text.scores, strict=True)
        ]


def _bytes(part: Prompt) -> int:
    """The size in bytes of the prompt and its answer: an upper bound on their tokens, apart from
    those of a chat template."""
    if isinstance(part, str):
        return len(part.encode(errors="replace")) + 2  # BOS and EOS
    return sum(
        len(item["content"].encode(errors="replace")) if isinstance(item, dict) else 1
        for item in part
    )


def _ids(part: Prompt) -> list[int]:
    """The token ids of a field that is given as ids; [] for text or a chat."""
    return [item for item in part if isinstance(item, int)]


def _reward_at_end(score: float, length: int) -> np.ndarray:
    """Rewards [T] of an episode that is scored as a whole: the score at the last step, 0 before."""
    reward = np.zeros(length, dtype=np.float32)
    reward[-1] = score
    return reward
