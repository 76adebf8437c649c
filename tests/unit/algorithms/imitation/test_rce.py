"""RCE: the weights by hand, one class on the maze and on texts, scores that data sets keep, and the
bytes of a run that was cut."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths

import rlbook
from rlbook.algorithms.imitation.rce import RCE
from rlbook.cli.evaluate import run_evaluation
from rlbook.data import Episode, Groups, load
from rlbook.errors import RequestError
from rlbook.functional.score_weights import score_weights
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run

BEAMS = torch.tensor([[0.046, 0.045, 0.043, 0.041, 0.039]], dtype=torch.float64)
WHOLE = torch.ones(1, 5, dtype=torch.bool)


def test_raw_scores_would_give_weights_that_are_all_alike() -> None:
    """Softmax(s / 2) of beams as they are scored runs from .2003 to .1996; standardised, the best
    counts 3.9 times the worst."""
    raw = (BEAMS / 2.0).softmax(1)
    assert [round(float(raw[0, 0]), 4), round(float(raw[0, 4]), 4)] == [0.2003, 0.1996]
    weight = score_weights(BEAMS, WHOLE, 2.0)
    mean, deviation = (
        0.0428,
        math.sqrt((0.0032**2 + 0.0022**2 + 0.0002**2 + 0.0018**2 + 0.0038**2) / 5),
    )
    parts = [
        math.exp((score - mean) / deviation / 2.0) for score in (0.046, 0.045, 0.043, 0.041, 0.039)
    ]
    rounded: Any = {"terms": 5, "size": 0.046 / deviation}  # a deviation of scores of about .046
    assert weight[0].tolist() == near([part / sum(parts) for part in parts], **rounded)
    assert float(weight[0, 0] / weight[0, 4]) == near(
        math.exp(0.007 / deviation / 2.0), terms=5, size=4 * 0.046 / deviation
    )
    assert weight[0, 0] > 3.5 * weight[0, 4]


def test_the_weights_do_not_depend_on_the_unit_of_the_scores_and_tend_to_their_limits() -> None:
    weight = score_weights(BEAMS, WHOLE, 0.5)
    deviation = float(BEAMS.std(correction=0))
    assert_near(
        weight,
        score_weights(1000.0 * BEAMS + 7.0, WHOLE, 0.5),
        terms=5,
        size=(7.0 + 46) / 1000 / deviation / 0.5,
    )
    # |z| < 1.4, over 1e9
    assert_near(score_weights(BEAMS, WHOLE, 1e9), np.full((1, 5), 0.2), decimals=9)
    # e^-360
    assert score_weights(BEAMS, WHOLE, 1e-3)[0].tolist() == near([1.0, 0.0, 0.0, 0.0, 0.0])


def test_equal_scores_weigh_alike_and_a_smaller_group_keeps_its_sum() -> None:
    score, mask = (
        torch.tensor([[0.1, 0.1, 0.1], [2.0, 1.0, math.nan]]),
        torch.tensor([[True] * 3, [True, True, False]]),
    )
    weight = score_weights(score, mask, 0.5)
    assert weight[0].tolist() == near([1 / 3] * 3, dtype="float32", terms=3)
    expected = [1 / (1 + math.exp(-4)), 1 / (1 + math.exp(4)), 0.0]
    assert weight[1].tolist() == near(expected, dtype="float32", terms=3, size=4.0), (
        "z = ±1, over ½"
    )


def agent_for(env: str, **settings: Any) -> RCE:
    config = RCE.Config(**settings)
    return RCE(adapted_vector(RCE, EnvRecipe.from_env(env), 2, config), config)


def test_the_maze_agent_and_the_token_agent_are_of_one_class() -> None:
    assert (
        type(agent_for("Maze-v0")) is type(agent_for("Addition-v0")) is rlbook.algorithms()["rce"]
    )


def text(*answer: int, score: float | None = None) -> Episode:
    reward = (
        None if score is None else np.append(np.zeros(len(answer) - 1), score).astype(np.float32)
    )
    return Episode(np.array([1, 5, 6]), np.array(answer), reward)


@pytest.mark.parametrize(("micro", "temperature"), [(None, 1.0), (1, 1.0), (None, 0.5), (1, 4.0)])
def test_the_loss_is_the_weighted_sum_of_each_answers_own(
    micro: int | None, temperature: float
) -> None:
    """Scores 3 and 1 standardise to ±1; at τ their weights are 1 / (1 + e^∓(2 / τ))."""
    group = [text(7, 2, score=3.0), text(7, 7, 7, 2, score=1.0)]
    alone = [
        agent_for("Addition-v0", score_temperature=1.0).train_on(Groups([[one]])[np.array([0])])[
            "loss"
        ]
        for one in group
    ]
    agent = agent_for("Addition-v0", score_temperature=temperature, micro_batch_size=micro)
    found = agent.train_on(Groups([group])[np.array([0])])
    better = 1 / (1 + math.exp(-2 / temperature))
    assert found["loss"] == near(
        better * alone[0] + (1 - better) * alone[1], dtype="float32", terms=widths(agent.policy)
    )
    assert found["best_weight"] == near(better, dtype="float32", terms=2)


def test_a_data_set_keeps_the_scores_and_without_them_the_order_counts(tmp_path: Path) -> None:
    rows = [{"prompt": "1+1=", "completions": ["3", "2"], "scores": [0.25, 1.0]}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    env = adapted_vector(RCE, EnvRecipe.from_env("Addition-v0"), 1, RCE.Config())
    batch = load(tmp_path / "rows.jsonl", env)[np.array([0])]
    assert batch.returns.tolist() == [1.0, 0.25] and batch.sizes.tolist() == [2]  # type: ignore[union-attr]
    assert Groups([[text(7, 2), text(8, 2), text(9, 2)]])[np.array([0])].returns.tolist() == [
        0.0,
        -1.0,
        -2.0,
    ]


def test_neighbouring_walks_make_groups_the_best_first() -> None:
    states = np.eye(25, dtype=np.float32)
    walks = [
        Episode(states[:1], np.array([0]), np.array([value], dtype=np.float32))
        for value in (1.0, 3.0, 2.0, 5.0, 4.0)
    ]
    groups = Groups.from_ranked(walks, 2)
    assert len(groups) == 2 and groups[np.array([0, 1])].returns.tolist() == [3.0, 1.0, 5.0, 2.0]


def test_data_that_make_no_groups_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"prompt": "1+1=", "chosen": "2", "rejected": "3"})
    )
    with pytest.raises(RequestError, match=r"rce learns from Groups .*, but the data are Pairs"):
        rlbook.train("rce", "Addition-v0", data=tmp_path / "rows.jsonl", steps=1)
    with pytest.raises(RequestError, match="groups of 8 cannot be made of these data"):
        rlbook.train("rce", "Maze-v0", walks=3, steps=1)


@pytest.mark.thorough
@pytest.mark.parametrize("env", [pytest.param("Maze-v0", marks=pytest.mark.slow), "Addition-v0"])
def test_a_run_cut_after_its_first_update_goes_on_bit_for_bit(tmp_path: Path, env: str) -> None:
    settings: dict[str, Any] = {
        "steps": 5,
        "walks": 30,
        "candidates": 3,
        "batch_size": 4,
        "eval_every": 0,
    }
    whole = rlbook.train("rce", env, **settings)

    def stop(run: Run) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("rce", env, out=tmp_path / "run", on_report=stop, **settings)
    resumed = rlbook.load(tmp_path / "run").resume()
    assert (
        resumed.steps == 5
        and resumed.metrics[-1]["score_temperature"] == whole.metrics[-1]["score_temperature"]
    )
    for ours, theirs in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


def test_evaluate_plays_a_run_that_learned_from_ranked_walks(tmp_path: Path) -> None:
    rlbook.train(
        "rce",
        "Maze-v0",
        steps=1,
        walks=30,
        candidates=3,
        batch_size=4,
        eval_every=0,
        out=tmp_path / "run",
    )
    as_json, result = run_evaluation([str(tmp_path / "run"), "--episodes", "2"])
    assert not as_json and "2, greedy" in str(result)


@pytest.mark.slow
def test_random_walks_that_are_ranked_are_enough_for_the_maze() -> None:
    run = rlbook.train("rce", "Maze-v0", seed=0, eval_every=0)
    assert rlbook.evaluate(run, episodes=3).mean == 3.0
