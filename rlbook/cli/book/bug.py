"""`rlbook bug`: the bug museum. Lists its exhibits, shows a symptom, runs it, and reveals the
answer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from rlbook.cli.options import Number, PrintingOptions, Word, action_of, command_options, parse
from rlbook.cli.output import Result, fill_paragraph, note, width
from rlbook.errors import RequestError

ACTIONS = ("list", "show", "run", "answer")


@command_options
class Bugs(PrintingOptions):
    """Classic bugs, each a change of one line of this library. list names their symptoms, show
    plots one and asks for the cause, answer reveals the line.

    run trains again, without the bug and with it, in separate processes; no file is changed.

    Examples:
      rlbook bug list
      rlbook bug show sarsa-with-q-learnings-target
      rlbook bug run sarsa-with-q-learnings-target --seeds 5
      rlbook bug answer sarsa-with-q-learnings-target
    """

    action: Positional[Word] = None  # list, show, run or answer
    # an exhibit's name
    name: Annotated[Word, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    seeds: Number = (
        None  # run: seeds with and without the bug (default: as the exhibit was recorded)
    )


def bug(words: Sequence[str]) -> tuple[bool, Result]:
    """Runs the command. Returns whether JSON is requested, and what to print.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Bugs, words, "rlbook bug")
    action = action_of("bug", options.action, ACTIONS)
    name, seeds = options.name, options.seeds
    if seeds is not None and action != "run":
        raise RequestError(f"bug {action} takes no --seeds; they are for run")
    if seeds is not None and seeds < 1:
        raise RequestError(f"seeds must be an integer of at least 1, got {seeds}")
    if action == "list":
        if name is not None:
            raise RequestError(f"bug list takes no name, got {name!r}; rlbook bug show {name}")
        return options.json, _list_exhibits()
    if name is None:
        raise RequestError(
            f"bug {action} needs the name of an exhibit (rlbook bug list shows them)"
        )
    if action == "answer":
        return options.json, _show_answer(name)
    return options.json, _show_exhibit(name) if action == "show" else _run(name, seeds)


def _list_exhibits() -> Result:
    from rlbook.book.museum.exhibit import PARTS, exhibits

    facts = [
        {"name": item.name, "part": item.part, "symptom": item.title}
        for item in exhibits().values()
    ]
    wide = max(len(fact["name"]) for fact in facts)
    lines = []
    for part in PARTS:
        lines += [f"{part}:", *(_entry(fact, wide) for fact in facts if fact["part"] == part), ""]
    lines.append("  rlbook bug show NAME")
    return {"bugs": facts}, "\n".join(lines)


def _entry(fact: dict[str, str], wide: int) -> str:
    return fill_paragraph(fact["symptom"], f"  {fact['name']:<{wide}}  ", " " * (wide + 4))


def _show_exhibit(name: str) -> Result:
    from rlbook.book.museum.charts import as_text, numbers
    from rlbook.book.museum.curves import load_curves
    from rlbook.book.museum.exhibit import find_exhibit

    item = find_exhibit(name)
    curves = load_curves(item)
    facts = _facts(item.name, item.title, item.command, numbers(item, curves))
    told = [
        f"{item.bug}. {item.title}.",
        "",
        fill_paragraph(item.symptom),
        "",
        as_text(item, curves, width()),
        "",
        fill_paragraph(item.question),
        "",
    ]
    further = [f"  {item.command}", f"  rlbook bug run {name}", f"  rlbook bug answer {name}"]
    return facts | {"text": item.symptom, "question": item.question}, "\n".join([*told, *further])


def _run(name: str, seeds: int | None) -> Result:
    from rlbook.book.museum.charts import as_text, numbers
    from rlbook.book.museum.curves import train_curves
    from rlbook.book.museum.exhibit import find_exhibit

    item = find_exhibit(name)
    count = item.shown.seeds if seeds is None else seeds
    note(
        f"training {count} times without the bug and {count} times with it"
        if count > 1
        else "training without the bug and with it"
    )
    curves = train_curves(item, seeds)
    facts = _facts(item.name, item.title, item.command, numbers(item, curves))
    told = (
        f"{item.command}   ({count} {'seed' if count == 1 else 'seeds'}, without the bug and"
        " with it)"
    )
    return facts | {"curves": vars(curves)}, "\n".join([told, "", as_text(item, curves, width())])


def _show_answer(name: str) -> Result:
    from rlbook.book.museum.exhibit import find_exhibit

    item = find_exhibit(name)
    facts = {
        "name": name,
        "file": item.file,
        "line": item.number,
        "right": item.old,
        "bug": item.new,
        "why": item.why,
        "notice": item.notice,
        "seen": item.seen,
        "test": item.test,
    }
    test = f"python -m rlbook.book.museum.planted {name} pytest {shlex.quote(item.test)}"
    lines = [
        item.title,
        "",
        f"{item.file}, line {item.number}",
        f"- {item.old}",
        f"+ {item.new}",
        "",
        fill_paragraph(item.why),
        "",
        fill_paragraph(f"How to notice: {item.notice}"),
        "",
        fill_paragraph(f"Where it was met: {item.seen}"),
        "",
        "The test that fails with it:",
        f"  {test}",
    ]
    return facts, "\n".join(lines)


def _facts(name: str, title: str, command: str, ends: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "symptom": title, "command": command, "at_the_end": ends}
