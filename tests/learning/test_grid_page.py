"""The methods of `rlbook play` reach the optimum of the page's own worlds from several seeds; where
one does not, that is known."""

from __future__ import annotations

import json
import subprocess

import pytest
from closeness import near
from javascript import NODE

from rlbook.plots.pages.grid_page import engine

SCRIPT = """
const [preset, method, settings, steps, seeds] = JSON.parse(process.argv[1]), world = makeWorld(PRESETS[preset]);
const best = optimum(world, 0.99), found = [];
for (let seed = 1; seed <= seeds; seed++) {
  const run = startRun(world, method, settings, seed);
  for (let i = 0; i < steps; i++) stepRun(run);
  const known = knowledge(run), greedyReturn = expectedReturn(world, always(greedyActions(known.best)));
  found.push([greedyReturn, Math.abs(known.V[world.start] - best.V[world.start]), run.returns.slice(-20)]);
}
console.log(JSON.stringify([expectedReturn(world, always(best.actions)), found]));
"""
HALF, FULL = {"alpha": 0.05, "epsilon": 0.05}, {"alpha": 0.1, "epsilon": 0.1}
SOLVED = [
    ("Maze-v0", "q_learning", FULL, 20_000),
    ("Maze-v0", "sarsa", FULL, 20_000),
    ("Maze-v0", "sarsa_lambda", HALF, 40_000),
    ("Maze-v0", "mc_control", HALF, 40_000),
    ("Maze-v0", "dyna_q", FULL, 5_000),
    ("Maze-v0", "reinforce", {"alpha": 0.001}, 100_000),
    ("open room", "q_learning", FULL, 20_000),
    ("open room", "sarsa", FULL, 20_000),
    ("open room", "sarsa_lambda", FULL, 40_000),
    ("open room", "mc_control", FULL, 40_000),
    ("open room", "dyna_q", FULL, 5_000),
    ("open room", "reinforce", {"alpha": 0.01}, 60_000),
    ("CliffWalking", "q_learning", FULL, 40_000),
    ("CliffWalking", "dyna_q", FULL, 10_000),
    ("CliffWalking", "sarsa", {"alpha": 0.1, "epsilon": 0}, 20_000),
    ("FrozenLake", "q_learning", {"alpha": 0.05, "epsilon": 0.3}, 100_000),
    ("FrozenLake", "q_learning", {"alpha": 0.1, "epsilon": 1, "decay": 40_000}, 50_000),
]


def after(*asked: object) -> tuple[float, list[tuple[float, float, list[float]]]]:
    """The best return on average, and for each seed: that of the greedy policy, the error of V at
    the start, the last returns."""
    done = subprocess.run(
        [str(NODE), "-e", f"{engine()}\n{SCRIPT}", json.dumps(asked)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


QUICK = [case for case in SOLVED if case[3] <= 20_000]
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in SOLVED]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("preset", "method", "settings", "steps"),
    CASES,
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_the_greedy_policy_is_optimal_from_every_seed(
    preset: str, method: str, settings: dict[str, float], steps: int
) -> None:
    best, found = after(preset, method, settings, steps, 5)
    assert [pays for pays, _, _ in found] == near([best] * 5, terms=100, size=100.0)


@pytest.mark.parametrize(
    ("preset", "sweeps", "rounds"),
    [
        ("Maze-v0", 10, 6),
        ("CliffWalking", 15, 15),
        ("open room", 14, 13),
        ("FrozenLake", 1_500, 6),
    ],
)
def test_the_planners_find_the_best_values(preset: str, sweeps: int, rounds: int) -> None:
    for method, steps in (("value_iteration", sweeps), ("policy_iteration", rounds)):
        best, [(pays, error, _)] = after(preset, method, {}, steps, 1)
        assert pays == near(best, terms=100, size=100.0)
        assert error < 1e-6  # 0.99^1500 = 3e-7 of V < 1 on the lake, and rounding


@pytest.mark.slow
def test_sarsa_walks_away_from_the_cliff_that_q_learning_walks_along() -> None:
    best, along = after("CliffWalking", "q_learning", FULL, 40_000, 5)
    _, away = after("CliffWalking", "sarsa", FULL, 40_000, 5)
    assert (
        best == -13
        and all(pays == -13 for pays, _, _ in along)
        and all(-17 <= pays <= -15 for pays, _, _ in away)
    )


@pytest.mark.slow
def test_a_search_solves_the_open_room_and_its_moves_are_seldom_wrong() -> None:
    best, [(_, _, returns)] = after("open room", "mcts", {"simulations": 200}, 50_000, 1)
    assert len(returns) == 20 and sum(returns) / 20 > best - 2


@pytest.mark.slow
def test_a_search_with_the_pages_plain_values_comes_near_the_best_way_through_the_maze() -> None:
    """An episode of the best way is 8 · 2 001 steps; the return of the first one counts."""
    best, found = after("Maze-v0", "mcts", {}, 20_000, 10)
    returns = [played[0] for _, _, played in found if played]
    assert (
        best == 3
        and len(returns) == 10
        and sum(returns) / 10 >= 2.5
        and sum(paid == best for paid in returns) >= 7
    )


@pytest.mark.slow
def test_a_falling_epsilon_brings_sarsas_values_to_its_greedy_policy_and_not_to_the_best_way() -> (
    None
):
    _, constant = after("CliffWalking", "sarsa", FULL, 50_000, 3)
    best, falling = after("CliffWalking", "sarsa", FULL | {"decay": 40_000}, 50_000, 3)
    assert [pays for pays, _, _ in falling] == [-15] * 3 and best == -13
    assert max(error for _, error, _ in falling) < min(error for _, error, _ in constant)
