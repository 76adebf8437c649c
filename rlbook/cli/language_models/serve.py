"""The command line of `rlbook serve`: the model, the address, the API key, and the limits."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from rlbook.checks import whole_number
from rlbook.cli.options import Checkpoint, File, Flag, Folder, Number, Word, parse
from rlbook.cli.output import note
from rlbook.errors import RequestError

KEY = "RLBOOK_API_KEY"
KEY_LIMIT = 4096  # bytes of a file with a key


@dataclass(frozen=True)
class Serve:
    """Serve a language model over HTTP with OpenAI's protocol: /v1/models, /v1/completions and
    /v1/chat/completions, for any number of clients, whose requests are generated in one batch.

    Only programs on this machine can reach it. With --host it can be reached from elsewhere, and
    then every request needs the API key. SIGINT (Ctrl-C) or SIGTERM ends it.

    Examples:
      rlbook serve runs/grpo-Addition-v0-0 --port 8000
      rlbook serve smollm2 --max-batch 16 --dtype bfloat16
    """

    folder: Positional[Folder]  # a run's folder, or a local Hugging Face model
    port: Number = None  # port to listen at; 0 takes a free one (default: 8000)
    # address to listen at; any other than loopback needs an API key (default: 127.0.0.1)
    host: Word = None
    # file with the API key that requests must carry (default: the environment variable
    # RLBOOK_API_KEY, else no key)
    api_key: File = None
    name: Word = None  # name of the model in requests (default: the folder's name)
    max_batch: Number = None  # sequences generated at a time (default: 32)
    # sequences that may wait; a request beyond them is refused with status 429 (default: 256)
    max_waiting: Number = None
    # number format of weights and arithmetic: float32, bfloat16 or float16 (default: float32)
    dtype: Word = None
    device: Word = None  # device of the model: cpu, cuda or auto (default: cpu)
    checkpoint: Checkpoint = None  # a run's checkpoint: a step, or best (default: the last one)
    json: Flag = False  # print the address as a JSON object to standard output, and nothing else
    # allow an algorithm, an environment or a reward of the form module:Name to import that module,
    # and the reward `code` to run programs
    allow_import: Flag = False
    debug: Flag = False  # show the full traceback of an error


def run_serving(words: Sequence[str]) -> int:
    """Serves the model until a signal arrives. Returns the exit code.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Serve, words, "rlbook serve")
    port = _count("port", options.port, 8000, least=0, most=65_535)
    max_batch = _count("max_batch", options.max_batch, 32, least=1, most=4096)
    max_waiting = _count("max_waiting", options.max_waiting, 256, least=0, most=2**20)
    host = options.host or "127.0.0.1"
    key = read_key(options.api_key)
    try:
        from rlbook.llm.serving import server
    except ModuleNotFoundError as error:
        raise RequestError(
            f'serve needs {error.name}, which is not installed: pip install "rlbook[serve]"'
        ) from None
    access = server.access_for(host, key)
    from rlbook.llm.serving.engine import Engine, cache_tokens_of
    from rlbook.runs.serving import open_served_model

    with contextlib.closing(server.listening_socket(host, port)) as listening:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is not a result
            served = open_served_model(
                options.folder,
                name=options.name,
                checkpoint=options.checkpoint,
                dtype=options.dtype or "float32",
                device=options.device or "cpu",
                allow_import=options.allow_import,
            )
        room = cache_tokens_of(served.model)
        engine = Engine(
            served.model,
            served.codec,
            max_batch=max_batch,
            max_waiting=max_waiting,
            cache_tokens=room,
        )
        url = server.url_of(listening)
        facts = {"url": url, "model": served.name, "context": served.context}
        said = json.dumps(facts) if options.json else f"{served.name} at {url}"
        print(said, flush=True)
        if not options.json:
            note(f"up to {max_batch} answers at a time; Ctrl-C ends it")
        server.create_server(served, engine, access).run(sockets=[listening])
    return 0


def read_key(file: str | None) -> str | None:
    """The API key in a file, or in the environment; None where there is none.

    Raises:
        RequestError: the file cannot be read, or is empty.
    """
    if file is None:
        return os.environ.get(KEY) or None
    try:
        with Path(file).open("rb") as opened:
            key = opened.read(KEY_LIMIT).decode("ascii").strip()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "not ASCII").lower()
        raise RequestError(f"--api-key: {file!r} cannot be read ({reason})") from None
    if not key:
        raise RequestError(f"--api-key: {file!r} is empty")
    return key


def _count(name: str, value: int | None, default: int, *, least: int, most: int) -> int:
    return default if value is None else whole_number(name, value, least, most)
