"""The reference policy of a KL penalty or of DPO's ratio, if the user names one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlbook.agent import Agent, NoHyperparameters, State
from rlbook.errors import RequestError
from rlbook.interaction.spaces import length_free_space
from rlbook.networks.policy import Policy, load_saved, saved_tensors

if TYPE_CHECKING:
    from rlbook.llm.tokenizers.tokenizer import Codec


Observations = NDArray[Any] | dict[str, NDArray[Any]]
"""[N, ...]: vectors, or the parts of a text."""


class FrozenPolicy(Agent):
    """A policy that plays and never learns, such as the language model of a folder.

    Args:
        env: adapted to the agent.
        policy: acts, and is frozen.
        exploration: draws the actions where the agent explores, and then each episode is read from
            where it stood; None for an agent that always takes the most likely action.
    """

    batched = True
    observations = "policy"

    def __init__(
        self, env: VectorEnv, policy: Policy, exploration: np.random.Generator | None = None
    ) -> None:
        super().__init__(env, NoHyperparameters())
        self.codec = codec_of(env)
        self.policy, self.exploration = policy.requires_grad_(False), exploration
        self._acting = None if exploration is None else policy.initial_state()

    def act(self, observation: Observations, *, explore: bool = True) -> NDArray[Any]:
        """The most likely action, or a sampled one if the agent explores and has a generator."""
        self.check_batch(observation)
        rng = self.exploration if explore else None
        return self.policy.act(observation, rng, self._acting)[0]

    def state_dict(self) -> State:
        return {"policy": saved_tensors(self.policy)}

    def load_state_dict(self, state: State) -> None:
        load_saved(self.policy, state["policy"])


def codec_of(env: VectorEnv) -> Codec | None:
    """The tokenizer of a token environment; None if actions are not tokens."""
    return getattr(env.unwrapped, "codec", None)


def reference_policy(reference: Agent, learner: Agent, role: str = "reference") -> Policy:
    """The policy of a named reference, never trained; arguments and errors are `named_policy`'s."""
    policy = named_policy(reference, learner, role)
    frozen = not any(parameter.requires_grad for parameter in policy.parameters())
    return policy if frozen else policy.frozen_copy()


def named_policy(agent: Agent, learner: Agent, role: str) -> Policy:
    """The policy of an agent that the user named for another one.

    Args:
        agent: what the user named: the agent of a run, or a `FrozenPolicy`.
        learner: the agent that it was named for.
        role: what messages call it.

    Raises:
        RequestError: it has no policy network, or one for other observations, actions or tokens.
    """
    policy = getattr(agent, "policy", None)
    if not isinstance(policy, Policy):
        wanted = f"{role} must be a run of an agent with a policy network"
        raise RequestError(f"{wanted}, got one of {type(agent).__name__}")
    theirs, ours = tokens_of(agent), tokens_of(learner)
    if theirs is None or ours is None:
        check_spaces(agent, learner, role)
    if theirs != ours:  # named first: other tokens make other spaces
        raise RequestError(
            f"the {role} must have the agent's tokenizer, and has another one; name the same model"
            " or tokenizer for both (--model or --env.tokenizer, model=… or"
            " env_kwargs={'tokenizer': …})"
        )
    check_spaces(agent, learner, role)
    return policy


def tokens_of(agent: Agent) -> str | None:
    """The tokenizer of an agent that generates text; None otherwise."""
    codec: Codec | None = getattr(agent, "codec", None)
    return None if codec is None else codec.backend.to_str()


def check_spaces(named_agent: Agent, learner: Agent, role: str) -> None:
    """Raises RequestError unless both see the same observations and take the same actions."""
    for what in ("observation_space", "action_space"):
        ours, theirs = (getattr(agent.adaptation, what, None) for agent in (learner, named_agent))
        if length_free_space(ours) != length_free_space(theirs):
            found = f"its {what.replace('_', ' ')} is {str(theirs)[:80]}"
            wanted = f"the agent's {str(ours)[:80]}"
            raise RequestError(
                f"the {role} was made for another environment: {found}, and {wanted}"
            )
