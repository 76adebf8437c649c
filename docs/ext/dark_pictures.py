"""A dark form of every picture in the site, made from the light one while the site is built:
nothing is stored or measured twice.

A picture is a table of colours and a number in each place. The dark form has the same numbers and
another table: what was light becomes dark and the other way round, and a hue stays what it was, so
that "the blue line" is blue in both. Walls, which are squares of ink, stay dark. The theme shows
the one that fits.

On a narrow page a picture's narrow form is shown, in both colours, where it has one (see
docs/picture_files.py). Every wide picture leads to itself in full size.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import one_file
import picture_files
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx

PAGE = (0x13, 0x14, 0x16)  # the ground of furo's dark pages: what was white has it
INK_LIGHTNESS, LIGHTEST = 0.31, 0.93  # of the ink of light pictures, and what becomes of it
BRIGHTER = 0.8  # below 1: what lies between ground and ink comes nearer to the ink
COLOURS = 128  # of a dark picture, at most; twice as many where it has walls
INK = (38, 50, 66)
WALL = 17  # pixels: ink that fills a square of this side is a wall, and no line or letter
RIM = 2  # pixels around it that are neither quite wall nor quite line
WIDE = 500  # pixels: a picture that is wider leads to its full size
NARROW_PAGE = "(max-width: 40em)"  # where docs/static/book.css makes wide tables lists
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""Oklab: lightness, and two numbers for hue and strength. Source: Ottosson 2020, "A perceptual
color space for image processing"."""


def dark(colours: np.ndarray, lightest: float = LIGHTEST) -> np.ndarray:
    """[N, 3] colours from 0 to 255, each with its lightness turned round; hues as they were, as
    strong as the screen can show them."""
    lab = _to_lab(colours / 255.0)
    ground = _to_lab(np.array([PAGE]) / 255.0)[0]
    share = np.clip((1.0 - lab[:, :1]) / (1.0 - INK_LIGHTNESS), 0.0, 1.0) ** BRIGHTER
    turned = ground + share * (np.array([lightest, 0.0, 0.0]) - ground)
    hues = lab[:, 1:]
    found = _to_rgb(turned)
    for strength in np.linspace(0.0, 1.0, 41):
        stronger = _to_rgb(np.column_stack([turned[:, 0], turned[:, 1:] + strength * hues]))
        fits = ((stronger >= -1e-3) & (stronger <= 1.001)).all(axis=1)
        found[fits] = stronger[fits]
    return np.rint(255.0 * np.clip(found, 0.0, 1.0)).astype(np.uint8)


def _to_lab(colours: np.ndarray) -> np.ndarray:
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ TO_CONES.T) @ TO_LAB.T


def _to_rgb(lab: np.ndarray) -> np.ndarray:
    linear = (lab @ np.linalg.inv(TO_LAB).T) ** 3 @ np.linalg.inv(TO_CONES).T
    return np.where(
        linear <= 0.0031308,
        12.92 * linear,
        1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055,
    )


def write_dark(light: Path, path: Path) -> None:
    """The dark form of a PNG."""
    with Image.open(light) as image:
        whole = image.convert("RGBA")
    paper = Image.new("RGBA", whole.size, "white")
    flat = Image.alpha_composite(paper, whole).convert("RGB")
    small = flat.quantize(COLOURS, dither=Image.Dither.NONE)
    table = np.array(small.getpalette(), dtype=float).reshape(-1, 3)[:COLOURS]
    walls = walls_of(np.asarray(flat))
    if walls.any():
        small = Image.fromarray(np.asarray(small) + COLOURS * walls.astype(np.uint8), mode="P")
        empty = np.zeros((COLOURS - len(table), 3), dtype=np.uint8)
        turned = np.vstack([dark(table), empty, dark(table, INK_LIGHTNESS)])
    else:
        turned = dark(table)
    small.putpalette(turned.ravel().tolist())
    small.save(path, optimize=True)


def walls_of(pixels: np.ndarray) -> np.ndarray:
    """[H, W] bool: whether a pixel of [H, W, 3] lies in a square of ink, or at its rim."""
    ink = np.abs(pixels.astype(int) - np.array(INK)).max(axis=2) <= 3
    corners = _counts(ink, WALL) == WALL**2
    whole = _counts(np.pad(corners, WALL - 1), WALL) > 0
    return _counts(np.pad(whole, RIM), 2 * RIM + 1) > 0


