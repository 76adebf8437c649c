"""Fitted Q iteration and conservative Q-learning: by hand, from a recording, and where the
recording is narrow."""

from __future__ import annotations

import math
import signal
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
from rlbook.algorithms.value.cql import CQL
from rlbook.algorithms.value.fitted_q import FittedQ
from rlbook.data import Episode, Episodes, Steps
from rlbook.data.replay import Transitions
from rlbook.errors import RequestError
from rlbook.functional.value_losses import conservative_gap
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.networks.optimizer import LossOutput
from rlbook.registry import model_of
from rlbook.runs.demonstrations import exact_expert, record_episodes
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

EYE = np.eye(25, dtype=np.float32)


def loss_of(agent: Any, rows: Transitions) -> LossOutput:
    """What the agent minimises."""
    return agent.loss(agent.q, agent.target, rows, config=agent.config)


def two_steps(*, terminated: bool = True, last: bool = True) -> Episode:
    """From cell 0 to 1 to 2."""
    reward = np.array([1.0, 2.0], dtype=np.float32)
    return Episode(EYE[:2], np.array([3, 1]), reward, terminated, EYE[2] if last else None)


def agent_for(kind: type[FittedQ], **settings: Any) -> FittedQ:
    config = kind.Config(**settings)
    return kind(adapted_vector(kind, EnvRecipe.from_env("Maze-v0"), 2, config), config)


def test_a_row_is_a_step_with_its_true_successor_and_only_terminations_end() -> None:
    rows = Steps([two_steps(), two_steps(terminated=False), two_steps(last=False)]).rows
    assert rows.next_obs.argmax(-1).tolist()[:5] == [1, 2, 1, 2, 1]
    assert rows.terminated.tolist() == [False, True, False, False, False, True]
    assert rows.action.tolist() == [3, 1] * 3 and rows.reward.tolist() == [1.0, 2.0] * 3


@pytest.mark.parametrize(
    ("episode", "sentence"),
    [
        (
            two_steps(terminated=False, last=False),
            "was truncated and lacks its last observation",
        ),
        (Episode(EYE[:2], np.array([3, 1])), "was recorded without rewards"),
        (Episode(np.array([1, 2]), np.array([3, 1])), "is a text"),
        (
            Episode(EYE[:1], np.zeros((1, 2), np.float32), np.zeros(1, np.float32)),
            "has actions of shape [2]",
        ),
    ],
)
def test_what_values_cannot_be_learned_from_is_refused_with_the_episode(
    episode: Episode, sentence: str
) -> None:
    with pytest.raises(ValueError, match="episode 1 of the data") as refused:
        Steps([two_steps(), episode])
    assert sentence in str(refused.value)
    with pytest.raises(RequestError, match="episode 1 of the data"):
        rlbook.train("fitted_q", "Maze-v0", data=Episodes([two_steps(), episode], unit="episode"))


def test_the_digest_says_what_was_seen_last() -> None:
    assert (
        Steps([two_steps()]).digest()
        == Steps([two_steps()]).digest()
        != Steps([two_steps(last=False)]).digest()
    )


def test_the_loss_is_half_the_squared_distance_from_the_target_networks_best_action() -> None:
    """Linear Q = W s + b, so that Q(cell i, a) = W[a, i]: rows 1 + 0.9 · max(5, 7) - 2 and 2 - 3,
    where the second ended."""
    agent = agent_for(FittedQ, hidden_sizes=(), gamma=0.9)
    for network in (agent.q, agent.target):
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)
    agent.q.layers[0].weight.data[3, 0], agent.q.layers[0].weight.data[1, 1] = 2.0, 3.0
    agent.target.layers[0].weight.data[0, 1], agent.target.layers[0].weight.data[2, 1] = 5.0, 7.0
    output = loss_of(agent, Steps([two_steps()]).rows)
    errors = 1 + 0.9 * 7 - 2, 2 - 3
    rounded: dict[str, Any] = {"dtype": "float32", "terms": 4}
    expected = (errors[0] ** 2 + errors[1] ** 2) / 4
    assert output.loss.item() == near(expected, **rounded, size=2 * 7 * 5.3)
    assert float(output.metrics["q"]) == 2.5
    assert float(output.metrics["target"]) == near((1 + 0.9 * 7 + 2) / 2, **rounded)


def test_the_conservative_gap_and_its_gradient_by_hand() -> None:
    """ln(e^0 + e^ln3) - 0 = ln 4 where the worse action was recorded, ln 4 - ln 3 where the better
    one was; the softmax is 1/4, 3/4."""
    q = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]], requires_grad=True)
    gap = conservative_gap(q, torch.tensor([0, 1]))
    gap.backward()
    assert gap.item() == near((np.log(4) + np.log(4 / 3)) / 2, dtype="float32", terms=3)
    assert_near(q.grad, torch.tensor([[1 / 4 - 1, 3 / 4], [1 / 4, 3 / 4 - 1]]) / 2, terms=2)
    with pytest.raises(ValueError, match="action must have the shape of q"):
        conservative_gap(q, torch.tensor([0]))


