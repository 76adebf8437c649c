"""A `State` as JSON plus named arrays, and back; nothing but data goes in or comes out.

Each array becomes {"$array": "/path/in/the/state"} in the JSON and one entry of that name among the arrays. The other things JSON has
no word for are marked in the same way: "$tensor", "$scalar" (a numpy scalar), "$float" (nan, inf), "$tuple", "$dict" (keys with a $).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from rlbook.agent import State

DTYPES = frozenset(["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"])
MAX_DEPTH = 64
Arrays = dict[str, np.ndarray]


class StateError(ValueError):
    """A value that cannot be stored, or stored data that is not a state; one sentence says which and why."""


def encode(state: State) -> tuple[Any, Arrays]:
    """The state as plain JSON types, and its arrays by name. Raises StateError for anything that is not data."""
    arrays: Arrays = {}
    return _encode(state, "", 0, arrays), arrays


def decode(skeleton: Any, arrays: Arrays) -> State:
    """The inverse of `encode`; every array must be asked for exactly once."""
    left = dict(arrays)
    state = _decode(skeleton, 0, left)
    if left:
        raise StateError(f"the array {min(left)} belongs to nothing")
    if not isinstance(state, dict):
        raise StateError(f"the state is a {type(state).__name__}, not a dict")
    return state


def _encode(value: Any, where: str, depth: int, arrays: Arrays) -> Any:
    _check_depth(depth, where)
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) is list:
        return [_encode(item, f"{where}/{index}", depth + 1, arrays) for index, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [_encode(item, f"{where}/{index}", depth + 1, arrays) for index, item in enumerate(value)]}
    if isinstance(value, dict):
        return _encode_dict(value, where, depth, arrays)
    if isinstance(value, np.generic):
        return {"$scalar": [_dtype(value.dtype, where), _encode(value.item(), where, depth + 1, arrays)]}
    if isinstance(value, np.ndarray):
        _dtype(value.dtype, where)
        return {"$array": _store(np.array(value, order="C"), where, arrays)}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_tensor(value, where, arrays)
    raise StateError(f"{where} is a {type(value).__name__}, which is not stored: use numbers, strings, arrays, tensors, lists and dicts")


def _encode_dict(value: dict[Any, Any], where: str, depth: int, arrays: Arrays) -> Any:
    for key in value:
        if type(key) is not str:
            raise StateError(f"{where or '/'} has the key {key!r}, but keys are strings")
    items = {key: _encode(value[key], f"{where}/{_escaped(key)}", depth + 1, arrays) for key in value}
    return {"$dict": items} if any(key.startswith("$") for key in items) else items


def _encode_tensor(value: Any, where: str, arrays: Arrays) -> Any:
    import torch

    if value.layout is not torch.strided or value.is_quantized:
        raise StateError(f"{where} is a sparse or quantised tensor, which is not stored")
    tensor = value.detach().cpu().resolve_neg().contiguous()
    if tensor.dtype is torch.bfloat16:
        bits = tensor.view(torch.int16).numpy().view(np.uint16)
        _check_finite_bfloat16(bits, where)
        return {"$tensor": _store(bits.copy(), where, arrays), "dtype": "bfloat16"}
    name = _dtype(str(tensor.dtype).removeprefix("torch."), where)
    return {"$tensor": _store(tensor.numpy().copy(), where, arrays), "dtype": name}


def _store(array: np.ndarray, where: str, arrays: Arrays) -> str:
    _check_finite(array, where)
    arrays[where] = array
    return where


def _decode(value: Any, depth: int, left: Arrays) -> Any:
    _check_depth(depth, "the state")
    if isinstance(value, list):
        return [_decode(item, depth + 1, left) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next((key for key in value if key.startswith("$")), None)
    if mark is None:
        return {key: _decode(item, depth + 1, left) for key, item in value.items()}
    return _decode_marked(mark, value, depth, left)


def _decode_marked(mark: str, value: dict[str, Any], depth: int, left: Arrays) -> Any:
    content = value[mark]
    if mark == "$tensor" and set(value) == {"$tensor", "dtype"}:
        return _decode_tensor(_take(content, left), value["dtype"], content)
    if len(value) == 1:
        if mark == "$array":
            return _finite(_take(content, left), content)
        if mark == "$scalar" and isinstance(content, list) and len(content) == 2 and content[0] in DTYPES:
            return _decode_scalar(content[0], _decode(content[1], depth + 1, left))
        if mark == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if mark == "$tuple" and isinstance(content, list):
            return tuple(_decode(item, depth + 1, left) for item in content)
        if mark == "$dict" and isinstance(content, dict):
            return {key: _decode(item, depth + 1, left) for key, item in content.items()}
    raise StateError(f"{mark[:40]!r} marks nothing that this version knows")


def _decode_tensor(bits: np.ndarray, dtype: Any, where: str) -> Any:
    is_bfloat16 = dtype == "bfloat16" and bits.dtype == np.uint16
    if is_bfloat16:
        _check_finite_bfloat16(bits, where)
    elif dtype != bits.dtype.name:
        raise StateError(f"the tensor {where} should be {str(dtype)[:40]} but holds {bits.dtype.name}")
    _check_finite(bits, where)
    import torch

    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16) if is_bfloat16 else torch.from_numpy(bits)


def _decode_scalar(dtype: str, value: Any) -> np.generic:
    if type(value) not in (bool, int, float):
        raise StateError(f"a {dtype} cannot be {str(value)[:40]!r}")
    try:
        return np.dtype(dtype).type(value)
    except (OverflowError, ValueError) as error:
        raise StateError(f"a {dtype} cannot be {str(value)[:40]}") from error


def _take(name: Any, left: Arrays) -> np.ndarray:
    if not isinstance(name, str) or name not in left:
        raise StateError(f"the array {str(name)[:80]} is missing")
    array = left.pop(name)
    if array.dtype.name not in DTYPES:
        raise StateError(f"the array {name} has the dtype {array.dtype}, which is not stored")
    return array if array.flags.writeable else array.copy()


def _finite(array: np.ndarray, where: str) -> np.ndarray:
    _check_finite(array, where)
    return array


def _check_finite(array: np.ndarray, where: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise StateError(f"{where} has NaN or infinite values")


def _check_finite_bfloat16(bits: np.ndarray, where: str) -> None:
    exponent = np.uint16(0x7F80)             # all eight exponent bits set means NaN or infinity
    if ((bits & exponent) == exponent).any():
        raise StateError(f"{where} has NaN or infinite values")


def _check_depth(depth: int, where: str) -> None:
    if depth > MAX_DEPTH:
        raise StateError(f"{where[:80]} is nested more than {MAX_DEPTH} levels deep")


def _dtype(dtype: Any, where: str) -> str:
    name = str(dtype)                        # a foreign byte order shows up here as ">f8"
    if name not in DTYPES:
        raise StateError(f"{where} has the dtype {name}, which is not stored; it should be one of {', '.join(sorted(DTYPES))}")
    return name


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
