"""`rlbook serve` as its clients meet it: the official `openai` client over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import torch
from closeness import near, widths
from served import RunningServer, served, served_by_process, write_addition_folder

from rlbook.cli import main as cli
from rlbook.cli.language_models.serve import read_key
from rlbook.llm.generation.generate import write
from rlbook.llm.generation.sampling import Sampling
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.serving.answers import AnswerFormat, ChoiceState
from rlbook.llm.serving.engine import Piece, TopToken
from rlbook.llm.serving.protocol import ChatRequest, CompletionRequest, parse_request
from rlbook.llm.tokenizers.tokenizer import folder_codec

PROMPTS = [f"{a}+{b}=" for a in range(20, 84, 4) for b in (17, 35, 52, 78)]  # 64
LONG: dict[str, Any] = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_addition_folder(tmp_path_factory.mktemp("models") / "sums")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with served(folder) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    return server.client()


@pytest.fixture(scope="module")
def policy(folder: Path) -> LanguageModelPolicy:
    return LanguageModelPolicy(folder_model(folder))


def status(server: RunningServer) -> dict[str, Any]:
    with urllib.request.urlopen(server.root + "/rlbook/status", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def wait_for(server: RunningServer, running: int) -> dict[str, Any]:
    """The status once so many sequences run."""
    for _ in range(600):
        found = status(server)
        if found["running"] == running and not found["waiting"]:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{running} were to run: {found}")


def test_the_model_is_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["sums"]
    assert client.models.retrieve("sums").object == "model"


def test_greedy_answers_are_those_of_the_library(
    client: Any, folder: Path, policy: LanguageModelPolicy
) -> None:
    codec = folder_codec(folder)
    expected = write(
        policy, codec, PROMPTS, sampling=Sampling(temperature=0.0), max_new_tokens=8, seed=None
    )
    found = client.completions.create(model="sums", prompt=PROMPTS, temperature=0, max_tokens=8)
    assert [choice.text for choice in found.choices] == expected
    assert [choice.index for choice in found.choices] == list(range(64))
    assert found.id.startswith("cmpl-") and found.object == "text_completion"
    chat = client.chat.completions.create(
        model="sums", messages=[{"role": "user", "content": PROMPTS[5]}], temperature=0
    )
    assert chat.choices[0].message.content == expected[5]
    assert chat.choices[0].message.role == "assistant" and chat.id.startswith("chatcmpl-")


def test_usage_counts_the_tokens_of_prompts_once_and_of_all_answers(client: Any) -> None:
    found = client.completions.create(
        model="sums",
        prompt=["12+34=", "1+2="],
        n=3,
        max_tokens=4,
        seed=1,
        extra_body={"return_token_ids": True},
    )
    extra = [choice.model_extra for choice in found.choices]
    assert [one["prompt_token_ids"] for one in extra] == [[1, 5, 6, 14, 7, 8, 15]] * 3 + [
        [1, 5, 14, 6, 15]
    ] * 3
    assert found.usage.prompt_tokens == 7 + 5
    assert found.usage.completion_tokens == sum(len(one["token_ids"]) for one in extra)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    for choice, one in zip(found.choices, extra, strict=True):
        ended = one["token_ids"][-1] == 2
        assert choice.finish_reason == ("stop" if ended else "length")
        assert ended or len(one["token_ids"]) == 4


def test_an_answer_has_sixteen_tokens_where_no_limit_is_given_and_ends_with_eos(
    client: Any,
) -> None:
    """As in OpenAI's API; `stop_token_ids` end it as well as EOS, not in its place."""
    ask: dict[str, Any] = {"model": "sums", "prompt": "1+2=", "seed": 0}
    endless = client.completions.create(**ask, extra_body={"ignore_eos": True})
    assert endless.usage.completion_tokens == 16 and endless.choices[0].finish_reason == "length"
    extra = {"stop_token_ids": [5], "return_token_ids": True}
    ended = client.completions.create(**ask, logit_bias={"2": 100}, extra_body=extra).choices[0]
    assert (ended.model_extra["token_ids"], ended.finish_reason) == ([2], "stop")


