"""The token environments' vocabulary: one token a character of the task's or a word of its, and what an environment needs of any tokenizer.

Token ids are the source of truth; text is a view of them (decoding and encoding again may give other ids).
PAD and EOS are two tokens: where they are one, masking the padding masks the ending too, and a model never learns to stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from rlbook.llm.model_folder import folder_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
CHARACTERS = "0123456789+=abcdefghij"
"""Those of the built-in tasks, which share a vocabulary."""
IDS = {token: index for index, token in enumerate([PAD, BOS, EOS, UNKNOWN, *CHARACTERS])}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)


def character_backend(characters: str = CHARACTERS, words: tuple[str, ...] = ()) -> Tokenizer:
    """One token a character, one for each of `words`, BOS put in front."""
    ids = {token: index for index, token in enumerate([PAD, BOS, EOS, UNKNOWN, *characters, *words])}
    backend = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    pattern = "|".join([*map(re.escape, words), r"[\s\S]"])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")  # type: ignore[assignment]
    backend.decoder = decoders.Fuse()  # type: ignore[assignment]
    backend.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, IDS[BOS])]
    )
    backend.add_special_tokens([PAD, BOS, EOS, UNKNOWN])
    return backend


def character_tokenizer(characters: str = CHARACTERS, words: tuple[str, ...] = ()) -> Any:
    """The same vocabulary as a Hugging Face fast tokenizer (`PreTrainedTokenizerFast`), with a chat template."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=character_backend(characters, words), pad_token=PAD, bos_token=BOS, eos_token=EOS, unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE, clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True, eq=False)
class Codec:
    """Text ↔ ids, and the ids with a meaning of their own. The environments need no more of a tokenizer."""

    backend: Any                             # a tokenizers.Tokenizer
    vocabulary_size: int                     # V: how many ids a model may write
    pad: int                                 # fills observations to the right; never shown to a model
    bos: int | None                          # begins a prompt; None where the tokenizer has none
    eos: int                                 # ends an episode
    context: int | None = None               # the longest text the model reads, in tokens; None where it states no limit
    characters: frozenset[str] | None = None # all that it has tokens for; None where it has tokens for any text
    words: tuple[str, ...] = ()              # what is one token besides, of several characters
    template: Callable[[list[dict[str, str]]], str] | None = None    # a chat as the text of a prompt

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each prompt, with whatever the tokenizer puts in front of a text (BOS).

        Raises:
            ValueError: a character without a token.
        """
        for text in texts:
            self.check_text(text)
        return [encoding.ids for encoding in self.backend.encode_batch(list(texts))]

    def encode_prompt(self, prompt: str | list[dict[str, str]]) -> list[int]:
        """Ids of a prompt, or of a chat that waits for its next answer; without a template, a chat is its messages one after the other."""
        if isinstance(prompt, str):
            return self.encode_prompts([prompt])[0]
        if self.template is None:
            return self.encode_prompts(["".join(message["content"] for message in prompt)])[0]
        return self.backend.encode(self.template(prompt), add_special_tokens=False).ids

    def encode_answer(self, text: str) -> list[int]:
        """Ids of an answer, EOS last. Raises ValueError at a character without a token."""
        self.check_text(text)
        return [*self.backend.encode(text, add_special_tokens=False).ids, self.eos]

    def check_text(self, text: str) -> None:
        """Raises ValueError where there is no token for a character of `text`."""
        if self.characters is None or self.characters.issuperset(without(self.words, text)):
            return
        strange = next(character for character in without(self.words, text) if character not in self.characters)
        raise ValueError(f"the vocabulary has no token for {strange!r} in {text[:60]!r} (it has: {''.join(sorted(self.characters))})")

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of `ids`, special tokens visible (a PAD inside a completion is a mistake, and stays one)."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def writes(self, text: str) -> bool:
        """Whether the vocabulary has a token for every character of `text`; some decoders put spaces between tokens."""
        ids = self.backend.encode(text, add_special_tokens=False).ids
        return "".join(self.backend.decode(ids, skip_special_tokens=True).split()) == "".join(text.split())


def without(words: tuple[str, ...], text: str) -> str:
    """The characters of `text` outside of `words`."""
    for word in words:
        text = text.replace(word, "")
    return text


@lru_cache(maxsize=32)
def character_codec(characters: str = CHARACTERS, words: tuple[str, ...] = ()) -> Codec:
    """The codec with a token for each of `characters` and of `words`."""
    size = len(IDS) - len(CHARACTERS) + len(characters) + len(words)
    special = {"pad": IDS[PAD], "bos": IDS[BOS], "eos": IDS[EOS]}
    return Codec(character_backend(characters, words), size, **special, characters=frozenset(characters), words=words)


def folder_codec(folder: str | Path) -> Codec:
    """The codec of a local Hugging Face causal LM folder.

    A tokenizer without a PAD of its own (or with PAD = EOS) gets one: the first id that the model does not know.

    Raises:
        ValueError: no folder, no fast tokenizer, or no EOS token.
    """
    from transformers import AutoTokenizer

    settings = folder_settings(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ValueError(f"model: {str(folder)!r} has no tokenizer that can be read ({first_line(error)})") from error
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"model: the tokenizer in {str(folder)!r} must be a fast one (a tokenizer.json)")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"model: the tokenizer in {str(folder)!r} must have an EOS token, which is what ends an episode")
    text_settings = settings.get("text_config", settings)
    size = int(text_settings.get("vocab_size", len(tokenizer)))
    if len(tokenizer) > size:
        raise ValueError(f"model: the tokenizer in {str(folder)!r} has {len(tokenizer)} tokens and the model only {size}")
    pad = tokenizer.pad_token_id
    if pad is None or pad == tokenizer.eos_token_id:
        pad = size
    context = text_settings.get("max_position_embeddings") or text_settings.get("n_positions")
    template = None if tokenizer.chat_template is None else partial(_chat_text, tokenizer)
    special = tokenizer.bos_token_id, int(tokenizer.eos_token_id)
    return Codec(tokenizer.backend_tokenizer, size, int(pad), *special, context=context, template=template)


def _chat_text(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
