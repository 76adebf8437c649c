"""Data sets in files: every format and form of row, and what is said about a row that is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near, widths

import rlbook
from rlbook.algorithms.imitation.behavior_cloning import BehaviorCloning
from rlbook.cli.main import main
from rlbook.data import Episodes, Groups, Pairs, load, text_files
from rlbook.data.schemas import Example, example_of, schema_of
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.llm.tokenizers.chat_codec import chat_codec
from rlbook.llm.tokenizers.tokenizer import IDS, character_codec

LOGITS = 8.5  # the size of the shipped model's logits
EOS, BOS = IDS["<eos>"], IDS["<bos>"]


def env_of(name: str) -> Any:
    return adapted_vector(BehaviorCloning, EnvRecipe.from_env(name), 1, BehaviorCloning.Config())


@pytest.fixture(scope="module")
def addition() -> Any:
    return env_of("Addition-v0")


@pytest.fixture(scope="module")
def maze() -> Any:
    return env_of("Maze-v0")


def lines(path: Path, *rows: Any) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def ids(text: str) -> list[int]:
    return [IDS[character] for character in text]


ONE_ANSWER = [
    {"prompt": "12+34=", "completion": "46"},
    {
        "prompt": [{"role": "user", "content": "12+34="}],
        "completion": [{"role": "assistant", "content": "46"}],
    },
    {"messages": [{"role": "user", "content": "12+34="}, {"role": "assistant", "content": "46"}]},
    {
        "data_source": "x",
        "prompt": [{"role": "user", "content": "12+34="}],
        "reward_model": {"style": "rule", "ground_truth": 46},
    },
    {"instruction": "12+34=", "input": "", "output": "46"},
    {"conversations": [{"from": "human", "value": "12+34="}, {"from": "gpt", "value": "46"}]},
    {"prompt": "12+34=", "answer": 46},
    {"question": "12+34=", "answer": "12+34=46\n#### 46"},
]
FORMS = ["completion", "conversation", "messages", "verl", "alpaca", "sharegpt", "answer", "gsm8k"]


@pytest.mark.parametrize("row", ONE_ANSWER, ids=FORMS)
def test_every_form_of_one_answer_is_the_same_episode(
    tmp_path: Path, addition: Any, row: dict[str, Any]
) -> None:
    data = load(lines(tmp_path / "rows.jsonl", row, row), addition)
    batch = data[np.array([1])]
    assert isinstance(data, Episodes) and data.unit == "episode" and len(data) == 2
    assert batch.obs["tokens"].tolist() == [[BOS, *ids("12+34=")]] and batch.action.tolist() == [
        [*ids("46"), EOS]
    ]


def test_a_chosen_and_a_rejected_answer_are_a_pair(tmp_path: Path, addition: Any) -> None:
    data = load(
        lines(tmp_path / "pairs", {"prompt": "1+1=", "chosen": "2", "rejected": "11"}), addition
    )
    better, worse, _ = data[np.array([0])]
    assert (
        isinstance(data, Pairs)
        and better.action.tolist() == [[*ids("2"), EOS]]
        and worse.action.tolist() == [[*ids("11"), EOS]]
    )


def test_beams_come_best_first_whatever_their_order_in_the_file(
    tmp_path: Path, addition: Any
) -> None:
    data = load(
        lines(
            tmp_path / "beams",
            {"prompt": "1+1=", "completions": ["3", "2", "4"], "scores": [0.5, 1, -1]},
        ),
        addition,
    )
    assert isinstance(data, Groups)
    assert data[np.array([0])].episodes.action[:, 0].tolist() == ids("234")


def test_beams_may_be_token_ids_and_their_scores_are_the_rewards_of_the_last_token(
    tmp_path: Path, addition: Any
) -> None:
    row = {
        "prompt": "1+1=",
        "id_list": [[7, 2], [6, 2, 2], [8, 2]],
        "score_list": [0.045, 0.046, 0.037],
    }
    data = load(lines(tmp_path / "beams", row, row | {"prompt": [1, 5]}), addition)
    assert isinstance(data, Groups)
    best, second, third = data.groups[0]
    assert (best.action.tolist(), second.action.tolist(), third.action.tolist()) == (
        [6, 2, 2],
        [7, 2],
        [8, 2],
    )
    assert best.reward is not None and best.reward.tolist() == [0.0, 0.0, np.float32(0.046)]
    # BOS and four characters; two ids
    assert data[np.array([0, 1])].episodes.obs["length"].tolist() == [
        5,
        5,
        5,
        2,
        2,
        2,
    ]
    for wrong, sentence in (
        ({"id_list": [[7, 26], [1]]}, "the token id 26 is not among the 26 of the vocabulary"),
        ({"id_list": [[7, -1], [1]]}, "id_list must hold lists of token ids"),
        ({"id_list": [[1, True], [2]]}, "id_list must hold"),
        ({"id_list": [[1], []]}, "id_list must hold"),
        ({"id_list": [[1]]}, "at least two beams"),
        (
            {"id_list": [[1], [2]], "score_list": [1]},
            "score_list must be one finite number for each of the 2",
        ),
        (
            {"id_list": [[1], [2]], "score_list": [1, 10**400]},
            "score_list must be one finite number",
        ),
        ({"prompt": []}, "prompt must be"),
        ({"prompt": [1, "2"]}, "prompt must hold lists of token ids"),
    ):
        with pytest.raises(RequestError, match=f"line 2: .*{sentence}"):
            load(
                lines(
                    tmp_path / "bad",
                    row,
                    row | {"id_list": [[7, 2], [8, 2]], "score_list": [0.1, 0.2]} | wrong,
                ),
                addition,
            )


def test_a_chats_system_text_and_history_are_its_prompt() -> None:
    alpaca = {
        "instruction": "c",
        "input": "d",
        "output": "e",
        "system": "s",
        "history": [["a", "b"]],
    }
    turns = [
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"from": "user", "value": "c"},
        {"from": "gpt", "value": "d"},
    ]
    share = {"system": "s", "conversations": turns}
    for row, last, answer in ((alpaca, "c\n\nd", "e"), (share, "c", "d")):
        text = schema_of(row).read(row)
        roles = [message["role"] for message in text.prompt]  # type: ignore[index]
        contents = [message["content"] for message in text.prompt]  # type: ignore[index]
        assert (roles, contents, text.completions) == (
            ["system", "user", "assistant", "user"],
            ["s", "a", "b", last],
            [answer],
        )


def test_an_example_is_a_prompt_with_what_is_known_about_it() -> None:
    chat = [{"role": "user", "content": "1+1="}]
    columns = {
        "data_source": "sums",
        "reward_model": {"ground_truth": [2, 3]},
        "extra_info": {"index": 7},
    }
    assert example_of({"prompt": chat, **columns}) == Example(chat, "[2, 3]", columns)
    assert example_of({"prompt": "a", "level": 3}) == Example("a", None, {"level": 3})
    chat = [{"from": "human", "value": "a"}]
    assert example_of({"conversations": chat, "id": 1}) == Example(
        [{"role": "user", "content": "a"}], None, {"id": 1}
    )
    assert example_of({"question": "6*200", "answer": "6*200=1200\n#### 1,200"}).answer == "1200"
    with pytest.raises(
        ValueError,
        match=r"must have the columns of a form such as prompt, got promt \(did you mean 'prompt' by",
    ):
        example_of({"promt": "a"})


CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]}
SEEN = {"role": "user", "content": [{"type": "text", "text": "1+1="}, {"type": "image"}]}
ANSWER = {"role": "assistant", "content": "2"}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "1+1=", "completion": "2", "images": ["a.png"]}, "images are not read"),
        ({"messages": [{"role": "user", "content": "1+1="}, CALL]}, "ends with a call of a tool"),
        (
            {"prompt": "1+1=", "chosen": [ANSWER], "rejected": [CALL]},
            "rejected ends with a call of a tool",
        ),
        ({"conversations": [SEEN, ANSWER], "tools": '[{"name": "add"}]'}, "tools are not read"),
        ({"messages": [SEEN, ANSWER]}, "write the parts of a content as one text"),
        (
            {"prompt": "1+1=", "completions": ["1", "2"], "labels": [True, False]},
            "the steps of one solution",
        ),
        ({"query": "1+1=", "response": "2"}, "'prompt' by 'query', 'completion' by 'response'"),
        ({"problem": "1+1=", "solution": "2"}, "'prompt' by 'problem', 'completion' by 'solution'"),
        ({"instruction": "1+1=", "context": "", "response": "2"}, "'output' by 'response'"),
        ({"prompt": "1+1=", "completion": "2", "images": [], "tools": "[]"}, ""),
    ],
)
def test_what_is_more_than_text_is_not_passed_over(row: dict[str, Any], sentence: str) -> None:
    if not sentence:
        assert schema_of(row).read(row).completions == ["2"]
        return
    with pytest.raises(ValueError, match=sentence):
        schema_of(row).read(row)


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ({"prompt": "1+1=", "answr": "2"}, "prompt, answer"),
        ({"prompt": "1+1=", "chosen": "2", "reject": "3"}, "prompt, chosen, rejected"),
        ({"query": "1+1=", "response": "2"}, "prompt, completion"),
        ({"instruction": "1+1=", "response": "2"}, "instruction, output"),
        ({"question": "1+1="}, "question, answer"),
        ({"a" * 300: 1, "b": 2}, "prompt, completion"),
    ],
)
def test_a_row_of_no_known_form_is_told_the_nearest_one(row: dict[str, Any], form: str) -> None:
    with pytest.raises(ValueError, match=f"a form such as {form}, got .*'Data sets'") as refused:
        schema_of(row)
    assert len(str(refused.value)) <= 240


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "1+1=", "input": "", "output": "2"},
        {"conversations": [{"from": "human", "value": "1+1="}, {"from": "gpt", "value": "2"}]},
        {"messages": [{"role": "user", "content": "1+1="}, ANSWER]},
    ],
)
def test_llama_factorys_tag_is_a_label(row: dict[str, Any]) -> None:
    for good in (True, False):
        tagged = {**row, "kto_tag": good}
        schema = schema_of(tagged)
        assert schema.kind == "labelled" and schema.read(tagged).good is good
        assert schema.read(tagged).completions == ["2"]
    assert schema_of(row).kind == "episodes"
    with pytest.raises(ValueError, match="kto_tag must be true or 1"):
        schema.read({**row, "kto_tag": "good"})


def test_parquet_and_datasets_folders_hold_the_same_rows(tmp_path: Path, addition: Any) -> None:
    import datasets
    import pyarrow
    import pyarrow.parquet

    table = {
        "prompt": [f"{i}+1=" for i in range(30)],
        "completion": [str(i + 1) for i in range(30)],
    }
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet", row_group_size=7)
    datasets.Dataset.from_dict(table).save_to_disk(str(tmp_path / "split" / "train"), num_shards=2)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    paths = (
        tmp_path / "rows.parquet",
        tmp_path / "split" / "train",
        lines(tmp_path / "rows.jsonl", *rows),
    )
    found = [load(path, addition)[np.arange(30)] for path in paths]
    assert all((batch.action == found[0].action).all() for batch in found)
    assert found[0].action[12].tolist() == [*ids("13"), EOS]
    with pytest.raises(RequestError, match="holds the splits train; name one of them"):
        load(tmp_path / "split", addition)


def test_a_column_of_another_type_is_refused_by_name(tmp_path: Path, addition: Any) -> None:
    import datasets
    import pyarrow
    import pyarrow.parquet

    day, plain = datetime(2024, 1, 2, tzinfo=UTC), {"prompt": ["1+1="], "completion": ["2"]}
    wrong: dict[str, tuple[Any, str]] = {
        "bytes": (pyarrow.array([b"1+1="]), "'prompt' has the type binary"),
        "moment": (pyarrow.array([day]), r"'prompt' has the type timestamp\[us, tz=UTC\]"),
        "date": (pyarrow.array([day.date()]), r"'prompt' has the type date32\[day\]"),
        "time": (pyarrow.array([day.time()]), r"'prompt' has the type time64\[us\]"),
        "decimal": (pyarrow.array([Decimal("1.5")]), r"'prompt' has the type decimal128\(2, 1\)"),
        "mapping": (
            pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
            "'prompt' has the type map<.*>",
        ),
        "nested": (pyarrow.array([[{"content": b"1"}]]), r"'prompt\.content' has the type binary"),
    }
    for name, (column, sentence) in wrong.items():
        table = pyarrow.table(plain | {"prompt": column})
        pyarrow.parquet.write_table(table, tmp_path / name)
        with pytest.raises(RequestError, match=f"{name}: the column {sentence}; rows of text hold"):
            load(tmp_path / name, addition)
    datasets.Dataset.from_dict(plain | {"when": [day]}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(RequestError, match="the column 'when' has the type timestamp"):
        load(tmp_path / "saved", addition)
    twice = pyarrow.table([["1+1="], ["2"], ["3"]], names=["prompt", "completion", "completion"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice")
    with pytest.raises(RequestError, match="has two columns named 'completion'"):
        load(tmp_path / "twice", addition)


def test_columns_of_plain_types_are_read_as_they_are(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    row = {
        "text": "é",
        "large": 2**53 + 1,
        "share": 0.1,
        "yes": True,
        "nothing": None,
        "parts": [{"role": "user", "ids": [1, 2]}],
    }
    half = pyarrow.array([1.5], pyarrow.float16())
    kinds = {"kind": pyarrow.array(["a"]).dictionary_encode(), "half": half, "missing": [math.nan]}
    plain = {name: pyarrow.array([value]) for name, value in row.items()}
    pyarrow.parquet.write_table(pyarrow.table(plain | kinds), tmp_path / "rows")
    found = text_files.read_rows(tmp_path / "rows")[0]
    assert math.isnan(found.pop("missing")) and found == row | {"kind": "a", "half": 1.5}
    lines(tmp_path / "lines", "\ufeff" + json.dumps(row))
    assert list(text_files.read_rows(tmp_path / "lines")) == [row]
    (tmp_path / "array").write_text("\ufeff" + json.dumps([row]), encoding="utf-8")
    assert list(text_files.read_rows(tmp_path / "array")) == [row]


def test_a_margin_that_would_be_left_out_is_refused(tmp_path: Path, addition: Any) -> None:
    pair = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    with pytest.raises(RequestError, match="line 2 has 'margin', which the first row lacks"):
        load(lines(tmp_path / "pairs", pair, pair | {"margin": 2.0}), addition)


GOOD = {"prompt": "1+1=", "completion": "2"}
BAD_ROWS = {
    "not json": ('{"prompt": "1+1=', "line 3 is not JSON"),
    "a list": ("[1]", "line 3 must be a JSON object"),
    "another form": ({"messages": []}, "line 3 lacks 'prompt', which the first row has"),
    "a number": ({"prompt": "1+1=", "completion": 2}, "line 3: completion must be a text, got 2"),
    "no prompt": (
        {"prompt": "", "completion": "2"},
        "line 3: prompt must be a text that is not empty, got ''",
    ),
    "a number as text": (
        {"prompt": "1+1=", "completion": ["2"]},
        "line 3: completion must hold messages with a role and a content",
    ),
    "half a pair": (
        '{"prompt": "1+1=", "completion": "\\ud800"}',
        "line 3: completion holds half of a surrogate pair",
    ),
    "a name twice": (
        '{"prompt": "1+1=", "completion": "3", "completion": "2"}',
        "line 3 is not JSON: the name 'completion' occurs twice",
    ),
    "a name twice, deep": (
        '{"prompt": "1+1=", "completion": "3", "x": [{"y": 1, "y": 1}]}',
        "line 3 is not JSON: the name 'y' occurs twice",
    ),
    "NaN": ('{"prompt": "1+1=", "weight": NaN}', "line 3 is not JSON: NaN is not a JSON number"),
    "infinity": (
        '{"prompt": "1+1=", "weight": -Infinity}',
        "not JSON: -Infinity is not a JSON number",
    ),
    "beyond the largest": (
        '{"prompt": "1+1=", "weight": 1e400}',
        "not JSON: '1e400' is beyond the largest",
    ),
    "two rows": (json.dumps({"prompt": "1+1=", "completion": "2"}) * 2, "not JSON: Extra data"),
    "null": ({"prompt": "1+1=", "completion": None}, "line 3: completion must be a text, got None"),
    "Latin-1": ('{"prompt": "\udce9"}', "line 3 is not JSON: 'utf-8' codec can't decode byte 0xe9"),
    "a form that says more": (
        {"prompt": "1+1=", "completion": "2", "label": False},
        "line 3 has the form prompt, completion, label, and the first row has prompt, completion",
    ),
    "very deep": ("[" * 100_000, "line 3 is not JSON"),
    "very long number": ('{"prompt": ' + "1" * 5_000 + "}", "line 3 is not JSON"),
    "a role misspelled": (
        {"prompt": [{"role": "usr", "content": "1+1="}], "completion": "2"},
        "line 3: the role of a message must be one of system, developer, user, assistant, tool,"
        " function, or one that the chat template names, got 'usr'; did you mean 'user'?",
    ),
    "ShareGPT's speaker as a role": (
        {"prompt": [{"role": "human", "content": "1+1="}], "completion": "2"},
        "got 'human'; did you mean 'user'?",
    ),
    "no token": (
        {"prompt": "1*1=", "completion": "1"},
        r"line 3: the vocabulary has no token for '\*' in '1\*1='",
    ),
}


@pytest.mark.parametrize(("row", "sentence"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_a_bad_row_is_named_with_its_file_and_line(
    tmp_path: Path, addition: Any, row: Any, sentence: str
) -> None:
    # the empty line counts as a line, and is no row
    path = lines(tmp_path / "rows.jsonl", GOOD, "", row, GOOD)
    with pytest.raises(RequestError, match=sentence) as refusal:
        load(path, addition)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_role_that_the_chat_template_names_is_known(addition: Any) -> None:
    codec = addition.unwrapped.codec
    chat = [{"role": "ipython", "content": "1+1="}]
    with pytest.raises(ValueError, match="must be one of"):
        codec.check_messages(chat)
    text = "{% if message.role == 'ipython' %}{{ message.content }}{% endif %}"
    dataclasses.replace(codec, template_text=text).check_messages(chat)


def test_pairs_without_a_difference_are_told(tmp_path: Path, addition: Any) -> None:
    pair = {"prompt": "1+1=", "chosen": "2", "rejected": "11"}
    same, path = pair | {"rejected": "2"}, tmp_path / "rows.jsonl"
    assert load(lines(path, pair, pair), addition).notes == ()
    (note,) = load(lines(path, pair, same, pair, same), addition).notes
    assert note == (
        "2 of 4 pairs have the same answer as chosen and as rejected, from which no preference is"
        f" learned; the first is {path}, line 2"
    )
    data = str(path)
    run = rlbook.train("dpo", "Addition-v0", data=data, steps=2, batch_size=2, eval_every=0)
    assert run.notes.count(note) == 1


def test_a_form_that_is_not_known_names_the_nearest(tmp_path: Path, addition: Any) -> None:
    with pytest.raises(
        RequestError,
        match=r"line 1: must have the columns of a form.*did you mean 'completion' by 'completio'",
    ):
        load(lines(tmp_path / "rows.jsonl", {"prompt": "1+1=", "completio": "2"}), addition)


def test_what_is_no_data_set_is_refused_in_one_sentence(
    tmp_path: Path, addition: Any, maze: Any
) -> None:
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "array.json").write_text("[{}]")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    for name, sentence in (
        ("missing", "does not exist"),
        ("empty", "has no rows"),
        ("folder", "neither a Minari data set nor one"),
        ("array.json", "row 1: must have the columns of a form"),
        ("bad.parquet", "is not a parquet file that can be read"),
    ):
        with pytest.raises(RequestError, match=sentence):
            load(tmp_path / name, addition)
    with pytest.raises(RequestError, match="neither a file nor a folder"):
        load("/dev/null", addition)
    with pytest.raises(RequestError, match="is no Minari data set, which this environment needs"):
        load(lines(tmp_path / "rows", GOOD), maze)


ARRAYS = {
    "[": "row 1 is not JSON",
    '[{"a": 1}': "row 1 is not JSON: unexpected end of file",
    '[{"a": 1} {}]': "row 2 must follow a comma, got '{}]'",
    '[{"a": 1},]': "row 2 is not JSON",
    '[{"a": 1}, 2]': "row 2 must be a JSON object",
    '["\udcff"]': "is not valid UTF-8",
    '[{"a": 1},\n{"a": 2}]\n\n[{"a": 3}]': (
        r"line 4: nothing may follow the end of the array, got '\[\{"
    ),
    '[{"a": 1}]' + " " * 30 + "more": "line 1: nothing may follow the end of the array, got 'm",
    "[]]": "line 1: nothing may follow",
    '[{"a": NaN}]': "row 1 is not JSON: NaN is not a JSON number",
    '[{"a": 1, "a": 2}]': "row 1 is not JSON: the name 'a' occurs twice",
}


@pytest.mark.parametrize("chunk", [5, text_files.CHUNK])
def test_one_json_array_is_read_piece_by_piece(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "CHUNK", chunk)
    rows, path = (
        [{"instruction": f"say\n {i}", "output": "é" * i} for i in range(50)],
        tmp_path / "rows.json",
    )
    for indent in (None, 2):
        path.write_text(
            "\n" + json.dumps(rows, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        assert list(text_files.read_rows(path)) == rows
    path.write_text(" [ ] ")
    assert len(text_files.read_rows(path)) == 0
    for text, sentence in ARRAYS.items():
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(RequestError, match=sentence):
            list(text_files.read_rows(path))


def test_rows_are_read_in_constant_memory(tmp_path: Path, addition: Any) -> None:
    path, row = (
        tmp_path / "many.jsonl",
        json.dumps({"prompt": "1+1=", "completion": "2", "note": "x" * 2000}) + "\n",
    )
    path.write_text(row * 5_000)  # 10 MB
    tracemalloc.start()
    data = load(path, addition)
    assert data[np.array([4_999, 0])].action[:, 0].tolist() == ids("22")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6  # a chunk of 1 MB, twice, and 16 bytes a row


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "array"])
def test_a_million_rows_are_read_in_constant_memory(tmp_path: Path, form: str) -> None:
    """The peak of reading and checking them is that of reading a thousand, and 40 MB: 16 bytes a
    row, and as many while they are found."""
    row, peaks = json.dumps({"instruction": "1+1=", "output": "2", "note": "x" * 100}), []
    program = (
        "import resource, sys; from pathlib import Path\nfrom rlbook.data.files import"
        " EncodedTexts; from rlbook.llm.tokenizers.tokenizer import character_codec\nfrom"
        " rlbook.data.text_files import read_rows\nrows ="
        " EncodedTexts(read_rows(Path(sys.argv[1])), character_codec()); rows.check();"
        " rows[len(rows) - 1]\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    for count in (1_000, 1_000_000):
        path = tmp_path / "rows"
        with path.open("w") as file:
            file.write("[" * (form == "array"))
            file.writelines(
                row + ("\n" if form == "lines" else ",\n" if i < count - 1 else "]")
                for i in range(count)
            )
        done = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 40_000  # KiB; the file has 140 MB


def test_a_recorded_maze_is_what_the_agent_saw(
    tmp_path: Path, maze: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "walks"
    assert (
        main(
            [
                "record",
                "Maze-v0",
                "--policy",
                "optimal",
                "--episodes",
                "3",
                "--out",
                str(out),
                "--json",
            ]
        )
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    # the shortest way has 8 moves and returns 3
    assert (facts["steps"], facts["return"]) == (
        3 * 8,
        3.0,
    )
    data = load(out, maze)
    assert isinstance(data, Episodes) and len(data) == 24 and len(data.episodes) == 3
    way = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 3), (2, 4), (1, 4)]
    assert data.episodes[2].obs.argmax(1).tolist() == [5 * row + column for row, column in way]
    assert (
        data.episodes[2].action.tolist() == [3, 3, 1, 1, 3, 3, 0, 0] and data.episodes[2].terminated
    )
    assert data.episodes[2].reward.tolist() == [-1.0] * 7 + [10.0]
    assert data.digest() == load(out, maze).digest()
    with pytest.raises(RequestError, match=r"observations of .*, and the environment's are of"):
        load(out, env_of("CartPole-v1"))


def test_minari_itself_reads_what_was_recorded(tmp_path: Path) -> None:
    import minari

    assert (
        main(
            [
                "record",
                "CartPole-v1",
                "--episodes",
                "2",
                "--seed",
                "3",
                "--out",
                str(tmp_path / "poles"),
                "--json",
            ]
        )
        == 0
    )
    data = minari.MinariDataset(tmp_path / "poles" / "data")
    episode = data[0]
    assert data.total_episodes == 2 and len(episode.observations) == len(episode.actions) + 1
    assert (
        episode.terminations[-1]
        and not episode.terminations[:-1].any()
        and episode.rewards.sum() == len(episode.actions)
    )
    env = data.recover_environment()
    obs, _ = env.reset(seed=int(next(iter(data.storage.get_episode_metadata([0])))["seed"]))
    # the seed is kept, and begins the same episode
    assert np.array_equal(obs, episode.observations[0])
    assert np.array_equal(env.step(episode.actions[0])[0], episode.observations[1])


def test_a_minari_data_set_in_hdf5_files_is_read(tmp_path: Path) -> None:
    """The format of most published ones; `[data]` brings the package for it."""
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    poles = env_of("CartPole-v1")
    vectors = np.arange(12, dtype=np.float32).reshape(3, 4) / 100
    (tmp_path / "data").mkdir()
    raw = EnvRecipe.from_env("CartPole-v1").make()
    storage: Any = MinariStorage.new(
        tmp_path / "data", raw.observation_space, raw.action_space, data_format="hdf5"
    )
    storage.update_metadata({"dataset_id": "poles-v0", "minari_version": minari.__version__})
    storage.update_episodes(
        [
            EpisodeBuffer(
                id=0,
                observations=vectors,
                actions=np.array([1, 0]),
                rewards=[1.0, 1.0],
                terminations=[False, True],
                truncations=[False, False],
            )
        ]
    )
    data = load(tmp_path, poles)
    assert isinstance(data, Episodes) and len(data.episodes) == 1
    episode = data.episodes[0]
    assert episode.terminated and episode.action.tolist() == [1, 0]
    assert np.array_equal(episode.obs, vectors[:2])
    assert next((tmp_path / "data").glob("*.hdf5"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Maze-v0"], "record needs a run's folder or an environment, and --out DATA"),
        (
            ["Maze-v0", "--out", "x", "--policy", "best"],
            "policy must be one of 'uniform', 'optimal', got 'best'",
        ),
        (
            ["CartPole-v1", "--out", "x", "--policy", "optimal"],
            "policy 'optimal' is not known here: CartPole-v1 has no model",
        ),
        (["Maze-v0", "--out", "x", "--epsilon", "2"], "epsilon must be a number in [0, 1], got 2"),
        (
            ["Maze-v0", "--out", "x", "--episodes", "0"],
            "episodes must be an integer of at least 1, got 0",
        ),
        (["Maze-v0", "--out", "."], ". exists already; name a new folder"),
    ],
)
def test_a_wrong_record_command_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["record", *words]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_a_data_set_is_written_beside_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(["record", "Maze-v0", "--policy", "optimal", "--episodes", "2", "--out", "walks"]) == 0
    )
    assert (tmp_path / "walks" / "data").is_dir() and [
        path.name for path in tmp_path.iterdir()
    ] == ["walks"]


USER, TWO, THREE = (
    {"role": role, "content": content}
    for role, content in (("user", "1+1="), ("assistant", "2"), ("assistant", "3"))
)


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": [USER, TWO], "rejected": [USER, THREE]},
        {
            "prompt": "1+1=",
            "chosen": [USER, TWO],
            "rejected": [USER, THREE],
            "messages": [USER, TWO],
        },
        {"prompt": [USER], "chosen": [USER, TWO], "rejected": [USER, THREE]},
        {"prompt": [USER], "chosen": [TWO], "rejected": THREE},
        {
            "conversations": [{"from": "human", "value": "1+1="}],
            "chosen": {"from": "gpt", "value": "2"},
            "rejected": {"from": "gpt", "value": "3"},
        },
        {
            "chosen": "\n\nHuman: 1+1=\n\nAssistant: 2",
            "rejected": "\n\nHuman: 1+1=\n\nAssistant: 3",
        },
        {"instruction": "1+1=", "input": "", "chosen": "2", "rejected": "3"},
        {"question": "1+1=", "system": "", "chosen": "2", "rejected": "3"},
    ],
)
def test_the_forms_in_which_others_publish_pairs_are_read(row: Any) -> None:
    """TRL without a prompt, UltraFeedback, LLaMA-Factory, HH-RLHF and Orca's pairs."""
    schema = schema_of(row)
    text = schema.read(row)
    assert (schema.kind, text.completions) == ("pairs", ["2", "3"])
    assert text.prompt in ("1+1=", [USER])
    assert example_of(row).prompt in ("1+1=", [USER])


