"""Checkpoints: every state comes back, the same state gives the same bytes, and whatever is damaged
or foreign is refused."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import shutil
import struct
import subprocess
import textwrap
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from warm_process import WarmProcess, run_python

import rlbook
from rlbook.runs.storage import checkpoints
from rlbook.runs.storage.array_files import load_arrays
from rlbook.runs.storage.checkpoints import (
    CheckpointError,
    discard_after,
    latest_step,
    list_checkpoints,
    load_checkpoint,
    lock,
    mark_best,
    read_best,
    save_checkpoint,
)
from rlbook.runs.storage.saved_parts import check_parts
from rlbook.runs.storage.state_check import check_shown
from rlbook.runs.storage.state_encoding import DTYPES, StateError, decode, encode
from rlbook.seeding import rng_for, rng_state, set_rng_state


def same(a: Any, b: Any) -> bool:
    """Equal in type, dtype, shape and bits, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a.hex() == b.hex()
    return a == b


def example_state() -> dict[str, Any]:
    return {
        "agent": {
            "q": np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
            "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
            "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
            "zero_dim": torch.tensor(7),
            "count": np.int64(3),
            "rng": rng_state(rng_for(0, "exploration")),
            "rollout": [{"obs": np.zeros((2, 0), np.float32), "done": np.array(True)}, None],
        },
        "best": -math.inf,
        "odd": {"$strange/key~": {"$array": "not an array", "pair": (1, 2.5)}},
    }


def reseal(checkpoint: Path, change: Any) -> None:
    """Rewrites the header after `change(header)`, with all checksums right: an attacker would do no
    less."""
    header = json.loads((checkpoint / "header.json").read_bytes())
    del header["sha256"]
    blob = (checkpoint / "arrays.safetensors").read_bytes()
    header["blobs"]["arrays.safetensors"] = {
        "size": len(blob),
        "sha256": hashlib.sha256(blob).hexdigest(),
    }
    change(header)
    seal(checkpoint, json.dumps(header)[:-1].encode())


def seal(checkpoint: Path, body: bytes) -> None:
    tail = f',\n"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
    (checkpoint / "header.json").write_bytes(body + tail)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path, 10, example_state())


# Round trips


def test_every_kind_of_value_comes_back_with_its_type_and_bits(saved: Path) -> None:
    step, state = load_checkpoint(saved)
    assert step == 10
    assert same(state, example_state())


def test_loaded_arrays_can_be_written_to(saved: Path) -> None:
    _, state = load_checkpoint(saved)
    state["agent"]["q"][0, 0] = 5.0
    state["agent"]["weight"][0, 0] = 5.0


def test_a_generator_goes_on_from_its_restored_state(tmp_path: Path) -> None:
    rng = rng_for(3, "minibatches")
    rng.random(7)
    save_checkpoint(tmp_path, 0, {"rng": rng_state(rng)})
    other = rng_for(0, "minibatches")
    set_rng_state(other, load_checkpoint(tmp_path)[1]["rng"])
    assert (other.random(100) == rng.random(100)).all()


