"""Pictures have a dark form with the same data: another table of colours for the same places."""

from __future__ import annotations

import colorsys
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlbook.plots.colours import CURVES, INK, PAPER
from rlbook.plots.figure import SERVED, image_in_cell, new_figure

DOCS = Path(__file__).parents[2] / "docs"
pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location("dark_pictures", DOCS / "ext" / "dark_pictures.py")
assert spec is not None and spec.loader is not None
dark_pictures = importlib.util.module_from_spec(spec)
sys.path[:0] = [str(DOCS), str(DOCS / "ext")]
sys.modules["dark_pictures"] = dark_pictures
spec.loader.exec_module(dark_pictures)


def turned(colour: tuple[int, int, int]) -> tuple[int, ...]:
    return tuple(dark_pictures.dark(np.array([colour], dtype=float))[0].tolist())


def contrast(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """As WCAG 2 defines it: 1 for equal colours, 21 for black on white."""

    def light(colour: tuple[int, ...]) -> float:
        parts = [
            part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
            for part in colour
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(first), light(second)))
    return (high + 0.05) / (low + 0.05)


def test_paper_becomes_the_ground_of_a_dark_page_and_ink_can_be_read_on_it() -> None:
    assert turned(PAPER) == dark_pictures.PAGE
    assert contrast(turned(INK), dark_pictures.PAGE) > 12


@pytest.mark.parametrize("colour", CURVES)
def test_a_curve_keeps_its_hue_and_can_be_seen_in_the_dark(colour: tuple[int, int, int]) -> None:
    other = turned(colour)
    assert contrast(other, dark_pictures.PAGE) > 3.0
    before, after = (
        colorsys.rgb_to_hsv(*(part / 255 for part in each))[0] for each in (colour, other)
    )
    assert min(abs(before - after), 1 - abs(before - after)) < 0.06


def test_the_dark_form_has_the_size_and_the_places_of_the_light_one(tmp_path: Path) -> None:
    from PIL import Image

    light = DOCS / "figures" / "figure-6.4.png"
    dark_pictures.write_dark(light, tmp_path / "dark.png")
    with Image.open(light) as one, Image.open(tmp_path / "dark.png") as other:
        assert one.size == other.size
        before, after = (
            np.asarray(image.convert("RGB")).reshape(-1, 3) @ (1, 256, 65536)
            for image in (one, other)
        )
    for colour in np.unique(before)[:20]:
        assert len(np.unique(after[before == colour])) == 1, "what had one colour has one"


def test_walls_stay_dark_and_letters_and_arrows_of_the_same_ink_become_light(
    tmp_path: Path,
) -> None:
    from PIL import Image, ImageDraw

    light = Image.new("RGB", (120, 60), PAPER)
    drawing = ImageDraw.Draw(light)
    drawing.rectangle((10, 10, 49, 49), fill=INK)
    drawing.rectangle((70, 27, 109, 31), fill=INK)
    light.save(tmp_path / "light.png")
    dark_pictures.write_dark(tmp_path / "light.png", tmp_path / "dark.png")
    with Image.open(tmp_path / "dark.png") as other:
        found = np.asarray(other.convert("RGB"))
    wall, line = (tuple(found[place].tolist()) for place in ((30, 30), (29, 90)))
    assert tuple(found[2, 2].tolist()) == dark_pictures.PAGE
    assert contrast(wall, dark_pictures.PAGE) < 2 < 12 < contrast(line, dark_pictures.PAGE)


def test_a_narrow_page_shows_the_narrow_form_in_both_colours() -> None:
    from docutils import nodes

    uri = "figures/figure-6.4.png"
    app = SimpleNamespace(
        srcdir=DOCS,
        builder=SimpleNamespace(format="html"),
        tags=SimpleNamespace(has=lambda tag: False),
        env=SimpleNamespace(images={uri: ({"page"}, "figure-6.4.png")}),
    )
    page, gallery = (
        nodes.container("", nodes.image(uri=uri), classes=kind) for kind in ([], ["gallery"])
    )
    for around in (page, gallery):
        dark_pictures.add_dark_forms(app, around, "chapters/page")
    shown = [node.astext() for node in page.findall(nodes.raw)]
    images = [node["uri"] for node in page.findall(nodes.image)]
    assert images == [uri, "../_images/dark-figure-6.4.png"]
    assert [text.split("srcset=")[-1] for text in shown] == [
        '"../_images/narrow-figure-6.4.png">',
        "</picture>",
        '"../_images/narrow-dark-figure-6.4.png">',
        "</picture>",
    ]
    assert not list(gallery.findall(nodes.raw)), "a small picture stays as it is"
    for picture in page.findall(nodes.image):
        around = picture.parent.children
        at = around.index(picture)
        assert around[at - 1].astext().startswith("<picture><source media=")
        assert around[at + 1].astext() == "</picture>"


