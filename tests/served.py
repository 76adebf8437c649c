"""Servers of a model on a free port, in a thread or in a process of their own; they are always
ended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from warm_process import WarmProcess

import rlbook
from rlbook.llm.models.sources import small_llama
from rlbook.llm.models.starting import starting_model
from rlbook.llm.serving.engine import Engine
from rlbook.llm.serving.server import access_for, create_server, listening_socket
from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.runs.serving import open_served_model

ROOT = Path(rlbook.__file__).parents[1]


class RunningServer:
    """A server that answers."""

    def __init__(self, url: str, process: WarmProcess | None = None) -> None:
        self.url, self.process = url, process
        self.engine: Any = None
        self.clients = ExitStack()

    @property
    def root(self) -> str:
        """The address without /v1."""
        return self.url.removesuffix("/v1")

    def client(self, **options: Any) -> Any:
        """The official client, which gives up at the first error."""
        from openai import OpenAI

        given = {"api_key": "none", "max_retries": 0, "timeout": 60.0} | options
        return self.clients.enter_context(OpenAI(base_url=self.url, **given))

    def asynchronous(self, **options: Any) -> Any:
        from openai import AsyncOpenAI

        given = {"api_key": "none", "max_retries": 0, "timeout": 60.0} | options
        return AsyncOpenAI(base_url=self.url, **given)


@contextmanager
def served(
    folder: Path | str, *, host: str = "127.0.0.1", key: str | None = None, **options: Any
) -> Iterator[RunningServer]:
    """A server in a thread. The options are those of `Engine`, or name and dtype."""
    own = {name: options.pop(name) for name in ("name", "dtype") if name in options}
    model = open_served_model(folder, **own)
    engine = Engine(model.model, model.codec, **options)
    with listening_socket(host, 0) as listening:
        server = create_server(model, engine, access_for(host, key))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            running = RunningServer(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
            running.engine = engine
            with running.clients:
                yield running
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def served_by_process(folder: Path | str, *options: str) -> Iterator[RunningServer]:
    """`rlbook serve` in a process of its own."""
    words = ["-m", "rlbook", "serve", folder, "--port", "0", "--json", *options]
    given = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    given.pop("RLBOOK_API_KEY", None)
    process = WarmProcess(words, env=given)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        running = RunningServer(json.loads(line)["url"], process)
        with running.clients:
            yield running
    finally:
        process.kill()
        process.communicate()


def write_addition_folder(folder: Path, context: int = 4096) -> Path:
    """The model that ships for Addition as a Hugging Face folder."""
    model = starting_model(AdditionTask(), None, np.random.default_rng(0))
    model.config.max_position_embeddings = context
    model.save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return folder


TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_bytes_folder(folder: Path, context: int = 4096) -> Path:
    """A Llama of random weights with a byte-level tokenizer, which reads and writes anything."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<pad>", "<s>", "<end>", *alphabet]
    backend = Tokenizer(models.BPE({name: place for place, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    backend.add_special_tokens(names[:3])
    small = small_llama(
        torch.Generator().manual_seed(0), vocabulary_size=len(names), context=context
    )
    small.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<end>",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return folder
