"""The doctor's rules, each provoked by a real run that is set up to go wrong in that way.

What the page shows of each is held by `tests/docs/test_printed.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near
from gymnasium.spaces import Box, Discrete

import rlbook
from rlbook.cli import main as cli
from rlbook.diagnosis.learning_log import Log
from rlbook.diagnosis.symptoms import (
    PLAYED,
    RULES,
    budget_too_short,
    entropy_collapse,
    observation_scales,
    replay_buffer_too_small,
    rewards_too_large,
)
from rlbook.evaluation.verification import VerifiablePreset, proofs
from rlbook.interaction.environments import EnvRecipe

ILL: dict[str, tuple[str, str, dict[str, Any]]] = {
    # a critic that is never trained, on targets that do not depend on it
    "critic worse than the mean": (
        "ppo",
        "CartPole-v1",
        {
            "steps": 3000,
            "value_coef": 0.0,
            "rollout_steps": 32,
            "gae_lambda": 0.0,
            "gamma": 0.0,
            "epochs": 1,
        },
    ),
    "clip fraction too high": (
        "ppo",
        "CartPole-v1",
        {
            "steps": 3000,
            "clip": 0.02,
            "learning_rate": 3e-3,
            "anneal_learning_rate": False,
            "rollout_steps": 32,
            "epochs": 20,
        },
    ),
    "entropy collapsed": (
        "a2c",
        "CartPole-v1",
        {"steps": 3000, "learning_rate": 0.3, "anneal_learning_rate": False},
    ),
    # MountainCar-v0 pays -1 a step until the hill is reached, which acting at random does not do in
    # 200 steps
    "returns capped by the time limit": (
        "reinforce",
        "MountainCar-v0",
        {"steps": 3200, "num_envs": 4},
    ),
    # the best policy of the corridor goes right in 59 % of the steps; the greedy one never arrives
    "evaluation far below training": (
        "reinforce",
        "ShortCorridor-v0",
        {"steps": 3000, "eval_every": 3000, "eval_episodes": 1},
    ),
    "gradient zero": ("grpo", "MountainCar-v0", {"steps": 5600, "num_envs": 4, "group_size": 2}),
    "groups without spread": (
        "grpo",
        "MountainCar-v0",
        {"steps": 5600, "num_envs": 4, "group_size": 2},
    ),
    # with γ = 0.99 a pole that stands is worth 100, and the atoms end at 2
    "returns outside the atoms": (
        "dqn",
        "CartPole-v1",
        {
            "steps": 1200,
            "learning_starts": 100,
            "distributional": True,
            "v_min": 0.0,
            "v_max": 2.0,
            "train_every": 16,
            "gradient_steps": 4,
            "batch_size": 16,
            "hidden_sizes": (16,),
        },
    ),
}


PAGE = (Path(__file__).parents[3] / "docs" / "why-it-does-not-learn.md").read_text(encoding="utf-8")
ENTRIES = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


def test_the_page_has_an_entry_for_each_rule_with_its_line_and_a_repair() -> None:
    assert set(ENTRIES) == set(RULES)
    for rule, entry in ENTRIES.items():
        (ill, repair), (shown, after) = (
            re.findall(f"```{kind}\n(.*?)```", entry, flags=re.DOTALL) for kind in ("sh", "text")
        )
        assert (
            "rlbook train " in ill and "rlbook doctor " in ill and repair.startswith("rlbook ")
        ), rule
        assert f"\n{rule}: " in shown and f"\n{rule}: " not in after, rule


@pytest.mark.slow
@pytest.mark.parametrize(
    "proof",
    [proof for proof in proofs() if proof.expected.seconds < 6],
    ids=lambda proof: proof.algorithm,
)
def test_no_rule_complains_of_a_preset(
    proof: VerifiablePreset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train(proof.algorithm, proof.env, out=tmp_path / "run")
    assert cli.main(["doctor", str(tmp_path / "run")]) == 0
    assert (
        capsys.readouterr().out
        == f"the files of {tmp_path / 'run'} are undamaged, and its log shows no known problem\n"
    )


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the run of a rule; two rules may have one run."""
    made: dict[str, Path] = {}

    def run(rule: str) -> Path:
        algorithm, env, settings = ILL[rule]
        name = repr(ILL[rule])
        if name not in made:
            made[name] = tmp_path_factory.mktemp("ill") / "run"
            rlbook.train(algorithm, env, out=made[name], **{"eval_episodes": 2, **settings})
        return made[name]

    return run


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("rule", ILL)
def test_a_run_that_goes_wrong_is_recognised(
    rule: str, ill: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", str(ill(rule)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["complaints"] == [] and rule in found["symptoms"], found


def test_episodes_that_grew_up_to_the_limit_are_told(tmp_path: Path) -> None:
    from rlbook.diagnosis.symptoms import symptoms

    options: dict[str, Any] = {
        "rollout_steps": 32,
        "epochs": 10,
        "learning_rate": 3e-3,
        "eval_every": 0,
    }
    rlbook.train(
        "ppo",
        "CartPole-v1",
        out=tmp_path,
        env_kwargs={"max_episode_steps": 40},
        steps=7_000,
        **options,
    )
    found = symptoms(tmp_path, time_limit=40)
    assert (
        "of the last episodes are cut off by the time limit of 40 steps"
        in found["returns capped by the time limit"]
    )


def log_of(returns: list[float], entropy: list[float] | None = None) -> Log:
    """An episode every ten steps, and a report every ten episodes."""
    reports: list[dict[str, float | None]] = [
        {"return": float(np.mean(returns[first : first + 10]))}
        for first in range(0, len(returns), 10)
    ]
    for report, nats in zip(reports, entropy or [], strict=False):
        report["entropy"] = nats
    episodes = [(10 * (number + 1), value, 10) for number, value in enumerate(returns)]
    return Log(reports, episodes, None, None, None, {}, ())


@pytest.mark.parametrize("seed", range(10))
def test_a_short_budget_is_told_from_noise(seed: int) -> None:
    """Returns with noise of 30 that rise by 60 all the way; that have risen and are flat; that fall."""
    noise = np.random.default_rng(seed).normal(0.0, 30.0, 200)
    rising, risen = np.linspace(0, 240, 200), np.minimum(np.linspace(0, 600, 200), 240)
    grown = budget_too_short(log_of((rising + noise).tolist()))
    assert grown is not None and "grew from" in grown
    falling = (rising[::-1] + noise).tolist()
    assert budget_too_short(log_of(falling)) is None
    # of 95 flat runs in a hundred nothing is said; each of these ten seeds is one of them
    assert budget_too_short(log_of((risen + noise / 10).tolist())) is None


@pytest.mark.parametrize(
    ("size", "episodes", "told"),
    [
        (200, 80, True),  # 200 hold 8 episodes of 25 steps, and there were 2 000 steps
        (250, 100, False),  # ten episodes
        (200, 79, False),  # fewer than ten times the buffer
    ],
)
def test_a_buffer_is_small_where_it_was_filled_ten_times_and_holds_few_episodes(
    size: int, episodes: int, told: bool
) -> None:
    played = [(25 * (number + 1), 0.0, 25) for number in range(episodes)]
    log = Log([], played, None, None, None, {"buffer_size": size}, ())
    assert (replay_buffer_too_small(log) is not None) == told


@pytest.mark.parametrize(
    ("norm", "explained", "loss", "told"),
    [
        (60.0, 0.1, 150.0, True),
        (40.0, 0.1, 150.0, False),  # of max_grad_norm 0.5 less than a hundred times
        (60.0, 0.3, 150.0, False),  # the critic knows something
        (60.0, 0.1, 50.0, False),  # the loss does not come from the size of the rewards
    ],
)
def test_rewards_are_large_where_the_gradient_the_critic_and_its_loss_say_so(
    norm: float, explained: float, loss: float, told: bool
) -> None:
    report: dict[str, float | None] = {
        "grad_norm": norm,
        "explained_variance": explained,
        "value_loss": loss,
    }
    played = [(10 * (number + 1), float(number % 2), 10) for number in range(40)]
    log = Log([report] * 30, played, None, None, None, {"max_grad_norm": 0.5}, ())
    assert (rewards_too_large(log) is not None) == told


PLAYED_FLAT = [(10 * (number + 1), float(number % 2), 10) for number in range(40)]
"""Episodes of ten steps whose return is 0 or 1 in turn."""


def log_with(
    columns: dict[str, list[float]],
    episodes: list[tuple[int, float, int]] = PLAYED_FLAT,
    settings: dict[str, object] | None = None,
    **known: Any,
) -> Log:
    """Reports with these numbers, those episodes, and what is known beside the log."""
    count = max(map(len, columns.values()), default=0)
    reports: list[dict[str, float | None]] = [
        {name: values[place] for name, values in columns.items()} for place in range(count)
    ]
    limits = (known.pop(name, None) for name in ("time_limit", "usual_limit", "best"))
    return Log(reports, episodes, *limits, settings or {}, known.pop("scales", ()), **known)


def episodes_of(lengths: list[int], paid: float) -> list[tuple[int, float, int]]:
    """Episodes of these lengths, each step paid alike."""
    ends = np.cumsum(lengths).tolist()
    return [(end, paid * length, length) for end, length in zip(ends, lengths, strict=True)]


ROSE = [0.0, 50.0, 90.0, 100.0, 100.0, 100.0]
NOISY = [0.0, 50.0, 90.0, 100.0, 60.0, 100.0, 60.0, 100.0, 60.0]
GREW = [20, 20, 20, 20, 50, 50]
# rule → a log of which it says something, and one, in one respect different, of which it does not
BOUNDS: dict[str, tuple[Log, Log]] = {
    # returns that are all alike at the end leave a critic nothing to explain
    "critic worse than the mean": (
        log_with(
            {"explained_variance": [-0.2] * 9, "return": NOISY}, episodes_of([*range(1, 41)], 1.0)
        ),
        log_with(
            {"explained_variance": [-0.2] * 6, "return": ROSE}, episodes_of([*range(1, 41)], 1.0)
        ),
    ),
    # a step that costs 1 makes the longest episodes the worst; one that pays 1 the best there are
    "returns capped by the time limit": (
        log_with({}, episodes_of(GREW, -1.0), time_limit=50, usual_limit=50),
        log_with({}, episodes_of(GREW, 1.0), time_limit=50, usual_limit=50),
    ),
    # 40 below training: more than a quarter of the range of 100, and less than twice the noise of 50
    "evaluation far below training": (
        log_with({"return": [0.0, 50.0, 100.0, 50.0, 50.0, 50.0], "eval_return": [10.0] * 6}),
        log_with({"return": [0.0, 100.0] * 6, "eval_return": [10.0] * 12}),
    ),
    "gradient zero": (
        log_with({"grad_norm": [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]}),
        log_with({"grad_norm": [1.0, 1.0, 1.0, 1.0, 0.0, 0.1]}),
    ),
    # groups of equal returns are nothing to complain of where each of them is the best there is
    "groups without spread": (
        log_with({"zero_std_groups": [1.0] * 6, "group_return": [5.0] * 6}, best=10.0),
        log_with({"zero_std_groups": [1.0] * 6, "group_return": [10.0] * 6}, best=10.0),
    ),
    # of the last three episodes two are cut, and one
    "time limit treated as terminal": (
        log_with(
            {}, episodes_of([9] * 7 + [50, 50], 1.0), {"truncation": "terminal"}, time_limit=50
        ),
        log_with({}, episodes_of([9] * 8 + [50], 1.0), {"truncation": "terminal"}, time_limit=50),
    ),
    # three times as large at the end, and ten times the reward of a step, which is 0.05 on average
    "learning rate too high": (
        log_with({"td_error": [1.0, 1.0, 2.0, 3.0, 3.5, 3.5]}),
        log_with({"td_error": [1.0, 1.0, 2.0, 2.5, 2.5, 2.5]}),
    ),
    # returns that never differ cannot teach anything at any rate
    "learning rate too low": (
        log_with({"entropy": [0.69] * 6}),
        log_with({"entropy": [0.69] * 6}, episodes_of([10] * 40, 0.0)),
    ),
    "observations unnormalised": (
        log_with({}, settings={"normalize_observation": False}, scales=(0.0, 1.0, 31.0)),
        log_with({}, settings={"normalize_observation": False}, scales=(0.0, 1.0, 30.0)),
    ),
    # 20 times the ten steps that 0.9 looks ahead
    "discount too low for the horizon": (
        log_with({}, episodes_of([202] * 40, 0.0), {"gamma": 0.9}),
        log_with({}, episodes_of([199] * 40, 0.0), {"gamma": 0.9}),
    ),
}


@pytest.mark.parametrize("rule", BOUNDS)
def test_a_rule_speaks_on_one_side_of_its_bound_only(rule: str) -> None:
    ill, sound = BOUNDS[rule]
    assert RULES[rule](ill) is not None and RULES[rule](sound) is None


class Clock(gymnasium.Env):
    """Shows how many steps there were, and a constant; it never ends."""

    observation_space, action_space = Box(0.0, np.inf, (2,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0.0
        return np.array([self.time, 5.0], dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1.0
        return np.array([self.time, 5.0], dtype=np.float32), 0.0, False, False, {}


def test_scales_are_those_of_observations_within_the_time_limit() -> None:
    """A limit of 4 steps: the times are 0, 1, 2, 3, again and again."""
    found = observation_scales(EnvRecipe.from_env(gymnasium.wrappers.TimeLimit(Clock(), 4)))
    assert found == near([np.std(np.arange(PLAYED + 1) % 4), 0.0], terms=PLAYED)


def test_one_report_does_not_hide_a_collapsed_entropy() -> None:
    returns = [10.0] * 290 + [11.0] * 10
    collapsed = [0.69] * 3 + [1e-6] * 27
    assert entropy_collapse(log_of(returns, collapsed)) is not None
    assert entropy_collapse(log_of(returns, [*collapsed[:20], 0.3, *collapsed[21:]])) is not None
    assert entropy_collapse(log_of(returns, [*collapsed[:15], *[0.3] * 5, *collapsed[20:]])) is None


def test_a_folder_of_several_seeds_is_examined_run_by_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        rlbook.train("sarsa", "Maze-v0", steps=200, seed=seed, out=tmp_path / f"seed-{seed}")
    assert cli.main(["doctor", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(str(tmp_path / "seed-") in line for line in lines)
    assert sum("are undamaged" in line for line in lines) == 2
    (tmp_path / "seed-1" / "config.yaml").write_text("")
    assert cli.main(["doctor", str(tmp_path), "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["runs"]
    assert first["complaints"] == [] != second["complaints"]


@pytest.mark.parametrize(
    ("ended", "said"), [(1, "only 1 episode has ended"), (2, "2 episodes have")]
)
def test_few_episodes_are_counted_in_words_that_agree(ended: int, said: str) -> None:
    played = [(step, 0.0, 1) for step in range(ended)]
    assert said in str(budget_too_short(Log([], played, None, None, None, {}, ())))


@pytest.mark.thorough
def test_a_run_that_goes_well_is_left_in_peace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train("ppo", "Maze-v0", out=tmp_path / "run", steps=20_000)
    assert cli.main(["doctor", str(tmp_path / "run")]) == 0
    assert (
        capsys.readouterr().out
        == f"the files of {tmp_path / 'run'} are undamaged, and its log shows no known problem\n"
    )


def test_the_last_two_quarters_are_of_the_steps_and_not_of_the_episodes() -> None:
    """Of 80 steps the third quarter is 41 to 60, and the last 61 to 80."""
    played = [(step, float(step), 1) for step in (10, 20, 40, 41, 60, 61, 80)]
    log = Log([], played, None, None, None, {}, ())
    assert log.quarters() == ([41.0, 60.0], [61.0, 80.0])


def test_a_curve_that_ends_flat_was_not_too_short_after_long_episodes_at_the_start() -> None:
    """Eight episodes of 10 000 steps, 100 that fall from 400 steps to 20, and 292 of 20: three end
    in the third quarter of the steps, and 392 in the last."""
    lengths = [*8 * [10_000], *np.linspace(400, 20, 100).astype(int).tolist(), *292 * [20]]
    steps = np.cumsum(lengths).tolist()
    played = [(step, -float(length), length) for step, length in zip(steps, lengths, strict=True)]
    assert budget_too_short(Log([], played, None, None, None, {}, ())) is None


def test_a_curve_that_rises_in_long_episodes_at_the_end_was_too_short() -> None:
    """A thousand episodes of 10 steps, and 20 that rise from 100 to 500 steps: those are half of the
    steps, and a fiftieth of the episodes."""
    lengths = [*1_000 * [10], *np.linspace(100, 500, 20).astype(int).tolist()]
    steps = np.cumsum(lengths).tolist()
    played = [(step, float(length), length) for step, length in zip(steps, lengths, strict=True)]
    assert budget_too_short(Log([], played, None, None, None, {}, ())) is not None


@pytest.mark.parametrize("name", ["group_return", "return", "eval_return"])
def test_where_every_return_is_the_best_a_gradient_of_zero_is_nothing_to_complain_of(
    name: str,
) -> None:
    zero = {"grad_norm": [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]}
    assert RULES["gradient zero"](log_with(zero | {name: [0.5] * 6}, best=1.0)) is not None
    assert RULES["gradient zero"](log_with(zero | {name: [1.0] * 6}, best=1.0)) is None
