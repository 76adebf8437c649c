"""The process of one trial of a search, or of one run of a chosen trial: prints the result as JSON,
and ends together with the process that started it."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.processes import end_with_parent
from rlbook.recipes.tuning import run_command
from rlbook.runs.processes.interrupts import Interrupted, signal_of
from rlbook.runs.storage.files import CheckpointError


def main(words: Sequence[str]) -> int:
    """Runs FOLDER and the arguments of `run_command`, with --allow-import if modules may be
    imported. Returns the exit code."""
    folder, *rest = words
    trusted = "--allow-import" in rest
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is not a result
            facts = run_command(
                Path(folder),
                [word for word in rest if word != "--allow-import"],
                allow_import=trusted,
            )
    except KeyboardInterrupt as stop:
        return 128 + signal_of(stop)
    except (RequestError, TrainingError, CheckpointError) as error:
        facts = {"error": str(error)}
    print(json.dumps(facts), flush=True)
    return 0


def _stop(signum: int, _frame: FrameType | None) -> None:
    raise Interrupted(signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    end_with_parent()
    sys.exit(main(sys.argv[1:]))