def test_the_newer_names_of_openais_protocol_are_read() -> None:
    body = {"model": "sums", "messages": [{"role": "developer", "content": "Be brief."}]}
    asked = parse_request(body | {"max_tokens": 5, "max_completion_tokens": 2}, ChatRequest)
    assert asked.most_tokens == 2
    assert asked.messages[0].plain() == {"role": "system", "content": "Be brief."}
    assert parse_request(body | {"max_tokens": 5}, ChatRequest).most_tokens == 5


def test_an_empty_key_in_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBOOK_API_KEY", "")
    assert read_key(None) is None
    monkeypatch.setenv("RLBOOK_API_KEY", "0123456789abcdef")
    assert read_key(None) == "0123456789abcdef"


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_what_the_tokens_were_drawn_from(
    client: Any, policy: LanguageModelPolicy, temperature: float
) -> None:
    found = client.completions.create(
        model="sums",
        prompt=PROMPTS[0],
        temperature=temperature,
        seed=3,
        logprobs=5,
        extra_body={"return_token_ids": True},
    ).choices[0]
    prompt, tokens = (found.model_extra[name] for name in ("prompt_token_ids", "token_ids"))
    with torch.inference_mode():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    expected = (logits[len(prompt) - 1 : -1] / temperature).log_softmax(-1)
    close = {"dtype": "float32", "terms": widths(policy.model), "size": float(logits.abs().max())}
    assert found.logprobs.token_logprobs == near(
        expected[torch.arange(len(tokens)), tokens].tolist(), **close
    )
    for named, row in zip(found.logprobs.top_logprobs, expected, strict=True):
        assert list(named.values()) == near(row.topk(5).values.tolist(), **close)


def test_tokens_with_one_text_are_told_apart() -> None:
    """Tokens 7 and 8 are parts of characters; the more likely has their text as its name."""
    codec: Any = SimpleNamespace(bos=1, pad=0, ends=(2,), decode=lambda ids: "\ufffda"[ids[0] < 7])
    asked = parse_request({"model": "one", "prompt": "a", "logprobs": 3}, CompletionRequest)
    likely = tuple(TopToken(token, -place) for place, token in enumerate((7, 8, 5), 1))
    state = ChoiceState([5], pieces=[Piece("", 7, -1.0, likely, "stop")])
    (choice,) = AnswerFormat(asked, codec, "one", "").complete([state])["choices"]
    found = choice["logprobs"]["top_logprobs"]
    assert found == [{"\ufffd": -1.0, "token_id:8": -2.0, "a": -3.0}]


@pytest.mark.parametrize("length", [None, 600])
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_an_echo_scores_the_prompt_too(
    client: Any, policy: LanguageModelPolicy, max_tokens: int, length: int | None
) -> None:
    """Each token of the prompt has its log-probability after those before it, and the first has
    none. A long prompt is read in parts, which changes nothing."""
    prompt = PROMPTS[0] if length is None else [1, *([5, 6, 14, 7, 8, 15] * 100)[: length - 1]]
    asked = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": max_tokens}
    extra = {"return_token_ids": True}
    found = client.completions.create(
        model="sums", temperature=0, **asked, extra_body=extra
    ).choices[0]
    ids = [*found.model_extra["prompt_token_ids"], *found.model_extra["token_ids"]]
    said = found.logprobs
    assert len(ids) == len(said.tokens) == len(said.token_logprobs) == len(said.top_logprobs)
    assert said.token_logprobs[0] is None and said.top_logprobs[0] is None
    with torch.inference_mode():
        logits = policy.model(input_ids=torch.tensor([ids])).logits[0]
    expected = logits[:-1].log_softmax(-1)
    close = {"dtype": "float32", "terms": widths(policy.model), "size": float(logits.abs().max())}
    assert said.token_logprobs[1:] == near(
        expected[torch.arange(len(ids) - 1), ids[1:]].tolist(), **close
    )
    for named, row in zip(said.top_logprobs[1:], expected, strict=True):
        assert list(named.values()) == near(row.topk(2).values.tolist(), **close)
    places = list(zip(ids, said.tokens, said.text_offset, strict=True))
    assert found.text == "".join(name for token, name, _ in places if token > 2)
    assert all(found.text[at:].startswith(name) for token, name, at in places if token > 2)
    assert places[0][2] == places[1][2] == 0  # <bos> is no part of the text
    if length is None:
        assert found.text.startswith(PROMPTS[0])
    assert found.finish_reason == ("stop" if ids[-1] == 2 else "length")
    stream = client.completions.create(
        model="sums", temperature=0, stream=True, **asked, extra_body=extra
    )
    chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(chunk.text for chunk in chunks) == found.text
    parts = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    assert [one for part in parts for one in part.token_logprobs] == said.token_logprobs
    assert [one for part in parts for one in part.text_offset] == said.text_offset


