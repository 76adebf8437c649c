"""Writes examples as rows in verl's format, as parquet or JSON lines.

    data_source    where the row is from; verl picks the reward by it
    prompt         messages: role and content
    ability        what it tests
    reward_model   {style, ground_truth}: the answer, as text
    extra_info     {split, index, …}: what else is known about the example

`rlbook.data.schemas` reads them again.

Source: verl 0.9, "Prepare data for post-training" and `RLHFDataset`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rlbook.data.schemas import Example, Message
from rlbook.data.text_files import Row, require_module
from rlbook.errors import RequestError, system_reason

BATCH = 1_000
"""Rows written at a time."""
COLUMNS = ("data_source", "ability", "reward_model", "extra_info")


def verl_row(
    example: Example, messages: list[Message], *, source: str, split: str, index: int
) -> Row:
    """An example in verl's format. The example's own columns take precedence.

    Args:
        example: it must have an answer.
        messages: the prompt, system text and shots included.
        source, split, index: where the example is from, and its number there.

    Raises:
        ValueError: it has no answer, or a column that JSON cannot hold.
    """
    own = dict(example.columns)
    if example.answer is None and "reward_model" not in own:
        raise ValueError(
            f"example {index} of split {split!r} has no answer, but verl's format requires a ground truth"
        )
    given, more = (
        own.get("extra_info"),
        {name: value for name, value in own.items() if name not in COLUMNS},
    )
    extra = {
        "split": split,
        "index": index,
        **more,
        **(given if isinstance(given, Mapping) else {}),
    }
    row = {
        "data_source": own.get("data_source", source),
        "prompt": messages,
        "ability": own.get("ability", source.rpartition("/")[2]),
        "reward_model": own.get("reward_model", {"style": "rule", "ground_truth": example.answer}),
        "extra_info": extra,
    }
    try:
        return json.loads(json.dumps(row, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"example {index} of split {split!r} has a column that is not plain data ({error})"
        ) from None


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Writes rows in chunks, as parquet if the file name ends so, else as JSON lines. Returns their
    number.

    Raises:
        RequestError: the file exists or cannot be written, or the rows of a parquet file differ in
            their types.
    """
    counted = _RowCounter(rows)
    try:
        with path.open("xb") as file:
            try:
                if path.suffix == ".parquet":
                    _write_parquet(file, path, iter(counted))
                else:
                    file.writelines(
                        json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in counted
                    )
            except BaseException:
                path.unlink()
                raise
    except OSError as error:
        if isinstance(error, FileExistsError) and path.exists():  # not a link to nothing
            raise RequestError(f"{path} exists already; name a new file") from None
        raise RequestError(f"{path} cannot be written: {system_reason(error)}") from None
    return counted.number


class _RowCounter:
    """An iterator over rows that counts them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows, self.number = rows, 0

    def __iter__(self) -> Iterator[Row]:
        for row in self.rows:
            self.number += 1
            yield row


def _write_parquet(file: Any, path: Path, rows: Iterator[Row]) -> None:
    """Writes parquet; the first rows determine the columns' types."""
    arrow, parquet = (
        require_module("pyarrow", "a parquet file"),
        require_module("pyarrow.parquet", "a parquet file"),
    )
    first = arrow.Table.from_pylist(list(islice(rows, BATCH)))
    with parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        while some := list(islice(rows, BATCH)):
            try:
                writer.write_table(arrow.Table.from_pylist(some, schema=first.schema))
            except (ValueError, TypeError) as error:  # pyarrow's own errors are of these kinds
                raise RequestError(
                    f"{path}: its rows must have one form ({' '.join(str(error).split())[:120]})"
                ) from None
