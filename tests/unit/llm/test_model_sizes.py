"""Presets by model size: what a larger language model is trained with where nothing else is
said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rlbook
from rlbook.errors import RequestError
from rlbook.llm.models import sizes as model_sizes
from rlbook.llm.models.quantization import four_bit_model
from rlbook.llm.models.sizes import PART_RATE, Size
from rlbook.llm.models.sources import small_llama
from rlbook.runs.request import Request


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model")
    small_llama(
        torch.Generator().manual_seed(0), hidden_size=16, feed_forward=32, layers=1
    ).save_pretrained(path)
    return str(path)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large here begins with a thousand weights."""
    sizes = (
        Size(10**6, {"micro_batch_size": 1}),
        Size(10**3, {"num_envs": 8, "micro_batch_size": 2, "steps": 500, "group_size": 4}),
    )
    monkeypatch.setattr(model_sizes, "SIZES", sizes)


def test_a_small_model_keeps_the_presets_of_its_environment(folder: str) -> None:
    asked = Request.build("grpo", "Addition-v0", model=folder)
    assert (asked.num_envs, asked.config.learning_rate, asked.config.micro_batch_size) == (
        256,
        4e-4,
        None,
    )


@pytest.mark.usefixtures("large")
def test_the_size_goes_before_the_environment_and_the_user_before_both(folder: str) -> None:
    asked = Request.build("grpo", "Addition-v0", model=folder)
    assert (
        asked.num_envs,
        asked.config.group_size,
        asked.config.micro_batch_size,
        asked.budget.steps,
    ) == (8, 4, 2, 500)
    assert asked.config.learning_rate == model_sizes.RATE
    given = Request.build(
        "grpo",
        "Addition-v0",
        model=folder,
        episodes=64,
        num_envs=16,
        hyperparameters={"learning_rate": 1e-3},
    )
    assert (
        given.num_envs,
        given.config.learning_rate,
        given.budget.steps,
        given.budget.episodes,
    ) == (16, 1e-3, None, 64)


@pytest.mark.usefixtures("large")
def test_less_than_all_weights_and_recorded_data_allow_larger_steps(folder: str) -> None:
    for part in ({"adapter": {"r": 4}}, {"trainable": ["model.layers.0.*"]}):
        assert (
            Request.build(
                "grpo", "Addition-v0", model={"folder": folder, **part}
            ).config.learning_rate
            == PART_RATE
        )
    asked = Request.build("sft", "Addition-v0", model=folder)
    assert asked.config.learning_rate == model_sizes.DATA_RATE and asked.budget.steps != 500


@pytest.mark.usefixtures("large")
def test_a_folder_that_is_not_there_is_left_to_whoever_loads_it(
    folder: str, tmp_path: Path
) -> None:
    assert Request.build("grpo", "Addition-v0", model=str(tmp_path)).num_envs == 256


def test_four_bits_need_an_adapter_a_gpu_a_folder_and_their_packages(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"steps": 8, "num_envs": 8, "group_size": 4, "eval_every": 0}
    with pytest.raises(
        RequestError, match="4bit requires an adapter: quantised weights cannot be trained"
    ):
        rlbook.train("grpo", "Addition-v0", model={"dtype": "4bit"}, **settings)
    with pytest.raises(RequestError, match="dtype 4bit needs device cuda, got cpu"):
        rlbook.train(
            "grpo", "Addition-v0", model={"dtype": "4bit", "adapter": {"r": 2}}, **settings
        )
    with pytest.raises(RequestError, match="4bit needs the model of a folder, but none was named"):
        rlbook.train(
            "grpo",
            "Addition-v0",
            model={"dtype": "4bit", "adapter": {"r": 2}},
            device="auto",
            **settings,
        )
    monkeypatch.setattr("rlbook.llm.models.quantization.PACKAGES", ("no_such_package", "torch"))
    with pytest.raises(
        ValueError, match="dtype 4bit needs no_such_package; pip install no_such_package"
    ):
        four_bit_model(folder)
