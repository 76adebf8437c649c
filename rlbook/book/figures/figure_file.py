"""A figure from experiment to file, and a summary of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rlbook.book.figures import EXPERIMENTS, FIGURES, figure, figure_module, options_of


def draw_figure(number: str, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Reruns the experiment, writes the picture, and returns: figure, title, options, measured,
    seconds, written.

    Args:
        number: of the figure.
        out: the file to write; its name ends in .png, .svg or .pdf.
        options: for `rlbook.book.figures.figure`.

    Raises:
        RequestError: no such figure, an option that it does not take, or a file that cannot be
            written.
    """
    from rlbook.plots.figure import format_of, save_figure

    module = figure_module(number)
    format_of(out)
    start = time.monotonic()
    result, facts = run_figure(number, options)
    save_figure(module.draw(result), out)
    return facts | {"seconds": round(time.monotonic() - start, 3), "written": str(out)}


def run_figure(number: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The result of the experiment, and the summary of `draw_figure` without the file.

    Raises:
        RequestError: no such figure, or an option that it does not take.
    """
    start = time.monotonic()
    result = figure(number, **options)
    return result, {
        "figure": number,
        "title": (FIGURES | EXPERIMENTS)[number],
        "options": options_of(number) | options,
        "measured": figure_module(number).measurements(result),
        "seconds": round(time.monotonic() - start, 3),
    }


def as_text(facts: dict[str, Any]) -> str:
    """The summary as text."""
    kind = "figure" if facts["figure"] in FIGURES else "experiment"
    options = ", ".join(f"{name} {value}" for name, value in facts["options"].items())
    head = f"{kind} {facts['figure']}: {facts['title']}" + (f" ({options})" if options else "")
    width = max(len(name) for name in facts["measured"])
    numbers = [f"  {name:<{width}}  {value:.6g}" for name, value in facts["measured"].items()]
    return "\n".join([head, *numbers, facts["written"]])
