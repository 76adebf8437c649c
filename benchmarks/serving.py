"""`rlbook serve` beside `transformers serve`, both in processes of their own: 64 clients ask for a
chat completion of 64 tokens at once; new tokens per second of the whole, by the clock.

The peer runs with its continuous batching, the better of its two modes. No request may be lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Comparison, run_in_turn
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer

GOAL = 1.0
CLIENTS, TOKENS, ROUNDS = 64, 64, 3
SIZES: dict[str, dict[str, int]] = {
    "0.1 M": {},
    "10 M": {"hidden_size": 384, "feed_forward": 1024, "layers": 6, "heads": 6},
}


def compare() -> list[Comparison]:
    return [beside(name, sizes) for name, sizes in SIZES.items()]


def beside(name: str, sizes: dict[str, int]) -> Comparison:
    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(Path(place) / "model", sizes)
        ours = [sys.executable, "-m", "rlbook", "serve", str(folder), "--max-batch", str(CLIENTS)]
        theirs = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
        theirs += ["--continuous-batching", "--log-level", "error"]
        with running(ours) as own, running(theirs) as peer:
            rates = run_in_turn(
                {
                    "ours": lambda: rate(own, "model"),
                    "peer": lambda: rate(peer, str(folder)),
                },
                ROUNDS,
            )
    return Comparison(
        f"serving, {name} parameters, {CLIENTS} clients",
        "new tokens/s",
        rates["ours"],
        rates["peer"],
        GOAL,
    )


def write_folder(folder: Path, sizes: dict[str, int]) -> Path:
    """A Llama of random weights, which never ends by itself: no token is its EOS."""
    model = small_llama(torch.Generator().manual_seed(0), context=256, **sizes)
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        model.lm_head.weight[:4] = 0.0
    model.save_pretrained(folder)
    tokenizer: Any = character_tokenizer()
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """A server on a free port that answers; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=said, stderr=said, env=os.environ
        )
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    if process.poll() is not None:
                        said.seek(0)
                        raise RuntimeError(said.read().decode()[-2000:]) from None
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def rate(url: str, model: str) -> float:
    """New tokens per second of 64 requests at once."""
    start = time.perf_counter()
    tokens = asyncio.run(ask_all(url, model))
    return tokens / (time.perf_counter() - start)


async def ask_all(url: str, model: str) -> int:
    """How many tokens the answers have; each client must get one."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:

        async def ask(number: int) -> int:
            answer = await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": f"{number + 10}+{99 - number}="}],
                max_tokens=TOKENS,
                temperature=1.0,
            )
            assert answer.usage is not None and answer.choices[0].finish_reason
            return answer.usage.completion_tokens

        return sum(await asyncio.gather(*(ask(number) for number in range(CLIENTS))))


if __name__ == "__main__":
    for found in compare():
        print(found)
