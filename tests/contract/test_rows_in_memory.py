"""Rows of text that a program has made are learned from as those of a file are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlbook
from rlbook.data.episodes import Episode, Episodes
from rlbook.data.schemas import schema_of
from rlbook.data.text_files import rows_in_memory
from rlbook.runs.storage.folder import ROWS

SUMS = [{"prompt": f"{n}+{n}=", "completion": str(2 * n)} for n in range(40)]
SHORT: dict[str, Any] = {
    "passes": 1,
    "batch_size": 8,
    "anneal_learning_rate": False,
    "eval_every": 0,
    "eval_episodes": 1,
}


def weights(run: rlbook.Run) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in run.agent.policy.parameters()])


@pytest.fixture
def of_a_file(tmp_path: Path) -> torch.Tensor:
    """What is learned from the same rows in a file."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SUMS))
    return weights(rlbook.train("sft", "Addition-v0", data=path, **SHORT))


def episodes() -> Episodes:
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(4, 20, 4)).astype(np.float32)
    return Episodes([Episode(obs, rng.integers(2, size=20)) for obs in shown])


def test_episodes_in_memory_serve_several_runs(tmp_path: Path) -> None:
    """Their order and their passes are each run's own."""
    asked: dict[str, Any] = {"passes": 2, "eval_episodes": 1}
    data, folder = episodes(), tmp_path / "run"
    runs = [
        rlbook.train("behavior_cloning", "CartPole-v1", data=data, out=out, **asked)
        for out in (folder, None)
    ]
    assert data.passes == 0 and [run.passes for run in runs] == [2, 2]
    assert runs[0].metrics == runs[1].metrics
    with pytest.raises(
        rlbook.RequestError, match=r"data in memory; .* rlbook\.load\(folder, data="
    ):
        rlbook.load(folder).train(passes=1)
    assert rlbook.load(folder, data=data).train(passes=1).passes == 3


def test_a_list_is_learned_as_its_file_is(of_a_file: torch.Tensor) -> None:
    for rows in (SUMS, tuple(SUMS)):
        run = rlbook.train("sft", "Addition-v0", data=rows, **SHORT)
        assert torch.equal(weights(run), of_a_file)


@pytest.mark.parametrize("module", ["datasets", "pandas"])
def test_tables_of_other_libraries_are_learned_as_their_file_is(
    module: str, of_a_file: torch.Tensor
) -> None:
    library = pytest.importorskip(module)
    rows = library.Dataset.from_list(SUMS) if module == "datasets" else library.DataFrame(SUMS)
    run = rlbook.train("sft", "Addition-v0", data=rows, **SHORT)
    assert torch.equal(weights(run), of_a_file)


def test_arrays_in_a_row_are_lists() -> None:
    """Which they are in a DataFrame that pandas has read from parquet."""
    texts = np.array(["2", "3"], dtype=object)
    rows = [{"prompt": "1+1=", "completions": texts, "scores": np.array([1.0, 0.0])}] * 8
    assert rlbook.train("grpo", "Addition-v0", data=rows, kl_coef=0.1, **SHORT).steps > 0


def test_a_cell_that_a_table_lacks_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"instruction": "1+1=", "output": "2", "input": "a sum"}]
    rows.append({"instruction": "2+2=", "output": "4"})
    read = [*rows_in_memory(pandas.DataFrame(rows))]
    assert read == [rows[0], rows[1] | {"input": None}]
    assert schema_of(read[1]).read(read[1]) == schema_of(rows[1]).read(rows[1])


@pytest.mark.parametrize("saved", ["from the start", "afterwards", "by a callback"])
def test_a_saved_run_goes_on_without_them_wherever_it_lies(saved: str, tmp_path: Path) -> None:
    whole = rlbook.train("sft", "Addition-v0", data=SUMS, **SHORT | {"passes": 2})
    folder, moved = tmp_path / "run", tmp_path / "moved"
    if saved == "by a callback":
        reports: list[rlbook.Run] = []

        def save(run: rlbook.Run) -> None:
            reports.append(run)
            if len(reports) == 1:
                run.save(folder)

        rest = rlbook.train("sft", "Addition-v0", data=SUMS, on_report=save, **SHORT)
        assert rest.folder is None and not isinstance(rest.request.options.data, str)
    else:
        out = folder if saved == "from the start" else None
        run = rlbook.train("sft", "Addition-v0", data=SUMS, out=out, **SHORT)
        if saved == "afterwards":
            with pytest.raises(rlbook.RequestError, match="a run needs a folder of its own"):
                run.save(Path(__file__))
            run.save(folder)
    shutil.move(folder, moved)
    again = rlbook.load(moved).resume(passes=2)
    assert torch.equal(weights(again), weights(whole))
    assert [json.loads(line) for line in (moved / ROWS).read_text().splitlines()] == SUMS


def test_other_rows_do_not_go_on_with_a_run(tmp_path: Path) -> None:
    rlbook.train("sft", "Addition-v0", data=SUMS, out=tmp_path / "run", **SHORT)
    with pytest.raises(rlbook.RequestError, match=r"^data has changed since"):
        rlbook.load(tmp_path / "run", data=SUMS[1:]).resume(passes=2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([*SUMS, {"prompt": "1+1="}], "^data, row 41 lacks 'completion', which the first row has"),
        ([{"prompt": "1+1=", "completion": object()}], "^data, row 1 .*: it holds a object"),
        ([{"prompt": "1+1=", "completion": 2}], "^data, row 1: "),
        ([*SUMS, "1+1=2"], "^data, row 41 must be a JSON object"),
        ([], "^data: data has no rows"),
        (["1+1=2"], r"^data must be a file or a folder, rows such as \[.*, got a list"),
        ({"prompt": ["1+1="], "completion": ["2"]}, "^data must be .*, got a dict"),
        (7, r"^data must be .* rlbook\.data\.Episodes\(.*, got a int"),
    ],
)
def test_what_cannot_be_learned_from_is_one_sentence(data: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(rlbook.RequestError, match=said):
        rlbook.train("sft", "Addition-v0", data=data, out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


def test_rows_of_text_do_not_describe_a_world_of_vectors() -> None:
    with pytest.raises(rlbook.RequestError, match=r"are not text; give rlbook\.data\.Episodes"):
        rlbook.train("iql", "CartPole-v1", data=SUMS, passes=1)


def test_prompts_lie_in_a_file_which_a_path_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SUMS))
    asked = {"steps": 16, "eval_episodes": 1}
    kwargs = {"data": path, "reward": "numeric"}
    run = rlbook.train("grpo", "Chat-v0", env_kwargs=kwargs, out=tmp_path / "run", **asked)
    again = rlbook.load(tmp_path / "run")
    played = [trained.evaluate(episodes=2).returns.tolist() for trained in (again, run)]
    assert played[0] == played[1]
    with pytest.raises(rlbook.RequestError, match=r"data must be the path .*, got \[.*; rows in"):
        rlbook.train("grpo", "Chat-v0", env_kwargs={"data": SUMS}, **asked)
