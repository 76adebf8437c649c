"""Rejection sampling: sample episodes, keep the best, clone them. On texts: RFT, or best-of-n.

    repeat
        from each of several starts, play G episodes with π; R_i is the return of episode i
        keep those with R_i ≥ R_min, and of these the k best of each group
        for E epochs of minibatches of the kept episodes
            minimise  -mean log π(a|s)

The policy is its own expert: it clones the best of its own episodes. Rejected episodes are not
pushed down, so there is no baseline, no ratio, no clip and no reference policy. With `threshold`
alone this is rejection sampling fine-tuning (RFT): if the reward is 1 for a correct answer and 0
otherwise, it is REINFORCE without a baseline. With `keep` alone it is best-of-n. If all episodes
have the same start and one group is the whole round, k of G is the elite of the cross-entropy
method, for a policy instead of plans.

Among equal returns, the episode played first is kept. On the maze an episode is one attempt to
reach the goal; on a token environment, a completion of a prompt.

Source: `threshold`: Yuan et al. 2023 (RFT), arXiv:2308.01825, section 3.3. `keep`: Dong et al. 2023
(RAFT), arXiv:2304.06767, algorithm 1. The elite: Rubinstein 1999, "The Cross-Entropy Method for
Combinatorial and Continuous Optimization", section 3. Differences: RFT samples once, removes
duplicate answers and trains the base model; here each round is sampled afresh, kept episodes may
repeat, and training continues from the weights that played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from numpy.random import Generator
from torch import Tensor

from rlbook.agent import Metrics, Step
from rlbook.algorithms.imitation.behavior_cloning import cloning_loss, cloning_update
from rlbook.algorithms.policy.options import AdamOptions, AverageOptions, PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import at_least, finite, positive_int
from rlbook.data.rollout import Batch, minibatches
from rlbook.networks.optimizer import LossOutput, Optimizer, mean_metrics
from rlbook.networks.policy import Policy


def select_best(
    returns: Tensor, group_size: int, *, keep: int | None, least: float | None
) -> Tensor:
    """The episodes to be cloned, in ascending order.

    Args:
        returns: [N], groups of neighbours, in reward units.
        group_size: G.
        keep: k, how many of each group at most, the largest returns and of equal ones the first;
            None for no limit.
        least: R_min; None for none.

    Returns:
        [K] int64, rows of `returns`.
    """
    order = returns.view(-1, group_size).argsort(dim=1, descending=True, stable=True)
    place = torch.empty_like(order).scatter_(  # 0 for the best of its group
        1, order, torch.arange(group_size, device=order.device).expand_as(order)
    )
    chosen = place.view(-1) < (group_size if keep is None else keep)
    if least is not None:
        chosen &= returns >= least
    return chosen.nonzero()[:, 0]


def rejection_sampling_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: RejectionSamplingConfig,
    rng: Generator,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """E epochs of cloning the episodes that were kept; returns the mean diagnostics.

    Args:
        policy, optimizer: changed in place.
        batch: the episodes [K, T].
        config: hyper-parameters.
        rng: shuffles the episodes.
        loss: of some of them; None is `cloning_loss`.
    """
    size, metrics = config.batch_size or len(batch), []
    for _ in range(config.epochs):
        for minibatch in minibatches(batch, size, rng):
            metrics.append(cloning_update(policy, optimizer, minibatch, config, loss))
    return mean_metrics(metrics)


@dataclass(frozen=True)
class RejectionSamplingConfig(PolicyOptions, AdamOptions, AverageOptions):
    # G, episodes per start, at least 2; must divide num_envs
    group_size: Annotated[int, at_least(2)] = 8
    # k, episodes of a group to keep at most, from 1 to G; none keeps all that pass the threshold
    keep: Annotated[int, positive_int] | None = 1
    # R_min, smallest return of an episode that is kept, in reward units; none: no minimum
    threshold: Annotated[float, finite] | None = None
    # episodes per minibatch; none: all kept episodes at once
    batch_size: Annotated[int, positive_int] | None = None
    epochs: Annotated[int, positive_int] = 1  # E, passes over the kept episodes of a round

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is None and self.threshold is None:
            raise ValueError("keep and threshold are both none, so nothing would be rejected")
        if self.keep is not None and self.keep > self.group_size:
            raise ValueError(
                f"keep must be at most group_size {self.group_size}, got {self.keep!r}"
            )


class RejectionSampling(PolicyAgent):
    """Clones its own best episodes; see the module docstring."""

    config: RejectionSamplingConfig
    Config = RejectionSamplingConfig
    uses = ("sampler", *PolicyAgent.uses)
    rollout = "episodes"
    default_num_envs = 32
    loss = staticmethod(cloning_loss)
    METRICS = {
        "loss": "-log π(a|s) per action of the kept episodes, in nats",
        "kept": "fraction of the round's episodes that are kept, in [0, 1]",
        "kept_return": "mean undiscounted return of the kept episodes, in reward units",
        "group_return": "mean undiscounted return of the whole round, in reward units",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    def learn(self, step: Step) -> Metrics:
        self.rollout_data.add(step, self._log_prob)
        if not self.round_over(step):
            return {}
        batch = self.policy.batch(self.rollout_data, "episode")  # [N, T]
        returns = self.rollout_data.tensor("reward").sum(0)  # [N]
        chosen = select_best(
            returns, self.group_size, keep=self.config.keep, least=self.config.threshold
        )
        metrics = {"group_return": float(returns.mean()), "kept": len(chosen) / len(returns)}
        if len(chosen):
            metrics |= {"kept_return": float(returns[chosen].mean())} | self.update(batch[chosen])
        self.rollout_data.clear()
        return metrics

    def update(self, batch: Batch) -> Metrics:
        """Gradient steps on the selected episodes; returns the mean diagnostics."""
        rate, config = self.anneal(), self.settings
        models = self.policy, self.optimizer
        found = rejection_sampling_update(*models, batch, config, self.shuffling, self.loss)
        return found | {"learning_rate": rate}