def test_a_narrow_page_shows_the_narrow_form_of_a_notebooks_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from docutils import nodes
    from PIL import Image

    picture = tmp_path / "jupyter_execute" / "0a.png"
    picture.parent.mkdir()
    Image.new("RGB", (dark_pictures.WIDE + 1, 30)).save(picture)
    uri = "jupyter_execute/0a.png"
    assert dark_pictures.narrow_form(SimpleNamespace(srcdir=tmp_path), uri) is None
    monkeypatch.setattr(dark_pictures.picture_files, "NARROW", tmp_path)
    narrow = dark_pictures.picture_files.narrow_form_of_output(picture.read_bytes())
    narrow.parent.mkdir()
    narrow.write_bytes(picture.read_bytes())
    app = SimpleNamespace(
        srcdir=tmp_path,
        builder=SimpleNamespace(format="html"),
        tags=SimpleNamespace(has=lambda tag: False),
        env=SimpleNamespace(images={uri: ({"page"}, "0a.png")}),
    )
    page = nodes.container("", nodes.image(uri=uri))
    dark_pictures.add_dark_forms(app, page, "notebooks/page")
    assert [node.astext().split("srcset=")[-1] for node in page.findall(nodes.raw)] == [
        '"../_images/narrow-0a.png">',
        "</picture>",
        '"../_images/narrow-dark-0a.png">',
        "</picture>",
    ]
    links = list(page.findall(nodes.reference))
    assert len(links) == 2 and all(isinstance(link.parent, nodes.inline) for link in links), (
        "a link of text and raw HTML stands only in text"
    )


def test_narrow_forms_are_written_in_both_colours(tmp_path: Path) -> None:
    from PIL import Image

    images = tmp_path / "_images"
    images.mkdir()
    uri = "figures/figure-6.4.png"
    (images / "figure-6.4.png").write_bytes((DOCS / uri).read_bytes())
    app = SimpleNamespace(
        srcdir=DOCS,
        outdir=tmp_path,
        builder=SimpleNamespace(format="html"),
        tags=SimpleNamespace(has=lambda tag: False),
        env=SimpleNamespace(images={uri: ({"page"}, "figure-6.4.png"), "other.svg": (set(), "a")}),
    )
    for _ in range(2):  # a build on top of a build
        dark_pictures.write_other_forms(app, None)
    assert {path.name for path in images.iterdir()} == {
        f"{kind}figure-6.4.png" for kind in ("", "dark-", "narrow-", "narrow-dark-")
    }
    sizes = []
    for path in (
        images / "narrow-figure-6.4.png",
        images / "narrow-dark-figure-6.4.png",
        DOCS / uri,
    ):
        with Image.open(path) as image:
            sizes.append(image.size)
    assert sizes[0] == sizes[1] and sizes[0][0] < sizes[2][0]


def test_a_picture_in_a_notebook_turns_dark_with_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a rule for dark pages alone, where a server shows the notebook; what is stored of one that
    is executed without has the PNG."""
    figure = new_figure(1, 1)
    assert figure._repr_html_() is None
    monkeypatch.setenv(SERVED, "paper.ipynb")
    rule, image = figure._repr_html_().removeprefix("<style>").split("</style>")
    pages, filters = rule.strip(" }").split(" { ")
    assert '[data-jp-theme-light="false"] .rlbook-picture' in pages.split(", ")
    assert all(" .rlbook-picture" in page for page in pages.split(", "))
    assert filters == "filter: invert(0.93) hue-rotate(180deg)"
    assert image.startswith('<img class="rlbook-picture" alt="" src="data:image/png;base64,iVBOR')
    film = image_in_cell(b"GIF89a", "a <maze>")
    assert ".rlbook-film { filter: brightness(0.8) }" in film and 'alt="a &lt;maze&gt;"' in film
