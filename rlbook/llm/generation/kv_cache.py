"""The KV cache of a language model during generation, and the text that it belongs to.

A causal language model is a recurrent policy, and the KV cache is its hidden state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.models.causal_lm import Decoder, LanguageModel, decoder
from rlbook.networks.policy import module_device


class ActingPolicy(Protocol):
    """Draws tokens from logits."""

    def draw(
        self, logits: Tensor, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]: ...


class ActingState:
    """Computes the logits for an observation, from the cache if it matches and from scratch
    otherwise.

    It fits if the model is as it was (`signature`) and each row's text is either the remembered one
    (the row has ended, and its logits are remembered) or that and one token more. So `logits` is
    right for any sequence of observations, and fast for episodes.

    Args:
        model: the language model; never changed, never kept in a checkpoint.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.decoder: Decoder | None = None

    def act(
        self,
        policy: ActingPolicy,
        obs: Mapping[str, np.ndarray],
        rng: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples tokens [N] and their log-probabilities [N] for observed texts."""
        return policy.draw(self.logits(obs["tokens"], obs["length"]), rng)

    def logits(self, tokens: np.ndarray, length: np.ndarray) -> Tensor:
        """Next-token logits [N, V] for texts [N, L] of `length` [N] tokens, padded to the right."""
        grown = self._grown_rows(tokens, length)
        if grown is None:
            self._restart(tokens, length)
        elif grown.any():
            self._append(tokens, length, grown)
        return self._logits

    def _grown_rows(self, tokens: np.ndarray, length: np.ndarray) -> np.ndarray | None:
        """The rows with exactly one token more than the cache, bool [N]; None if the cache does not
        match."""
        if self.decoder is None or tokens.shape != self._tokens.shape:
            return None
        extra = length - self._length
        beyond = np.arange(tokens.shape[1]) >= self._length[:, None]  # [N, L]
        if ((extra != 0) & (extra != 1)).any() or not ((tokens == self._tokens) | beyond).all():
            return None
        grown = extra == 1
        if (grown & self._skipped).any() or signature(self.model) != self._signature:
            return None
        return grown

    def _restart(self, tokens: np.ndarray, length: np.ndarray) -> None:
        texts = torch.from_numpy(tokens)
        rows = rows_of(texts, torch.from_numpy(length), texts[:, :0])
        self.decoder, self._signature = decoder(self.model), signature(self.model)
        self._logits = self.decoder.prefill(rows, new_tokens=tokens.shape[1] - int(length.min()))
        self._tokens, self._length = tokens.copy(), length.copy()
        self._skipped = np.zeros(len(length), dtype=bool)
        self._rows = np.arange(len(length))

    def _append(self, tokens: np.ndarray, length: np.ndarray, grown: np.ndarray) -> None:
        """One decoding step for all rows of the decoder; the result is discarded for rows that did
        not grow, and if there are many of those, they are removed."""
        assert self.decoder is not None
        if is_worth_leaving(self.model, grown[self._rows]):
            self.decoder.select(torch.from_numpy(np.flatnonzero(grown[self._rows])))
            self._rows = np.flatnonzero(grown)
        newest = torch.from_numpy(np.where(grown, tokens[np.arange(len(length)), length - 1], 0))
        logits = self.decoder.step(newest[self._rows])
        if len(self._rows) < len(length):
            index = torch.from_numpy(self._rows).to(logits.device)
            logits = self._logits.index_copy(0, index, logits)
        self._logits = (
            logits
            if grown.all()
            else torch.where(
                torch.from_numpy(grown).to(logits.device)[:, None], logits, self._logits
            )
        )
        self._tokens, self._length = tokens.copy(), length.copy()
        self._skipped |= ~grown

    def state_dict(self) -> State:
        """The complete cache, bit for bit; {} if there is no usable one: before the first
        observation, or after the model has changed."""
        if self.decoder is None or signature(self.model) != self._signature:
            return {}
        left = {} if len(self._rows) == len(self._length) else {"rows": self._rows.copy()}
        return left | {
            "tokens": self._tokens.copy(),
            "length": self._length.copy(),
            "skipped": self._skipped.copy(),
            "logits": self._logits.clone(),
            "decoder": self.decoder.state_dict(),
            "form": type(self.decoder).__name__,
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`; call it after the policy's weights are loaded.

        The cache of another decoder, as on another device, is dropped: the next observation is read
        from its beginning.
        """
        self.decoder = decoder(self.model) if state else None
        if (
            self.decoder is None
            or state.get("form", type(self.decoder).__name__) != type(self.decoder).__name__
        ):
            self.decoder = None
            return
        self._tokens, self._length, self._skipped = (
            np.array(state[name]) for name in ("tokens", "length", "skipped")
        )
        self._rows = np.array(state.get("rows", np.arange(len(self._length))))
        self._logits, self._signature = (
            state["logits"].to(module_device(self.model), copy=True),
            signature(self.model),
        )
        self.decoder.load_state_dict(state["decoder"])

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: the cache as a checkpoint has it, because it belongs to the copy
        of the model, which has another signature."""
        return {"model": self.model, "cache": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.model = state["model"]
        self.load_state_dict(state["cache"])


LARGE = 10**6
"""The number of weights from which a decoding step is faster for fewer rows."""
LEFT, LEFT_ON_GPU = 0.75, 0.25
"""The fraction of the rows that may remain when finished ones are removed from a batch: each time,
the keys and values are copied. A GPU computes a few rows in about the time of many."""


def is_worth_leaving(model: nn.Module, live: np.ndarray) -> bool:
    """Whether finished rows should be removed from a batch in which the rows `live` [N]
    continue."""
    share = LEFT if module_device(model).type == "cpu" else LEFT_ON_GPU
    return (
        live.sum() <= share * len(live)
        and sum(parameter.numel() for parameter in model.parameters()) >= LARGE
    )


def signature(model: nn.Module) -> list[object]:
    """A fingerprint of the model; equal fingerprints mean that the model computes the same
    function.

    It has every module with its hooks and, for a module of neither torch nor transformers, its
    settings (an adapter that was switched off), and every tensor with its place in memory and its
    version: torch raises that at every in-place change, `load_state_dict` among them, and the
    optimisers of this book raise it at every step. A change through `.data` that stays in place is
    the one that nobody can see.
    """
    parts: list[object] = []
    for module in _iterate_modules(model):
        inside = module.__dict__
        parts += (
            id(module),
            inside["training"],
            *inside["_forward_hooks"],
            *inside["_forward_pre_hooks"],
            inside.get("forward"),
        )
        for tensor in (*inside["_parameters"].values(), *inside["_buffers"].values()):
            if tensor is not None:
                parts += (
                    id(tensor),
                    tensor.data_ptr(),
                    -1 if tensor.is_inference() else tensor._version,
                )
        if not _is_library_class(type(module)):
            parts += [
                (name, str(value))
                for name, value in inside.items()
                if name not in _EVERY_MODULE and _is_setting(value)
            ]
    return parts


@functools.cache
def _is_library_class(kind: type) -> bool:
    return kind.__module__.startswith(("torch.", "transformers."))


_EVERY_MODULE = frozenset(vars(nn.Module()))


def _is_setting(value: object) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        return all(isinstance(item, bool | int | float | str) for item in value)
    return isinstance(value, bool | int | float | str)


def _iterate_modules(root: nn.Module) -> Iterator[nn.Module]:
    """`root.modules()`, in a quarter of the time."""
    waiting = [root]
    while waiting:
        module = waiting.pop()
        yield module
        waiting += [child for child in module._modules.values() if child is not None]
