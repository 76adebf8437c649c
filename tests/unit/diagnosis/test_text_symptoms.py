"""The doctor's rules for language models: on logs written by hand, on the planted bug of a wrong
temperature, and on short runs.

The runs of `docs/why-it-does-not-learn.md` provoke each rule, and its repairs silence it:
`tests/docs/test_printed.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from closeness import rounding_bound, widths

import rlbook
from rlbook.cli.doctor import symptoms_of
from rlbook.diagnosis.learning_log import Log
from rlbook.diagnosis.symptoms import entropy_collapse
from rlbook.diagnosis.text_symptoms import (
    TEXT_RULES,
    first_ratio_error,
    kl_running_away,
    length_exploding,
    ratio_not_one,
    reward_without_the_verifier,
)
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.networks.distributions import Categorical
from rlbook.runs.request import Request
from rlbook.runs.run import Run


def log(returns: tuple[float, ...] = (), lengths: tuple[int, ...] = (), **columns: Any) -> Log:
    """Reports with these numbers, and episodes of these returns and lengths; completions have at
    most 8 tokens."""
    known = {
        name: columns.pop(name) for name in ("ratio_error", "settings", "best") if name in columns
    }
    count = max(map(len, columns.values()), default=0)
    reports: list[dict[str, float | None]] = [
        {name: values[i] for name, values in columns.items()} for i in range(count)
    ]
    episodes = [
        (i, value, length)
        for i, (value, length) in enumerate(
            zip(returns or (0.0,) * len(lengths), lengths, strict=True)
        )
    ]
    return Log(
        reports,
        episodes,
        None,
        None,
        known.get("best"),
        known.get("settings", {}),
        (),
        completion_limit=8,
        ratio_error=known.get("ratio_error"),
    )


def test_kl_runs_away_where_nothing_is_gained_by_it() -> None:
    far = [0.1, 0.1, 0.5, 0.6, 0.9, 1.1]
    none, better = (0.0,) * 12, (0.0,) * 6 + (1.0,) * 6
    assert "reference_kl is 1 nats a step" in str(
        kl_running_away(log(none, (3,) * 12, reference_kl=far))
    )
    assert kl_running_away(log(better, (3,) * 12, reference_kl=far)) is None
    assert (
        kl_running_away(log(better, (3,) * 12, reference_kl=[4 * value for value in far]))
        is not None
    )
    assert (
        kl_running_away(log(none, (3,) * 12, reference_kl=[0.1 * value for value in far])) is None
    )
    assert kl_running_away(log(none, (3,) * 12)) is None


def test_length_explodes_where_texts_that_ended_are_cut_off() -> None:
    assert "from 3 to 8 tokens, and 100% of the last are cut off" in str(
        length_exploding(log(lengths=(3, 3, 5, 6, 8, 8)))
    )
    assert length_exploding(log(lengths=(3, 3, 5, 6, 7, 7))) is None  # long, and they end
    assert length_exploding(log(lengths=(8, 8, 8, 8, 8, 8))) is None  # as it was from the beginning
    # one in three was cut off at first, and two in three
    assert length_exploding(log(lengths=(8, 1, 1, 5, 6, 7, 8, 8, 8))) is not None
    assert length_exploding(log(lengths=(8, 8, 1, 5, 6, 7, 8, 8, 8))) is None


def test_what_is_paid_rises_and_what_is_meant_does_not() -> None:
    up, flat, down = (
        [0.0, 0.1, 0.4, 0.5, 0.9, 1.0],
        [0.5, 0.4, 0.5, 0.4, 0.5, 0.4],
        [0.5, 0.5, 0.4, 0.2, 0.1, 0.0],
    )
    for paid, meant in (
        ("return", "true_return"),
        ("episode_reward", "group_return"),
        ("return", "reward/boxed"),
    ):
        assert f"{paid} rose from 0.05 to 0.95, {meant} went from 0.5 to 0.05" in str(
            reward_without_the_verifier(log(**{paid: up, meant: down}))
        )
        assert reward_without_the_verifier(log(**{paid: up, meant: flat})) is not None
        assert reward_without_the_verifier(log(**{paid: up, meant: up})) is None
        assert reward_without_the_verifier(log(**{paid: flat, meant: down})) is None
    # nothing left to rise to
    assert (
        reward_without_the_verifier(log(**{"return": up, "reward/boxed": [0.97, 0.98] * 3})) is None
    )
    assert (
        reward_without_the_verifier(log(**{"return": up, "true_return": down, "best": -1.0}))
        is None
    )


def test_a_ratio_that_is_corrected_is_no_complaint() -> None:
    assert "0.02 away from 1" in str(ratio_not_one(log(ratio_error=0.02)))
    assert ratio_not_one(log(ratio_error=1e-5)) is None and ratio_not_one(log()) is None
    assert ratio_not_one(log(ratio_error=0.02, settings={"importance_cap": 2.0})) is None


def test_entropy_may_collapse_late() -> None:
    falls, none = [1.0, 0.8, 0.5, 0.2, 0.01, 0.01], [0.0, 0.1] * 3
    assert "fell from 1 to 0.01 nats at the end" in str(
        entropy_collapse(log(entropy=falls, **{"return": none}))
    )
    assert (
        entropy_collapse(log(entropy=falls, **{"return": [0.0, 0.1, 0.5, 0.8, 1.0, 1.0]})) is None
    )


def begun(**options: Any) -> Run:
    return Run(Request.build("grpo", "Addition-v0", **options))


def test_the_ratio_of_new_tokens_is_1_and_is_not_where_acting_and_learning_differ_in_temperature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug of trl#4159: tokens are drawn at one temperature, and their probabilities recomputed
    at another."""
    run = begun(hyperparameters={"temperature": 1.5})
    error = first_ratio_error(run.agent, run.request.recipe)
    logits = 8.5 / 1.5  # their size, at this temperature
    assert error is not None and error < rounding_bound(
        "float32", terms=widths(run.agent.policy), size=logits
    )
    monkeypatch.setattr(
        LanguageModelPolicy, "_distribution", lambda policy, logits: Categorical(logits)
    )
    error = first_ratio_error(run.agent, run.request.recipe)
    assert error is not None and error > 0.1


def test_an_agent_without_a_language_model_has_no_such_ratio() -> None:
    maze = Run(Request.build("ppo", "Maze-v0"))
    assert first_ratio_error(maze.agent, maze.request.recipe) is None


SMALL: dict[str, Any] = {"num_envs": 64, "eval_every": 0, "eval_episodes": 1}
ILL: dict[str, dict[str, Any]] = {
    "entropy collapsed": {
        "steps": 14_000,
        "learning_rate": 3e-3,
        "anneal_learning_rate": False,
        "episode_reward": "log-probability",
    },
    "groups without spread": {"steps": 2_000, "model": "new"},
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", ILL)
def test_the_older_rules_recognise_a_language_model_too(rule: str, tmp_path: Path) -> None:
    rlbook.train("grpo", "Addition-v0", out=tmp_path / "run", **{**SMALL, **ILL[rule]})
    assert rule in symptoms_of(tmp_path / "run", False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_language_model_that_learns_is_left_in_peace(seed: int, tmp_path: Path) -> None:
    rlbook.train(
        "grpo",
        "Addition-v0",
        out=tmp_path / "run",
        steps=60_000,
        kl_coef=0.01,
        seed=seed,
        eval_every=0,
        eval_episodes=64,
    )
    assert not {*TEXT_RULES, "entropy collapsed", "groups without spread"} & set(
        symptoms_of(tmp_path / "run", False)
    )
