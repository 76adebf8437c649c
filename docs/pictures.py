"""Makes the film of the README and the pictures of the first page again that no other command makes:
`python docs/pictures.py`, a minute.

The token inspector and the page to play with are photographed by Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from book_file import find_browser
from measure import RLBOOK, shrink

FIGURES = Path(__file__).parent / "figures"
README = Path(__file__).parents[1] / "README.md"
FILM = "q-learning.gif"
# of the window, in pixels: little, so that its letters stay large in a small picture
SIZE = (
    600,
    560,
)
A_THIRD_OF_THE_WAY = """go(Math.round(last / 3)); show(2, 1, false);
for (const said of document.querySelectorAll("h1, p.faint")) said.hidden = true;"""
AFTER_AN_UPDATE = """rlbookPlay.ready.then(async () => {
  rlbookPlay.sampleGroup();
  await rlbookPlay.update();
  document.body.replaceChildren(find("answers"), find("inside"));
});"""


def film_of_the_readme() -> list[str]:
    """The command that stands below it, without `rlbook` and the file's name."""
    found = re.search(rf"`rlbook (animate [^`]+) --out {re.escape(FILM)}`", README.read_text())
    assert found is not None
    return found[1].split()


def commands(folder: Path) -> list[list[str]]:
    """`rlbook …`, in order: a planner's values of the maze, and what a small language model writes
    while it learns sums."""
    maze, sums = str(folder / "maze"), str(folder / "sums")
    return [
        ["train", "value_iteration", "Maze-v0", "--out", maze],
        ["plot", maze, "--values", "--out", str(folder / "maze.png")],
        [
            "train",
            "grpo",
            "Addition-v0",
            "--seed",
            "0",
            "--kl-coef",
            "0.02",
            "--inspect",
            "4",
            "--out",
            sums,
        ],
        ["inspect", sums, "--out", str(folder / "sums.html")],
        ["play", "tokens", "--out", str(folder / "play.html")],
        [*film_of_the_readme(), "--out", str(FIGURES / FILM)],
    ]


def photographed(page: Path, picture: Path, script: str, size: tuple[int, int] = SIZE) -> None:
    """A page after a script of ours."""
    browser = find_browser()
    page.write_text(
        page.read_text(encoding="utf-8") + f"<script>{script}</script>", encoding="utf-8"
    )
    window = [
        f"--window-size={size[0]},{size[1]}",
        "--virtual-time-budget=60000",
        "--force-device-scale-factor=1.5",
        "--hide-scrollbars",
    ]
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        *window,
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for words in commands(folder):
            subprocess.run([*RLBOOK, *words], check=True)
        shutil.copyfile(folder / "maze.png", FIGURES / "maze-values.png")
        photographed(folder / "sums.html", FIGURES / "token-inspector.png", A_THIRD_OF_THE_WAY)
        photographed(folder / "play.html", FIGURES / "play-tokens.png", AFTER_AN_UPDATE, (900, 600))
    for name in ("maze-values", "token-inspector", "play-tokens"):
        shrink(FIGURES / f"{name}.png")


if __name__ == "__main__":
    main()
