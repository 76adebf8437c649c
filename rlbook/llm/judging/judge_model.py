"""The models that can be asked for a verdict: a server of OpenAI's protocol, or a model in a local
folder.

    for each prompt, unless its answer is known
        ask, with temperature 0           (a server: again after a pause, where it is busy or silent)
        keep the answer

A judge that does not answer costs a run nothing but its verdicts: the answer is None. Only one that
has never answered ends the run, in one sentence, because then its name is probably wrong.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlbook.llm.judging.answer_cache import AnswerCache
from rlbook.llm.serving.complaints import server_complaint

if TYPE_CHECKING:
    from openai import OpenAI

KEY = "RLBOOK_API_KEY"
ROWS = 256  # prompts that a local model reads at a time


class JudgeError(RuntimeError):
    """The judge has never answered; one sentence says why."""


@dataclass(frozen=True)
class JudgeSettings:
    """Which model is asked, and how."""

    server: str | None = None  # its URL, such as http://127.0.0.1:8000/v1
    folder: str | None = None  # or a Hugging Face folder, such as one of `rlbook export`
    model: str | None = None  # of the server; None: the only one that it has
    max_tokens: int = 256
    timeout: float = 60.0  # seconds that an answer of the server may take
    retries: int = 4  # of a request, after a pause that doubles from half a second to eight
    jobs: int = 20  # requests at a time
    cache: str | None = None  # a file of answers that outlives the run


def check_judge(name: str, options: Mapping[str, Any]) -> None:
    """Raises ValueError unless the options of a reward name one judge."""
    given = [key for key in ("server", "folder") if options.get(key) is not None]
    if len(given) != 1:
        raise ValueError(
            f"reward {name!r} needs a judge: server, a URL such as http://127.0.0.1:8000/v1, or"
            f" folder, a Hugging Face folder; got {' and '.join(given) or 'neither'}"
        )
    if options.get("cache") is not None:
        AnswerCache(options["cache"])


@functools.lru_cache(maxsize=8)
def open_judge(settings: JudgeSettings) -> JudgeModel:
    """The judge with these settings; the same object each time.

    Raises:
        ValueError: the folder holds no language model, or the cache cannot be used.
    """
    if settings.folder is not None:
        answer, name = _folder_answers(settings)
        return JudgeModel(answer, name, settings)
    assert settings.server is not None
    server = _ServerAnswers(settings)
    return JudgeModel(server, settings.server, settings, server.find_model)


class JudgeModel:
    """The interface of a judge, which answers prompts.

    Args:
        answer: prompts → their answers, None where there is none.
        name: what else than the prompt an answer depends on.
        settings: see `JudgeSettings`.
        find_model: the name of the model, where the settings do not say it.
    """

    def __init__(
        self,
        answer: Callable[[list[str]], list[str | None]],
        name: str,
        settings: JudgeSettings,
        find_model: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.answer, self.name, self.settings = answer, name, settings
        self.find_model = find_model
        self.cache = AnswerCache(settings.cache)
        self.asked = 0
        """Prompts whose answers were not in the cache."""

    def ask(self, prompts: Sequence[str]) -> list[str | None]:
        """The answer to each of N prompts; equal ones are asked once. None: no answer.

        Raises:
            JudgeError: a server has never answered.
        """
        model = self.settings.model
        if self.settings.cache is not None and model is None:
            model = self.find_model()  # a file outlives the model at an address
        keys = {prompt: self._key(model, prompt) for prompt in prompts}
        known = self.cache.find(keys.values())
        new = [prompt for prompt, key in keys.items() if key not in known]
        self.asked += len(new)
        answers = self.answer(new) if new else []
        fresh = {
            keys[prompt]: answer
            for prompt, answer in zip(new, answers, strict=True)
            if answer is not None
        }
        self.cache.keep(fresh)
        return [known.get(keys[prompt], fresh.get(keys[prompt])) for prompt in prompts]

    def _key(self, model: str | None, prompt: str) -> str:
        content = [self.name, model, self.settings.max_tokens, prompt]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class _ServerAnswers:
    """Queries a server with OpenAI's client, several requests at a time."""

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings, self.model = settings, settings.model
        self.has_answered = False

    def find_model(self) -> str:
        """The name of the model that is asked. Raises JudgeError if the server does not say."""
        if self.model is None:
            openai = _import_openai()
            try:
                with self._client() as client:
                    self._find_model(client)
            except (openai.OpenAIError, ValueError) as error:
                raise self._complaint(error) from None
        return str(self.model)

    def __call__(self, prompts: list[str]) -> list[str | None]:
        openai = _import_openai()
        lost = threading.Event()  # once it cannot be reached, the rest of a round does not wait
        failures: list[Exception] = []

        def ask(client: OpenAI, prompt: str) -> str | None:
            if lost.is_set():
                return None
            try:
                answer = client.chat.completions.create(
                    model=str(self.model),
                    messages=[{"role": "user", "content": prompt}],
                    max_tokens=self.settings.max_tokens,
                    temperature=0.0,
                )
                self.has_answered = True
                return answer.choices[0].message.content or ""
            except (openai.OpenAIError, IndexError) as error:
                failures.append(error)
                if isinstance(error, openai.APIConnectionError) and not isinstance(
                    error, openai.APITimeoutError
                ):
                    lost.set()
                return None

        with (
            self._client() as client,
            ThreadPoolExecutor(self.settings.jobs) as pool,
        ):
            answers: list[str | None] = [None] * len(prompts)
            try:
                self._find_model(client)
                answers = list(pool.map(functools.partial(ask, client), prompts))
            except (openai.OpenAIError, ValueError) as error:
                failures.append(error)
        if failures and not self.has_answered:
            raise self._complaint(failures[0])
        return answers

    def _client(self) -> OpenAI:
        return _import_openai().OpenAI(
            base_url=self.settings.server,
            api_key=os.environ.get(KEY) or "none",
            max_retries=self.settings.retries,
            timeout=self.settings.timeout,
        )

    def _complaint(self, error: Exception) -> JudgeError:
        where = f"the judge at {self.settings.server}"
        return JudgeError(server_complaint(error, where, timeout=self.settings.timeout))

    def _find_model(self, client: Any) -> None:
        if self.model is None:
            names = [model.id for model in client.models.list()]
            if len(names) != 1:
                raise ValueError(f"it has {len(names)} models; name one with the option model")
            self.model = names[0]


