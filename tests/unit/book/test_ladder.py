"""The four updates of rlbook/book/experiments/ladder.py move the weights as the library's
algorithms do, on the same data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import rounding_bound

from rlbook.book.experiments import ladder
from rlbook.book.experiments.ladder import LadderNetworks, LadderRollout
from rlbook.networks.optimizer import Group, adam
from rlbook.seeding import rng_for

RATE, EPS = 3e-3, 0.1
BOTH: dict[str, Any] = {
    "gamma": 0.9,
    "learning_rate": RATE,
    "max_grad_norm": 0.5,
    "adam_eps": EPS,
    "seed": 5,
    "hidden_sizes": (16,),
}
# At most 9 updates of weights of size 1. Adam's step is lr · g / (|g| + ε), so that rounding of a
# gradient reaches a weight times lr / ε (hence the large ε); before it is clipped a gradient is a
# sum over 64 rows and layers of 3 and 16, of size 5.
GRADIENT = rounding_bound("float32", terms=64 + 3 + 16, size=5)
ROUNDING = rounding_bound("float32", terms=9) + 9 * RATE / EPS * GRADIENT
STEPS: dict[str, Any] = {"rollout_steps": 16, "value_coef": 0.5, "anneal_learning_rate": False}
PPO = {"gae_lambda": 0.8, "epochs": 3, "batch_size": 24}


def moved(agent: Any, update: Callable[..., None], **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far an agent's weights go in one update by the library, and by the ladder: all weights as
    one vector."""
    rehearsal = copy.deepcopy(agent.policy)
    before = flat(agent.policy)
    data = LadderRollout.from_rollout(agent.rollout_data)
    networks = LadderNetworks(rehearsal.actor, rehearsal.critic)
    update(networks, adam([Group([rehearsal])], RATE, eps=EPS), data, gamma=0.9, **options)
    prepared = agent.prepare()
    agent.update(prepared[0] if isinstance(prepared, tuple) else prepared)
    return flat(agent.policy) - before, flat(rehearsal) - before


def flat(policy: torch.nn.Module) -> np.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in policy.parameters()]).double().numpy()


@pytest.mark.parametrize("name", ["reinforce", "reinforce_with_baseline", "a2c", "ppo"])
def test_each_rung_is_the_librarys_update(
    stage: Callable[..., Any], scripted: Callable[..., Any], name: str
) -> None:
    """On episodes that end in every way there is."""
    if name.startswith("reinforce"):
        theatre = stage(
            "reinforce", scripted(), baseline="none" if name == "reinforce" else "learned", **BOTH
        )
        theatre.round()
        options: dict[str, Any] = {}
    else:
        theatre = stage(
            name, scripted(), **BOTH, **STEPS, **(PPO if name == "ppo" else {"gae_lambda": 0.8})
        )
        theatre.collect(16)
        options = {"gae_lambda": 0.8}
    if name == "ppo":
        options |= {"clip": 0.2, "epochs": 3, "batch_size": 24, "rng": rng_for(5, "minibatches")}
    library, rung = moved(theatre.agent, getattr(ladder, name), **options)
    np.testing.assert_allclose(rung, library, rtol=0, atol=ROUNDING)
    assert np.abs(library).max() > 50 * ROUNDING


def test_a_rung_with_a_mistake_is_found_out(
    stage: Callable[..., Any], scripted: Callable[..., Any]
) -> None:
    """The ladder's A2C with another λ, and PPO's loss without its minibatches, end elsewhere."""
    for options in (
        {"gae_lambda": 1.0},
        {
            "gae_lambda": 0.8,
            "clip": 0.2,
            "epochs": 3,
            "batch_size": 64,
            "rng": rng_for(5, "minibatches"),
        },
    ):
        name = "ppo" if "clip" in options else "a2c"
        theatre = stage(
            name, scripted(), **BOTH, **STEPS, **(PPO if name == "ppo" else {"gae_lambda": 0.8})
        )
        theatre.collect(16)
        library, rung = moved(theatre.agent, getattr(ladder, name), **options)
        assert np.abs(rung - library).max() > 20 * ROUNDING


def test_a_minibatch_holds_every_step_once_an_epoch() -> None:
    shape = torch.Size([5, 3])
    places = [
        torch.stack(rows) for rows in ladder.minibatches(shape, 2, 4, np.random.default_rng(0))
    ]
    assert [part.shape[1] for part in places] == [4, 4, 4, 3] * 2
    epoch = torch.cat(places[:4], dim=1)
    assert sorted(map(tuple, epoch.T.tolist())) == [(t, n) for t in range(5) for n in range(3)]
