"""The chapters as one file: `make epub` and `make pdf`."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


book_file = from_file(DOCS / "book_file.py")
printed_pages = from_file(DOCS / "ext" / "printed_pages.py")


def test_every_chapter_is_printed_once_and_in_the_order_of_the_site() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    printed = [name for names in printed_pages.parts().values() for name in names]
    chapters = [name for name in printed if name.startswith("chapters/")]
    assert chapters == re.findall(r"^(chapters/\S+)$", index, flags=re.MULTILINE)
    assert len(chapters) == len(list((DOCS / "chapters").glob("*.md"))) and len(
        set(printed)
    ) == len(printed)
    assert "environments/maze" in printed_pages.pages() > set(printed)
    assert all((DOCS / f"{name}.md").is_file() for name in printed_pages.pages())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("see [trees](trees.md#by-hand)", "see [trees](trees.md#by-hand)"),
        ("see [PPO](../algorithms/ppo.md#idea).", "see PPO."),
        ("[`[B]`](../algorithms/ppo.md)", "`[B]`"),
        ("see [](../algorithms/ppo.md)", "see PPO"),
        ("[](../notebooks/bandits.ipynb)", "Bandits"),
        ("[paper](https://arxiv.org/abs/1707.06347)", "[paper](https://arxiv.org/abs/1707.06347)"),
        ("![a maze](../figures/maze.md)", "![a maze](../figures/maze.md)"),
    ],
)
def test_a_link_to_a_page_that_is_not_printed_is_its_words(text: str, printed: str) -> None:
    assert printed_pages.without_other_links(text, "chapters/planning") == printed


def test_without_a_browser_make_pdf_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "book_file.py"), "pdf"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        "this needs Chromium, and none of chromium, chromium-browser, google-chrome,"
        " google-chrome-stable, chrome was found; on Debian `apt install chromium` brings it\n"
    )


def test_pages_with_formulas_or_drawings_are_declared_in_the_e_book(tmp_path: Path) -> None:
    item = '<item id="{0}" href="{0}.xhtml" media-type="application/xhtml+xml" />'
    with zipfile.ZipFile(tmp_path / "old.epub", "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr("content.opf", "".join(map(item.format, "abcd")))
        book.writestr("a.xhtml", "<html><math></math></html>")
        book.writestr("b.xhtml", "<html></html>")
        book.writestr("c.xhtml", "<html><svg></svg></html>")
        book.writestr("d.xhtml", "<html><svg></svg><math></math></html>")
    book_file.declare_formulas(tmp_path / "old.epub", tmp_path / "new.epub")
    with zipfile.ZipFile(tmp_path / "new.epub") as book:
        assert book.namelist()[0] == "mimetype"  # the format asks for it, and without compression
        assert book.infolist()[0].compress_type == zipfile.ZIP_STORED
        declared = re.findall(
            r'href="(\w)\.xhtml" properties="([^"]+)"', str(book.read("content.opf"))
        )
    assert declared == [("a", "mathml"), ("c", "svg"), ("d", "mathml svg")]


@pytest.mark.slow
def test_the_e_book_has_every_chapter_with_its_formulas_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_file, "BUILD", tmp_path)
    book_file.declare_formulas(
        book_file.build_pages("epub") / "rlbook.epub", tmp_path / "book.epub"
    )
    with zipfile.ZipFile(tmp_path / "book.epub") as book:
        names = set(book.namelist())
        pages = {
            name: ElementTree.fromstring(book.read(name))  # raises where it is no XML
            for name in names
            if name.endswith(".xhtml")
        }
    assert {f"{name}.xhtml" for name in printed_pages.pages()} <= set(pages)
    anchors = {name: {element.get("id") for element in page.iter()} for name, page in pages.items()}
    films = 0
    for name, page in pages.items():
        if name.startswith("chapters/"):
            assert page.find(".//{http://www.w3.org/1998/Math/MathML}math") is not None, name
        # an operator is a text; readers refuse a page in which it holds other elements
        assert [mo for mo in page.iter("{http://www.w3.org/1998/Math/MathML}mo") if len(mo)] == []
        for element in page.iter():
            link = element.get("src") or element.get("href") or ""
            films += link.endswith(".gif")
            if re.match(r"https?:|mailto:", link) or not link:
                continue
            target, _, anchor = link.partition("#")
            path = posixpath.normpath(
                posixpath.join(posixpath.dirname(name), target or posixpath.basename(name))
            )
            assert path in names, f"{name} leads to {link}"
            assert not anchor or anchor in anchors[path], f"{name} leads to {link}"
    shown = re.compile(r"```\{animation\}|!\[[^]]*\]\([^)]+\.gif\)")
    assert films == sum(
        len(shown.findall((DOCS / f"{name}.md").read_text(encoding="utf-8")))
        for name in printed_pages.pages()
    )


@pytest.mark.slow
def test_on_paper_every_link_has_a_place_of_its_own_to_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_file, "BUILD", tmp_path)
    page = book_file.build_pages("pdf") / "index.html"
    text = page.read_text(encoding="utf-8")
    anchors = Counter(re.findall(r'\bid="([^"]+)"', text.split('<article role="main"')[1]))
    assert [name for name, times in anchors.items() if times > 1 and "--" in name] == []
    links = set(re.findall(r'href="#([^"]+)"', text.split('<article role="main"')[1]))
    assert len(links) > 500 and links <= set(anchors) | {"top"}
    assert "<details" not in text and "<iframe" not in text


@pytest.mark.skipif(
    not any(map(shutil.which, book_file.BROWSERS)), reason="Chromium is not installed"
)
def test_chromium_prints_a_page_as_a_pdf(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<h1>One</h1><p style="break-before: page">Two</p>')
    book_file.print_pages(book_file.find_browser(), page, tmp_path / "book.pdf")
    content = (tmp_path / "book.pdf").read_bytes()
    assert content.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\b", content)) == 2
