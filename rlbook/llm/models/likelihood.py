"""The log-likelihood of given completions: the sum of log π(token|text so far), without
sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rlbook.data.rollout import Batch
from rlbook.llm.environments.token_rows import pad_rows
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.networks.policy import module_device, to_full_precision


@torch.inference_mode()
def log_likelihood(
    policy: LanguageModelPolicy,
    pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    rows: int = 64,
) -> NDArray[np.float64]:
    """log π(completion|prompt) of the model itself, at temperature 1: [P], in nats.

    Args:
        policy: the language model.
        pairs: P prompts and completions as ids, EOS included.
        rows: how many are computed side by side.
    """
    found: list[NDArray[np.float64]] = []
    for start in range(0, len(pairs), rows):
        prompts, completions = zip(*pairs[start : start + rows], strict=True)
        lengths = np.array([len(prompt) for prompt in prompts])
        count = np.array([len(completion) for completion in completions])
        tokens, action, length = (
            torch.from_numpy(array)
            for array in (pad_rows(prompts, 0), pad_rows(completions, 0), lengths)
        )
        mask = torch.arange(action.shape[1]) < torch.from_numpy(count)[:, None]
        batch = Batch(
            {"tokens": tokens, "length": length}, action, torch.full(mask.shape, torch.nan), mask
        ).to(module_device(policy.model))
        log_prob = (
            to_full_precision(policy.logits(batch))
            .log_softmax(-1)
            .gather(-1, batch.action[..., None])
            .squeeze(-1)
        )
        found.append(log_prob.where(batch.mask, 0.0).double().sum(-1).cpu().numpy())
    return np.concatenate(found)
