"""Presets for environments of other packages: one run more comes to what the file says, and rooms
whose shortest path can be counted are left by nearly the shortest."""

from __future__ import annotations

import copy
import json
import statistics
from collections import deque
from typing import Any

import gymnasium
import pytest

from rlbook.cli import main as cli
from rlbook.registry import EXPECTED, agent_class, presets

ACTIONS = range(
    6
)  # turn left, turn right, forward, pick up, drop, toggle; the seventh does nothing
LEVELS = 20
SOLVED = 0.95  # share of the optimum


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "algorithm", "env"),
    [("Box2D", "ppo", "LunarLander-v3"), ("minigrid", "ppo", "MiniGrid-Empty-Random-5x5-v0")],
)
def test_verify_proves_a_preset_by_one_more_run(
    package: str, algorithm: str, env: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed 0 is none of those that were measured, and none that chose a setting."""
    pytest.importorskip(package)
    words = ["verify", algorithm, env, "--budget", "2h", "--jobs", "1", "--json"]
    assert cli.main(words) == 0, "the run came to less than 95 % of runs do"
    (found,) = json.loads(capsys.readouterr().out)["presets"]
    assert (found["algorithm"], found["env"], found["holds"]) == (algorithm, env, True)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["MiniGrid-Empty-Random-5x5-v0", "MiniGrid-DoorKey-5x5-v0"])
def test_rooms_are_left_by_nearly_the_shortest_path(env: str) -> None:
    pytest.importorskip("minigrid")
    best = statistics.fmean(return_of_the_shortest_path(env, seed) for seed in range(LEVELS))
    assert presets(agent_class("ppo"))[env][EXPECTED]["value"] >= SOLVED * best


def test_an_empty_room_takes_five_actions() -> None:
    """Two cells forward, a turn, two cells forward, of at most 100 actions: 1 - 0.9 · 5/100."""
    pytest.importorskip("minigrid")
    assert return_of_the_shortest_path("MiniGrid-Empty-5x5-v0", 0) == 1 - 0.9 * 5 / 100


def return_of_the_shortest_path(env_id: str, seed: int) -> float:
    """What the fewest actions to the goal of a level are paid, by breadth-first search over copies
    of the environment."""
    first: Any = gymnasium.make(env_id).unwrapped
    first.reset(seed=seed)
    seen, waiting = {_state(first)}, deque([first])
    while waiting:
        env = waiting.popleft()
        for action in ACTIONS:
            after = copy.deepcopy(env)
            _, reward, terminated, _, _ = after.step(action)
            if reward > 0:
                return float(reward)
            if not terminated and _state(after) not in seen:
                seen.add(_state(after))
                waiting.append(after)
    raise AssertionError(f"{env_id} with seed {seed} has no path to the goal")


def _state(env: Any) -> tuple[Any, ...]:
    """What tells two moments of a level apart, its clock aside."""
    carried = None if env.carrying is None else env.carrying.encode()
    return (*env.agent_pos, env.agent_dir, carried, env.grid.encode().tobytes())
