"""The data that `fit` learns from: recorded episodes, preference pairs, and groups ranked by
preference.

An episode is the same thing everywhere: observations and the actions taken. On the maze the
observations are vectors, one a step; a text's are its prompt alone, since the completion's tokens
are the actions and make the later observations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook.data.data_set import DataSet, Rows
from rlbook.data.rollout import Batch
from rlbook.data.token_masks import counting_mask, non_padding_mask


@dataclass(frozen=True)
class Episode:
    """T actions and the observations in which they were taken."""

    obs: NDArray[np.generic]  # [T, O], one row a step; or [L] int64, the tokens of a prompt
    action: NDArray[np.generic]  # [T] or [T, A]
    reward: NDArray[np.float32] | None = None  # [T], in reward units; None if there are no rewards
    terminated: bool = True  # False: cut off by a limit
    # [O], the observation after the last action; None if it was not stored
    last_obs: NDArray[np.generic] | None = None
    # [T], which actions to learn from, such as the assistant's turns of a chat; None: all
    counts: NDArray[np.bool_] | None = None
    # [T + 1, A], the actions allowed at each observation, `last_obs` included; None: all
    action_masks: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if not len(self.action):
            raise ValueError("an episode must have at least one action")
        if self.counts is not None and not self.is_text:
            raise ValueError("counts apply only to texts; in other episodes every action counts")
        if self.counts is not None and (
            self.counts.shape != (len(self.action),) or not self.counts.any()
        ):
            raise ValueError(
                f"counts must mark some of the {len(self.action)} actions, got"
                f" {self.counts.tolist()}"
            )
        masks = self.action_masks
        if masks is not None and not (
            masks.shape == (len(self.action) + 1, masks.shape[-1])
            and masks.dtype == np.bool_
            and masks.any(axis=1).all()
        ):
            raise ValueError(
                f"action_masks must be bool [{len(self.action) + 1}, A] and allow an action in"
                f" every row, got {masks.dtype} {list(masks.shape)}"
            )
        if not self.is_text and len(self.obs) != len(self.action):
            raise ValueError(
                f"an episode must have an observation for each of its {len(self.action)} actions,"
                f" got {len(self.obs)}"
            )

    @property
    def is_text(self) -> bool:
        """Whether the observations are a prompt."""
        return self.obs.ndim == 1

    @property
    def episode_return(self) -> float:
        """The undiscounted return, in reward units."""
        if self.reward is None:
            raise ValueError("this episode was recorded without rewards")
        return float(self.reward.sum())

    def digest(self) -> bytes:
        """The sha256 of the episode without `last_obs`, which no row of `Episodes` uses."""
        parts = [
            self.obs,
            self.action,
            np.array([self.terminated]),
            *(part for part in (self.reward, self.counts, self.action_masks) if part is not None),
        ]
        hashed = hashlib.sha256()
        for array in parts:
            hashed.update(
                f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
            )
        return hashed.digest()


def collate(episodes: Sequence[Episode]) -> Batch:
    """Collates B episodes into a batch [B, T], T being the longest length; shorter episodes are
    padded with 0 and masked.

    Nobody knows with which probability the actions were drawn: `log_prob` is NaN.
    """
    length = torch.tensor([len(episode.action) for episode in episodes])
    mask = token_mask = non_padding_mask(length)
    if all(episode.counts is None for episode in episodes):
        token_mask = None
    else:
        mask = counting_mask([episode.counts for episode in episodes], mask)
    action = _pad([episode.action for episode in episodes])
    if episodes[0].is_text:
        prompts = [episode.obs for episode in episodes]
        obs = {
            "tokens": _pad(prompts),
            "length": torch.tensor([len(prompt) for prompt in prompts]),
        }
    else:
        obs = _pad([episode.obs for episode in episodes])
    allowed = masks_of(episodes)
    return Batch(
        obs=obs,
        action=action,
        log_prob=torch.full(mask.shape, torch.nan),
        mask=mask,
        token_mask=token_mask,
        # in padding nobody acts, and everything is allowed
        action_mask=None if allowed is None else ~_pad([~masks[:-1] for masks in allowed]),
    )


def masks_of(episodes: Sequence[Episode]) -> list[NDArray[np.bool_]] | None:
    """The masks [T + 1, A] of each episode; None if none has any, and one without allows all."""
    known = next((each.action_masks for each in episodes if each.action_masks is not None), None)
    if known is None:
        return None
    return [
        np.ones((len(each.action) + 1, known.shape[1]), dtype=bool)
        if each.action_masks is None
        else each.action_masks
        for each in episodes
    ]


def _pad(arrays: Sequence[NDArray[np.generic]]) -> Tensor:
    """Arrays [T_i, ...] as one tensor [B, T, ...], padded with 0."""
    out = np.zeros(
        (len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), dtype=arrays[0].dtype
    )
    for row, array in zip(out, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(out)


class Episodes(DataSet[Batch]):
    """Recorded episodes; a row is one step (batches [B]) or one episode (batches [B, T] with a
    mask).

    Args:
        episodes: read when they are asked for, so that they may lie in a file; steps are kept in
            memory.
        unit: what a row is. None: episodes of texts, steps of everything else, as the policies take
            them.
        digest: the sha256 of the content, where it is known without reading all of it again.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        *,
        unit: Literal["step", "episode"] | None = None,
        digest: str | None = None,
    ) -> None:
        super().__init__(digest)
        if not len(episodes):
            raise ValueError("a data set must have at least one episode, got none")
        self.episodes = episodes
        self.known_digest = digest  # None where it would have to be computed
        self.unit = unit or ("episode" if episodes[0].is_text else "step")
        if self.unit == "step" and episodes[0].is_text:
            raise ValueError("unit must be 'episode' for texts, got 'step'")
        if self.unit == "step":
            # [S, O]
            self._obs = torch.from_numpy(np.concatenate([episode.obs for episode in episodes]))
            # [S] or [S, A]
            self._action = torch.from_numpy(
                np.concatenate([episode.action for episode in episodes])
            )
            masks = masks_of(episodes)
            self._action_mask = (  # [S, A]
                None
                if masks is None
                else torch.from_numpy(np.concatenate([each[:-1] for each in masks]))
            )

    def __len__(self) -> int:
        return len(self._action) if self.unit == "step" else len(self.episodes)

    def __getitem__(self, rows: Rows) -> Batch:
        if self.unit == "episode":
            return collate([self.episodes[int(row)] for row in rows])
        index = torch.from_numpy(np.asarray(rows))
        unknown, mask = (
            torch.full((len(index),), torch.nan),
            torch.ones(len(index), dtype=torch.bool),
        )
        return Batch(
            obs=self._obs[index],
            action=self._action[index],
            log_prob=unknown,
            mask=mask,
            action_mask=None if self._action_mask is None else self._action_mask[index],
        )

    def _compute_digest(self) -> str:
        return digest_of(self.episodes)


