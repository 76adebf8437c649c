"""Co-distillation: both students' losses by hand, one class on the maze and on texts, and the bytes
of a run that was cut."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from steps import loss_of

import rlbook
from rlbook.algorithms.imitation.co_distillation import CoDistillation, StudentRows, logits_of
from rlbook.data import Episode, Episodes
from rlbook.errors import RequestError
from rlbook.functional.post_training.distillation_losses import forward_kl
from rlbook.functional.schedules import Linear
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

STEPS = Episodes([Episode(np.eye(25, dtype=np.float32)[:4], np.array([0, 1, 3, 2]))])
TEXTS = Episodes(
    [
        Episode(np.array([1, 5, 6]), np.array([7, 2])),
        Episode(np.array([1, 5, 6, 8]), np.array([7, 7, 7, 2])),
    ]
)


def agent_for(env: str, **settings: Any) -> CoDistillation:
    config = CoDistillation.Config(**settings)
    return CoDistillation(
        adapted_vector(CoDistillation, EnvRecipe.from_env(env), 2, config), config
    )


def test_the_maze_agent_and_the_token_agent_are_of_one_class() -> None:
    assert (
        type(agent_for("Maze-v0"))
        is type(agent_for("Addition-v0"))
        is rlbook.algorithms()["co_distillation"]
    )


def test_a_student_learns_its_half_of_the_labels_and_the_others_probabilities_everywhere() -> None:
    """At T = 2 the divergence is that of the halved logits, and T² of it is minimised."""
    settings = {"soft_coef": 0.7, "hard_coef": 0.3, "soft_temperature": 2.0}
    agent, batch = agent_for("Maze-v0", **settings), STEPS[np.arange(4)]
    with torch.no_grad():
        list(agent.peer.parameters())[-1].copy_(torch.tensor([1.0, 0.0, -1.0, 2.0]))
        first, second = logits_of(agent.policy, batch), logits_of(agent.peer, batch)
        hard = -first.log_softmax(-1)[[0, 1], [0, 1]].mean()
        soft = forward_kl(first / 2, second / 2).mean()
        expected = 0.3 * hard + 0.7 * 4 * soft
        agreement = (first.argmax(-1) == second.argmax(-1)).float().mean()
        own = torch.tensor([True, True, False, False])
        rows = StudentRows.from_batch(batch, own, second, agent.config.averaging())
        found = loss_of(agent, rows)
    terms = widths(agent.policy)
    assert_near(found.loss, expected, terms=terms)
    assert_near(found.metrics["hard_loss"], hard, terms=terms)
    assert_near(found.metrics["peer_divergence"], soft, terms=terms)
    assert found.metrics["agreement"] == agreement
    assert min(hard, soft) > 0.1


@pytest.mark.parametrize(("env", "data"), [("Maze-v0", STEPS), ("Addition-v0", TEXTS)])
def test_both_students_take_a_step_and_become_different(env: str, data: Episodes) -> None:
    agent = agent_for(env)
    before = [parameter.detach().clone() for parameter in agent.peer.parameters()]
    agent.update(data[np.arange(len(data))])
    assert any((old != new).any() for old, new in zip(before, agent.peer.parameters(), strict=True))
    pairs = zip(agent.policy.parameters(), agent.peer.parameters(), strict=True)
    assert any((mine != theirs).any() for mine, theirs in pairs), (
        "the shipped model twice, and two halves"
    )


def test_both_students_follow_the_schedule_of_the_learning_rate() -> None:
    agent = agent_for("Maze-v0", learning_rate=Linear(1e-3, 0.0))
    agent.progress = 0.75
    assert agent.update(STEPS[np.arange(4)])["learning_rate"] == near(0.25e-3)
    assert agent.optimizer.learning_rate == agent.peer_optimizer.learning_rate == near(0.25e-3)


def test_what_two_students_have_no_use_for_is_refused() -> None:
    with pytest.raises(RequestError, match="packing has no effect with two students"):
        rlbook.train("co_distillation", "Maze-v0", packing=64)
    with pytest.raises(RequestError, match="hard_coef must be a number above 0"):
        rlbook.train("co_distillation", "Maze-v0", hard_coef=0.0)


@pytest.mark.parametrize("env", [pytest.param("Maze-v0", marks=pytest.mark.slow), "Addition-v0"])
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(tmp_path: Path, env: str) -> None:
    settings: dict[str, Any] = {"steps": 4, "batch_size": 8, "demonstrations": 60, "eval_every": 0}
    whole = rlbook.train("co_distillation", env, **settings)

    def stop(run: Run) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("co_distillation", env, out=tmp_path / "run", on_report=stop, **settings)
    resumed = rlbook.load(tmp_path / "run").resume()
    for name in ("policy", "peer"):
        for ours, theirs in zip(
            getattr(whole.agent, name).parameters(),
            getattr(resumed.agent, name).parameters(),
            strict=True,
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_two_students_of_the_exact_policy_solve_the_maze() -> None:
    run = rlbook.train("co_distillation", "Maze-v0", passes=5, eval_every=0)
    assert rlbook.evaluate(run, episodes=1).mean == 3.0