def _import_openai() -> Any:
    try:
        import openai
    except ModuleNotFoundError as error:
        raise JudgeError(
            f'a judge on a server needs {error.name}: pip install "rlbook[serve]"'
        ) from None
    return openai


def _folder_answers(
    settings: JudgeSettings,
) -> tuple[Callable[[list[str]], list[str | None]], str]:
    """A folder's model as a function of prompts, and the digest of its content."""
    from rlbook.llm.generation.generate import generate_texts
    from rlbook.llm.models.language_model import LanguageModelPolicy
    from rlbook.llm.models.model_folder import folder_digest
    from rlbook.llm.models.sources import folder_model
    from rlbook.llm.tokenizers.chat_codec import chat_codec
    from rlbook.llm.tokenizers.tokenizer import folder_codec

    folder = str(settings.folder)
    codec, policy = chat_codec(folder_codec(folder)), LanguageModelPolicy(folder_model(folder))

    def encode(prompt: str) -> list[int] | None:
        try:
            ids = codec.encode_prompt([{"role": "user", "content": prompt}])
        except ValueError:  # a character without a token
            return None
        return ids if len(ids) + settings.max_tokens <= codec.limit else None

    def answer(prompts: list[str]) -> list[str | None]:
        answers: list[str | None] = [None] * len(prompts)
        rows = [(place, ids) for place, one in enumerate(prompts) if (ids := encode(one))]
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS]
            texts = generate_texts(
                policy,
                codec,
                [ids for _, ids in part],
                max_new_tokens=settings.max_tokens,
                rng=None,
            )
            for (place, _), text in zip(part, texts, strict=True):
                answers[place] = text
        return answers

    return answer, folder_digest(folder)