def test_an_echo_without_log_probabilities_is_the_prompts_text(client: Any) -> None:
    found = client.completions.create(
        model="sums", prompt=["12+34=", "11+35="], n=2, echo=True, temperature=0, max_tokens=8
    )
    assert [one.text for one in found.choices] == ["12+34=46"] * 2 + ["11+35=46"] * 2
    assert all(one.logprobs is None for one in found.choices)


def test_lm_evals_client_scores_choices_by_the_echo(
    server: RunningServer, folder: Path, policy: LanguageModelPolicy
) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    api = LocalCompletionsAPI(
        base_url=f"{server.url}/completions",
        model="sums",
        tokenizer=str(folder),
        tokenizer_backend="huggingface",
        add_bos_token=True,
    )
    pairs = [("12+34=", "46"), ("12+34=", "47")]
    asked = [
        Instance("loglikelihood", {}, arguments, place) for place, arguments in enumerate(pairs)
    ]
    found = api.loglikelihood(asked, disable_tqdm=True)
    codec = folder_codec(folder)
    for (prompt, text), (log_prob, greedy) in zip(pairs, found, strict=True):
        first, more = codec.encode_prompt(prompt), codec.encode_answer(text)[:-1]
        ids = torch.tensor([[*first, *more]])
        with torch.inference_mode():
            logits = policy.model(input_ids=ids).logits[0]
        rows = logits.log_softmax(-1)[len(first) - 1 : -1]
        expected = float(rows[torch.arange(len(more)), more].sum())
        terms = len(more) * widths(policy.model)
        size = float(logits.abs().max())
        assert log_prob == near(expected, dtype="float32", terms=terms, size=size)
        assert greedy == (text == "46")


def test_a_chats_log_probabilities_name_tokens_and_bytes(client: Any) -> None:
    found = client.chat.completions.create(
        model="sums",
        messages=[{"role": "user", "content": "12+34="}],
        seed=1,
        logprobs=True,
        top_logprobs=2,
    ).choices[0]
    content = found.logprobs.content
    assert "".join(one.token for one in content).removesuffix("<eos>") == found.message.content
    assert all(bytes(one.bytes).decode() == one.token for one in content)
    assert all(len(one.top_logprobs) == 2 for one in content)


