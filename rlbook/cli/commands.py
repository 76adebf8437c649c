"""The commands of `rlbook`: each takes its words, calls the library, and returns what is printed,
or an exit code. Short ones are here, the others in separate modules."""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlbook.cli.output import (
    OutputError,
    Result,
    abandon_stdout,
    completion_line,
    export_summary,
    note,
    report_interrupt,
    resume_hint,
    show,
    training_summary,
)
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.process_group import is_follower, place
from rlbook.runs.processes.interrupts import signal_of

if TYPE_CHECKING:
    from rlbook.cli.train import Training
    from rlbook.runs.run import Run


CommandOutput = tuple[bool, Result] | tuple[bool, Result, int]
"""Whether JSON is requested, the output, and the exit code if it is not 0."""


def train(words: Sequence[str]) -> int:
    """`rlbook train`."""
    from rlbook.cli.train import free_folder, parse_train
    from rlbook.runs.progress import progress
    from rlbook.runs.trackers import track

    training, follows = parse_train(words), is_follower()
    if training.several.seeds is not None:
        if place().size > 1:
            raise RequestError("--seeds starts its own processes; leave out torchrun or --seeds")
        from rlbook.cli.seeds import train_seeds

        return train_seeds(training, words)
    folder = Path(
        training.resume
        or training.out_folder
        or free_folder(training, str(training.options.get("seed", 0)))
    )
    start = time.monotonic()
    try:
        trackers = [] if follows else training.trackers
        with progress() as display, track(trackers, folder) as log:

            def on_report(run: Run) -> None:
                display(run)
                log(run)

            with contextlib.redirect_stdout(sys.stderr):  # an environment's output, not a result
                run, was_complete = (
                    _resume_run(training, folder, on_report)
                    if training.resume
                    else (_start_run(training, folder, on_report), False)
                )
    except KeyboardInterrupt as stop:
        if follows:
            return 128 + signal_of(stop)
        return report_interrupt(
            signal_of(stop),
            folder,
            as_json=training.run.json,
            allow_import=training.run.allow_import,
            workers=training.options.get("workers"),
            inspect=training.options.get("inspect"),
            trackers=training.trackers,
        )
    except TrainingError as error:
        raise TrainingError(f"{error}; {resume_hint(folder)}") from error
    if follows:
        return 0
    result = training_summary(run, folder, time.monotonic() - start)
    if was_complete:
        result = result[0], completion_line(run, folder)
    else:
        _draw_curve(run)
    try:
        show(training.run.json, result)
    except OutputError as error:
        if training.run.json:  # who asked for it has nothing
            raise OutputError(f"the run is finished and stored in {folder}; {error}") from error
        abandon_stdout()
        note(f"rlbook: the run is finished and stored in {folder}; {error}")
    return 0


def _draw_curve(run: Run) -> None:
    """Draws the curve; a picture that cannot be drawn does not fail the run."""
    try:
        from rlbook.plots import save_curve

        save_curve(run)
    except Exception as error:
        note(
            f"note: the curve was not drawn: {' '.join(str(error).split()) or type(error).__name__}"
        )


def _start_run(training: Training, folder: Path, on_report: Callable[[Run], None]) -> Run:
    import rlbook

    options = {
        "out": folder,
        "quiet": True,
        "env_kwargs": training.env_kwargs,
        "allow_import": training.run.allow_import,
        "on_report": on_report,
    }
    return rlbook.train(
        str(training.algorithm),
        str(training.env),
        **options,
        **training.options,
        **training.hyperparameters,
    )


def _resume_run(
    training: Training, folder: Path, on_report: Callable[[Run], None]
) -> tuple[Run, bool]:
    """The run, and whether it was complete before, so that nothing was left to train."""
    import rlbook
    from rlbook.cli.train import check_unchanged, new_budget
    from rlbook.runs.options import BUDGETS, UNWRITTEN
    from rlbook.runs.run import STRETCH

    changes = {name: training.options.get(name) for name in UNWRITTEN}
    run = rlbook.load(folder, allow_import=training.run.allow_import, **changes)
    budget = new_budget(training, run.request)
    if budget:
        training = replace(
            training,
            options={name: v for name, v in training.options.items() if name not in BUDGETS},
        )
    elif training.schedules is not None:
        raise RequestError(
            "--schedules says what schedules do in a larger budget; give that too, such as"
            f" --steps {2 * run.steps:.0f}"
        )
    check_unchanged(training, run.request, folder)
    was_complete = run.reports.is_ended and not budget
    run.resume(
        steps=budget.get("steps"),
        episodes=budget.get("episodes"),
        passes=budget.get("passes"),
        on_report=on_report,
        quiet=True,
        schedules=training.schedules or STRETCH,
    )
    return run, was_complete


