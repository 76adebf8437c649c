"""Reward model: learn a scalar score from preferences between episodes.

    for each minibatch of episodes in order of preference
        r(τ) = the sum of r(s, a) over the steps of τ
        minimise  -mean log σ(r(τ_w) - r(τ_l) - m)       pairs: τ_w was preferred to τ_l
        or  -mean Σ_i log( exp r(τ_i) / Σ_{j≥i} exp r(τ_j) )      groups: τ_1 was the best; of
                                                                  ties, j leaves out the others
        plus  c mean (r(τ_w) + r(τ_l))²

The better of two episodes gets the higher score. Only differences count, so the scores have no
origin of their own; the last term fixes it. On the maze r(s, a) is a small MLP. On a token
environment it is 0 until the completion is finished, and then the score of prompt and completion: a
language model's trunk with a linear head, read at the last token. It does not act; with
`--reward-model RUN` its reward replaces the environment's in training another agent. Without a data
set the pairs are uniformly random walks ranked by their return; on a token task, correct answers
against those of other prompts.

Several members form an ensemble: each has its own random initialisation and weights the rows of a
minibatch by its own bootstrap sample, so that the members agree on the data and disagree elsewhere.
The reward is their mean, minus `reward_caution` standard deviations.

Source: pairs and ensemble: Christiano et al. 2017, arXiv:1706.03741, eq. 1 and section 2.2.3. On
texts: Stiennon et al. 2020, arXiv:2009.01325, eq. 1. Groups: Plackett 1975. Centring: Eisenstein et
al. 2023, arXiv:2312.09244. Deliberate differences: one member by default; members draw within each
minibatch and not from the whole data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import Agent, Data, Metrics, Parts, State
from rlbook.algorithms.imitation.preference_scores import (
    Actions,
    Observations,
    Preferences,
    batch_scores,
    member_averages,
    member_scores,
    order_pairs,
    ordered_scores,
    step_scores,
)
from rlbook.algorithms.imitation.reward_model_config import RewardModelConfig
from rlbook.algorithms.policy.reference import codec_of
from rlbook.checks import value_at
from rlbook.data.episodes import RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Average, per_token
from rlbook.functional.post_training.preference_losses import (
    bradley_terry_loss,
    centring_loss,
    plackett_luce_loss,
    preference_accuracy,
)
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.build import build_reward_network, refuse_idle
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.networks.policy import load_saved, module_device, saved_tensors
from rlbook.networks.reward_network import Ensemble, RewardNetwork
from rlbook.seeding import rng_for, rng_state, set_rng_state


def reward_model_update(
    network: RewardNetwork,
    optimizer: Optimizer,
    batch: Preferences,
    config: RewardModelConfig,
    rng: Generator,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """One gradient step on pairs or groups; returns the diagnostics.

    Args:
        network, optimizer: changed in place.
        batch: episodes, each pair or group with the better ones first.
        config: hyper-parameters, each schedule at its value.
        rng: draws the rows of the members of an ensemble.
        loss: of the batch; None is `reward_model_loss`.
    """
    averages = member_averages(batch, config.members, rng, module_device(network))
    step_loss = partial(loss or reward_model_loss, network, config=config, averages=averages)
    given = {"max_grad_norm": config.max_grad_norm, "split": "outputs"}
    return mean_metrics([gradient_step(optimizer, step_loss, batch, **given)])


def reward_model_loss(
    network: RewardNetwork,
    batch: Preferences,
    *,
    config: RewardModelConfig,
    averages: Sequence[Average] | None = None,
) -> LossOutput:
    """The mean loss of the members, and how well the scores agree with the preferences.

    Args:
        network: r, of one member or several.
        batch: pairs or groups.
        config: hyper-parameters.
        averages: how each member weights the rows; all alike by default.
    """
    scores = batch_scores(network, batch)  # each [K, B]
    losses = [
        preference_loss(batch, [score[k] for score in scores], average, config)
        for k, average in enumerate(averages or [per_token] * config.members)
    ]
    loss = torch.stack(losses).mean()
    with torch.no_grad():
        better, worse = order_pairs(batch, [score.mean(0) for score in scores])
        metrics = {"loss": loss.detach()}
        if len(better):  # ties alone prefer nothing
            metrics["accuracy"] = preference_accuracy(better, worse)
            metrics["margin"] = (better - worse).mean()
        if config.members > 1:
            metrics["disagreement"] = torch.cat(scores, dim=1).std(0).mean()
    return LossOutput(loss, metrics)


def preference_loss(
    batch: Preferences, scores: Sequence[Tensor], average: Average, config: RewardModelConfig
) -> Tensor:
    """The loss of one member, whose scores of the batch's episodes are given."""
    better, worse = order_pairs(batch, scores)
    if isinstance(batch, RankedBatch):
        grouped, level = batch.group_scores(scores[0]), batch.group_scores(batch.returns)[0]
        loss = plackett_luce_loss(*grouped, level=level.to(grouped[0]), average=average)
        average = per_token
    else:
        margin = config.margin if batch.margin is None else batch.margin.to(better)
        loss = bradley_terry_loss(better, worse, margin=margin, average=average)
    return loss + config.center_coef * centring_loss(better, worse, average=average)


