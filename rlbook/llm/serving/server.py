"""Runs the application until a signal ends it: the socket, the checks of the address and its
access, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import uvicorn
from fastapi import FastAPI

from rlbook.errors import RequestError
from rlbook.llm.serving.application import LOCAL_NAMES, Access, create_application
from rlbook.llm.serving.engine import Engine, GeneratedSequence, Piece, deliver_at_once
from rlbook.llm.serving.served_model import ServedModel

GRACE = 5.0  # seconds that running requests have after a signal
LEAST_KEY = 16  # characters


def access_for(host: str, key: str | None) -> Access:
    """The access rules of a server that listens at an address.

    Raises:
        RequestError: another address than loopback without a key, or a key that is easily guessed.
    """
    if key is not None and (len(key) < LEAST_KEY or not key.isascii() or not key.isprintable()):
        raise RequestError(
            f"the API key must have at least {LEAST_KEY} printable ASCII characters, got {len(key)}"
        )
    if is_loopback(host):
        return Access(key, None if key else LOCAL_NAMES)
    if key is None:
        raise RequestError(
            f"host {host!r} can be reached from other machines, which needs an API key: set"
            " RLBOOK_API_KEY, or give --api-key FILE"
        )
    return Access(key, None)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises RequestError if that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        reason = str(error) if number is None or number < 0 else os.strerror(number)
        raise RequestError(f"cannot listen at {host}:{port} ({reason.lower()})") from None


def url_of(listening: socket.socket) -> str:
    """The URL that clients use as `base_url`."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def create_server(served: ServedModel, engine: Engine, access: Access) -> uvicorn.Server:
    """A server whose `run(sockets=[listening])` answers requests until SIGINT or SIGTERM, which is
    raised again once the answers being generated have ended, or after `GRACE` seconds.

    In another thread than the main one, `should_exit = True` is the signal.
    """
    app = create_application(served, engine, access)
    app.router.lifespan_context = _lifespan(engine)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=round(GRACE) + 5,
    )
    return _OrderlyServer(config, engine)


def _lifespan(engine: Engine) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def deliver(pieces: list[tuple[GeneratedSequence, Piece]]) -> None:
            loop.call_soon_threadsafe(deliver_at_once, pieces)

        engine.deliver = deliver
        engine.start()
        yield
        await asyncio.to_thread(engine.stop, 0.0)

    return run


class _OrderlyServer(uvicorn.Server):
    """Lets the engine finish its sequences before connections are closed, so that every request
    gets an answer."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self.engine = engine

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self.engine.stop, GRACE)
        await super().shutdown(sockets)
