"""Rows of text from JSON lines, a JSON array, CSV, parquet or a `datasets` folder, with random
access in constant memory.

A file of JSON lines is read where it lies, through the places where its lines begin: 16 bytes a
row. The other formats are first copied, a few rows at a time, into a temporary file of JSON lines.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import stat
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from rlbook.checks import STRICT_JSON, parse_json
from rlbook.errors import RequestError, system_reason

if TYPE_CHECKING:
    from pyarrow import DataType

Row = dict[str, Any]
Item = TypeVar("Item", covariant=True)
LONGEST_LINE = 16_000_000  # bytes; more is not a row of text
CHUNK = 1 << 20


class ItemsOnDemand(Sequence[Item]):
    """A sequence whose items are computed on access."""

    @abstractmethod
    def item(self, index: int) -> Item:
        """Item `index`, from 0."""

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self.item(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.item(index % len(self))

    def __iter__(self) -> Iterator[Item]:
        return map(self.item, range(len(self)))


class ComputedItems(ItemsOnDemand[Item]):
    """So many items, each made by a function of its index."""

    def __init__(self, length: int, make: Callable[[int], Item]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def item(self, index: int) -> Item:
        return self.make(index)


class TextFile(ItemsOnDemand[Row]):
    """The rows of a JSON-lines file, each parsed on demand.

    Attributes:
        digest: the sha256 of the rows' bytes.

    Raises:
        RequestError: a row that is not a JSON object, with the file and the line.
    """

    def __init__(
        self,
        file: IO[bytes],
        path: Path,
        unit: str = "line",
        parse: Callable[[bytes], Any] = parse_json,
    ) -> None:
        self.path, self.unit, self._file, self._parse = path, unit, file, parse
        weakref.finalize(self, file.close)
        hashed, starts = hashlib.sha256(), [np.zeros(1, dtype=np.int64)]
        position = file.seek(0)
        while chunk := file.read(CHUNK):
            hashed.update(chunk)
            starts.append(
                position + 1 + np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n"))
            )
            position += len(chunk)
        self.digest = hashed.hexdigest()
        self._starts = np.concatenate(starts)
        self._lines = self._nonblank_lines()

    def _nonblank_lines(self) -> np.ndarray:
        """The numbers of the non-blank lines, counted from 1."""
        lengths = np.diff(np.append(self._starts, self._file.seek(0, os.SEEK_END)))
        keep = np.ones(len(lengths), dtype=bool)
        for index in np.flatnonzero(lengths <= 8):
            self._file.seek(int(self._starts[index]))
            keep[index] = bool(self._file.read(int(lengths[index])).strip())
        self._starts = self._starts[keep]
        return np.flatnonzero(keep) + 1

    def __len__(self) -> int:
        return len(self._starts)

    def item(self, index: int) -> Row:
        self._file.seek(int(self._starts[index]))
        return self._parse_row(index, self._file.readline(LONGEST_LINE + 1))

    def content(self) -> bytes:
        """All of the file."""
        self._file.seek(0)
        return self._file.read()

    def location(self, index: int) -> str:
        """The file and the line of a row, for error messages."""
        return f"{self.path}, {self.unit} {self._lines[index]}"

    def _parse_row(self, index: int, line: bytes) -> Row:
        if len(line) > LONGEST_LINE:
            raise RequestError(f"{self.location(index)} is longer than {LONGEST_LINE:,} bytes")
        try:
            row = self._parse(line)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                f"{self.location(index)} is not JSON: {str(error).splitlines()[0][:100]}"
            ) from None
        if not isinstance(row, dict):
            raise RequestError(
                f'{self.location(index)} must be a JSON object such as {{"prompt": …}}, got'
                f" {type(row).__name__}"
            )
        return row


def read_rows(path: Path) -> TextFile:
    """The rows of a file or a folder; the format is detected from its content, and CSV, which has
    no mark of its own, from the ending .csv or .tsv.

    Raises:
        RequestError: nothing there, or nothing that can be read; one sentence.
    """
    if path.is_dir():
        return _spool(_folder_rows(path), path)
    file = _open_file(path)
    beginning = file.read(64)
    file.seek(0)
    if beginning[:4] == b"PAR1":
        file.close()
        return _spool(_parquet_rows(path), path)
    if packed := next((name for mark, name in PACKED.items() if beginning.startswith(mark)), None):
        file.close()
        raise RequestError(f"data: {path} is compressed with {packed}; unpack it first")
    if path.suffix.lower() in DELIMITERS:
        return _spool(_table_rows(file, path), path)
    if beginning.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        return _spool(_array_rows(file, path), path)
    return TextFile(file, path)


def holds_rows(data: object) -> bool:
    """Whether an object of the program is rows of text: mappings in a sequence, a `datasets.Dataset`
    or a pandas DataFrame."""
    if hasattr(data, "iloc"):
        return hasattr(data, "columns")
    if isinstance(data, Mapping | TextFile | str | bytes):
        return False
    if hasattr(data, "column_names"):
        return True
    return isinstance(data, Sequence) and (not data or isinstance(data[0], Mapping))


def rows_in_memory(data: Iterable[object]) -> TextFile:
    """What `holds_rows` accepts, as the rows of a temporary file.

    Raises:
        RequestError: a value that JSON does not have.
    """
    return _spool(_rows_of(data), Path("data"))


def _rows_of(data: Iterable[object]) -> Iterator[Row]:
    table = getattr(data, "to_dict", None) if hasattr(data, "iloc") else None
    for number, row in enumerate(data if table is None else map(_without_nan, table("records")), 1):
        try:
            yield json.loads(json.dumps(row, default=_as_list))
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"data, row {number} cannot be written as JSON: {error}") from None


def _without_nan(row: Row) -> Row:
    """A row of a pandas DataFrame, which has NaN where a row lacks a column, with None there."""
    missing = [name for name, cell in row.items() if isinstance(cell, float) and isnan(cell)]
    return row | dict.fromkeys(missing)


def _as_list(value: object) -> object:
    """The numbers or texts of an array."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it holds a {type(value).__name__}")


