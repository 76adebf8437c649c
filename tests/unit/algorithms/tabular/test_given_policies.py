"""One vocabulary for a policy that is given: planning, TD and Monte Carlo read it alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import assert_near

import rlbook
from rlbook.checks import nearest_name

GIVEN: dict[str, dict[str, Any]] = {
    "policy_evaluation": {},
    "td_prediction": {},
    "mc_prediction": {},
    "off_policy_mc": {"task": "prediction"},
}


@pytest.mark.parametrize("algorithm", GIVEN)
def test_every_way_to_name_a_policy_is_read(algorithm: str) -> None:
    """On the small maze the greedy policy's probability of its action is 1 - ε + ε / 4, here 0.925
    for ε = 0.1."""
    table = np.full((9, 4), 0.25)
    for policy, least in (
        ("uniform", 0.25),
        ("optimal", 1.0),
        ("epsilon-greedy", 0.925),
        (table, 0.25),
        ([0] * 9, 1.0),
    ):
        options = dict(GIVEN[algorithm])
        if (
            isinstance(policy, str)
            and policy == "epsilon-greedy"
            and algorithm.endswith("_prediction")
        ):
            options["epsilon"] = 0.1
        budget = {} if algorithm == "policy_evaluation" else {"steps": 20}
        run = rlbook.train(
            algorithm,
            "Maze-v0",
            eval_every=0,
            policy=policy,
            env_kwargs={"layout": "S..\n...\n..G"},
            **budget,
            **options,
        )
        agent: Any = run.agent
        assert_near(agent.target_policy.max(axis=1), np.full(9, least), terms=4)


@pytest.mark.parametrize("algorithm", GIVEN)
def test_a_name_that_is_not_one_is_refused_alike(algorithm: str) -> None:
    told = (
        r"policy must be .*'uniform', 'optimal', 'epsilon-greedy'.* got 'optimum'.*did you mean"
        r" 'optimal'"
    )
    with pytest.raises(rlbook.RequestError, match=told):
        rlbook.train(algorithm, "Maze-v0", policy="optimum", **GIVEN[algorithm])


def test_epsilon_greedy_needs_an_epsilon() -> None:
    with pytest.raises(
        rlbook.RequestError, match="epsilon must be above 0 with policy 'epsilon-greedy'"
    ):
        rlbook.train("td_prediction", "Maze-v0", policy="epsilon-greedy")


def test_other_books_names_lead_to_ours() -> None:
    asked = {
        ("td_lambda", "lam"): "trace_decay",
        ("sarsa_lambda", "lambda_"): "trace_decay",
        ("q_learning", "lr"): "alpha",
        ("q_learning", "learning_rate"): "alpha",
        ("ppo", "lam"): "gae_lambda",
        ("ppo", "alpha"): "learning_rate",
    }
    for (algorithm, name), ours in asked.items():
        with pytest.raises(rlbook.RequestError, match=f"did you mean '{ours}'"):
            rlbook.train(algorithm, "Maze-v0", **{name: 0.5})
    assert nearest_name("--lam", ["--trace-decay", "--gamma"]) == "--trace-decay"
    assert nearest_name("zzz", ["--trace-decay", "--gamma"]) is None
