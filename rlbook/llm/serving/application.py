"""The HTTP application: OpenAI's paths /v1/models, /v1/completions and /v1/chat/completions over an
`Engine`, /health, and this server's own /rlbook/status and /rlbook/weights."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from rlbook.errors import RequestError
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.serving.answer_text import AnswerText
from rlbook.llm.serving.answers import AnswerFormat, ChoiceState, Json
from rlbook.llm.serving.engine import (
    Engine,
    GeneratedSequence,
    Piece,
    QueueFullError,
    SamplingRequest,
    StoppedError,
)
from rlbook.llm.serving.protocol import (
    BadRequestError,
    ChatRequest,
    CompletionRequest,
    GenerationParameters,
    parse_request,
)
from rlbook.llm.serving.served_model import ServedModel
from rlbook.llm.tokenizers.chat_codec import ChatCodec, chat_codec, check_arguments

BODY_LIMIT = 2**24  # bytes
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Access:
    """Which requests are allowed."""

    key: str | None = None  # the API key; None: anyone who reaches the loopback interface
    hosts: tuple[str, ...] | None = LOCAL_NAMES
    """Host names under which the server may be called; None for any. A page of another site whose
    name resolves to this machine is detected by its own host name."""


def create_application(served: ServedModel, engine: Engine, access: Access) -> FastAPI:
    """The application of a model.

    Args:
        served: the model and how it is called.
        engine: generates; started and stopped by whoever made it.
        access: who may ask.
    """
    app = FastAPI(title="rlbook", docs_url=None, redoc_url=None, openapi_url=None)
    handlers = _Handlers(served, engine, access)
    for path, function, method in (
        ("/health", handlers.health, "GET"),
        ("/v1/models", handlers.models, "GET"),
        ("/v1/models/{name:path}", handlers.model, "GET"),
        ("/v1/completions", handlers.completions, "POST"),
        ("/v1/chat/completions", handlers.chat_completions, "POST"),
        ("/rlbook/status", handlers.status, "GET"),
        ("/rlbook/weights", handlers.weights, "POST"),
    ):
        app.add_api_route(path, function, methods=[method], response_model=None)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(BadRequestError, _answer_bad_request)
    return app


def error_response(
    status: int, message: str, kind: str, param: str | None = None, code: str | None = None
) -> JSONResponse:
    """An error in OpenAI's shape."""
    content = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse(content, status, headers)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        said = f"there is no {request.method} {request.url.path}"
        return error_response(error.status_code, said, "invalid_request_error")
    return error_response(error.status_code, str(error.detail), "invalid_request_error")


async def _answer_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequestError)
    status = {"model_not_found": 404, "invalid_api_key": 401, "body_too_large": 413}
    return error_response(
        status.get(error.code or "", 400),
        str(error),
        "invalid_request_error",
        error.param,
        error.code,
    )


