"""Validates a local Hugging Face folder before transformers reads it: no code, no pickle, no
download, no file outside it.

A folder may come from a stranger. `folder_settings` reads its config.json, `check_folder` compares
what that says with the headers of the weight files, and only then does
`rlbook.llm.models.sources.folder_model` load anything.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_JSON = 64 * 2**20  # bytes of config.json, of an index
# of a model and its tokenizer; a README may change
CONTENT = (
    ".json",
    ".safetensors",
    ".txt",
    ".model",
    ".jinja",
)
ATTENTION = (None, "eager", "sdpa")  # what transformers brings along
LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
MOST_LAYERS = 1_000  # of a model without weights
WEIGHT_FILES = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".gguf",
    ".onnx",
    ".npz",
    ".pkl",
    ".pickle",
    ".tflite",
)
BUFFER_LIMIT = 2**28  # numbers in a model's buffers, such as GPT-2's causal mask


class FolderError(ValueError):
    """A folder does not contain a causal LM that can be loaded; one sentence says why."""


def folder_settings(folder: str | Path) -> dict[str, Any]:
    """`config.json` of a local model folder.

    Raises:
        FolderError: no such folder, or no readable `config.json` in it. A hub name is never looked
            up.
    """
    try:
        settings = read_json(Path(folder) / "config.json")
    except (OSError, ValueError, RecursionError) as error:
        wanted = "must be a local Hugging Face causal LM folder with a readable config.json"
        raise FolderError(f"model: {str(folder)!r} {wanted}{_other_kind(Path(folder))}") from error
    if not isinstance(settings, dict):
        raise FolderError(f"model: config.json in {str(folder)!r} must hold a JSON object")
    return settings


def _other_kind(folder: Path) -> str:
    """What a folder without a config.json contains instead, and where it belongs; the end of a
    sentence."""
    if not folder.is_dir():
        return "; there is no such folder, and nothing is downloaded"
    if (folder / "adapter_config.json").exists():
        return (
            "; this is an adapter: name the model that it was trained on, and it as model.adapter"
        )
    if (folder / "config.yaml").exists():
        return "; this is a run: name it as start, or convert it to a model with `rlbook export`"
    return ""


def has_weights(folder: str | Path) -> bool:
    """Whether the folder contains a weight file of any format; a folder with only config.json does
    not."""
    return any(
        path.suffix in WEIGHT_FILES or path.name.endswith(".index.json")
        for path in Path(folder).iterdir()
    )


CAUSAL, CLASSIFIER = "AutoModelForCausalLM", "AutoModelForSequenceClassification"
"""Kinds of models, by transformers' names."""


def check_folder(folder: str | Path, kind: str = CAUSAL) -> None:
    """Raises FolderError unless the folder contains a complete causal LM, or another kind of model,
    in safetensors files."""
    settings = folder_settings(folder)
    if (Path(folder) / "adapter_config.json").exists():
        _refuse(
            folder,
            "holds an adapter of another model; name that model, and the adapter as"
            " ModelSpec(folder=..., adapter=...)",
        )
    check_settings(folder, settings)
    shapes = weight_shapes(Path(folder))
    for name, value in _entries(settings):
        if name in LAYERS and not (type(value) is int and 1 <= value <= len(shapes)):
            _refuse(
                folder,
                f"has {name} {str(value)[:40]} in its config.json and {len(shapes)} weights in its"
                " files",
            )
    _check_size(folder, shapes, kind)


def check_settings(folder: str | Path, settings: Mapping[str, Any]) -> None:
    """Raises FolderError if a config.json requires something that is not supported; `folder` is its
    name in the message."""
    for entry in ("transformers_weights", "quantization_config"):
        if entry in settings:
            _refuse(folder, f"has {entry!r} in its config.json, which is not supported")
    for name, value in _entries(settings):
        if "attn_implementation" in name and value not in ATTENTION:
            allowed = "'eager' and 'sdpa' are available, and none is downloaded"
            _refuse(folder, f"asks for the attention implementation {str(value)[:80]!r}; {allowed}")


