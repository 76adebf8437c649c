"""A server as the sampler of a run: it generates the completions of each round, and the learner's
policy learns from them.

    before a round: the learner's weights → a folder → POST /rlbook/weights
    a round:        all prompts as token ids → POST /v1/completions → token ids and log μ(token)

The server may compute other probabilities than the learner, in bfloat16 or with another engine. So
μ, what the tokens were drawn from, is not π_old, and the update weighs each token by
min(π_old / μ, C): see `rlbook.functional.policy_losses.truncated_importance_weight`.

Token ids go both ways, never texts: to decode and to encode again may give other ids.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv

from rlbook.agent import State
from rlbook.errors import RequestError, TrainingError
from rlbook.llm.environments.token_rows import TokenRules, pad_rows
from rlbook.llm.generation.kv_cache import signature
from rlbook.llm.models.export import merged_model, write_weights
from rlbook.llm.serving.complaints import server_complaint

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Completion

    from rlbook.llm.models.language_model import LanguageModelPolicy

KEY = "RLBOOK_API_KEY"
SEQUENCES = 128  # that one request asks for
RETRIES = 5  # of a request, with a pause that doubles


class RemoteSampler:
    """A server of OpenAI's protocol with /rlbook/weights, on this machine.

    Args:
        url: such as http://127.0.0.1:8000/v1. The API key is in the environment variable
            RLBOOK_API_KEY, if the server has one.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.loaded: list[object] | None = None
        """The signature of the weights on the server."""
        self.fingerprint: str | None = None
        self.model: str | None = None
        self.rules: TokenRules | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of an agent samples by itself: only training asks the server."""

    def bind_env(self, env: VectorEnv) -> RemoteSampler:
        """The sampler for a vector environment of tokens. Raises RequestError for any other."""
        rules = getattr(env.unwrapped, "rules", None)
        if not isinstance(rules, TokenRules):
            raise RequestError("sampler generates completions, so it needs a token environment")
        self.rules = rules
        return self

    def acting_state(self) -> RemoteActingState:
        """The acting state for a round of episodes."""
        assert self.rules is not None
        return RemoteActingState(self, self.rules)

    def check(self) -> None:
        """Raises RequestError unless a server responds that accepts weights."""
        with self._client(retries=0) as client:
            try:
                self._find_model(client)
                client.get(f"{self._root}/rlbook/status", cast_to=object)
            except Exception as error:
                raise RequestError(self._complaint(error)) from None

    def load_weights(self, policy: LanguageModelPolicy) -> None:
        """Sends the policy's weights to the server, if they have changed.

        Raises:
            TrainingError: it does not take them.
        """
        current = signature(policy.model)
        if current == self.loaded:
            return
        with tempfile.TemporaryDirectory(prefix="rlbook-weights-") as folder, self._client() as to:
            write_weights(merged_model(policy.model), folder)
            try:
                answer: Any = to.post(
                    f"{self._root}/rlbook/weights", body={"folder": folder}, cast_to=object
                )
            except Exception as error:
                raise TrainingError(self._complaint(error)) from None
        self.loaded, self.fingerprint = current, answer["fingerprint"]

    def complete(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        seed: int,
        parameters: Mapping[str, Any],
    ) -> list[tuple[list[int], list[float]]]:
        """Token ids and their log-probabilities in nats for each prompt.

        Args:
            prompts: token ids.
            max_tokens: how many tokens each completion may have.
            seed: of all noise.
            parameters: what else the request says, such as temperature and stop texts.

        Raises:
            TrainingError: the server fails, or answers with other weights.
        """
        found: list[tuple[list[int], list[float]]] = []
        with self._client() as client:
            for start in range(0, len(prompts), SEQUENCES):
                part = prompts[start : start + SEQUENCES]
                limit = max(max_tokens[start : start + SEQUENCES])
                try:
                    self._find_model(client)
                    answer = client.completions.create(
                        model=str(self.model),
                        prompt=part,
                        max_tokens=limit,
                        seed=seed + start,
                        logprobs=0,
                        **parameters,
                    )
                except Exception as error:
                    raise TrainingError(self._complaint(error)) from None
                self._check_answer(answer, len(part))
                found += [
                    (choice.model_extra["token_ids"], choice.logprobs.token_logprobs)
                    for choice in answer.choices
                ]
        return found

    def _check_answer(self, answer: Completion, count: int) -> None:
        if answer.system_fingerprint != self.fingerprint:
            raise TrainingError(
                f"sampler: the server at {self.url} uses weights that this run did not send; a "
                "server can sample for one run only"
            )
        for choice in answer.choices:
            tokens = (choice.model_extra or {}).get("token_ids")
            said = None if choice.logprobs is None else choice.logprobs.token_logprobs
            if not tokens or said is None or len(said) != len(tokens):
                raise TrainingError(
                    f"sampler: the server at {self.url} returned no token ids with "
                    "log-probabilities"
                )
        if len(answer.choices) != count:
            raise TrainingError(
                f"sampler: the server at {self.url} returned {len(answer.choices)} answers to "
                f"{count} prompts"
            )

    def _find_model(self, client: OpenAI) -> None:
        """Asks the server for the name of its model."""
        if self.model is None:
            names = [model.id for model in client.models.list()]
            if len(names) != 1:
                raise ValueError(f"it has {len(names)} models, but a sampler must have exactly one")
            self.model = names[0]

    def _client(self, retries: int = RETRIES) -> Any:
        try:
            from openai import OpenAI
        except ModuleNotFoundError as error:
            raise RequestError(
                f'sampler needs {error.name}, which is not installed: pip install "rlbook[serve]"'
            ) from None
        key = os.environ.get(KEY) or "none"
        return OpenAI(base_url=self.url, api_key=key, max_retries=retries, timeout=600.0)

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/v1")

    def _complaint(self, error: Exception) -> str:
        """The server's error in a sentence."""
        import openai

        where = f"sampler: the server at {self.url}"
        if isinstance(error, openai.NotFoundError):
            return (
                f"{where} has no /rlbook/weights, so its weights cannot be updated (rlbook serve "
                "supports this)"
            )
        return server_complaint(error, where)


