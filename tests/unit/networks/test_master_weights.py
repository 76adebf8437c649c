"""Weights of 16 bits are trained by float32 copies: small steps add up, as they do in float32, and
a resumed run is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_near
from torch import nn

import rlbook
from rlbook.errors import TrainingError
from rlbook.networks.optimizer import Adam, Group, adam, rmsprop

SLOWLY, STEPS = 1e-6, 50


def networks() -> tuple[nn.Linear, nn.Linear]:
    """The same weights, which bfloat16 has exactly, in float32 and in bfloat16."""
    exact = nn.Linear(16, 16, bias=False)
    with torch.no_grad():
        exact.weight.normal_(generator=torch.Generator().manual_seed(0))
        exact.weight.copy_(exact.weight.bfloat16())
    low = nn.Linear(16, 16, bias=False, dtype=torch.bfloat16)
    low.load_state_dict(exact.state_dict())
    return exact, low


@pytest.mark.parametrize("make", [adam, rmsprop])
def test_steps_too_small_for_bfloat16_add_up(make: Any) -> None:
    """Down the same gradient, which bfloat16 has exactly, the copies are the float32 weights, and
    the weights are the copies, rounded."""
    exact, low = networks()
    before = low.weight.detach().clone()
    slope = torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    optimizers = [make([Group([network])], SLOWLY) for network in (exact, low)]
    for _ in range(STEPS):
        optimizers[0].step((exact.weight * slope.float()).sum())
        optimizers[1].step((low.weight * slope).sum())
    (master,) = optimizers[1].masters
    assert_near(master, exact.weight, dtype="float32", terms=STEPS)
    assert torch.equal(low.weight, master.bfloat16())
    assert (master != before.float()).all(), (
        "every weight has moved, though by less than bfloat16 can show"
    )
    assert (low.weight != before).float().mean() < 0.1


def test_the_clipped_norm_is_that_of_float32() -> None:
    exact, low = networks()
    norms = [
        adam([Group([network])], SLOWLY).step((network.weight * 300).sum(), max_grad_norm=1.0)
        for network in (exact, low)
    ]
    assert_near(norms[1], norms[0], dtype="float32", terms=256)


def test_a_weight_that_somebody_sets_is_where_the_next_step_begins() -> None:
    _, low = networks()
    optimizer: Any = adam([Group([low])], SLOWLY)
    optimizer.step(low.weight.sum())
    with torch.no_grad():
        low.weight.fill_(2.0)
    optimizer.step(low.weight.sum())
    assert_near(optimizer.masters[0], torch.full((16, 16), 2.0 - SLOWLY), dtype="float32", terms=2)


def test_a_weight_beside_one_that_somebody_sets_keeps_its_copy() -> None:
    _, low = networks()
    optimizer: Any = adam([Group([low])], SLOWLY)
    optimizer.step(low.weight.sum())
    master = optimizer.masters[0].clone()
    with torch.no_grad():
        low.weight[0, 0] = 2.0
        master[0, 0] = 2.0
    optimizer.step(low.weight.sum())
    assert_near(optimizer.masters[0], master - SLOWLY, dtype="float32", terms=2)


def test_gradients_of_many_micro_batches_are_added_up_in_float32() -> None:
    """1 + 600 · 2⁻⁹ in bfloat16, added up one after the other, stays 1."""
    _, low = networks()
    optimizer: Any = rmsprop([Group([low])], SLOWLY)
    losses = [low.weight.sum(), *(low.weight.sum() / 512 for _ in range(600))]
    expected = torch.full((16, 16), 1 + 600 / 512)
    assert_near(
        optimizer.step(losses), torch.linalg.vector_norm(expected), dtype="float32", terms=856
    )
    square = optimizer.state_dict()["square"]
    assert_near(square, 0.01 * expected.reshape(-1) ** 2, dtype="float32", terms=601)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_a_clipped_step_is_that_of_float32(clip: float | None) -> None:
    """1, 2, … in bfloat16 times a factor that it does not have."""
    exact, low = networks()
    slope = torch.arange(1.0, 257.0).view(16, 16)
    assert torch.equal(slope, slope.bfloat16().float())
    optimizers: list[Any] = [rmsprop.plain([Group([network])], 1e-3) for network in (exact, low)]  # type: ignore[attr-defined]
    optimizers[0].step((exact.weight * slope).sum(), clip)
    optimizers[1].step((low.weight * slope.bfloat16()).sum(), clip)
    squares = [optimizer.state_dict()["square"] for optimizer in optimizers]
    assert torch.equal(*squares)
    assert torch.equal(exact.weight, optimizers[1].masters[0])


@pytest.mark.parametrize(
    ("before", "after"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
@pytest.mark.parametrize("make", [adam, adam.plain], ids=["adam", "plain"])  # type: ignore[attr-defined]
def test_a_network_that_is_converted_later_is_refused(
    make: Any, before: torch.dtype, after: torch.dtype
) -> None:
    network = networks()[0].to(before)
    optimizer = make([Group([network])], SLOWLY)
    network.to(after)
    with pytest.raises(TrainingError, match="no longer the one the optimiser was made for"):
        optimizer.step(network.weight.sum())


def test_float32_has_no_copies() -> None:
    exact, _ = networks()
    plain = Adam([Group([exact])], SLOWLY, eps=1e-8, betas=(0.9, 0.999))
    assert plain.masters[0] is exact.weight and "master" not in plain.state_dict()


@pytest.mark.thorough
def test_a_run_in_bfloat16_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "num_envs": 16,
        "eval_every": 0,
        "learning_rate": SLOWLY,
        "model": {"dtype": "bfloat16"},
    }
    whole = rlbook.train("grpo", "Addition-v0", steps=1_000, out=tmp_path / "run", **settings)
    earlier = sorted(
        int(path.name)
        for path in (tmp_path / "run" / "checkpoints").iterdir()
        if path.name.isdigit()
    )[0]
    assert 0 < earlier < whole.steps
    resumed = rlbook.load(tmp_path / "run", checkpoint=earlier).resume()
    states: list[Any] = [run.agent.state_dict() for run in (whole, resumed)]
    assert states[0]["optimizer"]["master"].dtype == torch.float32
    for name in ("master", "mean", "square", "steps"):
        assert torch.equal(states[0]["optimizer"][name], states[1]["optimizer"][name])
    for one, other in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert one.dtype == torch.bfloat16 and torch.equal(one, other)
