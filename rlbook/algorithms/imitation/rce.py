"""Ranked cross-entropy: clone all episodes of a group, weighted by how well each scored.

    for each minibatch of groups of recorded episodes with scores s_i
        z_i = (s_i - mean of the group) / standard deviation of the group
        w_i = exp(z_i / τ) / Σ_j exp(z_j / τ)
        minimise  mean over groups of  Σ_i w_i (-mean_t log π(a_t|s_t))
        lower τ

Behaviour cloning treats one answer as correct. If several are known with a score each, such as the
beams of a search or ranked episodes, the weights decide how strongly each is imitated: at first
almost equally, at the end almost only the best. It is the offline counterpart of best-of-n, and a
gentle step from cloning to reinforcement learning, since worse episodes are not pushed down.

On the maze a group is several episodes, scored by their returns; without `--data`, random walks. On
a token environment it is several completions of one prompt with scores (`completions` and `scores`
in a row of the data; without scores their order counts, in equal steps from best to worst); without
`--data`, the correct answer (1) among those of other prompts (0).

Source: weighting by exponentiated reward: Peters & Schaal 2007, "Reinforcement learning by
reward-weighted regression", eq. 8; Peng et al. 2019 (AWR), arXiv:1910.00177, eq. 9. Differences:
scores are standardised within their group, which replaces a value baseline; τ falls; and a group's
weights sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from rlbook.agent import Data, Metrics
from rlbook.algorithms.imitation.behavior_cloning import cloning_loss
from rlbook.algorithms.policy.options import AdamOptions, PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import at_least, positive, positive_int
from rlbook.data.episodes import RankedBatch
from rlbook.functional.averages import per_sequence
from rlbook.functional.schedules import Linear
from rlbook.functional.score_weights import score_weights
from rlbook.hyperparameters import Rate
from rlbook.networks.optimizer import LossOutput, Optimizer, gradient_step, mean_metrics
from rlbook.networks.policy import Policy


def rce_update(
    policy: Policy,
    optimizer: Optimizer,
    groups: RankedBatch,
    config: RCEConfig,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step on groups of recorded episodes.

    Args:
        policy, optimizer: changed in place.
        groups: B groups of up to G episodes each, R in all, and what each episode scored.
        config: hyper-parameters, each schedule at its value.
        loss: of some of the episodes; None is `cloning_loss`.
    """
    temperature = config.score_temperature
    score, mask = groups.group_scores(groups.returns)  # [B, G]
    weight = score_weights(score, mask, temperature)
    episodes = groups.episodes
    shares = per_sequence(episodes.mask) * len(episodes)  # 1 / T of each episode [R, T]
    share = shares * weight[mask].to(shares)[:, None] / len(score)
    step = gradient_step(
        optimizer,
        partial(loss or cloning_loss, policy, config=config),
        replace(episodes, weight=share),
        micro_batch_size=config.micro_batch_size,
        max_grad_norm=config.max_grad_norm,
    )
    best = float(weight.amax(1).mean())
    return mean_metrics([step]) | {"best_weight": best, "score_temperature": temperature}


@dataclass(frozen=True)
class RCEConfig(PolicyOptions, AdamOptions):
    # τ of the softmax over scores, in standard deviations of a group's scores, > 0
    score_temperature: Annotated[Rate, positive] = Linear(2.0, 0.5)
    batch_size: Annotated[int, positive_int] = 16  # groups per minibatch
    # random walks to record and group if no data set is given
    walks: Annotated[int, at_least(2)] = 1_000
    # episodes per group of random walks, at least 2
    candidates: Annotated[int, at_least(2)] = 8
    # episodes backpropagated at once; affects memory, not the gradient
    micro_batch_size: Annotated[int, positive_int] | None = None


class RCE(PolicyAgent):
    """Score-weighted cloning; see the module docstring."""

    config: RCEConfig
    Config = RCEConfig
    data_kinds = ("Groups",)
    prefers = True
    budget = {"passes": 20}
    loss = staticmethod(cloning_loss)
    METRICS = {
        "loss": "Σ w (-log π(a|s) per step), averaged over groups, in nats",
        "best_weight": "mean weight of the best episode of a group, in [0, 1]; 1 / G at first",
        "score_temperature": "τ, the divisor of the standardised scores",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    @classmethod
    def num_random_episodes(cls, config: RCEConfig, minibatches: int) -> int:
        """The number of random episodes for the given number of minibatches, so that each group is
        read as often as in the default budget; enough for at least one minibatch.
        """
        groups = config.batch_size * minibatches // cls.budget["passes"]
        return config.candidates * max(config.batch_size, groups)

    def fit(self, data: Data) -> Iterator[Metrics]:
        for groups in data.minibatches(self.config.batch_size):
            yield self.train_on(groups)

    def train_on(self, groups: RankedBatch) -> Metrics:
        """One gradient step on groups of episodes."""
        rate = self.anneal()
        groups = groups._replace(episodes=groups.episodes.to(self.parts.device))
        metrics = rce_update(self.policy, self.optimizer, groups, self.settings, self.loss)
        return metrics | {"learning_rate": rate}
