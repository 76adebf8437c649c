"""Recorded transitions, for learning values from data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from rlbook.data.data_set import DataSet, Rows
from rlbook.data.episodes import Episode, digest_of, masks_of
from rlbook.data.replay import Transitions


class Steps(DataSet[Transitions]):
    """Recorded episodes as single steps; a row is one step, a batch is B transitions.

    Args:
        episodes: with rewards; one that was cut off says what was seen last.
        digest: the sha256 of the content, where it is known without reading all of it again.

    Raises:
        ValueError: the episodes are texts, have no rewards, have actions that are neither numbered
            nor vectors or not all alike, or lack what was seen last.
    """

    def __init__(self, episodes: Sequence[Episode], *, digest: str | None = None) -> None:
        super().__init__(digest)
        if not len(episodes):
            raise ValueError("a data set must have at least one episode, got none")
        for number, episode in enumerate(episodes):
            _check(number, episode, episodes[0].action)
        self.episodes = episodes
        reward = [episode.reward for episode in episodes if episode.reward is not None]
        over = [np.arange(len(episode.action)) == len(episode.action) - 1 for episode in episodes]
        ended = [last & episode.terminated for last, episode in zip(over, episodes, strict=True)]
        masks = masks_of(episodes) or ()
        allowed = ([each[:-1] for each in masks], [each[1:] for each in masks]) if masks else ()
        fields = (
            [each.obs for each in episodes],
            [each.action for each in episodes],
            reward,
            [_next_observations(each) for each in episodes],
            ended,
            *allowed,
        )
        self.rows = Transitions(*(torch.from_numpy(np.concatenate(parts)) for parts in fields))

    def __len__(self) -> int:
        return len(self.rows.reward)

    def __getitem__(self, rows: Rows) -> Transitions:
        index = torch.from_numpy(np.asarray(rows))
        return self.rows.map_fields(lambda field: field[index])

    def _compute_digest(self) -> str:
        last = b"".join(
            b"" if each.last_obs is None else each.last_obs.tobytes() for each in self.episodes
        )
        return hashlib.sha256(digest_of(self.episodes).encode() + last).hexdigest()


def _next_observations(episode: Episode) -> np.ndarray:
    """The observation after each step [T, ...]; after a termination it is never used, so its value
    is arbitrary."""
    last = np.zeros_like(episode.obs[0]) if episode.last_obs is None else episode.last_obs
    return np.concatenate([episode.obs[1:], last[None]])


def _check(number: int, episode: Episode, first: np.ndarray) -> None:
    where = f"episode {number} of the data"
    if episode.is_text:
        raise ValueError(f"{where} is a text, but values are learned from single steps")
    if episode.reward is None:
        raise ValueError(f"{where} was recorded without rewards, which learning values requires")
    numbered = episode.action.ndim == 1 and episode.action.dtype.kind in "iu"
    if not numbered and not (episode.action.ndim == 2 and episode.action.dtype.kind == "f"):
        raise ValueError(
            f"{where} has actions of shape {list(episode.action.shape[1:])} and type"
            f" {episode.action.dtype}; they must be whole numbers, or vectors of float32"
        )
    if episode.action.shape[1:] != first.shape[1:]:
        raise ValueError(
            f"{where} has actions of shape {list(episode.action.shape[1:])}, and episode 0 of"
            f" {list(first.shape[1:])}"
        )
    if not episode.terminated and episode.last_obs is None:
        raise ValueError(f"{where} was truncated and lacks its last observation")
