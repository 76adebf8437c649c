"""A hidden world seen through a stack of its latest observations, so that what a stack can and
cannot do is computed exactly."""

from __future__ import annotations

import numpy as np

from rlbook.envs.tabular.belief_mdp import HiddenModel
from rlbook.envs.tabular.mdp_arrays import from_entries

Window = tuple[int, ...]


def stack_observations(hidden: HiddenModel, frames: int) -> HiddenModel:
    """The same world, in which the agent sees its latest `frames` observations at once.

    A state is a state of the world together with the observations in the stack; those that can be
    reached are numbered, and so are the stacks. At the start of an episode the stack is filled with
    the first observation, as `gymnasium.wrappers.FrameStackObservation` does by default. So
    `best_memoryless` of the result is the best policy of such a stack.

    Args:
        hidden: the world.
        frames: observations in a stack, at least 1; 1 leaves the world what it is.

    Raises:
        ValueError: `frames` is below 1.
    """
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    model, observed = hidden.model, hidden.observed
    states: dict[tuple[int, Window], int] = {}
    windows: dict[Window, int] = {}

    def number(state: int, window: Window) -> int:
        windows.setdefault(window, len(windows))
        return states.setdefault((state, window), len(states))

    start = {
        number(state, (seen,) * frames): model.initial[state] * observed[state, seen]
        for state in np.flatnonzero(model.initial > 0).tolist()
        for seen in np.flatnonzero(observed[state]).tolist()
    }
    shape = (model.num_states, model.num_actions, model.num_states)
    goes_on = model.continues_by_state.toarray().reshape(shape)  # without what ends the episode
    entries, waiting = [], 0
    while waiting < len(states):
        state, window = list(states)[waiting]
        for action in range(model.num_actions):
            reward, left = float(model.rewards[state, action]), 1.0
            for successor in np.flatnonzero(goes_on[state, action]):
                for seen in np.flatnonzero(observed[successor]):
                    after = number(int(successor), (*window[1:], int(seen)))
                    chance = goes_on[state, action, successor] * observed[successor, seen]
                    entries.append((waiting, action, after, chance, reward, False))
                    left -= chance
            if left > 1e-9:
                entries.append((waiting, action, waiting, left, reward, True))
        waiting += 1
    initial = np.zeros(len(states))
    initial[list(start)] = list(start.values())
    stacked = from_entries(
        entries, len(states), model.num_actions, initial=initial, observable=False
    )
    views = np.array([windows[window] for _, window in states])
    return HiddenModel(stacked, np.eye(len(windows))[views])
