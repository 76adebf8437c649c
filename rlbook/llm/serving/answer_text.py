"""Converts token ids to text during generation, without partial characters and without any part of
a stop text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream


def _new_stream() -> DecodeStream:
    from tokenizers.decoders import DecodeStream

    return DecodeStream(skip_special_tokens=True)


class AnswerText:
    """The text of an answer being generated. Special tokens are left out.

    A byte-level token may be part of a character, which waits for the rest; and the end of the text
    waits as long as it may be the beginning of a stop text.

    Args:
        backend: a `tokenizers.Tokenizer`.
        stop: texts that end the answer and are not part of it.
    """

    def __init__(self, backend: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.backend, self.stop = backend, tuple(stop)
        self._stream, self._pending = _new_stream(), list[int]()  # tokens that have no text yet
        self.text, self._released = "", 0
        self.is_stopped = False
        """Whether a stop text has been found; `text` ends before it."""

    def add(self, token: int) -> str:
        """Adds a token. Returns the text that has become final."""
        self._extend(self._decode(token))
        return self._release(len(self.text) - self._num_withheld())

    def finish(self) -> str:
        """The remaining text, when no token follows."""
        if not self.is_stopped and self._pending:
            self._extend(self.backend.decode(self._pending, skip_special_tokens=True))
        return self._release(len(self.text))

    def _decode(self, token: int) -> str:
        """The text that a token completes."""
        self._pending.append(token)
        try:
            text = self._stream.step(self.backend, token)
        except Exception:  # bytes that are no character have changed what was before them
            self._stream = _new_stream()
            text = "".join(self._stream.step(self.backend, one) or "" for one in self._pending)
        if text:
            self._pending = []
        return text or ""

    def _extend(self, more: str) -> None:
        longest = max(map(len, self.stop), default=1)
        start = max(0, len(self.text) - longest + 1)
        self.text += more
        found = [self.text.find(one, start) for one in self.stop]
        first = min((place for place in found if place >= 0), default=None)
        if first is not None:
            self.text, self.is_stopped = self.text[:first], True

    def _num_withheld(self) -> int:
        """The number of characters at the end that may be the beginning of a stop text."""
        if self.is_stopped:
            return 0
        return max(
            (
                size
                for one in self.stop
                for size in range(1, len(one))
                if self.text.endswith(one[:size])
            ),
            default=0,
        )

    def _release(self, end: int) -> str:
        part = self.text[self._released : end]
        self._released = max(self._released, end)
        return part