class RemoteActingState:
    """The acting state of a policy whose completions a server samples: they are requested at the
    first step of a round, and output token by token."""

    remote: ClassVar[bool] = True
    """Whether another program samples: among several training processes, one asks it."""

    def __init__(self, sampler: RemoteSampler, rules: TokenRules) -> None:
        self.sampler, self.rules = sampler, rules
        self.starts: list[int] = []  # [N], tokens of each row's prompt
        self.texts: list[list[int]] = []  # [N], prompt and completion
        self.log_probs: list[list[float]] = []  # [N], of the completion's tokens, in nats

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """See `RemoteSampler`."""

    def act(
        self,
        policy: LanguageModelPolicy,
        obs: Mapping[str, np.ndarray],
        rng: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next token [N] and its log-probability [N] under the distribution that it was sampled
        from; 0 after the end of a completion.

        Raises:
            TrainingError: the server fails.
        """
        assert rng is not None, "the policy computes the most likely tokens itself"
        shown = [
            row[:length].tolist() for row, length in zip(obs["tokens"], obs["length"], strict=True)
        ]
        if not self.starts:
            self.starts = [len(text) for text in shown]
            self.texts, self.log_probs = [list(text) for text in shown], [[] for _ in shown]
        missing = [
            row
            for row, text in enumerate(shown)
            if not self._continues_text(row, text) and not self._has_ended(row, text)
        ]
        if missing:
            self._complete(policy, shown, missing, rng)
        tokens = np.full(len(shown), self.rules.codec.eos, dtype=np.int64)
        log_prob = np.zeros(len(shown), dtype=np.float32)
        for row, text in enumerate(shown):
            if self._continues_text(row, text):
                tokens[row] = self.texts[row][len(text)]
                log_prob[row] = self.log_probs[row][len(text) - self.starts[row]]
        return tokens, log_prob

    def _continues_text(self, row: int, text: list[int]) -> bool:
        """Whether the stored completion continues this text."""
        known = self.texts[row]
        return len(text) < len(known) and known[: len(text)] == text

    def _has_ended(self, row: int, text: list[int]) -> bool:
        """Whether the environment adds nothing more to this text."""
        written = text[self.starts[row] :]
        return bool(written) and (
            written[-1] in self.rules.codec.ends
            or len(written) >= self.rules.max_new_tokens
            or (bool(self.rules.stop) and self.rules.is_stopped(np.array(written)))
        )

    def _complete(
        self,
        policy: LanguageModelPolicy,
        shown: list[list[int]],
        rows: list[int],
        rng: np.random.Generator,
    ) -> None:
        """Asks the server to complete some rows."""
        self.sampler.load_weights(policy)
        rules = self.rules
        asked: dict[str, Any] = {
            "temperature": policy.temperature,
            "top_p": 1.0,
            "stop": list(rules.stop) or None,
            "extra_body": {
                "return_token_ids": True,
                "stop_token_ids": [*rules.codec.ends],
                # a server may have other defaults
                **{"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
            },
        }
        most = [rules.max_new_tokens - (len(shown[row]) - self.starts[row]) for row in rows]
        found = self.sampler.complete(
            [shown[row] for row in rows], most, int(rng.integers(2**31)), asked
        )
        for row, (tokens, log_probs) in zip(rows, found, strict=True):
            before = self.log_probs[row][: len(shown[row]) - self.starts[row]]
            self.texts[row] = [*shown[row], *tokens]
            self.log_probs[row] = [*before, *log_probs]

    def state_dict(self) -> State:
        """The completions of the round in progress."""
        if not self.starts:
            return {}
        counts = [len(text) for text in self.texts]
        log_prob = np.zeros((len(counts), max(map(len, self.log_probs))))
        for row, own in zip(log_prob, self.log_probs, strict=True):
            row[: len(own)] = own
        return {
            "starts": np.array(self.starts),
            "lengths": np.array(counts),
            "texts": pad_rows(self.texts, 0),
            "log_probs": log_prob,
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""
        if not state:
            return
        self.starts, lengths = state["starts"].tolist(), state["lengths"].tolist()
        self.texts = [
            row[:count].tolist() for row, count in zip(state["texts"], lengths, strict=True)
        ]
        self.log_probs = [
            row[: count - start].tolist()
            for row, count, start in zip(state["log_probs"], lengths, self.starts, strict=True)
        ]
