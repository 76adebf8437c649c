"""`rlbook demo`: PPO solves a maze, then a small language model learns to add, from answers and from
rewards. All with `rlbook.train`."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rlbook
from rlbook.book.experiments.language_models import starting_weights as weights
from rlbook.plots.colours import GREEN, RED
from rlbook.plots.terminal import Terminal, value_map_text
from rlbook.runs.progress import progress

if TYPE_CHECKING:
    from rlbook.plots.completions import DisplayedCompletion
    from rlbook.runs.run import Run

HELD_OUT = 512  # sums that are never trained on
SHOWN = 8  # of them in the table
WIDTH = 88


def run_demo() -> None:
    """Runs both parts, and prints their results."""
    terminal = Terminal()
    seconds = maze(terminal) + addition(terminal)
    _say(
        terminal,
        f"Training took {seconds:.0f} seconds in all. `{_command()} list` shows what else trains on"
        f" what, and `{_command()} explain grpo` what GRPO does.",
    )


def maze(terminal: Terminal) -> float:
    """Trains PPO on the maze. Returns the seconds of training."""
    _title(terminal, "1  PPO learns its way through a maze")
    _say(
        terminal,
        "The agent knows nothing but the number of the cell it stands in. A step costs 1, a bump"
        " into a wall 5, and the goal G pays 10, so the best possible return is 3: seven steps, and"
        " the eighth into the goal.",
    )
    run, seconds = train("ppo", "Maze-v0")
    terminal.write()
    result = rlbook.evaluate(run, episodes=100)
    mean = terminal.bold(f"{result.mean:.2f}")
    _say(
        terminal,
        f"Return of 100 greedy episodes: {mean}, after {run.steps:,} steps and {seconds:.1f}"
        " seconds. This is what PPO thinks of each cell: the value that its critic expects, and"
        " the way it goes.",
    )
    _show_maze(run, terminal)
    _show_commands(terminal, "train ppo Maze-v0", "watch runs/ppo-Maze-v0-0")
    return seconds


def addition(terminal: Terminal) -> float:
    """Trains GRPO on sums. Returns the seconds of training."""
    _title(terminal, "2  GRPO teaches a language model to add")
    _say(
        terminal,
        "A transformer of 0.1 million parameters writes the answer to sums like 12+34=, one token"
        " an action. It is paid 1 for exactly the right answer and 0 otherwise. From random weights"
        " nothing would ever be paid. So it is shown right answers first, until it gives two in"
        " five itself:",
    )
    warm_up = cloning(terminal)
    # one token: no episode ends, and nothing is learned
    untaught = rlbook.train("grpo", "Addition-v0", steps=1, eval_every=0)
    before = examine(untaught)
    terminal.write()
    _say(
        terminal,
        "The weights that come with rlbook were made by this command. They are the same on every"
        f" machine, and GRPO starts from them: of {HELD_OUT} sums that it is never trained on, it"
        f" has {_score(before, terminal)}.",
    )
    _show_group(untaught, terminal)
    run, seconds = train("grpo", "Addition-v0")
    terminal.write()
    after = examine(run)
    _say(
        terminal,
        f"After {seconds:.0f} seconds of GRPO it has {_score(after, terminal)}. The first {SHOWN}"
        " of these sums:",
    )
    _show_sums(before.answers, after.answers, terminal)
    _show_commands(terminal, "train grpo Addition-v0", "watch runs/grpo-Addition-v0-0")
    return warm_up + seconds


def cloning(terminal: Terminal) -> float:
    """Behaviour cloning of correct answers, from random weights. Returns the seconds of
    training."""
    start = time.monotonic()
    with progress() as report:
        run = weights.train_halfway("Addition-v0", on_report=report)
    seconds = time.monotonic() - start
    terminal.write()
    share = terminal.bold(f"{run.metrics[-1]['eval_return']:.0%}")
    _say(
        terminal,
        f"That took {run.steps} minibatches and {seconds:.0f} seconds, and now {share} of its"
        " likeliest answers are right.",
    )
    _show_commands(terminal, weights.command("Addition-v0").removeprefix("rlbook "))
    return seconds


def train(algorithm: str, env: str) -> tuple[Run, float]:
    """Trains with default settings, behind a progress bar; returns the run and its seconds."""
    start = time.monotonic()
    with progress() as report:
        run = rlbook.train(algorithm, env, on_report=report)
    return run, time.monotonic() - start


@dataclass(frozen=True)
class HeldOutAccuracy:
    """A language model's accuracy on the held-out sums."""

    greedy: float  # share of correct answers with greedy decoding
    sampled: float  # share of correct answers when sampling
    answers: list[DisplayedCompletion]  # its greedy answers to the first few


