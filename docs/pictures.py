"""Makes the film of the README and the pictures of the first page again that no other command makes:
`python docs/pictures.py`, five minutes; `python docs/pictures.py thumbnails` the nine small ones,
`python docs/pictures.py film` the film.

The token inspector and the page to play with are photographed by Chromium.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from book_file import find_browser
from picture_files import narrow_form, shrink

from rlbook.cli.main import main as cli
from rlbook.plots.figure import DOTS_PER_INCH, narrow_column

RLBOOK = [sys.executable, "-m", "rlbook"]
FIGURES = Path(__file__).parent / "figures"
README = Path(__file__).parents[1] / "README.md"
FILM = "q-learning.gif"
# of the window, in pixels: little, so that its letters stay large in a small picture
SIZE = (
    600,
    560,
)
PHONE = (390, 1060)
SCALE = 1.5  # pixels of a picture for one of CSS
SMALLEST = 0.72 * 16  # pixels of CSS, of the letters of the page to play with
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
    ]


def film_cliff() -> None:
    """The film of the README, and its narrow form, which the first page has beside its words."""
    command = film_of_the_readme()
    for film, column in (
        (FIGURES / FILM, contextlib.nullcontext()),
        (narrow_form(FIGURES / FILM), narrow_column()),
    ):
        with column:
            assert cli([*command, "--out", str(film)]) == 0


def photographed(page: Path, picture: Path, script: str, size: tuple[int, int] = SIZE) -> None:
    """A page after a script of ours."""
    browser = find_browser()
    page.write_text(
        page.read_text(encoding="utf-8") + f"<script>{script}</script>", encoding="utf-8"
    )
    window = [
        f"--window-size={size[0]},{size[1]}",
        "--virtual-time-budget=60000",
        f"--force-device-scale-factor={SCALE}",
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


THUMBNAIL = 240  # pixels, the longer side
THUMBNAIL_FRAMES = 24
THUMBNAILS: dict[str, tuple[str, str]] = {
    "maze": ("train q_learning Maze-v0", "watch {run} --gif {gif}"),
    "cliff": ("", "animate sarsa CliffWalking-v1 --episodes 200 --out {gif}"),
    "values": ("", "animate value_iteration Maze-v0 --out {gif}"),
    "tree": ("", "animate mcts FrozenLake-v1 --simulations 40 --stochastic chance --out {gif}"),
    "pole": ("train ppo CartPole-v1", "watch {run} --gif {gif}"),
    "mountain": ("train semi_gradient_sarsa MountainCar-v0", "watch {run} --gif {gif}"),
    "pendulum": ("train sac Pendulum-v1", "watch {run} --gif {gif}"),
    "game": ("train mcts TicTacToe-v0 --episodes 4", "watch {run} --gif {gif}"),
}
"""Of each moving thumbnail, what trains the agent, if anything must, and what films it."""


def thumbnails() -> None:
    """The small films of the first page, and its small picture of coloured tokens."""
    from PIL import Image

    folder = FIGURES / "thumbnails"
    folder.mkdir(exist_ok=True)
    for name, (trained, filmed) in THUMBNAILS.items():
        with tempfile.TemporaryDirectory() as place:
            known = {"run": f"{place}/run", "gif": f"{place}/film.gif"}
            if trained:
                command = [*trained.split(), "--seed", "0", "--out", known["run"]]
                subprocess.run([*RLBOOK, *command], check=True)
            command = [word.format(**known) for word in filmed.split()]
            subprocess.run([*RLBOOK, *command], check=True)
            make_small(Path(known["gif"]), folder / f"{name}.gif")
    with Image.open(FIGURES / "token-inspector.png") as picture:
        small = picture.convert("RGB")
        small.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
        small.save(folder / "tokens.png")
    shrink(folder / "tokens.png")


def make_small(
    film: Path, small: Path, size: int = THUMBNAIL, most: int = THUMBNAIL_FRAMES
) -> None:
    """A film of fewer and smaller frames: at most about `most`, none longer than `size` pixels."""
    from PIL import Image, ImageSequence

    with Image.open(film) as whole:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(whole)]
    every = -(-len(frames) // most)
    kept = frames[::every] + ([frames[-1]] if (len(frames) - 1) % every else [])
    for frame in kept:
        frame.thumbnail((size, size), Image.Resampling.LANCZOS)
    palette = kept[-1].quantize(48, dither=Image.Dither.NONE)
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in kept]
    waits = [120] * (len(drawn) - 1) + [1500]
    drawn[0].save(small, save_all=True, append_images=drawn[1:], duration=waits, loop=0)


def photograph_play(page: Path) -> None:
    """The page to play with, also as it is on a phone."""
    photographed(page, FIGURES / "play-tokens.png", AFTER_AN_UPDATE, (900, 600))
    narrow = narrow_form(FIGURES / "play-tokens.png")
    photographed(page, narrow, "", PHONE)
    shrink(narrow, SMALLEST * SCALE * 72 / DOTS_PER_INCH)


def main(wanted: list[str]) -> None:
    if wanted == ["thumbnails"]:
        return thumbnails()
    if wanted == ["film"]:
        return film_cliff()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for words in commands(folder):
            subprocess.run([*RLBOOK, *words], check=True)
        film_cliff()
        shutil.copyfile(folder / "maze.png", FIGURES / "maze-values.png")
        photographed(folder / "sums.html", FIGURES / "token-inspector.png", A_THIRD_OF_THE_WAY)
        photograph_play(folder / "play.html")
    for name in ("maze-values", "token-inspector", "play-tokens"):
        shrink(FIGURES / f"{name}.png")
    thumbnails()


if __name__ == "__main__":
    main(sys.argv[1:])
