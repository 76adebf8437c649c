"""The engine of the server: one thread that generates for all requests at once.

    repeat
        take waiting sequences into the batch while there is room, and read their prompts
        sample a token for each sequence, with the sequence's own parameters and noise
        remove the sequences that have ended or that nobody waits for any more
        one step of the model for the rest

A sequence's noise is its own: `numpy.random.default_rng` of its seed, one uniform number a token.
The same seed therefore gives the same tokens whatever else is in the batch, up to a number that
lies within rounding of the border between two tokens: a matrix product of another size may round
otherwise in the last bit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlbook.checks import machine_memory
from rlbook.errors import RequestError
from rlbook.llm.generation.running_batch import RunningBatch, running_batch
from rlbook.llm.generation.sampling import Sampling, seen_tokens
from rlbook.llm.models.causal_lm import CACHE, LanguageModel, argument_name
from rlbook.llm.serving.answer_text import AnswerText
from rlbook.llm.tokenizers.tokenizer import Codec
from rlbook.networks.distributions import mode_categorical, sample_categorical
from rlbook.networks.policy import as_array, to_full_precision

PREFILL_TOKENS = 2**14  # columns times rows of the prompts that are read at a time
PROMPT_COLUMNS = 512  # of a prompt whose log-probabilities are asked for, read at a time
LARGE = 5_000_000  # parameters from which on a step may be computed by several cores


class QueueFullError(Exception):
    """More sequences would wait than the server allows; one sentence says how many."""


class StoppedError(Exception):
    """The engine accepts no more sequences."""


class TopToken(NamedTuple):
    """One of the most likely tokens."""

    token: int
    log_prob: float  # nats


class Piece(NamedTuple):
    """The addition of one step to an answer."""

    text: str  # may be empty: half a character, or the beginning of a stop text
    token: int | None = None
    # of the token, under what it was drawn from, in nats; NaN for the first one of a prompt
    log_prob: float = 0.0
    top: tuple[TopToken, ...] = ()
    # None while the answer goes on; else stop, length, abort, or error with a sentence in `text`
    finish: str | None = None


@dataclass(frozen=True)
class SamplingRequest:
    """The sampling settings of a sequence; `sampling.stop` ends it, too."""

    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 16
    ends: frozenset[int] = frozenset()  # tokens that end it
    top: int = 0  # how many of the most likely tokens to report
    scores_prompt: bool = False  # whether to report the tokens of the prompt in the same way
    presence_penalty: float = 0.0  # taken off the logit of each token that was generated
    frequency_penalty: float = 0.0  # the same, times how often
    logit_bias: tuple[tuple[int, float], ...] = ()  # added to a token's logit


class GeneratedSequence:
    """An answer being generated.

    Args:
        prompt: token ids, at least one.
        request: how its tokens are chosen.
        seed: of its noise.
        text: makes text of its tokens.
        receive: called in the engine's thread, by way of `Engine.deliver`.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        request: SamplingRequest,
        seed: int | Sequence[int],
        text: AnswerText,
        receive: Callable[[Piece], None],
    ) -> None:
        self.prompt, self.request, self.text, self.receive = list(prompt), request, text, receive
        self.rng = np.random.default_rng(seed)
        self.tokens: list[int] = []
        self.scored: list[Piece] = []
        """The tokens of the prompt, if they are asked for; complete before the first piece."""
        self.finish: str | None = None
        self.seen: Tensor | None = None
        self.counts: Tensor | None = None

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of prompt and answer together."""
        return len(self.prompt) + self.request.max_new_tokens


class Engine:
    """Generates for many requests in one batch.

    Args:
        model: a causal language model of transformers; in its evaluation mode.
        codec: its tokenizer.
        max_batch: sequences that are generated at a time.
        max_waiting: sequences that may wait for that.
        cache_tokens: rows times columns of the KV cache at most.
    """

    def __init__(
        self,
        model: LanguageModel,
        codec: Codec,
        *,
        max_batch: int = 32,
        max_waiting: int = 256,
        cache_tokens: int = 2**62,
    ) -> None:
        self.model, self.codec = model, codec
        self.max_batch, self.max_waiting, self.cache_tokens = max_batch, max_waiting, cache_tokens
        self.deliver: Callable[[list[tuple[GeneratedSequence, Piece]]], None] = deliver_at_once
        self.answered = self.generated = 0
        """The numbers of sequences that have ended by themselves, and of tokens."""
        self._changed = threading.Condition()
        self._waiting: deque[GeneratedSequence] = deque()
        self._running: list[GeneratedSequence] = []
        self._aborted: set[GeneratedSequence] = set()
        self._tasks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closed = self._hurried = False
        self._thread = threading.Thread(target=self._run_loop, name="engine", daemon=True)

    # ---- called from other threads

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, sequences: Sequence[GeneratedSequence]) -> None:
        """Queues sequences, all of them or none.

        Raises:
            QueueFullError: there is no room for all.
            StoppedError: the server is shutting down.
        """
        with self._changed:
            if self._closed:
                raise StoppedError("the server is shutting down")
            idle = max(0, self.max_batch - len(self._running))
            if len(self._waiting) + len(sequences) > self.max_waiting + idle:
                raise QueueFullError(
                    f"{len(self._waiting)} sequences are waiting, the most allowed is "
                    f"{self.max_waiting}; try again later"
                )
            self._waiting += sequences
            self._changed.notify()

    def abort(self, sequences: Iterable[GeneratedSequence]) -> None:
        """Drops sequences that are no longer wanted; those that have ended are not changed."""
        with self._changed:
            self._aborted |= {one for one in sequences if one.finish is None}
            self._changed.notify()

    def run_between_answers(self, task: Callable[[], Any]) -> Future[Any]:
        """Runs a function in the engine's thread once the running sequences have ended; the waiting
        ones are generated after it. It is for changing the weights, so that no answer mixes two
        models."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise StoppedError("the server is shutting down")
            self._tasks.append((task, future))
            self._changed.notify()
        return future

    def stop(self, grace: float) -> None:
        """Accepts no more sequences, lets the present ones finish for `grace` seconds, aborts the
        rest, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(grace)
        with self._changed:
            self._hurried = True
            self._changed.notify()
        self._thread.join()

    def status(self) -> dict[str, int]:
        """Counts: running and waiting sequences, answered ones, and generated tokens."""
        with self._changed:
            return {
                "running": len(self._running),
                "waiting": len(self._waiting),
                "answered": self.answered,
                "generated_tokens": self.generated,
            }

    # ---- the thread

    def _run_loop(self) -> None:
        if sum(parameter.numel() for parameter in self.model.parameters()) <= LARGE:
            torch.set_num_threads(1)  # of this thread; else as OMP_NUM_THREADS says
        batch, logits = running_batch(self.model), torch.zeros(0)
        while True:
            with self._changed:
                while not (
                    self._waiting or self._running or self._aborted or self._tasks or self._closed
                ):
                    self._changed.wait()
                if self._hurried:
                    self._aborted |= {*self._waiting, *self._running}
                gone = self._drop_aborted_sequences()
                new = [] if self._tasks else self._admit()
                done = self._closed and not (self._running or new or self._waiting)
            pieces = [(one, Piece("", finish="abort")) for one in gone]
            ended = [row for row, one in enumerate(self._running) if one.finish is not None]
            logits = self._remove(batch, logits, ended)
            if self._tasks and not self._running:
                self._run_tasks()
                batch, logits = running_batch(self.model), torch.zeros(0)
            try:
                pieces += self._score_prompts(new)
                logits = self._read(batch, logits, [one for one in new if one.finish is None])
                pieces += self._sample(logits) if self._running else ()
                ended = [row for row, one in enumerate(self._running) if one.finish is not None]
                logits = self._remove(batch, logits, ended)
                if self._running:
                    token = torch.tensor([one.tokens[-1] for one in self._running])
                    logits = batch.step(token)
            except (
                Exception
            ) as error:  # such as no memory: those who wait are told, others may come
                pieces += self._fail(error, new)
                batch, logits = running_batch(self.model), torch.zeros(0)
            if pieces:
                self.deliver(pieces)
            if done and not self._tasks:
                return

    def _drop_aborted_sequences(self) -> list[GeneratedSequence]:
        """Marks aborted sequences as ended; those that wait leave the queue. Returns them."""
        gone = [one for one in (*self._waiting, *self._running) if one in self._aborted]
        for one in gone:
            one.finish = "abort"
        self._waiting = deque(one for one in self._waiting if one.finish is None)
        self._aborted.clear()
        return gone

    def _admit(self) -> list[GeneratedSequence]:
        """Takes sequences from the queue, in order, as long as there is room."""
        new: list[GeneratedSequence] = []
        there = [one for one in self._running if one.finish is None]
        longest = max((one.max_length for one in there), default=0)
        widest = 0
        while self._waiting:
            candidate = self._waiting[0]
            count, longest = len(there) + len(new) + 1, max(longest, candidate.max_length)
            widest = max(widest, len(candidate.prompt))
            first = count == 1
            if count > self.max_batch or (longest * count > self.cache_tokens and not first):
                break
            if new and widest * (len(new) + 1) > PREFILL_TOKENS:
                break
            new.append(self._waiting.popleft())
        return new

    def _read(self, batch: RunningBatch, logits: Tensor, new: list[GeneratedSequence]) -> Tensor:
        """Reads the prompts of new sequences, which join the batch. Returns all rows' logits."""
        if not new:
            return logits
        read = batch.add([one.prompt for one in new])
        vocabulary = read.shape[-1]
        for one in new:
            if one.request.sampling.repetition_penalty != 1.0:
                tokens = np.array([one.prompt])
                one.seen = seen_tokens(tokens, np.array([tokens.shape[1]]), vocabulary)[0]
            if one.request.presence_penalty or one.request.frequency_penalty:
                one.counts = torch.zeros(vocabulary)
        logits = torch.cat([logits, read]) if self._running else read
        with self._changed:
            self._running += new
        return logits

    @torch.inference_mode()
    def _score_prompts(self, new: list[GeneratedSequence]) -> list[tuple[GeneratedSequence, Piece]]:
        """Reads the prompts whose log-probabilities are requested, and ends the sequences that
        request nothing else."""
        for one in new:
            if one.request.scores_prompt:
                one.scored += _prompt_pieces(self.model, one.prompt, one.request.top)
        ended = [one for one in new if not one.request.max_new_tokens]
        for one in ended:
            one.finish = "length"
        self.answered += len(ended)
        return [(one, Piece("", finish="length")) for one in ended]

    def _remove(self, batch: RunningBatch, logits: Tensor, rows: list[int]) -> Tensor:
        """Removes ended sequences from the batch. Returns the logits of the others."""
        if not rows:
            return logits
        order = batch.remove(rows)
        with self._changed:
            self._running = [self._running[row] for row in order]
        return logits[order]

    def _run_tasks(self) -> None:
        while self._tasks:
            task, future = self._tasks.popleft()
            try:
                future.set_result(task())
            except Exception as error:
                future.set_exception(error)

    def _fail(
        self, error: Exception, new: list[GeneratedSequence]
    ) -> list[tuple[GeneratedSequence, Piece]]:
        """Ends every sequence in the batch after an error."""
        said = f"the answer cannot be generated: {str(error)[:200] or type(error).__name__}"
        lost = list(dict.fromkeys(one for one in (*self._running, *new) if one.finish is None))
        for one in lost:
            one.finish = "error"
        with self._changed:
            self._running = []
        return [(one, Piece(said, finish="error")) for one in lost]

    @torch.inference_mode()
    def _sample(self, logits: Tensor) -> Iterator[tuple[GeneratedSequence, Piece]]:
        """One token for each sequence, from logits [N, V]; what was yielded before an error
        counts."""
        logits = to_full_precision(logits.cpu())
        strange = set((~logits.isfinite().all(-1)).nonzero()[:, 0].tolist())
        if strange:
            logits[list(strange)] = 0.0
        alike: dict[Sampling, list[int]] = {}
        for row, one in enumerate(self._running):
            alike.setdefault(one.request.sampling, []).append(row)
        for sampling, rows in alike.items():
            scores = self._scores(logits, sampling, rows)
            if sampling.temperature == 0.0:
                tokens, log_probs = mode_categorical(scores)
            else:
                uniform = np.array([self._running[row].rng.random() for row in rows])
                tokens, log_probs = sample_categorical(scores, uniform)
            for place, row in enumerate(rows):
                one = self._running[row]
                if row in strange:
                    one.finish = "error"
                    said = "the model's logits are not finite numbers"
                    yield one, Piece(said, finish="error")
                    continue
                top = _top_tokens(scores[place], one.request.top)
                yield one, self._extend(one, int(tokens[place]), log_probs[place], top)

    def _scores(self, logits: Tensor, sampling: Sampling, rows: list[int]) -> np.ndarray:
        """Modified logits of rows with the same sampling settings, [n, V]."""
        own, members = logits[rows], [self._running[row] for row in rows]
        for place, one in enumerate(members):
            for token, bias in one.request.logit_bias:
                own[place, token] += bias
            if one.counts is not None:
                own[place] -= one.request.frequency_penalty * one.counts
                own[place] -= one.request.presence_penalty * (one.counts > 0)
        seen = [one.seen for one in members if one.seen is not None]
        return as_array(sampling.scores(own, torch.stack(seen) if seen else None))

    def _extend(
        self, one: GeneratedSequence, token: int, log_prob: float, top: tuple[TopToken, ...]
    ) -> Piece:
        """Appends a token to a sequence, and checks whether that ends it."""
        self.generated += 1
        one.tokens.append(token)
        if one.seen is not None:
            one.seen[token] = True
        if one.counts is not None:
            one.counts[token] += 1
        if token in one.request.ends:
            text, finish = "", "stop"
        else:
            text = one.text.add(token)
            full = len(one.tokens) >= one.request.max_new_tokens
            finish = "stop" if one.text.is_stopped else "length" if full else None
        if finish is not None:
            text += one.text.finish()
            one.finish = finish
            self.answered += 1
        return Piece(text, token, float(log_prob), top, finish)