class _Handlers:
    """The functions behind the paths."""

    def __init__(self, served: ServedModel, engine: Engine, access: Access) -> None:
        self.served, self.engine, self.access = served, engine, access
        self.codec = served.codec
        self.started = int(time.time())
        self.unseeded = np.random.SeedSequence()

    async def health(self) -> Json:
        return {"status": "ok"}

    async def models(self, request: Request) -> Json:
        self._check_access(request)
        return {"object": "list", "data": [self._model()]}

    async def model(self, request: Request, name: str) -> Json:
        self._check_access(request)
        self._check_model(name)
        return self._model()

    async def status(self, request: Request) -> Json:
        self._check_access(request)
        return {**self.engine.status(), "fingerprint": self.served.fingerprint}

    async def weights(self, request: Request) -> Response:
        """Loads the weights of a local folder into the model, between two answers."""
        self._check_access(request)
        body = await _read_json(request)
        folder = body.get("folder") if isinstance(body, dict) else None
        if not isinstance(folder, str):
            raise BadRequestError("folder must be the path of a folder on the server", "folder")
        try:
            task = self.engine.run_between_answers(lambda: self.served.load_weights(folder))
            await asyncio.wrap_future(task)
        except StoppedError as error:
            return error_response(503, str(error), "service_unavailable")
        except (ValueError, RequestError) as error:
            raise BadRequestError(str(error), "folder") from None
        return JSONResponse({"fingerprint": self.served.fingerprint})

    async def completions(self, request: Request) -> Response:
        self._check_access(request)
        asked = parse_request(await _read_json(request), CompletionRequest)
        self._check_model(asked.model)
        prompts = [await self._encode(prompt) for prompt in asked.prompts]
        return await self._answer(request, asked, prompts)

    async def chat_completions(self, request: Request) -> Response:
        self._check_access(request)
        asked = parse_request(await _read_json(request), ChatRequest)
        self._check_model(asked.model)
        messages = [message.plain() for message in asked.messages]
        encode = self._chat_encoder(asked.chat_template_kwargs)
        return await self._answer(
            request, asked, [await _run_in_thread(encode, messages, "messages")]
        )

    def _check_access(self, request: Request) -> None:
        host = request.headers.get("host", "").rpartition(":")
        name = host[0] if host[1] and host[2].isdecimal() else "".join(host)
        if self.access.hosts is not None and name not in self.access.hosts:
            allowed = ", ".join(self.access.hosts)
            raise BadRequestError(f"the host must be one of {allowed}, got {name[:60]!r}")
        given = request.headers.get("authorization", "")
        wanted = f"Bearer {self.access.key}"
        if self.access.key is not None and not hmac.compare_digest(given.encode(), wanted.encode()):
            raise BadRequestError(
                "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
            )

    def _check_model(self, name: str) -> None:
        if name != self.served.name:
            raise BadRequestError(
                f"there is no model {name[:60]!r}; this server has {self.served.name!r}",
                "model",
                "model_not_found",
            )

    def _model(self) -> Json:
        own = {"id": self.served.name, "object": "model", "owned_by": "rlbook"}
        return {**own, "created": self.started, "max_model_len": self.served.context}

    async def _encode(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            return await _run_in_thread(self.codec.encode_prompts, [prompt], "prompt", first=True)
        size = self.codec.vocabulary_size
        strange = next((token for token in prompt if token >= size), None)
        if strange is not None:
            raise BadRequestError(f"prompt must be token ids below {size}, got {strange}", "prompt")
        return prompt

    def _chat_encoder(self, arguments: dict[str, Any]) -> Callable[[Any], Any]:
        """The function that turns messages into token ids, with arguments for the chat template."""
        if not arguments:
            return self.codec.encode_prompt
        codec = self.codec if isinstance(self.codec, ChatCodec) else chat_codec(self.codec)
        try:
            check_arguments(arguments, None if codec.plain else codec.template_text)
        except ValueError as error:
            raise BadRequestError(str(error), "chat_template_kwargs") from None
        told = {**codec.arguments, **arguments}
        return dataclasses.replace(codec, arguments=told).encode_prompt

    async def _answer(
        self, request: Request, parameters: GenerationParameters, prompts: list[list[int]]
    ) -> Response:
        """Submits one sequence for each prompt and choice, and returns the answers."""
        feed: asyncio.Queue[tuple[int, list[Piece]]] = asyncio.Queue()
        sequences = self._sequences(parameters, prompts, feed)
        try:
            self.engine.submit(sequences)
        except QueueFullError as error:
            return error_response(429, str(error), "rate_limit_error", code="queue_full")
        except StoppedError as error:
            return error_response(503, str(error), "service_unavailable")
        watch = asyncio.create_task(self._watch_connection(request, sequences))
        assert isinstance(parameters, CompletionRequest | ChatRequest)
        form = AnswerFormat(parameters, self.codec, self.served.name, self.served.fingerprint)
        choices = [ChoiceState(one.prompt, scored=one.scored) for one in sequences]
        if isinstance(parameters, CompletionRequest) and parameters.echo:
            for index, one in enumerate(choices):
                one.echo = form.prompt_text(parameters.prompts[index // parameters.n])
        pieces = self._pieces(feed, choices, sequences, watch)
        if parameters.stream:
            return StreamingResponse(
                _stream(form, choices, pieces),
                media_type="text/event-stream",
                headers={"Cache-Control": "no-cache"},
            )
        async for _ in pieces:
            pass
        failed = next((one for one in choices if one.finish in ("error", "abort")), None)
        if failed is not None:
            return error_response(*_failure(failed.pieces[-1]))
        return JSONResponse(form.complete(choices))

    def _sequences(
        self,
        request_parameters: GenerationParameters,
        prompts: list[list[int]],
        feed: asyncio.Queue[tuple[int, list[Piece]]],
    ) -> list[GeneratedSequence]:
        """The sequences of a request, `n` for each prompt.

        Raises:
            BadRequestError: a prompt is empty or too long, or there are too many.
        """
        if not prompts or not all(prompts):
            raise BadRequestError(
                "a prompt must have at least one token, got an empty one", "prompt"
            )
        most = self.engine.max_batch + self.engine.max_waiting
        if len(prompts) * request_parameters.n > most:
            raise BadRequestError(
                f"a request may ask for {most} answers, got {len(prompts) * request_parameters.n}",
                "n",
            )
        # a request without a seed has one of its own
        drawn = self.unseeded.spawn(1)[0].generate_state(2, np.uint64).tolist()
        noise = drawn if request_parameters.seed is None else [request_parameters.seed % 2**64]
        made: list[GeneratedSequence] = []
        for prompt in prompts:
            parameters = self._sampling(request_parameters, prompt)
            for _ in range(request_parameters.n):
                text = AnswerText(self.codec.backend, request_parameters.stop_texts)
                seed, receive = (
                    [*noise, len(made)],
                    _receiver(feed, len(made), request_parameters.stream),
                )
                made.append(GeneratedSequence(prompt, parameters, seed, text, receive))
        return made

    def _sampling(self, parameters: GenerationParameters, prompt: list[int]) -> SamplingRequest:
        """The sampling of the tokens after a prompt. Raises BadRequestError if there is no room for
        one."""
        context, size = self.served.context, self.codec.vocabulary_size
        room, wanted = context - len(prompt), parameters.most_tokens
        if room < (1 if wanted is None else wanted):
            needs = f"the prompt has {len(prompt)} tokens"
            needs += "" if wanted is None else f" and the answer up to {wanted}"
            raise BadRequestError(
                f"{needs}, but the model reads {context}", code="context_length_exceeded"
            )
        biases = []
        for name, bias in parameters.logit_bias.items():
            if not (name.isdecimal() and int(name) < size):
                raise BadRequestError(
                    f"logit_bias must name token ids below {size}, got {name[:20]!r}", "logit_bias"
                )
            biases.append((int(name), bias))
        sampling = Sampling(
            temperature=parameters.temperature,
            top_p=parameters.top_p,
            top_k=max(0, parameters.top_k),
            min_p=parameters.min_p,
            repetition_penalty=parameters.repetition_penalty,
        )
        ends = {*parameters.stop_token_ids, *(() if parameters.ignore_eos else self.codec.ends)}
        return SamplingRequest(
            sampling,
            min(room, parameters.usual_tokens or room) if wanted is None else wanted,
            frozenset(ends),
            parameters.num_top_tokens or 0,
            isinstance(parameters, CompletionRequest)
            and parameters.echo
            and parameters.num_top_tokens is not None,
            parameters.presence_penalty,
            parameters.frequency_penalty,
            tuple(biases),
        )

    async def _pieces(
        self,
        feed: asyncio.Queue[tuple[int, list[Piece]]],
        choices: list[ChoiceState],
        sequences: list[GeneratedSequence],
        watch: asyncio.Task[None],
    ) -> AsyncIterator[tuple[int, Piece]]:
        """Yields the pieces of all choices as they arrive; stops the generation if the consumer
        stops."""
        left = len(choices)
        try:
            while left:
                index, new = await feed.get()
                choices[index].pieces += new
                left -= new[-1].finish is not None
                yield index, new[-1]
        finally:
            watch.cancel()
            if left:
                self.engine.abort(sequences)

    async def _watch_connection(self, request: Request, sequences: list[GeneratedSequence]) -> None:
        """Waits until the client closes its connection."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.engine.abort(sequences)


def _receiver(
    feed: asyncio.Queue[tuple[int, list[Piece]]], index: int, stream: bool
) -> Callable[[Piece], None]:
    """Puts the pieces of an answer into the queue: each of a stream immediately, otherwise all
    together."""
    held: list[Piece] = []

    def receive(piece: Piece) -> None:
        held.append(piece)
        if stream or piece.finish is not None:
            feed.put_nowait((index, held.copy()))
            held.clear()

    return receive


def _failure(piece: Piece) -> tuple[int, str, str]:
    """Status, message and type of an answer that failed."""
    if piece.finish == "abort":
        return 503, "the server is shutting down", "service_unavailable"
    return 500, piece.text, "server_error"


async def _stream(
    form: AnswerFormat,
    choices: list[ChoiceState],
    pieces: AsyncIterator[tuple[int, Piece]],
) -> AsyncIterator[str]:
    """The answer as server-sent events."""
    if form.is_chat:
        for index in range(len(choices)):
            yield _event(form.first_chunk(index))
    async with contextlib.aclosing(pieces):  # type: ignore[type-var]
        async for index, piece in pieces:
            if piece.finish in ("error", "abort"):
                status, message, kind = _failure(piece)
                yield _event({"error": {"message": message, "type": kind, "code": status}})
                return
            if (
                piece.text
                or piece.finish
                or (choices[index].echo and not choices[index].is_echoed)
                or form.request.num_top_tokens is not None
                or (form.request.return_token_ids)
            ):
                yield _event(form.chunk(index, choices[index]))
    options = form.request.stream_options
    if options is not None and options.include_usage:
        yield _event(form.usage_chunk(choices))
    yield "data: [DONE]\n\n"


def _event(content: Json) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


async def _run_in_thread(
    function: Callable[[Any], Any], given: object, param: str, *, first: bool = False
) -> Any:
    """Runs a function of the tokenizer on a request's content in a thread beside the server's
    own."""
    try:
        found = await asyncio.to_thread(function, given)
    except ValueError as error:
        raise BadRequestError(str(error), param) from None
    return found[0] if first else found


async def _read_json(request: Request) -> object:
    """Parses the body of a request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site can send other types unasked
        raise BadRequestError(f"the content type must be application/json, got {kind[:60]!r}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_LIMIT:
            raise BadRequestError(f"a body may have {BODY_LIMIT:,} bytes", code="body_too_large")
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadRequestError("the body must be JSON, and it cannot be read") from None
