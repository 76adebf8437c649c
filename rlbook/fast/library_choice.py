"""Which matrix library the user asks for; read without importing torch."""

from __future__ import annotations

import os

CHOICE = "RLBOOK_MATMUL"
"""Environment variable: "mkl" or "onednn" overrides the choice by the CPU's maker."""


def asked_library() -> str:
    """ "mkl", "onednn", or "" if the choice is left to the CPU's maker.

    Raises:
        ValueError: `RLBOOK_MATMUL` names another one.
    """
    asked = os.environ.get(CHOICE, "").lower()
    if asked not in ("", "mkl", "onednn"):
        raise ValueError(f"{CHOICE} must be 'mkl' or 'onednn', got {asked!r}")
    return asked
