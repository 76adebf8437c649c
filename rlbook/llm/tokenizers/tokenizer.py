"""The token environments' vocabulary: one token per character or word of the task; and the
interface required of any tokenizer.

Token ids are the source of truth; text is a view of them (decoding and encoding again may give
other ids). PAD and EOS are two tokens: where they are one, masking the padding masks the ending
too, and a model never learns to stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from rlbook.checks import did_you_mean, shorten
from rlbook.data.schemas import ROLES, Conversation, Message
from rlbook.llm.models.model_folder import folder_digest, folder_settings, read_json
from rlbook.llm.tokenizers.assistant_tokens import conversation
from rlbook.sandbox.memory_limit import memory_limit
from rlbook.sandbox.time_limit import time_limit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
CHARACTERS = "0123456789+=abcdefghij"
"""The characters of the built-in tasks, which share a vocabulary."""
IDS = {token: index for index, token in enumerate([PAD, BOS, EOS, UNKNOWN, *CHARACTERS])}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)

# characters of a chat template, and of what one makes of a chat
TEMPLATE_LIMIT, RENDERED_LIMIT = (
    2**16,
    2**24,
)
LONGEST = 4096
"""The longest text, in tokens, for a model that states no limit, such as the built-in ones:
attention's memory grows with the square of the length."""
USUAL_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEMPLATE_SECONDS, TEMPLATE_BYTES = 5.0, 2**30  # for a chat


def character_backend(characters: str = CHARACTERS, words: tuple[str, ...] = ()) -> Tokenizer:
    """A tokenizer backend with one token per character and one for each of `words`; BOS is
    prepended."""
    ids = {
        token: index for index, token in enumerate([PAD, BOS, EOS, UNKNOWN, *characters, *words])
    }
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
    """The same vocabulary as a Hugging Face fast tokenizer (`PreTrainedTokenizerFast`), with a chat
    template."""
    return fast_tokenizer(character_backend(characters, words))


