"""The notebooks hold the outputs of the code they show: texts, and small pictures."""

from __future__ import annotations

import base64
import importlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import notebook_outputs
import picture_files

from rlbook.book.course.notebook import lines

LARGEST_PICTURE, LARGEST_NOTEBOOK = 60_000, 300_000  # bytes
OF_ONE_MACHINE = re.compile(r"/home/|/tmp/|/site-packages/|<[^>\n]* at 0x[0-9a-f]+>")
each_notebook = pytest.mark.parametrize(
    "path", notebook_outputs.NOTEBOOKS, ids=lambda path: path.stem
)


@each_notebook
def test_a_notebook_holds_the_outputs_of_its_code(path: Path) -> None:
    assert notebook_outputs.is_current(notebook_outputs.read(path)), (
        f"the code of {path.stem} has changed since it was executed:"
        f" run `python docs/notebook_outputs.py {path.stem}`"
    )


@each_notebook
def test_outputs_are_small_and_say_nothing_of_the_run_or_the_machine(path: Path) -> None:
    notebook = notebook_outputs.read(path)
    cells = notebook_outputs.code_cells(notebook)
    outputs = [output for cell in cells for output in cell["outputs"]]
    printed = [output for output in outputs if output["output_type"] == "stream"]
    shown = [output for output in outputs if output["output_type"] != "stream"]
    assert printed and all(output["name"] == "stdout" for output in printed)
    assert {output["output_type"] for output in shown} <= {"display_data", "execute_result"}
    assert all(part.get("execution_count") is None for part in [*cells, *shown])
    assert not any("execution" in cell["metadata"] for cell in cells)
    pictures = [output["data"]["image/png"] for output in shown if "image/png" in output["data"]]
    assert all(len(base64.b64decode(picture)) <= LARGEST_PICTURE for picture in pictures)
    assert path.stat().st_size <= LARGEST_NOTEBOOK
    for cell_texts in notebook_outputs.texts(notebook):
        found = OF_ONE_MACHINE.search("\n".join(cell_texts))
        assert found is None, found


def shown_sources(notebook: dict[str, Any]) -> list[str]:
    """The functions of the library that a notebook holds the lines of, those of a difference
    too."""
    shown = [text for cell in notebook_outputs.texts(notebook) for text in cell]
    sides = [
        "\n".join(line[1:] for line in text.splitlines() if line[:1] in (side, " "))
        for text in shown
        if re.match(r"[-+ ]# rlbook/", text)
        for side in "-+"
    ]
    return [text for text in (*shown, *sides) if text.startswith("# rlbook/")]


def present_sources(text: str) -> list[str]:
    """The lines of all functions of the same name in the module that a text was taken from."""
    where, *code = text.splitlines()
    module = importlib.import_module(where[2:].removesuffix(".py").replace("/", "."))
    defined = re.search(r"^def (\w+)", "\n".join(code), re.M)
    assert defined is not None, text
    own = [item for item in vars(module).values() if isinstance(item, type)]
    owners = [module, *(item for item in own if item.__module__ == module.__name__)]
    return [lines(getattr(owner, defined[1])).text for owner in owners if defined[1] in vars(owner)]


@each_notebook
def test_the_librarys_lines_in_a_notebook_are_those_of_today(path: Path) -> None:
    for text in shown_sources(notebook_outputs.read(path)):
        assert text.rstrip() in [found.rstrip() for found in present_sources(text)], (
            f"{path.stem} shows other lines of {text.splitlines()[0][2:]}:"
            f" run `python docs/notebook_outputs.py {path.stem}`"
        )


def notebook_of(*sources: str) -> dict[str, Any]:
    """A notebook in which a line of words stands before each code cell."""
    cells = []
    for source in sources:
        cells.append({"cell_type": "markdown", "metadata": {}, "source": ["Look:"]})
        code = {"cell_type": "code", "metadata": {}, "source": source.splitlines(keepends=True)}
        cells.append(code | {"execution_count": None, "outputs": []})
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_outputs_are_out_of_date_once_the_code_changes_and_not_with_the_words() -> None:
    notebook = notebook_of("a = 1\nb = 2", "a + b")
    assert not notebook_outputs.is_current(notebook)
    notebook["metadata"]["rlbook"] = {"executed": notebook_outputs.digest(notebook)}
    assert notebook_outputs.is_current(notebook)
    notebook["cells"][0]["source"] = ["See:"]
    assert notebook_outputs.is_current(notebook)
    for other in (["a = 1\nb = 3", "a + b"], ["a = 1\n", "b = 2a + b"], ["a + b", "a = 1\nb = 2"]):
        changed = notebook_of(*other) | {"metadata": notebook["metadata"]}
        assert not notebook_outputs.is_current(changed)


def test_what_changes_from_run_to_run_is_not_stored() -> None:
    def line(text: str, name: str = "stdout") -> dict[str, Any]:
        return {"output_type": "stream", "name": name, "text": text}

    noise = np.random.default_rng(0).integers(256, size=(40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(picture := io.BytesIO(), "PNG")
    data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "<Figure>"}
    result = {"output_type": "execute_result", "execution_count": 7, "metadata": {}, "data": data}
    outputs = [
        line("note: compiling\n"),
        line("one, "),
        line("a bar", "stderr"),
        line("after 0.52 s\nnote: a folder\ntwo\n"),
        result,
    ]
    printed_one, shown = notebook_outputs.stored_outputs(outputs)
    assert printed_one == line("") | {"text": ["one, after … s\n", "two\n"]}
    assert shown["execution_count"] is None and shown["data"]["text/plain"] == ["<Figure>"]
    with Image.open(io.BytesIO(base64.b64decode(shown["data"]["image/png"]))) as small:
        assert small.size == (40, 40) and len(small.getcolors() or []) == 96


@pytest.mark.slow
@each_notebook
def test_a_notebook_executed_again_says_what_it_holds(path: Path) -> None:
    """The same texts where a network's training rounds as it did when they were stored; elsewhere
    the same kinds of outputs, since what a trained model writes is another text."""
    stored = notebook_outputs.read(path)
    found = notebook_outputs.with_outputs(stored)
    assert notebook_outputs.kinds(found) == notebook_outputs.kinds(stored)
    if found["metadata"] == stored["metadata"]:
        assert notebook_outputs.texts(found) == notebook_outputs.texts(stored)


def test_the_narrow_form_of_a_picture_is_found_by_what_is_stored_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = notebook_of("1", "2")
    stored = [b"first", b"second"]
    for cell, data in zip(notebook_outputs.code_cells(notebook), stored, strict=True):
        shown = {"image/png": base64.b64encode(data).decode(), "text/plain": ["<Figure>"]}
        text = {"output_type": "stream", "name": "stdout", "text": ["a line\n"]}
        cell["outputs"] = [text, {"output_type": "display_data", "metadata": {}, "data": shown}]
    assert notebook_outputs.pictures(notebook) == stored
    monkeypatch.setattr(picture_files, "NARROW", tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "1.png").write_bytes(b"narrow")  # the first picture has none: it is small
    notebook_outputs.store_narrow_forms(notebook, tmp_path)
    first, second = (picture_files.narrow_form_of_output(data) for data in stored)
    assert not first.exists() and second.read_bytes() == b"narrow"
