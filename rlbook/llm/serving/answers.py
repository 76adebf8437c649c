"""Answers as OpenAI's objects: complete ones, and the chunks of a stream."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlbook.llm.serving.engine import Piece, TopToken
from rlbook.llm.serving.protocol import ChatRequest, CompletionRequest
from rlbook.llm.tokenizers.tokenizer import Codec

LEAST = -9999.0
"""Replaces log 0, for which JSON has no number."""

Json = dict[str, Any]


@dataclass
class ChoiceState:
    """The state of an answer being generated."""

    prompt: Sequence[int]
    pieces: list[Piece] = field(default_factory=list)
    echo: str = ""  # the prompt's text, where the answer begins with it
    # the prompt's tokens, where their log-probabilities are asked for
    scored: Sequence[Piece] = ()
    is_echoed: bool = False  # whether a stream has begun with it

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[int]:
        """The token ids so far."""
        return [piece.token for piece in self.pieces if piece.token is not None]

    @property
    def finish(self) -> str | None:
        """Why it ended; None while it is being generated."""
        return self.pieces[-1].finish if self.pieces else None


class AnswerFormat:
    """The format of the answers to one request.

    Args:
        request: says which objects they are.
        codec: names tokens.
        model: the model's name.
        fingerprint: of its weights.
    """

    def __init__(
        self, request: CompletionRequest | ChatRequest, codec: Codec, model: str, fingerprint: str
    ) -> None:
        self.request, self.codec = request, codec
        self.is_chat = isinstance(request, ChatRequest)
        self.special = {codec.bos, codec.pad, *codec.ends}
        """The special tokens, which are not part of a text."""
        self.head: Json = {
            "id": ("chatcmpl-" if self.is_chat else "cmpl-") + uuid.uuid4().hex,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def prompt_text(self, prompt: str | Sequence[int]) -> str:
        """The text that an echo begins with, for a prompt as it was given."""
        if isinstance(prompt, str):
            return prompt
        return self.codec.decode([token for token in prompt if token not in self.special])

    def complete(self, choices: Sequence[ChoiceState]) -> Json:
        """The whole answer."""
        written = [self._choice(index, choice) for index, choice in enumerate(choices)]
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self.head, "object": kind, "choices": written, "usage": self.usage(choices)}

    def chunk(self, index: int, state: ChoiceState) -> Json:
        """A stream's chunk with the newest piece of an answer."""
        piece, begins = state.pieces[-1], not state.is_echoed
        offset = 0 if begins else len(state.echo) + len(state.text) - len(piece.text)
        choice: Json = {"index": index, "finish_reason": piece.finish}
        choice["logprobs"] = self._log_probs([*(state.scored if begins else ()), piece], offset)
        state.is_echoed = True
        if self.is_chat:
            choice["delta"] = {"content": piece.text} if piece.text else {}
        else:
            choice["text"] = (state.echo if begins else "") + piece.text
        if self.request.return_token_ids:
            choice["token_ids"] = [] if piece.token is None else [piece.token]
            first = len(state.pieces) == 1
            choice["prompt_token_ids"] = list(state.prompt) if first else None
        return self._chunk([choice])

    def first_chunk(self, index: int) -> Json:
        """The first chunk of a chat's stream: the role."""
        delta = {"role": "assistant", "content": ""}
        return self._chunk(
            [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]
        )

    def usage_chunk(self, choices: Sequence[ChoiceState]) -> Json:
        """The last chunk of a stream if `stream_options.include_usage` is set."""
        return self._chunk([]) | {"usage": self.usage(choices)}

    def usage(self, choices: Sequence[ChoiceState]) -> Json:
        """Tokens read, counting a prompt once for all its choices, and tokens generated, including
        those that end an answer."""
        read = sum(len(choice.prompt) for choice in choices[:: self.request.n])
        generated = sum(len(choice.tokens) for choice in choices)
        return {
            "prompt_tokens": read,
            "completion_tokens": generated,
            "total_tokens": read + generated,
        }

    def _chunk(self, choices: list[Json]) -> Json:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        return {**self.head, "object": kind, "choices": choices}

    def _choice(self, index: int, choice: ChoiceState) -> Json:
        written: Json = {"index": index, "finish_reason": choice.finish}
        written["logprobs"] = self._log_probs([*choice.scored, *choice.pieces], 0)
        if self.is_chat:
            written["message"] = {"role": "assistant", "content": choice.text, "refusal": None}
        else:
            written["text"] = choice.echo + choice.text
        if self.request.return_token_ids:
            written["token_ids"] = choice.tokens
            written["prompt_token_ids"] = list(choice.prompt)
        return written

    def _log_probs(self, pieces: Sequence[Piece], offset: int) -> Json | None:
        """The tokens with their log-probabilities; None if they are not requested."""
        pieces = [piece for piece in pieces if piece.token is not None]
        if self.request.num_top_tokens is None or not pieces:
            return None
        if self.is_chat:
            return {"content": [self._entry(piece) for piece in pieces], "refusal": None}
        names = [self._name(int(piece.token or 0)) for piece in pieces]
        offsets, place = [], offset
        for name, piece in zip(names, pieces, strict=True):
            offsets.append(place)
            place += 0 if piece.token in self.special else len(name)
        return {
            "tokens": names,
            "token_logprobs": [_finite_log_prob(piece.log_prob) for piece in pieces],
            "top_logprobs": [
                None if math.isnan(piece.log_prob) else self._top_log_probs(piece.top)
                for piece in pieces
            ]
            if self.request.num_top_tokens
            else None,
            "text_offset": offsets,
        }

    def _top_log_probs(self, tokens: Sequence[TopToken]) -> Json:
        """The log-probability of each token. Of several with one text, such as parts of a
        character, the most likely has it as its name; the others are named by their ids."""
        named: Json = {}
        for one in tokens:
            name = self._name(one.token)
            key = f"token_id:{one.token}" if name in named else name
            named[key] = _finite_log_prob(one.log_prob)
        return named

    def _entry(self, piece: Piece) -> Json:
        own = TopToken(int(piece.token or 0), piece.log_prob)
        return self._token(own) | {"top_logprobs": [self._token(one) for one in piece.top]}

    def _token(self, token: TopToken) -> Json:
        name = self._name(token.token)
        known = None if "\N{REPLACEMENT CHARACTER}" in name else list(name.encode())
        return {"token": name, "logprob": _finite_log_prob(token.log_prob), "bytes": known}

    def _name(self, token: int) -> str:
        return self.codec.decode([token])


def _finite_log_prob(log_prob: float) -> float | None:
    """A finite number for JSON; None for a text's first token, which has no log-probability."""
    return None if math.isnan(log_prob) else max(float(log_prob), LEAST)
