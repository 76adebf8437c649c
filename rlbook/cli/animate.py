"""The command line of `rlbook animate`: an algorithm, an environment, `--env.KEY VALUE` and
hyper-parameters, as for `rlbook train`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from rlbook.cli.command_line import (
    move_numbers_last,
    spell_out,
    take_algorithm,
    take_env_arguments,
)
from rlbook.cli.options import EnvironmentOptions, File, Number, command_options, flatten, parse
from rlbook.cli.output import Result
from rlbook.cli.train import command_of
from rlbook.cli.values import OptionText, convert, flag
from rlbook.errors import RequestError

COUNTS = ("steps", "episodes", "seed", "frames")
DESCRIPTION = """\
Animate how values come about: the sweeps of a planner, the table of a learner filling, the tree of
a search (mcts) growing. A GIF, or a page with play, steps and sliders.

Examples:
  rlbook animate value_iteration Maze-v0 --out sweeps.gif
  rlbook animate q_learning CliffWalking-v1 --alpha 0.5 --frames 40 --out cliff.html
  rlbook animate mcts Maze-v0 --simulations 60 --out search.gif"""


@command_options
class AnimateOptions(EnvironmentOptions):
    """What to animate, and where to write it."""

    # the .gif, or the .html page with buttons, to write (default: ALGORITHM-ENV.html)
    out: File = None
    frames: Number = None  # maximum number of frames (default: 60)
    # environment steps to train for, or sweeps to plan for (default: as for train)
    steps: Number = None
    episodes: Number = None  # finished episodes to train for (default: as for train)
    seed: Number = None  # seeds every source of randomness (default: 0)


def run_animation(argv: Sequence[str]) -> tuple[bool, Result]:
    """Animates what the command line asks for. Returns whether JSON is wanted, and what to print.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    words, env_kwargs = take_env_arguments(list(argv))
    algorithm, words = take_algorithm(move_numbers_last(words))
    kinds, command = command_of(algorithm, AnimateOptions)
    prog = f"rlbook animate {algorithm}" if algorithm else "rlbook animate ALGORITHM"
    options = flatten(parse(command, spell_out(words, kinds), prog, DESCRIPTION))
    env = options["env"]
    if algorithm is None or env is None:
        raise RequestError(
            "animate needs an ALGORITHM and an ENV, for example: rlbook animate "
            f"{algorithm or 'value_iteration'} Maze-v0"
        )
    counts = {name: value for name in COUNTS if (value := options[name]) is not None}
    hyperparameters = {
        name: convert(flag(name), value, kinds[name])
        for name in kinds
        if isinstance(value := options[name], OptionText)
    }
    out = (
        options["out"]
        or f"{algorithm}-{env.removeprefix('rlbook/').replace('/', '-').replace(':', '-')}.html"
    )
    from rlbook.plots import animate

    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is not a result
        written = animate(
            algorithm,
            env,
            out=out,
            env_kwargs=env_kwargs,
            allow_import=options["allow_import"],
            **counts,
            **hyperparameters,
        )
    facts = {"algorithm": algorithm, "env": env, "written": [str(written)]}
    return options["json"], (facts, str(written))
