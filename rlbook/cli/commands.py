"""What each command of `rlbook` does: parses its words, calls the library, prints what came of it,
and returns the exit code."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlbook.cli.output import (
    Unprinted,
    abandon_stdout,
    export_summary,
    last_good,
    note,
    report_interrupt,
    show,
    training_summary,
)
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.process_group import is_follower, place
from rlbook.runs.processes.interrupts import signal_of

if TYPE_CHECKING:
    from rlbook.cli.train import Training
    from rlbook.runs.run import Run


def train(words: Sequence[str]) -> int:
    """`rlbook train`."""
    from rlbook.cli.train import free_folder, parse_train
    from rlbook.runs.progress import progress
    from rlbook.runs.trackers import track

    training, follows = parse_train(words), is_follower()
    if training.several.seeds is not None:
        if place().size > 1:
            raise RequestError("--seeds starts processes of its own; leave torchrun or --seeds out")
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

            with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is no result
                run = (
                    _resume_run(training, folder, on_report)
                    if training.resume
                    else _start_run(training, folder, on_report)
                )
    except KeyboardInterrupt as stop:
        again = {
            "allow_import": training.run.allow_import,
            "workers": training.options.get("workers"),
        }
        if follows:
            return 128 + signal_of(stop)
        return report_interrupt(signal_of(stop), folder, as_json=training.run.json, **again)
    except TrainingError as error:
        raise TrainingError(f"{error}; {last_good(folder)}") from error
    if follows:
        return 0
    result = training_summary(run, folder, time.monotonic() - start)
    _draw_curve(run)
    try:
        show(training.run.json, result)
    except Unprinted as error:
        if training.run.json:  # who asked for it has nothing
            raise Unprinted(f"the run is finished and in {folder}; {error}") from error
        abandon_stdout()
        note(f"rlbook: the run is finished and in {folder}; {error}")
    return 0


def _draw_curve(run: Run) -> None:
    """A picture that cannot be drawn is no failure of the run."""
    from rlbook.plots import save_curve

    try:
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


def _resume_run(training: Training, folder: Path, on_report: Callable[[Run], None]) -> Run:
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
    return run.resume(
        steps=budget.get("steps"),
        episodes=budget.get("episodes"),
        passes=budget.get("passes"),
        on_report=on_report,
        quiet=True,
        schedules=training.schedules or STRETCH,
    )


def evaluate(words: Sequence[str]) -> int:
    """`rlbook evaluate`."""
    from rlbook.cli.evaluate import run_evaluation

    show(*run_evaluation(words))
    return 0


def list_(words: Sequence[str]) -> int:
    """`rlbook list`."""
    from rlbook.cli import listing
    from rlbook.cli.options import List, parse, word

    options = parse(List, words, "rlbook list")
    show(options.json, listing.listing(word(options.what) or "all"))
    return 0


def explain(words: Sequence[str]) -> int:
    """`rlbook explain`."""
    from rlbook.cli.options import Explain, parse, word

    options = parse(Explain, words, "rlbook explain")
    from rlbook.cli.explain import explain_name

    show(options.json, explain_name(str(word(options.name))))
    return 0


def import_(words: Sequence[str]) -> int:
    """`rlbook import`."""
    from rlbook.cli.language_models.import_model import run_import

    show(*run_import(words))
    return 0


def record(words: Sequence[str]) -> int:
    """`rlbook record`."""
    from rlbook.cli.record import run_recording

    show(*run_recording(words))
    return 0


def watch(words: Sequence[str]) -> int:
    """`rlbook watch`."""
    from rlbook.cli.evaluate import checkpoint_of
    from rlbook.cli.options import Watch, integer, parse, word

    options = parse(Watch, words, "rlbook watch")
    episodes, seed = integer("episodes", options.episodes), integer("seed", options.seed)
    folder, gif, which = (
        str(word(options.folder)),
        word(options.gif),
        checkpoint_of(options.checkpoint),
    )
    from rlbook.plots import watch as play

    play(folder, gif, episodes, seed, checkpoint=which, allow_import=options.allow_import)
    if gif is not None:
        print(gif)
    return 0


def export(words: Sequence[str]) -> int:
    """`rlbook export`."""
    from rlbook.cli.evaluate import checkpoint_of
    from rlbook.cli.options import Export, parse, word

    options = parse(Export, words, "rlbook export")
    from rlbook.runs.exporting import export as write

    folder, out, which = (
        str(word(options.folder)),
        str(word(options.out)),
        checkpoint_of(options.checkpoint),
    )
    job, size = word(options.job), word(options.shard_size)
    if job is not None:
        from rlbook.cli.language_models.export_job import run_export

        show(options.json, run_export(options, folder, out, job, which))
        return 0
    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is no result
        facts = write(
            folder,
            out,
            merge=options.merge,
            shard_size=size,
            checkpoint=which,
            allow_import=options.allow_import,
        )
    show(options.json, (facts, export_summary(facts)))
    return 0


def serve(words: Sequence[str]) -> int:
    """`rlbook serve`."""
    from rlbook.cli.language_models.serve import run_serving

    run_serving(words)
    return 0


def synthesize(words: Sequence[str]) -> int:
    """`rlbook synthesize`."""
    from rlbook.cli.language_models.synthesize import run_synthesis

    as_json, result, complete = run_synthesis(words)
    show(as_json, result)
    return 0 if complete else 1


def plot(words: Sequence[str]) -> int:
    """`rlbook plot`."""
    from rlbook.cli.options import Plot, integer, parse, word

    options = parse(Plot, words, "rlbook plot")
    folders, out = list(options.folders.words), word(options.out)
    if not folders:
        raise RequestError("plot needs the folder of a run, or several")
    from rlbook.runs.storage.folder import run_folders

    runs = [run for folder in folders for run in run_folders(Path(folder))]
    if options.values and len(runs) > 1:
        raise RequestError(f"--values draws one run, got {len(runs)} folders")
    tree = word(options.tree)
    if tree is not None and (len(runs) > 1 or options.values or out is not None):
        raise RequestError("--tree draws one run, and takes neither --values nor --out")
    smooth = integer("smooth", options.smooth)
    if smooth is not None and (options.values or tree is not None):
        raise RequestError("--smooth is for curves, and draws neither --values nor --tree")
    from rlbook.plots import draw_search, plot_curves, plot_value_map
    from rlbook.plots.curves import has_map, read_curve

    written = []
    if tree is not None:
        written.append(str(draw_search(runs[0], tree, allow_import=options.allow_import)))
        show(options.json, ({"folders": folders, "written": written}, written[0]))
        return 0
    if not options.values:
        written.append(
            out or (str(Path(folders[0]) / "curve.png") if len(folders) == 1 else "curves.png")
        )
        plot_curves(folders, written[0], smooth=1 if smooth is None else smooth)
    if options.values:
        written.append(out or str(Path(folders[0]) / "value_map.png"))
        plot_value_map(runs[0], out=written[-1], allow_import=options.allow_import)
    elif out is None and len(runs) == 1 and has_map(read_curve(runs[0])):
        written += _drawn_map(runs[0], options.allow_import)
    show(options.json, ({"folders": folders, "written": written}, "\n".join(written)))
    return 0


def _drawn_map(folder: Path, allow_import: bool) -> list[str]:
    """The file with the value map, which nobody asked for: where the agent cannot be loaded there
    is the curve alone."""
    from rlbook.plots import plot_value_map

    path = folder / "value_map.png"
    try:
        plot_value_map(folder, out=path, allow_import=allow_import)
    except (RequestError, TrainingError) as error:
        note(f"note: the value map was not drawn: {error}")
        return []
    return [str(path)]


def inspect(words: Sequence[str]) -> int:
    """`rlbook inspect`."""
    from rlbook.cli.options import Inspect, integer, parse, word

    options = parse(Inspect, words, "rlbook inspect")
    from rlbook.plots import inspect as write

    folder = str(word(options.folder))
    path = str(
        write(
            folder,
            word(options.out),
            integer("prompts", options.prompts),
            allow_import=options.allow_import,
        )
    )
    show(options.json, ({"folder": folder, "written": [path]}, path))
    return 0


def compare(words: Sequence[str]) -> int:
    """`rlbook compare`."""
    from rlbook.cli.options import Compare, parse, word

    options = parse(Compare, words, "rlbook compare")
    import rlbook
    from rlbook.cli.output import comparison_summary
    from rlbook.evaluation.comparison import improvements

    folders, out = list(options.folders.words), word(options.out)
    rows = rlbook.compare(folders)
    facts, text = comparison_summary(rows, improvements(rows))
    facts["written"] = _drawn_curves(folders, out)
    show(options.json, (facts, text))
    return 0


def _drawn_curves(folders: Sequence[str], out: str | None) -> list[str]:
    """The file with the curves of runs; where none was asked for, compare.png in the working
    directory, if it can be drawn."""
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


def doctor(words: Sequence[str]) -> int:
    """`rlbook doctor`."""
    from rlbook.cli.doctor import examine_folder

    as_json, result, sound = examine_folder(words)
    show(as_json, result)
    return 0 if sound else 1


def verify(words: Sequence[str]) -> int:
    """`rlbook verify`."""
    from rlbook.cli.verify import run_verification

    as_json, result, good = run_verification(words)
    show(as_json, result)
    return 0 if good else 1


def ablate(words: Sequence[str]) -> int:
    """`rlbook ablate`."""
    from rlbook.cli.ablate import run_ablation

    return run_ablation(words)


def tune(words: Sequence[str]) -> int:
    """`rlbook tune`."""
    from rlbook.cli.tune import run_tuning

    return run_tuning(words)


def recipe(words: Sequence[str]) -> int:
    """`rlbook recipe`."""
    from rlbook.cli.recipe import recipe as done

    came = done(words)
    if isinstance(came, int):
        return came
    show(*came)
    return 0


def animate(words: Sequence[str]) -> int:
    """`rlbook animate`."""
    from rlbook.cli.animate import parse_animate

    asked = parse_animate(words)
    from rlbook.plots import animate as film

    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is no result
        path = str(film(asked.algorithm, asked.env, out=asked.out, **asked.options))
    show(asked.json, ({"algorithm": asked.algorithm, "env": asked.env, "written": [path]}, path))
    return 0


def demo(words: Sequence[str]) -> int:
    """`rlbook demo`."""
    from rlbook.cli.options import Demo, parse

    parse(Demo, words, "rlbook demo")
    from rlbook.book.experiments.demo import run_demo

    run_demo()
    return 0


def play(words: Sequence[str]) -> int:
    """`rlbook play`."""
    from rlbook.cli.options import Play, parse, word

    options = parse(Play, words, "rlbook play")
    from rlbook.plots import play as write

    page = word(options.page) or "grid"
    path = write(page, word(options.out))
    if options.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    show(options.json, ({"page": page, "written": [str(path)]}, str(path)))
    return 0


def figure(words: Sequence[str]) -> int:
    """`rlbook figure`."""
    from rlbook.book.figures import EXPERIMENTS, FIGURES
    from rlbook.cli.options import Figure, integer, parse, word

    options = parse(Figure, words, "rlbook figure")
    given = {
        name: value
        for name in ("seed", "runs")
        if (value := integer(name, getattr(options, name))) is not None
    }
    number, out = word(options.number), word(options.out)
    if number is None:
        if given or out:
            known = ", ".join([*FIGURES, *EXPERIMENTS])
            raise RequestError(f"figure needs the number of a figure, or a name (known: {known})")
        show(
            options.json,
            (
                {"figures": FIGURES, "experiments": EXPERIMENTS},
                "\n".join(
                    f"{name:<{width}}{title}"
                    for titles, width in ((FIGURES, 6), (EXPERIMENTS, 16))
                    for name, title in titles.items()
                ),
            ),
        )
        return 0
    from rlbook.book.figures.figure_file import as_text, draw_figure

    facts = draw_figure(number, Path(out or f"figure-{number}.png"), given)
    show(options.json, (facts, as_text(facts)))
    return 0


def exercise(words: Sequence[str]) -> int:
    """`rlbook exercise`."""
    from rlbook.cli.book import exercise as command

    as_json, result, code = command.exercise(words)
    show(as_json, result)
    return code


def course(words: Sequence[str]) -> int:
    """`rlbook course`."""
    from rlbook.cli.book import course as command

    show(*command.course(words))
    return 0


def bug(words: Sequence[str]) -> int:
    """`rlbook bug`."""
    from rlbook.cli.book import bug as command

    show(*command.bug(words))
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "watch": watch,
    "plot": plot,
    "inspect": inspect,
    "compare": compare,
    "doctor": doctor,
    "animate": animate,
    "list": list_,
    "explain": explain,
    "export": export,
    "serve": serve,
    "synthesize": synthesize,
    "figure": figure,
    "record": record,
    "import": import_,
    "verify": verify,
    "ablate": ablate,
    "tune": tune,
    "recipe": recipe,
    "exercise": exercise,
    "course": course,
    "play": play,
    "demo": demo,
    "bug": bug,
}
