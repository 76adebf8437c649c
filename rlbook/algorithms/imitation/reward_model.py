"""Reward model: learn what somebody prefers, as a number.

    for each minibatch of episodes in order of preference
        r(τ) = the sum of r(s, a) over the steps of τ
        minimise  -mean log σ(r(τ_w) - r(τ_l))           pairs: τ_w was preferred to τ_l
        or  -mean Σ_i log( exp r(τ_i) / Σ_{j≥i} exp r(τ_j) )      groups: τ_1 was the best

The better of two episodes gets the higher score. Only differences count, so the scores have no zero
and no scale of their own. On the maze r(s, a) is a small MLP. On a token environment it is 0 until
the completion is finished, and then the score of prompt and completion: a language model's trunk
with a linear head, read at the last token. It does not act. `--reward-model RUN` lets it pay
another agent in the environment's place. Without a data set the pairs are uniformly random walks
ranked by their return; on a token task, right answers against those of other prompts.

Source: pairs: Christiano et al. 2017, arXiv:1706.03741, eq. 1. On texts: Stiennon et al. 2020,
arXiv:2009.01325, eq. 1. Groups: Plackett 1975. Deliberate difference: one network instead of an
ensemble.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook import checks
from rlbook.agent import Agent, Data, Metrics, Parts, State
from rlbook.data.episodes import RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.preference_losses import (
    bradley_terry_loss,
    plackett_luce_loss,
    preference_accuracy,
)
from rlbook.functional.schedules import Schedule
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.policies.build import build_reward_network, refuse_idle
from rlbook.policies.optimizer import Group, LossOutput, adam, gradient_step, mean_metrics
from rlbook.policies.policy import as_array, load_saved, saved
from rlbook.seeding import rng_for

Preferences = tuple[Batch, Batch] | RankedBatch
Actions = NDArray[np.integer | np.floating]
Observations = NDArray[np.number] | dict[str, NDArray[np.number]]


@dataclass(frozen=True)
class RewardModelConfig:
    batch_size: int = 64  # pairs or groups of a minibatch
    learning_rate: float | Schedule = 1e-3  # Adam's step size, > 0
    # share of the weights taken off per unit of learning rate; keeps the scores small
    weight_decay: float = 0.0
    margin: float = 0.0  # by how much the better of a pair should win, in reward units
    # share of the rows that are not learned from but tested on after each pass, in [0, 1)
    held_out: float = 0.1
    walks: int = 500  # random walks that are ranked where no data set is named
    adam_eps: float = 1e-8  # Adam's ε
    max_grad_norm: float = 1.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: tuple[int, ...] = (64, 64)  # units of each hidden layer of an MLP

    def __post_init__(self) -> None:
        checks.check_fields(
            self, batch_size=checks.positive_int, weight_decay=checks.non_negative,
            margin=checks.non_negative,
            held_out=checks.unit_interval, walks=checks.at_least(2), adam_eps=checks.positive,
            max_grad_norm=checks.bound, hidden_sizes=checks.positive_ints,
        )  # fmt: skip
        checks.check_rates(self, learning_rate=checks.positive)


class RewardModel(Agent):
    """A reward learned from preferences; see the module docstring."""

    Config = RewardModelConfig
    batched = True
    observations = "policy"
    seeks_return = False
    prefers = True
    data_kinds = ("Pairs", "Groups")
    uses = ("model", "device")
    budget = {"passes": 20}
    METRICS = {
        "loss": "-log of the probability of the preferences, in nats; ln 2 = 0.693 a pair where "
        "all scores are equal",
        "accuracy": "share of the pairs in the minibatch whose better episode has the higher "
        "score, in [0, 1]",
        "margin": "mean score of the better episode minus that of the worse one",
        "held_out_accuracy": "the accuracy on the rows that are not learned from, after each pass",
        "grad_norm": "L2 norm of the gradient before clipping",
    }

    def __init__(
        self, env: AdaptedVectorEnv, config: RewardModelConfig, seed: int = 0,
        parts: Parts = Parts(),
    ) -> None:  # fmt: skip
        super().__init__(env, config, seed, parts)
        self.config: RewardModelConfig = config
        self.seed = seed
        rng = rng_for(seed, "initialisation")
        hidden_sizes = tuple(config.hidden_sizes)
        network = build_reward_network(env, rng, hidden_sizes, parts.model)
        self.network = network.to(parts.device)
        refuse_idle(self.network, config)
        group = Group([self.network], weight_decay=config.weight_decay)
        self.optimizer = adam([group], checks.at(config.learning_rate, 0.0), eps=config.adam_eps)

    def fit(self, data: Data) -> Iterator[Metrics]:
        held_out = data.hold_out(self.config.held_out, rng_for(self.seed, "held out"))
        for batch in data.minibatches(self.config.batch_size):
            metrics = self.train_on(batch)
            if len(held_out) and data.passes % 1 == 0:
                metrics["held_out_accuracy"] = self.accuracy(data, held_out)
            yield metrics

    def train_on(self, batch: Preferences) -> Metrics:
        """One gradient step on pairs or groups."""
        self.optimizer.learning_rate = checks.at(self.config.learning_rate, self.progress)
        longest = self.config.max_grad_norm
        done = gradient_step(self.optimizer, self.loss, batch, max_grad_norm=longest)
        return mean_metrics([done])

    def loss(self, batch: Preferences) -> LossOutput:
        """The loss of pairs or groups, and how far the scores already agree with them."""
        if isinstance(batch, RankedBatch):
            score, mask = batch.by_group(self.score(batch.episodes))
            loss, (better, worse) = plackett_luce_loss(score, mask), pairs_of(score, mask)
        else:
            better, worse = self.score(batch[0]), self.score(batch[1])
            loss = bradley_terry_loss(better, worse, margin=self.config.margin)
        with torch.no_grad():
            accuracy, margin = preference_accuracy(better, worse), (better - worse).mean()
        return LossOutput(loss, {"loss": loss.detach(), "accuracy": accuracy, "margin": margin})

    def score(self, episodes: Batch) -> Tensor:
        """r(τ) of whole episodes: [B], in the model's own units, with gradients."""
        episodes = episodes.to(self.parts.device)
        return self.network.rewards(episodes).where(episodes.mask, 0.0).sum(-1)

    @torch.no_grad()
    def accuracy(self, data: Data, rows: NDArray[np.int64]) -> float:
        """The share of pairs in these rows that the scores order as they were preferred."""
        size = self.config.batch_size
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        right = [float(self.loss(data[part]).metrics["accuracy"]) * len(part) for part in parts]
        return sum(right) / len(rows)

    @torch.no_grad()
    def reward(
        self, obs: Observations, action: Actions, next_obs: Observations, over: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """The rewards [N] of N steps.

        Args:
            obs, next_obs: [N, ...], as this agent sees them.
            action: [N] or [N, A], as this agent would choose them.
            over: [N], whether the step ended its episode.
        """
        device = self.parts.device
        here, there = (_tensors(value, device) for value in (obs, next_obs))
        taken, ended = torch.from_numpy(action).to(device), torch.from_numpy(over).to(device)
        found = self.network.step_rewards(here, taken, there, ended)
        return as_array(found).astype(np.float64)

    def state_dict(self) -> State:
        return {"network": saved(self.network), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        load_saved(self.network, state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


def pairs_of(score: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Every pair within the groups, [B, G] → the scores of the better [P] and of the worse [P]."""
    both = (mask[:, :, None] & mask[:, None, :]).triu(1)  # [B, G, G]
    group, better, worse = both.nonzero(as_tuple=True)
    return score[group, better], score[group, worse]


def _tensors(value: Observations, device: torch.device | str) -> Tensor | dict[str, Tensor]:
    if isinstance(value, dict):
        return {key: torch.from_numpy(part).to(device) for key, part in value.items()}
    return torch.from_numpy(value).to(device)