class PairedBatch(NamedTuple):
    """P pairs of episodes: row i of `better` is preferred to row i of `worse`."""

    better: Batch
    worse: Batch
    # [P] float32, by how much the better one should win, in reward units
    margin: Tensor | None = None


class Pairs(DataSet[PairedBatch]):
    """Pairs of episodes: row i of the first batch is preferred to row i of the second.

    Args:
        better, worse: equally many episodes.
        margins: for each pair, by how much the better one should win, in reward units; None: nobody
            says.
        digest: as in `Episodes`.
    """

    def __init__(
        self,
        better: Sequence[Episode],
        worse: Sequence[Episode],
        *,
        margins: Sequence[float] | None = None,
        digest: str | None = None,
    ) -> None:
        super().__init__(digest)
        if len(better) != len(worse) or not len(better):
            raise ValueError(
                "pairs need as many better episodes as worse ones, and at least one, got"
                f" {len(better)} and {len(worse)}"
            )
        if margins is not None and len(margins) != len(better):
            raise ValueError(f"pairs need one margin each, got {len(margins)} for {len(better)}")
        self.better, self.worse, self.margins = better, worse, margins

    def __len__(self) -> int:
        return len(self.better)

    def __getitem__(self, rows: Rows) -> PairedBatch:
        better, worse = (
            collate([episodes[int(row)] for row in rows]) for episodes in (self.better, self.worse)
        )
        margin = (
            None if self.margins is None else torch.tensor([self.margins[int(row)] for row in rows])
        )
        return PairedBatch(better, worse, margin)

    def _compute_digest(self) -> str:
        found = digest_of([*self.better, *self.worse])
        if self.margins is None:
            return found
        margins = np.array(list(self.margins)).tobytes()
        return hashlib.sha256(found.encode() + margins).hexdigest()

    @classmethod
    def from_ranked(
        cls, episodes: Sequence[Episode], rng: np.random.Generator, *, per_episode: int = 4
    ) -> Pairs:
        """Builds pairs from episodes with rewards: each episode is compared with `per_episode`
        others drawn by `rng`, and the one with the larger return is preferred.

        Equal returns make no pair.

        Raises:
            ValueError: all returns are equal.
        """
        returns = np.array([episode.episode_return for episode in episodes])
        first = np.repeat(np.arange(len(episodes)), per_episode)
        second = rng.integers(len(episodes), size=len(first))
        better, worse = np.where(returns[first] > returns[second], [first, second], [second, first])
        differ = returns[first] != returns[second]
        if not differ.any():
            raise ValueError("episodes cannot be ranked: all have the same return")
        return cls([episodes[i] for i in better[differ]], [episodes[i] for i in worse[differ]])


