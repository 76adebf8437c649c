"""Executes notebooks and stores their outputs in them, for those who read them where nothing runs:
`python docs/notebook_outputs.py [NAME …]`, without a name those whose code has changed since; `all`
of them take ten minutes.

What changes from run to run is left out: counts of executions, seconds, notes, and standard error,
which has bars. Pictures have fewer colours. A notebook keeps a digest of the code that it was
executed from: by this `make test` and the site know that its outputs are current. Its pictures'
narrow forms are written into docs/figures/narrow/notebooks. It also keeps how
a network's numbers are rounded where it was executed: there a slow test executes it again and
compares the texts.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
DOCS = str(Path(__file__).resolve().parent)
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NOTES = re.compile(r"^note: .*\n", re.M)
KEEP = """import sys; sys.path.append({!r}); import narrow_notebooks
narrow_notebooks.keep_narrow_forms({!r})"""
SETTINGS = {"OMP_NUM_THREADS": "1", "RLBOOK_QUIET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def read(path: Path) -> Notebook:
    return json.loads(path.read_text(encoding="utf-8"))


def write(notebook: Notebook, path: Path) -> None:
    """In the form in which Jupyter writes it."""
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: Notebook) -> str:
    """Of the code, cell by cell."""
    sources = ["".join(cell["source"]) for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def is_current(notebook: Notebook) -> bool:
    """Whether the stored outputs are those of this code."""
    return notebook["metadata"].get("rlbook", {}).get("executed") == digest(notebook)


def with_outputs(notebook: Notebook) -> Notebook:
    """The notebook, executed in an empty folder, with what is stored of its outputs."""
    import nbformat
    from nbclient import NotebookClient
    from printed import rounded_by

    executed: Any = nbformat.reads(json.dumps(notebook), as_version=4)
    found = copy.deepcopy(notebook)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as narrow:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(executed, timeout=600, kernel_name="python3", resources=place)
        executed.cells.insert(0, nbformat.v4.new_code_cell(KEEP.format(DOCS, narrow)))
        client.execute(env=os.environ | SETTINGS)
        del executed.cells[0]
        for cell, run in zip(code_cells(found), code_cells(executed), strict=True):
            cell["outputs"] = stored_outputs(run["outputs"])
        store_narrow_forms(found, Path(narrow))
    found["metadata"]["rlbook"] = {"executed": digest(notebook), "rounded_by": rounded_by()}
    return found


def stored_outputs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is stored of a cell's outputs: one text for what is printed without a break."""
    from printed import SECONDS

    kept: list[dict[str, Any]] = []
    for output in outputs:
        if output["output_type"] != "stream":
            data = {kind: _stored_data(kind, value) for kind, value in output["data"].items()}
            kept.append({"output_type": output["output_type"], "metadata": {}, "data": data})
            if output["output_type"] == "execute_result":
                kept[-1]["execution_count"] = None
        elif output["name"] == "stdout" and (text := NOTES.sub("", output["text"])):
            if not kept or kept[-1]["output_type"] != "stream":
                kept.append({"output_type": "stream", "name": "stdout", "text": ""})
            kept[-1]["text"] += text
    for output in kept:
        if output["output_type"] == "stream":
            output["text"] = SECONDS.sub("… s", output["text"]).splitlines(keepends=True)
    return kept


def pictures(notebook: Notebook) -> list[bytes]:
    """The PNGs that are stored in a notebook."""
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    stored = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode(picture) for picture in stored if picture]


def store_narrow_forms(notebook: Notebook, folder: Path) -> None:
    """Brings the narrow form of each picture, by its number, to its place."""
    from picture_files import narrow_form_of_output

    for number, picture in enumerate(pictures(notebook)):
        if (narrow := folder / f"{number}.png").exists():
            shutil.copyfile(narrow, narrow_form_of_output(picture))


def _stored_data(kind: str, value: str) -> str | list[str]:
    """A text as the list of its lines, and a picture with fewer colours."""
    from picture_files import shrink

    if kind != "image/png":
        return value.splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        picture.write_bytes(base64.b64decode(value))
        shrink(picture)
        return base64.b64encode(picture.read_bytes()).decode()


def texts(notebook: Notebook) -> list[list[str]]:
    """Of each code cell the texts of its outputs."""
    return [
        [
            "".join(text)
            for output in cell["outputs"]
            for kind, text in sorted(output.get("data", {"text/plain": output.get("text")}).items())
            if kind.startswith("text/")
        ]
        for cell in code_cells(notebook)
    ]


def kinds(notebook: Notebook) -> list[list[list[str]]]:
    """Of each code cell what its outputs are, such as a text or a picture."""
    return [
        [sorted(output.get("data", ["stream"])) for output in cell["outputs"]]
        for cell in code_cells(notebook)
    ]


def main(names: list[str]) -> None:
    os.environ.update(SETTINGS)  # before torch is imported, whose threads divide sums
    known = {path.stem: path for path in NOTEBOOKS}
    if unknown := set(names) - {*known, "all"}:
        sys.exit(f"no notebook is called {', '.join(sorted(unknown))}")
    for name, path in known.items():
        notebook = read(path)
        if name in names or "all" in names or (not names and not is_current(notebook)):
            print(name, flush=True)
            write(with_outputs(notebook), path)


if __name__ == "__main__":
    main(sys.argv[1:])
