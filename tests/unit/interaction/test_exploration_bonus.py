"""The exploration bonus: by hand, added to the reward of every kind of agent, and taken up again
bit for bit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import near, widths
from gymnasium import spaces

import rlbook
from rlbook.errors import RequestError
from rlbook.functional.exploration_bonuses import count_bonus
from rlbook.interaction.exploration_bonus import CountBonus
from rlbook.interaction.guards import METRICS
from rlbook.interaction.learned_reward import LearnedRewardVectorEnv
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.networks.random_distillation import RandomDistillation
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run
from rlbook.seeding import rng_for

EYE = np.eye(4, dtype=np.float32)


def score(bonus: Any, states: list[int], actions: list[int], active: list[bool]) -> list[float]:
    """The bonuses of some steps, each of which ends where it began."""
    obs, over = bonus.adapt_observations(EYE[states]), np.zeros(len(states), dtype=bool)
    found, spread = bonus.score_steps(obs, np.array(actions), obs, over, np.array(active))
    assert spread is None
    return found.tolist()


def test_the_bonus_of_the_first_the_second_and_the_fourth_time() -> None:
    assert count_bonus([1, 2, 4], 0.5).tolist() == [0.5, 0.5 / np.sqrt(2), 0.25]


def test_pairs_are_counted_in_all_environments_together_and_only_where_a_step_was_taken() -> None:
    """(0, 0) twice in one call, and a third time; (0, 1) once; a row that waits is not counted."""
    bonus = CountBonus(1.0)
    first = score(bonus, [0, 0, 0, 1], [0, 1, 0, 0], [True, True, True, False])
    assert first == near([1.0, 1.0, 1 / np.sqrt(2), 0.0])
    assert score(bonus, [0, 1], [0, 0], [True, True]) == near([1 / np.sqrt(3), 1.0])
    other = CountBonus(1.0)
    other.load_state_dict(bonus.state_dict())
    assert other.counts == bonus.counts and sorted(bonus.counts.values()) == [1, 1, 3]


def test_rnd_pays_less_for_what_was_seen_often_than_for_what_is_new() -> None:
    """The bonus of a state falls as it is seen; that of another one stays above it."""
    for seed in range(3):
        space = spaces.Box(0.0, 1.0, (4,), np.float32)
        bonus = RandomDistillation(space, 1.0, rng_for(seed, "bonus"))
        early = [score(bonus, [0, 1], [0, 0], [True, True]) for _ in range(20)]
        late = [score(bonus, [0, 1], [0, 0], [True, True]) for _ in range(200)]
        new = score(bonus, [3, 3], [0, 0], [True, False])
        assert np.mean(late[-20:]) < np.mean(early) / 2
        assert new[0] > 2 * np.mean(late[-20:]) and new[1] == 0.0


def test_a_row_that_waits_changes_no_later_bonus_of_rnd() -> None:
    space = spaces.Box(0.0, 1.0, (4,), np.float32)
    bonus, other = (RandomDistillation(space, 1.0, rng_for(0, "bonus")) for _ in range(2))
    for _ in range(2):
        waits = score(bonus, [0, 1, 2], [0, 0, 0], [True, True, False])
        assert waits == [*score(other, [0, 1], [0, 0], [True, True]), 0.0]


def test_rnds_bonus_is_the_error_in_units_of_the_errors_so_far_of_observations_clipped_at_5() -> (
    None
):
    """29 rows of 0 and one of 100: standardised, these are -0.19 and 5.39."""
    bonus = RandomDistillation(spaces.Box(0.0, 100.0, (1,), np.float32), 2.0, rng_for(0, "bonus"))
    rows = np.zeros((30, 1), dtype=np.float32)
    rows[-1] = 100.0
    shown = np.minimum((rows - rows.mean()) / rows.std(), 5.0)
    with torch.no_grad():
        x = torch.from_numpy(shown)
        error = (bonus.predictor(x) - bonus.target(x)).square().mean(-1).double().numpy()
    found, _ = bonus.score_steps(rows, np.zeros(30), rows, np.zeros(30, dtype=bool))
    expected, terms = 2.0 * error / np.sqrt((error**2).mean()), widths(bonus.predictor)
    assert found == near(expected, dtype="float32", terms=terms, size=10.0 * expected.max())


class Ticks(gymnasium.Env):
    """Three steps from one state, each of which pays 1."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: int) -> Any:
        self.place += 1
        return self.place, 1.0, self.place == 3, False, {}