def fast_tokenizer(backend: Tokenizer) -> Any:
    """A tokenizer with the four special tokens as a Hugging Face fast tokenizer
    (`PreTrainedTokenizerFast`), with a chat template; `backend` is copied."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(backend.to_str()),
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def special_tokens(backend: Tokenizer) -> tuple[str, ...]:
    """The tokens of a backend that are no text, such as "<pad>"."""
    added = backend.get_added_tokens_decoder().values()
    return tuple(token.content for token in added if token.special)


@dataclass(frozen=True, eq=False)
class Codec:
    """Converts between text and ids, and names the special ids. Environments need nothing else of a
    tokenizer."""

    backend: Any  # a tokenizers.Tokenizer
    vocabulary_size: int  # V: how many ids a model may write
    pad: int  # fills observations to the right; never shown to a model
    bos: int | None  # begins a prompt; None where the tokenizer has none
    eos: int  # ends an episode
    # the longest text the model reads, in tokens; None where it states no limit
    context: int | None = None
    # all that it has tokens for; None where it has tokens for any text
    characters: frozenset[str] | None = None
    words: tuple[str, ...] = ()  # what is one token besides, of several characters
    # written for a word that has no token, which no answer may hold; None where no word is lost
    unknown: int | None = None
    # messages, and arguments of the chat template by name, as the text of a prompt
    template: Callable[..., str] | None = None
    template_text: str | None = None  # the chat template itself; None where the tokenizer has none
    ends: tuple[int, ...] = ()  # all that end an episode, EOS first; () is EOS alone
    # the option that sets `context`, where the user chose the sizes of the model
    context_option: str | None = None
    # id → its text, where a text is the texts of its ids; None where the tokenizer joins them
    # otherwise
    pieces: tuple[str, ...] | None = None
    special: tuple[str, ...] = ()  # the special tokens; () is those of the backend

    def __post_init__(self) -> None:
        if not self.special:
            object.__setattr__(self, "special", special_tokens(self.backend))
        if not self.ends:
            object.__setattr__(self, "ends", (self.eos,))

    @property
    def limit(self) -> int:
        """The longest text used in training, in tokens: the model's limit, or `LONGEST` without
        one."""
        return self.context or LONGEST

    def check_length(self, tokens: int) -> None:
        """Raises ValueError for a prompt and its answer with more tokens than the limit; the
        message says what sets the limit."""
        if tokens <= self.limit:
            return
        source = "its context, as its config.json has it"
        if self.context is None:
            source = "the default for models that state none, such as the built-in ones"
        elif self.context_option is not None:
            source = f"make the model with {self.context_option} {tokens} or more"
        raise ValueError(
            f"the prompt and its answer have {tokens} tokens, but the model's limit is"
            f" {self.limit}: {source}"
        )

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each prompt, including the tokens that the tokenizer prepends (BOS).

        Raises:
            ValueError: a character without a token.
        """
        self._check_texts(texts)
        return [encoding.ids for encoding in self.backend.encode_batch(list(texts))]

    def encode_prompt(self, prompt: str | list[dict[str, str]]) -> list[int]:
        """The ids of a prompt, or of a chat up to the next answer; without a template, a chat is
        the concatenation of its messages."""
        if isinstance(prompt, str):
            return self.encode_prompts([prompt])[0]
        self.check_messages(prompt)
        if self.template is None or self.template_text is None:
            return self.encode_prompts(["".join(message["content"] for message in prompt)])[0]
        return self.encode_rendered(self.template(prompt))

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a chat template's output, which has its own BOS: none is prepended."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_answer(self, text: str) -> list[int]:
        """The ids of an answer, ending with EOS. Raises ValueError if a part of it has no token."""
        self.check_answer(text)
        return [*self.backend.encode(text, add_special_tokens=False).ids, self.eos]

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text by itself, without a chat template: the tokens that the tokenizer
        prepends (BOS), those of the text, and EOS, unless the text has an end token already.

        The first id is given and not learned, as a model predicts nothing before it.
        """
        self.check_answer(text)
        ids = list(self.backend.encode(text).ids)
        return ids if ids[-1] in self.ends else [*ids, self.eos]

    def check_answer(self, text: str) -> None:
        """As `check_text`; in addition, no word of an answer may be encoded as UNKNOWN."""
        self.check_text(text)
        if self.unknown is None:
            return
        encoding = self.backend.encode(text, add_special_tokens=False)
        if self.unknown in encoding.ids:
            left, right = encoding.offsets[encoding.ids.index(self.unknown)]
            raise ValueError(
                f"the vocabulary has no token for the word {text[left:right]!r} in the answer "
                f"{text[:60]!r}, so it could never be generated; tokenizer 'bpe' and 'bytelevel' "
                "have tokens for its parts"
            )

    def check_answers(self, texts: Sequence[str]) -> None:
        """Applies `check_answer` to each answer."""
        self._check_texts(texts)
        for text in texts if self.unknown is not None else ():
            self.check_answer(text)

    def longest_answer(self, texts: Iterable[str]) -> int:
        """The largest number of tokens in one of these answers, including EOS."""
        answers = sorted(set(texts))
        encodings = self.backend.encode_batch(answers, add_special_tokens=False)
        return 1 + max(len(encoding.ids) for encoding in encodings)

    def encode_conversation(self, messages: list[Message]) -> Conversation | None:
        """The ids of a whole chat, and a mask of the assistant's tokens; None without a template,
        which defines where turns end.

        Raises:
            ValueError: a character without a token, more tokens than the limit, or a template that
                does not write turn after turn.
        """
        if self.template is None or self.template_text is None:
            return None
        self.check_messages(messages)
        return conversation(
            self.backend, self.template, self.ends, messages, check_length=self.check_length
        )

    def _check_texts(self, texts: Sequence[str]) -> None:
        """`check_text` for each; in one pass if all their characters are in the vocabulary."""
        if self.characters is None or self.characters.issuperset("".join(texts)):
            return
        for text in texts:
            self.check_text(text)

    def check_messages(self, messages: Sequence[Message]) -> None:
        """Raises ValueError for a role that is neither usual nor named by the chat template, which
        would be written as any other, and for a character that has no token."""
        for message in messages:
            role = message["role"]
            if role not in USUAL_ROLES and not re.search(
                rf"""(['"]){re.escape(role)}\1""", self.template_text or ""
            ):
                meant = ROLES.get(role)
                hint = f"; did you mean {meant!r}?" if meant else did_you_mean(role, USUAL_ROLES)
                raise ValueError(
                    f"the role of a message must be one of {', '.join(USUAL_ROLES)}, or one that"
                    f" the chat template names, got {shorten(role)}{hint}"
                )
            self.check_text(message["content"])

    def check_text(self, text: str) -> None:
        """Raises ValueError if a character of `text` has no token."""
        if self.characters is None or self.characters.issuperset(remove_words(self.words, text)):
            return
        strange = next(
            character
            for character in remove_words(self.words, text)
            if character not in self.characters
        )
        raise ValueError(
            f"the vocabulary has no token for {strange!r} in {text[:60]!r} (it has:"
            f" {''.join(sorted(self.characters))}); a model's folder brings its own vocabulary, and"
            " the environment's argument tokenizer makes one of the texts that its argument data"
            " names"
        )

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of `ids`, with special tokens visible, so that a wrong PAD in a completion can
        be seen."""
        if self.pieces is not None:  # in a tenth of the time
            return "".join([self.pieces[i] for i in ids])
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def writes(self, text: str) -> bool:
        """Whether every character of `text` has a token; some decoders insert spaces between
        tokens."""
        ids = self.backend.encode(text, add_special_tokens=False).ids
        return "".join(self.backend.decode(ids, skip_special_tokens=True).split()) == "".join(
            text.split()
        )


def same_tokens(one: Codec | None, other: Codec | None) -> bool:
    """Whether two codecs have the same ids for every text."""
    if one is None or other is None:
        return one is other
    return one.backend is other.backend or one.backend.to_str() == other.backend.to_str()


def remove_words(words: tuple[str, ...], text: str) -> str:
    """The characters of `text` that are not part of `words`."""
    for word in words:
        text = text.replace(word, "")
    return text


@lru_cache(maxsize=32)
def character_codec(characters: str = CHARACTERS, words: tuple[str, ...] = ()) -> Codec:
    """The codec with a token for each of `characters` and of `words`."""
    size = len(IDS) - len(CHARACTERS) + len(characters) + len(words)
    special = {"pad": IDS[PAD], "bos": IDS[BOS], "eos": IDS[EOS]}
    known: dict[str, Any] = {"characters": frozenset(characters), "words": words}
    chat: dict[str, Any] = {"template": character_chat, "template_text": CHAT_TEMPLATE}
    backend = character_backend(characters, words)
    pieces = tuple(str(backend.id_to_token(i)) for i in range(size))
    return Codec(backend, size, **special, **known, **chat, pieces=pieces)


def character_chat(messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
    """The output of `CHAT_TEMPLATE`: BOS, the concatenated texts, and EOS after each of the
    assistant's. There is no generation prompt."""
    return BOS + "".join(
        message["content"] + (EOS if message["role"] == "assistant" else "") for message in messages
    )


def folder_codec(folder: str | Path) -> Codec:
    """The codec of a local Hugging Face causal LM folder, the same one until a file in it changes.

    A tokenizer without a PAD of its own (or with PAD = EOS) gets one: the first id that the model
    does not know.

    Raises:
        ValueError: no folder, no fast tokenizer, or no EOS token.
    """
    folder_settings(folder)
    return _folder_codec(str(folder), folder_digest(folder, weights=False))


@lru_cache(maxsize=16)
def _folder_codec(folder: str, digest: str) -> Codec:
    from transformers import AutoTokenizer

    settings = folder_settings(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise ValueError(
            f"model: {str(folder)!r} has no tokenizer that can be read ({first_line(error)})"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"model: the tokenizer in {str(folder)!r} must be a fast one (a tokenizer.json)"
        )
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"model: the tokenizer in {str(folder)!r} must have an EOS token, which is what ends an"
            " episode"
        )
    text_settings = settings.get("text_config", settings)
    size = int(text_settings.get("vocab_size", len(tokenizer)))
    if len(tokenizer) > size:
        raise ValueError(
            f"model: the tokenizer in {str(folder)!r}, read by transformers'"
            f" {type(tokenizer).__name__}, has {len(tokenizer)} tokens and the model only {size}; it"
            f" has no row for {tokenizer.convert_ids_to_tokens(size)!r}"
            f" (resize_token_embeddings({len(tokenizer)}) adds what is missing)"
        )
    pad = tokenizer.pad_token_id
    if pad is None or pad == tokenizer.eos_token_id:
        pad = size
    context = text_settings.get("max_position_embeddings") or text_settings.get("n_positions")
    chat: dict[str, Any] = {
        "template": partial(chat_text, tokenizer),
        "template_text": _template_of(folder, tokenizer),
    }
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # a tokenizer.json may ask for both, and prompts would be cut in silence
    backend.no_padding()
    ends = _end_tokens(folder, int(tokenizer.eos_token_id), size)
    return Codec(
        backend, size, int(pad), tokenizer.bos_token_id, ends[0], context=context, ends=ends, **chat
    )


def _template_of(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> str | None:
    if tokenizer.chat_template is None:
        return None
    try:
        text = tokenizer.get_chat_template()
    except ValueError as error:  # several, of which none is the default
        raise ValueError(
            f"model: {str(folder)!r} has no chat template that can be used ({first_line(error)})"
        ) from error
    return check_template(text, f"model: the chat template in {str(folder)!r}")


def _end_tokens(folder: str | Path, eos: int, size: int) -> tuple[int, ...]:
    """The tokenizer's EOS, and the end tokens in generation_config.json, such as the end of a
    turn."""
    path = Path(folder) / "generation_config.json"
    if not path.is_file():
        return (eos,)
    try:
        settings = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"model: generation_config.json in {str(folder)!r} cannot be read ({first_line(error)})"
        ) from error
    named = settings.get("eos_token_id") if isinstance(settings, dict) else None
    listed = named if isinstance(named, list) else [eos if named is None else named]
    strange = next((item for item in listed if type(item) is not int or not 0 <= item < size), None)
    if strange is not None:
        raise ValueError(
            f"model: eos_token_id in generation_config.json of {str(folder)!r} must be token ids, got {strange!r}"[
                :300
            ]
        )
    return (eos, *dict.fromkeys(item for item in listed if item != eos))


def chat_text(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[dict[str, str]],
    *,
    add_generation_prompt: bool = True,
    **arguments: object,
) -> str:
    """The output of the tokenizer's chat template. Raises ValueError if the template raises, with
    its reason."""
    apply: Callable[..., Any] = tokenizer.apply_chat_template
    try:
        with memory_limit(TEMPLATE_BYTES), time_limit(TEMPLATE_SECONDS):
            text = apply(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt, **arguments
            )
    except TimeoutError:
        raise ValueError(
            f"the chat template takes longer than {TEMPLATE_SECONDS:g} s for these messages"
        ) from None
    except MemoryError:
        raise ValueError(
            f"the chat template takes more than {TEMPLATE_BYTES / 2**30:g} GiB for these messages"
        ) from None
    except Exception as error:  # whatever a stranger's template does
        raise ValueError(
            f"the chat template refuses these messages ({first_line(error)})"
        ) from error
    assert isinstance(text, str)
    if len(text) > RENDERED_LIMIT:
        raise ValueError(
            f"the chat template makes {len(text):,} characters of these messages, but at most "
            f"{RENDERED_LIMIT:,} are allowed"
        )
    return text


def check_template(text: str, name: str) -> str:
    """Validates a chat template: it must not be too long, and must not compute powers, which no
    time limit can interrupt."""
    if len(text) > TEMPLATE_LIMIT:
        raise ValueError(
            f"{name} has {len(text):,} characters, but a chat template may have at most "
            f"{TEMPLATE_LIMIT:,}"
        )
    if has_power(text):
        raise ValueError(f"{name} uses a power (**), which is not allowed in a chat template")
    return text


def has_power(template: str) -> bool:
    """Whether a Jinja template applies `**` as a power between two values, rather than before the
    arguments of a call."""
    from jinja2 import Environment, TemplateError

    try:
        tokens = [token for _, kind, token in Environment().lex(template) if kind != "whitespace"]
    except TemplateError:  # which whoever renders it will say
        return False
    return any(token == "**" and before not in ("(", ",") for before, token in pairwise(tokens))


def first_line(error: Exception) -> str:
    """An exception's message on one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
