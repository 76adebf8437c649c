"""An expert looks on: what it would do in the states that N environments are in, whoever brought
them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent, State, takes_action_mask
from rlbook.errors import TrainingError
from rlbook.interaction.spaces import adapt_to, encode_actions, is_image, outermost_keeper

LEARNABLE = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
"""Actions that an expert's can be compared with."""


def greedy_action(agent: Agent, shown: ArrayLike, action_mask: NDArray[np.bool_] | None) -> Any:
    """What an agent would do in a state as the environment shows it, within a mask if it can keep
    to one."""
    if action_mask is None or not takes_action_mask(agent.act):
        return agent.act(agent.adapt_observations(shown), explore=False)
    return agent.act(agent.adapt_observations(shown), explore=False, action_mask=action_mask)  # type: ignore[call-arg]


class AdvisedVectorEnv(VectorWrapper):
    """N environments, unchanged, and what an expert would do in them.

    Args:
        env: whose observations the expert is shown, as the environments show them.
        expert: makes it, when it is first asked.
    """

    def __init__(self, env: VectorEnv, expert: Callable[[], Agent]) -> None:
        super().__init__(env)
        self._make_expert = expert
        self._shown: Any = None  # [N, ...], the last observation

    @cached_property
    def expert(self) -> Agent:
        return self._make_expert()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        self._shown, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._shown, info

    def step(self, actions: ArrayLike) -> Any:
        self._shown, *rest = self.env.step(actions)
        return (self._shown, *rest)

    def advice(self, action_mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """The expert's greedy actions where the environments are now, as a policy chooses them: [N]
        or [N, A].

        Args:
            action_mask: [N, A], what is allowed there; None: everything.

        Raises:
            TrainingError: the expert would take a forbidden action.
        """
        expert, shown = self.expert, self._shown
        if expert.batched:
            chosen = greedy_action(expert, shown, action_mask)
        else:
            masks = [None] * self.num_envs if action_mask is None else action_mask
            rows = iterate(self.observation_space, shown)
            chosen = np.stack(
                [greedy_action(expert, row, mask) for row, mask in zip(rows, masks, strict=True)]
            )
        act = None if expert.adaptation is None else expert.adaptation.act
        chosen = encode_actions(
            np.asarray(chosen if act is None else act(chosen)), self.single_action_space
        )
        if action_mask is not None and not action_mask[np.arange(len(chosen)), chosen].all():
            row = int(np.flatnonzero(~action_mask[np.arange(len(chosen)), chosen])[0])
            raise TrainingError(
                f"the expert would take action {chosen[row]}, which the environment forbids"
                " (info['action_mask'])"
            )
        return chosen

    def snapshot(self) -> State:
        """Everything that continuing needs."""
        return {"env": outermost_keeper(self.env).snapshot(), "shown": self._shown}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        outermost_keeper(self.env).restore(state["env"])
        self._shown = state["shown"]


def check_advisable(env: gymnasium.Env | VectorEnv) -> None:
    """Raises ValueError where no expert could say what to do in every state, or where nobody could
    learn it step by step."""
    if hasattr(env.unwrapped, "policy_kind"):
        raise ValueError(
            "a right answer says how to go on from a right beginning, and nobody says how to go on"
            " from a wrong one"
        )
    actions = getattr(env, "single_action_space", None) or env.action_space
    if not isinstance(actions, LEARNABLE):
        raise ValueError(f"actions of {actions} cannot be learned from")


def check_comparable(env: gymnasium.Env | VectorEnv) -> None:
    """Raises ValueError where one step cannot be compared with another as two vectors."""
    if hasattr(env.unwrapped, "policy_kind"):
        raise ValueError("it compares single steps, and a text is judged as a whole")
    if is_image(getattr(env, "single_observation_space", None) or env.observation_space):
        raise ValueError(
            "it looks at mixtures of two observations, and the mixture of two images is none"
        )
    actions = getattr(env.unwrapped, "single_action_space", None) or env.unwrapped.action_space
    if not isinstance(actions, LEARNABLE):
        raise ValueError(f"actions of {actions} cannot be learned from")


def check_expert(expert: Agent, env: VectorEnv) -> None:
    """Raises ValueError where an agent cannot be asked what it would do in `env`."""
    name = type(expert).__name__
    if not expert.plays() or type(expert).bind_env is not Agent.bind_env:
        raise ValueError(
            f"the expert must say what to do in any state that it is shown, which {name} does not"
        )
    made, found = expert.adaptation, adapt_to(type(expert), env, expert.config)
    if made is None:
        return
    for what in ("observation_space", "action_space"):
        if getattr(made, what) != getattr(found, what):
            here, there = (
                f"its {what.replace('_', ' ')} is {getattr(found, what)}",
                getattr(made, what),
            )
            raise ValueError(
                f"the expert was made for another environment: {here}, and the expert's {there}"
            )
