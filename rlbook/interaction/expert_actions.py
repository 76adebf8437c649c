"""Expert labels: what an expert would do in the states that N environments are in, whichever policy
led there."""

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
from rlbook.interaction.spaces import adapt_to, encode_actions, is_image, outermost_snapshot_env

LEARNABLE = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
"""The action spaces in which an expert's actions can be learned."""


def greedy_action(agent: Agent, shown: ArrayLike, action_mask: NDArray[np.bool_] | None) -> Any:
    """An agent's greedy action for a raw observation, restricted to the action mask if the agent
    supports masks."""
    if action_mask is None or not takes_action_mask(agent.act):
        return agent.act(agent.adapt_observations(shown), explore=False)
    return agent.act(agent.adapt_observations(shown), explore=False, action_mask=action_mask)  # type: ignore[call-arg]


class AdvisedVectorEnv(VectorWrapper):
    """N unmodified environments, together with an expert's action for each current state.

    Args:
        env: whose observations the expert is shown, as the environments show them.
        expert: makes it, when it is first asked.
    """

    keeps_rewards = True  # see `round_rewards`

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

    def advised_actions(self, action_mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """The expert's greedy actions for the current states, in the policy's action format: [N] or
        [N, A].

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
        """All state needed to continue."""
        return {"env": outermost_snapshot_env(self.env).snapshot(), "shown": self._shown}

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        outermost_snapshot_env(self.env).restore(state["env"])
        self._shown = state["shown"]


def check_advisable(env: gymnasium.Env | VectorEnv) -> None:
    """Raises ValueError if an expert cannot label every state of the environment, or if its actions
    cannot be learned step by step."""
    if hasattr(env.unwrapped, "policy_kind"):
        raise ValueError(
            "a reference answer labels only its own prefixes, and this algorithm needs an expert"
            " for any prefix"
        )
    actions = getattr(env, "single_action_space", None) or env.action_space
    if not isinstance(actions, LEARNABLE):
        raise ValueError(f"cannot learn from actions of {actions}")


def check_comparable(env: gymnasium.Env | VectorEnv) -> None:
    """Raises ValueError if observations and actions cannot be compared as vectors, step by step."""
    if hasattr(env.unwrapped, "policy_kind"):
        raise ValueError("it compares single steps, but a text is scored as a whole")
    if is_image(getattr(env, "single_observation_space", None) or env.observation_space):
        raise ValueError("it interpolates between observations, which is not meaningful for images")
    actions = getattr(env.unwrapped, "single_action_space", None) or env.unwrapped.action_space
    if not isinstance(actions, LEARNABLE):
        raise ValueError(f"cannot learn from actions of {actions}")


def check_expert(expert: Agent, env: VectorEnv) -> None:
    """Raises ValueError if the expert cannot be queried for actions in `env`."""
    name = type(expert).__name__
    if not expert.plays() or type(expert).bind_env is not Agent.bind_env:
        raise ValueError(
            f"the expert must return an action for any observation, which {name} does not"
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
