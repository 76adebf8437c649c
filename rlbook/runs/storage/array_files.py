"""Named arrays as a safetensors file, written in pieces, without a second copy in memory.

    8 bytes: the length n of the header · n bytes of JSON: name → dtype, shape, where its bytes
    stand · the bytes of each array in turn

Source: the format's description at https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlbook.checks import is_count
from rlbook.runs.storage.files import refuse

Arrays = dict[str, np.ndarray]
MAX_HEADER = 32 * 2**20  # bytes of JSON
PIECE = 2**20  # bytes that are hashed and written at once
NAMES = {"bool": "BOOL", "float": "F", "int": "I", "uint": "U"}
SIZES = {
    "bool": ("",),
    "float": ("16", "32", "64"),
    "int": ("8", "16", "32", "64"),
    "uint": ("8", "16", "32", "64"),
}
DTYPES = {
    NAMES[name] + size: np.dtype(name + size) for name, sizes in SIZES.items() for size in sizes
}


@dataclass(frozen=True)
class ArrayFile:
    """The content of a file. The arrays must not change before it is written."""

    head: bytes
    arrays: tuple[np.ndarray, ...]  # in C order

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> ArrayFile:
        """The file content for these arrays. It does not depend on their order."""
        entries: dict[str, dict[str, str | list[int]]] = {}
        end = 0
        # so that each one begins at a multiple of its size
        ordered = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
        for name in ordered:
            array = arrays[name]
            start, end = end, end + array.nbytes
            entries[name] = {
                "dtype": _dtype(array.dtype),
                "shape": list(array.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return cls(struct.pack("<Q", len(text)) + text, tuple(arrays[name] for name in ordered))

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self.head) + sum(array.nbytes for array in self.arrays)

    def sha256(self) -> str:
        """The sha256 of the file, known before it is written."""
        digest = hashlib.sha256()
        for piece in self:
            digest.update(piece)
        return digest.hexdigest()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yields the file's bytes in order."""
        yield self.head
        for array in self.arrays:
            content = array.reshape(-1).view(np.uint8).data
            for start in range(0, len(content), PIECE):
                yield content[start : start + PIECE]


def load_arrays(blob: bytearray, path: Path) -> Arrays:
    """The arrays of a file as views of its bytes, without a second copy in memory.

    Raises:
        CheckpointError: naming `path`, where it is not a file of arrays.
    """
    length = struct.unpack("<Q", blob[:8])[0] if len(blob) >= 8 else 0
    if not 2 <= length <= min(MAX_HEADER, len(blob) - 8):
        refuse(path, "the length of its header makes no sense")
    try:
        entries = json.loads(blob[8 : 8 + length].decode())
        entries.pop("__metadata__", None)
        ends = sorted(entry["data_offsets"] for entry in entries.values())
        whole = [0, *itertools.chain(*ends), len(blob) - 8 - length]
        if any(end != start for end, start in zip(whole[::2], whole[1::2], strict=True)):
            raise ValueError("the arrays overlap or leave gaps")
        return {name: _view(blob, 8 + length, **entry) for name, entry in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        refuse(path, "it is not a safetensors file of arrays")


def _view(
    blob: bytearray, base: int, dtype: str, shape: list[int], data_offsets: list[int]
) -> np.ndarray:
    """The array of one header entry, with offsets counted from `base`. Raises ValueError or
    KeyError if the entry is inconsistent."""
    kind, (start, end) = DTYPES[dtype], data_offsets
    if (
        not all(map(is_count, (*shape, start, end)))
        or math.prod(shape) * kind.itemsize != end - start
    ):
        raise ValueError("the shape does not fit the bytes")
    if start == end:
        return np.zeros(shape, kind)
    array = np.frombuffer(blob, kind, math.prod(shape), base + start).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _dtype(dtype: np.dtype) -> str:
    name = dtype.name.rstrip("0123456789")
    return NAMES[name] + dtype.name.removeprefix(name)
