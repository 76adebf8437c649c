"""`rlbook synthesize` against `rlbook serve`: every option once, however often it was stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ROOT, RunningServer, served, write_bytes_folder
from warm_process import WarmProcess

from rlbook.cli import main as cli
from rlbook.cli.language_models.synthesize import _read_template
from rlbook.errors import RequestError
from rlbook.llm.serving.synthesis import SynthesisOptions, _written_keys, synthesize, tasks_of

ROWS: list[dict[str, Any]] = [
    {"id": n, "question": f"What is {n} + {n}?", "options": [f"{n}", f"{2 * n}", f"{n * n + 9}"]}
    | ({"answer": "B"} if n % 2 else {})
    for n in range(20, 40)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_folder(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with served(folder) as running:
        yield running


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def reasons(path: Path) -> dict[str, str]:
    found = lines(path)
    assert len({line["key"] for line in found}) == len(found)
    return {line["key"]: line["reasoning"] for line in found}


def test_every_option_has_its_line(
    server: RunningServer, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    words = ["synthesize", str(rows), "--server", server.url, "--max-tokens", "12", "--json"]
    assert cli.main([*words, "--out", str(out)]) == 0
    said = capsys.readouterr()
    facts = {"out": str(out), "total": 60, "kept": 0, "written": 60, "failed": 0}
    assert json.loads(said.out) == facts
    assert "50 of 60, " in said.err and "60 of 60, " in said.err
    found = {line["key"]: line for line in lines(out)}
    assert set(found) == {f"{row['id']}/{label}" for row in ROWS for label in "ABC"}
    assert found["21/B"]["right"] is True and found["21/A"]["right"] is False
    assert found["20/B"]["right"] is None and found["21/B"]["option"] == "42"
    assert all(line["usage"]["completion_tokens"] <= 12 for line in found.values())
    assert len({line["reasoning"] for line in found.values()}) > 50
    # nothing is left to do
    assert cli.main([*words, "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out) == facts | {"kept": 60, "written": 0}


@pytest.mark.thorough
def test_no_more_requests_run_than_the_semaphore_allows(
    folder: Path, rows: Path, tmp_path: Path
) -> None:
    with served(folder, max_batch=64) as server:
        most, submit = [0], server.engine.submit

        def watch(sequences: Any) -> None:
            submit(sequences)
            status = server.engine.status()
            most.append(status["running"] + status["waiting"])

        server.engine.submit = watch
        options = SynthesisOptions(server.url, max_tokens=100, concurrency=20)
        assert synthesize(rows, tmp_path / "out.jsonl", options).is_complete
    assert 10 < max(most) <= 20


@pytest.mark.slow
def test_a_killed_run_goes_on_and_writes_nothing_twice(
    server: RunningServer, rows: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    options = SynthesisOptions(server.url, max_tokens=60, concurrency=2)
    assert synthesize(rows, whole, options).is_complete
    words = ["synthesize", str(rows), "--server", server.url, "--out", str(out)]
    process = WarmProcess(
        ["-m", "rlbook", *words, "--max-tokens", "60", "--concurrency", "2"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        while process.poll() is None and not (out.is_file() and out.read_bytes().count(b"\n") > 9):
            time.sleep(0.002)
    finally:
        process.kill()
        process.communicate()
    killed = out.read_bytes().count(b"\n")
    assert 9 < killed < 60
    with out.open("ab") as file:
        file.write(b'{"key": "39/C", "rea')  # half a line
    result = synthesize(rows, out, options)
    assert (result.kept, result.written, result.failed) == (killed, 60 - killed, 0)
    assert reasons(out) == reasons(whole)


@pytest.mark.thorough
def test_a_busy_server_is_asked_again(folder: Path, tmp_path: Path, rows: Path) -> None:
    with served(folder, max_batch=2, max_waiting=0) as server:
        refused, submit = [0], server.engine.submit

        def count(sequences: Any) -> None:
            refused[0] += 1
            submit(sequences)
            refused[0] -= 1

        server.engine.submit = count
        options = SynthesisOptions(server.url, max_tokens=15, concurrency=4, retries=20)
        result = synthesize(rows, tmp_path / "out.jsonl", options)
    assert result.is_complete and result.failed == 0 and refused[0] > 0
    assert len(reasons(tmp_path / "out.jsonl")) == 60


def test_an_option_that_cannot_be_asked_about_does_not_stop_the_others(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    long = {"id": "long", "question": "?" * 5000, "options": ["yes", "no"]}
    rows.write_text("".join(json.dumps(row) + "\n" for row in [long, *ROWS[:2]]))
    words = ["synthesize", str(rows), "--server", server.url, "--out", str(out)]
    assert cli.main([*words, "--max-tokens", "5", "--concurrency", "1"]) == 1
    said = capsys.readouterr().out
    assert "6 lines written" in said and "2 are missing" in said and "the model reads 4096" in said
    assert len(reasons(out)) == 6


def test_a_server_that_is_not_there_costs_no_time_and_no_lines(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    words = ["synthesize", str(rows), "--server", "http://127.0.0.1:9/v1", "--retries", "0"]
    assert cli.main([*words, "--out", str(out)]) == 2
    assert "the server at http://127.0.0.1:9/v1 cannot be reached" in capsys.readouterr().err
    assert not out.exists()
    assert cli.main([*words, "--out", str(out), "--model", "any"]) == 1
    said = capsys.readouterr().out
    assert (
        "60 are missing: " in said
        and "cannot be reached; run the same command again to continue" in said
    )
    assert out.read_bytes() == b""


@pytest.mark.parametrize("text", ['{"question": "?"}', "notes", '{"key": "a"}\nnotes'])
def test_a_file_of_something_else_keeps_its_content(text: str, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(text)
    with pytest.raises(RequestError, match="there is no JSON object with a key"):
        synthesize(rows, out, SynthesisOptions("http://127.0.0.1:1/v1"))
    assert out.read_text() == text


def test_a_last_line_without_its_end_is_kept_where_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for text, left in (
        ('{"key": "a"}', '{"key": "a"}\n'),
        ('{"key": "a"}\n{"key": "b", "ques', '{"key": "a"}\n'),
        ('{"ke', ""),
    ):
        out.write_text(text)
        with out.open("r+b") as file:
            assert _written_keys(file, out) == ({"a"} if left else set())
        assert out.read_text() == left


def test_an_address_without_its_end_is_told_of_it(
    server: RunningServer, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.jsonl")
    assert cli.main(["synthesize", str(rows), "--server", server.root, "--out", out]) == 2
    assert "the addresses of most servers end in /v1" in capsys.readouterr().err


def test_each_option_has_noise_of_its_own(server: RunningServer, tmp_path: Path) -> None:
    """Two rows that say the same are two draws from the model, and not one twice."""
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    same = {"question": "Is it so?", "options": ["yes"]}
    rows.write_text("".join(json.dumps(same | {"id": name}) + "\n" for name in ("one", "two")))
    assert synthesize(rows, out, SynthesisOptions(server.url, max_tokens=12)).is_complete
    found = reasons(out)
    assert set(found) == {"one/A", "two/A"} and found["one/A"] != found["two/A"]


def test_a_template_says_which_option_it_asks_about(tmp_path: Path) -> None:
    path = tmp_path / "template.txt"
    for said in ("Is {label} right?", "Is it {option}?"):
        path.write_text(said)
        assert _read_template(str(path)) == said
    path.write_text("{question}")
    with pytest.raises(RequestError, match=r"must say \{option\} or \{label\}"):
        _read_template(str(path))


def test_a_wrong_key_or_model_ends_it(
    folder: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    with served(folder, key="0123456789abcdef") as server:
        words = ["synthesize", str(rows), "--server", server.url, "--out", str(out)]
        assert cli.main([*words, "--model", "bytes"]) == 2
        assert "the API key is missing or wrong" in capsys.readouterr().err
    with served(folder) as server:
        words[3] = server.url
        assert cli.main([*words, "--model", "gpt"]) == 2
        assert "there is no model 'gpt'" in capsys.readouterr().err


def test_one_process_writes_a_file(server: RunningServer, rows: Path, tmp_path: Path) -> None:
    import fcntl

    out = tmp_path / "out.jsonl"
    with out.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="another process writes"):
            synthesize(rows, out, SynthesisOptions(server.url))
    out.write_text('{"key": "20/A"}\n[1]\n')
    with pytest.raises(RequestError, match="line 2: there is no JSON object with a key"):
        synthesize(rows, out, SynthesisOptions(server.url))
    assert out.read_text() == '{"key": "20/A"}\n[1]\n'


@pytest.mark.parametrize(
    "row, said",
    [
        ({"question": "?"}, "a row must have a text 'question' and 'options'"),
        ({"question": "?", "options": [1, 2]}, "options must be texts"),
        ({"question": "?", "options": ["a", "b"], "answer": "E"}, "must be one of A, B, got 'E'"),
        ({"question": "?", "options": {"text": ["a"], "label": []}}, "a label of its own"),
    ],
)
def test_a_row_that_is_none_is_named(
    row: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(row) + "\n")
    words = ["synthesize", str(rows), "--server", "http://x/v1", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert "row 2: " in err and said in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("named", "change", "said"),
    [({"id": 7}, {"question": "!"}, "same 'id' and"), ({}, {"answer": 1}, "same question and")],
)
def test_rows_of_one_key_that_differ_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    named: dict[str, Any],
    change: dict[str, Any],
    said: str,
) -> None:
    rows = tmp_path / "rows.jsonl"
    row = {"question": "?", "options": ["x", "y"], "answer": 0} | named
    rows.write_text("".join(json.dumps(one) + "\n" for one in (row, row, row | change)))
    words = ["synthesize", str(rows), "--server", "http://x/v1", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert f"row 3: an earlier row has the {said} differs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_of_several_shapes_are_read() -> None:
    arc = {"question": "?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}
    assert [(task.labels[task.place], task.right) for task in tasks_of(arc, "")] == [
        ("1", False),
        ("2", True),
    ]
    numbered = arc | {"choices": {"text": ["x", "y"], "label": [1, 2]}, "answerKey": 1}
    assert [task.right for task in tasks_of(numbered, "")] == [True, False]  # no place from 0 on
    named = {"prompt": "?", "options": {"a": "x", "b": "y"}, "answer": "y"}
    assert [task.right for task in tasks_of(named, "")] == [False, True]
    placed = {"question": "?", "options": ["x", "y"], "answer": 0}
    first, second = tasks_of(placed, "")
    assert (first.right, second.right) == (True, False)
    assert first.key.endswith("/A") and first.key[:-2] == second.key[:-2]
    assert first.prompt(None) == (
        "Question: ?\n\nA. x\nB. y\n\nOption A is right. Explain step by step why."
    )
    assert second.prompt(None) == (
        "Question: ?\n\nA. x\nB. y\n\nOption B is wrong. Explain step by step why."
    )
    assert second.prompt("{label}: {option}") == "B: y"
    # rows without an `id` are told apart by all that they say
    other, _ = tasks_of(placed | {"options": ["x", "z"]}, "")
    assert other.key != first.key
    assert next(iter(tasks_of(placed | {"id": None}, ""))).key == first.key
    assert next(iter(tasks_of(placed | {"id": 0}, ""))).key == "0/A"
    braces = {"question": "Is {options} a set?", "options": ["{label}", "y"], "answer": 0}
    assert (
        next(iter(tasks_of(braces, ""))).prompt("{question} {option}")
        == "Is {options} a set? {label}"
    )
