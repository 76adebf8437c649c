"""Behaviour cloning: maximise the likelihood of recorded actions. On texts: supervised fine-tuning
(SFT).

    for each minibatch of recorded observations s and actions a
        minimise  -mean log π(a|s)

This is classification: the observation is the input, the expert's action the label. It needs no
reward and no environment, and therefore learns nothing about states that only the agent's own
mistakes lead to. On the maze a row is one step. On a token environment it is a prompt with its
answer: every token of the answer is an action, EOS included, and padding is masked out.

Recorded actions come from a data set (`--data`) or from an expert that plays (`--expert`). Without
either, an environment with a model provides its exact policy, and a token task its reference
answers.

Source: Pomerleau 1991, "Efficient Training of Artificial Neural Networks for Autonomous
Navigation", section 3. Teacher forcing: Williams & Zipser 1989. As the first stage of
post-training: Ouyang et al. 2022, arXiv:2203.02155, section 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from torch import Tensor

from rlbook.agent import Data, Metrics, Parts
from rlbook.algorithms.policy.options import (
    AdamOptions,
    AverageOptions,
    OptimizerOptions,
    PolicyOptions,
)
from rlbook.algorithms.policy.policy_agent import PolicyAgent, weighted_step
from rlbook.checks import positive_int
from rlbook.data.rollout import Batch
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, Optimizer, mean_metrics
from rlbook.networks.policy import Policy


def cloning_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    config: AverageOptions,
    loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """One gradient step on recorded actions. Returns the loss and "grad_norm".

    Args:
        policy, optimizer: changed in place.
        batch: steps [B], or texts [B, T].
        config: hyper-parameters.
        loss: of some rows; None is `cloning_loss`.
    """
    step_loss = partial(loss or cloning_loss, policy, config=config)
    return weighted_step(optimizer, step_loss, batch, config)


def cloning_loss(policy: Policy, batch: Batch, *, config: OptimizerOptions) -> LossOutput:
    """These rows' share of -mean log π(a|s), in which padding has weight 0; lower is better."""
    log_prob, _, _ = policy.evaluate(batch, entropy=False)
    loss = negative_log_likelihood_loss(log_prob, **batch.share)
    return LossOutput(loss, {"loss": loss.detach()})


@dataclass(frozen=True)
class BehaviorCloningConfig(PolicyOptions, AdamOptions, AverageOptions):
    batch_size: Annotated[int, positive_int] = 64  # minibatch size: steps, or whole texts
    # expert steps to record if no data set is given
    demonstrations: Annotated[int, positive_int] = 4_000
    # pack several texts into one row of this many tokens; none: one text per row. Affects speed,
    # not the gradient
    packing: Annotated[int, positive_int] | None = None


class BehaviorCloning(PolicyAgent):
    """Behaviour cloning, alias supervised fine-tuning; see the module docstring."""

    Config = BehaviorCloningConfig
    data_kinds = ("Episodes",)
    uses = ("expert", *PolicyAgent.uses)
    budget = {"passes": 20}
    loss = staticmethod(cloning_loss)
    METRICS = {
        "loss": "-log π(a|s) per recorded action, in nats; ln A if all actions are equally likely",
        "grad_norm": "L2 norm of the gradient before clipping",
        "learning_rate": "Adam's step size in this update",
    }

    def __init__(
        self,
        env: AdaptedVectorEnv,
        config: BehaviorCloningConfig,
        seed: int = 0,
        parts: Parts = Parts(),
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: BehaviorCloningConfig = config
        self.policy.packing = config.packing

    def fit(self, data: Data) -> Iterator[Metrics]:
        for batch in data.minibatches(self.config.batch_size):
            yield self.update(batch.to(self.parts.device))

    def update(self, batch: Batch) -> Metrics:
        """One gradient step on a batch of steps [B], or of texts [B, T]."""
        rate = self.anneal()
        step = cloning_update(self.policy, self.optimizer, batch, self.settings, self.loss)
        return mean_metrics([step]) | {"learning_rate": rate}
