"""Replaces the answers in generated texts by reference answers, which RLPR uses to score the
reasoning before them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlbook.algorithms.policy.episode_rewards import ReferenceAnswerBatches
from rlbook.data.rollout import Batch
from rlbook.llm.environments.token_rows import TokenRules, pad_rows

OPEN, CLOSE = "<think>", "</think>"


class ReferenceAnswers:
    """Replaces the text after `</think>` by the reference answer and EOS.

    Args:
        rules: of the environment, which knows its prompts and their answers.

    Raises:
        ValueError: the vocabulary has no `</think>`, so that nobody could say where an answer
            begins, or one prompt has two answers, of which an episode does not say which is meant.
    """

    def __init__(self, rules: TokenRules) -> None:
        self.codec = rules.codec
        self.open, self.close = (self.codec.backend.token_to_id(word) for word in (OPEN, CLOSE))
        if self.close is None:
            raise ValueError(
                f"episode_reward 'answer' needs reasoning steps that end with {CLOSE!r}, but the "
                "vocabulary has no such token"
            )
        lengths = zip(rules.prompts, rules.prompt_lengths, strict=True)
        self.row: dict[tuple[int, ...], int] = {}
        self.answers = rules.answers
        for row, (ids, length) in enumerate(lengths):
            first = self.row.setdefault(tuple(ids[:length].tolist()), row)
            if first != row and self.answers[first] != self.answers[row]:
                raise ValueError(
                    "episode_reward 'answer' needs one answer to each prompt, but those of"
                    f" {rules.location(first)} and of {rules.location(row)} differ"
                )

    def __call__(self, batch: Batch) -> ReferenceAnswerBatches:
        """The episodes of a round [B, T]."""
        tokens, lengths = batch.obs["tokens"].cpu().numpy(), batch.obs["length"].cpu().numpy()
        written = batch.action.cpu().numpy()
        empty = [self.close] if self.open is None else [self.open, self.close]
        with_steps, without, formed, answers = [], [], [], []
        for prompt, length, ids, counts in zip(
            tokens, lengths, written, batch.mask.cpu().numpy(), strict=True
        ):
            ids = ids[counts].tolist()
            closed = self.close in ids
            steps = ids[: len(ids) - ids[::-1].index(self.close)] if closed else empty
            answer = self.codec.encode_answer(
                self.answers[self.row[tuple(prompt[:length].tolist())]]
            )
            with_steps.append([*steps, *answer])
            without.append([*empty, *answer])
            answers.append(len(answer))
            formed.append(float(ids.count(self.close) == 1 and ids[-1] == self.codec.eos))
        device = batch.mask.device
        after_steps, alone = (_to_batch(batch, rows, answers) for rows in (with_steps, without))
        return ReferenceAnswerBatches(after_steps, alone, torch.tensor(formed, device=device))


def _to_batch(batch: Batch, rows: list[list[int]], answers: list[int]) -> Batch:
    """Builds the batch's completions, each ending with the answer and EOS, of which EOS is not
    scored."""
    lengths, width = np.array([len(row) for row in rows]), max(map(len, rows))
    place = np.arange(width)
    mask = place < lengths[:, None]
    weight = mask & (place >= (lengths - answers)[:, None]) & (place < lengths[:, None] - 1)
    action, counts, share = (
        _to_device(array, batch.mask)
        for array in (pad_rows(rows, 0), mask, weight.astype(np.float32))
    )
    unknown = torch.full(counts.shape, torch.nan, device=counts.device)
    return Batch(batch.obs, action, unknown, counts, weight=share)


def _to_device(array: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device)
