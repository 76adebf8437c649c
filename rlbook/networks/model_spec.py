"""Which model an agent starts from: the settings that the environment's spaces do not determine.

The spaces choose the kind of network (`rlbook.networks.build`): vectors an MLP, images a small
convolution, tokens a causal language model. A `ModelSpec` says with which weights it starts, which
of them are trained, in which numbers and where.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlbook.checks import Kind, boolean, check, did_you_mean, import_object, one_of, optional

FOUR_BIT = "4bit"
DTYPES = ("float32", "float64", "bfloat16", FOUR_BIT)
COMPUTE = ("float32", "bfloat16")
NETWORKS = ("small", "nature", "impala")
DEVICES = ("cpu", "cuda", "cuda:0", "cuda:1", "auto")
"""Examples of what `DEVICE` allows."""
DEVICE = Kind(
    "one of cpu, cuda, cuda:N (the GPU with number N, from 0 on), auto",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch("cpu|auto|cuda(:(0|[1-9][0-9]{0,2}))?", value) is not None
    ),
    lambda value: did_you_mean(value, DEVICES, " ({})"),
)
NETWORK = Kind(
    f"one of {', '.join(NETWORKS)}, or module:Class of your own",
    lambda value: isinstance(value, OwnNetwork) or value in NETWORKS or _is_place(value),
    lambda value: did_you_mean(value, NETWORKS),
)
PARTS = ("all", "adapter", "head")
"""The possible values of `trainable` besides patterns."""


@dataclass(frozen=True)
class OwnNetwork:
    """A network of the user's own; see `rlbook.networks.own_network`."""

    name: str
    """Its import path, "module:Class"."""
    make: Callable[..., Any] = field(compare=False)
    """The class, or a function: a space and the arguments → an `nn.Module`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


Named = str | OwnNetwork
"""A network by its name, or the user's own."""


