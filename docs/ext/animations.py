"""Animations in the site, made when it is built: pages of their own, shown in a frame, so that they
play from a file too.

    {animation} value_iteration Maze-v0
    gamma: 0.9

The lines of the body are what `rlbook.plots.animate` takes, hyper-parameters included.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import one_file
import yaml
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlbook.plots.films import value_films as filming

FOLDER = "_animations"
WIDTH = 760  # pixels of the picture in the frame, at most


class Animation(SphinxDirective):
    """An algorithm and an environment; what they are to be called with stands in the body,
    `name: value` a line."""

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        algorithm, env = self.arguments
        options = yaml.safe_load("\n".join(self.content)) or {}
        if self.env.app.tags.has(one_file.TAG):
            return [self._picture(algorithm, env, options)]
        file = _name(algorithm, env, options) + ".html"
        path = filming.animate(
            algorithm, env, out=Path(self.env.app.outdir) / FOLDER / file, **options
        )
        self.env.note_dependency(str(inspect.getsourcefile(filming)))
        source = "../" * self.env.docname.count("/") + f"{FOLDER}/{file}"
        title = f"{algorithm} on {env}, animated"
        width, ratio = picture_size(path.read_text(encoding="utf-8"))
        size = f"--width: {width}px; --ratio: {ratio:.4f}"
        # a tree cannot be made narrow: it is scrolled in its frame
        kind = "animation wide" if algorithm == "mcts" else "animation"
        frame = f'<iframe class="{kind}" src="{source}" title="{title}" style="{size}"></iframe>'
        return [nodes.raw("", f'<div class="animation-frame">{frame}</div>', format="html")]

    def _picture(self, algorithm: str, env: str, options: dict[str, Any]) -> nodes.image:
        """For paper the film's last picture, for an e-book the film as a GIF."""
        name = _name(algorithm, env, options)
        folder = Path(self.env.app.srcdir) / "_build" / "films"
        film = filming.animate(algorithm, env, out=folder / f"{name}.gif", **options)
        last = film.with_suffix(".png")
        with Image.open(film) as pictures:
            pictures.seek(pictures.n_frames - 1)
            pictures.convert("RGB").save(last)
        shown = film if self.env.app.builder.name == "epub" else last
        return nodes.image(
            "", uri=f"/_build/films/{shown.name}", alt=f"{algorithm} on {env}", classes=["film"]
        )


def _name(algorithm: str, env: str, options: dict[str, Any]) -> str:
    """Of the film's file, without its ending."""
    name = "-".join([algorithm, env, *(f"{key}-{value}" for key, value in options.items())])
    return re.sub(r"[^\w.-]", "", name)


def picture_size(page: str) -> tuple[int, float]:
    """How wide a page's picture is where there is room, in pixels, and its height as a multiple of
    its width."""
    found = re.search(r'viewBox="0 0 (\d+) (\d+)" width="(\d+)"', page)
    assert found is not None
    width, height, shown = map(int, found.groups())
    return min(shown, WIDTH), height / width


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("animation", Animation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
