"""Hidden worlds, solved exactly, against answers from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from closeness import near

from rlbook.envs.short_corridor import ShortCorridor, short_corridor_model
from rlbook.envs.t_maze import CORRIDOR, DOWN, FORWARD, TMaze, t_maze_model, t_maze_views
from rlbook.envs.tabular.belief_mdp import (
    HiddenModel,
    alpha_vectors,
    belief_mdp,
    best_memoryless_policy,
    hidden_model,
    prune,
)
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries


def tiger() -> HiddenModel:
    """Kaelbling, Littman and Cassandra's: listen, open left, open right; the tiger behind one."""
    stay, anew = np.eye(2), np.full((2, 2), 0.5)
    transitions = np.stack([stay, anew, anew], axis=1)
    rewards = np.array([[-1.0, -100.0, 10.0], [-1.0, 10.0, -100.0]])
    model = TabularMDP.from_arrays(transitions, rewards)
    return hidden_model(model, [[0.85, 0.15], [0.15, 0.85]])


def silent_tiger() -> HiddenModel:
    """The same as in the paper, where nothing is heard after a door was opened: a second pair of
    states says whether the last action was to listen."""
    transitions = np.zeros((4, 3, 4))
    for state in range(4):
        transitions[state, 0, 2 + state % 2] = 1.0  # listening
        transitions[state, 1:, :2] = 0.5
    rewards = np.tile(tiger().model.rewards, (2, 1))
    model = TabularMDP.from_arrays(transitions, rewards, initial=[0.5, 0.5, 0.0, 0.0])
    return hidden_model(model, [[0, 0, 1], [0, 0, 1], [0.85, 0.15, 0], [0.15, 0.85, 0]])


def test_the_tiger_is_worth_what_others_found() -> None:
    """19.37 at γ = 0.95: pomdp-solve's tiger.95."""
    beliefs = belief_mdp(silent_tiger())
    assert beliefs.optimal_return(0.95) == near(19.37, decimals=2)
    assert len(beliefs.beliefs) == 28  # what the page on hidden states says


@pytest.mark.thorough
def test_the_alpha_vectors_come_as_near_as_they_say() -> None:
    gamma, precision = 0.3, 0.01
    alphas = alpha_vectors(tiger(), gamma, precision=precision)
    first = np.array([[0.85, 0.15], [0.15, 0.85]])  # the beliefs after the first sound
    value = (first @ alphas.T).max(axis=1).mean()
    assert value == pytest.approx(belief_mdp(tiger()).optimal_return(gamma), abs=precision)


def test_a_vector_is_kept_only_where_it_is_the_largest_somewhere() -> None:
    alphas = np.array([[1.0, 0.0], [0.0, 1.0], [0.4, 0.4], [0.6, 0.6], [-1.0, 0.9]])
    assert sorted(prune(alphas).tolist()) == [[0.0, 1.0], [0.6, 0.6], [1.0, 0.0]]
    level = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])  # the third is nowhere above both
    assert sorted(prune(level).tolist()) == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("length", [1, 3, 10])
def test_in_the_t_maze_a_memory_earns_1_and_none_earns_0(length: int) -> None:
    hidden = hidden_model(t_maze_model(length, observable=False), t_maze_views(length))
    beliefs = belief_mdp(hidden)
    assert beliefs.optimal_return(1.0) == near(1.0, terms=10 * length)
    assert len(beliefs.beliefs) == 2 * (length + 1)  # the sign is never forgotten
    value, actions = best_memoryless_policy(hidden, 1.0)
    assert value == near(0.0, terms=10 * length, size=1.0) and actions[CORRIDOR] == FORWARD
    always_down = [FORWARD, FORWARD, FORWARD, DOWN]
    policy = hidden.observed @ np.eye(3)[always_down]
    values = hidden.model.policy_values(policy, 1.0)
    assert hidden.model.initial @ values == near(0.0, terms=10 * length, size=1.0)


def test_a_hidden_state_that_can_be_worked_out_is_worth_what_a_visible_one_is() -> None:
    """In the short corridor the way so far says where one is."""
    model = short_corridor_model(observable=False)
    hidden = hidden_model(model, np.array([0, 0, 0, 0]))
    beliefs = belief_mdp(hidden)
    assert beliefs.optimal_return(1.0) == near(ShortCorridor(True).optimal_return, terms=20)
    with pytest.raises(ValueError, match="no policy has a finite value"):
        best_memoryless_policy(hidden, 1.0)


def test_a_state_that_is_never_reached_decides_no_action() -> None:
    stay = np.repeat(np.eye(2)[:, None], 2, axis=1)
    model = TabularMDP.from_arrays(stay, [[1.0, 0.0], [0.0, 100.0]], initial=[1.0, 0.0])
    value, actions = best_memoryless_policy(hidden_model(model, [[1.0], [1.0]]), 0.5)
    assert value == 2.0 and actions.tolist() == [0]


def test_a_visible_world_is_itself() -> None:
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(4), size=(4, 2))
    model = TabularMDP.from_arrays(transitions, rng.normal(size=(4, 2)))
    beliefs = belief_mdp(hidden_model(model, np.arange(4)))
    values = np.zeros(4)
    for _ in range(500):
        values = model.backup(values, 0.9).max(axis=1)
    assert beliefs.optimal_return(0.9) == near(
        float(model.initial @ values), terms=500 * 4, size=50
    )
    assert sorted(beliefs.beliefs.argmax(axis=1).tolist()) == [0, 1, 2, 3]


def test_an_end_that_may_come_is_an_outcome() -> None:
    """A step pays 1, and ends the episode with probability ¼: four steps in the mean."""
    entries = [(0, 0, 0, 0.75, 1.0, False), (0, 0, 0, 0.25, 1.0, True)]
    beliefs = belief_mdp(hidden_model(from_entries(entries, 1, 1), [0]))
    assert beliefs.optimal_return(1.0) == near(4.0, terms=100)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: hidden_model(tiger().model, [0, 1, 2]), r"views must be \[2\] or \[2, O\]"),
        (lambda: hidden_model(tiger().model, [[0.5, 0.4], [0, 1]]), "add up to 1"),
        (lambda: hidden_model(tiger().model, [[1.5, -0.5], [0, 1]]), "must be probabilities"),
        (lambda: belief_mdp(tiger(), most=10), "more than 10 beliefs"),
        (lambda: alpha_vectors(tiger(), 1.0), "gamma must be at least 0 and below 1, got 1.0"),
        (lambda: best_memoryless_policy(tiger(), 0.9, most=8), "there are 9 policies"),
        (lambda: TMaze(length=0), "length must be an integer of at least 1, got 0"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_maze_is_drawn_with_its_prize_where_the_sign_points() -> None:
    env = TMaze(length=3)
    assert env.draw_text(0) == "###G\nA...\n###x" and env.draw_text(7) == "###x\nS..A\n###G"
    assert env.draw_pixels(0).shape[2] == 3


def test_the_code_of_the_page_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "environments" / "hidden-states.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    for code in blocks:
        exec(compile(code, "hidden-states.md", "exec"), {})