def list_names(words: Sequence[str]) -> CommandOutput:
    """`rlbook list`."""
    from rlbook.cli.listing import listing
    from rlbook.cli.options import List, parse

    options = parse(List, words, "rlbook list")
    return options.json, listing(options.what)


def explain(words: Sequence[str]) -> CommandOutput:
    """`rlbook explain`."""
    from rlbook.cli.options import Explain, parse

    options = parse(Explain, words, "rlbook explain")
    from rlbook.cli.explain import explain_name

    return options.json, explain_name(options.name, allow_import=options.allow_import)


def watch(words: Sequence[str]) -> int:
    """`rlbook watch`."""
    from rlbook.cli.options import Watch, parse

    options = parse(Watch, words, "rlbook watch")
    from rlbook.plots import watch as play

    play(
        options.folder,
        options.gif,
        options.episodes,
        options.seed,
        env=options.env,
        checkpoint=options.checkpoint,
        allow_import=options.allow_import,
    )
    if options.gif is not None:
        print(options.gif)
    return 0


def export(words: Sequence[str]) -> CommandOutput:
    """`rlbook export`."""
    from rlbook.cli.options import Export, parse

    options = parse(Export, words, "rlbook export")
    if options.job is not None:
        from rlbook.cli.language_models.export_job import run_export

        return options.json, run_export(options)
    from rlbook.runs.exporting import export as write

    with contextlib.redirect_stdout(sys.stderr):  # an environment's output, not a result
        facts = write(
            options.folder,
            options.out,
            merge=options.merge,
            shard_size=options.shard_size,
            checkpoint=options.checkpoint,
            allow_import=options.allow_import,
        )
    return options.json, (facts, export_summary(facts))


def plot(words: Sequence[str]) -> CommandOutput:
    """`rlbook plot`."""
    from rlbook.cli.options import Plot, parse

    options = parse(Plot, words, "rlbook plot")
    folders, out = list(options.folders.words), options.out
    if not folders:
        raise RequestError("plot needs the folder of a run, or several")
    from rlbook.runs.storage.folder import run_folders

    runs = [run for folder in folders for run in run_folders(Path(folder))]
    if options.values and len(runs) > 1:
        raise RequestError(f"--values draws one run, got {len(runs)} folders")
    tree, smooth = options.tree, options.smooth
    if tree is not None and (len(runs) > 1 or options.values or out is not None):
        raise RequestError("--tree draws one run, and takes neither --values nor --out")
    if smooth is not None and (options.values or tree is not None):
        raise RequestError("--smooth is for curves, and draws neither --values nor --tree")
    from rlbook.plots import draw_search, plot_curves, plot_value_map
    from rlbook.plots.curves import has_map, read_curve

    written = []
    if tree is not None:
        written.append(str(draw_search(runs[0], tree, allow_import=options.allow_import)))
    elif not options.values:
        written.append(
            out or (str(Path(folders[0]) / "curve.png") if len(folders) == 1 else "curves.png")
        )
        plot_curves(folders, written[0], smooth=1 if smooth is None else smooth)
    if options.values:
        written.append(out or str(Path(folders[0]) / "value_map.png"))
        plot_value_map(runs[0], out=written[-1], allow_import=options.allow_import)
    elif tree is None and out is None and len(runs) == 1 and has_map(read_curve(runs[0])):
        written += _draw_map(runs[0], options.allow_import)
    return options.json, ({"folders": folders, "written": written}, "\n".join(written))


def _draw_map(folder: Path, allow_import: bool) -> list[str]:
    """The file with the value map, which is drawn in addition: if the agent cannot be loaded, there
    is only the curve."""
    from rlbook.plots import plot_value_map

    path = folder / "value_map.png"
    try:
        plot_value_map(folder, out=path, allow_import=allow_import)
    except (RequestError, TrainingError) as error:
        note(f"note: the value map was not drawn: {error}")
        return []
    return [str(path)]


def inspect(words: Sequence[str]) -> CommandOutput:
    """`rlbook inspect`."""
    from rlbook.cli.options import Inspect, parse

    options = parse(Inspect, words, "rlbook inspect")
    from rlbook.plots import inspect as write

    path = str(
        write(options.folder, options.out, options.prompts, allow_import=options.allow_import)
    )
    return options.json, ({"folder": options.folder, "written": [path]}, path)


