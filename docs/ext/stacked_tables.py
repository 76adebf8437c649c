"""Wide tables on a phone: where the columns have no room beside each other, a row becomes a small
list, each cell after its column's name.

The page stays a table. A cell carries the name of its column, which only a narrow page shows; which
tables need it is worked out from their words while the site is built.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

TABLE = re.compile(
    r'<table class="(?P<kind>docutils[^"]*)"(?P<rest>[^>]*)>(?P<inside>.*?)</table>',
    flags=re.DOTALL,
)
HEAD = re.compile(r"<thead>.*?</thead>", flags=re.DOTALL)
ROW = re.compile(r"<tr.*?</tr>", flags=re.DOTALL)
CELL = re.compile(r"(<t[dh][^>]*>)(.*?)(</t[dh]>)", flags=re.DOTALL)
ROOM = 50  # characters beside each other on a page of 390 pixels
BETWEEN = 2  # characters that a column needs beside its text
LINES = 5  # a row that would need more, beside a column of few words, is easier to read as a list


def stacked(body: str) -> str:
    """The HTML of a page whose wide tables can be stacked."""
    return TABLE.sub(_stackable, body)


def _stackable(table: re.Match[str]) -> str:
    head = HEAD.search(table["inside"])
    if head is None or 'colspan="' in table["inside"] or 'rowspan="' in table["inside"]:
        return table[0]
    names = [cell[2] for cell in CELL.finditer(head[0])]
    rows = [
        [_words(cell[2]) for cell in CELL.finditer(row)] for row in ROW.findall(table["inside"])
    ]
    if len(names) < 3 or any(len(row) != len(names) for row in rows) or has_room(rows):
        return table[0]
    body = ROW.sub(lambda row: "".join(_named(row[0], names)), table["inside"][head.end() :])
    return (
        f'<table class="{table["kind"]}'
        f' stacked"{table["rest"]}>{table["inside"][: head.end()]}{body}</table>'
    )


def _named(row: str, names: list[str]) -> Iterator[str]:
    """A row whose cells after the first carry their column's name."""
    end = 0
    for column, cell in enumerate(CELL.finditer(row)):
        yield row[end : cell.end(1)]
        if column > 0 and _words(names[column]) and _words(cell[2]):
            yield (
                f'<div class="column-name">{re.sub(r" id=.[^ >]*", "", names[column])}</div><div'
                f' class="cell">{cell[2]}</div>'
            )
        else:
            yield cell[2]
        end = cell.end(2)
    yield row[end:]


def _words(cell: str) -> list[str]:
    """What a reader sees of a cell, in parts that are not broken."""
    text = re.sub(r"<math.*?</math>", "", cell, flags=re.DOTALL)
    text = re.sub(r"<wbr>|<br\s*/?>|</p>|</li>", " ", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text)).split()


def has_room(rows: list[list[list[str]]]) -> bool:
    """Whether a table of words, given by rows and columns, can be read on a phone as it is."""
    columns = list(zip(*rows, strict=True))
    least = [
        max((len(word) for cell in column for word in cell), default=0) + BETWEEN
        for column in columns
    ]
    most = [max(_length(cell) for cell in column) + BETWEEN for column in columns]
    spare, wish = ROOM - sum(least), sum(most) - sum(least)
    if spare < 0:
        return False
    widths = [
        low + (high - low) * min(1.0, spare / wish) if wish else low
        for low, high in zip(least, most, strict=True)
    ]
    return all(
        _length(cell) <= LINES * (width - BETWEEN)
        for row in rows
        for cell, width in zip(row, widths, strict=True)
    )


def _length(cell: list[str]) -> int:
    return sum(map(len, cell)) + max(0, len(cell) - 1)


def stack(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context and app.builder.name != "epub":
        context["body"] = stacked(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    # after `wrapped_code`, which says where names may be broken
    app.connect("html-page-context", stack, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