def check_new(folder: str | Path, settings: Mapping[str, Any]) -> None:
    """Raises FolderError unless a new model can be built from a config.json without weights."""
    check_settings(folder, settings)
    for name, value in _entries(settings):
        if name in LAYERS and not (type(value) is int and 1 <= value <= MOST_LAYERS):
            _refuse(
                folder,
                f"has {name} {str(value)[:40]} in its config.json; without weights, 1 to"
                f" {MOST_LAYERS:,} are allowed",
            )


def folder_digest(folder: str | Path, *, weights: bool = True) -> str:
    """The sha256 of everything that determines the model and its tokens: the settings and the
    tokenizer's files, each with its name, and the weights, unless only the tokens matter.

    Raises:
        FolderError: a file cannot be read.
    """
    hashed = hashlib.sha256()
    kinds = [suffix for suffix in CONTENT if weights or suffix != ".safetensors"]
    try:
        for path in sorted(
            path for path in Path(folder).iterdir() if path.suffix in kinds and path.is_file()
        ):
            with path.open("rb") as file:
                hashed.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        _refuse(folder, f"cannot be read ({error.strerror})")
    return hashed.hexdigest()


def check_loaded(folder: str | Path, info: dict[str, Any]) -> None:
    """Raises FolderError if weights were missing, unexpected or of the wrong shape; `info` is
    transformers' loading info."""
    complaints = {
        "missing_keys": "lacks the weight",
        "mismatched_keys": "has another shape of the weight",
        "unexpected_keys": "has a weight that its config.json has no place for,",
        "error_msgs": "could not be loaded:",
    }
    for kind, complaint in complaints.items():
        names = sorted(str(item[0] if isinstance(item, tuple) else item) for item in info[kind])
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            _refuse(folder, f"{complaint} {names[0][:80]}{more}")


def _check_size(folder: str | Path, shapes: dict[str, list[int]], kind: str) -> None:
    """Checks that the model described by config.json is no larger than its files."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    needed, beside = described_size(config, kind)
    held = sum(math.prod(shape) for shape in shapes.values())
    if needed > held:
        _refuse(folder, f"describes a model of {needed:,} weights, but its files hold {held:,}")
    if beside > BUFFER_LIMIT:
        _refuse(folder, "describes a model with more than 2^28 numbers beside its weights")


def described_size(config: PreTrainedConfig, kind: str = CAUSAL) -> tuple[int, int]:
    """The number of weights and of other elements in the model of a `transformers` config, which is
    built without allocating memory."""
    import torch
    import transformers

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = getattr(transformers, kind).from_config(config, trust_remote_code=False)
    return sum(weight.numel() for weight in model.parameters()), sum(
        buffer.numel() for buffer in model.buffers()
    )


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Weight name → shape, from the headers of the safetensors files."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, "np") as weights:
                shapes |= {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            _refuse(folder, f"has a damaged file {path.name} ({str(error)[:80]})")
    return shapes


def weight_files(folder: Path) -> Iterator[Path]:
    """The weight files. An index may name only safetensors files in the same folder."""
    if not (folder / INDEX).is_file() or (folder / WEIGHTS).is_file():
        if not (folder / WEIGHTS).is_file():
            _refuse(folder, f"has no file named {WEIGHTS}")
        yield folder / WEIGHTS
        return
    try:
        names = set(read_json(folder / INDEX)["weight_map"].values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        _refuse(folder, f"has a damaged {INDEX}")
    for name in sorted(map(str, names)):
        if not name.endswith(".safetensors") or Path(name).name != name:
            _refuse(
                folder,
                f"names {name[:80]!r} in its {INDEX}, which is not a safetensors file of the folder",
            )
        if not (folder / name).is_file():
            _refuse(folder, f"has no file named {name[:80]}")
        yield folder / name


def _entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields every name and value, including those of nested settings."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _entries(value)
        yield name, value


def read_json(path: Path) -> Any:
    """Parses a JSON file. Symbolic links to regular files are followed, because a Hugging Face
    cache consists of them."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_JSON:
            raise ValueError(f"{path} is not a regular file of at most {MAX_JSON} bytes")
        return json.loads(file.read(MAX_JSON))


def _refuse(folder: str | Path, reason: str) -> NoReturn:
    raise FolderError(f"model: {str(folder)!r} {reason}") from None
