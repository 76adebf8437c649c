"""What a language model remembers while it writes: its KV cache, and which text the cache stands for.

A causal language model is a recurrent policy, and the KV cache is its hidden state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlbook.agent import State
from rlbook.llm.rows import rows_of


class ActingState:
    """Logits for an observation, from the cache where it fits and from the beginning where it does not.

    It fits if the weights are those it was computed with and each row's text is either the remembered one (the row has ended, and its
    logits are remembered) or that and one token more. So `logits` is right for any sequence of observations, and fast for episodes.

    Args:
        make_decoder: a fresh `LlamaDecoder` or `CausalDecoder` on the policy's weights.
        fingerprint: a small tensor that changes whenever the weights are trained.
    """

    def __init__(self, make_decoder: Callable[[], Any], fingerprint: Callable[[], Tensor]) -> None:
        self._make_decoder, self._fingerprint = make_decoder, fingerprint
        self.decoder: Any = None

    def logits(self, tokens: np.ndarray, length: np.ndarray) -> Tensor:
        """Next-token logits [N, V] for texts [N, L] of `length` [N] tokens, padded to the right."""
        grown = self._grown(tokens, length)
        if grown is None:
            self._restart(tokens, length)
        elif grown.any():
            self._append(tokens, length, grown)
        return self._logits

    def _grown(self, tokens: np.ndarray, length: np.ndarray) -> np.ndarray | None:
        """bool [N], the rows with one token more than the cache; None where the cache is of no use."""
        if self.decoder is None or tokens.shape != self._tokens.shape:
            return None
        extra = length - self._length
        behind = np.arange(tokens.shape[1]) >= self._length[:, None]                 # [N, L]
        if ((extra != 0) & (extra != 1)).any() or not ((tokens == self._tokens) | behind).all():
            return None
        grown = extra == 1
        if (grown & self._skipped).any() or not torch.equal(self._fingerprint(), self._weights):
            return None
        return grown

    def _restart(self, tokens: np.ndarray, length: np.ndarray) -> None:
        texts = torch.from_numpy(tokens)
        rows = rows_of(texts, torch.from_numpy(length), texts[:, :0])
        self.decoder, self._weights = self._make_decoder(), self._fingerprint().clone()
        self._logits = self.decoder.prefill(rows, new_tokens=tokens.shape[1] - int(length.min()))
        self._tokens, self._length = tokens.copy(), length.copy()
        self._skipped = np.zeros(len(length), dtype=bool)

    def _append(self, tokens: np.ndarray, length: np.ndarray, grown: np.ndarray) -> None:
        """One decoding step for all rows; what it says of rows that did not grow is dropped."""
        newest = torch.from_numpy(np.where(grown, tokens[np.arange(len(length)), length - 1], 0))
        logits = self.decoder.step(newest)
        self._logits = logits if grown.all() else torch.where(torch.from_numpy(grown)[:, None], logits, self._logits)
        self._tokens, self._length = tokens.copy(), length.copy()
        self._skipped |= ~grown

    def state_dict(self) -> State:
        """Everything, bit for bit; {} before the first observation."""
        if self.decoder is None:
            return {}
        return {
            "tokens": self._tokens.copy(), "length": self._length.copy(), "skipped": self._skipped.copy(),
            "logits": self._logits.clone(), "weights": self._weights.clone(), "decoder": self.decoder.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`; the policy's weights are loaded before."""
        if not state:
            self.decoder = None
            return
        self._tokens, self._length, self._skipped = (np.array(state[name]) for name in ("tokens", "length", "skipped"))
        self._logits, self._weights = state["logits"].clone(), state["weights"].clone()
        self.decoder = self._make_decoder()
        self.decoder.load_state_dict(state["decoder"])
