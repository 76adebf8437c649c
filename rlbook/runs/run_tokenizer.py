"""A run's trained tokenizer, as a file in its folder.

    config.yaml         env_kwargs: {tokenizer: bpe, vocab_size: 512}; digests: {env.tokenizer: …}
    tokenizer.json      what was learned, with this sha256

A loaded run takes the file: were the tokens learned again, rows added to a data set would change
what every id stands for.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbook.runs.storage.files import CheckpointError, read_file, refuse, replace_file

if TYPE_CHECKING:
    from rlbook.runs.request import Request

FILE, LIMIT = "tokenizer.json", 2**26  # its name, and its bytes at most
DIGEST = "env.tokenizer"


def write_tokenizer(folder: Path, request: Request) -> None:
    """Writes the tokenizer that the environment of a request uses, if it was trained."""
    if request.recipe.kwargs.get("tokenizer") is None:
        return
    rules: Any = getattr(request.recipe.make().unwrapped, "rules", None)
    chosen = getattr(rules, "chosen_tokenizer", None)
    if chosen is not None:
        replace_file(folder / FILE, chosen)


def add_tokenizer(folder: Path, request: Request) -> Request:
    """The request with the tokenizer of its run's folder.

    Raises:
        CheckpointError: the file is missing, or is not the one that the run was started with.
    """
    digest = request.digests.get(DIGEST)
    if digest is None:
        return request
    path = folder / FILE
    try:
        found = read_file(path, LIMIT)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} lacks {FILE}, without which its token ids cannot be decoded."
        ) from None
    if hashlib.sha256(found).hexdigest() != digest:
        refuse(path, "it is not the tokenizer that the run was started with")
    held = {"tokenizer": str(path), "vocab_size": None}
    return replace(request, recipe=replace(request.recipe, held=held))
