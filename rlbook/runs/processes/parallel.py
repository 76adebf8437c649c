"""Which runs several processes can share."""

from __future__ import annotations

from rlbook.errors import RequestError
from rlbook.runs.request import Request
from rlbook.runs.sources import ModelSource, Source


def check_parallel(request: Request, source: Source, processes: int) -> None:
    """Raises RequestError unless several processes can take a run's gradient steps together."""
    if isinstance(source, ModelSource):
        reason = "it plans in a model and takes no gradient step"
    elif not request.agent.batched:
        reason = "it learns from one environment, a step at a time"
    else:
        return
    raise RequestError(
        f"{request.algorithm} cannot be shared among {processes} processes: {reason}; run it"
        " without torchrun"
    )
