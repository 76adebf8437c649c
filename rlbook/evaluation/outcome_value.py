"""A learned value of texts, finished or not: V(text) predicts the expected outcome, such as the
probability of a correct answer.

    write some completions of each training prompt with the policy, and have them verified for each
    minibatch of completions, at each of their beginnings, from the prompt alone to the whole text
        minimise  ½ (V(beginning) - outcome)²

PPO's critic learns the same, except at the whole text: nothing follows it, so what the critic says
there is never asked while it trains. A search asks just that. Here the whole text is one of the
beginnings, so that V tells a right ending from a wrong one as well as it can.

Source: Cobbe et al. 2021 (verifiers), arXiv:2110.14168, section 4.2; to guide a search: Yu et al.
2023 (OVM), arXiv:2311.09724. Deliberate
difference: the loss is the squared error of our critics alone, without a language model's loss
beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.data.rollout import Batch, minibatches
from rlbook.evaluation.best_of_n import SampledCompletions
from rlbook.functional.value_losses import squared_value_loss
from rlbook.llm.generation.prompt_rows import rows_of
from rlbook.llm.models.language_model import Critic, LanguageModelPolicy
from rlbook.networks.optimizer import Group, LossOutput, adam, gradient_step
from rlbook.networks.policy import as_array, module_device


class OutcomeValue:
    """V of texts. It can be the judge of a search like a reward model: `rlbook.evaluate(run,
    search="mcts", judge=value)`.

    Args:
        policy: whose completions it is about. V starts from its critic where it has one, else from
            its trunk.
    """

    def __init__(self, policy: LanguageModelPolicy) -> None:
        self.network = (
            Critic(policy.model) if policy.critic is None else copy.deepcopy(policy.critic)
        )

    def fit(
        self,
        completions: SampledCompletions,
        rng: np.random.Generator,
        *,
        passes: int = 3,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
    ) -> list[float]:
        """Fits V to completions and their rewards; returns the loss of each minibatch, in squared
        reward units.

        Args:
            completions: completions of training prompts.
            rng: the order of the minibatches.
            passes: over all of them.
            batch_size: completions of a minibatch.
            learning_rate: Adam's step size, which falls linearly to 0.
        """
        batch = completion_batch(completions).to(module_device(self.network))
        optimizer, losses = adam([Group([self.network])], learning_rate), list[float]()
        total = passes * -(-len(batch) // batch_size)
        for _ in range(passes):
            for rows in minibatches(batch, batch_size, rng):
                optimizer.learning_rate = learning_rate * (1 - len(losses) / total)
                losses.append(
                    float(gradient_step(optimizer, self.loss, rows, max_grad_norm=1.0)["loss"])
                )
        return losses

    def loss(self, batch: Batch) -> LossOutput:
        """½ (V - outcome)² at the prompt and after each token."""
        assert batch.score is not None
        # [B, T + 1]
        value: Tensor = self.network(
            rows_of(batch.obs["tokens"], batch.obs["length"], batch.action)
        )
        mask = torch.nn.functional.pad(batch.mask, (1, 0), value=True)
        loss = squared_value_loss(value, batch.score[:, None].expand_as(value), mask=mask)
        return LossOutput(loss, {"loss": loss.detach()})

    @torch.inference_mode()
    def score_steps(
        self,
        obs: object,
        action: object,
        next_obs: Mapping[str, NDArray[np.int64]],
        done: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], None]:
        """V of the texts in `next_obs`: [N]. The other arguments belong to the interface of a
        reward model and are ignored."""
        device = module_device(self.network)
        tokens, length = (
            torch.as_tensor(next_obs[name]).to(device) for name in ("tokens", "length")
        )
        return as_array(self.network(rows_of(tokens, length, tokens[:, :0]))[:, 0]).astype(
            np.float64
        ), None


def completion_batch(completions: SampledCompletions) -> Batch:
    """Completions as a batch: prompts in `obs`, rewards in `score`."""
    column = np.arange(completions.tokens.shape[1])
    width = int(completions.num_tokens.max())
    # [N, T]
    place = np.minimum(
        completions.prompt[:, None] + np.arange(width), completions.tokens.shape[1] - 1
    )
    mask = torch.from_numpy(np.arange(width) < completions.num_tokens[:, None])
    action = torch.from_numpy(np.take_along_axis(completions.tokens, place, axis=1)).where(mask, 0)
    prompts = np.where(column < completions.prompt[:, None], completions.tokens, 0)[
        :, : int(completions.prompt.max())
    ]
    obs = {"tokens": torch.from_numpy(prompts), "length": torch.from_numpy(completions.prompt)}
    return Batch(
        obs,
        action,
        torch.zeros(mask.shape),
        mask,
        score=torch.from_numpy(completions.reward).float(),
    )