def examine(run: Run) -> HeldOutAccuracy:
    """Asks every held-out sum once greedily and once sampled."""
    from rlbook.plots.completions import write

    recipe = run.request.recipe.for_evaluation()
    greedy = rlbook.evaluate(run, episodes=HELD_OUT).mean
    sampled = write(run.agent, recipe, range(HELD_OUT), samples=1).mean_reward
    return HeldOutAccuracy(
        greedy, sampled, write(run.agent, recipe, range(SHOWN), samples=1, greedy=True).completions
    )


# Showing


def _show_maze(run: Run, terminal: Terminal) -> None:
    from rlbook.plots.value_map import value_map

    terminal.write(textwrap.indent(value_map_text(value_map(run), terminal), "    "))
    terminal.write()


def _show_group(run: Run, terminal: Terminal) -> None:
    """Shows the held-out sum, of the first 32, whose answers are most evenly right and wrong: there
    GRPO has most to compare."""
    from rlbook.plots.completions import DisplayedCompletions, write, written_text

    count = run.request.config.group_size
    written = write(run.agent, run.request.recipe.for_evaluation(), range(32))
    groups = [written.completions[i : i + count] for i in range(0, len(written.completions), count)]
    group = max(
        groups, key=lambda group: -abs(sum(completion.reward for completion in group) - count / 2)
    )
    _say(
        terminal,
        "GRPO has it answer each sum several times, and makes likelier what earned more than the"
        " others did:",
    )
    terminal.write(written_text(DisplayedCompletions(group, written.meaning), terminal))
    terminal.write()


def _show_sums(
    before: list[DisplayedCompletion], after: list[DisplayedCompletion], terminal: Terminal
) -> None:
    terminal.write(terminal.faint("    sum       answer   before      after"))
    for old, new in zip(before, after, strict=True):
        terminal.write(
            f"    {old.prompt:<10}{old.answer:<9}{_mark(old, terminal)}{_mark(new, terminal)}"
        )
    terminal.write()


def _mark(completion: DisplayedCompletion, terminal: Terminal) -> str:
    """An answer, and whether it is right."""
    text = "".join(completion.tokens).replace("<eos>", "")
    right = completion.reward == 1.0
    return terminal.paint(
        f"{text:<5}{'right' if right else 'wrong'}".ljust(12), ink=GREEN if right else RED
    )


def _score(result: HeldOutAccuracy, terminal: Terminal) -> str:
    """A score formatted for use within a sentence."""
    return (
        f"{terminal.bold(f'{result.greedy:.0%}')} right when it takes the likeliest token, and"
        f" {result.sampled:.0%} when it samples"
    )


def _title(terminal: Terminal, text: str) -> None:
    terminal.write()
    terminal.write(terminal.bold(text))
    terminal.write()


def _say(terminal: Terminal, text: str) -> None:
    terminal.write(textwrap.fill(text, min(WIDTH, terminal.size[0])))
    terminal.write()


def _show_commands(terminal: Terminal, *commands: str) -> None:
    """The commands that do the same on the command line."""
    terminal.write("The same from the command line:")
    for command in commands:
        terminal.write(f"    {_command()} {command}")
    terminal.write()


def _command() -> str:
    """How to call `rlbook` from here: by its name, or by its path if it is below this folder and
    the name alone is not found."""
    place = Path(os.path.relpath(Path(sys.executable).with_name("rlbook")))
    return "rlbook" if shutil.which("rlbook") or ".." in place.parts else str(place)
