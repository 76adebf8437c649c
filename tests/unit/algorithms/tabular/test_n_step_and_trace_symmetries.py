"""What must not matter to n-step methods and traces: the names of states, the unit of rewards,
states that are never met."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rlbook.agent import Step
from rlbook.registry import agent_class

AGENTS: list[tuple[str, dict[str, Any]]] = [
    ("n_step_td", {"n": 3}),
    ("n_step_sarsa", {"n": 3}),
    *[
        ("td_lambda", {"traces": traces})
        for traces in ("accumulating", "replacing", "true-online", "offline")
    ],
    *[
        ("sarsa_lambda", {"traces": traces})
        for traces in ("accumulating", "replacing", "true-online")
    ],
    *[("watkins_q_lambda", {"traces": traces}) for traces in ("accumulating", "replacing")],
]
every_agent = pytest.mark.parametrize(("algorithm", "config"), AGENTS, ids=str)


class Spaces:
    """As much of an environment as a tabular agent looks at."""

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_states)
        self.action_space = gymnasium.spaces.Discrete(num_actions)


def learned(
    algorithm: str,
    config: dict[str, Any],
    *,
    scale: float = 1.0,
    names: Any = range(6),
    num_states: int = 6,
    num_actions: int = 3,
) -> np.ndarray:
    """The table after the same 400 steps in 6 states; `names` says what each is called, and rewards
    are multiplied by `scale`."""
    kind = agent_class(algorithm)
    env: Any = Spaces(num_states, num_actions)
    agent: Any = kind(env, kind.Config(**config), 0)
    rng = np.random.default_rng(0)
    state = 0
    for _ in range(400):
        next_state, reward, ended, cut = (
            int(rng.integers(6)),
            float(rng.normal()),
            rng.random() < 0.1,
            rng.random() < 0.05,
        )
        agent.learn(
            Step(
                names[state],
                int(rng.integers(3)) % num_actions,
                scale * reward,
                names[next_state],
                ended,
                cut and not ended,
            )
        )
        state = next_state
    return agent.memory.v if hasattr(agent.memory, "v") else agent.memory.q


@every_agent
def test_twice_the_rewards_make_twice_the_values(algorithm: str, config: dict[str, Any]) -> None:
    """A power of two changes no digit, so every comparison between values comes out the same and
    the tables are equal to the bit."""
    np.testing.assert_array_equal(
        learned(algorithm, config, scale=8.0), 8.0 * learned(algorithm, config)
    )


@every_agent
def test_relabelled_states_permute_the_table(algorithm: str, config: dict[str, Any]) -> None:
    names = [3, 5, 0, 1, 4, 2]
    np.testing.assert_array_equal(
        learned(algorithm, config, names=names)[names], learned(algorithm, config)
    )


@every_agent
def test_states_that_are_never_met_change_nothing(algorithm: str, config: dict[str, Any]) -> None:
    table = learned(algorithm, config, num_states=9)
    np.testing.assert_array_equal(table[:6], learned(algorithm, config))
    assert not table[6:].any()


@pytest.mark.parametrize(
    ("control", "prediction", "config"),
    [
        ("n_step_sarsa", "n_step_td", {"n": 3}),
        *[
            ("sarsa_lambda", "td_lambda", {"traces": traces})
            for traces in ("accumulating", "replacing", "true-online")
        ],
        *[
            ("watkins_q_lambda", "td_lambda", {"traces": traces})
            for traces in ("accumulating", "replacing")
        ],
    ],
)
def test_with_a_single_action_control_is_prediction_to_the_bit(
    control: str, prediction: str, config: dict[str, Any]
) -> None:
    """Then Q(s, a') and max Q(s, ·) are V(s), at ends and time limits too."""
    config = config | ({"trace_decay": 0.7} if "lambda" in control else {})
    np.testing.assert_array_equal(
        learned(control, config, num_actions=1)[:, 0], learned(prediction, config, num_actions=1)
    )
