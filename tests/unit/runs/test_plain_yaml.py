"""Numbers with an exponent in a config.yaml, and texts that look like them."""

from __future__ import annotations

import pytest
import yaml

from rlbook.runs.storage.plain_yaml import PlainDumper, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"), [("1e-4", 1e-4), ("-2E3", -2000.0), ("1.5e3", 1500.0), (".5e+1", 5.0)]
)
def test_an_exponent_needs_no_point_and_no_sign(text: str, value: float) -> None:
    assert parse_yaml(f"learning_rate: {text}") == {"learning_rate": value}


@pytest.mark.parametrize("text", ["e4", "1e", "1e4x", "linear(1e-3, 0)"])
def test_other_texts_stay_texts(text: str) -> None:
    assert parse_yaml(f"name: {text}") == {"name": text}


@pytest.mark.parametrize("value", ["1e-4", "12e34", 1e-4, 1e300, "text", True, None])
def test_what_is_written_is_read_back_as_it_was(value: object) -> None:
    assert parse_yaml(yaml.dump({"value": value}, Dumper=PlainDumper)) == {"value": value}
