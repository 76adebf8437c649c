"""Ranges of hyper-parameters: derived from annotations and defaults, given by hand, drawn from."""

from __future__ import annotations

import dataclasses
import itertools
import statistics

import pytest
from closeness import near

from rlbook.algorithms.policy.ppo import PPO
from rlbook.algorithms.tabular.mc_control import MCControl
from rlbook.algorithms.tabular.prediction.td_lambda import TDLambda
from rlbook.algorithms.tabular.q_learning import QLearning
from rlbook.algorithms.value.dqn import DQN
from rlbook.errors import RequestError
from rlbook.recipes.search_space import (
    MOST_USUAL,
    Choices,
    Interval,
    Plain,
    draw,
    search_space,
    settings,
    start_of,
)
from rlbook.recipes.tuning_plan import TuningPlan
from rlbook.registry import ALGORITHMS, agent_class, preset


def ends_of(found: Interval | Choices) -> tuple[Plain, ...]:
    if isinstance(found, Choices):
        return found.values
    return (int(found.low), int(found.high)) if found.whole else (found.low, found.high)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_has_a_usual_search_around_its_settings(algorithm: str) -> None:
    """Each value that could be drawn is allowed by the config, with any of another one."""
    agent = agent_class(algorithm)
    names = {item.name for item in dataclasses.fields(agent.Config)}
    for env in ("an environment without a preset", *agent.presets):
        held = {name: value for name, value in preset(agent, env).items() if name in names}
        config = agent.Config(
            **{name: tuple(v) if isinstance(v, list) else v for name, v in held.items()}
        )
        space = search_space(agent, config)
        assert 1 <= len(space) <= MOST_USUAL
        assert start_of(space, config) is not None, env
        ends = [(name, end) for name, found in space.items() for end in ends_of(found)]
        for (name, end), (other, far) in itertools.combinations(ends, 2):
            found = settings({name: end, other: far}, config)
            agent.Config(
                **vars(config)
                | {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
            )


def test_ranges_follow_from_annotations_and_defaults() -> None:
    names = ["learning_rate", "gamma", "clip", "epochs", "batch_size", "entropy_coef"]
    space = search_space(PPO, PPO.Config(batch_size=64, learning_rate=3e-4), names)
    assert space["learning_rate"] == Interval(3e-5, 3e-3, "log")  # 3e-4 / 10, 3e-4 · 10
    assert space["gamma"] == Interval(0.9, 0.999, "log of 1 - x")  # 1 - 0.01 · 10, 1 - 0.01 / 10
    short = search_space(PPO, PPO.Config(gamma=0.9), ["gamma"])
    assert short["gamma"] == Interval(0.5, 0.99, "log of 1 - x")  # 1 - 0.1 · 10 is below ½
    assert space["clip"] == Interval(0.05, 0.8, "log")  # 0.2 / 4, 0.2 · 4
    assert space["epochs"] == Interval(1, 16, "log", whole=True)  # 4 / 4, 4 · 4
    assert space["batch_size"] == Choices((16, 32, 64, 128, 256))
    assert space["entropy_coef"] == Choices((0.0, 0.001, 0.003, 0.01, 0.03, 0.1))


def test_an_annotation_bounds_a_range() -> None:
    assert search_space(QLearning, QLearning.Config(alpha=0.3), ["alpha"])["alpha"] == Interval(
        0.03, 1.0, "log"
    )  # at most 1
    space = search_space(DQN, DQN.Config(), ["double", "hidden_sizes"])
    assert space["double"] == Choices((False, True))
    assert space["hidden_sizes"] == Choices(("32,32", "64,64", "128,128"))
    space = search_space(MCControl, MCControl.Config(), ["visits"])
    assert space["visits"] == Choices(("first", "every"))
    traces = search_space(TDLambda, TDLambda.Config(trace_decay=0.0), ["trace_decay"])
    assert traces["trace_decay"] == Choices((0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("clip=0.1..0.4", Interval(0.1, 0.4)),
        ("clip=0.01..0.4", Interval(0.01, 0.4, "log")),
        ("--gae-lambda=0.8..0.98", Interval(0.8, 0.98, "log of 1 - x")),
        ("epochs=2..8", Interval(2, 8, whole=True)),
        ("batch_size=32/64", Choices((32, 64))),
        ("target_kl=none/0.01", Choices((None, 0.01))),
        ("learning_rate=1e-4/linear(3e-4, 0)", Choices((1e-4, "linear(3e-4, 0)"))),
        ("normalize_over=minibatch/rollout", Choices(("minibatch", "rollout"))),
        ("hidden_sizes=64,64/256,256", Choices(("64,64", "256,256"))),
    ],
)
def test_a_range_can_be_given(word: str, expected: Interval | Choices) -> None:
    (found,) = search_space(PPO, PPO.Config(), [word]).values()
    assert found == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clipp"], ["no hyper-parameter 'clipp'", "'clip'"]),
        (["clip", "clip=0.1..0.2"], ["clip twice"]),
        (["clip=0.4..0.1"], ["the second above the first", "'0.4..0.1'"]),
        (["clip=a..b"], ["two numbers", "'a..b'"]),
        (["clip=0.2"], ["LOW..HIGH or A/B/C", "'0.2'"]),
        (["clip=0.2/0.2"], ["LOW..HIGH or A/B/C"]),
        (["clip=0..0.4"], ["clip must be a number above 0"]),
        (["gamma=0.5..1.5"], ["gamma must be a number in [0, 1]", "1.5"]),
        (["epochs=1.5..4"], ["epochs takes whole numbers"]),
        (["epochs=2..4.5"], ["epochs takes whole numbers"]),
        (["normalize_over=minibatch/batch"], ["normalize_over must be one of", "'batch'"]),
        (["target_kl"], ["target_kl is none", "target_kl=LOW..HIGH"]),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_sentence(
    words: list[str], said: list[str]
) -> None:
    with pytest.raises(RequestError) as refused:
        search_space(PPO, PPO.Config(), words)
    assert all(part in str(refused.value) for part in said), str(refused.value)


def test_draws_are_even_on_the_scale_of_their_range() -> None:
    optuna = pytest.importorskip("optuna")
    space = search_space(PPO, PPO.Config(), ["learning_rate=1e-5..1e-1", "gamma=0.9..0.999"])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [draw(space, study.ask()) for _ in range(1000)]
    rates, gammas = ([float(values[name] or 0) for values in drawn] for name in space)
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    assert all(0.9 <= gamma <= 0.999 for gamma in gammas)
    # half of the draws lie below the middle of the scale: binomial, σ = √(1000 · ¼) = 16, 4 σ = 63
    assert abs(sum(rate < 1e-3 for rate in rates) - 500) <= 63
    assert abs(sum(gamma < 0.99 for gamma in gammas) - 500) <= 63
    assert statistics.median(rates) < 0.01  # on a linear scale it would be 0.05


def test_a_number_takes_its_place_in_a_schedule() -> None:
    falling = QLearning.Config(epsilon="linear(1.0, 0.05, 0.5)", alpha=0.1)
    space = search_space(QLearning, falling, ["epsilon", "alpha"])
    assert space["epsilon"] == Interval(0.005, 0.5, "log")  # around where it ends
    found = settings({"epsilon": 0.02, "alpha": 0.3}, falling)
    assert found == {"epsilon": "linear(1.0, 0.02, 0.5)", "alpha": 0.3}
    to_zero = PPO.Config(learning_rate="linear(3e-4, 0)", hidden_sizes=(64, 64))
    assert search_space(PPO, to_zero, ["learning_rate"])["learning_rate"] == Interval(
        3e-5, 3e-3, "log"
    )  # around where it starts
    assert settings({"learning_rate": 1e-3, "hidden_sizes": "32,32"}, to_zero) == {
        "learning_rate": "linear(0.001, 0.0, 1.0)",
        "hidden_sizes": [32, 32],
    }


def test_the_start_is_the_config_itself() -> None:
    optuna = pytest.importorskip("optuna")
    config = PPO.Config()
    space = search_space(PPO, config)
    start = start_of(space, config)
    assert start is not None and start["1 - gamma"] == near(0.01)  # 1 - 0.99
    again = PPO.Config(**settings(draw(space, optuna.trial.FixedTrial(start)), config))
    assert again == config
    # three digits are those of what is drawn
    assert draw(space, optuna.trial.FixedTrial(start | {"1 - gamma": 0.001234}))["gamma"] == 0.99877
    assert start_of(search_space(PPO, config, ["clip=0.3..0.4"]), config) is None  # 0.2 is outside


def test_what_is_given_is_not_searched() -> None:
    config = QLearning.Config(alpha=0.2)
    assert list(search_space(QLearning, config, fixed=["alpha"])) == ["epsilon", "gamma"]
    with pytest.raises(RequestError, match="alpha is given"):
        search_space(QLearning, config, ["alpha"], ["alpha"])


def test_what_a_switch_turns_off_is_searched_only_beside_it() -> None:
    config = DQN.Config()
    for alone in (["noise_scale"], ["v_min=-5..0"]):
        with pytest.raises(RequestError, match="has no effect without"):
            search_space(DQN, config, alone)
    words = ["noise_scale", "v_min=-5..0", "noisy", "distributional=true/false"]
    space = search_space(DQN, config, words)
    assert space["noise_scale"] == Interval(0.05, 5.0, "log")
    assert space["v_min"] == Interval(-5.0, 0.0)
    assert space["distributional"] == Choices((True, False))
    plan = TuningPlan("dqn", "CartPole-v1", {}, {}, {"noise_scale": 0.5}, space, range(1))
    drawn = {"noise_scale": 0.3, "v_min": -1.0, "noisy": True, "distributional": False}
    chosen = plan.settings(drawn, allow_import=False)
    assert chosen == {"noise_scale": 0.3, "noisy": True, "distributional": False}
