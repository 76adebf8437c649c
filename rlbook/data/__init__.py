"""Rollouts, replay buffers and recorded data sets; `rlbook.data.load` reads a data set from a file
or a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbook.data.data_set import DataSet
    from rlbook.data.episodes import Episode, Episodes, Groups, Pairs
    from rlbook.data.files import load
    from rlbook.data.labelled import LabelledEpisodes
    from rlbook.data.transitions import Steps

_NAMES = {
    "load": "rlbook.data.files",
    "DataSet": "rlbook.data.data_set",
    "Episode": "rlbook.data.episodes",
    "Episodes": "rlbook.data.episodes",
    "Pairs": "rlbook.data.episodes",
    "Groups": "rlbook.data.episodes",
    "LabelledEpisodes": "rlbook.data.labelled",
    "Steps": "rlbook.data.transitions",
}

__all__ = ["DataSet", "Episode", "Episodes", "Groups", "LabelledEpisodes", "Pairs", "Steps", "load"]


def __getattr__(name: str) -> Any:
    """Imports submodules lazily: reading files needs torch, which `import rlbook` must not load."""
    import importlib

    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)
