"""Chats as prompts: system text, worked examples ("shots"), the prompt, and the tokenizer's chat
template around them.

    messages = [system] + shots + the example's own
    ids      = encode(template(messages, add_generation_prompt=True), add_special_tokens=False)

The template writes BOS itself where the model wants one, so none is put in front. The ids are those
of transformers' `apply_chat_template(messages, tokenize=True, add_generation_prompt=True)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rlbook.checks import did_you_mean
from rlbook.data.schemas import Conversation, Example, Message
from rlbook.llm.tokenizers.assistant_tokens import conversation
from rlbook.llm.tokenizers.tokenizer import Codec, check_template

R1_ZERO = "r1_zero"
"""In place of a template: the prompt of DeepSeek-R1-Zero, for a base model.

Source: DeepSeek-AI 2025, arXiv:2501.12948, table 1.
"""
R1_ZERO_TEMPLATE = (
    "{{ bos_token }}A conversation between User and Assistant. The user asks a question, and the"
    " Assistant solves it. The assistant first thinks about the reasoning process in the mind and"
    " then provides the user with the answer. The reasoning process and answer are enclosed within"
    " <think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process"
    " here </think> <answer> answer here </answer>."
    "{% for message in messages %}{% if message['role'] == 'assistant' %} Assistant:"
    " {{ message['content'] }}{{ eos_token }}"
    "{% else %} User: {{ message['content'] }}.{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} Assistant:{% endif %}"
)
PLAIN = "plain"
"""In place of a template: the concatenated texts, for a model that has never seen a chat."""
_RESERVED = (
    "messages",
    "tokenize",
    "chat_template",
    "return_dict",
    "return_tensors",
    "padding",
    "truncation",
    "max_length",
)


@dataclass(frozen=True)
class ChatCodec(Codec):
    """A codec whose prompts are chats."""

    system: str | None = None  # begins every chat that brings no system text of its own
    shots: tuple[Message, ...] = ()  # turns between the system text and the prompt
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the template
    plain: bool = False  # no template

    def messages(self, prompt: str | Sequence[Message]) -> list[Message]:
        """The whole chat of a prompt, which is a user's text or messages."""
        own = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        given = own[:1] if own and own[0]["role"] == "system" else []
        if not given and self.system:
            given = [{"role": "system", "content": self.system}]
            own = given + own
        return [*own[: len(given)], *self.shots, *own[len(given) :]]

    def render(self, prompt: str | Sequence[Message]) -> str:
        """The text of a prompt, including special tokens.

        Raises:
            ValueError: the template refuses the messages, or the vocabulary lacks a character.
        """
        messages = self.messages(prompt)
        self.check_messages(messages)
        if self.plain or self.template is None:
            return "".join(message["content"] for message in messages)
        return self.template(messages, **self.arguments)

    def encode_prompt(self, prompt: str | list[Message]) -> list[int]:
        """The ids of a chat up to the assistant's next answer."""
        text = self.render(prompt)
        return self.encode_prompts([text])[0] if self.plain else self.encode_rendered(text)

    def encode_conversation(self, messages: list[Message]) -> Conversation | None:
        """As in `Codec`, after the system text and the shots, whose answers are masked out."""
        if self.plain or self.template is None:
            return None
        whole = self.messages(messages)
        self.check_messages(whole)
        template = partial(self.template, **self.arguments)
        own = len(messages) - (messages[0]["role"] == "system")
        return conversation(
            self.backend,
            template,
            self.ends,
            whole,
            first=len(whole) - own,
            check_length=self.check_length,
        )


def chat_codec(
    codec: Codec,
    *,
    system: str | None = None,
    shots: Sequence[Message] = (),
    template: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    end_tokens: Sequence[str] = (),
) -> ChatCodec:
    """A codec for chats from one for texts.

    Args:
        codec: a tokenizer's.
        system, shots: see `ChatCodec`.
        template: None for the tokenizer's own, "plain" for none, "r1_zero" for the prompt of
            DeepSeek-R1-Zero, or a file with one (Jinja).
        arguments: what the template is told, such as {"enable_thinking": False}.
        end_tokens: texts of tokens that end a completion, beside those that the folder names.

    Raises:
        ValueError: no such template, an argument that it does not use, or no such token.
    """
    text, render = codec.template_text, codec.template
    if template == PLAIN or (template is None and text is None):
        text = None
    elif template is not None:
        text = R1_ZERO_TEMPLATE if template == R1_ZERO else _read_template(template)
        if codec.characters is not None:
            raise ValueError(
                f"template must be none or {PLAIN!r} for the built-in model, got {template!r}"
            )
        assert render is not None
        render = partial(render, chat_template=text)
    given = dict(arguments or {})
    check_arguments(given, text)
    ends = list(codec.ends)
    for token in end_tokens:
        found = codec.backend.token_to_id(token)
        if found is None or found >= codec.vocabulary_size:
            raise ValueError(f"end_tokens: the tokenizer has no token {token!r}")
        ends.append(found)
    fields = vars(codec) | {
        "template": render,
        "template_text": text,
        "ends": tuple(dict.fromkeys(ends)),
    }
    return ChatCodec(
        **fields, system=system, shots=tuple(shots), arguments=given, plain=text is None
    )


def _read_template(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(2**24)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ValueError(
            f"template must be none, {PLAIN!r} or a file, and {path!r} cannot be read: {reason}"
        ) from None
    return check_template(text, f"template {path!r}")


def check_arguments(arguments: Mapping[str, Any], template: str | None) -> None:
    """Raises ValueError for an argument without effect: a template ignores those that it does not
    know."""
    for name in arguments:
        if template is None:
            raise ValueError(f"template_arguments: there is no chat template here to use {name!r}")
        names = set(
            re.findall(
                r"[A-Za-z_]\w*", " ".join(re.findall(r"\{[{%](.*?)[%}]\}", template, re.DOTALL))
            )
        )
        if name in _RESERVED or (name not in names and name != "add_generation_prompt"):
            hint = did_you_mean(name, names - {*_RESERVED})
            raise ValueError(f"template_arguments: the chat template does not use {name!r}{hint}")


def shots_of(examples: Sequence[Example]) -> list[Message]:
    """Examples with their answers, as turns of a chat."""
    turns: list[Message] = []
    for number, example in enumerate(examples, start=1):
        if example.answer is None:
            raise ValueError(f"shots must have answers, but example {number} has none")
        own = (
            [{"role": "user", "content": example.prompt}]
            if isinstance(example.prompt, str)
            else list(example.prompt)
        )
        turns += [message for message in own if message["role"] != "system"]
        turns.append({"role": "assistant", "content": example.answer})
    return turns