def compare(words: Sequence[str]) -> CommandOutput:
    """`rlbook compare`."""
    from rlbook.cli.options import Compare, parse

    options = parse(Compare, words, "rlbook compare")
    from rlbook.cli.output import comparison_summary
    from rlbook.evaluation.comparison import improvements, rows_and_repeats

    folders = list(options.folders.words)
    rows, repeats = rows_and_repeats(folders)
    for repeat in repeats:
        note(f"note: {repeat}")
    facts, text = comparison_summary(rows, improvements(rows))
    facts["written"] = _draw_curves(folders, options.out)
    return options.json, (facts, text)


def _draw_curves(folders: Sequence[str], out: str | None) -> list[str]:
    """The file with the curves of the runs: by default compare.png in the working directory, if it
    can be drawn."""
    from rlbook.plots import plot_curves

    path = out or "compare.png"
    try:
        plot_curves(folders, path)
    except RequestError as error:
        if out is not None:
            raise
        note(f"note: the curves were not drawn: {error}")
        return []
    note(f"the curves are in {path}")
    return [path]


def demo(words: Sequence[str]) -> int:
    """`rlbook demo`."""
    from rlbook.cli.options import Demo, parse

    parse(Demo, words, "rlbook demo")
    from rlbook.book.experiments.demo import run_demo

    run_demo()
    return 0


def play(words: Sequence[str]) -> CommandOutput:
    """`rlbook play`."""
    from rlbook.cli.options import Play, parse

    options = parse(Play, words, "rlbook play")
    from rlbook.plots import play as write

    path = write(options.page, options.out)
    if options.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return options.json, ({"page": options.page, "written": [str(path)]}, str(path))


def figure(words: Sequence[str]) -> CommandOutput:
    """`rlbook figure`."""
    from rlbook.book.figures import EXPERIMENTS, FIGURES
    from rlbook.cli.options import Figure, parse

    options = parse(Figure, words, "rlbook figure")
    given = {
        name: value for name in ("seed", "runs") if (value := getattr(options, name)) is not None
    }
    number, out = options.number, options.out
    if number is None:
        if given or out:
            known = ", ".join([*FIGURES, *EXPERIMENTS])
            raise RequestError(f"figure needs the number of a figure, or a name (known: {known})")
        listed = "\n".join(
            f"{name:<{width}}{title}"
            for titles, width in ((FIGURES, 6), (EXPERIMENTS, 16))
            for name, title in titles.items()
        )
        return options.json, ({"figures": FIGURES, "experiments": EXPERIMENTS}, listed)
    from rlbook.book.figures.figure_file import as_text, draw_figure

    facts = draw_figure(number, Path(out or f"figure-{number}.png"), given)
    return options.json, (facts, as_text(facts))


def _command(place: str) -> Callable[[Sequence[str]], int]:
    """Imports "module:function", runs it, prints what it returns, and returns the exit code."""

    def run(words: Sequence[str]) -> int:
        came: CommandOutput | int = pkgutil.resolve_name(f"rlbook.cli.{place}")(words)
        if isinstance(came, int):
            return came
        as_json, result, *code = came
        show(as_json, result)
        return code[0] if code else 0

    return run


_PLACES = {
    "train": "commands:train",
    "evaluate": "evaluate:run_evaluation",
    "watch": "commands:watch",
    "plot": "commands:plot",
    "inspect": "commands:inspect",
    "compare": "commands:compare",
    "doctor": "doctor:examine_folder",
    "animate": "animate:run_animation",
    "list": "commands:list_names",
    "explain": "commands:explain",
    "export": "commands:export",
    "serve": "language_models.serve:run_serving",
    "synthesize": "language_models.synthesize:run_synthesis",
    "figure": "commands:figure",
    "record": "record:run_recording",
    "import": "language_models.import_model:run_import",
    "verify": "verify:run_verification",
    "ablate": "ablate:run_ablation",
    "tune": "tune:run_tuning",
    "recipe": "recipe:recipe",
    "exercise": "book.exercise:exercise",
    "course": "book.course:course",
    "play": "commands:play",
    "demo": "commands:demo",
    "bug": "book.bug:bug",
}
COMMANDS = {name: _command(place) for name, place in _PLACES.items()}
"""Command → the function that runs it and returns the exit code."""