@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_a_stream_says_what_the_whole_answer_says(client: Any, kind: str) -> None:
    ask: dict[str, Any] = {"model": "sums", "n": 4, "seed": 5, "max_tokens": 6}
    if kind == "chat":
        create = client.chat.completions.create
        ask["messages"] = [{"role": "user", "content": "55+27="}]
    else:
        create = client.completions.create
        ask["prompt"] = "55+27="
    whole = create(**ask)
    texts, reasons, usage = [""] * 4, [None] * 4, None
    for chunk in create(**ask, stream=True, stream_options={"include_usage": True}):
        assert chunk.usage is None or not chunk.choices
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text = choice.delta.content if kind == "chat" else choice.text
            texts[choice.index] += text or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    expected = [c.message.content if kind == "chat" else c.text for c in whole.choices]
    assert texts == expected and len(set(texts)) > 1
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_a_stop_text_ends_an_answer_and_is_no_part_of_it(client: Any) -> None:
    ask = {"model": "sums", "prompt": "12+34=", "temperature": 0, "max_tokens": 40}
    ask["logit_bias"] = {str(token): -100 for token in range(4)}  # PAD, BOS, EOS and UNKNOWN
    whole = client.completions.create(**ask).choices[0]
    assert whole.finish_reason == "length" and len(whole.text) > 6
    stop = whole.text[3:5]
    expected = whole.text[: whole.text.index(stop)]
    found = client.completions.create(**ask, stop=[stop, "never"]).choices[0]
    assert (found.text, found.finish_reason) == (expected, "stop")
    pieces = [
        chunk.choices[0].text for chunk in client.completions.create(**ask, stop=stop, stream=True)
    ]
    assert "".join(pieces) == expected


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_answer_whatever_else_is_generated(
    server: RunningServer, client: Any
) -> None:
    ask: dict[str, Any] = {"model": "sums", "n": 2, "max_tokens": 12, "temperature": 1.5}
    alone = [client.completions.create(prompt=p, seed=9, **ask) for p in PROMPTS[:8]]

    async def together() -> list[Any]:
        async with server.asynchronous() as many:
            others = [
                many.completions.create(prompt=p, seed=i, **ask)
                for i, p in enumerate(PROMPTS[8:40])
            ]
            own = [many.completions.create(prompt=p, seed=9, **ask) for p in PROMPTS[:8]]
            return (await asyncio.gather(*others, *own))[-8:]

    def texts(found: list[Any]) -> list[str]:
        return [choice.text for one in found for choice in one.choices]

    assert texts(asyncio.run(together())) == texts(alone)
    other = [client.completions.create(prompt=p, seed=10, **ask) for p in PROMPTS[:8]]
    assert texts(other) != texts(alone)
    unseeded = [client.completions.create(prompt=PROMPTS[0], **ask) for _ in range(6)]
    assert len(set(texts(unseeded))) > 1


