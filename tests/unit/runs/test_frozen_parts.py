"""What training never changes is written once for all checkpoints of a run's folder, or is named
where it lies in another folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load

import rlbook
from rlbook.agent import FrozenPart
from rlbook.algorithms.policy.grpo import GRPO
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.networks.policy import FROZEN, Policy, load_saved, saved_tensors
from rlbook.runs.storage.array_files import ArrayFile
from rlbook.runs.storage.checkpoints import load_checkpoint, save_checkpoint
from rlbook.runs.storage.files import CheckpointError
from rlbook.runs.storage.state_encoding import encode


def state(value: float = 1.0) -> dict[str, Any]:
    frozen = {
        "weight": torch.full((3, 2), value),
        "half": torch.full((2,), value, dtype=torch.bfloat16),
    }
    return {"trained": np.arange(4.0), "reference": FrozenPart(frozen)}


def frozen_files(folder: Path) -> list[Path]:
    return sorted(
        path for path in (folder / "checkpoints").iterdir() if path.suffix == ".safetensors"
    )


def test_a_frozen_part_is_written_once_and_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state())
    (file,) = frozen_files(tmp_path)
    written = file.stat()
    save_checkpoint(tmp_path, 2, state())
    assert frozen_files(tmp_path) == [file] and file.stat().st_mtime_ns == written.st_mtime_ns
    assert file.stem == hashlib.sha256(file.read_bytes()).hexdigest()
    for step in (1, 2):
        found = load_checkpoint(tmp_path, step)[1]["reference"]
        assert type(found) is FrozenPart and torch.equal(found["weight"], torch.ones(3, 2))
        assert found["half"].dtype is torch.bfloat16
        arrays = load((tmp_path / "checkpoints" / str(step) / "arrays.safetensors").read_bytes())
        assert list(arrays) == ["/trained"]


def test_a_frozen_part_that_no_checkpoint_names_any_more_goes(tmp_path: Path) -> None:
    """Two checkpoints stay, so the first part goes with the third checkpoint that has the second
    part."""
    save_checkpoint(tmp_path, 1, state(1.0))
    for step, files in ((2, 2), (3, 1), (4, 1)):
        save_checkpoint(tmp_path, step, state(2.0))
        assert len(frozen_files(tmp_path)) == files
    assert load_checkpoint(tmp_path, 4)[1]["reference"]["weight"][0, 0] == 2


def changed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (changed, "do not match the sha256 in its name"),
        (longer, "at most"),
        (link, "is a link"),
        (pipe, "not a regular file"),
        (Path.unlink, "is missing"),
        (lambda file: file.write_bytes(b""), "do not match the sha256"),
    ],
)
def test_a_frozen_part_that_was_changed_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    save_checkpoint(tmp_path, 1, state())
    (file,) = frozen_files(tmp_path)
    spoil(file)
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value) and file.name[:8] in str(caught.value)


def forged_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "checkpoints" / "1" / "header.json"
    header = json.loads(path.read_bytes())
    del header["sha256"]
    change(header)
    body = json.dumps(header)[:-1].encode()
    path.write_bytes(body + f',\n"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda header: header.update(frozen={}), "is not one of its files"),
        (lambda header: header.update(frozen=[1]), "one of the wrong type"),
        (lambda header: header["frozen"].update(x=-1), "one of the wrong type"),
        (
            lambda header: header["state"]["reference"].update({"$frozen": "../../secret"}),
            "is not one of its files",
        ),
        (
            lambda header: header["state"]["reference"].update(state={}),
            "is not what its file holds",
        ),
        (
            lambda header: header["state"]["reference"].update(state={"$frozen": "x", "state": {}}),
            "refers to arrays that are not available here",
        ),
        (
            lambda header: header["state"]["reference"].update(more=1),
            "refers to arrays that are not available here",
        ),
    ],
)
def test_a_forged_header_names_no_other_file(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    save_checkpoint(tmp_path, 1, state())
    forged_header(tmp_path, lambda header: None)
    load_checkpoint(tmp_path)
    forged_header(tmp_path, change)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(tmp_path)


def test_a_link_under_the_name_of_a_frozen_part_is_replaced_not_followed(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", 1, state())
    (file,) = frozen_files(tmp_path / "a")
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * file.stat().st_size)
    for put in (lambda path: path.symlink_to(precious), lambda path: os.link(precious, path)):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        (tmp_path / "b" / "checkpoints").mkdir(parents=True)
        put(tmp_path / "b" / "checkpoints" / file.name)
        save_checkpoint(tmp_path / "b", 1, state())
        assert load_checkpoint(tmp_path / "b")[0] == 1 and set(precious.read_bytes()) == {ord("x")}


def test_a_checkpoint_of_schema_2_is_read(tmp_path: Path) -> None:
    """It had everything in one file, and no list of frozen parts."""
    save_checkpoint(tmp_path, 1, {"a": np.arange(3), "reference": {"weight": torch.ones(2)}})
    forged_header(tmp_path, lambda header: (header.pop("frozen"), header.update(schema=2)))
    assert load_checkpoint(tmp_path)[1]["reference"]["weight"].tolist() == [1, 1]


# ---- the file of arrays


def test_the_file_of_arrays_is_what_safetensors_reads() -> None:
    arrays = {
        "/scalar": np.array(7),
        "/empty": np.zeros((0, 3), np.uint16),
        "/bool": np.array([True, False, True]),
        '/"quoted" and ünïcode': np.ones(2, np.float16),
        "/matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "/int8": np.array([-1], np.int8),
    }
    file = ArrayFile.from_arrays(arrays)
    data = b"".join(file)
    assert len(data) == file.size and hashlib.sha256(data).hexdigest() == file.sha256()
    found = load(data)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape) and found[
            name
        ].tobytes() == array.tobytes()
    assert b"".join(ArrayFile.from_arrays(dict(reversed(arrays.items())))) == data


def test_writing_a_checkpoint_needs_no_second_copy_of_it(tmp_path: Path) -> None:
    """16 MB in each of two parts; pieces of 1 MB are hashed and written, and looked at for NaN (one
    byte an element)."""
    large = {
        "trained": np.ones(2**22, np.float32),
        "reference": FrozenPart({"weight": np.ones(2**22, np.float32)}),
    }
    tracemalloc.start()
    save_checkpoint(tmp_path, 1, large)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20


# ---- whole runs


OPTIONS: dict[str, Any] = {
    "num_envs": 4,
    "rollout_steps": 16,
    "kl_coef": 0.1,
    "eval_every": 0,
    "seed": 0,
    "anneal_learning_rate": False,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    rlbook.train("ppo", "Maze-v0", steps=300, out=folder, **OPTIONS)
    return folder


def bits(run: rlbook.Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in encode(run.agent.state_dict())[1].items()}


def test_the_reference_of_a_run_is_kept_once_and_the_run_goes_on_bit_for_bit(
    finished: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (file,) = frozen_files(folder)
    resumed = rlbook.load(folder).resume(steps=600)
    assert frozen_files(folder) == [file]
    assert bits(resumed) == bits(rlbook.train("ppo", "Maze-v0", steps=600, **OPTIONS))
    assert rlbook.evaluate(folder, episodes=2).mean == rlbook.evaluate(resumed, episodes=2).mean


def test_a_run_whose_reference_was_changed_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    changed(frozen_files(folder)[0])
    for use in (rlbook.load, lambda path: rlbook.evaluate(path, episodes=1)):
        with pytest.raises(CheckpointError, match="do not match the sha256 in its name"):
            use(folder)


def test_a_run_of_schema_2_goes_on_bit_for_bit(finished: Path, tmp_path: Path) -> None:
    """Its checkpoints hold the reference with the rest."""
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    for checkpoint in (folder / "checkpoints").glob("[0-9]*"):
        if not checkpoint.is_dir():
            continue
        step, held = load_checkpoint(checkpoint)
        config = json.loads((checkpoint / "header.json").read_bytes())["config"][0]
        held["agent"]["reference"] = dict(held["agent"]["reference"])
        shutil.rmtree(checkpoint)
        save_checkpoint(folder, step, held, config=config)
        make_old(checkpoint / "header.json")
    assert frozen_files(folder) == []
    assert bits(rlbook.load(folder).resume(steps=600)) == bits(
        rlbook.train("ppo", "Maze-v0", steps=600, **OPTIONS)
    )


def make_old(path: Path) -> None:
    header = json.loads(path.read_bytes())
    del header["sha256"], header["frozen"]
    body = json.dumps(header | {"schema": 2})[:-1].encode()
    path.write_bytes(body + f',\n"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode())


def test_a_reference_that_changes_is_kept_in_every_checkpoint(tmp_path: Path) -> None:
    rlbook.train(
        "dpo",
        "Maze-v0",
        steps=600,
        num_envs=8,
        reference_period=1,
        out=tmp_path / "run",
        eval_every=0,
    )
    assert frozen_files(tmp_path / "run") == []
    assert "weight" in str(load_checkpoint(tmp_path / "run")[1]["agent"]["reference"].keys())


# ---- language models of a folder, and adapters


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    small_llama(torch.Generator().manual_seed(3), hidden_size=16, feed_forward=16).save_pretrained(
        folder
    )
    character_tokenizer().save_pretrained(folder)
    return folder


TOKENS: dict[str, Any] = {
    "num_envs": 8,
    "group_size": 4,
    "kl_coef": 0.1,
    "eval_every": 0,
    "seed": 0,
    "anneal_learning_rate": False,
}


def test_a_reference_that_a_folder_holds_is_read_from_there_again(
    model: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(model, tmp_path / "model"))
    options = TOKENS | {"env_kwargs": {"model": str(moved), "reward": "edit"}}
    rlbook.train("grpo", "Addition-v0", steps=48, out=tmp_path / "run", **options)
    assert frozen_files(tmp_path / "run") == []
    assert len(load_checkpoint(tmp_path / "run")[1]["agent"]["reference"]) == 64  # a sha256
    resumed = rlbook.load(tmp_path / "run").resume(steps=96)
    assert bits(resumed) == bits(rlbook.train("grpo", "Addition-v0", steps=96, **options))
    small_llama(torch.Generator().manual_seed(4), hidden_size=16, feed_forward=16).save_pretrained(
        moved
    )
    with pytest.raises(
        CheckpointError,
        match="the reference's weights have changed since the run started: their sha256 was",
    ):
        rlbook.load(tmp_path / "run")


class Adapted(GRPO):
    """Trains adapters of peft on the language model, and nothing else of it."""

    def make_reference(self) -> Policy:
        peft = pytest.importorskip("peft", reason="peft is in the extra [lora]")
        assert isinstance(self.policy, LanguageModelPolicy)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.manual_seed(0)
            settings = peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"])
            self.policy = LanguageModelPolicy(peft.get_peft_model(self.policy.model, settings))
        return super().make_reference()


def test_checkpoints_of_adapters_hold_the_adapters_alone(tmp_path: Path) -> None:
    options = TOKENS | {"env_kwargs": {"reward": "edit"}}
    rlbook.train(Adapted, "Addition-v0", steps=48, out=tmp_path / "run", **options)
    assert len(frozen_files(tmp_path / "run")) == 1
    held = load_checkpoint(tmp_path / "run")[1]["agent"]
    assert (
        all("lora_" in name for name in held["policy"] if name != FROZEN)
        and held["reference"] == {}
    )
    resumed = rlbook.load(tmp_path / "run", algorithm=Adapted).resume(steps=96)
    assert bits(resumed) == bits(rlbook.train(Adapted, "Addition-v0", steps=96, **options))


def test_frozen_weights_stand_apart_in_a_saved_module_and_come_back() -> None:
    network, other = (
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)) for _ in range(2)
    )
    network[0].requires_grad_(False)
    found = saved_tensors(network)
    assert set(found) == {"1.weight", "1.bias", FROZEN} and set(found[FROZEN]) == {
        "0.weight",
        "0.bias",
    }
    load_saved(other, found)
    assert all(
        torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True)
    )