def test_tied_weights_and_parameters_are_saved_as_plain_tensors(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    save_checkpoint(tmp_path, 0, {"a": layer.weight, "b": layer.weight})
    loaded = load_checkpoint(tmp_path)[1]
    assert torch.equal(loaded["a"], layer.weight) and torch.equal(loaded["b"], layer.weight)
    assert not loaded["a"].requires_grad


arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements=hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False),
    )
)
tensors = arrays.map(lambda array: torch.from_numpy(array.copy()))
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text()
    | arrays
    | tensors
)
states = st.dictionaries(
    st.text(),
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(states)
def test_any_state_comes_back_through_json_and_arrays(state: dict[str, Any]) -> None:
    skeleton, blobs = encode(state)
    assert same(decode(json.loads(json.dumps(skeleton)), dict(blobs)), state)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(states)
def test_any_state_comes_back_from_the_disk_and_is_written_alike_twice(
    tmp_path_factory: Any, state: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    first = save_checkpoint(folder, 1, state)
    loaded = load_checkpoint(folder)[1]
    assert same(loaded, state)
    again = save_checkpoint(folder / "again", 1, loaded)
    for name in ("header.json", "arrays.safetensors"):
        assert (first / name).read_bytes() == (again / name).read_bytes()


def test_keys_come_back_in_their_order_so_that_a_resumed_run_walks_through_them_alike(
    tmp_path: Path,
) -> None:
    save_checkpoint(tmp_path, 1, {"z": 1, "a": {"y": 2, "b": np.zeros(1)}})
    state = load_checkpoint(tmp_path)[1]
    assert list(state) == ["z", "a"] and list(state["a"]) == ["y", "b"]


@pytest.mark.thorough
def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    code = """
        import sys, numpy as np
        from rlbook.runs.storage.checkpoints import save_checkpoint
        names = ["gamma", "alpha", "q", "rng", "z"]
        save_checkpoint(sys.argv[1], 1, {name: {"table": np.arange(len(name)), "name": name} for name in names})
    """
    hashes = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        python(code, folder, env={"PYTHONHASHSEED": seed}, cwd=folder)
        hashes.add(
            tuple(file.read_bytes() for file in sorted((folder / "checkpoints" / "1").iterdir()))
        )
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.array([None, {}], dtype=object), "dtype object"),
        (np.array(["text"]), "dtype <U4"),
        (np.zeros(2, ">f8"), "dtype >f8"),
        (np.zeros(2, complex), "dtype complex128"),
        (torch.zeros(2).to_sparse(), "sparse"),
        (np.array([1.0, np.nan]), "NaN or infinite"),
        (torch.tensor([1.0, math.inf]), "NaN or infinite"),
        (torch.tensor([math.nan], dtype=torch.bfloat16), "NaN or infinite"),
        (lambda: None, "is a function"),
        ({1, 2}, "is a set"),
        ({1: "int key"}, "has the key 1"),
        (Path("x"), "which is not stored"),
    ],
)
def test_what_is_not_finite_data_is_not_written(tmp_path: Path, value: Any, reason: str) -> None:
    save_checkpoint(tmp_path, 1, {"a": 1})
    with pytest.raises(CheckpointError, match=reason) as caught:
        save_checkpoint(tmp_path, 2, {"a": [value]})
    assert "/a/0" in str(caught.value)
    assert list_checkpoints(tmp_path) == [1]


def test_a_state_that_contains_itself_is_not_written(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(CheckpointError, match="nested more than 64"):
        save_checkpoint(tmp_path, 1, state)


# Which checkpoints there are


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(0, 60, 10):
        save_checkpoint(tmp_path, step, {"step": step})
        if step == 20:
            mark_best(tmp_path, 20, 1.5)
    assert list_checkpoints(tmp_path) == [20, 40, 50]
    assert latest_step(tmp_path) == 50
    assert read_best(tmp_path) == (20, 1.5)
    assert load_checkpoint(tmp_path) == (50, {"step": 50})
    assert load_checkpoint(tmp_path, "best") == (20, {"step": 20})
    assert load_checkpoint(tmp_path, 40) == (40, {"step": 40})


def test_a_step_can_be_kept_by_name(tmp_path: Path) -> None:
    for step in range(5):
        save_checkpoint(tmp_path, step, {}, keep=1)
    assert list_checkpoints(tmp_path) == [1, 3, 4]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, {"sweep": 1})
    save_checkpoint(tmp_path, 0, {"sweep": 2})
    assert load_checkpoint(tmp_path) == (0, {"sweep": 2})
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["0"]


def test_saving_the_same_state_again_touches_nothing(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 0, {"sweep": 1})
    before = (path / "header.json").stat().st_ino
    assert save_checkpoint(tmp_path, 0, {"sweep": 1}) == path
    assert (path / "header.json").stat().st_ino == before