def _open_file(path: Path) -> IO[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise RequestError(f"data: {path} cannot be read: {system_reason(error)}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RequestError(f"data: {path} is neither a file nor a folder")
    return os.fdopen(descriptor, "rb")


def _table_rows(file: IO[bytes], path: Path) -> Iterator[Row]:
    """The rows of a CSV file with a header. Cells are texts, but for two columns of
    `rlbook.data.schemas`: `label` is true or false, `margin` a number."""
    csv.field_size_limit(LONGEST_LINE)
    with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as characters:
        lines = csv.reader(characters, delimiter=DELIMITERS[path.suffix.lower()], strict=True)
        where = f"{path}, line 1"
        try:
            header = next(lines, [])
            if len(set(header)) < len(header):
                raise RequestError(f"{where} names a column twice: {', '.join(header)[:200]}")
            for cells in lines:
                where = f"{path}, line {lines.line_num}"
                if cells and len(cells) != len(header):
                    raise RequestError(
                        f"{where} has {len(cells)} cells, but the header has {len(header)}"
                    )
                if cells:
                    yield {
                        name: CELLS.get(name, str)(cell)
                        for name, cell in zip(header, cells, strict=True)
                    }
        except csv.Error as error:
            raise RequestError(f"{path}, line {lines.line_num} is not CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise RequestError(f"data: {path} is not UTF-8: {str(error)[:100]}") from None


def _parse_boolean(cell: str) -> bool | str:
    return {"true": True, "false": False}.get(cell.lower(), cell)


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


DELIMITERS = {".csv": ",", ".tsv": "\t"}
CELLS: dict[str, Callable[[str], object]] = {"label": _parse_boolean, "margin": _number}
"""Columns of CSV files whose cells are not text; a cell that cannot be converted stays text, which
the schema then refuses."""
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
"""First bytes of a compressed file → its compression format."""


def _array_rows(file: IO[bytes], path: Path) -> Iterator[Any]:
    """Yields the items of one JSON array, whatever its line breaks."""
    text, at, row, line = "", 0, 0, 1  # `line` is that where `text` begins
    with io.TextIOWrapper(file, encoding="utf-8-sig") as characters:
        while True:
            where = f"{path}, row {row + 1}"
            at = _skip_blanks(text, at)
            if row and text[at : at + 1] == "]":
                break
            if text[at : at + 1] not in ("," if row else "["):
                raise RequestError(f"{where} must follow a comma, got {text[at : at + 20]!r}")
            start = _skip_blanks(text, at + 1)
            if not row and text[start : start + 1] == "]":
                at = start
                break
            try:
                item, end = STRICT_JSON.raw_decode(text, start)
                if end == len(text):  # a number may go on in the next piece
                    raise json.JSONDecodeError("unexpected end of file", text, end)
            except (ValueError, RecursionError) as error:
                piece = _piece(characters, path) if isinstance(error, json.JSONDecodeError) else ""
                if not piece or len(text) - at > LONGEST_LINE:
                    raise RequestError(
                        f"{where} is not JSON: {str(error).splitlines()[0][:100]}"
                    ) from None
                line, text, at = line + text.count("\n", 0, at), text[at:] + piece, 0
                continue
            yield item
            at, row = end, row + 1
        _check_end(characters, path, text, at + 1, line)


def _check_end(characters: io.TextIOWrapper, path: Path, text: str, at: int, line: int) -> None:
    """Raises RequestError if anything follows an array that ends before `text[at]`."""
    while (end := _skip_blanks(text, at)) == len(text):
        line, text, at = line + text.count("\n"), _piece(characters, path), 0
        if not text:
            return
    place, got = line + text.count("\n", 0, end), repr(text[end : end + 20])
    raise RequestError(f"{path}, line {place}: nothing may follow the end of the array, got {got}")


def _skip_blanks(text: str, at: int) -> int:
    """The position after the whitespace that starts at `at`."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


_BLANKS = re.compile(r"[ \t\r\n]*")


def _piece(characters: io.TextIOWrapper, path: Path) -> str:
    try:
        return characters.read(CHUNK)
    except UnicodeDecodeError as error:
        raise RequestError(f"data: {path} is not valid UTF-8: {str(error)[:100]}") from None


def _spool(rows: Iterable[Row], path: Path) -> TextFile:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as its rows
    try:
        for row in rows:
            file.write(json.dumps(row).encode() + b"\n")
    except BaseException:
        file.close()
        raise
    return TextFile(file, path, unit="row", parse=json.loads)  # a parquet column may hold NaN


def _parquet_rows(path: Path) -> Iterator[Row]:
    parquet = require_module("pyarrow.parquet", "a parquet file")
    try:
        file = parquet.ParquetFile(path)
        _check_columns(path, file.schema_arrow)
        for batch in file.iter_batches(batch_size=1000):
            yield from batch.to_pylist()
    except RequestError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        raise RequestError(
            f"data: {path} is not a parquet file that can be read:"
            f" {str(error).splitlines()[0][:100]}"
        ) from None


def _check_columns(path: Path, fields: Iterable[Any], inside: str = "") -> None:
    """Checks the types of pyarrow's fields, including those nested in structs.

    Raises:
        RequestError: JSON has no such values, or two fields have one name.
    """
    seen: set[str] = set()
    for field in fields:
        name, kind = inside + field.name, _plain_type(field.type)
        if name in seen:
            raise RequestError(f"data: {path} has two columns named {name!r}")
        seen.add(name)
        if kind is None:
            wanted = "texts, numbers, true or false, and lists and structs of these"
            found = f"the column {name!r} has the type {field.type}"
            raise RequestError(f"data: {path}: {found}; rows of text hold {wanted}")
        _check_columns(path, kind, name + ".")


def _plain_type(kind: DataType) -> Sequence[Any] | None:
    """The nested fields of a struct or a list of structs; () for a scalar type; None for a type
    that JSON lacks."""
    types = require_module("pyarrow", "a parquet file").types
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_dictionary
    while any(is_one(kind) for is_one in (*lists, types.is_list_view, types.is_large_list_view)):
        kind = kind.value_type
    if types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    texts = types.is_string, types.is_large_string, types.is_string_view
    numbers = types.is_boolean, types.is_integer, types.is_floating, types.is_null
    return () if any(is_one(kind) for is_one in (*texts, *numbers)) else None


def _folder_rows(path: Path) -> Iterator[Row]:
    if not (path / "state.json").is_file():
        splits = sorted(entry.parent.name for entry in path.glob("*/state.json"))
        if splits:
            raise RequestError(
                f"data: {path} holds the splits {', '.join(splits)}; name one of them, such as"
                f" {path / splits[0]}"
            )
        raise RequestError(
            f"data: {path} is neither a Minari data set nor one that `datasets` has saved"
        )
    datasets = require_module("datasets", "a `datasets` folder")
    try:
        rows = datasets.load_from_disk(str(path))
        _check_columns(path, rows.features.arrow_schema)
        yield from rows
    except RequestError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise RequestError(
            f"data: {path} cannot be read by `datasets`: {str(error).splitlines()[0][:100]}"
        ) from None


def require_module(module: str, what: str) -> Any:
    """Imports a module of the extra `data`. Raises RequestError if it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise RequestError(
            f'{what} needs `{module.split(".")[0]}`: pip install "rlbook[data]"'
        ) from None
