"""Makes the film and the learning curve that open each algorithm's page again:
`python docs/films.py [NAME …]`, ten minutes for all of them.

An algorithm is trained once, with seed 0 and its preset. The film is what `rlbook animate` or `rlbook
watch` make of it, the curve is that of `rlbook plot`, beside the optimum where it is known. Both lie
in docs/figures/films, small, so that the site's build has nothing to train;
docs/ext/agent_films.py shows them.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import shrink
from pictures import make_small

from rlbook.cli.main import main as cli
from rlbook.registry import ALGORITHMS

FOLDER = Path(__file__).parent / "figures" / "films"
WIDTH, FRAMES = 300, 14  # of a film: pixels and pictures
CURVE = 420  # pixels: the width of a curve
LARGEST = 100_000  # bytes of a film
FIRST_PANEL = 0.44  # of the height of three panels: where the legend of the first one ends
NEARLY_WHITE = 250  # of 255
VALUES, PLAYED = "values", "played"


class Filmed(NamedTuple):
    """How an algorithm is shown."""

    training: str = "Maze-v0"
    """What follows `rlbook train NAME`."""
    film: str = VALUES
    """VALUES: the values as they are learned. PLAYED: an episode of what was learned."""
    curve: bool = True
    """Whether its returns say how it learns: not where it plays nothing, or evaluates a policy that
    stays as it is."""

    @property
    def env(self) -> str:
        return self.training.split()[0]


PLAYED_IN_THE_MAZE = (
    "alphazero",
    "reinforce",
    "trpo",
    "grpo",
    "dpo",
    "rejection_sampling",
    "dagger",
    "gail",
)
PREDICTION = (
    "mc_prediction",
    "td_prediction",
    "n_step_td",
    "td_lambda",
    "semi_gradient_td",
    "lstd",
    "gradient_td",
)
FROM_DATA = ("fitted_q", "cql", "iql", "behavior_cloning", "co_distillation", "rce")
WITHOUT = ("reward_model", "distillation", "sac", "td3", "mbpo")
FILMS: dict[str, Filmed] = {
    **{name: Filmed() for name in ALGORITHMS if name not in WITHOUT},
    **dict.fromkeys(PLAYED_IN_THE_MAZE, Filmed("Maze-v0", PLAYED)),
    **dict.fromkeys(PREDICTION, Filmed(curve=False)),
    **dict.fromkeys(FROM_DATA, Filmed("Maze-v0", PLAYED, curve=False)),
    **dict.fromkeys(["ppo", "a2c"], Filmed("CartPole-v1", PLAYED)),
    **dict.fromkeys(["ddpg", "world_model"], Filmed("Pendulum-v1", PLAYED)),
    "semi_gradient_sarsa": Filmed("MountainCar-v0", PLAYED),
    "bandit": Filmed("TenArmedTestbed-v0"),
}
"""Of each algorithm, what trains it and what its film shows. A reward model does not act, distillation
needs a teacher's run, and the three others train for minutes."""


def training(name: str) -> str:
    """The command that trains an algorithm for its film, as its page shows it."""
    return f"rlbook train {name} {FILMS[name].training}"


def filming(name: str) -> str:
    """The command that makes its film of what was trained."""
    shown = FILMS[name]
    if shown.film == PLAYED:
        return f"rlbook watch runs/{name} --gif {name}.gif"
    return f"rlbook animate {name} {shown.training} --out {name}.gif"


def make(name: str) -> None:
    """Trains, films and draws one algorithm."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run, film, curve = folder / "run", folder / "film.gif", folder / "curve.png"
        given = shlex.split(FILMS[name].training)
        command("train", name, *given, "--seed", "0", "--out", str(run))
        if FILMS[name].curve:
            command("plot", str(run), "--out", str(curve))
            make_narrow(curve, FOLDER / f"{name}.png")
        if FILMS[name].film == PLAYED:
            command("watch", str(run), "--gif", str(film))
        else:
            command("animate", name, *given, "--out", str(film))
        make_small(film, FOLDER / f"{name}.gif", WIDTH, FRAMES)


def command(*words: str) -> None:
    """`rlbook WORDS`, in this process. RuntimeError with what it said where it fails."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = cli(words)
    if code:
        raise RuntimeError(f"rlbook {shlex.join(words)}: {told.getvalue().strip()[-300:]}")


def make_narrow(picture: Path, small: Path) -> None:
    """The panel of the returns, the uppermost one, of the width of a curve."""
    from PIL import Image

    with Image.open(picture) as opened:
        whole = opened.convert("RGB")
    if whole.height > 1.2 * whole.width:  # two panels of exact errors stand below it
        rows = np.asarray(whole.convert("L")).min(axis=1)
        blank = np.flatnonzero(rows > NEARLY_WHITE)
        first = blank[blank > FIRST_PANEL * whole.height][0]
        whole = whole.crop((0, 0, whole.width, int(first)))
    height = round(whole.height * CURVE / whole.width)
    whole.resize((CURVE, height), Image.Resampling.LANCZOS).save(small)
    shrink(small)


def main(wanted: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    failed = 0
    for name in wanted or FILMS:
        try:
            make(name)
        except RuntimeError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