def test_going_on_from_an_earlier_step_gives_up_the_later_ones(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_checkpoint(tmp_path, step, {}, keep=10)
    mark_best(tmp_path, 30, 2.0)
    discard_after(tmp_path, 10)
    assert list_checkpoints(tmp_path) == [10]
    assert read_best(tmp_path) is None


@pytest.mark.parametrize("name", ["9", "11"])
def test_a_checkpoint_in_the_folder_of_another_step_is_refused(name: str, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 10, {})
    path.rename(path.with_name(name))
    with pytest.raises(CheckpointError, match="it holds step 10"):
        load_checkpoint(tmp_path)


def test_going_on_from_the_best_checkpoint_keeps_it_the_best(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, step, {}, keep=10)
    mark_best(tmp_path, 10, 2.0)
    discard_after(tmp_path, 10)
    assert read_best(tmp_path) == (10, 2.0)


def test_a_run_killed_between_two_renames_is_still_found(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 0, {"sweep": 1})
    path.rename(path.with_name("0.old"))  # the moment between the two renames of a replacement
    assert load_checkpoint(tmp_path) == (0, {"sweep": 1})
    save_checkpoint(tmp_path, 0, {"sweep": 2})
    assert load_checkpoint(tmp_path) == (0, {"sweep": 2})
    assert os.listdir(tmp_path / "checkpoints") == ["0"]


def test_leftovers_are_ignored_and_cleaned_by_the_next_save(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {})
    for name in (".tmp-2", ".tmp-0.removed", "1.old"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert list_checkpoints(tmp_path) == [1]
    save_checkpoint(tmp_path, 3, {})
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["1", "3"]


# What is refused


def spoil_truncate_blob(path: Path) -> None:
    data = (path / "arrays.safetensors").read_bytes()
    (path / "arrays.safetensors").write_bytes(data[:-1])


def spoil_truncate_header(path: Path) -> None:
    data = (path / "header.json").read_bytes()
    (path / "header.json").write_bytes(data[: len(data) // 2])


def spoil_empty_header(path: Path) -> None:
    (path / "header.json").write_bytes(b"")


def spoil_longer_blob(path: Path) -> None:
    with open(path / "arrays.safetensors", "ab") as file:
        file.write(b"more")


def spoil_huge_blob(path: Path) -> None:
    os.truncate(path / "arrays.safetensors", 2**40)


def spoil_huge_header(path: Path) -> None:
    os.truncate(path / "header.json", 2**40)


def spoil_missing_blob(path: Path) -> None:
    (path / "arrays.safetensors").unlink()


def spoil_missing_header(path: Path) -> None:
    (path / "header.json").unlink()


class Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (66,)


def spoil_pickled_blob(path: Path) -> None:
    (path / "arrays.safetensors").write_bytes(pickle.dumps(Exploit()))
    reseal(path, lambda header: None)


def spoil_pickled_header(path: Path) -> None:
    (path / "header.json").write_bytes(pickle.dumps(Exploit()))


def spoil_torch_save(path: Path) -> None:
    torch.save({"weight": Exploit()}, path / "arrays.safetensors")
    reseal(path, lambda header: None)


def spoil_linked_blob(path: Path) -> None:
    (path / "arrays.safetensors").rename(path / "elsewhere")
    (path / "arrays.safetensors").symlink_to("elsewhere")


def spoil_linked_header(path: Path) -> None:
    (path / "header.json").rename(path / "elsewhere")
    (path / "header.json").symlink_to("elsewhere")


def spoil_linked_directory(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def spoil_fifo(path: Path) -> None:
    (path / "header.json").unlink()
    os.mkfifo(path / "header.json")


def spoil_directory_for_file(path: Path) -> None:
    (path / "arrays.safetensors").unlink()
    (path / "arrays.safetensors").mkdir()


def spoil_file_for_directory(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def spoil_schema(path: Path) -> None:
    reseal(path, lambda header: header.update(schema=999, libraries={"rlbook": "7.1.0"}))


def spoil_schema_type(path: Path) -> None:
    reseal(path, lambda header: header.update(schema={"a": [1]}))


def spoil_step(path: Path) -> None:
    reseal(path, lambda header: header.update(step=11))


def spoil_size(path: Path) -> None:
    reseal(path, lambda header: header["blobs"]["arrays.safetensors"].update(size="many"))


def spoil_blobs(path: Path) -> None:
    reseal(path, lambda header: header.update(blobs={"../../secret": {"size": 1, "sha256": ""}}))


def spoil_mark(path: Path) -> None:
    reseal(path, lambda header: header["state"].update(best={"$call": "os.system"}))


def spoil_reference(path: Path) -> None:
    reseal(path, lambda header: header["state"].update(best={"$array": "/nowhere"}))


def spoil_twice_the_same_reference(path: Path) -> None:
    reseal(path, lambda header: header["state"].update(best={"$array": "/agent/q"}))


def spoil_unreferenced(path: Path) -> None:
    reseal(path, lambda header: header["state"].pop("agent"))


def spoil_scalar(path: Path) -> None:
    reseal(path, lambda header: header["state"].update(best={"$scalar": ["int8", 1000]}))


def spoil_state_type(path: Path) -> None:
    reseal(path, lambda header: header.update(state=[1]))


def spoil_nesting(path: Path) -> None:
    seal(path, b'{"schema":1,"state":' + b"[" * 100_000 + b"]" * 100_000)


def spoil_milder_nesting(path: Path) -> None:
    def nest(header: dict[str, Any]) -> None:
        for _ in range(100):
            header["state"] = {"a": header["state"]}

    reseal(path, nest)


def spoil_not_json(path: Path) -> None:
    seal(path, b'{"schema":1,,')


def spoil_name_twice(path: Path) -> None:
    header = (path / "header.json").read_bytes()[: -len(b',\n"sha256":""}\n') - 64]
    seal(path, header + b',"step":10')


def spoil_configs(path: Path) -> None:
    reseal(path, lambda header: header.update(config="any"))


def spoil_long_number(path: Path) -> None:
    seal(path, b'{"schema":' + b"9" * 100_000)


def spoil_array_for_header(path: Path) -> None:
    seal(path, b'{"schema":NaN')


def replace_arrays(path: Path, change: Any) -> None:
    from safetensors.numpy import load, save

    loaded = load((path / "arrays.safetensors").read_bytes())
    change(loaded)
    (path / "arrays.safetensors").write_bytes(save(loaded))
    reseal(path, lambda header: None)


def spoil_nan_weight(path: Path) -> None:
    replace_arrays(path, lambda loaded: loaded["/agent/weight"].__setitem__((0, 0), np.nan))


def spoil_infinite_table(path: Path) -> None:
    replace_arrays(path, lambda loaded: loaded["/agent/q"].__setitem__((0, 0), -np.inf))


def spoil_nan_bfloat16(path: Path) -> None:
    # the bits of NaN
    replace_arrays(path, lambda loaded: loaded["/agent/bfloat16"].__setitem__(0, 0x7FC0))


def spoil_dtype(path: Path) -> None:
    replace_arrays(
        path,
        lambda loaded: loaded.update({"/agent/weight": loaded["/agent/weight"].astype(np.float64)}),
    )


def raw_safetensors(path: Path, header: bytes, data: bytes) -> None:
    (path / "arrays.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    reseal(path, lambda content: None)


def spoil_shape(path: Path) -> None:
    raw_safetensors(
        path,
        b'{"/agent/q":{"dtype":"F64","shape":[1000000000,1000000000],"data_offsets":[0,8]}}',
        bytes(8),
    )


def spoil_negative_shape(path: Path) -> None:
    raw_safetensors(
        path, b'{"/agent/q":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}', bytes(8)
    )


def spoil_unknown_dtype(path: Path) -> None:
    raw_safetensors(
        path, b'{"/agent/q":{"dtype":"PYTHON","shape":[1],"data_offsets":[0,8]}}', bytes(8)
    )


def spoil_overlap(path: Path) -> None:
    header = b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}'
    raw_safetensors(path, header, bytes(8))


def spoil_nested_safetensors(path: Path) -> None:
    raw_safetensors(path, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", bytes(8))


def spoil_header_length(path: Path) -> None:
    data = (path / "arrays.safetensors").read_bytes()
    (path / "arrays.safetensors").write_bytes((2**63).to_bytes(8, "little") + data[8:])
    reseal(path, lambda header: None)


def spoil_tiny_blob(path: Path) -> None:
    (path / "arrays.safetensors").write_bytes(b"\x01")
    reseal(path, lambda header: None)


SPOILERS = {
    name.removeprefix("spoil_"): function
    for name, function in list(globals().items())
    if name.startswith("spoil_")
}


@pytest.mark.parametrize("how", SPOILERS)
def test_a_spoilt_checkpoint_is_refused_at_once_with_one_sentence(saved: Path, how: str) -> None:
    SPOILERS[how](saved)
    start = time.monotonic()
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(saved.parent.parent)
    assert time.monotonic() - start < 2
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 400
    if how != "missing_header" and how != "file_for_directory":
        with pytest.raises(CheckpointError):
            load_checkpoint(saved)


@pytest.mark.parametrize("name", ["header.json", "arrays.safetensors"])
def test_every_flipped_bit_is_noticed(saved: Path, name: str) -> None:
    original = (saved / name).read_bytes()
    for index in range(0, len(original), max(1, len(original) // 200)):
        data = bytearray(original)
        data[index] ^= 1 << index % 8
        (saved / name).write_bytes(data)
        with pytest.raises(CheckpointError):
            load_checkpoint(saved)
    (saved / name).write_bytes(original)
    assert load_checkpoint(saved)[0] == 10


REASONS = {
    "truncate_blob": "do not match their checksum",
    "longer_blob": "at most",
    "huge_blob": "it has 1099511627776 bytes",
    "huge_header": "it has 1099511627776 bytes",
    "truncate_header": "cut short",
    "missing_blob": "arrays.safetensors is missing",
    "linked_blob": "is a link",
    "linked_header": "is a link",
    "linked_directory": "it is a link",
    "fifo": "not a regular file",
    "pickled_blob": "length of its header makes no sense",
    "pickled_header": "not a checkpoint header",
    "schema": (
        "its schema is 999, which rlbook 7.1.0 made, and this version of rlbook, .+, reads 2 and 3"
    ),
    "step": "it holds step 11",
    "size": "one of the wrong type",
    "name_twice": "it is not JSON",
    "configs": "one of the wrong type",
    "blobs": "one of the wrong type",
    "mark": "'\\$call' is a marker that this version does not know",
    "reference": "array /nowhere is missing",
    "twice_the_same_reference": "array /agent/q is missing",
    "unreferenced": "is not referenced",
    "scalar": "int8 cannot hold 1000",
    "state_type": "is not referenced",
    "nesting": "nested too deeply",
    "milder_nesting": "more than 64 levels deep",
    "nan_weight": "/agent/weight has NaN or infinite values",
    "infinite_table": "/agent/q has NaN or infinite values",
    "nan_bfloat16": "/agent/bfloat16 has NaN or infinite values",
    "dtype": "should be float32 but holds float64",
    "shape": "not a safetensors file",
    "header_length": "length of its header makes no sense",
}


@pytest.mark.parametrize("how", REASONS)
def test_the_reason_is_named(saved: Path, how: str) -> None:
    SPOILERS[how](saved)
    with pytest.raises(CheckpointError, match=REASONS[how]):
        load_checkpoint(saved.parent.parent, 10)


def test_a_resealed_checkpoint_loads_so_the_refusals_above_are_not_about_the_seal(
    saved: Path,
) -> None:
    replace_arrays(saved, lambda loaded: None)
    assert same(load_checkpoint(saved)[1], example_state())


def test_a_folder_without_what_was_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        load_checkpoint(tmp_path / "missing")
    save_checkpoint(tmp_path, 3, {})
    with pytest.raises(CheckpointError, match="no checkpoint of step 4; there are 3"):
        load_checkpoint(tmp_path, 4)
    with pytest.raises(CheckpointError, match="no best checkpoint"):
        load_checkpoint(tmp_path, "best")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"step": null}', b"[" * 900, pickle.dumps(1)])
def test_a_damaged_best_file_is_refused(tmp_path: Path, content: bytes) -> None:
    save_checkpoint(tmp_path, 3, {})
    (tmp_path / "checkpoints" / "best.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"best\.json is damaged"):
        load_checkpoint(tmp_path, "best")


# Accidents


def python(
    code: str, *arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    root = str(Path(checkpoints.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root} | (env or {})
    done = run_python(["-c", textwrap.dedent(code), *arguments], env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


def test_a_file_size_limit_leaves_the_old_checkpoint_and_says_so(tmp_path: Path) -> None:
    code = """
        import resource, sys, numpy as np
        from rlbook.runs.storage.checkpoints import CheckpointError, save_checkpoint
        save_checkpoint(sys.argv[1], 1, {"q": np.zeros(10)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for step in (1, 2):
            try:
                save_checkpoint(sys.argv[1], step, {"q": np.ones(10_000)})
            except CheckpointError as error:
                print(error)
    """
    sentences = python(code, tmp_path).stdout.splitlines()
    where = f"The checkpoint {tmp_path / 'checkpoints'}"
    assert sentences == [
        f"{where}/{step} was not written (file too large); the earlier ones are intact."
        for step in (1, 2)
    ]
    assert os.listdir(tmp_path / "checkpoints") == ["1"]
    step, state = load_checkpoint(tmp_path)
    assert step == 1 and (state["q"] == 0).all()


def test_an_interrupt_in_the_middle_of_writing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, 1, {"a": 1})

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 1, {"a": 2})
    assert os.listdir(tmp_path / "checkpoints") == ["1"]
    assert load_checkpoint(tmp_path) == (1, {"a": 1})


@pytest.mark.thorough
def test_killed_at_any_moment_a_loadable_checkpoint_remains(tmp_path: Path) -> None:
    code = """
        import sys, numpy as np
        from rlbook.runs.storage.checkpoints import latest_step, save_checkpoint
        first = (latest_step(sys.argv[1]) or 0) + 1
        for count in range(1_000_000):
            step = first + count // 2        # every step twice, with different arrays: creating and replacing
            save_checkpoint(sys.argv[1], step, {"step": step, "q": np.full(3000, count)})
            if count == 0:
                print("writing", flush=True)
    """
    save_checkpoint(tmp_path, 0, {"step": 0, "q": np.zeros(3000)})
    root = str(Path(checkpoints.__file__).parents[2])
    delays = np.random.default_rng(0).uniform(0.0, 0.03, size=20)
    last = 0
    for delay in delays:
        environment = os.environ | {"PYTHONPATH": root}
        process = WarmProcess(["-c", textwrap.dedent(code), tmp_path], env=environment)
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        step, state = load_checkpoint(tmp_path)
        # each process finished one save at least
        assert state["step"] == step > last and len(set(state["q"])) == 1
        last = step
    save_checkpoint(tmp_path, last + 1, {})
    assert len(os.listdir(tmp_path / "checkpoints")) == 2


def test_saved_integers_have_64_bits_and_a_sign() -> None:
    check_parts({"least": -(2**63), "most": 2**63 - 1}, "", None, None)
    for number in (-(2**63) - 1, 2**63):
        with pytest.raises(StateError, match=r"^a/0 is an integer that does not fit in 64 bits$"):
            check_parts({"a": [number]}, "", None, None)


def test_a_second_writer_is_turned_away(tmp_path: Path) -> None:
    code = """
        import sys
        from rlbook.runs.storage.checkpoints import CheckpointError, lock
        try:
            with lock(sys.argv[1]):
                print("got it")
        except CheckpointError as error:
            print(error)
    """
    with lock(tmp_path):
        assert python(code, tmp_path).stdout == f"{tmp_path} is being written by another process.\n"
    assert python(code, tmp_path).stdout == "got it\n"


def test_the_lock_does_not_hide_the_errors_of_its_body(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), lock(tmp_path):
        raise BlockingIOError


def test_a_file_of_arrays_is_read_as_safetensors_reads_it() -> None:
    arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in DTYPES}
    arrays |= {"none": np.zeros((0, 4), np.float32), "one": np.array(7.5)}
    found = load_arrays(
        bytearray(safetensors.numpy.save(arrays, metadata={"format": "np"})), Path("file")
    )
    assert found.keys() == arrays.keys() and all(same(found[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]},
        {"dtype": "O", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0.0, 8.0]},
        {"dtype": "F32", "shape": [2]},
        [],
        None,
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "more": 1},
        {"dtype": "F32", "shape": [2**62, 2], "data_offsets": [0, 8]},
    ],
)
def test_a_header_of_arrays_that_contradicts_its_bytes_is_refused(entry: Any) -> None:
    for entries in (
        {"a": entry},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": entry},
        [entry],
    ):
        text = json.dumps(entries).encode()
        with pytest.raises(CheckpointError, match="it is not a safetensors file of arrays"):
            load_arrays(bytearray(struct.pack("<Q", len(text)) + text + bytes(8)), Path("file"))


def test_loading_takes_the_memory_of_the_arrays_and_no_more(tmp_path: Path) -> None:
    state = {str(index): np.ones(2**18) for index in range(8)}  # 16 MiB
    save_checkpoint(tmp_path, 1, state)
    tracemalloc.start()
    _, found = load_checkpoint(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert same(found, state) and peak < 1.2 * 2**24


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.Dict(a=spaces.Text(4)))),
        spaces.Text(4),
        spaces.OneOf((spaces.Discrete(2), spaces.MultiBinary(2))),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.MultiDiscrete([2, 3]),
        spaces.Box(0, 255, (2, 2), np.uint8),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_saved_observation_of_any_space_is_one_of_it(space: spaces.Space) -> None:
    space.seed(0)
    for _ in range(5):
        check_shown(space, space.sample(), "obs")
    for forged in ([0, 1], (0, 1, 2, 3), "forged", {"a": 0}, None):
        with pytest.raises(StateError, match=r"^obs\S* is not an observation of "):
            check_shown(space, forged, "obs")


def test_a_search_run_loads_where_observations_are_tuples(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rlbook.train("mcts", "Blackjack-v1", simulations=4, steps=3, eval_every=0, out=folder)
    assert len(rlbook.load(folder).evaluate(episodes=2).returns) == 2