@pytest.mark.thorough
def test_sixty_four_clients_lose_no_request(server: RunningServer) -> None:
    before = status(server)

    async def ask(client: Any, number: int) -> list[str]:
        found = []
        for round_ in range(3):
            answer = await client.chat.completions.create(
                model="sums",
                messages=[{"role": "user", "content": PROMPTS[(number + round_) % 64]}],
                temperature=0,
            )
            found.append(answer.choices[0].message.content)
        return found

    async def everybody() -> list[list[str]]:
        async with server.asynchronous() as client:  # one connection each
            return await asyncio.gather(*(ask(client, number) for number in range(64)))

    found = asyncio.run(everybody())
    for number in range(64):
        assert found[number][0] == found[number - 1][1] == found[number - 2][2]
    after = status(server)
    assert after["answered"] - before["answered"] == 64 * 3
    assert after["running"] == after["waiting"] == 0


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_nobody_waits_for_is_no_longer_generated(
    server: RunningServer, stream: bool
) -> None:
    before = wait_for(server, 0)
    body = {"model": "sums", "prompt": "1+2=", "stream": stream, "n": 3, "max_tokens": 4000}
    connection = http.client.HTTPConnection(server.root.removeprefix("http://"))
    connection.request(
        "POST",
        "/v1/completions",
        json.dumps(body | {"ignore_eos": True}),
        {"Content-Type": "application/json"},
    )
    wait_for(server, 3)
    connection.close()
    after = wait_for(server, 0)
    assert after["answered"] == before["answered"]
    assert after["generated_tokens"] - before["generated_tokens"] < 3 * 4000


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong name": (
        {"temprature": 1},
        "a request has no 'temprature'; did you mean 'temperature'?",
    ),
    "a text for a number": ({"temperature": "hot"}, "temperature should be a valid number"),
    "out of range": ({"top_p": 0}, "top_p should be greater than 0, got 0"),
    "too long": ({"max_tokens": 5000}, "the prompt has 7 tokens and the answer up to 5000"),
    "nothing to do": ({"max_tokens": 0}, "max_tokens must be at least 1 without echo, got 0"),
    "a suffix": ({"suffix": "."}, "'suffix' is not supported here"),
    "tools": ({"tools": [{"type": "function"}]}, "'tools' is not supported here"),
    "an unknown token": ({"prompt": [3, 99]}, "prompt must be token ids below 26, got 99"),
    "no prompt": ({"prompt": []}, "a prompt must have at least one token"),
    "a prompt of numbers": ({"prompt": 7}, "prompt must be a text, a list of texts"),
    "an empty stop text": ({"stop": [""]}, "stop must be texts that are not empty"),
    "another model": ({"model": "gpt-4"}, "there is no model 'gpt-4'; this server has 'sums'"),
    "a bias of nothing": ({"logit_bias": {"a": 1}}, "logit_bias must name token ids below 26"),
    "too many answers": ({"prompt": ["1="] * 100, "n": 100}, "a request may ask for 288 answers"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_answered_with_one_sentence(client: Any, case: str) -> None:
    changes, sentence = BAD[case]
    body = {"model": "sums", "prompt": "12+34="} | changes
    with pytest.raises(openai.APIStatusError) as error:
        client.post("/completions", body=body, cast_to=object)
    assert error.value.status_code == (404 if case == "another model" else 400)
    said = error.value.body
    assert isinstance(said, dict) and set(said) == {"message", "type", "param", "code"}
    assert said["message"].startswith(sentence) and "\n" not in said["message"]
    assert said["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body, headers, code, said",
    [
        ("{", {}, 400, "the body must be JSON"),
        ("[1]", {}, 400, "the body must be a JSON object"),
        ("[" * 100_000, {}, 400, "the body must be JSON"),
        ("{}", {"Content-Type": "text/plain"}, 400, "the content type must be application/json"),
        ("{}", {"Host": "evil.example:80"}, 400, "the host must be one of localhost"),
        ("{}", {}, 400, "model is missing"),
        ("{}", {"Host": "[::1]"}, 400, "model is missing"),  # its colons begin no port
        ("1" * (2**24 + 1), {}, 413, "a body may have 16,777,216 bytes"),
    ],
)
def test_what_no_client_sends_is_answered_too(
    server: RunningServer, body: str, headers: dict[str, str], code: int, said: str
) -> None:
    connection = http.client.HTTPConnection(server.root.removeprefix("http://"))
    given = {"Content-Type": "application/json"} | headers
    connection.request("POST", "/v1/completions", body, given)
    answer = connection.getresponse()
    error = json.load(answer)["error"]
    connection.close()
    assert (answer.status, error["message"][: len(said)]) == (code, said)


def test_an_unknown_path_is_an_error_of_the_same_shape(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no POST /v1/embeddings"):
        client.embeddings.create(model="sums", input="1")


def test_a_full_queue_refuses_and_goes_on(folder: Path) -> None:
    with served(folder, max_batch=1, max_waiting=1) as small:
        client = small.client()
        first = client.completions.create(model="sums", prompt="1+2=", stream=True, **LONG)
        next(iter(first))
        second = client.completions.create(model="sums", prompt="1+2=", stream=True, **LONG)
        with pytest.raises(openai.RateLimitError) as error:
            client.completions.create(model="sums", prompt="1+2=")
        assert error.value.code == "queue_full"
        assert error.value.response.headers["retry-after"] == "1"
        first.close()
        next(iter(second))
        second.close()
        assert client.completions.create(model="sums", prompt="1+2=").choices[0].finish_reason


KEY = "0123456789abcdef"


def test_only_the_key_opens_a_server_for_others(folder: Path) -> None:
    with served(folder, host="0.0.0.0", key=KEY) as guarded:
        for wrong in ("none", KEY[:-1] + "g"):
            with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
                guarded.client(api_key=wrong).models.list()
        for path in ("/completions", "/chat/completions", "/../rlbook/weights"):
            with pytest.raises(openai.AuthenticationError):
                guarded.client().post(path, body={}, cast_to=object)
        client = guarded.client(api_key=KEY)
        assert client.completions.create(model="sums", prompt="1+2=", seed=1).choices


def test_no_server_starts_that_others_could_use_without_a_key(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = tmp_path / "key"
    key.write_text("short\n")
    words = ["serve", str(folder), "--port", "0", "--host", "0.0.0.0"]
    monkeypatch.delenv("RLBOOK_API_KEY", raising=False)
    assert cli.main(words) == 2
    assert "which needs an API key" in capsys.readouterr().err
    assert cli.main([*words, "--api-key", str(key)]) == 2
    assert "at least 16 printable ASCII characters, got 5" in capsys.readouterr().err
    monkeypatch.setenv("RLBOOK_API_KEY", "kürzer als sechzehn Zeichen ist er nicht")
    assert cli.main(words) == 2
    assert "printable ASCII" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_running_answers_end_and_refuses_new_ones(
    folder: Path, signum: signal.Signals, code: int
) -> None:
    with served_by_process(folder, "--max-batch", "1") as ending:
        assert ending.process is not None
        client = ending.client()
        short = client.completions.create(
            model="sums",
            prompt="1+2=",
            stream=True,
            max_tokens=500,
            extra_body={"ignore_eos": True},
        )
        first = next(iter(short))
        ending.process.send_signal(signum)
        chunks = [first, *short]
        assert chunks[-1].choices[0].finish_reason == "length"
        assert ending.process.wait(30) == code
        with pytest.raises(openai.APIConnectionError):
            client.models.list()


@pytest.mark.thorough
def test_new_weights_are_answered_with_at_once(folder: Path, tmp_path: Path) -> None:
    other = write_addition_folder(tmp_path / "other")
    model = folder_model(other)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(other)
    small_llama(torch.Generator(), layers=1).save_pretrained(tmp_path / "smaller")
    with served(folder) as server:
        client = server.client()

        def answers() -> list[str]:
            found = client.completions.create(model="sums", prompt=PROMPTS, temperature=0)
            return [choice.text for choice in found.choices]

        def load(folder: Path) -> Any:
            return client.post(
                f"{server.root}/rlbook/weights", body={"folder": str(folder)}, cast_to=object
            )

        before = answers()
        fingerprint = status(server)["fingerprint"]
        for wrong in (tmp_path / "smaller", tmp_path / "nothing"):
            with pytest.raises(openai.BadRequestError):
                load(wrong)
        assert answers() == before and status(server)["fingerprint"] == fingerprint
        load(other)
        expected = write(
            LanguageModelPolicy(model),
            folder_codec(folder),
            PROMPTS,
            sampling=Sampling(temperature=0.0),
            max_new_tokens=16,
            seed=None,
        )
        assert answers() == expected != before
        assert status(server)["fingerprint"] != fingerprint
        load(folder)
        assert answers() == before


def test_a_runs_policy_is_served_with_its_adapter(tmp_path: Path) -> None:
    import rlbook

    run = rlbook.train(
        "grpo",
        "Addition-v0",
        steps=300,
        eval_every=0,
        learning_rate=0.05,
        model={"adapter": {"r": 4}},
        out=tmp_path / "run",
    )
    policy, codec = run.agent.policy, run.agent.codec
    expected = write(
        policy,
        codec,
        PROMPTS,
        sampling=Sampling(temperature=0.0),
        max_new_tokens=8,
        seed=None,
    )
    with served(tmp_path / "run", name="adapted") as server:
        found = server.client().completions.create(
            model="adapted", prompt=PROMPTS, temperature=0, max_tokens=8
        )
    assert [choice.text for choice in found.choices] == expected


def test_a_run_without_a_language_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import rlbook

    rlbook.train("q_learning", "Maze-v0", steps=10, out=tmp_path / "maze")
    for words, said in (
        ([str(tmp_path / "maze")], "only the policy of a language model"),
        ([str(tmp_path / "nothing")], "nothing"),
        ([str(tmp_path / "maze"), "--port", "70000"], "port must be an integer of at most 65,535"),
        ([str(tmp_path / "maze"), "--dtype", "int8"], "dtype must be one of float32"),
        ([str(tmp_path / "maze"), "--api-key", str(tmp_path / "no key")], "cannot be read"),
        ([], "missing from rlbook serve: FOLDER"),
    ):
        assert cli.main(["serve", *words, *(["--port", "0"] if "--port" not in words else [])]) == 2
        assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused(
    server: RunningServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.root.rpartition(":")[2]
    assert cli.main(["serve", str(folder), "--port", port]) == 2
    assert f"cannot listen at 127.0.0.1:{port} (address already in use)" in capsys.readouterr().err
    assert status(server)["running"] == 0
