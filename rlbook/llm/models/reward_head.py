"""A reward for a finished text: a language model's trunk with a scalar head."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbook.data.rollout import Batch
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.models.causal_lm import LanguageModel
from rlbook.llm.models.language_model import Critic
from rlbook.networks.reward_network import RewardNetwork

TOKENS = 2**16
"""The number of tokens read at once; those of a round may be more."""


class CompletionReward(RewardNetwork):
    """The score of a prompt and its completion, read at the last token; all earlier steps have
    reward 0.

    Observations and batches are as in `LanguageModelPolicy`.

    Source: Stiennon et al. 2020, arXiv:2009.01325, section 3.4.
    """

    at_the_end = True
    idle = {
        "hidden_sizes": "the network is a language model, whose layers are given",
        "walks": "no random walks are recorded: the pairs come from reference answers",
    }

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.score = Critic(model.eval())
        del self.score.bias  # only differences count: it stays 0 and is not trained, as in transformers' reward models
        self.score.register_buffer("bias", torch.zeros(1))

    def rewards(self, batch: Batch) -> Tensor:
        completion = batch.action.where(batch.real_mask, 0)
        # [B, T], after each token
        score = self.score(rows_of(batch.obs["tokens"], batch.obs["length"], completion))[:, 1:]
        return score.where(_last_steps(batch.mask), 0.0)

    def step_rewards(
        self, obs: dict[str, Tensor], action: Tensor, next_obs: dict[str, Tensor], done: Tensor
    ) -> Tensor:
        reward = torch.zeros(len(done), device=done.device)
        tokens, lengths = next_obs["tokens"], next_obs["length"]
        ended = done.nonzero()[:, 0]
        for rows in ended.split(max(1, TOKENS // tokens.shape[1])) if len(ended) else ():
            texts = rows_of(tokens[rows], lengths[rows], tokens[rows, :0])
            reward[rows] = self.score(texts)[:, 0]
        return reward


def _last_steps(mask: Tensor) -> Tensor:
    """The last step of each episode: bool [B, T] → bool [B, T]."""
    return mask & ~torch.nn.functional.pad(mask[:, 1:], (0, 1))
