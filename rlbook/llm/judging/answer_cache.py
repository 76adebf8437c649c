"""A cache of answers: in memory, and in a file if one is named.

The file is an SQLite database, which several processes may use at a time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

LIMIT = 100_000  # answers in memory
WAIT = 10.0  # seconds that another process may keep the file locked


class AnswerCache:
    """A cache: key → answer.

    Args:
        file: a database, which is made if it is not there; None keeps answers in memory alone.

    Raises:
        ValueError: the file cannot be used.
    """

    def __init__(self, file: str | None = None) -> None:
        self.file, self.known = file, dict[str, str]()
        if file is not None:
            try:
                with self._open(file) as database, database:
                    database.execute(
                        "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT)"
                    )
            except sqlite3.Error as error:
                raise ValueError(f"cache {file} cannot be used ({error})") from None

    def find(self, keys: Iterable[str]) -> dict[str, str]:
        """The known answers; a file that cannot be read at present is treated as empty."""
        wanted = dict.fromkeys(keys)
        found = {key: self.known[key] for key in wanted if key in self.known}
        missing = [key for key in wanted if key not in found]
        if self.file is not None and missing:
            with contextlib.suppress(sqlite3.Error), self._open(self.file) as database:
                for key in missing:
                    rows = database.execute("SELECT answer FROM answers WHERE key = ?", (key,))
                    for (answer,) in rows:
                        found[key] = str(answer)
        return found

    def keep(self, answers: Mapping[str, str]) -> None:
        """Adds answers; the oldest ones are dropped from memory if there are too many."""
        self.known |= answers
        for key in [*self.known][: max(0, len(self.known) - LIMIT)]:
            del self.known[key]
        if self.file is not None and answers:
            with (
                contextlib.suppress(sqlite3.Error),  # such as no room on the disk
                self._open(self.file) as database,
                database,
            ):
                database.executemany(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?)", list(answers.items())
                )

    @staticmethod
    def _open(file: str) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(Path(file), timeout=WAIT))
