"""A restricted YAML parser for config.yaml: names, numbers, texts, lists and mappings, without
aliases or tags."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from rlbook.errors import RequestError, request_errors
from rlbook.runs.storage.checkpoints import latest_seal
from rlbook.runs.storage.files import CheckpointError
from rlbook.runs.storage.folder import read_config


def parse_yaml(text: str) -> Any:
    """Parses a text. Raises ValueError with one sentence if it is not YAML or uses a feature
    outside the restricted subset."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:200]}") from None


def config_of(folder: Path) -> dict[str, Any]:
    """The content of a run's config.yaml, including its algorithm and environment; nothing is
    imported or created.

    Raises:
        RequestError: there is none, or it is none of a run.
        CheckpointError: it is not the one that the run's latest checkpoint belongs to.
    """
    text, seal = read_config(folder)
    sealed = latest_seal(folder)
    if sealed is not None and sealed.configs and seal not in sealed.configs:
        was = "was changed or damaged: its checkpoint belongs to another one"
        raise CheckpointError(f"{folder}/config.yaml {was}.")
    with request_errors(f"{folder}/config.yaml cannot be used: "):
        config = parse_yaml(text)
    if not isinstance(config, dict) or not {"algorithm", "env"} <= set(config):
        raise RequestError(f"{folder}/config.yaml must hold at least 'algorithm' and 'env'")
    for name in ("env_kwargs", "hyperparameters"):
        if not isinstance(config.get(name) or {}, dict):
            raise RequestError(f"{folder}/config.yaml: {name!r} must be a mapping")
    return config


class PlainDumper(yaml.SafeDumper):
    """Writes what `parse_yaml` reads back as it was: a text such as "1e-4" is quoted."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    """A YAML loader without aliases, which could expand a short file enormously, and without
    duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in names:
                raise yaml.YAMLError(f"{key.value[:80]!r} occurs twice")
            names.add(str(key.value))
        return super().construct_mapping(node, deep)


EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
"""A number such as 1e-4, which PyYAML reads as text unless it is written 1.0e-4."""
for _side in (_Loader, PlainDumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, [*"-+.0123456789"])
