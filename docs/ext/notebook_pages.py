"""Brings the notebooks, which live beside docs/, to where Sphinx looks for pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]


def copy_notebooks(app: Sphinx) -> None:
    """notebooks/*.ipynb → docs/notebooks/, those that have changed."""
    target = Path(app.srcdir) / "notebooks"
    target.mkdir(exist_ok=True)
    wanted = {path.name: path.read_bytes() for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    for path in target.glob("*.ipynb"):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        copy = target / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", copy_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
