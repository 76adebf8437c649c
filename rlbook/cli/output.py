"""The output of the `rlbook` command: results on standard output, one line on standard error if
something is wrong."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import math
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rlbook.ascii_signs import SPELL_OUT, printable
from rlbook.checks import four_digits
from rlbook.errors import system_reason
from rlbook.interaction.process_group import place
from rlbook.networks.model_spec import OwnNetwork

if TYPE_CHECKING:
    from rlbook.evaluation.comparison import ImprovementChance, Row
    from rlbook.runs.run import Run

Result = tuple[dict[str, Any], str]
"""The output of --json, and the text printed otherwise."""


class OutputError(Exception):
    """Standard output could not be written to."""


def training_summary(run: Run, folder: Path, seconds: float) -> Result:
    """The result of a finished run."""
    from rlbook.diagnosis.summary import summary_sentences

    returns = run.episode_returns[-100:]
    last = next(
        (report for report in reversed(run.metrics) if report.get("eval_return") is not None), {}
    )
    request, evaluated = run.request, last.get("eval_return")
    facts = {
        "algorithm": request.algorithm,
        "env": request.recipe.name,
        "seed": request.seed,
        "steps": run.steps,
        "episodes": len(run.episode_returns),
        "return": math.fsum(returns) / len(returns) if returns else None,
        "eval_return": evaluated,
        "seconds": round(seconds, 3),
        "folder": str(folder),
        "notes": list(run.notes),
        "metrics": run.metrics[-1] if run.metrics else {},
        "seconds_in": {name: round(item, 3) for name, item in run.seconds.items()},
    }
    plural = "s" if facts["episodes"] != 1 else ""
    done = (
        f"{run.steps:,} steps, {facts['episodes']:,} episode{plural}"
        if run.unit == "steps"
        else f"{run.steps:,} {run.unit}"
    )
    lines = [f"{request.algorithm} on {facts['env']}: {done}, {seconds:.1f} s"]
    if returns:
        lines.append(
            f"mean return of the last {len(returns)} training episode{plural}:"
            f" {four_digits(facts['return'])}"
        )
    if evaluated is not None:
        count = last.get("eval_episodes", request.eval_episodes)
        lines.append(
            f"mean return of {count} greedy episode{'s' if count > 1 else ''}: {four_digits(evaluated)}"
        )
    whole = sum(run.seconds.values())
    if whole:
        lines.append(
            "time: " + ", ".join(f"{name} {item / whole:.0%}" for name, item in run.seconds.items())
        )
    facts["happened"] = summary_sentences(run)
    lines = [for_terminal(line) for line in (*lines, *facts["happened"])]
    own_network = isinstance(getattr(request.options.model, "network", None), OwnNetwork)
    imports = own_network or request.recipe.module is not None or ":" in request.algorithm
    trust = ("--allow-import",) if imports else ()
    return facts, "\n".join(
        [
            *lines,
            "",
            *(
                f"  {command}"
                for command in next_commands(run, folder, *trust, draws=_has_curve(run))
            ),
        ]
    )


def completion_line(run: Run, folder: Path) -> str:
    """What resuming a finished run says."""
    from rlbook.runs.options import BUDGETS
    from rlbook.runs.progress import done_and_total

    done, total, unit = done_and_total(run)
    if total is None:
        return f"the run in {folder} is complete ({done:,} {unit})"
    option = unit if unit in BUDGETS else "steps"
    state = "is complete" if done >= total else "ended early"
    return (
        f"the run in {folder} {state} ({done:,} of {total:,} {unit});"
        f" --{option} {2 * max(done, total)} extends it"
    )


def _has_curve(run: Run) -> bool:
    """Whether `rlbook plot` has something to draw."""
    with contextlib.suppress(Exception):  # without matplotlib, say
        from rlbook.plots.curves import has_curve

        return has_curve(run)
    return False


def next_commands(run: Run, folder: Path, *trust: str, draws: bool = True) -> list[str]:
    """What can be typed next; `plot` where it `draws` something. A reward model cannot play: it
    scores, provides rewards, or is exported."""
    plot, recipe = [shell_command("plot", folder)] if draws else [], run.request.recipe
    if run.agent.plays():
        return [
            shell_command("evaluate", folder, *trust),
            shell_command("watch", folder, *trust),
            *plot,
        ]
    if not run.agent.prefers:
        return plot
    pays = shlex.join(
        [
            "rlbook",
            "train",
            "ppo",
            recipe.typed_id,
            *env_options(recipe.kwargs),
            "--reward-model",
            shell_path(folder),
            *trust,
        ]
    )
    on_texts = getattr(recipe.make().unwrapped, "policy_kind", None) == "language_model"
    exports = (
        [
            shlex.join(
                ["rlbook", "export", shell_path(folder), f"{shell_path(folder)}-model", *trust]
            )
        ]
        if on_texts
        else []
    )
    return [shell_command("evaluate", folder, *trust), pays, *exports, *plot]


def export_summary(facts: dict[str, Any]) -> str:
    """What `rlbook export` has written, and how to load it."""
    kind, folder, count = facts["kind"], facts["folder"], f"{facts['parameters']:,}"
    if kind == "adapter":
        base = f"AutoModelForCausalLM.from_pretrained({facts['base']!r})"
        return (
            f"LoRA of {count} parameters in {folder}\n\n  peft.PeftModel.from_pretrained({base},"
            f" {folder!r})"
        )
    shards = facts.get("shards", 1)
    files = f" in {shards} files" if shards > 1 else ""
    loader = (
        "AutoModelForCausalLM" if facts["kind"] == "model" else "AutoModelForSequenceClassification"
    )
    return (
        f"{kind} of {count} parameters{files} in {folder}\n\n "
        f" transformers.{loader}.from_pretrained({folder!r})"
    )


def comparison_summary(
    rows: list[Row], improvements: Sequence[ImprovementChance] = (), *, mean: bool = False
) -> Result:
    """Groups of runs as a table, with the plain mean if requested; and the probability that one is
    better than another."""
    from rlbook.evaluation.comparison import ComparisonTable

    compared = ComparisonTable(rows)
    facts = [
        {
            "algorithm": row.algorithm,
            "label": label,
            "env": row.env,
            "folders": list(row.folders),
            "scores": row.scores.tolist(),
            **({"mean": float(row.scores.mean())} if mean else {}),
            "interquartile_mean": row.interquartile_mean,
            "confidence_interval": list(row.confidence_interval),
        }
        for row, label in zip(rows, compared.labels(), strict=True)
    ]
    text = align_columns(compared.table(mean=mean))
    pairs = [
        {
            "better": item.better,
            "than": item.than,
            "envs": list(item.worlds),
            "probability": item.probability,
            "confidence_interval": list(item.confidence_interval),
        }
        for item in improvements
    ]
    if improvements:
        chances = [("is better", "than", "probability", "95 % interval", "in")]
        for item in improvements:
            low, high = item.confidence_interval
            chances.append(
                (
                    item.better,
                    item.than,
                    f"{item.probability:.2f}",
                    f"{low:.2f} to {high:.2f}",
                    ", ".join(item.worlds),
                )
            )
        text += "\n\n" + align_columns(chances)
    return {"rows": facts, "improvements": pairs}, text


def width() -> int:
    """The width, in columns, that text is laid out for: the terminal's, at most 100, which also
    applies to files."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def fill_paragraph(text: str, first: str = "", rest: str = "") -> str:
    """A paragraph wrapped to the width, with `first` before its first line and `rest` before the
    others; no word is broken."""
    return textwrap.fill(
        printable(text),
        width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


_JOINED = "\0"  # between the words of a command, while lines are broken


def fill_sentence(text: str, first: str = "", rest: str = "") -> str:
    """As `fill_paragraph`, but a command after a colon, which may be pasted, stays on one line."""
    said, mark, command = text.partition(": rlbook ")
    joined = said + mark.replace("rlbook ", f"rlbook{_JOINED}") + command.replace(" ", _JOINED)
    return fill_paragraph(joined, first, rest).replace(_JOINED, " ")


def fill_text(text: str) -> str:
    """Paragraphs wrapped to the width; an indented line is kept, except that a command is continued
    after a backslash."""
    lines: list[str] = []
    for is_prose, block in itertools.groupby(text.splitlines(), _is_prose):
        if is_prose:
            lines.append(fill_paragraph(" ".join(block)))
        else:
            lines += [_continue_command(line) for line in block]
    return "\n".join(lines)


def _is_prose(line: str) -> bool:
    return bool(line) and not line.startswith((" ", "Example"))


def _continue_command(line: str) -> str:
    """A command wider than the terminal as several lines that can be pasted together."""
    if len(line) <= width() or " rlbook " not in line:
        return line
    return " \\\n".join(
        textwrap.wrap(
            line,
            width() - 2,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def for_terminal(line: str) -> str:
    """A line cut to the terminal's width; a file or a pipe gets all of it."""
    return fill_sentence(line, "", "  ") if sys.stdout.isatty() else line


def align_columns(table: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned columns. Headings take several lines if one would be too long; on a
    terminal that is still too narrow, each row becomes a list.
    """
    table = [[printable(cell) for cell in row] for row in table]
    head, *body = table
    lines = _as_lines(table)
    if max(map(len, lines)) > width():
        widest = [
            max(map(len, (*column, *heading.split())))
            for heading, *column in zip(*table, strict=True)
        ]
        broken = [textwrap.wrap(heading, size) for heading, size in zip(head, widest, strict=True)]
        lines = _as_lines([*map(list, itertools.zip_longest(*broken, fillvalue="")), *body])
    if max(map(len, lines)) > width() and sys.stdout.isatty():
        lines = [
            line
            for row in body
            for line in (
                row[0],
                *_as_lines([("", *pair) for pair in zip(head[1:], row[1:], strict=True)]),
            )
        ]
    return "\n".join(lines)


def _as_lines(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def shell_command(command: str, folder: Path | str, *options: str) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(["rlbook", *command.split(), shell_path(folder), *options])


def env_options(env_kwargs: Mapping[str, Any]) -> list[str]:
    """The arguments of an environment as options of a command."""
    return [
        word
        for key, value in env_kwargs.items()
        for word in (
            f"--env.{key}",
            value if isinstance(value, str) else json.dumps(value, default=str),
        )
    ]


def shell_path(folder: Path | str) -> str:
    """A folder as a command takes it: one whose name starts like an option gets its path in
    front."""
    return f"./{folder}" if str(folder).startswith("-") else str(folder)


def report_interrupt(
    signum: int,
    folder: Path,
    *,
    as_json: bool,
    allow_import: bool = False,
    workers: int | None = None,
    inspect: int | None = None,
    trackers: Sequence[str] = (),
) -> int:
    """Prints how to continue, with the options that are not in the folder; returns the exit code,
    128 + the signal's number."""
    from rlbook.runs.storage.checkpoints import latest_step

    options = [
        *(() if workers is None else ("--workers", str(workers))),
        *(() if inspect is None else ("--inspect", str(inspect))),
        *(("--track", *dict.fromkeys(trackers)) if trackers else ()),
        *(["--allow-import"] if allow_import else []),
    ]
    step = latest_step(folder)
    if step is None:
        return fail(128 + signum, "interrupted before the first checkpoint", as_json)
    again = shell_command("train --resume", folder, *options)
    if (processes := place().size) > 1:
        again = f"torchrun --nproc-per-node {processes} -m {again}"
    return fail(
        128 + signum,
        f"interrupted at step {step}; continue with: {again}",
        as_json,
    )


def resume_hint(folder: Path) -> str:
    """Where a failed run can be resumed."""
    from rlbook.runs.storage.checkpoints import latest_step

    step = latest_step(folder)
    return (
        "no earlier checkpoint was written"
        if step is None
        else f"the last good checkpoint is {folder / 'checkpoints' / str(step)}"
    )


def show(as_json: bool, result: Result) -> None:
    """Prints a command's result on standard output.

    Raises:
        OutputError: it takes no more, or is closed; of JSON also where the reader has gone.
        BrokenPipeError: the reader has gone, having read enough (`| head`).
    """
    facts, text = result
    with _print_context(leaving=not as_json):
        print(
            json.dumps(_replace_non_finite(facts), allow_nan=False) if as_json else text, flush=True
        )


def flush_output() -> None:
    """Flushes standard output. Raises what `show` raises."""
    with _print_context(leaving=True):
        sys.stdout.flush()


@contextlib.contextmanager
def _print_context(*, leaving: bool) -> Iterator[None]:
    """The context of printing; `leaving`: whether the reader may close the pipe before the end."""
    try:
        yield
        if isinstance(sys.stdout, _ClosedOutput):
            sys.stdout.end()
    except OSError as error:
        if leaving and isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"the result could not be printed ({system_reason(error)})") from error


def _replace_non_finite(value: object) -> object:
    """The value with NaN and infinity replaced by null, because JSON has neither."""
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fail(code: int, sentence: str, as_json: bool) -> int:
    """Prints one line on standard error; with --json, also one object on standard output."""
    line = " ".join(filter(None, map(str.strip, sentence.splitlines())))  # a path keeps its spaces
    note(_wrap_sentence(f"rlbook: {line}"))
    if as_json:
        try:
            print(json.dumps({"error": line, "exit_code": code}), flush=True)
        except (OSError, OutputError):
            abandon_stdout()
    return code


def _wrap_sentence(line: str) -> str:
    """A sentence wrapped for a terminal: no word is broken, and a command at its end, which may be
    pasted, has its own line."""
    if not sys.stderr.isatty():
        return line
    said, mark, command = line.partition("continue with: ")
    return fill_sentence(said + mark, "", "  ") + (f"\n  {command}" if command else "")


def note(line: str) -> None:
    """Prints a line on standard error, or nothing if that cannot be written to."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


class _Stream(io.TextIOBase):
    """A stream whose errors are those of the context `_errors`."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def write(self, text: str) -> int:
        with self._errors():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._errors():
            self.stream.flush()

    def isatty(self) -> bool:
        with contextlib.suppress(ValueError):  # it was closed, and somebody asks at exit
            return self.stream.isatty()
        return False

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


class _TolerantStream(_Stream):
    """Standard error for a run: output that cannot be written, because the reader has gone or the
    disk is full, is dropped."""

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.suppress(OSError, ValueError)


class _Output(_Stream):
    """Standard output, whose errors are told from those of files."""

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _print_context(leaving=True)


class _ClosedOutput(io.TextIOBase):
    """A standard output that was closed before the start: accepts everything, and remembers that
    something was written."""

    def __init__(self) -> None:
        self.lost = False

    def write(self, text: str) -> int:
        self.lost = self.lost or bool(text)
        return len(text)

    def fileno(self) -> int:
        return 1  # the null device, see `tolerate_closed_streams`

    def end(self) -> None:
        """Raises OSError if something was written since the last call."""
        lost, self.lost = self.lost, False
        if lost:
            raise OSError(errno.EBADF, "standard output is closed")


@contextlib.contextmanager
def tolerate_closed_streams() -> Iterator[None]:
    """Within the context, standard error drops what cannot be written, standard output raises
    `OutputError`, a closed stream is replaced, and signs that a terminal cannot show are spelled
    out (`rlbook.ascii_signs`).

    A closed stream is opened on the null device, number and all: the next file would have its
    number, and get what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null(number)
            null = open(os.devnull, "r" if number == 0 else "w")  # noqa: SIM115 - until the end
            setattr(sys, name, _ClosedOutput() if number == 1 else null)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELL_OUT)
    output, errors = sys.stdout, sys.stderr
    sys.stderr = _TolerantStream(errors)
    if not isinstance(output, _ClosedOutput):
        sys.stdout = _Output(output)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = output, errors


def _open_null(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)


def abandon_stdout() -> None:
    """Discards buffered output quietly after the reader has gone (`| head`) or the disk is full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
