"""Encodes a `State` as JSON plus named arrays, and decodes it; only plain data is allowed.

Each array becomes {"$array": "/path/in/the/state"} in the JSON and one entry of that name among the
arrays. The other things JSON has no word for are marked in the same way: "$tensor", "$scalar" (a
numpy scalar), "$float" (nan, inf), "$tuple", "$dict" (keys with a $), and "$frozen" (a `FrozenPart`
part, by the sha256 of its arrays, which are kept in a file of their own).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rlbook.agent import FrozenPart, State
from rlbook.runs.storage import array_files
from rlbook.runs.storage.array_files import PIECE, ArrayFile, Arrays

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = frozenset(dtype.name for dtype in array_files.DTYPES.values())
MAX_DEPTH = 64


class StateError(ValueError):
    """A value cannot be stored, or stored data is not a state; one sentence says which and why."""


@dataclass(frozen=True)
class _EncoderState:
    """The state of the encoder."""

    arrays: Arrays = field(default_factory=dict)
    # sha256 → arrays; None: frozen parts are treated as any other
    frozen: dict[str, Arrays] | None = None


def encode(state: State) -> tuple[object, Arrays]:
    """The state as plain JSON types, and copies of its arrays by name. Raises StateError for
    anything but data."""
    found = _EncoderState()
    return _encode(state, "", 0, found), found.arrays


def encode_apart(state: State) -> tuple[object, Arrays, dict[str, Arrays]]:
    """As `encode`, with the arrays of frozen parts returned separately: sha256 → arrays. Arrays are
    not copied."""
    found = _EncoderState(frozen={})
    skeleton = _encode(state, "", 0, found)
    assert found.frozen is not None
    return skeleton, found.arrays, found.frozen


@dataclass(frozen=True)
class _DecoderState:
    """The arrays that the decoder has not used yet."""

    arrays: Arrays
    frozen: Callable[[str], Arrays] | None


def decode(
    skeleton: object, arrays: Arrays, frozen: Callable[[str], Arrays] | None = None
) -> State:
    """The inverse of `encode`; every array must be used exactly once. `frozen` reads the arrays of
    a frozen part by their sha256."""
    left = _DecoderState(dict(arrays), frozen)
    state = _decode(skeleton, 0, left)
    if left.arrays:
        raise StateError(f"the array {min(left.arrays)} is not referenced")
    if not isinstance(state, dict):
        raise StateError(f"the state is a {type(state).__name__}, not a dict")
    return state


def _encode(value: object, where: str, depth: int, found: _EncoderState) -> object:
    _check_depth(depth, where)
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) is list:
        return [
            _encode(item, f"{where}/{index}", depth + 1, found) for index, item in enumerate(value)
        ]
    if type(value) is tuple:
        return {
            "$tuple": [
                _encode(item, f"{where}/{index}", depth + 1, found)
                for index, item in enumerate(value)
            ]
        }
    if isinstance(value, FrozenPart) and value and found.frozen is not None:
        return _encode_frozen(value, depth, found.frozen)
    if isinstance(value, dict):
        return _encode_dict(value, where, depth, found)
    if isinstance(value, np.generic):
        return {
            "$scalar": [_dtype(value.dtype, where), _encode(value.item(), where, depth + 1, found)]
        }
    if isinstance(value, np.ndarray):
        _dtype(value.dtype, where)
        return {"$array": _store(np.asarray(value, order="C"), where, found)}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_tensor(cast("Tensor", value), where, found)
    raise StateError(
        f"{where} is a {type(value).__name__}, which is not stored: use numbers, strings, arrays,"
        " tensors, lists and dicts"
    )


def _encode_dict(value: dict[Any, Any], where: str, depth: int, found: _EncoderState) -> object:
    for key in value:
        if type(key) is not str:
            raise StateError(f"{where or '/'} has the key {key!r}, but keys are strings")
    items = {key: _encode(value[key], f"{where}/{_escape(key)}", depth + 1, found) for key in value}
    return {"$dict": items} if any(key.startswith("$") for key in items) else items


def _encode_frozen(value: FrozenPart, depth: int, frozen: dict[str, Arrays]) -> object:
    part = _EncoderState(frozen={})
    skeleton = _encode(dict(value), "", depth + 1, part)
    if value.sha256 is None:
        value.sha256 = ArrayFile.from_arrays(part.arrays).sha256()
    frozen[value.sha256] = part.arrays
    return {"$frozen": value.sha256, "state": skeleton}


def _encode_tensor(value: Tensor, where: str, found: _EncoderState) -> object:
    import torch

    if value.layout is not torch.strided or value.is_quantized:
        raise StateError(f"{where} is a sparse or quantised tensor, which is not stored")
    tensor = value.detach().cpu().resolve_neg().contiguous()
    if tensor.dtype is torch.bfloat16:
        bits = tensor.view(torch.int16).numpy().view(np.uint16)
        _check_finite_bfloat16(bits, where)
        return {"$tensor": _store(bits, where, found), "dtype": "bfloat16"}
    name = _dtype(str(tensor.dtype).removeprefix("torch."), where)
    return {"$tensor": _store(tensor.numpy(), where, found), "dtype": name}


def _store(array: np.ndarray, where: str, found: _EncoderState) -> str:
    _check_finite(array, where)
    found.arrays[where] = array if found.frozen is not None else array.copy()
    return where


def _decode(value: object, depth: int, left: _DecoderState) -> Any:
    _check_depth(depth, "the state")
    if isinstance(value, list):
        return [_decode(item, depth + 1, left) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next((key for key in value if key.startswith("$")), None)
    if mark is None:
        return {key: _decode(item, depth + 1, left) for key, item in value.items()}
    return _decode_marked(mark, value, depth, left)


def _decode_marked(mark: str, value: dict[str, Any], depth: int, left: _DecoderState) -> Any:
    content = value[mark]
    if mark == "$tensor" and set(value) == {"$tensor", "dtype"}:
        return _decode_tensor(_take(content, left), value["dtype"], content)
    if mark == "$frozen" and isinstance(content, str):
        return _decode_frozen(content, value, depth, left)
    if len(value) == 1:
        if mark == "$array":
            return _require_finite(_take(content, left), content)
        if (
            mark == "$scalar"
            and isinstance(content, list)
            and len(content) == 2
            and content[0] in DTYPES
        ):
            return _decode_scalar(content[0], _decode(content[1], depth + 1, left))
        if mark == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if mark == "$tuple" and isinstance(content, list):
            return tuple(_decode(item, depth + 1, left) for item in content)
        if mark == "$dict" and isinstance(content, dict):
            return {key: _decode(item, depth + 1, left) for key, item in content.items()}
    raise StateError(f"{mark[:40]!r} is a marker that this version does not know")


def _decode_frozen(
    sha256: str, value: dict[str, Any], depth: int, left: _DecoderState
) -> FrozenPart:
    if set(value) != {"$frozen", "state"} or left.frozen is None:
        raise StateError("'$frozen' refers to arrays that are not available here")
    apart = _DecoderState(left.frozen(sha256), None)
    part = _decode(value["state"], depth + 1, apart)
    if apart.arrays or not isinstance(part, dict):
        raise StateError(f"the frozen part {sha256[:12]} is not what its file holds")
    return FrozenPart(part)


def _decode_tensor(bits: np.ndarray, dtype: object, where: str) -> Any:
    is_bfloat16 = dtype == "bfloat16" and bits.dtype == np.uint16
    if is_bfloat16:
        _check_finite_bfloat16(bits, where)
    elif dtype != bits.dtype.name:
        raise StateError(
            f"the tensor {where} should be {str(dtype)[:40]} but holds {bits.dtype.name}"
        )
    _check_finite(bits, where)
    import torch

    return (
        torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
        if is_bfloat16
        else torch.from_numpy(bits)
    )


def _decode_scalar(dtype: str, value: object) -> np.generic:
    if type(value) not in (bool, int, float):
        raise StateError(f"a {dtype} cannot hold {str(value)[:40]!r}")
    try:
        return np.dtype(dtype).type(value)
    except (OverflowError, ValueError) as error:
        raise StateError(f"a {dtype} cannot hold {str(value)[:40]}") from error


def _take(name: object, left: _DecoderState) -> np.ndarray:
    if not isinstance(name, str) or name not in left.arrays:
        raise StateError(f"the array {str(name)[:80]} is missing")
    array = left.arrays.pop(name)
    if array.dtype.name not in DTYPES:
        raise StateError(f"the array {name} has the dtype {array.dtype}, which is not stored")
    return array if array.flags.writeable else array.copy()


def _require_finite(array: np.ndarray, where: str) -> np.ndarray:
    _check_finite(array, where)
    return array


def _check_finite(array: np.ndarray, where: str) -> None:
    if array.dtype.kind != "f":
        return
    flat = array.reshape(-1)
    if not all(
        np.isfinite(flat[start : start + PIECE]).all() for start in range(0, flat.size, PIECE)
    ):
        raise StateError(f"{where} has NaN or infinite values")


def _check_finite_bfloat16(bits: np.ndarray, where: str) -> None:
    exponent = np.uint16(0x7F80)  # all eight exponent bits set means NaN or infinity
    if ((bits & exponent) == exponent).any():
        raise StateError(f"{where} has NaN or infinite values")


def _check_depth(depth: int, where: str) -> None:
    if depth > MAX_DEPTH:
        raise StateError(f"{where[:80]} is nested more than {MAX_DEPTH} levels deep")


def _dtype(dtype: object, where: str) -> str:
    name = str(dtype)  # a foreign byte order shows up here as ">f8"
    if name not in DTYPES:
        raise StateError(
            f"{where} has the dtype {name}, which is not stored; it should be one of"
            f" {', '.join(sorted(DTYPES))}"
        )
    return name


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
