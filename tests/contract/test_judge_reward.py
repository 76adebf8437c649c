"""The reward of a judge, a model that is asked: behind `rlbook serve`, in a folder, and behind a
server that fails."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import RunningServer, served, write_addition_folder

import rlbook
from rlbook.cli import main as cli
from rlbook.llm.judging import judge_model
from rlbook.llm.rewards import Completion, Rewards
from rlbook.llm.tokenizers.chat_codec import chat_codec
from rlbook.llm.tokenizers.tokenizer import character_tokenizer, folder_codec

SUMS: dict[str, Any] = {"template": "{prompt}", "scale": [0, 200], "max_tokens": 8}
"""The model that adds is a judge that rates a prompt by its sum."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_addition_folder(tmp_path_factory.mktemp("models") / "sums")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with served(folder) as running:
        yield running


@pytest.fixture(autouse=True)
def _new_judges() -> None:
    judge_model.open_judge.cache_clear()


def wrote(prompt: str, text: str = "", answer: str | None = None) -> Completion:
    return Completion(prompt, answer, text, True)


class Failing(http.server.BaseHTTPRequestHandler):
    """A server of one model that says what its `script` tells: an answer, a status, or silence."""

    script: list[Any]
    seen: list[str]

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.answer(200, {"object": "list", "data": [{"id": "one", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(body["messages"][0]["content"])
        what = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(what, int):
            return self.answer(what, {"error": {"message": "not now", "type": "busy"}})
        if isinstance(what, float):
            time.sleep(what)
            what = "[[1]]"
        said = {"role": "assistant", "content": what}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": "one"}
        return self.answer(200, {**head, "choices": [choice]})

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # the client has gone


@contextmanager
def failing(*script: Any) -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (Failing,), {"script": [*script], "seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}/v1", handler.seen  # type: ignore[attr-defined]
        finally:
            running.shutdown()
            thread.join()


def test_a_served_model_and_one_in_a_folder_judge_alike(
    server: RunningServer, folder: Path
) -> None:
    rows = [wrote(f"{a}+{b}=") for a in (11, 20, 35) for b in (35, 50, 17)] * 2
    before = server.engine.status()["answered"]
    found = [
        Rewards({"judge": {**who, **SUMS}})(rows)[0]
        for who in ({"server": server.url}, {"folder": str(folder)})
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0][0] == 46 / 200  # 11+35
    assert server.engine.status()["answered"] - before == 9  # equal questions are asked once


@pytest.mark.thorough
def test_a_run_is_paid_by_a_server_from_the_command_line(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = json.dumps({"correct": 1.0, "judge": {"server": server.url, **SUMS, "weight": 0.1}})
    words = "train grpo Addition-v0 --steps 100 --num-envs 8 --eval-every 0 --json".split()
    folder = tmp_path / "run"
    assert cli.main([*words, "--out", str(folder), "--env.reward", asked]) == 0
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    judged = [line["reward/judge"] for line in logged if "reward/judge" in line]
    assert judged and all(0.1 < value < 1.0 for value in judged)  # sums of two numbers from 10 on
    assert {line["reward/judge/failed"] for line in logged if "reward/judge" in line} == {0.0}
    capsys.readouterr()


def test_what_a_text_says_reaches_the_judge_as_it_is_and_both_orders_are_asked() -> None:
    told = {"template": "{answer}/{first}/{second}", "mode": "reference"}
    with failing("[[A]]") as (url, seen):
        total, named = Rewards({"judge": {"server": url, **told}})([wrote("?", "{answer}", "46")])
    assert sorted(seen) == ["46/46/{answer}", "46/{answer}/46"]
    assert total.tolist() == [0.5] and named["reward/judge/consistent"].tolist() == [0.0]


def test_a_completion_of_a_row_without_an_answer_has_no_score_of_a_comparison() -> None:
    told = {"template": "{answer}/{first}/{second}", "mode": "reference"}
    with failing("[[A]]") as (url, _):
        rewards = Rewards({"judge": {"server": url, **told}})
        _, named = rewards([wrote("?", "two", "46"), wrote("?", "three")])
    np.testing.assert_array_equal(named["reward/judge"], [0.5, np.nan])
    assert named["reward/judge/failed"].tolist() == [0.0, 1.0]


def test_a_cache_knows_which_model_a_server_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server at one address has another model the third time."""
    with failing("yes") as (url, seen):
        settings = judge_model.JudgeSettings(server=url, cache=str(tmp_path / "answers.db"))
        for name in ("one", "one", "two"):
            listed = {"object": "list", "data": [{"id": name, "object": "model"}]}
            monkeypatch.setattr(
                Failing, "do_GET", lambda self, listed=listed: self.answer(200, listed)
            )
            judge_model.open_judge.cache_clear()
            assert judge_model.open_judge(settings).ask(["text"]) == ["yes"]
        assert seen == ["text", "text"]


def test_a_prompt_that_leaves_no_room_for_the_judges_answer_is_not_judged(folder: Path) -> None:
    settings = judge_model.JudgeSettings(folder=str(folder), max_tokens=8)
    codec = chat_codec(folder_codec(str(folder)))
    most = codec.limit - 8 - len(codec.encode_prompt([{"role": "user", "content": ""}]))
    longest, longer = judge_model.open_judge(settings).ask(["1" * most, "1" * (most + 1)])
    assert longest is not None and longer is None


def test_a_group_is_compared_with_itself(server: RunningServer) -> None:
    """The judge likes long texts: of three texts to a prompt the longest wins both comparisons, and
    the shortest none. A text alone, here to a chat that ends as the prompt of the others does, has
    nobody to be compared with."""

    class Longest(Failing):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            first, _, second = body["messages"][0]["content"].partition("/")
            said = {"role": "assistant", "content": "B" if len(second) > len(first) else "A"}
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            head = {"id": "x", "object": "chat.completion", "created": 0, "model": "one"}
            self.answer(200, {**head, "choices": [choice]})

    told = {"template": "{first}/{second}", "mode": "group", "opponents": 2}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Longest) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{running.server_address[1]}/v1"
        rows = [wrote("?", "aaa"), wrote("?", "a"), wrote("?", "aa"), wrote("?", "a")]
        rows[3].messages = [{"role": "user", "content": part} for part in ("!", "?")]
        total, named = Rewards({"judge": {"server": url, **told}})(rows)
        running.shutdown()
        thread.join()
    assert total.tolist() == [1.0, 0.0, 0.5, 0.0]
    np.testing.assert_array_equal(named["reward/judge/failed"], [0.0, 0.0, 0.0, 1.0])


@pytest.mark.thorough
def test_a_server_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(503, 500, "[[10]]") as (url, seen):
        total, _ = Rewards({"judge": {"server": url, "retries": 2}})([wrote("?", "text")])
    assert total.tolist() == [1.0] and len(seen) == 3


def test_verdicts_that_do_not_come_or_cannot_be_read_cost_only_themselves() -> None:
    """The first answer comes; then there is a failure, silence, and a text without a verdict."""
    asked = {"judge": {"server": "", "retries": 0, "timeout": 0.5, "jobs": 1}}
    with failing("[[10]]", 500, 2.0, "well") as (url, _):
        asked["judge"]["server"] = url
        rewards = Rewards(asked)
        for number, expected in enumerate((1.0, 0.0, 0.0, 0.0)):
            total, named = rewards([wrote("?", f"text {number}")])
            assert total.tolist() == [expected]
            assert named["reward/judge/failed"].tolist() == [float(expected == 0.0)]


@pytest.mark.thorough
def test_a_server_that_goes_away_does_not_end_a_run(tmp_path: Path) -> None:
    """And a round does not wait for each of its requests to be refused again and again."""
    asked: dict[str, Any] = {"server": "", "weight": 0.1, "retries": 1, "jobs": 2}
    with failing("[[10]]") as (url, _):
        asked["server"] = url
        Rewards({"judge": asked})([wrote("?", "text")])
    start = time.monotonic()
    run = rlbook.train(
        "grpo",
        "Addition-v0",
        steps=200,
        num_envs=16,
        eval_every=0,
        out=tmp_path / "run",
        env_kwargs={"reward": {"correct": 1.0, "judge": asked}},
    )
    assert run.steps >= 200 and time.monotonic() - start < 60
    failed = [line["reward/judge/failed"] for line in run.metrics if "reward/judge/failed" in line]
    assert failed and set(failed) == {1.0}


def test_a_judge_that_never_answers_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "train grpo Addition-v0 --steps 100 --num-envs 8 --eval-every 0".split()
    with failing(401) as (url, _):
        for asked, said in (
            ({"server": "http://127.0.0.1:9/v1", "retries": 0}, "cannot be reached"),
            ({"server": url, "retries": 0}, "refuses: not now"),
        ):
            out = ["--out", str(tmp_path / said[:3])]
            assert cli.main([*words, *out, "--env.reward", json.dumps({"judge": asked})]) == 1
            told = capsys.readouterr().err
            assert f"the judge at {asked['server']} {said}" in " ".join(told.split())
            assert "Traceback" not in told


def test_a_rubric_asks_the_judge_about_what_only_it_can_see() -> None:
    criteria = {
        "short": {"max_words": 3},
        "polite": {"ask": "It is polite.", "weight": 2.0},
        "rude": {"ask": "It is rude.", "weight": -1.0},
    }
    with failing("[[yes]]") as (url, seen):
        asked = {"rubric": {"server": url, "criteria": criteria, "template": "{criterion} {text}"}}
        total, named = Rewards(asked)([wrote("?", "Please do.")])
    assert sorted(seen) == ["It is polite. Please do.", "It is rude. Please do."]
    assert total.tolist() == [(1 + 2 - 1) / 3] and named["reward/rubric/rude"].tolist() == [1.0]


@pytest.mark.parametrize("padding", ["<pad>", "<eos>", None])
def test_a_reward_model_scores_texts_side_by_side_as_each_alone(
    padding: str | None, tmp_path: Path
) -> None:
    """With a padding token, with one that ends texts too, as most reward models have it, and
    without one, when transformers reads one text at a time."""
    import torch
    from closeness import near, widths
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = character_tokenizer()
    tokenizer.pad_token = padding
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": 1, "eos_token_id": 2}
    config = LlamaConfig(**sizes, **ids, vocab_size=26, num_attention_heads=2, num_labels=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = [("46", True), ("4", True), ("464", False)]
    rows = [Completion("12+34=", "46", text, ended) for text, ended in texts]
    expected = []
    for text, ended in texts:
        read = tokenizer(f"12+34={text}").input_ids + [2] * ended
        with torch.no_grad():
            expected.append(model(input_ids=torch.tensor([read])).logits.item())
    total, _ = Rewards({"reward_model": {"folder": str(tmp_path)}})(rows)
    assert total == near(expected, dtype="float32", terms=widths(model), size=1.0)


@pytest.mark.thorough
def test_reward_models_in_folders_pay_for_their_own_prompts(tmp_path: Path) -> None:
    """The scores are those of the run that was exported."""
    run = rlbook.train(
        "reward_model", "Addition-v0", steps=20, eval_every=0, out=tmp_path / "model", quiet=True
    )
    from rlbook.runs.exporting import export

    export(tmp_path / "model", tmp_path / "folder")
    asked = {
        "helpful": {
            "function": "reward_model",
            "folder": str(tmp_path / "folder"),
            "where": {"task": "open"},
        }
    }
    texts = [("11+35=", "46", True), ("20+50=", "7", True), ("11+35=", "4646", False)]
    rows = [Completion(p, None, text, end, {"task": "open"}) for p, text, end in texts]
    rows.append(Completion("11+35=", None, "46", True, {"task": "sums"}))
    total, named = Rewards(asked)(rows)
    import torch
    from closeness import near, widths

    from rlbook.llm.generation.prompt_rows import rows_of
    from rlbook.llm.tokenizers.batches import pad
    from rlbook.llm.tokenizers.tokenizer import character_codec

    codec, agent = character_codec(), run.agent
    ids = [
        [*codec.encode_prompt(p), *codec.encode_answer(text)][: None if end else -1]
        for p, text, end in texts
    ]
    tokens = torch.from_numpy(pad(ids, codec.pad)[0])
    lengths = torch.tensor([len(row) for row in ids])
    with torch.no_grad():
        score = agent.network.score(rows_of(tokens, lengths, tokens[:, :0]))[:, 0]  # type: ignore[attr-defined]
    close = {"dtype": "float32", "terms": widths(agent.network.score.trunk), "size": 1.0}  # type: ignore[attr-defined]
    assert total[:3] == near(score.tolist(), **close) and total[3] == 0.0
    assert np.isnan(named["reward/helpful"][3]) and len({*total[:3]}) == 3
