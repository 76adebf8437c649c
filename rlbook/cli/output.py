"""What the `rlbook` command says: results on standard output, one line on standard error when something is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbook.runs.run import Run

Result = tuple[dict[str, Any], str]
"""What --json prints, and what is printed otherwise."""


def trained(run: Run, folder: Path, seconds: float) -> Result:
    """What a finished run has come to."""
    from rlbook.agent import Planner

    returns = run.episode_returns[-100:]
    evaluated = next((report["eval_return"] for report in reversed(run.metrics) if report.get("eval_return") is not None), None)
    request = run.request
    facts = {
        "algorithm": request.algorithm, "env": request.recipe.name, "seed": request.seed, "steps": run.steps,
        "episodes": len(run.episode_returns), "return": math.fsum(returns) / len(returns) if returns else None,
        "eval_return": evaluated, "seconds": round(seconds, 3), "folder": str(folder), "notes": list(run.notes),
        "metrics": run.metrics[-1] if run.metrics else {},
    }  # fmt: skip
    done = f"{run.steps:,} sweeps" if isinstance(run.agent, Planner) else f"{run.steps:,} steps, {facts['episodes']:,} episodes"
    lines = [f"{request.algorithm} on {facts['env']}: {done}, {seconds:.1f} s"]
    if returns:
        lines.append(f"mean return of the last {len(returns)} training episodes: {facts['return']:.4g}")
    if evaluated is not None:
        lines.append(f"mean return of {request.eval_episodes} greedy episodes: {evaluated:.4g}")
    trust = request.recipe.module is not None
    commands = _typed("evaluate", folder, trust), _typed("watch", folder, trust), _typed("plot", folder)
    return facts, "\n".join([*lines, "", *(f"  {command}" for command in commands)])


def _typed(command: str, folder: Path, allow_import: bool = False) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(["rlbook", *command.split(), str(folder), *(["--allow-import"] if allow_import else [])])


def interrupted(signum: int, folder: Path, *, as_json: bool, allow_import: bool = False) -> int:
    """Says how to go on; returns the exit code, 128 + the signal's number."""
    from rlbook.runs.checkpoints import latest

    step = latest(folder)
    if step is None:
        return fail(128 + signum, "interrupted before the first checkpoint", as_json)
    return fail(128 + signum, f"interrupted at step {step}; continue with: {_typed('train --resume', folder, allow_import)}", as_json)


def last_good(folder: Path) -> str:
    """Where a failed run can be taken up again."""
    from rlbook.runs.checkpoints import latest

    step = latest(folder)
    return "no checkpoint was written before" if step is None else f"the last good checkpoint is {folder / 'checkpoints' / str(step)}"


def show(as_json: bool, result: Result) -> None:
    """A command's result, on standard output."""
    facts, text = result
    print(json.dumps(_finite(facts), allow_nan=False) if as_json else text)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fail(code: int, sentence: str, as_json: bool) -> int:
    """One line on standard error; with --json, one object on standard output too."""
    line = " ".join(sentence.split())
    with contextlib.suppress(BrokenPipeError):
        print(f"rlbook: {line}", file=sys.stderr, flush=True)
        if as_json:
            print(json.dumps({"error": line, "exit_code": code}), flush=True)
    return code


def tolerate_narrow_encodings() -> None:
    """A terminal without Greek letters shows question marks, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def abandon_stdout() -> None:
    """The reader has gone (`| head`); what is left in the buffer goes nowhere, quietly."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
