"""The model of a server: its name, its tokenizer, and loading new weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlbook.checks import parse_json
from rlbook.llm.models.model_folder import FolderError, check_folder, weight_files
from rlbook.llm.tokenizers.tokenizer import Codec


@dataclass
class ServedModel:
    """A causal language model and its metadata."""

    model: Any
    codec: Codec
    name: str
    context: int  # tokens of a prompt and its answer
    version: int = 0  # how often the weights were replaced

    @property
    def fingerprint(self) -> str:
        """Changes with the weights."""
        return f"rlbook-{self.name}-{self.version}"

    @torch.no_grad()
    def load_weights(self, folder: str) -> None:
        """Replaces the weights with those of a Hugging Face folder, all of them or none.

        Raises:
            ValueError: the folder holds no model, or one of other names or shapes.
        """
        from safetensors.torch import load_file

        check_folder(folder)
        self._check_output_layer(folder)
        weights: dict[str, torch.Tensor] = {}
        for file in weight_files(Path(folder)):
            weights |= load_file(file)
        own = dict(self.model.named_parameters(remove_duplicate=False))
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or {})
        missing = sorted(own.keys() - weights.keys() - tied)
        strange = sorted(weights.keys() - own.keys() - {*dict(self.model.named_buffers())})
        if missing or strange:
            what = f"lacks the weight {missing[0]}" if missing else f"has a weight {strange[0]}"
            raise FolderError(f"model: {folder!r} {what}, unlike the model that is served")
        for name, weight in weights.items():
            if name in own and own[name].shape != weight.shape:
                raise FolderError(
                    f"model: {folder!r} has {name} of shape {list(weight.shape)}, and the model that"
                    f" is served {list(own[name].shape)}"
                )
            if not weight.isfinite().all():
                raise FolderError(f"model: {folder!r} has weights that are NaN or infinite")
        for name, weight in weights.items():
            if name in own:
                own[name].copy_(weight)
        self.version += 1

    def _check_output_layer(self, folder: str) -> None:
        """Raises FolderError if the folder's model has an output layer of its own, and the served
        one shares it with the embedding."""
        own = self.model.config
        sent = parse_json((Path(folder) / "config.json").read_bytes())
        same = own.tie_word_embeddings and sent.get("model_type") == own.model_type
        if same and not type(own).from_dict(sent).tie_word_embeddings:
            raise FolderError(
                f"model: the output layer of {folder!r} is its own, as after training an adapter on"
                " it, but that of the model that is served is its embedding; leave the output layer"
                " out of the adapter's target_modules, or serve a model with"
                " tie_word_embeddings false"
            )