def _counts(marks: np.ndarray, side: int) -> np.ndarray:
    """How many are true in each square of this side that lies inside."""
    if min(marks.shape) < side:
        return np.zeros([max(0, length - side + 1) for length in marks.shape], dtype=np.int64)
    sums = np.zeros((marks.shape[0] + 1, marks.shape[1] + 1), dtype=np.int64)
    sums[1:, 1:] = marks.cumsum(axis=0).cumsum(axis=1)
    return sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]


def dark_name(light: str) -> str:
    """What the dark form of a picture is called, beside the light one."""
    return f"dark-{light}"


def add_dark_forms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """After each picture its dark form. The style sheet of the theme hides one of the two."""
    if app.builder.format != "html" or app.tags.has(one_file.TAG):
        return
    for light in list(doctree.findall(nodes.image)):
        known = app.env.images.get(light["uri"])
        if known is None or not known[1].endswith(".png"):
            continue
        other = light.deepcopy()
        uri = "../" * page.count("/") + f"_images/{dark_name(known[1])}"
        other["uri"], other["candidates"] = uri, {"*": uri}
        light["classes"].append("only-light")
        other["classes"].append("only-dark")
        light.parent.insert(light.parent.index(light) + 1, other)
        narrow = is_full_width(light) and narrow_form(app, light["uri"])
        if not isinstance(light.parent, nodes.reference) and _width(app, light["uri"]) > WIDE:
            to_full_size(light, "../" * page.count("/") + f"_images/{known[1]}")
            to_full_size(other, uri)
        if narrow:
            images = "../" * page.count("/") + "_images/"
            add_narrow_form(light, images + narrow_name(known[1]))
            add_narrow_form(other, images + narrow_name(dark_name(known[1])))


def is_full_width(picture: nodes.image) -> bool:
    """Whether a picture is as wide as the page, and not one of a gallery."""
    around = picture.parent
    while around is not None:
        if {"gallery", "agent-film", "hero"} & set(around.get("classes", [])):
            return False
        around = around.parent
    return True


def narrow_form(app: Sphinx, uri: str) -> Path | None:
    """The file of a picture's narrow form, if it has one."""
    picture = Path(app.srcdir) / uri
    if picture.parent.name == "figures":
        path = picture_files.narrow_form(picture)
    elif picture.parent.name == "jupyter_execute":
        path = picture_files.narrow_form_of_output(picture.read_bytes())
    else:
        return None
    return path if path.exists() else None


def narrow_name(name: str) -> str:
    """What the narrow form of a picture is called, beside the wide one."""
    return f"narrow-{name}"


def add_narrow_form(picture: nodes.image, uri: str) -> None:
    """Has a browser take the narrow form of a picture on a narrow page."""
    parent, place = picture.parent, picture.parent.index(picture)
    source = f'<picture><source media="{NARROW_PAGE}" srcset="{uri}">'
    parent.insert(place + 1, nodes.raw("", "</picture>", format="html"))
    parent.insert(place, nodes.raw("", source, format="html"))


def _width(app: Sphinx, uri: str) -> int:
    with Image.open(Path(app.srcdir) / uri) as image:
        return image.width


def to_full_size(picture: nodes.image, uri: str) -> None:
    """Puts a link to the file around a picture."""
    link = nodes.reference("", "", refuri=uri, classes=[*picture["classes"], "full-size"])
    in_text = isinstance(picture.parent, nodes.TextElement)  # which a cell's output is not
    picture.replace_self(link if in_text else nodes.inline("", "", link))
    link += picture


def write_other_forms(app: Sphinx, failure: Exception | None) -> None:
    """Narrow and dark forms of the pictures that are new."""
    if failure is not None or app.builder.format != "html" or app.tags.has(one_file.TAG):
        return
    folder = Path(app.outdir) / "_images"
    for uri, (_, name) in app.env.images.items():
        narrow = narrow_form(app, uri)
        if narrow is not None and (folder / name).exists():
            _write_dark_form(narrow, folder / narrow_name(dark_name(name)))
            shutil.copyfile(narrow, folder / narrow_name(name))
    for light in sorted(folder.glob("*.png")):
        if not light.name.startswith(("dark-", "narrow-")):
            _write_dark_form(light, light.with_name(dark_name(light.name)))


def _write_dark_form(light: Path, path: Path) -> None:
    """Unless it is there already, and newer."""
    if not (path.exists() and path.stat().st_mtime > light.stat().st_mtime):
        write_dark(light, path)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", add_dark_forms)
    app.connect("build-finished", write_other_forms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
