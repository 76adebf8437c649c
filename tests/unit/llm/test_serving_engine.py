"""The engine behind `rlbook serve`: who is generated when, and what an answer depends on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rlbook.checks import machine_memory
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.models.starting import starting_model
from rlbook.llm.serving.answer_text import AnswerText
from rlbook.llm.serving.answers import AnswerFormat
from rlbook.llm.serving.engine import (
    Engine,
    GeneratedSequence,
    Piece,
    QueueFullError,
    SamplingRequest,
    StoppedError,
    TopToken,
    cache_tokens_of,
)
from rlbook.llm.serving.protocol import ChatRequest, parse_request
from rlbook.llm.tasks.addition import AdditionTask
from rlbook.llm.tokenizers.tokenizer import Codec, character_codec

CODEC = character_codec()


@pytest.fixture(scope="module")
def model() -> Any:
    return starting_model(AdditionTask(), None, np.random.default_rng(0))


class Answer:
    """A sequence and what has come of it."""

    def __init__(self, prompt: str, seed: int = 0, codec: Codec = CODEC, **asked: Any) -> None:
        self.pieces: list[Piece] = []
        self.ended = threading.Event()
        self.started = threading.Event()
        given = {"max_new_tokens": 8, "ends": frozenset(codec.ends)} | asked
        parameters = SamplingRequest(**given)
        text = AnswerText(codec.backend, parameters.sampling.stop)
        ids = codec.encode_prompt(prompt)
        self.sequence = GeneratedSequence(ids, parameters, [seed], text, self._receive)

    def _receive(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.started.set()
        if piece.finish is not None:
            self.ended.set()

    def wait(self) -> Answer:
        assert self.ended.wait(60)
        return self

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def finish(self) -> str | None:
        return self.pieces[-1].finish


@contextmanager
def started(model: Any, **options: Any) -> Iterator[Engine]:
    engine = Engine(model, CODEC, **options)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(0.0)


def ask(engine: Engine, *answers: Answer) -> list[Answer]:
    engine.submit([answer.sequence for answer in answers])
    return [answer.wait() for answer in answers]


ENDLESS: dict[str, Any] = {"max_new_tokens": 10**6, "ends": frozenset()}


def test_a_seed_gives_the_same_answer_in_a_batch_of_any_size(model: Any) -> None:
    hot = {"sampling": Sampling(temperature=1.3), "max_new_tokens": 20}

    def answers(size: int) -> list[str]:
        with started(model, max_batch=size) as engine:
            made = [Answer(f"{20 + i}+{90 - i}=", seed=i, **hot) for i in range(24)]
            return [answer.text for answer in ask(engine, *made)]

    alone = answers(1)
    assert answers(7) == alone == answers(24) and len(set(alone)) > 12


@pytest.mark.parametrize("limit", [1, 5])
def test_an_answer_without_an_end_has_as_many_tokens_as_it_may(model: Any, limit: int) -> None:
    with started(model) as engine:
        (answer,) = ask(engine, Answer("1+1=", max_new_tokens=limit, ends=frozenset()))
    assert len(answer.pieces) == limit and answer.finish == "length"


def test_sequences_are_begun_in_their_order_and_leave_their_places_to_others(model: Any) -> None:
    with started(model, max_batch=2) as engine:
        long = Answer("1+1=", **ENDLESS)
        engine.submit([long.sequence])
        assert long.started.wait(60)
        short = [Answer(f"{i}+1=", seed=i) for i in range(10, 20)]
        ask(engine, *short)
        assert engine.status()["running"] == 1 and long.finish is None
        engine.abort([long.sequence])
        assert long.wait().finish == "abort"
        assert engine.status() | {"generated_tokens": 0} == {
            "running": 0,
            "waiting": 0,
            "answered": 10,
            "generated_tokens": 0,
        }


def test_a_waiting_sequence_can_be_aborted(model: Any) -> None:
    with started(model, max_batch=1) as engine:
        first, second, third = Answer("1+1=", **ENDLESS), Answer("1+2="), Answer("1+3=")
        engine.submit([first.sequence, second.sequence, third.sequence])
        assert first.started.wait(60)
        engine.abort([second.sequence])
        assert [piece.finish for piece in second.wait().pieces] == ["abort"]
        engine.abort([first.sequence])
        assert third.wait().finish == "stop"


def test_no_more_wait_than_may_and_a_request_is_taken_whole_or_not_at_all(model: Any) -> None:
    with started(model, max_batch=1, max_waiting=2) as engine:
        long = Answer("1+1=", **ENDLESS)
        engine.submit([long.sequence])
        assert long.started.wait(60)
        engine.submit([Answer("1+2=").sequence])
        with pytest.raises(QueueFullError, match="1 sequences are waiting, the most allowed is 2"):
            engine.submit([Answer("1+3=").sequence, Answer("1+4=").sequence])
        assert engine.status()["waiting"] == 1
        engine.submit([Answer("1+3=").sequence])
        with pytest.raises(QueueFullError):
            engine.submit([Answer("1+5=").sequence])


def test_the_cache_is_not_filled_beyond_its_limit(model: Any) -> None:
    with started(model, max_batch=8, cache_tokens=3 * (5 + 40)) as engine:
        most = queue.SimpleQueue[int]()
        deliver = engine.deliver

        def watch(pieces: list[tuple[GeneratedSequence, Piece]]) -> None:
            most.put(engine.status()["running"])
            deliver(pieces)

        engine.deliver = watch
        made = [Answer("1+1=", seed=i, max_new_tokens=40, ends=frozenset()) for i in range(8)]
        ask(engine, *made)
        seen = [most.get() for _ in range(most.qsize())]
        assert max(seen) == 3
        # a sequence that is too large by itself runs alone
        large = Answer("1+1=", max_new_tokens=200, ends=frozenset())
        assert ask(engine, large)[0].finish == "length"


def test_one_sequence_with_strange_logits_does_not_disturb_the_others(model: Any) -> None:
    spoilt = starting_model(AdditionTask(), None, np.random.default_rng(0))
    with torch.no_grad():
        spoilt.model.embed_tokens.weight[CODEC.backend.token_to_id("j")] = torch.nan
    with started(spoilt) as engine:
        good, bad = ask(engine, Answer("12+34=", seed=3), Answer("j", seed=3))
        assert (bad.finish, bad.text) == ("error", "the model's logits are not finite numbers")
        assert good.finish == "stop"


def test_an_error_in_a_step_is_told_and_the_next_request_is_answered(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlbook.llm.generation.running_batch import CausalBatch

    def fail(self: Any, token: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no memory is left")

    from rlbook.fast.llama_batch import LlamaBatch

    with started(model) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(LlamaBatch, "step", fail)
            patched.setattr(CausalBatch, "step", fail)
            (bad,) = ask(engine, Answer("12+34=", max_new_tokens=5, ends=frozenset()))
            assert bad.finish == "error" and "no memory is left" in bad.pieces[-1].text
        assert ask(engine, Answer("12+34="))[0].finish == "stop"


def test_an_answer_that_ended_before_an_error_in_the_same_step_is_delivered(model: Any) -> None:
    with started(model) as engine:
        first, second = (Answer("1+1=", max_new_tokens=1, ends=frozenset()) for _ in range(2))
        second.sequence.text.add = _raise  # type: ignore[method-assign]
        ask(engine, first, second)
    assert (first.finish, second.finish) == ("length", "error")


def _raise(token: int) -> str:
    raise RuntimeError(f"token {token}")


def test_a_task_runs_between_answers_and_its_error_is_handed_on(model: Any) -> None:
    with started(model, max_batch=2) as engine:
        lengths = 100, 300, 300  # a place is free before the task runs, and the third waits for it
        made = [Answer("1+1=", max_new_tokens=length, ends=frozenset()) for length in lengths]
        engine.submit([answer.sequence for answer in made])
        assert made[0].started.wait(60)
        done = engine.run_between_answers(lambda: [answer.ended.is_set() for answer in made])
        assert done.result(60) == [True, True, False]
        assert made[2].wait().finish == "length"
        with pytest.raises(ZeroDivisionError):
            engine.run_between_answers(lambda: 1 // 0).result(60)


def test_stopping_lets_answers_end_and_refuses_others(model: Any) -> None:
    engine = Engine(model, CODEC, max_batch=1)
    engine.start()
    made = [Answer("1+1=", seed=i) for i in range(4)]
    engine.submit([answer.sequence for answer in made])
    engine.stop(60.0)
    assert [answer.finish for answer in made] == ["stop"] * 4
    with pytest.raises(StoppedError):
        engine.submit([Answer("1+1=").sequence])
    with pytest.raises(StoppedError):
        engine.run_between_answers(lambda: None)


def test_penalties_and_biases_change_the_logits_as_openai_says(model: Any) -> None:
    """logit - frequency · count - presence · [count > 0] + bias, before the softmax."""
    prompt, first = CODEC.encode_prompt("12+34="), CODEC.backend.token_to_id("7")
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, first, first]])).logits[0, -1]
    logits = torch.tensor(logits.tolist())
    logits[first] -= 2 * 0.3 + 0.5
    logits[5] += 1.5
    expected = logits.log_softmax(-1)
    forced = Answer(
        "12+34=",
        max_new_tokens=3,
        ends=frozenset(),
        top=26,
        frequency_penalty=0.3,
        presence_penalty=0.5,
        logit_bias=((5, 1.5),),
    )
    with started(model) as engine:
        choose: Callable[..., Any] = engine._extend
        # whatever is drawn, the first two tokens are "7"
        engine._extend = lambda one, token, *rest: choose(  # type: ignore[method-assign]
            one, first if len(one.tokens) < 2 else token, *rest
        )
        ask(engine, forced)
    found = {one.token: one.log_prob for one in forced.pieces[2].top}
    assert [found[token] for token in range(26)] == near(
        expected.tolist(), dtype="float32", terms=64, size=float(logits.abs().max())
    )


def test_a_repetition_penalty_is_for_the_tokens_of_the_prompt_and_of_the_answer(
    model: Any,
) -> None:
    """A logit above 0 is halved and one below 0 doubled, of "1", "+" and "2" here, and of "7"
    after it was written."""
    prompt, first = CODEC.encode_prompt("1+2"), CODEC.backend.token_to_id("7")
    asked = Answer(
        "1+2",
        max_new_tokens=2,
        ends=frozenset(),
        top=26,
        sampling=Sampling(repetition_penalty=2.0, top_k=0),
        logit_bias=((first, 100.0),),
    )
    with started(model) as engine:
        ask(engine, asked)
    assert asked.pieces[0].token == first
    for place, before in enumerate((prompt, [*prompt, first])):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([before])).logits[0, -1]
        logits = torch.tensor(logits.tolist())
        logits[first] += 100.0
        seen = sorted(set(before))
        logits[seen] = torch.where(logits[seen] > 0, logits[seen] / 2, logits[seen] * 2)
        found = {one.token: one.log_prob for one in asked.pieces[place].top}
        assert [found[token] for token in range(26)] == near(
            logits.log_softmax(-1).tolist(), dtype="float32", terms=64, size=100.0
        )


def test_an_answer_that_is_complete_at_its_limit_has_stopped(model: Any) -> None:
    """A token that ends it is no part of its text; a stop text ends it though no room is left."""
    seven = CODEC.backend.token_to_id("7")
    forced: dict[str, Any] = {"max_new_tokens": 1, "logit_bias": ((seven, 100.0),)}
    with started(model) as engine:
        ended, stopped, full = ask(
            engine,
            Answer("1+1=", ends=frozenset([seven]), **forced),
            Answer("1+1=", sampling=Sampling(stop=("7",)), **forced),
            Answer("1+1=", **forced),
        )
    found = [(answer.text, answer.finish) for answer in (ended, stopped, full)]
    assert found == [("", "stop"), ("", "stop"), ("7", "length")]


def test_the_cache_has_room_for_what_half_the_memory_holds(model: Any) -> None:
    memory = machine_memory()
    # keys and values of 2 layers, 4 heads of 16 float32 numbers
    assert cache_tokens_of(model, 0.5) == memory // 2 // (2 * 2 * 4 * 16 * 4)


@pytest.fixture(scope="module")
def byte_level() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(["<eos>", *alphabet])}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    backend.add_special_tokens(["<eos>"])
    return backend


def test_half_a_character_has_no_bytes_that_could_be_named(byte_level: Any) -> None:
    asked = parse_request(
        {"model": "m", "messages": [{"role": "user", "content": "?"}]}, ChatRequest
    )
    codec = Codec(byte_level, 257, pad=0, bos=None, eos=0)
    half, whole = byte_level.encode("é").ids[0], byte_level.encode("e").ids[0]
    written = AnswerFormat(asked, codec, "m", "f")
    assert written._token(TopToken(half, -1.0)) | {"token": "half"} == {
        "token": "half",
        "logprob": -1.0,
        "bytes": None,
    }
    assert written._token(TopToken(whole, -1.0))["bytes"] == [ord("e")]


def pieces_of(text: AnswerText, ids: list[int]) -> list[str]:
    found = []
    for token in ids:
        found.append(text.add(token))
        if text.is_stopped:
            break
    return [*found, text.finish()]


def test_half_a_character_waits_for_the_rest(byte_level: Any) -> None:
    ids = byte_level.encode("né 💡!").ids
    pieces = pieces_of(AnswerText(byte_level), ids)
    assert pieces == ["n", "", "é", " ", "", "", "", "💡", "!", ""]
    cut = pieces_of(AnswerText(byte_level), ids[:6])
    assert "".join(cut) == byte_level.decode(ids[:6]) == "né \N{REPLACEMENT CHARACTER}"


def test_bytes_that_are_no_character_do_not_end_an_answer() -> None:
    """A decoder of Llama's kind joins neighbouring bytes, so that one too many changes the text
    before it, which `DecodeStream` refuses."""
    ids = {"<unk>": 0, "a": 1, "▁b": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(ids, [], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(  # type: ignore[assignment]
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    euro, half = [3 + byte for byte in "€".encode()], 3 + "€".encode()[0]
    assert backend.decode([*euro, half]) == 4 * "\N{REPLACEMENT CHARACTER}"
    pieces = pieces_of(AnswerText(backend), [1, *euro, half, 2, 1])
    assert pieces == ["a", "", "", "€", "", "\N{REPLACEMENT CHARACTER} b", "a", ""]
    assert pieces_of(AnswerText(backend), [*euro, half])[-1] == "\N{REPLACEMENT CHARACTER}"


def test_special_tokens_are_no_part_of_a_text(byte_level: Any) -> None:
    ids = byte_level.encode("ab").ids
    assert "".join(pieces_of(AnswerText(byte_level), [0, ids[0], 0, ids[1]])) == "ab"


@pytest.mark.parametrize(
    "stop, expected",
    [
        (("def",), ["a", "b", "c", "", "", "", ""]),
        (("cx", "dee"), ["a", "b", "", "c", "", "def", ""]),
        (("bcd", "c"), ["a", "", "b", ""]),
        (("f",), ["a", "b", "c", "d", "e", "", ""]),
        (("efg",), ["a", "b", "c", "d", "", "", "ef"]),
        (("abcx",), ["", "", "", "abcd", "e", "f", ""]),
    ],
)
def test_nothing_of_a_stop_text_is_released(
    byte_level: Any, stop: tuple[str, ...], expected: list[str]
) -> None:
    """A text is cut at the stop text that is complete first, as it is when tokens come one by
    one."""
    text = AnswerText(byte_level, stop)
    assert pieces_of(text, byte_level.encode("abcdef").ids) == expected


def test_a_stop_text_within_one_token_is_found() -> None:
    backend = Tokenizer(models.WordLevel({"ab": 0, "cd": 1, "<unk>": 2}, unk_token="<unk>"))
    backend.decoder = decoders.Fuse()  # type: ignore[assignment]
    text = AnswerText(backend, ("bc",))
    assert pieces_of(text, [0, 1]) == ["a", "", ""] and text.is_stopped


@pytest.mark.parametrize("stop", [("d", "c"), ("c", "d")])
def test_of_two_stop_texts_in_one_token_the_one_that_comes_first_ends_it(
    stop: tuple[str, ...],
) -> None:
    backend = Tokenizer(models.WordLevel({"abcd": 0, "<unk>": 1}, unk_token="<unk>"))
    backend.decoder = decoders.Fuse()  # type: ignore[assignment]
    assert pieces_of(AnswerText(backend, stop), [0]) == ["ab", ""]
