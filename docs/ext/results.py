"""docs/results.json, which docs/measure.py writes, as tables: every number stands beside the
command it came from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rlbook.envs.descriptions import GRID_OPTIMA

PATH = Path(__file__).parents[1] / "results.json"
FIGURES = PATH.with_name("figures") / "figures.json"


def read() -> dict[str, Any]:
    """Name → measurement; see docs/measure.py."""
    return json.loads(PATH.read_text(encoding="utf-8"))["measurements"] if PATH.exists() else {}


def read_figures() -> dict[str, Any]:
    """Number → what `rlbook figure NUMBER --json` printed; see docs/measure.py."""
    return json.loads(FIGURES.read_text(encoding="utf-8"))["figures"] if FIGURES.exists() else {}


def figure_as_markdown(number: str) -> str:
    """The picture of a figure, its numbers, and the command that it came from."""
    known = read_figures()[number]
    machine = json.loads(FIGURES.read_text(encoding="utf-8"))["machine"]
    rows = [
        f"| {name} | {'none' if value is None else _number(value)} |"
        for name, value in known["measured"].items()
    ]
    options = ", ".join(
        f"{name} {value}"
        for name, value in known["options"].items()
        if name in ("seed", "runs", "episodes")
    )
    command = f"`rlbook figure {number}`" + (f" ({options})" if options else "")
    picture = f"![{known['title']}](/figures/{known['written']})"
    cost = f"{command}: {known['seconds']:.2g} s on {machine}."
    return "\n".join([picture, "", "| measured | |", "|---|---|", *rows, "", cost])


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


def machines(items: list[dict[str, Any]]) -> tuple[dict[str, str], str]:
    """Where measurements were made: the mark that each machine has in a table, and the words below
    it. One machine needs no mark."""
    found = list(dict.fromkeys(item["machine"] for item in items))
    if len(found) == 1:
        return {found[0]: ""}, found[0]
    marks = dict(zip(found, MARKS, strict=False))
    return {each: f" {mark}" for each, mark in marks.items()}, "; ".join(
        f"{mark} {each}" for each, mark in marks.items()
    )


def what_with_optimum(item: dict[str, Any]) -> str:
    """What was measured, with the near-optimal return where the environment's was computed on a
    grid."""
    train = next((words for words in item["commands"] if words.startswith("rlbook train")), "")
    named = [env for env in GRID_OPTIMA if env in train.split() and "--env." not in train]
    return f"{item['what']} (near-optimal: {GRID_OPTIMA[named[0]]:g})" if named else item["what"]


def as_markdown(names: list[str]) -> str:
    """A table of measurements: what, result, command. Where a result is many numbers, they have a
    table of their own below it."""
    known = read()
    trained = {
        name: [words for words in known[name]["commands"] if words.startswith("rlbook train")]
        for name in names
    }
    algorithms = {
        name: found[-1].split()[2]
        for name, found in trained.items()
        if found and name != "addition_before"
    }
    several = len(set(algorithms.values())) > 1
    marks, where_made = machines([known[name] for name in names])
    grids = {name: grid for name in names if (grid := result_grid(known[name]["result"]))}
    lines = ["| what | result | command |", "|---|---|---|"] if len(grids) < len(names) else []
    for name in names:
        if name not in grids:
            who = f"`{algorithms[name]}`: " if several and name in algorithms else ""
            result = known[name]["result"] + marks[known[name]["machine"]]
            lines.append(
                f"| {who}{what_with_optimum(known[name])} | {result} | {_commands(known[name]['commands'])} |"
            )
    for name, grid in grids.items():
        where, what = (
            ", ".join(f"`{command}`" for command in known[name]["commands"]),
            known[name]["what"],
        )
        lines += [
            "",
            f"{what[0].upper()}{what[1:]} ({where}){marks[known[name]['machine']]}:",
            "",
            *grid,
        ]
    return "\n".join(lines).strip() + f"\n\nMeasured with `make measure` on {where_made}."


def result_grid(result: str) -> list[str] | None:
    """The rows of a table, where a result is five numbers or more with labels such as "clone: cost
    23.5"; None of any other."""
    found = [
        re.fullmatch(r"(.+?),? (−?[\d.]\S*)(?: → (−?[\d.]\S*))?", part)
        for part in result.split("; ")
    ]
    labels = [match[1] for match in found if match]
    if not len(found) == len(labels) > 4:
        return None
    between = ": " if any(": " in label for label in labels) else ", "
    split = [
        label.rpartition(between)[::2] if between == ", " else label.split(between, 1)
        for label in labels
    ]
    values = [f"{match[2]} → {match[3]}" if match[3] else match[2] for match in found if match]
    pairs = {
        (both[0], both[1]): value
        for both, value in zip(split, values, strict=True)
        if len(both) == 2 and both[0]
    }
    alone = [
        f"{label} {value}"
        for both, label, value in zip(split, labels, values, strict=True)
        if len(both) < 2 or not both[0]
    ]
    rows, columns = (list(dict.fromkeys(pair[which] for pair in pairs)) for which in (0, 1))
    if 5 * len(pairs) < 3 * len(rows) * len(columns) or len(rows) < 2:
        if between == ", " or not pairs:
            return None
        lines = [
            "| | | |",
            "|---|---|---|",
            *(f"| {row} | {column} | {value} |" for (row, column), value in pairs.items()),
        ]
    else:
        if len(columns) > max(len(rows), 5):
            rows, columns, pairs = (
                columns,
                rows,
                {pair[::-1]: value for pair, value in pairs.items()},
            )
        lines = ["| | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
        lines += [
            f"| {row} | " + " | ".join(pairs.get((row, column), "") for column in columns) + " |"
            for row in rows
        ]
    return [*lines, *(["", "; ".join(alone) + "."] if alone else [])]


def ablation_as_markdown(name: str) -> str:
    """The variants of `rlbook ablate`: the mean of all evaluations, how far that is from the
    whole's, and the last evaluation."""
    known = read()[name]
    whole = known["parts"][0]
    lines = [
        "| variant | mean of all evaluations | minus the whole's, 95 % | last evaluation |",
        "|---|---|---|---|",
    ]
    for part in known["parts"]:
        difference, each = "", ", ".join(f"{area:.0f}" for area in part["areas"])
        if part["difference"]:
            low, high = part["difference"]
            difference = f"{_mean(part['areas']) - _mean(whole['areas']):+.0f} ({low:+.0f} to {high:+.0f})".replace(
                "-", "−"
            )
        lines.append(
            f"| `{part['name']}` | {_mean(part['areas']):.0f} ({each}) | {difference} |"
            f" {_mean(part['finals']):.0f} |"
        )
    told = (
        f"Greedy returns: means of {len(whole['areas'])} seeds; each seed in brackets. The interval"
        " is Welch's."
    )
    return "\n".join(
        [
            *lines,
            "",
            f"{told} {_commands(known['commands'])}, by `make measure` on {known['machine']}.",
        ]
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def one_axis_as_markdown() -> str:
    """A row a learner, a column a world; and the commands."""
    known = {name: item for name, item in read().items() if name.startswith("one_axis_")}
    learners = list(next(iter(known.values()))["learners"])
    lines = [
        "| | " + " | ".join(item["what"] for item in known.values()) + " |",
        "|---" * (1 + len(known)) + "|",
    ]
    lines += [
        "| " + " | ".join([f"`{who}`", *(item["learners"][who] for item in known.values())]) + " |"
        for who in learners
    ]
    commands = "\n".join(command for item in known.values() for command in item["commands"])
    where = machines(list(known.values()))[1]
    lines += [
        "",
        f"Measured on {where}. The runs are those of these commands, with the seeds 0, 1, …:",
        "",
        f"```sh\n{commands}\n```",
    ]
    return "\n".join(lines)


def _commands(commands: list[str]) -> str:
    return "<br>".join(f"`{command}`" for command in commands)
