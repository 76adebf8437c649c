"""Masks of the assistant's tokens in a whole chat, for fine-tuning on several turns.

A chat template says where a turn begins and ends only by what it writes, so the chat is rendered
turn by turn:

    begins = len(template(messages up to the turn, add_generation_prompt=True))
    ends   = len(template(messages up to the turn, and the turn itself))

and of what lies between, the tokens up to the first that ends a completion count, as in sampling.
transformers' templates with `{% generation %}` mark the same tokens themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlbook.data.schemas import Conversation, Message


def conversation(
    backend: Any,
    template: Callable[..., str],
    ends: Sequence[int],
    messages: Sequence[Message],
    *,
    first: int = 0,
    check_length: Callable[[int], None] = lambda tokens: None,
) -> Conversation:
    """The ids of a chat, and a mask of the assistant's tokens.

    Args:
        backend: a `tokenizers.Tokenizer`.
        template: messages, and `add_generation_prompt`, as text.
        ends: ids that end a completion.
        messages: the chat; its last one is the assistant's.
        first: the message from which on answers count; those before are worked examples.
        check_length: raises ValueError for too many tokens; such a chat is not rendered turn by
            turn, which takes the square of its length.

    Raises:
        ValueError: too many tokens; or the template writes an earlier turn otherwise than
            the last one, so that no part of the text is what was answered.
    """
    whole = template(list(messages), add_generation_prompt=False)
    encoding = backend.encode(whole, add_special_tokens=False)
    check_length(len(encoding.ids))
    counts = [False] * len(encoding.ids)
    for number, message in enumerate(messages):
        if message["role"] != "assistant" or number < first:
            continue
        before = template(list(messages[:number]), add_generation_prompt=True)
        answered = template(list(messages[: number + 1]), add_generation_prompt=False)
        if not (whole.startswith(answered) and answered.startswith(before)):
            raise ValueError(
                "the chat template formats an answer differently when more turns follow, so the"
                " turns of a chat cannot be trained on together; give rows with prompt and"
                " completion, one"
                " for each turn"
            )
        for place, (left, _) in enumerate(encoding.offsets):
            if len(before) <= left < len(answered):
                counts[place] = True
                if encoding.ids[place] in ends:
                    break
    return Conversation(list(encoding.ids), counts)
