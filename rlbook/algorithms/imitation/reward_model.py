"""Reward model: learn what somebody prefers, as a number.

    for each minibatch of episodes in order of preference
        r(τ) = the sum of r(s, a) over the steps of τ
        minimise  -mean log σ(r(τ_w) - r(τ_l) - m)       pairs: τ_w was preferred to τ_l
        or  -mean Σ_i log( exp r(τ_i) / Σ_{j≥i} exp r(τ_j) )      groups: τ_1 was the best; of
                                                                  ties, j leaves out the others
        plus  c mean (r(τ_w) + r(τ_l))²

The better of two episodes gets the higher score. Only differences count, so the scores have no zero
and no scale of their own; the last term gives them a zero. On the maze r(s, a) is a small MLP. On a
token environment it is 0 until the completion is finished, and then the score of prompt and
completion: a language model's trunk with a linear head, read at the last token. It does not act.
`--reward-model RUN` lets it pay another agent in the environment's place. Without a data set the
pairs are uniformly random walks ranked by their return; on a token task, right answers against
those of other prompts.

Several members are an ensemble: each is made from draws of its own and weighs the rows of each
minibatch as often as it drew them with replacement, so that they agree on what the data say and
disagree elsewhere. What is paid is their mean, less `reward_caution` standard deviations.

Source: pairs and ensemble: Christiano et al. 2017, arXiv:1706.03741, eq. 1 and section 2.2.3. On
texts: Stiennon et al. 2020, arXiv:2009.01325, eq. 1. Groups: Plackett 1975. Centring: Eisenstein et
al. 2023, arXiv:2312.09244. Deliberate differences: one member by default; members draw within each
minibatch and not from the whole data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook import checks
from rlbook.agent import Agent, Data, Metrics, Parts, State
from rlbook.checks import (
    at_least,
    bound,
    non_negative,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.data.episodes import PairedBatch, RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Average, given, per_token
from rlbook.functional.preference_losses import (
    bradley_terry_loss,
    centring_loss,
    plackett_luce_loss,
    preference_accuracy,
)
from rlbook.functional.schedules import Schedule
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.build import build_reward_network, refuse_idle
from rlbook.networks.optimizer import Group, LossOutput, adam, gradient_step, mean_metrics
from rlbook.networks.policy import as_array, load_saved, saved
from rlbook.networks.reward_network import Ensemble, members_of
from rlbook.seeding import rng_for, rng_state, set_rng_state

Preferences = PairedBatch | RankedBatch
Actions = NDArray[np.integer | np.floating]
Observations = NDArray[np.number] | dict[str, NDArray[np.number]]


@dataclass(frozen=True)
class RewardModelConfig(Hyperparameters):
    batch_size: Annotated[int, positive_int] = 64  # pairs or groups of a minibatch
    learning_rate: Annotated[float | Schedule, positive] = 1e-3  # Adam's step size, > 0
    # share of the weights taken off per unit of learning rate; keeps the scores small
    weight_decay: Annotated[float, non_negative] = 0.0
    # by how much the better of a pair should win, in reward units; a column of the data goes before
    margin: Annotated[float, non_negative] = 0.0
    # c, weight of the pairs' squared sums, per reward unit²; needed by an ensemble
    center_coef: Annotated[float, non_negative] = 0.0
    members: Annotated[int, positive_int] = 1  # networks; more than one are an ensemble
    # share of the rows that are not learned from but tested on after each pass, in [0, 1)
    held_out: Annotated[float, unit_interval] = 0.1
    # random walks that are ranked where no data set is named
    walks: Annotated[int, at_least(2)] = 500
    adam_eps: Annotated[float, positive] = 1e-8  # Adam's ε
    max_grad_norm: Annotated[float, bound] = 1.0  # the gradient's L2 norm is clipped to this
    # units of each hidden layer of an MLP
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members > 1 and self.center_coef == 0.0:
            raise ValueError(
                f"center_coef must be above 0 where members is {self.members}: scores without a "
                "zero cannot be compared between members; got 0.0"
            )


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
        "disagreement": "mean standard deviation of the members' scores of an episode, in reward "
        "units (of an ensemble)",
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
        self.seed = seed
        rng = rng_for(seed, "initialisation")
        hidden_sizes = tuple(config.hidden_sizes)
        networks = [
            build_reward_network(env, rng, hidden_sizes, parts.model) for _ in range(config.members)
        ]
        network = networks[0] if config.members == 1 else Ensemble(networks)
        self.network = network.to(parts.device)
        self.drawing = rng_for(seed, "minibatches")
        refuse_idle(self.network, config)
        group = Group([self.network], weight_decay=config.weight_decay)
        self.optimizer = adam([group], checks.at(config.learning_rate, 0.0), eps=config.adam_eps)

    def fit(self, data: Data) -> Iterator[Metrics]:
        held_out = self.held_out(data)
        for batch in data.minibatches(self.config.batch_size):
            metrics = self.train_on(batch)
            if len(held_out) and data.passes % 1 == 0:
                accuracy = self.accuracy(data, held_out)
                metrics |= {} if accuracy is None else {"held_out_accuracy": accuracy}
            yield metrics

    @classmethod
    def walks_needed(cls, config: RewardModelConfig, minibatches: int) -> int:
        """Random walks that so many minibatches are made of, each pair read as often as in the
        default budget. A walk is in four pairs or more; some have equal returns or are held out.
        """
        pairs = max(config.batch_size, config.batch_size * minibatches // cls.budget["passes"])
        return max(2, -(-pairs // 2))

    def held_out(self, data: Data) -> NDArray[np.int64]:
        """The rows that are not learned from; the minibatches leave them out from here on."""
        return data.hold_out(self.config.held_out, rng_for(self.seed, "held out"))

    def train_on(self, batch: Preferences) -> Metrics:
        """One gradient step on pairs or groups."""
        self.optimizer.learning_rate = checks.at(self.config.learning_rate, self.progress)
        longest, averages = self.config.max_grad_norm, self.averages(batch)
        done = gradient_step(
            self.optimizer, lambda rows: self.loss(rows, averages), batch, max_grad_norm=longest
        )
        return mean_metrics([done])

    def averages(self, batch: Preferences) -> list[Average]:
        """How each member weighs the rows of a minibatch: by how often it drew them."""
        if self.config.members == 1:
            return [per_token]
        rows = len(batch.sizes if isinstance(batch, RankedBatch) else batch[0])
        drawn = self.drawing.multinomial(rows, np.full(rows, 1.0 / rows), self.config.members)
        device = self.parts.device
        shares = torch.from_numpy(drawn / rows).to(device, torch.get_default_dtype())
        return [given(share) for share in shares]

    def loss(self, batch: Preferences, averages: Sequence[Average] | None = None) -> LossOutput:
        """The mean loss of the members, and how far the scores already agree with the order.

        Args:
            batch: pairs or groups.
            averages: how each member weighs the rows; all alike by default.
        """
        episodes = [batch.episodes] if isinstance(batch, RankedBatch) else batch[:2]
        scores = [self.scores(rows) for rows in episodes]  # each [K, B]
        weighed = averages or [per_token] * self.config.members
        losses = [
            self.member_loss(batch, [score[k] for score in scores], average)
            for k, average in enumerate(weighed)
        ]
        loss = torch.stack(losses).mean()
        with torch.no_grad():
            better, worse = ordered(batch, [score.mean(0) for score in scores])
            metrics = {"loss": loss.detach()}
            if len(better):  # ties alone prefer nothing
                metrics["accuracy"] = preference_accuracy(better, worse)
                metrics["margin"] = (better - worse).mean()
            if self.config.members > 1:
                metrics["disagreement"] = torch.cat(scores, dim=1).std(0).mean()
        return LossOutput(loss, metrics)

    def member_loss(self, batch: Preferences, scores: Sequence[Tensor], average: Average) -> Tensor:
        """The loss of one member, whose scores of the batch's episodes are given."""
        better, worse = ordered(batch, scores)
        if isinstance(batch, RankedBatch):
            grouped, level = batch.by_group(scores[0]), batch.by_group(batch.returns)[0]
            loss = plackett_luce_loss(*grouped, level=level.to(grouped[0]), average=average)
            average = per_token
        else:
            given_margin = batch.margin
            margin = self.config.margin if given_margin is None else given_margin.to(better)
            loss = bradley_terry_loss(better, worse, margin=margin, average=average)
        return loss + self.config.center_coef * centring_loss(better, worse, average=average)

    def scores(self, episodes: Batch) -> Tensor:
        """r(τ) of whole episodes by each of K members: [K, B], in their own units."""
        episodes = episodes.to(self.parts.device)
        rewards = [network.rewards(episodes) for network in members_of(self.network)]
        return torch.stack(rewards).where(episodes.mask, 0.0).sum(-1)

    def score(self, episodes: Batch) -> Tensor:
        """r(τ) of whole episodes: [B], the members' mean."""
        return self.scores(episodes).mean(0)

    def accuracy(self, data: Data, rows: NDArray[np.int64]) -> float | None:
        """The share of pairs in these rows that the scores order as they were preferred; None where
        all are ties."""
        better, worse = self.ordered_scores(data, rows)
        return float(np.mean(better > worse)) if len(better) else None

    @torch.no_grad()
    def ordered_scores(
        self, data: Data, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The scores of the better [P] and of the worse [P] of every pair in these rows."""
        found = []
        for part in self.portions(rows):
            batch = data[part]
            episodes = [batch.episodes] if isinstance(batch, RankedBatch) else batch[:2]
            found.append(ordered(batch, [self.score(one) for one in episodes]))
        better, worse = (torch.cat(scores).double() for scores in zip(*found, strict=True))
        return as_array(better), as_array(worse)

    def portions(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Rows, a minibatch's number of them at a time."""
        size = self.config.batch_size
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    @torch.no_grad()
    def score_steps(
        self, obs: Observations, action: Actions, next_obs: Observations, over: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The rewards [N] of N steps, and the standard deviation of the members' rewards [N].

        The second is None without an ensemble, and NaN where only the last step is judged and this
        is another one.

        Args:
            obs, next_obs: [N, ...], as this agent sees them.
            action: [N] or [N, A], as this agent would choose them.
            over: [N], whether the step ended its episode.
        """
        device = self.parts.device
        here, there = (_tensors(value, device) for value in (obs, next_obs))
        taken, ended = torch.from_numpy(action).to(device), torch.from_numpy(over).to(device)
        members = members_of(self.network)
        found = torch.stack([member.step_rewards(here, taken, there, ended) for member in members])
        reward = as_array(found.mean(0)).astype(np.float64)
        if len(members) == 1:
            return reward, None
        spread = as_array(found.std(0)).astype(np.float64)
        return reward, np.where(over, spread, np.nan) if members[0].at_the_end else spread

    def state_dict(self) -> State:
        return {
            "network": saved(self.network),
            "optimizer": self.optimizer.state_dict(),
            "drawing": rng_state(self.drawing),
        }

    def load_state_dict(self, state: State) -> None:
        load_saved(self.network, state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        set_rng_state(self.drawing, state["drawing"])


def ordered(batch: Preferences, scores: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The scores of the better [P] and of the worse [P] of every pair in a batch; in a group, ties
    make none."""
    if not isinstance(batch, RankedBatch):
        return scores[0], scores[1]
    (score, mask), level = batch.by_group(scores[0]), batch.by_group(batch.returns)[0]  # [B, G]
    level = level.to(score.device)
    differ = level[:, :, None] != level[:, None, :]
    both = (mask[:, :, None] & mask[:, None, :] & differ).triu(1)  # [B, G, G]
    group, better, worse = both.nonzero(as_tuple=True)
    return score[group, better], score[group, worse]


def _tensors(value: Observations, device: torch.device | str) -> Tensor | dict[str, Tensor]:
    if isinstance(value, dict):
        return {key: torch.from_numpy(part).to(device) for key, part in value.items()}
    return torch.from_numpy(value).to(device)
