"""Every picture of a page is legible in the column of a phone: by its narrow form, or as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from closeness import near

from rlbook.plots.figure import COLUMN, DOTS_PER_INCH, is_narrow, narrow_column, new_figure

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import picture_files  # noqa: E402

LEGIBLE = 8.5  # pixels of CSS
TRAINED = (
    "answer-probability",
    "curves-sums",
    "exploration-steps",
    "more-tries",
    "ppo-clip",
)
"""Pictures of agents that take long to train: their letters are smaller until they are measured
again, which draws the narrow form too."""
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
    if picture.stem in TRAINED:
        assert letters is None or letters < LEGIBLE, "no longer small"
    else:
        assert letters is not None and letters >= LEGIBLE, picture.name


def test_no_narrow_form_is_left_of_a_picture_that_is_gone() -> None:
    narrow = {path.name for path in picture_files.NARROW.iterdir()}
    assert narrow <= {path.name for path in picture_files.FOLDER.glob("*.png")}


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
            axes.text(0, 0, "letters", fontsize=9)
        return figure

    monkeypatch.setattr(picture_files, "NARROW", tmp_path / "narrow")
    wide = tmp_path / "picture.png"
    picture_files.save_pictures(draw, wide)
    # 9 points are 9 / 72 inches; the picture is scaled from its width in inches to 358 pixels
    sizes = [
        picture_files.letters_on_a_phone(path) for path in (wide, picture_files.narrow_form(wide))
    ]
    assert sizes == near([9 / 72 / inches * 358 for inches in (8.8, COLUMN)], terms=4)
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
        assert list(new_figure(4.0, 3.0).get_size_inches()) == [COLUMN, 3.0]
    assert COLUMN * DOTS_PER_INCH > picture_files.PHONE, "sharp letters"
