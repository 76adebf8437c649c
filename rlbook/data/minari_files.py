"""Reads and writes recorded episodes in Farama's Minari format, through the Minari library."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.envs.registration import EnvSpec

from rlbook.agent import ACTION_MASK
from rlbook.data.episodes import Episode
from rlbook.data.recorded import RecordedEpisode, stack_values, to_episode
from rlbook.data.text_files import require_module
from rlbook.envs.masked_observations import keys_beside_mask, space_beside_mask, split_observation
from rlbook.errors import RequestError, system_reason
from rlbook.interaction.action_masks import checked_mask
from rlbook.interaction.spaces import Adaptation

METADATA = "metadata.json"


def data_folder(path: Path) -> Path | None:
    """The folder of the Minari data set in `path` (its subfolder `data`, or `path` itself); None
    without one."""
    return next((folder for folder in (path / "data", path) if (folder / METADATA).is_file()), None)


def write_minari(path: Path, episodes: Iterable[RecordedEpisode], env: Env, *, policy: str) -> int:
    """Writes a data set that `minari.MinariDataset(path / "data")` reads. Returns the number of
    steps.

    Args:
        path: a folder that does not exist, or is empty.
        episodes: taken one by one.
        env: where they were recorded; its spec and its spaces are kept with them.
        policy: who acted, for people.

    Raises:
        RequestError: minari is not installed, or the folder cannot be written.
    """
    storage_class = require_module(
        "minari.dataset.minari_storage", "a Minari data set"
    ).MinariStorage
    buffer = require_module(
        "minari.data_collector.episode_buffer", "a Minari data set"
    ).EpisodeBuffer
    folder = path.absolute() / "data"  # the library joins a relative path to itself
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RequestError(f"cannot write to {path}: {system_reason(error)}") from None
    storage = storage_class.new(
        folder,
        env.observation_space,
        env.action_space,
        env_spec=_writable_spec(env),
        data_format="arrow",
        jpeg_encoding=False,
    )
    version = require_module("minari", "a Minari data set").__version__
    storage.update_metadata(
        {
            "dataset_id": f"rlbook/{path.name}-v0",
            "algorithm_name": policy,
            "minari_version": version,
        }
    )
    # or each episode would measure all files again; they are measured once, at the end
    storage.get_size = lambda: 0
    steps = 0
    for number, episode in enumerate(episodes):
        length = len(episode.actions)
        ends = np.arange(length) == length - 1
        storage.update_episodes(
            [
                buffer(
                    id=number,
                    seed=episode.seed,
                    observations=stack_values(env.observation_space, episode.observations),
                    actions=stack_values(env.action_space, episode.actions),
                    rewards=list(map(float, episode.rewards)),
                    terminations=list(ends & episode.terminated),
                    truncations=list(ends & episode.truncated),
                    infos=None
                    if episode.action_masks is None
                    else {ACTION_MASK: episode.action_masks},
                )
            ]
        )
        steps += length
    del storage.get_size
    storage.update_metadata({"dataset_size": storage.get_size()})
    return steps


def _writable_spec(env: Env) -> EnvSpec | None:
    """The spec of an environment, if it can be written: not if the id stands for a class or a
    function of a program, or an argument is an object."""
    spec = env.spec
    if spec is None or spec.kwargs is None:
        return None
    try:
        spec.to_json()
    except (TypeError, ValueError):
        return None
    return spec


def read_minari(
    folder: Path, adaptation: Adaptation, raw_spaces: tuple[spaces.Space, spaces.Space]
) -> tuple[list[Episode], str]:
    """The episodes of a Minari data set in the agent's format, and the sha256 of its files.

    Args:
        folder: see `data_folder`.
        adaptation: how the agent's environment translates observations and actions.
        raw_spaces: the environment's own observation and action space; the data set's must equal
            them, except that its observations may hold their action masks beside what is shown.

    Raises:
        RequestError: it cannot be read, or it is of another environment.
    """
    minari = require_module("minari", "a Minari data set")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = minari.MinariDataset(folder)
            shown, holds_masks = data.observation_space, False
            if keys_beside_mask(shown, data.action_space) and shown != raw_spaces[0]:
                shown, holds_masks = space_beside_mask(shown), True
            for name, found, wanted in zip(
                ("observations", "actions"), (shown, data.action_space), raw_spaces, strict=True
            ):
                if found != wanted:
                    raise RequestError(
                        f"data: {folder} has {name} of {found}, and the environment's are of"
                        f" {wanted}"
                    )
            return [
                _to_episode(episode, adaptation, raw_spaces[1], holds_masks)
                for episode in data.iterate_episodes()
            ], _digest(folder)
    except (OSError, ValueError, KeyError, TypeError, AssertionError, ImportError) as error:
        if isinstance(error, RequestError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
        raise RequestError(
            f"data: {folder} is not a Minari data set that can be read: {reason}"
        ) from None


def _to_episode(
    episode: Any, adaptation: Adaptation, action_space: spaces.Space, holds_masks: bool
) -> Episode:
    """Converts one of Minari's `EpisodeData`, whose masks are in its observations or in its infos,
    to the agent's format."""
    terminated, observations, masks = bool(episode.terminations[-1]), episode.observations, None
    if holds_masks:
        observations, masks = split_observation(observations)
    elif isinstance(action_space, spaces.Discrete):
        masks = (episode.infos or {}).get(ACTION_MASK)
    if masks is not None:
        assert isinstance(action_space, spaces.Discrete)
        masks = checked_mask(masks, int(action_space.n), ndim=2)
        masks = masks | ~masks.any(axis=1, keepdims=True)  # as at an end, where nobody acts
    return to_episode(
        observations,
        episode.actions,
        episode.rewards,
        terminated,
        adaptation,
        action_space,
        masks,
    )


def _digest(folder: Path) -> str:
    hashed = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hashed.update(
            str(path.relative_to(folder)).encode()
            + b"\0"
            + hashlib.sha256(path.read_bytes()).digest()
        )
    return hashed.hexdigest()
