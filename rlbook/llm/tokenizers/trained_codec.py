"""Tokenizers trained on the texts of a task or a data set, and those in a tokenizer.json.

    texts → words with their counts → `train_words` or `train_bpe` → a `tokenizers.Tokenizer`

What is learned is this package's plain code; the encoding is that of `tokenizers`, whose file loads
in transformers. Every kind gives back the text that it was given, decode(encode(text)) == text,
except for words that a word vocabulary lacks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from rlbook.checks import at_least, check, did_you_mean, optional
from rlbook.llm.models.model_folder import read_json
from rlbook.llm.tokenizers.bpe import byte_characters, train_bpe
from rlbook.llm.tokenizers.tokenizer import (
    BOS,
    CHAT_TEMPLATE,
    EOS,
    PAD,
    UNKNOWN,
    Codec,
    character_backend,
    character_chat,
    first_line,
    remove_words,
)
from rlbook.llm.tokenizers.word import PIECES, train_words

KINDS = ("character", "word", "bpe", "bytelevel")
SPECIAL = (PAD, BOS, EOS, UNKNOWN)
DEFAULT_SIZE = 512
"""The default size of a BPE vocabulary."""
FILE = "tokenizer.json"
# GPT-2's: letters or digits or punctuation marks with the blank before them; or blanks
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class TokenizerChoice:
    """The arguments of a token environment that determine its tokens.

    Args:
        name: None for one token a character; one of `KINDS`, trained on the environment's texts; a
            tokenizer.json; or a folder with one, such as that of a run.
        vocabulary_size: V, for "word" (None: all words), "bpe" and "bytelevel" (None: 512). The
            vocabulary is smaller where the texts have no more words or pairs.

    Raises:
        ValueError: no such tokenizer, or a size that has no effect; one sentence.
    """

    name: str | None = None
    vocabulary_size: int | None = None

    def __post_init__(self) -> None:
        check("vocab_size", self.vocabulary_size, optional(at_least(1)))
        if self.name is not None and not self.is_trained:
            _check_file(self.name)
        if self.vocabulary_size is not None and self.name not in KINDS[1:]:
            given = "without a tokenizer" if self.name is None else f"on tokenizer {self.name!r}"
            raise ValueError(
                f"vocab_size {self.vocabulary_size} has no effect {given}; it is for tokenizer"
                " 'word', 'bpe' or 'bytelevel'"
            )

    @property
    def is_trained(self) -> bool:
        """Whether the tokens are learned from the environment's texts."""
        return self.name in KINDS

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits on whose texts the tokenizer is trained: only the training split; for words
        both, because an answer with an unknown word could never be generated."""
        return ("train", "held_out") if self.name == "word" else ("train",)

    @property
    def file(self) -> str | None:
        """The path of the tokenizer.json that was named; None if none was."""
        return None if self.name is None or self.is_trained else str(_file_of(self.name))

    def check_model(self, folder: str) -> None:
        """Raises ValueError if a tokenizer is chosen along with a language model's folder, which
        has its own."""
        if self.name is not None:
            raise ValueError(
                f"tokenizer {self.name!r} is for the built-in model, and the model {folder!r} "
                "brings its own; give only one of them"
            )


def _check_file(name: object) -> None:
    if not isinstance(name, str) or not _file_of(name).is_file():
        hint = did_you_mean(name, KINDS)
        raise ValueError(
            f"tokenizer must be one of {', '.join(KINDS)}, or a {FILE} or a folder with one, got"
            f" {name!r}{hint}"
        )


def _file_of(name: str) -> Path:
    return Path(name) / FILE if Path(name).is_dir() else Path(name)


def trained_codec(
    choice: TokenizerChoice,
    texts: Iterable[str],
    *,
    characters: str = "",
    words: tuple[str, ...] = (),
) -> Codec:
    """The codec of a tokenizer trained on these texts, or loaded from a file.

    Args:
        choice: with a name.
        texts: read where the tokens are learned.
        characters: have a token each even if the texts lack them.
        words: are one token each, whatever the kind.

    Raises:
        ValueError: the size is too small for these characters, or the file cannot be used.
    """
    assert choice.name is not None
    if not choice.is_trained:
        return file_codec(choice.name)
    return codec_of_backend(
        train_tokenizer(
            choice.name, texts, choice.vocabulary_size, characters=characters, words=words
        )
    )


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    vocabulary_size: int | None = None,
    *,
    characters: str = "",
    words: tuple[str, ...] = (),
) -> Tokenizer:
    """A tokenizer trained on texts: PAD, BOS, EOS and UNKNOWN, then `words`, then the tokens of
    `kind`. It puts BOS before a text. Arguments and errors are those of `trained_codec`.

    * "character": each character.
    * "word": the most frequent words, blanks and punctuation marks; the rest is UNKNOWN.
    * "bpe": characters, and merges of them within a word and the blank before it.
    * "bytelevel": the 256 bytes, and merges of them within the same words; knows any text.
    """
    check("vocab_size", vocabulary_size, optional(at_least(1)))
    if kind == "character":
        found = set(characters).union(*(remove_words(words, text) for text in texts))
        return character_backend("".join(sorted(found)), words)
    splitter: Any = {
        "word": pre_tokenizers.Split(Regex(PIECES), "isolated"),
        "bpe": pre_tokenizers.Split(Regex(WORDS), "isolated"),
        "bytelevel": pre_tokenizers.ByteLevel(add_prefix_space=False),
    }[kind]
    special = (*SPECIAL, *words)
    counts = _count_words(texts, splitter, special)
    if kind == "word":
        _check_size(vocabulary_size, len(special), 1 if counts else 0, "word")
        vocabulary = train_words(counts, vocabulary_size, special_tokens=special)
        model: Any = models.WordLevel(vocabulary, unk_token=UNKNOWN)
    else:
        alphabet = set(byte_characters() if kind == "bytelevel" else characters).union(*counts)
        _check_size(vocabulary_size or DEFAULT_SIZE, len(special), len(alphabet), "character")
        learned = train_bpe(
            counts,
            vocabulary_size or DEFAULT_SIZE,
            special_tokens=special,
            alphabet=alphabet,
        )
        model = models.BPE(vocab=learned.vocabulary, merges=learned.merges, unk_token=UNKNOWN)
    made: Any = Tokenizer(model)
    made.pre_tokenizer = splitter
    made.decoder = decoders.ByteLevel() if kind == "bytelevel" else decoders.Fuse()
    made.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, SPECIAL.index(BOS))]
    )
    made.add_special_tokens(list(SPECIAL))
    made.add_tokens([AddedToken(word, normalized=False) for word in words])
    return made


def _count_words(texts: Iterable[str], splitter: Any, special: Sequence[str]) -> Counter[str]:
    """How often each piece of a pre-tokenizer occurs in the texts, outside special tokens: encoding
    splits off special tokens first, so a merge within them could never be used. (`tokenizers`
    counts them as words.)"""
    counts: Counter[str] = Counter()
    between = re.compile("|".join(map(re.escape, special)))
    for text in texts:
        for part in between.split(text):
            counts.update(piece for piece, _ in splitter.pre_tokenize_str(part))
    return counts


def _check_size(size: int | None, special: int, needed: int, what: str) -> None:
    if size is not None and size < special + needed:
        many = f"{needed} {what}{'s' if needed != 1 else ''}"
        raise ValueError(
            f"vocab_size must be at least {special + needed}, for {special} special tokens and"
            f" {many}, got {size}"
        )


def file_codec(name: str) -> Codec:
    """The codec of a tokenizer.json, or of a folder with one; read again when the file changes.

    Raises:
        ValueError: it cannot be read, or lacks a token that an environment needs.
    """
    _check_file(name)
    path = _file_of(name)
    status = path.stat()
    return _file_codec(path, (status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=16)
def _file_codec(path: Path, stamp: tuple[int, int]) -> Codec:
    try:
        backend = Tokenizer.from_str(json.dumps(read_json(path)))
    except Exception as error:  # `tokenizers` raises plain exceptions
        raise ValueError(
            f"tokenizer: {str(path)!r} holds none that can be read ({first_line(error)})"
        ) from error
    missing = next((token for token in SPECIAL if backend.token_to_id(token) is None), None)
    if missing is not None:
        raise ValueError(
            f"tokenizer: {str(path)!r} must have the tokens {', '.join(SPECIAL)}, as those that are"
            f" trained here have, and lacks {missing}; the folder of a language model is given as"
            " model"
        )
    backend.no_truncation()
    backend.no_padding()
    return codec_of_backend(backend)


def codec_of_backend(backend: Tokenizer) -> Codec:
    """The codec of a tokenizer with the four special tokens, including the characters that it
    knows."""
    settings = json.loads(backend.to_str())
    vocabulary, kind = settings["model"]["vocab"], settings["model"]["type"]
    pattern = ((settings["pre_tokenizer"] or {}).get("pattern") or {}).get("Regex", "")
    own = {token for token in vocabulary if token not in SPECIAL}
    known: dict[str, Any] = {}
    if kind == "WordLevel" and pattern.endswith(r"[\s\S]"):
        known = {"words": tuple(token for token in own if len(token) > 1)}
    elif kind == "WordLevel":
        known = {"unknown": backend.token_to_id(UNKNOWN)}
    elif (settings["decoder"] or {}).get("type") != "ByteLevel":
        added = (token["content"] for token in settings["added_tokens"] if not token["special"])
        known = {"words": tuple(added)}
    if "words" in known:
        known["characters"] = frozenset(token for token in own if len(token) == 1)
    return Codec(
        backend,
        backend.get_vocab_size(),
        *(int(backend.token_to_id(token)) for token in SPECIAL[:3]),  # type: ignore[arg-type]
        template=character_chat,
        template_text=CHAT_TEMPLATE,
        **known,
    )
