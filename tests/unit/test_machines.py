"""`make test-machines`: a setting that this machine cannot do is passed over, and nothing that goes
wrong counts as passed."""

from __future__ import annotations

import sys

import machines
import pytest


def test_a_setting_that_needs_what_the_processor_lacks_is_passed_over() -> None:
    assert machines.missing("ATEN_CPU_CAPABILITY=avx512", {"avx2"}) == ["avx512f"]
    assert machines.missing("RLBOOK_MATMUL=onednn ONEDNN_MAX_CPU_ISA=AVX2", {"avx2", "mkl"}) == [
        "onednn"
    ]
    assert machines.missing("ATEN_CPU_CAPABILITY=default RLBOOK_PLAIN=1", set()) == []
    everything = set(machines.NEEDS.values())
    assert not any(machines.missing(setting, everything) for setting in machines.SETTINGS)


def test_every_need_belongs_to_a_setting() -> None:
    assert set(machines.NEEDS) <= {
        part for setting in machines.SETTINGS for part in setting.split()
    }


@pytest.mark.parametrize(
    ("output", "code", "passed", "failed"),
    [
        ("....\n4 passed, 1 skipped in 3.00s", 0, 4, 0),
        ("FAILED tests/a.py::test - no\n1 failed, 3 passed, 2 errors in 3.00s", 1, 3, 3),
        ("3 passed, 1 error in 3.00s", 1, 3, 1),
        ("Illegal instruction", -4, 0, 1),
        ("", -4, 0, 1),
        ("4 passed in 3.00s", 3, 4, 1),
        ("8 deselected in 3.00s", 5, 0, 1),
    ],
)
def test_what_went_wrong_is_counted_as_failed(
    output: str, code: int, passed: int, failed: int
) -> None:
    assert machines.outcome(output, code)[:2] == (passed, failed)


def test_the_failed_tests_are_named() -> None:
    assert (
        machines.outcome("F\nFAILED tests/a.py::test - no\n1 failed in 3.00s", 1)[2]
        == "FAILED tests/a.py::test - no"
    )
    assert machines.outcome("4 passed in 3.00s", 0)[2] == ""


STAND_IN = """
import os
plain = "RLBOOK_PLAIN" in os.environ
print("FAILED tests/a.py::test\\n1 failed, 2 passed in 1s" if plain else "3 passed in 1s")
raise SystemExit(plain)
"""


def test_it_fails_where_a_setting_fails_or_none_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RLBOOK_PLAIN", raising=False)
    monkeypatch.setattr(machines, "COMMAND", (sys.executable, "-c", STAND_IN))
    monkeypatch.setattr(machines, "available", lambda: {"mkl"})
    assert machines.main(["RLBOOK_MATMUL=mkl", "ATEN_CPU_CAPABILITY=avx512"]) == 0
    out = capsys.readouterr().out
    assert (
        "ATEN_CPU_CAPABILITY=avx512: passed over, this machine has no avx512f" in out
        and "1 settings: 3 passed, 0 failed" in out
    )
    assert machines.main(["RLBOOK_MATMUL=mkl", "RLBOOK_PLAIN=1"]) == 1
    assert capsys.readouterr().out.endswith("2 settings: 5 passed, 1 failed\n")
    assert machines.main(["RLBOOK_MATMUL=onednn"]) == 1


@pytest.mark.parametrize(
    ("arguments", "tests"),
    [
        (["A=1"], "numeric and not slow"),
        (["--quick", "A=1"], "numeric and not slow and not thorough"),
    ],
)
def test_quick_leaves_the_thorough_tests_out(
    arguments: list[str],
    tests: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    says = "import sys; print('FAILED', sys.argv[1]); raise SystemExit(1)"
    monkeypatch.setattr(machines, "COMMAND", (sys.executable, "-c", says))
    assert machines.main(arguments) == 1
    assert f"FAILED {tests}\n1 settings" in capsys.readouterr().out
