"""Makes the film and the learning curve that open each algorithm's page again:
`python docs/films.py [NAME …]`, half an hour for all of them.

An algorithm is trained once, with seed 0 and its preset, some with fewer steps. The film is what
`rlbook animate` or `rlbook watch` make of it, the curve is that of `rlbook plot`, beside the optimum
where it is known. Both lie in docs/figures/films, small, so that the site's build has nothing to train;
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

from picture_files import enlarge_letters, shrink, smallest_letters
from pictures import make_small

from rlbook.cli.main import main as cli
from rlbook.plots.curves import plot_curves
from rlbook.plots.figure import COLUMN, narrow_column, save_figure
from rlbook.registry import ALGORITHMS

FOLDER = Path(__file__).resolve().parent / "figures" / "films"
WIDTH, FRAMES = 290, 14  # of a film: pixels and pictures
HEIGHT = 3.2  # of a curve, in inches; it is as wide as the column of a phone
LARGEST = 100_000  # bytes of a film
VALUES, PLAYED = "values", "played"
RETURNS, ERRORS = "returns", "errors"


class Filmed(NamedTuple):
    """How an algorithm is shown."""

    training: str = "Maze-v0"
    """What follows `rlbook train NAME`."""
    film: str = VALUES
    """VALUES: the values as they are learned. PLAYED: an episode of what was learned."""
    curve: str = RETURNS
    """RETURNS: those of its episodes. ERRORS: how far its values are from the exact ones, where the
    policy stays as it is."""
    teacher: str = ""
    """What follows `rlbook train` for the agent that it learns from."""
    shorter: str = ""
    """What the film alone has beside the training's options, so that it can be read."""

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
WITHOUT = ("reward_model",)
FILMS: dict[str, Filmed] = {
    **{name: Filmed() for name in ALGORITHMS if name not in WITHOUT},
    **dict.fromkeys((*PLAYED_IN_THE_MAZE, *FROM_DATA), Filmed("Maze-v0", PLAYED)),
    **dict.fromkeys(PREDICTION, Filmed(curve=ERRORS)),
    **dict.fromkeys(["ppo", "a2c"], Filmed("CartPole-v1", PLAYED)),
    **dict.fromkeys(["ddpg", "world_model"], Filmed("Pendulum-v1", PLAYED)),
    **dict.fromkeys(["sac", "td3"], Filmed("Pendulum-v1 --steps 8000", PLAYED)),
    "mbpo": Filmed("Pendulum-v1 --steps 2000", PLAYED),
    "semi_gradient_sarsa": Filmed("MountainCar-v0", PLAYED),
    "distillation": Filmed("Maze-v0 --teacher runs/ppo", PLAYED, teacher="ppo Maze-v0"),
    "bandit": Filmed("TenArmedTestbed-v0"),
    "mcts": Filmed(shorter=" --simulations 9"),  # with all of them no circle can be read
}
"""Of each algorithm, what trains it and what its film shows. A reward model does not act."""


def training(name: str) -> list[str]:
    """The commands that train an algorithm for its film, as its page shows them; the first of two
    trains its teacher."""
    shown = FILMS[name]
    asked = [shown.teacher] if shown.teacher else []
    asked.append(f"{name} {shown.training}")
    return [f"rlbook train {words} --seed 0 --out runs/{words.split()[0]}" for words in asked]


def filming(name: str) -> str:
    """The command that makes its film of what was trained."""
    shown = FILMS[name]
    if shown.film == PLAYED:
        return f"rlbook watch runs/{name} --gif {name}.gif"
    return f"rlbook animate {name} {shown.training}{shown.shorter} --out {name}.gif"


def make(name: str) -> None:
    """Trains, films and draws one algorithm."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        run, film = f"runs/{name}", Path("film.gif")
        for words in training(name):
            command(*shlex.split(words)[1:])
        draw_curve(run, FILMS[name].curve, FOLDER / f"{name}.png")
        if FILMS[name].film == PLAYED:
            command("watch", run, "--gif", str(film))
        else:
            words = f"{FILMS[name].training}{FILMS[name].shorter}"
            command("animate", name, *shlex.split(words), "--out", str(film))
        make_small(film, FOLDER / f"{name}.gif", WIDTH, FRAMES)


def command(*words: str) -> None:
    """`rlbook WORDS`, in this process. RuntimeError with what it said where it fails."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = cli(words)
    if code:
        raise RuntimeError(f"rlbook {shlex.join(words)}: {told.getvalue().strip()[-300:]}")


def draw_curve(run: str, shown: str, small: Path) -> None:
    """The panel of a run's returns, or of the errors of its values, in the column of a phone."""
    with narrow_column():
        figure = plot_curves(run)
    panels = figure.axes
    chosen = panels[0] if shown == RETURNS else panels[1]
    for other in panels:
        if other is not chosen:
            other.remove()
    chosen.set_subplotspec(figure.add_gridspec(1, 1)[0])
    figure.supxlabel("")
    figure.set_size_inches(COLUMN, HEIGHT)
    enlarge_letters(figure)
    save_figure(figure, small)
    shrink(small, smallest_letters(figure))


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