class RankedBatch(NamedTuple):
    """Groups of episodes, the best of each first."""

    episodes: Batch  # [R, T], group by group
    sizes: Tensor  # int64 [B], episodes of each group; R is their sum
    # [R], the episodes' scores; without rewards, minus their ranks 0, 1, … in the group
    returns: Tensor

    def group_scores(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """The episodes' scores [R] as [B, G], and a bool mask; G is the size of the largest
        group."""
        mask = (torch.arange(int(self.sizes.max())) < self.sizes[:, None]).to(score.device)
        return (
            torch.zeros(mask.shape, dtype=score.dtype, device=score.device).masked_scatter(
                mask, score
            ),
            mask,
        )

    def best_episodes(self, count: int) -> RankedBatch:
        """The first `count` episodes of each group; all of a smaller group."""
        place = torch.cat([torch.arange(int(size)) for size in self.sizes])
        kept = place < count
        return RankedBatch(self.episodes[kept], self.sizes.clamp(max=count), self.returns[kept])


class Groups(DataSet[RankedBatch]):
    """Groups of episodes ranked by preference, such as several answers to one prompt. A pair is a
    group of two.

    Args:
        groups: the episodes of each group, best first, at least two.
        digest: as in `Episodes`.
    """

    def __init__(self, groups: Sequence[Sequence[Episode]], *, digest: str | None = None) -> None:
        super().__init__(digest)
        if not len(groups):
            raise ValueError("a data set must have at least one group, got none")
        self.groups = groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, rows: Rows) -> RankedBatch:
        groups = [self.groups[int(row)] for row in rows]
        sizes = torch.tensor([len(group) for group in groups])
        scores = [_score(episode, place) for group in groups for place, episode in enumerate(group)]
        return RankedBatch(
            collate([episode for group in groups for episode in group]), sizes, torch.tensor(scores)
        )

    @classmethod
    def from_ranked(cls, episodes: Sequence[Episode], size: int) -> Groups:
        """Builds groups of `size` from consecutive episodes with rewards, ranked by return; a
        remainder is dropped.

        Raises:
            ValueError: the episodes have no rewards, or do not fill one group.
        """
        starts = range(0, len(episodes) - size + 1, size)
        groups = [[episodes[i] for i in range(start, start + size)] for start in starts]
        return cls([sorted(group, key=lambda episode: -episode.episode_return) for group in groups])

    def _compute_digest(self) -> str:
        sizes = np.array([len(group) for group in self.groups])
        found = digest_of([episode for group in self.groups for episode in group])
        return hashlib.sha256(sizes.tobytes() + found.encode()).hexdigest()


def _score(episode: Episode, place: int) -> float:
    """The score of an episode within its group: its return, or a number derived from its rank."""
    return float(-place) if episode.reward is None else episode.episode_return


def digest_of(episodes: Sequence[Episode]) -> str:
    """The sha256 of a sequence of episodes."""
    hashed = hashlib.sha256()
    for episode in episodes:
        hashed.update(episode.digest())
    return hashed.hexdigest()