class Until(Ticks):
    """The same for so many steps."""

    def __init__(self, length: int) -> None:
        self.length = length

    def step(self, action: int) -> Any:
        self.place += 1
        return self.place, 1.0, self.place == self.length, False, {}


def test_what_the_environment_pays_is_added_up_for_each_episode_by_itself() -> None:
    """Episodes of two and of three steps side by side; the first begins again in between."""
    many = LearnedRewardVectorEnv(SyncVector([Until(2), Until(3)]), CountBonus(0.5), added=True)
    many.reset(seed=0)
    told = []
    for _ in range(4):
        _, _, over, _, info = many.step(np.zeros(2, dtype=np.int64))
        told.append(info[METRICS]["true_return"].tolist())
        if over.any():
            many.reset(options={"reset_mask": over})
    nan = np.nan
    np.testing.assert_array_equal(told, [[nan, nan], [2.0, nan], [nan, 3.0], [2.0, nan]])


@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo", "reinforce", "sac"])
def test_every_agent_is_paid_the_bonus_beside_the_reward(algorithm: str) -> None:
    """Ten episodes: in the n-th of one environment each step earns 1 + 0.5 / √n, and what the
    environment pays, 3, is logged beside it."""
    envs: dict[str, Any] = {} if algorithm == "q_learning" else {"num_envs": 1}
    envs |= {"baseline": "none"} if algorithm == "reinforce" else {}
    run = rlbook.train(
        algorithm,
        Ticks(),
        steps=30,
        eval_every=0,
        exploration_bonus="count",
        bonus_coef=0.5,
        **envs,
    )
    expected = [3 + 3 * 0.5 / np.sqrt(n) for n in range(1, 11)]
    assert run.episode_returns == near(expected, dtype="float32", terms=4)
    logged = [row["true_return"] for row in run.metrics if row.get("true_return") is not None]
    assert logged and set(logged) == {3.0}


CUT: list[tuple[str, str, dict[str, Any]]] = [
    (kind, algorithm, settings)
    for kind in ("count", "rnd")
    for algorithm, settings in (
        ("q_learning", {}),
        ("dqn", {"num_envs": 2, "learning_starts": 4, "batch_size": 4}),
        ("ppo", {"num_envs": 2, "rollout_steps": 8, "batch_size": 8}),
    )
]


@pytest.mark.parametrize(
    ("kind", "algorithm", "settings"),
    [
        pytest.param(
            *cut,
            marks=[] if cut[:2] in (("count", "q_learning"), ("rnd", "ppo")) else pytest.mark.slow,
        )
        for cut in CUT
    ],
)
def test_a_run_cut_short_goes_on_bit_for_bit(
    tmp_path: Path, kind: str, algorithm: str, settings: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {
        "steps": 96,
        "eval_every": 0,
        "exploration_bonus": kind,
        "seed": 3,
        **settings,
    }

    def stop(run: Run) -> None:
        if run.steps >= 40:
            signal.raise_signal(signal.SIGINT)

    whole: Any = rlbook.train(algorithm, "Maze-v0", **asked)
    with pytest.raises(Interrupted):
        rlbook.train(algorithm, "Maze-v0", out=tmp_path / "run", on_report=stop, **asked)
    resumed: Any = rlbook.load(tmp_path / "run").resume()
    assert resumed.steps == 96 and resumed.episode_returns == whole.episode_returns
    network = {"dqn": "q", "ppo": "policy"}.get(algorithm)
    if network is None:
        assert np.array_equal(whole.agent.action_values(), resumed.agent.action_values())
        return
    pairs = zip(
        getattr(whole.agent, network).parameters(),
        getattr(resumed.agent, network).parameters(),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    ("algorithm", "settings", "refusal"),
    [
        ("dqn", {"exploration_bonus": "counts"}, "exploration_bonus must be one of count, rnd"),
        (
            "dqn",
            {"bonus_coef": 1.0},
            "bonus_coef needs an exploration_bonus and must be at least 0",
        ),
        ("cql", {"exploration_bonus": "count"}, "has no use for an exploration_bonus"),
        ("value_iteration", {"exploration_bonus": "count"}, "has no use for an exploration_bonus"),
    ],
)
def test_what_has_no_effect_is_refused(
    algorithm: str, settings: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(RequestError, match=refusal):
        rlbook.train(algorithm, "Maze-v0", **settings)