@dataclass(frozen=True)
class ModelSpec:
    """The model for an actor, a critic, a reference policy or a reward.

    Raises:
        ValueError: a field has a value that it cannot have, or two of them contradict each other.
    """

    folder: str | None = None
    """A local Hugging Face folder: config.json, a tokenizer, and safetensors weights. If it has no
    weights, they are initialised at random from the run's seed."""
    config: Mapping[str, object] | None = None
    """Instead of a folder: the sizes of a language model for the task's own characters, by their
    names in config.json. Llama unless `model_type` names another. Weights are random."""
    adapter: str | Mapping[str, object] | None = None
    """LoRA: the folder of an adapter in peft's format, or the settings of a new one, such as `{"r":
    8}`; see `rlbook.llm.models.lora`. Other settings, such as `modules_to_save`, are passed to
    peft."""
    trainable: str | tuple[str, ...] | None = None
    """The trainable part: "all", "adapter", "head" (the last layer), or patterns of parameters'
    names, such as `("*.layers.1.*",)`. None: the adapter if there is one, otherwise all."""
    dtype: str = "float32"
    """The dtype of the weights: "float32", "float64" or "bfloat16"; or "4bit", a folder's weights,
    frozen below an adapter, in four bits each, through bitsandbytes on a GPU."""
    compute: str | None = None
    """The dtype of matrix products: "bfloat16" keeps float32 weights and rounds the factors of each
    product (autocast; `bf16=True` of transformers' trainers). None: that of the weights. See
    `rlbook.llm.models.compute`."""
    gradient_checkpointing: bool = False
    """Whether a language model stores only each layer's input, and recomputes the layer for the
    gradient: less memory for more time."""
    network: Any = None
    """The image filters by name: "small", "nature" or "impala"; see `rlbook.networks.cnn`. Or the
    user's own network, a class or "module:Class"; see `rlbook.networks.own_network`. None: chosen
    by the size of the image."""
    network_kwargs: Mapping[str, Any] | None = None
    """Arguments of the user's own network, besides the space."""
    device: str | None = None
    """The same as the run's option `device`."""

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", _path("folder", self.folder))
        if self.adapter is not None and not isinstance(self.adapter, Mapping):
            object.__setattr__(self, "adapter", _path("adapter", self.adapter))
        if self.folder is not None and self.config is not None:
            raise ValueError("a model needs a folder or a config, but both were given")
        if self.config is not None and not isinstance(self.config, Mapping):
            raise ValueError(f"config must be a mapping of sizes, got {self.config!r}")
        check("dtype", self.dtype, one_of(*DTYPES))
        if self.dtype == FOUR_BIT and self.adapter is None:
            raise ValueError("dtype 4bit requires an adapter: quantised weights cannot be trained")
        check("compute", self.compute, optional(one_of(*COMPUTE)))
        if self.compute is not None and self.dtype not in (self.compute, "float32"):
            raise ValueError(
                f"compute {self.compute} needs weights of dtype float32, got dtype {self.dtype}"
            )
        check("gradient_checkpointing", self.gradient_checkpointing, boolean)
        self._check_network()
        check("device", self.device, optional(DEVICE))
        self._check_trainable()

    def _check_network(self) -> None:
        network, arguments = self.network, self.network_kwargs
        if callable(network):
            if not hasattr(network, "__qualname__"):  # such as a module that is already made
                raise ValueError(
                    "network must be a class, or a named function, that creates the network "
                    f"from a space, got a {type(network).__name__}"
                )
            network = OwnNetwork(f"{network.__module__}:{network.__qualname__}", network)
        check("network", network, optional(NETWORK))
        if isinstance(network, OwnNetwork):
            network = dataclasses.replace(network, arguments=arguments or {})
        object.__setattr__(self, "network", network)
        if arguments is None:
            return
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise ValueError(f"network_kwargs must be a mapping by names, got {arguments!r}"[:300])
        if not isinstance(network, OwnNetwork) and not self.names_own_network:
            raise ValueError("network_kwargs are for a network of your own; give network, too")

    @property
    def names_own_network(self) -> bool:
        """Whether `network` names a class that has not been imported."""
        return _is_place(self.network)

    def import_network(self, *, allow_import: bool) -> ModelSpec:
        """The same model with the class that `network` names. Raises RequestError if it may not be,
        or cannot be, imported."""
        if not self.names_own_network:
            return self
        place = str(self.network)
        made: Any = import_object("network", place, allow_import=allow_import)
        return dataclasses.replace(self, network=OwnNetwork(place, made))

    def _check_trainable(self) -> None:
        asked = self.trainable
        if isinstance(asked, list):
            asked = tuple(asked)
            object.__setattr__(self, "trainable", asked)
        if isinstance(asked, tuple):
            if not asked or not all(isinstance(pattern, str) for pattern in asked):
                raise ValueError(f"trainable must hold patterns of names, got {asked!r}")
        elif asked is not None and asked not in PARTS:
            raise ValueError(
                f"trainable must be one of {', '.join(PARTS)}, or a list of patterns of"
                f" parameters' names, got {asked!r}"
            )
        if asked == "adapter" and self.adapter is None:
            raise ValueError("trainable is adapter, but the model has no adapter")

    @classmethod
    def from_value(cls, value: object) -> ModelSpec | None:
        """Converts the user's `model` argument; None gives None.

        Args:
            value: a folder; a spec; its fields as a mapping; or the mapping of a `config`.

        Raises:
            ValueError: it is none of these, or a field is wrong.
        """
        if value is None or isinstance(value, ModelSpec):
            return value
        if not isinstance(value, Mapping):
            if not isinstance(value, str | Path):
                wanted = "it must be a folder, a ModelSpec or a mapping"
                if isinstance(value, type):
                    wanted += f" such as {{'network': {value.__name__}}}"
                raise ValueError(f"{wanted}, got {value!r}"[:200])
            return cls(folder=str(value))
        names = [item.name for item in dataclasses.fields(cls)]
        unknown = [name for name in value if name not in names]
        if not unknown:
            return cls(**value)
        hint = did_you_mean(unknown[0], names)
        if any(name in names for name in value if name != "dtype"):
            raise ValueError(f"a model has no {unknown[0]!r}{hint} (it has: {', '.join(names)})")
        if hint:
            raise ValueError(f"a model has no {unknown[0]!r}{hint}")
        return cls(config=value)

    @property
    def trained_parts(self) -> str | tuple[str, ...]:
        """`trainable`, or its default if it was not set."""
        if self.trainable is not None:
            return self.trainable
        return "all" if self.adapter is None else "adapter"

    def explicit_fields(self) -> dict[str, object]:
        """The fields that were set, as plain data that `ModelSpec.from_value` accepts."""
        fields = {item.name: (getattr(self, item.name), item) for item in dataclasses.fields(self)}
        return {
            name: _plain(value) for name, (value, item) in fields.items() if value != item.default
        }

    def __str__(self) -> str:
        given = self.explicit_fields()
        return str(self.folder) if list(given) == ["folder"] else str(given)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | Path):
        raise ValueError(f"{name} must be a folder or a mapping, got {value!r}"[:300])
    return str(value)


def _is_place(value: object) -> bool:
    """Whether this is "module:name"."""
    return isinstance(value, str) and all(value.partition(":"))


def _plain(value: object) -> object:
    if isinstance(value, OwnNetwork):
        return value.name
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