def test_chats_whose_beginnings_differ_make_no_pair() -> None:
    other = {"role": "user", "content": "1+2="}
    for row, sentence in (
        ({"chosen": [USER, TWO], "rejected": [other, THREE]}, "must differ in their last message"),
        ({"chosen": [USER, TWO], "rejected": [THREE]}, "rejected must be a whole chat that ends"),
        ({"chosen": [USER, TWO], "rejected": [USER, USER]}, "rejected must be a whole chat"),
        ({"chosen": "2", "rejected": "3"}, "where there is no prompt; got '2'"),
        (
            {"prompt": [other], "chosen": [USER, TWO], "rejected": [USER, THREE]},
            "must begin with the messages of prompt",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            schema_of(row).read(row)


def test_every_token_of_a_text_alone_is_learned(tmp_path: Path, addition: Any) -> None:
    """TRL's language modelling: the loss is transformers' own, whose labels are the input ids."""
    text = "12+34=46"
    file = lines(tmp_path / "a.jsonl", {"text": text}, {"text": "1+1=2", "label": True})
    data: Any = load(file, addition)
    assert isinstance(data, Episodes)
    episode = data.episodes[0]
    assert [*episode.obs, *episode.action] == [BOS, *ids(text), EOS] and episode.counts is None
    agent: Any = BehaviorCloning(addition, BehaviorCloning.Config())
    batch = data[np.array([0])].weigh(agent.config.averaging())
    loss = agent.loss(agent.policy, batch, config=agent.config).loss
    tokens = torch.tensor([[BOS, *ids(text), EOS]])
    theirs = agent.policy.model(input_ids=tokens, labels=tokens).loss
    network = widths(agent.policy.model)
    assert loss.item() == near(theirs.item(), dtype="float32", terms=network, size=LOGITS)


def test_no_chat_template_goes_around_a_text_alone() -> None:
    codec = chat_codec(character_codec(), system="1+1=2")
    assert codec.encode_text("12") == [BOS, *ids("12"), EOS]
    any_text = dataclasses.replace(codec, characters=None)
    assert any_text.encode_text("12<eos>") == [BOS, *ids("12"), EOS]  # it has its end already


def test_a_text_alone_is_no_prompt(tmp_path: Path, addition: Any) -> None:
    with pytest.raises(
        ValueError, match=r"no prompt to be answered; sft .* \(--data FILE, data=…\)"
    ):
        example_of({"text": "12+34=46"})
    both = lines(tmp_path / "both.jsonl", {"prompt": "12+34=", "text": "46"})
    with pytest.raises(
        RequestError, match="line 1: a row with a prompt needs its answer as 'compl"
    ):
        load(both, addition)
    wrong = lines(tmp_path / "wrong.jsonl", {"text": "1+1=2"}, {"text": 3})
    with pytest.raises(RequestError, match="line 2: text must be a text that is not empty, got 3"):
        load(wrong, addition)


def test_csv_files_hold_texts_labels_and_margins(tmp_path: Path, addition: Any) -> None:
    """As a spreadsheet and pandas write them: a header, quotes, True and False, a byte order mark."""
    for name, text, want in (
        ("a.csv", 'prompt,completion\n"1+1=",2\n\n2+2=,4\n', [("1+1=", "2"), ("2+2=", "4")]),
        ("b.TSV", "\ufeffprompt\tcompletion\r\n1+1=\t2\r\n", [("1+1=", "2")]),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        rows = text_files.read_rows(tmp_path / name)
        assert [(row["prompt"], row["completion"]) for row in rows] == want
        assert isinstance(load(tmp_path / name, addition), Episodes)
    (tmp_path / "labels.csv").write_text("prompt,completion,label\n1+1=,2,True\n1+1=,3,false\n")
    labels: Any = load(tmp_path / "labels.csv", addition)
    assert labels[np.array([0, 1])].good.tolist() == [True, False]
    (tmp_path / "digits.csv").write_text("prompt,completion,label\n1+1=,2,1\n1+1=,3,0\n")
    digits: Any = load(tmp_path / "digits.csv", addition, kinds=("LabelledEpisodes",))
    assert digits[np.array([0, 1])].good.tolist() == [True, False]
    (tmp_path / "pairs.csv").write_text("prompt,chosen,rejected,margin\n1+1=,2,3,0.5\n")
    assert text_files.read_rows(tmp_path / "pairs.csv")[0]["margin"] == 0.5
    assert isinstance(load(tmp_path / "pairs.csv", addition), Pairs)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.csv",
            b"prompt,completion\n1+1=,2\n1+1=\n",
            "a.csv, line 3 has 1 cells, but the header has 2",
        ),
        ("b.csv", b"prompt,prompt\n1+1=,2\n", "line 1 names a column twice: prompt, prompt"),
        (
            "c.csv",
            b'prompt,completion\n1+1=,"2\n',
            "c.csv, line 2 is not CSV: unexpected end of data",
        ),
        ("d.csv", b"prompt,completion\n\xe9,2\n", "d.csv is not UTF-8"),
        ("e.csv", b"", "e.csv has no rows"),
        ("f.csv", b"prompt,chosen,rejected,margin\n1+1=,2,3,x\n", "margin must be a number"),
        ("g.jsonl.gz", b"\x1f\x8b\x08", "is compressed with gzip; unpack it first"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(
    tmp_path: Path, addition: Any, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=sentence):
        load(tmp_path / name, addition)
