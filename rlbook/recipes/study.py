"""The storage of a search: an Optuna study in one file, to which several processes and machines
append, and which survives them.

Needs `pip install "rlbook[tune]"`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlbook.recipes.pruning import import_optuna, median_pruner
from rlbook.recipes.search_space import Plain
from rlbook.runs.storage.files import CheckpointError, open_to_append, read_file

if TYPE_CHECKING:
    import optuna

JOURNAL, JOURNAL_LIMIT = "study.journal", 2**30  # its name, and its bytes at most
SETTINGS, SCORES, ERROR = "hyperparameters", "scores", "error"
"""A trial's attributes besides Optuna's own: its hyper-parameters, the return on each seed, and why
there is none."""


@contextlib.contextmanager
def open_study(folder: Path, seed: int, index: int) -> Iterator[optuna.Study]:
    """The study in the folder, created if there is none.

    Args:
        folder: where its file lies.
        seed: of the search.
        index: how many trials have ended. With the seed it decides what the sampler draws, so that
            one process finds the same whether it was interrupted or not.
    """
    optuna, verbosity = import_optuna(), None
    check_journal(folder)
    try:
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        journal = optuna.storages.journal
        draws = np.random.SeedSequence([seed, index]).generate_state(1)
        yield optuna.create_study(
            storage=journal.JournalStorage(journal.JournalFileBackend(str(folder / JOURNAL))),
            sampler=optuna.samplers.TPESampler(seed=int(draws[0])),
            pruner=median_pruner(),
            study_name="rlbook",
            direction="maximize",
            load_if_exists=True,
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def repair_journal(folder: Path) -> None:
    """Removes what a killed process left: a partial line, and its lock. Only for a process that
    holds the folder alone."""
    check_journal(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / f"{JOURNAL}.lock")
    path = folder / JOURNAL
    if not path.exists():
        return
    data = read_file(path, JOURNAL_LIMIT)
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with open_to_append(path) as file:
            file.truncate(whole)


def close_open_trials(study: optuna.Study, *, again: bool) -> None:
    """Marks trials that nobody runs any more as interrupted; with `again`, their values are tried
    next."""
    states = import_optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)
        if again and trial.params:
            study.enqueue_trial(trial.params)


def enqueue_first(study: optuna.Study, values: dict[str, Plain] | None) -> None:
    """Makes a new study start with these values, if there are any."""
    if values is not None and not study.get_trials(deepcopy=False):
        study.enqueue_trial(values)


def trials_that_count(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that count: complete or pruned."""
    states = import_optuna().trial.TrialState
    return study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))


def check_journal(folder: Path) -> None:
    """Raises CheckpointError if the study's file is a link."""
    if (folder / JOURNAL).is_symlink():
        raise CheckpointError(f"{folder / JOURNAL} is a link, which is not followed.")
