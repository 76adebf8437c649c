"""What a stack of observations can do in a hidden world, exactly: T-mazes, and a maze seen through
its local view."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from closeness import near
from gymnasium.wrappers import FrameStackObservation

import rlbook
from rlbook.envs.t_maze import FORWARD, UP, TMaze, t_maze_model, t_maze_views
from rlbook.envs.tabular.belief_mdp import (
    HiddenModel,
    belief_mdp,
    best_memoryless_policy,
    hidden_model,
)
from rlbook.envs.tabular.frame_stack import stack_observations
from rlbook.envs.tabular.mdp_arrays import from_entries

GAMMA = 0.99


def t_maze(length: int) -> HiddenModel:
    return hidden_model(t_maze_model(length, observable=False), t_maze_views(length))


def u_maze(width: int) -> HiddenModel:
    """There along a corridor, and back along the one below it, whose cells look the same."""
    layout = f"S{'.' * (width - 1)}\n{'#' * (width - 1)}.\nG{'.' * (width - 1)}"
    maze = rlbook.make("Maze-v0", layout=layout, observation="local").unwrapped
    tables = maze.tables  # type: ignore[attr-defined]
    views = tables.observe(np.arange(tables.layout.num_states))
    _, numbers = np.unique(views, axis=0, return_inverse=True)
    return hidden_model(maze.model(), numbers)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("length", "frames"), [(1, 1), (2, 1), (2, 2), (3, 2), (10, 1)])
def test_a_stack_that_is_too_short_for_the_t_maze_is_worth_nothing(
    length: int, frames: int
) -> None:
    """With `length` observations or fewer the sign is gone when the junction is seen."""
    value, _ = best_memoryless_policy(stack_observations(t_maze(length), frames), GAMMA)
    assert value == near(0.0, terms=10 * length, size=1.0)


@pytest.mark.parametrize("length", [1, 2])
def test_a_stack_of_one_more_than_the_corridor_is_worth_a_memory(length: int) -> None:
    hidden = t_maze(length)
    value, _ = best_memoryless_policy(stack_observations(hidden, length + 1), GAMMA)
    assert value == near(belief_mdp(hidden).optimal_return(GAMMA), terms=10 * length)
    assert value == near(GAMMA**length, terms=length)  # 1, after `length` steps that pay 0


@pytest.mark.parametrize(("width", "needed"), [(5, 2), pytest.param(6, 3, marks=pytest.mark.slow)])
def test_the_maze_through_its_local_view_needs_a_stack_that_reaches_back_to_the_corner(
    width: int, needed: int
) -> None:
    """The last cell on the way back that looks like one on the way there is width - 4 steps from
    the corner, where the two ways look different."""
    hidden = u_maze(width)
    best = belief_mdp(hidden).optimal_return(GAMMA)
    steps = 2 * width
    assert belief_mdp(hidden).optimal_return(1.0) == near(10.0 - (steps - 1), terms=steps)
    for frames in range(1, needed + 1):
        value, _ = best_memoryless_policy(stack_observations(hidden, frames), GAMMA)
        if frames == needed:
            assert value == near(best, terms=100 * steps, size=10.0)
        else:  # it never arrives, and pays 1 a step
            assert value == near(-1.0 / (1.0 - GAMMA), terms=100 * steps)


def test_planning_where_one_state_alone_is_seen_finds_what_trying_all_policies_finds() -> None:
    """Random worlds of five states and four observations, two of them shown by one state alone."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        transitions = rng.dirichlet(np.ones(5), size=(5, 2))
        model = rlbook.envs.TabularMDP.from_arrays(transitions, rng.normal(size=(5, 2)))
        hidden = hidden_model(model, [0, 1, 2, 2, 2])
        value, actions = best_memoryless_policy(hidden, 0.9)
        tried = [
            float(model.initial @ model.policy_values(np.array(policy)[[0, 1, 2, 2, 2]], 0.9))
            for policy in np.ndindex(2, 2, 2)
        ]
        assert value == near(max(tried), terms=5**3, size=10.0)
        assert tuple(actions) == list(np.ndindex(2, 2, 2))[int(np.argmax(tried))]


def test_one_frame_is_the_world_itself() -> None:
    hidden = t_maze(3)
    stacked = stack_observations(hidden, 1)
    assert stacked.model.num_states == 2 * 4  # those that can be reached; the end is none
    assert best_memoryless_policy(stacked, 1.0)[0] == best_memoryless_policy(hidden, 1.0)[0]
    with pytest.raises(ValueError, match="frames must be at least 1, got 0"):
        stack_observations(hidden, 0)


def test_a_stack_at_the_start_is_filled_with_what_was_seen_first() -> None:
    """Start and end look like 1, the cell between like 0: a stack of 1, 1 is the start and one of
    0, 1 the end, whose right actions differ."""
    stops, goes = True, False
    entries = [(0, 0, 1, 1.0, 0.0, goes), (0, 1, 0, 1.0, 0.0, stops)]
    entries += [(1, action, 2, 1.0, 0.0, goes) for action in (0, 1)]
    entries += [(2, 0, 2, 1.0, 0.0, stops), (2, 1, 2, 1.0, 1.0, stops)]
    world = hidden_model(from_entries(entries, 3, 2, initial=[1, 0, 0]), [1, 0, 1])
    assert best_memoryless_policy(world, 1.0)[0] == 0.0
    assert best_memoryless_policy(stack_observations(world, 2), 1.0)[0] == 1.0


def test_the_windows_are_those_of_gymnasiums_wrapper() -> None:
    """The stack's window at the junction decides: the arm that the sign showed, by the wrapper."""
    for seed in range(4):
        env: gymnasium.Env = FrameStackObservation(TMaze(length=3), 4)
        seen, _ = env.reset(seed=seed)
        assert len({*seen.tolist()}) == 1  # filled with the first observation
        for _ in range(3):
            seen, *_ = env.step(FORWARD)
        _, reward, terminated, *_ = env.step(UP + int(seen[0]))
        assert reward == 1.0 and terminated
