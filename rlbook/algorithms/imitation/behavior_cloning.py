"""Behaviour cloning: make the recorded actions likely. On texts: supervised fine-tuning (SFT).

    for each minibatch of recorded observations s and actions a
        minimise  -mean log π(a|s)

That is classification: the observation is the input, the expert's action the label. No reward and
no environment are needed, and so nothing is learned about states to which only the agent's own
mistakes lead. On the maze a row is one step. On a token environment it is a prompt with its answer:
every token of the answer is an action, EOS among them, and padding counts for nothing.

Recorded actions come from a data set (`--data`), or from an expert that plays (`--expert`). Where
neither is named, an environment with a model gives its exact policy, and a token task its own right
answers.

Source: Pomerleau 1991, "Efficient Training of Artificial Neural Networks for Autonomous
Navigation", section 3. Teacher forcing: Williams & Zipser 1989. As the first stage of
post-training: Ouyang et al. 2022, arXiv:2203.02155, section 3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from rlbook.agent import Data, Metrics, Parts
from rlbook.algorithms.policy.options import AdamOptions, AverageOptions, PolicyOptions
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.checks import positive_int
from rlbook.data.rollout import Batch
from rlbook.functional.averages import given
from rlbook.functional.policy_losses import negative_log_likelihood_loss
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.optimizer import LossOutput, gradient_step, mean_metrics


@dataclass(frozen=True)
class BehaviorCloningConfig(PolicyOptions, AdamOptions, AverageOptions):
    batch_size: Annotated[int, positive_int] = 64  # rows of a minibatch: steps, or whole texts
    # steps that an expert plays, where no data set is named
    demonstrations: Annotated[int, positive_int] = 4_000
    # tokens of a row into which several texts are laid; none gives each text a row of its own.
    # Changes the time, not the gradient
    packing: Annotated[int, positive_int] | None = None


class BehaviorCloning(PolicyAgent):
    """Behaviour cloning, alias supervised fine-tuning; see the module docstring."""

    Config = BehaviorCloningConfig
    data_kinds = ("Episodes",)
    uses = ("expert", *PolicyAgent.uses)
    budget = {"passes": 20}
    METRICS = {
        "loss": "-log π(a|s) per recorded action, in nats; ln A where all actions are equally "
        "likely",
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
            yield self.train_on(batch.to(self.parts.device))

    def train_on(self, batch: Batch) -> Metrics:
        """One gradient step on recorded actions: a batch of steps [B], or of texts [B, T]."""
        rate = self.anneal()
        batch.weight = self.config.averaging()(batch.mask)
        step = gradient_step(
            self.optimizer,
            self.loss,
            batch,
            micro_batch_size=self.config.micro_batch_size,
            max_grad_norm=self.config.max_grad_norm,
        )
        return mean_metrics([step]) | {"learning_rate": rate}

    def loss(self, batch: Batch) -> LossOutput:
        """The share that some rows have in -mean log π(a|s); padding has none."""
        assert batch.weight is not None
        log_prob, _, _ = self.policy.evaluate(batch, entropy=False)
        loss = negative_log_likelihood_loss(log_prob, mask=batch.mask, average=given(batch.weight))
        return LossOutput(loss, {"loss": loss.detach()})
