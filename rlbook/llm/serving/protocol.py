"""OpenAI's requests, validated: what a body may contain, and one sentence for anything else.

A name that changes the answer and is not supported here is refused; one that has no bearing on it,
such as `user`, is ignored. `top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`, `ignore_eos`,
`return_token_ids` and `chat_template_kwargs` are vLLM's additions, by vLLM's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from rlbook.checks import did_you_mean

MOST_CHOICES = 128
Number = Annotated[float, Field(allow_inf_nan=False)]
Token = Annotated[StrictInt, Field(ge=0)]
IGNORED = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention"
    " parallel_tool_calls".split()
)
"""Parameters without effect on the answer."""
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "functions": (None, []),
    "function_call": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "reasoning_effort": (None, "none"),
    "verbosity": (None,),
    "suffix": (None, ""),
    "echo": (None, False),
}
"""Unsupported parameters of the protocol, and their neutral values; a completion may still have an
echo."""

UNIONS = {
    "prompt": "a text, a list of texts, a list of token ids, or a list of such lists",
    "stop": "a text, or a list of texts",
}
"""The description of parameters that accept several types."""


class BadRequestError(ValueError):
    """A request that cannot be answered; one sentence says why.

    Args:
        message: the sentence.
        param: the name in the request that it is about.
        code: OpenAI's code of the error.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.code = param, code


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(extra="ignore")
    include_usage: StrictBool = False


class GenerationParameters(BaseModel):
    """The generation parameters that both kinds of request share."""

    model_config = ConfigDict(extra="ignore")

    model: StrictStr
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[StrictInt, Field(ge=-1)] = 0
    min_p: Annotated[Number, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[Number, Field(gt=0, le=100)] = 1.0
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] = 0.0
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] = {}
    n: Annotated[StrictInt, Field(ge=1, le=MOST_CHOICES)] = 1
    seed: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StrictStr | list[StrictStr] = []
    stop_token_ids: list[Token] = []
    ignore_eos: StrictBool = False
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    return_token_ids: StrictBool = False

    usual_tokens: ClassVar[int | None] = None
    """The default token limit of an answer, as in OpenAI's API; None: the model's."""

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """The stop texts; none of them is empty."""
        return tuple([self.stop] if isinstance(self.stop, str) else self.stop)

    @property
    def most_tokens(self) -> int | None:
        """The token limit of an answer; None if the request states none."""
        return self.max_tokens

    @property
    def num_top_tokens(self) -> int | None:
        """How many of the most likely tokens to report; None if no log-probabilities are
        requested."""
        raise NotImplementedError


class CompletionRequest(GenerationParameters):
    """A body of /v1/completions."""

    prompt: StrictStr | list[StrictStr] | list[Token] | list[list[Token]]
    max_tokens: Annotated[StrictInt, Field(ge=0)] | None = None
    echo: StrictBool = False
    logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None
    best_of: StrictInt | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt, as text or as token ids."""
        given: Any = self.prompt
        return (
            [given] if isinstance(given, str) or not given or isinstance(given[0], int) else given
        )

    usual_tokens: ClassVar[int | None] = 16

    @property
    def num_top_tokens(self) -> int | None:
        return self.logprobs


class ContentPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: StrictStr


class ChatMessage(BaseModel):
    """A message of a chat."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[ContentPart]

    @property
    def text(self) -> str:
        """The content, its parts concatenated."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)

    def plain(self) -> dict[str, str]:
        """The message in the form that chat templates read, where a developer's text is the system
        text."""
        return {"role": "system" if self.role == "developer" else self.role, "content": self.text}


class ChatRequest(GenerationParameters):
    """A body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    logprobs: StrictBool = False
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] = {}

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_top_tokens(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


Parsed = TypeVar("Parsed", bound=GenerationParameters)


def parse_request(body: object, kind: type[Parsed]) -> Parsed:
    """Parses a request from the JSON of its body. A value of null is treated as if its name were
    absent.

    Raises:
        BadRequestError: one sentence: what, which value, what is allowed.
    """
    if not isinstance(body, Mapping):
        raise BadRequestError("the body must be a JSON object, such as {'model': ...}")
    known = kind.model_fields
    for name, value in body.items():
        unsupported = name in UNSUPPORTED and name not in known
        if unsupported and value not in UNSUPPORTED[name]:
            raise BadRequestError(f"{name!r} is not supported here; leave it out", name)
        if name not in known and name not in IGNORED and name not in UNSUPPORTED:
            hint = did_you_mean(name, known)
            raise BadRequestError(f"a request has no {str(name)[:60]!r}{hint}", str(name)[:60])
    try:
        parsed = kind.model_validate({k: v for k, v in body.items() if v is not None})
    except ValidationError as error:
        raise _first_mistake(error) from None
    if "" in parsed.stop_texts:
        raise BadRequestError("stop must be texts that are not empty", "stop")
    if isinstance(parsed, CompletionRequest) and parsed.best_of not in (None, parsed.n):
        raise BadRequestError("best_of is not supported here; leave it out", "best_of")
    if isinstance(parsed, CompletionRequest) and parsed.max_tokens == 0 and not parsed.echo:
        raise BadRequestError("max_tokens must be at least 1 without echo, got 0", "max_tokens")
    if isinstance(parsed, ChatRequest) and parsed.top_logprobs and not parsed.logprobs:
        raise BadRequestError("top_logprobs needs logprobs to be true", "top_logprobs")
    return parsed


def _first_mistake(error: ValidationError) -> BadRequestError:
    """pydantic's first error as a sentence."""
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"] if not str(part).endswith("]")]
    name = ".".join(part for part in place if part not in ("str", "constrained-str")) or "the body"
    if first["type"] == "missing":
        return BadRequestError(f"{name} is missing", place[0])
    if place[0] in UNIONS:
        return BadRequestError(f"{place[0]} must be {UNIONS[place[0]]}", place[0])
    said = first["msg"][:1].lower() + first["msg"][1:]
    said = said.removeprefix("input ").removeprefix("value error, ")
    shown = repr(first["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return BadRequestError(f"{name} {said}, got {shown}", place[0] if place else None)