class RewardModel(Agent):
    """A reward learned from preferences; see the module docstring."""

    Config = RewardModelConfig
    batched = True
    observations = "policy"
    seeks_return = False
    prefers = True
    data_kinds, idle_on_groups = ("Pairs", "Groups"), ("margin",)
    uses = ("model", "device")
    budget = {"passes": 20}
    loss = staticmethod(reward_model_loss)
    METRICS = {
        "loss": "-log probability of the preferences, in nats; ln 2 = 0.693 per pair if all "
        "scores are equal",
        "accuracy": "fraction of the minibatch's pairs whose better episode has the higher "
        "score, in [0, 1]",
        "margin": "mean score of the better episode minus that of the worse one",
        "held_out_accuracy": "accuracy on the held-out rows, after each pass",
        "disagreement": "mean standard deviation of an episode's score across the ensemble, in "
        "reward units (ensembles only)",
        "grad_norm": "L2 norm of the gradient before clipping",
    }

    def __init__(
        self,
        env: AdaptedVectorEnv,
        config: RewardModelConfig,
        seed: int = 0,
        parts: Parts = Parts(),
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: RewardModelConfig = config
        self.seed, self.codec, self.drawing = seed, codec_of(env), rng_for(seed, "minibatches")
        rng, sizes = rng_for(seed, "initialisation"), tuple(config.hidden_sizes)
        made = [build_reward_network(env, rng, sizes, parts.model) for _ in range(config.members)]
        self.network = (Ensemble(made) if len(made) > 1 else made[0]).to(parts.device)
        self.judges_episodes = made[0].at_the_end  # or else every step is paid
        refuse_idle(self.network, config)
        group = Group([self.network], weight_decay=config.weight_decay)
        self.optimizer = adam([group], value_at(config.learning_rate, 0.0), eps=config.adam_eps)

    def fit(self, data: Data) -> Iterator[Metrics]:
        held_out = self.hold_out_rows(data)
        for batch in data.minibatches(self.config.batch_size):
            metrics = self.update(batch)
            if len(held_out) and data.passes % 1 == 0:
                accuracy = self.accuracy(data, held_out)
                metrics |= {} if accuracy is None else {"held_out_accuracy": accuracy}
            yield metrics

    @classmethod
    def num_random_episodes(cls, config: RewardModelConfig, minibatches: int) -> int:
        """The number of random episodes for the given number of minibatches, so that each pair is
        read as often as in the default budget. A walk is in four pairs or more; some have equal
        returns or are held out.
        """
        pairs = max(config.batch_size, config.batch_size * minibatches // cls.budget["passes"])
        return max(2, -(-pairs // 2))

    def hold_out_rows(self, data: Data) -> NDArray[np.int64]:
        """Holds out rows from training; the minibatches leave them out from here on."""
        return data.hold_out(self.config.held_out, rng_for(self.seed, "held out"))

    def update(self, batch: Preferences) -> Metrics:
        """One gradient step on pairs or groups."""
        config = self.config.resolve(self.progress)
        self.optimizer.learning_rate = config.learning_rate
        models = self.network, self.optimizer
        return reward_model_update(*models, batch, config, self.drawing, self.loss)

    def score(self, episodes: Batch) -> Tensor:
        """r(τ) of whole episodes: [B], the members' mean."""
        return member_scores(self.network, episodes).mean(0)

    def accuracy(self, data: Data, rows: NDArray[np.int64]) -> float | None:
        """The share of pairs whose scores are in the preferred order; None if all are ties."""
        better, worse = self.ordered_scores(data, rows)
        return float(np.mean(better > worse)) if len(better) else None

    def ordered_scores(
        self, data: Data, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The scores of the better [P] and of the worse [P] of every pair in these rows."""
        return ordered_scores(self.network, data, rows, self.config.batch_size)

    def score_steps(
        self, obs: Observations, action: Actions, next_obs: Observations, done: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The rewards [N] of N steps, and their deviation over members; see `step_scores`."""
        return step_scores(self.network, obs, action, next_obs, done)

    def state_dict(self) -> State:
        return {
            "network": saved_tensors(self.network),
            "optimizer": self.optimizer.state_dict(),
            "drawing": rng_state(self.drawing),
        }

    def load_state_dict(self, state: State) -> None:
        load_saved(self.network, state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        set_rng_state(self.drawing, state["drawing"])
