"""The command line of `rlbook synthesize`: the rows, the server, and the file to write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional

from rlbook.checks import whole_number
from rlbook.cli.language_models.serve import read_key
from rlbook.cli.options import (
    NO_DEFAULT,
    Decimal,
    File,
    Number,
    PrintingOptions,
    Word,
    command_options,
    parse,
    text,
)
from rlbook.cli.output import Result, note
from rlbook.errors import RequestError

Url = Annotated[Any, text("URL"), NO_DEFAULT]


@command_options
class Synthesize(PrintingOptions):
    """Ask a server of OpenAI's protocol to reason about each option of multiple-choice rows, and
    write one JSON line per option. The same command continues where an earlier one stopped.

    A row has a question, its options (a list, or label: text) and, if it is known, the answer.

    Example:
      rlbook synthesize rows.jsonl --server http://127.0.0.1:8000/v1 --out reasons.jsonl
    """

    rows: Positional[File]  # JSON Lines, JSON, Parquet or a datasets folder
    server: Url = None  # the server, such as one of rlbook serve
    out: File = None  # the JSON Lines file to write or to continue
    model: Word = None  # the server's name of the model (default: the only one that it has)
    concurrency: Number = None  # requests at a time (default: 20)
    # retries of a request, after a pause that doubles from half a second to eight (default: 6)
    retries: Number = None
    max_tokens: Number = None  # limit on an answer, in tokens (default: 512)
    temperature: Decimal = None  # sampling temperature (default: 1)
    seed: Number = None  # seed of the sampling; each option has its own noise (default: 0)
    # file with the text to ask, in which {question}, {options}, {label}, {option} and {verdict}
    # are replaced
    template: File = None
    # file with the API key (default: the environment variable RLBOOK_API_KEY, or else
    # OPENAI_API_KEY, or else no key)
    api_key: File = None


def run_synthesis(words: Sequence[str]) -> tuple[bool, Result, int]:
    """Runs the synthesis. Returns whether JSON is requested, what to print, and the exit code: 1 if
    an option has no line.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Synthesize, words, "rlbook synthesize")
    server, out = options.server, options.out
    if server is None or out is None:
        raise RequestError(
            "synthesize needs --server URL and --out FILE: rlbook synthesize rows.jsonl --server"
            " http://127.0.0.1:8000/v1 --out reasons.jsonl"
        )
    given: dict[str, Any] = {}
    for name, least, most in (
        ("concurrency", 1, 1_000),
        ("retries", 0, 100),
        ("max_tokens", 1, 2**20),
        ("seed", 0, 2**62),
    ):
        value = getattr(options, name)
        if value is not None:
            given[name] = whole_number(name, value, least, most)
    temperature = options.temperature
    if temperature is not None:
        if not 0 <= temperature <= 100:
            raise RequestError(f"temperature must be from 0 to 100, got {temperature:g}")
        given["temperature"] = temperature
    if options.template is not None:
        given["template"] = _read_template(options.template)
    key = read_key(options.api_key) or os.environ.get("OPENAI_API_KEY")
    try:
        import openai  # noqa: F401
    except ModuleNotFoundError as error:
        raise RequestError(
            f'synthesize needs {error.name}, which is not installed: pip install "rlbook[serve]"'
        ) from None
    from rlbook.llm.serving.synthesis import SynthesisOptions, synthesize

    asked = SynthesisOptions(server, options.model, key=key, **given)
    result = synthesize(options.rows, out, asked, note)
    facts = {
        "out": out,
        "total": result.total,
        "kept": result.kept,
        "written": result.written,
        "failed": result.failed,
        **({"reason": result.reason} if result.reason else {}),
    }
    said = (
        f"{result.written} lines written to {out}, {result.kept} existed already, of {result.total}"
    )
    if not result.is_complete:
        missing = result.total - result.kept - result.written
        said += f"\n{missing} are missing: {result.reason}; run the same command again to continue"
    return options.json, (facts, said), int(not result.is_complete)


def _read_template(path: str) -> str:
    try:
        found = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise RequestError(f"--template: {path!r} cannot be read ({reason})") from None
    if "{option}" not in found and "{label}" not in found:
        raise RequestError(
            f"--template: {path!r} must say {{option}} or {{label}}, which it asks about"
        )
    return found
