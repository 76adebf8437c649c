"""`rlbook play`: a page of one file, or one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlbook.cli import main as cli
from rlbook.plots.pages.play_pages import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_one_file_that_loads_nothing(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert cli.main(["play", page, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": page, "written": [str(out)]}
    text = out.read_text(encoding="utf-8")
    assert (
        "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
        and 'name="viewport"' in text
    )
    assert not re.search(r"\b(src|href)=|@import|url\(|fetch\(|XMLHttpRequest", text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["grdi"], "did you mean 'grid'?"),
        (["--out", "page.txt"], "written as .html, got page.txt"),
        (["--oust", "a"], "did you mean '--out'?"),
        (["--out", "nowhere/page.html"], "cannot write nowhere/page.html"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["play", *words]) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1 and list(tmp_path.iterdir()) == []
