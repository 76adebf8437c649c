"""Token sampling from a language model's logits, for evaluation and generation.

    logits → repetition penalty → / temperature → top-k → top-p → min-p → one token drawn

Each step but the first two sets the logits of some tokens to -∞ and so renormalises the rest. The
order and the numbers are those of transformers. Training has the temperature alone: it recomputes
the log-probabilities of what was written from the whole distribution, and against those of a
narrowed one the ratio of new to old policy would not be 1 before anything has been learned.

Source: top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2020, arXiv:1904.09751;
min-p: Nguyen et al. 2024, arXiv:2407.01082; repetition penalty: Keskar et al. 2019,
arXiv:1909.05858, section 4.1, which divides logits below 0 too; here they are multiplied, as in
transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from rlbook.checks import (
    Kind,
    non_negative,
    non_negative_int,
    positive,
    positive_fraction,
    unit_interval,
)
from rlbook.data.rollout import Batch, Rollout
from rlbook.hyperparameters import Hyperparameters
from rlbook.llm.generation.kv_cache import ActingState
from rlbook.llm.models.language_model import NO_MASKS, LanguageModelPolicy
from rlbook.networks.distributions import sample_logits
from rlbook.networks.policy import Policy, Unit, to_full_precision

TEXTS = Kind(
    "a tuple of texts that are not empty",
    lambda value: isinstance(value, tuple) and all(isinstance(v, str) and v for v in value),
)


@dataclass(frozen=True)
class Sampling(Hyperparameters):
    """Sampling parameters; the defaults sample from the unmodified policy."""

    # divisor of the logits; 0 takes the most likely token
    temperature: Annotated[float, non_negative] = 1.0
    # keep the smallest set of most likely tokens with this total probability; 1 keeps all
    top_p: Annotated[float, positive_fraction] = 1.0
    # keep this many of the most likely tokens; 0 keeps all
    top_k: Annotated[int, non_negative_int] = 0
    # keep tokens with at least this fraction of the most likely token's probability
    min_p: Annotated[float, unit_interval] = 0.0
    # above 1, tokens that already occur in the text become less likely
    repetition_penalty: Annotated[float, positive] = 1.0
    # texts that end a completion during generation
    stop: Annotated[tuple[str, ...], TEXTS] = ()

    def __str__(self) -> str:
        changed = [
            f"{item.name} {getattr(self, item.name)}"
            for item in fields(self)
            if getattr(self, item.name) != item.default
        ]
        return ", ".join(changed) or "temperature 1.0"

    def scores(self, logits: Tensor, seen: Tensor | None = None) -> Tensor:
        """Logits [N, V] → modified logits, -∞ for excluded tokens; `seen` [N, V] marks the tokens
        that occur in each text."""
        if self.repetition_penalty != 1.0:
            assert seen is not None
            logits = logits.where(~seen, penalize(logits, self.repetition_penalty))
        if self.temperature == 0.0:
            return logits
        logits = logits / self.temperature
        if self.top_k:
            logits = top_k_filter(logits, self.top_k)
        if self.top_p < 1.0:
            logits = top_p_filter(logits, self.top_p)
        return min_p_filter(logits, self.min_p) if self.min_p else logits

    def draw(
        self, logits: Tensor, rng: np.random.Generator | None, seen: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [N] and their log-probabilities [N] under the modified distribution; the most
        likely tokens if `rng` is None or the temperature is 0."""
        return self.draw_at(logits, None if rng is None else rng.random(len(logits)), seen)

    def draw_at(
        self, logits: Tensor, uniform: np.ndarray | None, seen: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`draw` with given noise, [N] in [0, 1); on the device of the logits."""
        seen = None if seen is None else seen.to(logits.device)
        scores = self.scores(to_full_precision(logits), seen)
        return sample_logits(scores, None if self.temperature == 0.0 else uniform)


THINKING = Sampling(temperature=0.6, top_p=0.95, top_k=20)
NOT_THINKING = Sampling(temperature=0.7, top_p=0.8, top_k=20)
"""The sampling settings recommended by Qwen3's authors for answers with and without thinking."""


def penalize(logits: Tensor, penalty: float) -> Tensor:
    """Repetition penalty: lowers the logits of tokens that already occur in the text, dividing
    positive and multiplying negative ones."""
    return torch.where(logits < 0, logits * penalty, logits / penalty)


def top_k_filter(logits: Tensor, k: int) -> Tensor:
    """Keeps the k largest logits of each row [N, V], including ties with the last."""
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def top_p_filter(logits: Tensor, mass: float) -> Tensor:
    """Keeps the smallest set of most likely tokens of each row [N, V] whose probability reaches
    `mass`; at least one."""
    ascending, order = logits.sort(descending=False)
    left_out = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - mass
    left_out[..., -1] = False
    return logits.masked_fill(left_out.scatter(-1, order, left_out), -torch.inf)


def min_p_filter(logits: Tensor, share: float) -> Tensor:
    """Keeps the tokens of each row [N, V] with at least `share` of the probability of the most
    likely one."""
    probability = logits.softmax(dim=-1)
    return logits.masked_fill(
        probability < share * probability.amax(dim=-1, keepdim=True), -torch.inf
    )


def seen_tokens(tokens: np.ndarray, length: np.ndarray, vocabulary: int) -> Tensor:
    """Which tokens occur in texts [N, L] of `length` [N] tokens, padded on the right: bool [N,
    V]."""
    seen = np.zeros((len(tokens), vocabulary), dtype=bool)
    row, column = np.nonzero(np.arange(tokens.shape[1]) < length[:, None])
    seen[row, tokens[row, column]] = True
    return torch.from_numpy(seen)


def sampling_policy(policy: object, options: Mapping[str, Any]) -> SamplingPolicy | None:
    """The policy with a `Sampling` at its own temperature and with the given options; None if it is
    not a language model.

    Raises:
        ValueError: a value out of its range.
    """
    if not isinstance(policy, LanguageModelPolicy):
        return None
    settings: dict[str, Any] = {"temperature": policy.temperature, **options}
    return SamplingPolicy(policy, Sampling(**settings))


class SamplingPolicy(LanguageModelPolicy):
    """Acts with another policy's language model and a `Sampling`. It has no weights of its own and
    is never trained."""

    def __init__(self, policy: LanguageModelPolicy, sampling: Sampling) -> None:
        Policy.__init__(self)
        self.shared = (policy,)  # in a tuple, so that it is not part of this module
        self.critic, self.temperature, self.sampling = None, policy.temperature, sampling

    @property
    def model(self) -> Any:
        """The model of the other policy."""
        return self.shared[0].model

    def initial_state(self) -> ActingState:
        return self.shared[0].initial_state()

    def act(
        self,
        obs: Mapping[str, np.ndarray],
        rng: np.random.Generator | None,
        state: ActingState | None = None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        if action_mask is not None:
            raise ValueError(NO_MASKS)
        logits = (self.initial_state() if state is None else state).logits(
            obs["tokens"], obs["length"]
        )
        seen = (
            seen_tokens(obs["tokens"], obs["length"], logits.shape[-1])
            if self.sampling.repetition_penalty != 1.0
            else None
        )
        return self.sampling.draw(logits, rng, seen)

    def batch(self, rollout: Rollout, unit: Unit | None = None, /, **fields: Tensor) -> Batch:
        raise ValueError(
            f"tokens that were drawn by {self.sampling} cannot be trained on: their "
            "log-probabilities are recomputed from the full distribution, so the ratio of new "
            "to old policy would not be 1"
        )
