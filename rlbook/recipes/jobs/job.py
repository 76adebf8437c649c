"""The input and the output of writing a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rlbook.recipes.jobs.job_fields import JobFields
from rlbook.runs.request import Request
from rlbook.runs.run import Run

TARGETS = {"trl": "TRL", "verl": "verl", "llamafactory": "LLaMA-Factory"}
"""The value of `--job` → the library's own name."""


@dataclass
class Job:
    """The input from which a job is written."""

    target: str  # "trl", "verl" or "llamafactory"
    request: Request
    env: Any  # the token environment of the training split
    held_out: Any  # and of the held-out one
    fields: JobFields
    folder: Path  # where the files go
    home: Path  # what that folder will be called
    begun: Run | None = None  # a run at a checkpoint, whose weights the job begins with
    model: str = "model"  # the folder of the weights, beside the job's files or elsewhere
    modules: list[str] = field(default_factory=list)
    """Files that the rewards use, such as a sandbox."""
    differences: list[str] = field(default_factory=list)
    """Differences of the target, whatever the settings."""

    @property
    def name(self) -> str:
        """The target library's own name."""
        return TARGETS[self.target]

    @cached_property
    def run(self) -> Run:
        """The run at its start, or at the checkpoint. It holds the weights and the optimiser; a job
        that refers to a model's folder does not need it."""
        return self.begun or Run(self.request)

    @property
    def rules(self) -> Any:
        """The environment's rules: prompts, rewards, limits."""
        return self.env.rules

    @property
    def from_rows(self) -> bool:
        """Whether the run learns from a named data set."""
        return self.request.options.data is not None

    def write(self, name: str, text: str) -> None:
        """Writes one of the job's files."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@dataclass
class WrittenJob:
    """The output of a job's writer."""

    method: str  # in the target's words
    one_gpu: str  # the command
    eight_gpus: str
    install: str
    files: dict[str, str]  # name → what it is


def count_text(number: int) -> str:
    """The number of rows in a file, as text for the list of files."""
    return f"{number:,} row{'s' if number != 1 else ''}"