def deliver_at_once(pieces: list[tuple[GeneratedSequence, Piece]]) -> None:
    """Passes each piece to its sequence's receiver."""
    for one, piece in pieces:
        one.receive(piece)


def _prompt_pieces(model: LanguageModel, prompt: Sequence[int], top: int) -> list[Piece]:
    """The tokens of a prompt, each with its log-probability after those before it, at temperature
    1. The prompt is read in parts, because the logits of all its positions take more memory than
    its cache."""
    from transformers import DynamicCache

    cache: Any = {argument_name(model, *CACHE): DynamicCache()}
    device, size = next(model.parameters()).device, PROMPT_COLUMNS
    pieces = [Piece("", prompt[0], float("nan"))]
    for start in range(0, len(prompt) - 1, size):
        part = torch.tensor([prompt[start : min(start + size, len(prompt) - 1)]], device=device)
        read: Any = model(input_ids=part, use_cache=True, **cache)
        scores = as_array(to_full_precision(read.logits[0]))
        for row, token in zip(scores, prompt[start + 1 :], strict=False):
            shifted = row - row.max()
            whole = np.log(np.exp(shifted, dtype=np.float64).sum())
            pieces.append(Piece("", token, float(shifted[token] - whole), _top_tokens(row, top)))
    return pieces


def _top_tokens(scores: np.ndarray, count: int) -> tuple[TopToken, ...]:
    """The `count` most likely tokens of scores [V], the most likely first."""
    if not count:
        return ()
    shifted = scores - scores.max()
    log_prob = shifted - np.log(np.exp(shifted, dtype=np.float64).sum())
    best = np.argsort(-log_prob, kind="stable")[:count]
    return tuple(TopToken(int(token), float(log_prob[token])) for token in best)


def cache_tokens_of(model: LanguageModel, share: float = 0.5) -> int:
    """The number of tokens that the KV cache may hold in a fraction of this machine's memory.

    Raises:
        RequestError: there is no room for one.
    """
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weight = next(model.parameters())
    size = 2 * config.num_hidden_layers * heads * width * weight.element_size()
    room = machine_memory()
    if weight.is_cuda:
        room = torch.cuda.mem_get_info(weight.device)[0]
    count = int(room * share) // size
    if count < 1:
        raise RequestError(
            f"a token of the KV cache needs {size:,} bytes, but only {room:,} are available"
        )
    return count
