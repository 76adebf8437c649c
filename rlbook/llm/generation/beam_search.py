"""Beam search: the most likely completions that can be found with K parallel texts.

    for each prompt K texts, at first all the prompt; score 0 for the first, -∞ for the others
    repeat:
        extend each text by each token: K · V candidates, score = log p(text)
        of the best 2K, those among the best K that end are finished, and compared by
            score / length^penalty
        the best K of those that do not end go on
    until no unfinished text can come before the K-th finished one

2K candidates are enough, since at most K of them end: each text can be ended in one way. (With E
tokens that end a text, (E + 1) K are looked at.) With one beam it is greedy decoding.

The comparison in the last line takes an unfinished text's length as it is now; for a penalty above
0 a longer one might still come first, so this is a heuristic, that of transformers.

Source: Sutskever et al. 2014, arXiv:1409.3215, section 3.2; Wu et al. 2016, arXiv:1609.08144, eq.
14 (length penalty; here as in transformers, the length to a power). The tokens are those of
transformers' `generate(num_beams=K)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlbook.llm.generation.kv_cache import ActingState
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.generation.sampling import Sampling, SamplingPolicy
from rlbook.llm.models.language_model import NO_MASKS, LanguageModelPolicy
from rlbook.networks.policy import to_full_precision


class Beams(NamedTuple):
    """The K best completions of N prompts, the best one first."""

    tokens: np.ndarray  # int64 [N, K, T]; what stands after an ending is of no use
    mask: np.ndarray  # bool [N, K, T]; True on the completion, EOS included
    score: np.ndarray  # float32 [N, K], log p(completion) / length^penalty; -∞: none was found


def beam_search(
    policy: LanguageModelPolicy,
    tokens: np.ndarray,
    length: np.ndarray,
    *,
    ends: Collection[int],
    max_new_tokens: int,
    beams: int,
    length_penalty: float = 1.0,
) -> Beams:
    """The K most likely completions that a search with K beams finds.

    Args:
        policy: the language model; its logits are divided by its temperature.
        tokens: int64 [N, L], prompts, padded to the right.
        length: int64 [N], tokens in each.
        ends: the tokens that end a completion.
        max_new_tokens: T at most; a text that reaches it counts as finished.
        beams: K.
        length_penalty: the exponent of the length that a finished text's log-probability is divided
            by; 0 compares probabilities, which favours short texts.
    """
    stops, kept = torch.tensor(sorted(ends)), (len(ends) + 1) * beams
    count, texts = len(tokens), torch.from_numpy(tokens.repeat(beams, axis=0))
    rows = rows_of(texts, torch.from_numpy(length.repeat(beams)), texts[:, :0])
    decoder = policy.decoder()
    logits = decoder.prefill(rows, new_tokens=max_new_tokens)  # [N · K, V]
    vocabulary = logits.shape[-1]
    score = torch.full((count, beams), -torch.inf)
    score[:, 0] = 0.0  # all K texts are the same: one of them is extended
    written = torch.zeros(count, beams, 0, dtype=torch.int64)
    best = torch.full((count, beams), -torch.inf)  # scores of the finished texts
    finished = torch.zeros(count, beams, max_new_tokens, dtype=torch.int64)
    best_length = torch.zeros(count, beams, dtype=torch.int64)
    live = torch.ones(count, dtype=torch.bool)  # prompts that may still find a better text
    for step in range(1, max_new_tokens + 1):
        log_prob = (to_full_precision(logits.cpu()) / policy.temperature).log_softmax(-1)
        total = score[:, :, None] + log_prob.view(count, beams, vocabulary)
        top, place = total.flatten(1).topk(min(kept, beams * vocabulary))  # [N, 2K]
        beam, token = place // vocabulary, place % vocabulary
        written = torch.cat([_select_beams(written, beam), token[:, :, None]], dim=2)
        ended = torch.isin(token, stops) | (step == max_new_tokens)

        counts = ended & (torch.arange(top.shape[1]) < beams) & live[:, None]
        candidate = (top / step**length_penalty).masked_fill(~counts, -torch.inf)
        best, chosen = torch.cat([best, candidate], dim=1).topk(beams)
        padded = torch.nn.functional.pad(written, (0, max_new_tokens - step))
        finished = _select_beams(torch.cat([finished, padded], dim=1), chosen)
        lengths = torch.cat([best_length, torch.full_like(token, step)], dim=1)
        best_length = lengths.gather(1, chosen)

        score, chosen = top.masked_fill(ended, -torch.inf).topk(beams)
        live = live & (score[:, 0] / step**length_penalty > best[:, -1])
        if not live.any():
            break
        written, beam = _select_beams(written, chosen), beam.gather(1, chosen)
        decoder.select((torch.arange(count)[:, None] * beams + beam).flatten())
        logits = decoder.step(written[:, :, -1].flatten())
    longest = int(best_length.max())
    mask = torch.arange(longest) < best_length[:, :, None]
    return Beams(finished[:, :, :longest].numpy(), mask.numpy(), best.numpy())


def _select_beams(texts: Tensor, beam: Tensor) -> Tensor:
    """texts [N, K, t], beam [N, M] → [N, M, t]."""
    return texts.gather(1, beam[:, :, None].expand(-1, -1, texts.shape[2]))


class BeamPolicy(SamplingPolicy):
    """Acts by beam search: the first action searches for the whole completion, the next ones output
    it. It has no weights of its own and is never trained.

    Args:
        policy: whose language model it is.
        beams: K.
        ends: the tokens that end a completion.
        max_new_tokens: limit on a completion.
    """

    def __init__(
        self, policy: LanguageModelPolicy, beams: int, ends: Collection[int], max_new_tokens: int
    ) -> None:
        super().__init__(policy, Sampling(temperature=policy.temperature))
        self.beams, self.ends, self.max_new_tokens = beams, ends, max_new_tokens

    def initial_state(self) -> BeamState:
        return BeamState(self.model)

    def act(
        self,
        obs: Mapping[str, np.ndarray],
        rng: np.random.Generator | None,
        state: ActingState | None = None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        if action_mask is not None:
            raise ValueError(NO_MASKS)
        state = self.initial_state() if state is None else state
        assert isinstance(state, BeamState)
        if state.completions is None:
            state.completions = beam_search(
                self.shared[0],
                obs["tokens"],
                obs["length"],
                ends=self.ends,
                max_new_tokens=self.max_new_tokens,
                beams=self.beams,
            ).tokens[:, 0]
        action = state.completions[:, min(state.place, state.completions.shape[1] - 1)]
        state.place += 1
        return action, np.zeros(len(action), dtype=np.float32)


class BeamState(ActingState):
    """The result of a beam search, and how much of it has been output."""

    completions: np.ndarray | None = None  # int64 [N, T]
    place = 0
