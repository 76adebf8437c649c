"""Writes the chapters as one file:

    python docs/book_file.py pdf        docs/_build/rlbook.pdf, printed by Chromium
    python docs/book_file.py epub       docs/_build/rlbook.epub, with formulas in MathML

docs/ext/printed_pages.py says what is in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BUILDERS = {"pdf": "singlehtml", "epub": "epub"}
DRAWN = {"mathml": b"<math", "svg": b"<svg"}


def find_browser() -> str:
    """The first of `BROWSERS` that is installed. Ends the program with a sentence where none is."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(
            f"this needs Chromium, and none of {', '.join(BROWSERS)} was found; on Debian"
            " `apt install chromium` brings it"
        )
    return browser


def build_pages(kind: str) -> Path:
    """What Sphinx makes of the chapters, in a folder. Ends the program where it fails."""
    folder = BUILD / f"{kind}-pages"
    shutil.rmtree(folder, ignore_errors=True)  # an e-book would have all files that lie there
    builder, trees = BUILDERS[kind], str(BUILD / f"{kind}-trees")
    options = ["-q", "-W", "--keep-going", "-t", "print", "-b", builder, "-d", trees]
    command = [sys.executable, "-m", "sphinx", *options, str(HERE), str(folder)]
    if code := subprocess.run(command).returncode:
        sys.exit(code)
    return folder


def print_pages(browser: str, page: Path, file: Path) -> None:
    """A page as PDF, with an outline and the numbers that its style sheet asks for."""
    options = ["--headless", "--no-sandbox", "--no-pdf-header-footer"]
    command = [browser, *options, "--generate-pdf-document-outline", f"--print-to-pdf={file}"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True)
    if done.returncode or not file.is_file():
        sys.exit(f"{browser} could not print {page}: {done.stderr.strip()[-500:]}")


def declare_formulas(book: Path, file: Path) -> None:
    """Copies an e-book, and lists the pages that have MathML or SVG as such, which readers ask for
    and Sphinx leaves out."""

    def declare(found: re.Match[str]) -> str:
        has = " ".join(kind for kind, tag in DRAWN.items() if tag in pages.get(found[1], b""))
        return found[0] + f' properties="{has}"' * bool(has)

    with zipfile.ZipFile(book) as old, zipfile.ZipFile(file, "w") as new:
        pages = {name: old.read(name) for name in old.namelist() if name.endswith(".xhtml")}
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".opf"):
                items = r'<item id="[^"]*" href="([^"]+)"'
                content = re.sub(items, declare, content.decode()).encode()
            new.writestr(item, content)


def main() -> None:
    kinds = [word for word in sys.argv[1:] if word in BUILDERS]
    if len(sys.argv) != 2 or not kinds:
        sys.exit(f"say which: {' or '.join(BUILDERS)}")
    file = BUILD / f"rlbook.{kinds[0]}"
    browser = find_browser() if kinds == ["pdf"] else ""
    folder = build_pages(kinds[0])
    file.unlink(missing_ok=True)
    if browser:
        print_pages(browser, folder / "index.html", file)
    else:
        declare_formulas(folder / "rlbook.epub", file)
    print(f"{file.relative_to(HERE.parent)}, {file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
