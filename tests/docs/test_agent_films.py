"""Each algorithm's page opens with a film of its agent, its curve, and a page to play with."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlbook.interaction.environments import find
from rlbook.plots.pages.play_pages import PAGES
from rlbook.registry import ALGORITHMS

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import films  # noqa: E402
import picture_files  # noqa: E402

LEGIBLE = 10.0  # pixels of CSS, of letters in the column of a phone


@pytest.mark.parametrize("name", films.FILMS)
def test_every_agent_has_a_small_film_and_a_small_curve(name: str) -> None:
    shown = films.FILMS[name]
    film, curve = films.FOLDER / f"{name}.gif", films.FOLDER / f"{name}.png"
    assert find(shown.env)
    assert film.read_bytes()[:4] == b"GIF8" and film.stat().st_size < films.LARGEST
    assert curve.read_bytes()[:4] == b"\x89PNG" and curve.stat().st_size < films.LARGEST
    letters = picture_files.letters_on_a_phone(curve)
    assert letters is not None and letters >= LEGIBLE


def test_no_film_is_left_of_an_algorithm_that_is_gone() -> None:
    assert {path.stem for path in films.FOLDER.iterdir()} == set(films.FILMS)
    assert set(ALGORITHMS) - set(films.FILMS) == {"reward_model"}, "which does not act"


def load_extension() -> ModuleType:
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(DOCS / "ext"))
    spec = importlib.util.spec_from_file_location("agent_films", DOCS / "ext" / "agent_films.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent_films"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_page_opens_with_what_its_agent_does(name: str) -> None:
    extension = load_extension()
    source = ["# Title\n\n## Idea\n"]
    extension.open_page(None, f"algorithms/{name}", source)
    before, idea, _ = source[0].partition("## Idea")
    assert before.startswith("# Title\n") and idea
    filmed = name in films.FILMS
    pictures = [f"figures/films/{name}.{kind}" in before for kind in ("gif", "png")]
    assert [filmed, filmed, filmed] == [*pictures, f"train {name} " in before]
    assert f"{{try-it}} {name}\n" in before
    assert extension.PLAY[name].name in PAGES
    untouched = ["# Overview\n"]
    extension.open_page(None, "algorithms/index", untouched)
    assert untouched == ["# Overview\n"]
