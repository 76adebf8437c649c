"""Runs a module in a process in which one line of the library is replaced.

    python -m rlbook.book.museum.planted NAME rlbook train sarsa CliffWalking-v1 --out runs/planted
    python -m rlbook.book.museum.planted NAME pytest tests/unit/algorithms/tabular/test_td_control.py

No file changes: the import system is given the other source when it asks for the module. Only the
plain forms run, because the fast ones do not read that line, and nothing compiled with it may be
kept.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from rlbook.book.museum.exhibit import Exhibit, find_exhibit
from rlbook.errors import RequestError
from rlbook.fast_forms import PLAIN


class BugLoader(SourceFileLoader):
    """Loads one module with an exhibit's bug, and writes no bytecode."""

    def __init__(self, fullname: str, path: str, exhibit: Exhibit) -> None:
        super().__init__(fullname, path)
        self.exhibit = exhibit

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.exhibit.planted_in(self.get_data(self.path).decode("utf-8"))
        return self.source_to_code(source.encode("utf-8"), self.path)


class BugFinder:
    """Finds that module before the import system's own finders."""

    def __init__(self, exhibit: Exhibit) -> None:
        self.exhibit = exhibit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.exhibit.module:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None
        loader = BugLoader(fullname, found.origin, self.exhibit)
        return spec_from_file_location(fullname, found.origin, loader=loader)


def plant(exhibit: Exhibit) -> None:
    """Plants the bug in this process.

    Raises:
        ValueError: the module is loaded already, or no longer holds the line.
    """
    if exhibit.module in sys.modules:
        raise ValueError(f"{exhibit.module} is loaded already")
    assert exhibit.number
    sys.meta_path.insert(0, BugFinder(exhibit))


def main(name: str, module: str, *arguments: str) -> None:
    """Runs a module, as `python -m` does, with the bug planted."""
    try:
        plant(find_exhibit(name))
    except RequestError as error:
        print(f"planted: {error}", file=sys.stderr)
        sys.exit(2)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(
            "usage: python -m rlbook.book.museum.planted NAME MODULE [ARGUMENT ...]",
            file=sys.stderr,
        )
        sys.exit(2)
    if not os.environ.get(PLAIN):  # it is read when the package is imported
        os.execve(
            sys.executable,
            [sys.executable, "-m", "rlbook.book.museum.planted", *sys.argv[1:]],
            {**os.environ, PLAIN: "1"},
        )
    main(*sys.argv[1:])
