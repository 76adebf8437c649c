"""A reward model's scores of recorded episodes, in order of preference, and of steps as they
happen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from rlbook.agent import Data
from rlbook.data.episodes import PairedBatch, RankedBatch
from rlbook.data.rollout import Batch
from rlbook.functional.averages import Average, per_token
from rlbook.networks.data_parallel import outputs_of_rows
from rlbook.networks.policy import as_array, module_device
from rlbook.networks.reward_network import RewardNetwork, members_of

Preferences = PairedBatch | RankedBatch
Actions = NDArray[np.integer | np.floating]
Observations = NDArray[np.number] | dict[str, NDArray[np.number]]


def member_scores(network: RewardNetwork, episodes: Batch) -> Tensor:
    """r(τ) of whole episodes by each of K members: [K, B], in their own units."""
    episodes = episodes.to(module_device(network))
    rewards = [member.rewards(episodes) for member in members_of(network)]
    return torch.stack(rewards).where(episodes.mask, 0.0).sum(-1)


def episodes_of(batch: Preferences) -> Sequence[Batch]:
    """The episodes of groups, or the better and the worse episodes of pairs."""
    return [batch.episodes] if isinstance(batch, RankedBatch) else batch[:2]


def batch_scores(network: RewardNetwork, batch: Preferences) -> list[Tensor]:
    """`member_scores` of the groups' episodes, or of the better and the worse ones, for a gradient
    step; several processes may compute them together: [K, B] each."""

    def scores(rows: Batch) -> Tensor:
        return member_scores(network, rows).T

    return [outputs_of_rows(scores, rows).T for rows in episodes_of(batch)]


def order_pairs(batch: Preferences, scores: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The scores of the better [P] and of the worse [P] episode of every pair in a batch; ties in a
    group make no pair."""
    if not isinstance(batch, RankedBatch):
        return scores[0], scores[1]
    (score, mask), level = (
        batch.group_scores(scores[0]),
        batch.group_scores(batch.returns)[0],
    )  # [B, G]
    level = level.to(score.device)
    differ = level[:, :, None] != level[:, None, :]
    both = (mask[:, :, None] & mask[:, None, :] & differ).triu(1)  # [B, G, G]
    group, better, worse = both.nonzero(as_tuple=True)
    return score[group, better], score[group, worse]


def member_averages(
    batch: Preferences, members: int, rng: Generator, device: torch.device | str = "cpu"
) -> list[Average]:
    """How each member weights the rows of a minibatch: by how often it drew them."""
    if members == 1:
        return [per_token]
    rows = len(batch.sizes if isinstance(batch, RankedBatch) else batch[0])
    drawn = rng.multinomial(rows, np.full(rows, 1.0 / rows), members)
    shares = torch.from_numpy(drawn / rows).to(device, torch.get_default_dtype())
    return list(shares)


@torch.no_grad()
def ordered_scores(
    network: RewardNetwork, data: Data, rows: NDArray[np.int64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scores of the better [P] and of the worse [P] of every pair in these rows of the data,
    `size` rows at a time."""
    found = []
    for start in range(0, len(rows), size):
        batch = data[rows[start : start + size]]
        scores = [member_scores(network, one).mean(0) for one in episodes_of(batch)]
        found.append(order_pairs(batch, scores))
    better, worse = (torch.cat(scores).double() for scores in zip(*found, strict=True))
    return as_array(better), as_array(worse)


@torch.no_grad()
def step_scores(
    network: RewardNetwork,
    obs: Observations,
    action: Actions,
    next_obs: Observations,
    done: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The rewards [N] of N steps, and the standard deviation of the members' rewards [N].

    The second is None without an ensemble, and NaN where only the last step is judged and this
    is another one.

    Args:
        network: the reward model's.
        obs, next_obs: [N, ...], as the agent sees them.
        action: [N] or [N, A], as the agent would choose them.
        done: [N], whether the step ended its episode.
    """
    device = module_device(network)
    here, there = (as_tensors(value, device) for value in (obs, next_obs))
    taken, ended = torch.from_numpy(action).to(device), torch.from_numpy(done).to(device)
    members = members_of(network)
    found = torch.stack([member.step_rewards(here, taken, there, ended) for member in members])
    reward = as_array(found.mean(0)).astype(np.float64)
    if len(members) == 1:
        return reward, None
    spread = as_array(found.std(0)).astype(np.float64)
    return reward, np.where(done, spread, np.nan) if members[0].at_the_end else spread


def as_tensors(value: Observations, device: torch.device | str) -> Tensor | dict[str, Tensor]:
    """Observations on a device."""
    if isinstance(value, dict):
        return {key: torch.from_numpy(part).to(device) for key, part in value.items()}
    return torch.from_numpy(value).to(device)
