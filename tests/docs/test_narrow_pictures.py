"""Every picture of a page is legible in the column of a phone: by its narrow form, or as it is."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from closeness import near
from matplotlib.figure import Figure
from PIL import Image

from rlbook.plots.figure import COLUMN, DOTS_PER_INCH, is_narrow, narrow_column, new_figure

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import narrow_notebooks  # noqa: E402
import notebook_outputs  # noqa: E402
import picture_files  # noqa: E402

LEGIBLE = 10.0  # pixels of CSS
SHOWN = "\n".join(
    path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md") if "_build" not in path.parts
)
PICTURES = [
    path
    for path in sorted(picture_files.FOLDER.glob("*.png"))
    if f"figures/{path.name})" in SHOWN or path.name.startswith("figure-")
]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_letters_are_legible_on_a_phone(picture: Path) -> None:
    narrow = picture_files.narrow_form(picture)
    letters = picture_files.letters_on_a_phone(narrow if narrow.exists() else picture)
    assert letters is not None and letters >= LEGIBLE, picture.name


@pytest.mark.parametrize("notebook", notebook_outputs.NOTEBOOKS, ids=lambda path: path.stem)
def test_letters_of_a_notebooks_pictures_are_legible_on_a_phone(notebook: Path) -> None:
    for picture in notebook_outputs.pictures(notebook_outputs.read(notebook)):
        with Image.open(io.BytesIO(picture)) as image:
            if image.width <= picture_files.PHONE:
                continue  # it stays as it is, and so do its letters
        letters = picture_files.letters_on_a_phone(picture_files.narrow_form_of_output(picture))
        assert letters is not None and letters >= LEGIBLE


def test_no_narrow_form_is_left_of_a_picture_that_is_gone() -> None:
    narrow = {path.name for path in picture_files.NARROW.glob("*.png")}
    assert narrow <= {path.name for path in picture_files.FOLDER.glob("*.png")}
    stored = {
        picture_files.narrow_form_of_output(picture).name
        for path in notebook_outputs.NOTEBOOKS
        for picture in notebook_outputs.pictures(notebook_outputs.read(path))
    }
    assert {path.name for path in (picture_files.NARROW / "notebooks").iterdir()} <= stored


def test_the_smallest_letters_are_those_that_are_seen() -> None:
    figure = new_figure(COLUMN, 2.0)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0, 0, "a", fontsize=11)
    axes.text(0, 1, "b", fontsize=7.5)
    axes.text(1, 0, "", fontsize=4)
    axes.text(1, 1, "c", fontsize=5, visible=False)
    assert picture_files.smallest_letters(figure) == 7.5


def test_both_forms_are_written_with_the_size_of_their_letters(tmp_path: Path, monkeypatch) -> None:
    def draw():
        figure = new_figure(8.8, 2.0)
        for axes in figure.subplots(1, 2):
            axes.set_axis_off()
            axes.text(0, 0, "letters", fontsize=8)
        return figure

    monkeypatch.setattr(picture_files, "NARROW", tmp_path / "narrow")
    wide = tmp_path / "picture.png"
    picture_files.save_pictures(draw, wide)
    # 8 points are 8 / 72 inches; the picture is scaled from its width in inches to 358 pixels
    sizes = [
        picture_files.letters_on_a_phone(path) for path in (wide, picture_files.narrow_form(wide))
    ]
    letters = ((8, 8.8), (picture_files.LEAST, COLUMN))  # small ones are larger in the narrow form
    assert sizes == near([points / 72 / inches * 358 for points, inches in letters], terms=4)
    picture_files.shrink(wide)
    assert picture_files.letters_on_a_phone(wide) is None


def test_panels_lie_below_each_other_in_a_narrow_column() -> None:
    assert not is_narrow()
    with narrow_column():
        assert is_narrow()
        figure = new_figure(9.0, 4.0)
        panels = figure.subplots(2, 3, width_ratios=(1, 2, 3))
        row = new_figure(9.0, 4.0).subplots(1, 3)
        own = new_figure(9.0, 4.0, narrow_height=3.0)
        kept = own.subplots(1, 2)
    assert not is_narrow()
    assert panels.shape == (2, 3) and row.shape == (3,) and kept.shape == (2,)
    figure.canvas.draw()
    boxes = np.array([axes.get_position().bounds for axes in panels.ravel()])
    assert len(set(boxes[:, 0])) == 1 and (np.diff(boxes[:, 1]) < 0).all()
    # a panel of 3 inches keeps its height of 4 / 2
    assert list(figure.get_size_inches()) == [COLUMN, 2.0 * 6]
    assert list(own.get_size_inches()) == [COLUMN, 3.0]
    assert kept[0].get_position().y0 == kept[1].get_position().y0


def test_a_figure_beside_a_narrow_column_is_as_it_was() -> None:
    figure = new_figure(9.0, 4.0, narrow_height=3.0)
    panels = figure.subplots(1, 2)
    assert list(figure.get_size_inches()) == [9.0, 4.0]
    assert panels[0].get_position().y0 == panels[1].get_position().y0


def test_a_wide_panel_keeps_four_fifths_of_its_height() -> None:
    with narrow_column():
        assert list(new_figure(8.8, 5.0).get_size_inches()) == [COLUMN, 4.0]
        assert list(new_figure(3.6, 3.0).get_size_inches()) == [COLUMN, 3.0]
    assert COLUMN * DOTS_PER_INCH > picture_files.PHONE, "sharp letters"


def test_letters_grow_to_the_least_size_and_larger_ones_stay() -> None:
    figure = new_figure(COLUMN, 2.0)
    axes = figure.subplots()
    axes.tick_params(labelsize=6)
    axes.set_title("title", fontsize=12)
    picture_files.enlarge_letters(figure, 9.0)
    assert picture_files.smallest_letters(figure) == 9.0
    assert axes.title.get_fontsize() == 12


def test_a_notebooks_figure_is_laid_out_in_the_column_of_a_phone() -> None:
    figure = Figure(figsize=(12, 3), layout="constrained")  # three panels of 4 by 3 inches
    panels = figure.subplots(1, 3, sharey=True)
    twin = panels[2].twinx()
    shown = panels[0].imshow([[0.0, 1.0]], aspect="auto")
    scale = figure.colorbar(shown, ax=panels[0])
    panels[1].set_title(
        "a title of many words, which is longer than the column is wide", fontsize=12
    )
    narrow_notebooks.make_narrow(figure)
    assert list(figure.get_size_inches()) == [COLUMN, 9.0]
    figure.canvas.draw()
    boxes = [axes.get_position() for axes in panels]
    assert boxes[0].y0 > boxes[1].y1 > boxes[1].y0 > boxes[2].y1
    assert twin.get_position().y0 == near(boxes[2].y0, terms=4)
    assert not twin.yaxis.get_tick_params()["labelleft"], "its numbers stand on the right"
    assert scale.ax.get_position().y0 > boxes[1].y1, "it stays beside its panel"
    assert panels[1].get_title().count("\n") == 1
    assert all(axes.yaxis.get_tick_params()["labelleft"] for axes in panels)
    assert picture_files.smallest_letters(figure) >= picture_files.LEAST


def test_the_colours_of_a_plain_figure_are_explained_beside_the_panel() -> None:
    figure = Figure(figsize=(7, 3))
    axes = figure.subplots()
    figure.colorbar(axes.imshow([[0.0, 1.0]]), ax=axes, label="share")
    narrow_notebooks.make_narrow(figure)
    figure.canvas.draw()
    _, scale = figure.axes
    assert scale.get_ylabel() == "share"
    assert scale.get_position().x0 > axes.get_position().x1


def test_a_kernel_keeps_the_narrow_forms_of_what_it_displays(tmp_path: Path, monkeypatch) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    monkeypatch.setattr(formatters.PNGFormatter, "__call__", formatters.PNGFormatter.__call__)
    narrow_notebooks.keep_narrow_forms(str(tmp_path))
    formatter = formatters.PNGFormatter()
    small, wide = new_figure(3.0, 2.0), new_figure(9.0, 2.0)
    for figure in (small, wide):
        figure.subplots(1, 2)
        assert formatter(figure)
    assert formatter("no picture") is None
    assert [path.name for path in tmp_path.iterdir()] == ["1.png"], "a small one stays as it is"
    letters = picture_files.letters_on_a_phone(tmp_path / "1.png")
    assert letters is not None and letters >= LEGIBLE
    assert (
        narrow_notebooks.width_of(base64.b64encode((tmp_path / "1.png").read_bytes()).decode())
        == 600
    )
