"""Presets by model size: default training settings for large language models.

The presets of the environments were made for the small model that ships. A model of a hundred
million weights takes a thousand times as long for a token, does not fit into memory with a whole
round's gradient, and is destroyed by a step of 4e-4: one step of Adam of 1e-5 on all weights moved
a token's log-probability by 1.7 nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlbook.agent import Agent
from rlbook.llm.models.model_folder import FolderError, weight_shapes
from rlbook.networks.model_spec import ModelSpec


class Size(NamedTuple):
    """A range of model sizes, and its settings."""

    least: int  # weights from which on they hold
    settings: Mapping[str, int]


SIZES = (
    Size(
        10**9,
        {
            "num_envs": 16,
            "group_size": 4,
            "micro_batch_size": 1,
            "eval_episodes": 16,
            "steps": 10_000,
        },
    ),
    Size(
        2 * 10**7,
        {
            "num_envs": 16,
            "group_size": 4,
            "micro_batch_size": 4,
            "eval_episodes": 16,
            "steps": 10_000,
        },
    ),
)
"""The largest first."""
RATE = 1e-6
"""Learning rate of all weights from the model's own samples."""
DATA_RATE = 1e-5
"""Learning rate of all weights from recorded data."""
PART_RATE = 1e-4
"""Learning rate of an adapter, or of a part of the weights."""


def size_preset(folder: object, spec: ModelSpec | None, agent: type[Agent]) -> dict[str, Any]:
    """The settings for an agent with the model of a folder, including options of a run; {} for a
    small model or without a folder.

    Args:
        folder: what the environment calls its model.
        spec: what of it is trained, and how.
        agent: an algorithm.
    """
    if not isinstance(folder, str | Path) or not (Path(folder) / "config.json").is_file():
        return {}
    try:
        weights = sum(math.prod(shape) for shape in weight_shapes(Path(folder)).values())
    except (FolderError, OSError):  # without weights, or damaged: whoever loads it says so
        return {}
    size = next((size for size in SIZES if weights >= size.least), None)
    if size is None:
        return {}
    whole = spec is None or spec.trained_parts == "all"
    learns_from_data = agent.sources() == ("data",)
    rate = (DATA_RATE if learns_from_data else RATE) if whole else PART_RATE
    fields = agent.Config.__dataclass_fields__
    options = (
        {"eval_episodes"}
        | ({"num_envs"} if agent.batched else set())
        | (set() if learns_from_data else {"steps"})
    )
    return {
        name: value
        for name, value in {**size.settings, "learning_rate": rate}.items()
        if name in options or name in fields
    }
