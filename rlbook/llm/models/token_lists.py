"""Lists of token ids in a temporary file: as fast as an array, with only their offsets in
memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class PackedIds:
    """Lists of ids, each read on demand.

    Args:
        rows: the lists, taken one by one; ids are below 2**31.
    """

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        ends = array("q", [0])
        with tempfile.TemporaryFile() as file:  # what is mapped stays when it is closed
            for row in rows:
                file.write(np.asarray(row, dtype=np.int32).tobytes())
                ends.append(ends[-1] + len(row))
            file.flush()
            self._ids = (
                np.memmap(file, dtype=np.int32, mode="r")
                if ends[-1]
                else np.zeros(0, dtype=np.int32)
            )
        self._ends = np.frombuffer(ends, dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each list: [P]."""
        return np.diff(self._ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """The ids of a list: [L]."""
        return self._ids[self._ends[index] : self._ends[index + 1]].astype(np.int64)