def test_without_its_term_cql_is_fitted_q_and_with_it_the_loss_is_the_sum() -> None:
    rows = Steps([two_steps()]).rows
    fitted, plain, cql = (
        agent_for(FittedQ),
        agent_for(CQL, conservative_coef=0.0),
        agent_for(CQL, conservative_coef=0.5),
    )
    rounded: dict[str, Any] = {"terms": widths(fitted.q), "size": 4.0}
    assert_near(loss_of(plain, rows).loss, loss_of(fitted, rows).loss, **rounded)
    gap = conservative_gap(fitted.q(rows.obs), rows.action)
    assert_near(loss_of(cql, rows).loss, loss_of(fitted, rows).loss + 0.5 * gap, **rounded)


def test_the_target_network_stands_still_for_a_round() -> None:
    """M = 3: copies before the minibatches 1, 4 and 7."""
    agent = agent_for(FittedQ, target_period=3, batch_size=2)
    held = []
    for _ in islice(agent.fit(Steps([two_steps()])), 7):
        held.append(next(agent.target.parameters()).clone())
    assert [torch.equal(a, b) for a, b in pairwise(held)] == [True, True, False, True, True, False]


@pytest.mark.parametrize("algorithm", ["fitted_q", "cql"])
@pytest.mark.parametrize("cut", [1, 5])
def test_a_run_cut_in_a_round_goes_on_bit_for_bit(tmp_path: Path, algorithm: str, cut: int) -> None:
    settings: dict[str, Any] = {
        "steps": 12,
        "walks": 4,
        "target_period": 3,
        "batch_size": 16,
        "eval_every": 0,
    }
    whole = rlbook.train(algorithm, "Maze-v0", **settings)

    def stop(run: Run) -> None:
        if run.steps >= cut:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train(algorithm, "Maze-v0", out=tmp_path / "run", on_report=stop, **settings)
    loaded = rlbook.load(tmp_path / "run")
    assert loaded.steps == cut
    resumed: Any = loaded.resume()
    for ours, theirs in zip(whole.agent.q.parameters(), resumed.agent.q.parameters(), strict=True):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


def narrow(seed: int) -> Steps:
    """Beside the cliff, 30 episodes of the exact policy, of whose actions one in ten is random."""
    recipe = EnvRecipe.from_env("CliffWalking-v1")
    raw, seen = recipe.make(), adapted_vector(FittedQ, recipe, 1, FittedQ.Config())
    played = islice(record_episodes(exact_expert(recipe), recipe, seed, epsilon=0.1), 30)
    return Steps(
        [
            episode.to_episode(seen.adaptation, (raw.observation_space, raw.action_space))
            for episode in played
        ]
    )


def best_of(data: Steps, gamma: float = 0.99) -> float:
    """V at the start of the best policy that takes recorded actions only: value iteration over the
    recorded transitions."""
    rows = data.rows
    state, after = rows.obs.argmax(-1).numpy(), rows.next_obs.argmax(-1).numpy()
    q = np.full((48, 4), -np.inf)
    for _ in range(200):
        values = np.where(np.isinf(q.max(1)), -100.0, q.max(1))
        q[state, rows.action] = rows.reward.numpy() + gamma * np.where(
            rows.terminated, 0.0, values[after]
        )
    return float(q[36].max())


def judged(seed: int) -> tuple[float, float, float]:
    """From narrow data, V at the start, exactly, γ = 0.99: of fitted Q, of CQL, and of the best
    policy on recorded actions."""
    data, model = narrow(seed), model_of(rlbook.make("CliffWalking-v1"))
    values = []
    for algorithm in ("fitted_q", "cql"):
        run = rlbook.train(
            algorithm,
            "CliffWalking-v1",
            data=Steps(data.episodes),
            steps=1_200,
            seed=seed,
            eval_every=0,
        )
        chosen = run.agent.act(np.eye(model.num_states, dtype=np.float32), explore=False)
        values.append(float(model.initial @ model.policy_values(chosen, 0.99)))
    return values[0], values[1], best_of(data)


# of values of at most 100 a rounding is carried on for 1 / (1 - γ) = 100 steps
SOLVED = 100 * 100.0


@pytest.mark.slow
def test_untried_actions_ruin_fitted_q_and_cql_finds_the_best_that_the_data_support() -> None:
    """-12.25 = -(1 - 0.99¹³) / 0.01: thirteen steps. Who walks in circles comes to -100."""
    fitted, cql, best = judged(0)
    assert best == near(-(1 - 0.99**13) / 0.01, terms=13)
    assert cql == near(best, terms=48, size=SOLVED) and fitted < -90


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_so_from_every_seed(seed: int) -> None:
    fitted, cql, best = judged(seed)
    assert cql == near(best, terms=48, size=SOLVED) and fitted < -90


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fitted_q", "cql"])
def test_random_walks_are_enough_for_the_maze(algorithm: str) -> None:
    assert rlbook.evaluate(rlbook.train(algorithm, "Maze-v0", eval_every=0), episodes=1).mean == 3.0
