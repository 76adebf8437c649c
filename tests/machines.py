"""The numeric tests as other processors would run them: `make test-machines`.

Other processors and other libraries add up in another order. Each setting below makes this one do
so too: torch's own kernels (ATEN_CPU_CAPABILITY), the two libraries that multiply torch's matrices
(RLBOOK_MATMUL, and how wide each may compute), numpy's (OPENBLAS_CORETYPE), how many threads share
a sum, and the book alone, without its fast forms. Given settings, as "A=1 B=2", only those run;
`--quick` leaves the thorough tests out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

SETTINGS = (
    "OMP_NUM_THREADS=1",
    "OMP_NUM_THREADS=2",
    "RLBOOK_PLAIN=1",
    "ATEN_CPU_CAPABILITY=default",
    "ATEN_CPU_CAPABILITY=avx2",
    "ATEN_CPU_CAPABILITY=avx512",
    "RLBOOK_MATMUL=mkl",
    "RLBOOK_MATMUL=mkl MKL_ENABLE_INSTRUCTIONS=SSE4_2",
    "RLBOOK_MATMUL=mkl MKL_ENABLE_INSTRUCTIONS=AVX2",
    "RLBOOK_MATMUL=onednn",
    "RLBOOK_MATMUL=onednn ONEDNN_MAX_CPU_ISA=SSE41",
    "RLBOOK_MATMUL=onednn ONEDNN_MAX_CPU_ISA=AVX2",
    "OPENBLAS_CORETYPE=Haswell",
    "OPENBLAS_CORETYPE=SkylakeX",
    "OPENBLAS_CORETYPE=Zen",
)
NEEDS = {
    "ATEN_CPU_CAPABILITY=avx2": "avx2",
    "ATEN_CPU_CAPABILITY=avx512": "avx512f",
    "OPENBLAS_CORETYPE=Haswell": "avx2",
    "OPENBLAS_CORETYPE=SkylakeX": "avx512f",
    "OPENBLAS_CORETYPE=Zen": "avx2",
    "RLBOOK_MATMUL=mkl": "mkl",
    "RLBOOK_MATMUL=onednn": "onednn",
}
"""What the processor or torch has to have; the other variables are upper limits, which any
processor can obey."""

COMMAND = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-n",
    "2",
    "--dist",
    "worksteal",
    "-m",
)
TESTS = "numeric and not slow"
COUNTS = re.compile(r"(\d+) (passed|failed|errors?)\b")


def available() -> set[str]:
    """The processor's flags as Linux lists them, and which matrix libraries this torch has."""
    import torch

    info = Path("/proc/cpuinfo")
    flags = (
        re.search(r"^flags\s*:(.*)$", info.read_text(errors="replace"), re.MULTILINE)
        if info.exists()
        else None
    )
    has = {"mkl": torch.backends.mkl.is_available(), "onednn": torch.backends.mkldnn.is_available()}
    return {*(flags[1].split() if flags else ()), *(name for name, there in has.items() if there)}


def missing(setting: str, available: set[str]) -> list[str]:
    """What the setting needs and this machine lacks."""
    return [
        NEEDS[part] for part in setting.split() if part in NEEDS and NEEDS[part] not in available
    ]


def outcome(output: str, code: int) -> tuple[int, int, str]:
    """How many tests passed and failed, and the names of those that failed.

    Args:
        output: what pytest printed.
        code: its exit code; anything but 0 counts as a failure even where no test says so (a worker
            that was killed).
    """
    lines = output.strip().splitlines()
    counts = {
        word.rstrip("s"): int(number) for number, word in COUNTS.findall(lines[-1] if lines else "")
    }
    failed = counts.get("failed", 0) + counts.get("error", 0)
    names = [line for line in lines if line.startswith(("FAILED ", "ERROR "))] or lines[-20:]
    return (
        counts.get("passed", 0),
        max(failed, int(code != 0)),
        "\n".join(names) if failed or code else "",
    )


def main(arguments: list[str]) -> int:
    here, passed, failed, runs = available(), 0, 0, 0
    tests = TESTS + " and not thorough" if "--quick" in arguments else TESTS
    for setting in [item for item in arguments if item != "--quick"] or SETTINGS:
        if lacking := missing(setting, here):
            print(f"{setting}: passed over, this machine has no {' or '.join(lacking)}", flush=True)
            continue
        start, asked = time.monotonic(), dict(part.split("=", 1) for part in setting.split())
        surroundings = os.environ | {"OMP_NUM_THREADS": "1"} | asked
        done = subprocess.run(
            (*COMMAND, tests),
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        fine, wrong, names = outcome(done.stdout, done.returncode)
        print(
            f"{setting}: {fine} passed, {wrong} failed in {time.monotonic() - start:.0f} s",
            *filter(None, [names]),
            sep="\n",
            flush=True,
        )
        passed, failed, runs = passed + fine, failed + wrong, runs + 1
    print(f"{runs} settings: {passed} passed, {failed} failed")
    return int(failed > 0 or runs == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
