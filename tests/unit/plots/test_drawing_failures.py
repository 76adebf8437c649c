"""What cannot be drawn, for whatever reason, is one sentence; nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlbook
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.plots import plot_value_map
from rlbook.plots.figure import drawing
from rlbook.plots.films import gif_writer as gif


def test_any_exception_of_a_library_that_draws_becomes_a_sentence() -> None:
    with (
        pytest.raises(RequestError, match="the picture could not be drawn: ValueError: no good"),
        drawing("the picture"),
    ):
        raise ValueError("no\n good")
    with pytest.raises(RequestError, match="as it is"), drawing("the picture"):
        raise RequestError("as it is")


def test_values_that_are_no_numbers_have_no_map(tmp_path: Path) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0)
    run.agent.q[5] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="infinite or NaN"):
        plot_value_map(run, out=tmp_path / "map.png")
    assert list(tmp_path.iterdir()) == []


def test_letters_that_cannot_be_read_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gif, "FONT", "No Such Letters")
    gif.font.cache_clear()
    with pytest.raises(RequestError, match="cannot be read"):
        gif.font(13)
    gif.font.cache_clear()


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "words",
    [
        ["plot", "RUN", "--out", "FILE/a.png"],
        ["watch", "RUN", "--gif", "FILE/a.gif"],
        ["plot", "EMPTY"],
        ["animate", "value_iteration", "Maze-v0", "--out", "FILE/a.gif"],
        ["inspect", "EMPTY"],
    ],
)
def test_the_exit_code_of_a_picture_that_cannot_be_made_is_2(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")  # a folder that is a file
    (tmp_path / "empty").mkdir()
    rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0, out=tmp_path / "run")
    places = {"RUN": "run", "FILE": "file", "EMPTY": "empty"}
    for name, place in places.items():
        words = [word.replace(name, str(tmp_path / place)) for word in words]
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("rlbook: ") and said.err.count("\n") == 1
