"""Start-up: a fresh interpreter each time, bare Python's own time taken off."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.timing import Comparison, seconds


def time_new_process(*arguments: str) -> float:
    return seconds(
        lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    )


def compare() -> list[Comparison]:
    bare = statistics.median(time_new_process("-c", "pass") for _ in range(5))
    ours = [time_new_process("-c", "import rlbook") - bare for _ in range(5)]
    peer = [time_new_process("-c", "import stable_baselines3") - bare for _ in range(5)]
    shown = [time_new_process("-m", "rlbook", "--help") for _ in range(5)]
    return [
        Comparison(
            "import rlbook, against import SB3",
            "imports/s",
            [1 / second for second in ours],
            [1 / second for second in peer],
            8,
            f"import rlbook {statistics.median(ours):.3f} s (goal 0.2); rlbook --help"
            f" {statistics.median(shown):.2f} s (goal 1)",
        ),
    ]
