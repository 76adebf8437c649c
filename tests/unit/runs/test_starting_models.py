"""The small model's weights that ship with the package, the command that makes them, and the models
that are new."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

import rlbook
from rlbook.book.experiments.language_models.starting_weights import (
    ENVIRONMENTS,
    command,
    options,
    train_halfway,
    weights_of,
)
from rlbook.cli.train import parse_train
from rlbook.errors import RequestError
from rlbook.llm.models import starting as starting_models
from rlbook.llm.models.starting import DIGESTS, starting_model
from rlbook.llm.tasks import TASKS, AdditionTask
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.runs.options import NAMES
from rlbook.runs.request import Request
from rlbook.runs.run import Run


@pytest.mark.parametrize("env", ["Addition-v0", "Reverse-v0"])
def test_the_shipped_model_knows_about_half_of_its_task(env: str) -> None:
    share = rlbook.evaluate(Run(Request.build("behavior_cloning", env)), episodes=512).mean
    assert 0.30 <= share <= 0.60


@pytest.mark.slow
@pytest.mark.parametrize("env", ["Addition-v0", "Reverse-v0"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_command_that_made_the_weights_still_makes_such_a_model(env: str, seed: int) -> None:
    """Five seeds came to .453 to .518 on sums and to .414 to .523 on words: the first evaluation of
    at least .40 ends the run."""
    run = train_halfway(env, seed)
    assert run.steps < options(env)["steps"]
    assert 0.40 <= rlbook.evaluate(run, episodes=512).mean <= 0.60


@pytest.mark.parametrize("env", ["Addition-v0", "Reverse-v0"])
def test_the_command_on_the_page_is_the_one_that_made_the_weights(env: str) -> None:
    training = parse_train(shlex.split(command(env))[2:])
    asked = Request.build("sft", env, env_kwargs={"model": "new"}, **options_of(options(env)))
    given = {"env_kwargs": training.env_kwargs, "hyperparameters": training.hyperparameters}
    written = Request.build("sft", env, **given, **training.options)
    assert asked.as_yaml() == written.as_yaml()
    page = (
        Path(__file__)
        .parents[3]
        .joinpath("docs/environments/tokens.md")
        .read_text(encoding="utf-8")
    )
    assert command(env) in page


def options_of(settings: dict[str, Any]) -> dict[str, Any]:
    """As `Request.build` takes them: hyper-parameters apart."""
    rest = {name: value for name, value in settings.items() if name not in NAMES}
    return {name: value for name, value in settings.items() if name in NAMES} | {
        "hyperparameters": rest
    }


def test_a_model_is_kept_in_sixteen_bits_and_read_in_thirty_two() -> None:
    """Half a unit in the 11th binary place: 2^-11 of each weight, and of the smallest numbers
    2^-25."""
    run = Run(Request.build("sft", "Addition-v0", env_kwargs={"model": "new"}))
    kept, held = load(weights_of(run)), run.agent.policy.model.state_dict()  # type: ignore[attr-defined]
    assert kept.keys() == held.keys() and all(
        value.dtype == torch.float16 for value in kept.values()
    )
    assert all(
        ((kept[name] - held[name]).abs() <= held[name].abs() * 2**-11 + 2**-25).all()
        for name in held
    )
    shipped = starting_model(AdditionTask(), None, np.random.default_rng(0))
    assert all(value.dtype == torch.float32 for value in shipped.parameters())
    assert all(
        (starting_models.WEIGHTS / f"{task}.safetensors").stat().st_size < 500_000
        for task in DIGESTS
    )


def test_two_tasks_have_their_weights_and_every_start_is_the_same() -> None:
    assert DIGESTS.keys() == ENVIRONMENTS.keys() < TASKS.keys()
    first, second = (
        starting_model(AdditionTask(), None, np.random.default_rng(seed)) for seed in (0, 1)
    )
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


def test_a_new_model_is_drawn_from_the_generator() -> None:
    first, same, other = (
        starting_model(AdditionTask(), "new", np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.lm_head.weight, same.lm_head.weight) and not torch.equal(
        first.lm_head.weight, other.lm_head.weight
    )


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray((starting_models.WEIGHTS / "addition.safetensors").read_bytes())
    data[-5] ^= 1
    (tmp_path / "addition.safetensors").write_bytes(data)
    monkeypatch.setattr(starting_models, "WEIGHTS", tmp_path)
    with pytest.raises(
        RequestError, match=r"addition.safetensors has been changed: its sha256 is not the one"
    ):
        starting_model(AdditionTask(), None, np.random.default_rng(0))
    (tmp_path / "addition.safetensors").unlink()
    with pytest.raises(RequestError, match="cannot be read"):
        starting_model(AdditionTask(), None, np.random.default_rng(0))


def started(seed: int, model: str | None = "new") -> dict[str, torch.Tensor]:
    """The weights of PPO's policy and critic before training."""
    run = Run(
        Request.build(
            "ppo", "Addition-v0", env_kwargs={} if model is None else {"model": model}, seed=seed
        )
    )
    return run.agent.policy.state_dict()  # type: ignore[attr-defined]


def test_the_seed_of_a_run_draws_new_weights_and_leaves_torch_s_generator_alone() -> None:
    """Every matrix, those of the critic's trunk among them; norms are 1 and the critic's head is 0
    at first, whatever the seed."""
    before = torch.get_rng_state()
    first, same, other = started(0), started(0), started(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    drawn = [name for name in first if first[name].ndim == 2 and name != "critic.weight"]
    assert len(drawn) > 20 and any(name.startswith("critic.trunk") for name in drawn)
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    assert not first["critic.weight"].any()


def test_the_shipped_weights_are_the_same_for_every_seed() -> None:
    first, other = started(0, None), started(1, None)
    assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_a_run_does_not_go_on_from_another_model(tmp_path: Path) -> None:
    """A byte of the weights or of the settings; a page about the model is no part of it."""
    starting_model(AdditionTask(), None, np.random.default_rng(0)).save_pretrained(
        tmp_path / "model"
    )
    character_tokenizer().save_pretrained(tmp_path / "model")
    rlbook.train(
        "grpo",
        "Addition-v0",
        model=tmp_path / "model",
        steps=40,
        num_envs=4,
        eval_every=0,
        out=tmp_path / "run",
    )
    (tmp_path / "model" / "README.md").write_text("about")
    assert rlbook.load(tmp_path / "run").resume(steps=60).steps >= 60
    starting_model(AdditionTask(), "new", np.random.default_rng(0)).save_pretrained(
        tmp_path / "model"
    )
    with pytest.raises(
        RequestError,
        match=(
            r"model has changed since the run was started: its sha256 was [0-9a-f]{12}…, now"
            r" [0-9a-f]{12}…"
        ),
    ):
        rlbook.load(tmp_path / "run").resume(steps=80)
    assert 0 <= rlbook.evaluate(tmp_path / "run", episodes=4).mean <= 1
