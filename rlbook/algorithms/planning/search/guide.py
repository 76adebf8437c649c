"""The networks of a trained agent as used by a search: the most likely actions of a state, its
value, and the judge's score of a finished text.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rlbook.agent import Agent
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.table_model import TERMINATED
from rlbook.errors import RequestError
from rlbook.networks.distributions import Categorical
from rlbook.networks.policy import Policy

Floats = NDArray[np.float64]
Observation = Any
"""Observations, one or several: numbers, an array, or the parts of a text."""


class Judge(Protocol):
    """A reward model; see `rlbook.algorithms.imitation.reward_model`."""

    def score_steps(
        self,
        obs: Observation,
        action: NDArray[np.int64],
        next_obs: Observation,
        done: NDArray[np.bool_],
    ) -> tuple[Floats, Floats | None]: ...


class Descent(NamedTuple):
    """One simulation of one tree, down to its end."""

    found: SearchTree
    world: Any
    node: int
    length: int
    ending: int  # what the last step led to; see `table_model`
    new: bool


class SearchGuide:
    """The policy and the critic of an agent, and optionally a judge of finished texts.

    Args:
        agent: it was trained; its policy chooses among discrete actions.
        judge: "critic", "verifier", or a reward model.
        top_k: k, number of most likely actions considered in each state.

    Attributes:
        texts: whether the environments are texts, whose ends the judge values.
        tokens: of texts, how many tokens the networks would have to read with a KV cache, each
            counted once for each network ("read"), and how many prompts that were ("prompts").

    Raises:
        RequestError: the agent has no policy, or its critic is of scaled rewards.
    """

    def __init__(self, agent: Agent, judge: str | Judge, top_k: int) -> None:
        self.top_k, self.texts, self.tokens = top_k, False, {"read": 0, "prompts": 0}
        self.agent: Any = agent
        self.policy: Any = getattr(agent, "policy", None)
        self.judge, kind = judge, type(agent).__name__
        if not isinstance(self.policy, Policy):
            raise RequestError(f"a guided search needs a policy network, but {kind} has none")
        if getattr(agent, "reward_scale", None) is not None:
            raise RequestError(
                f"the critic of this {kind} learned from normalised rewards (normalize_reward), "
                "but a search adds its values to unscaled rewards"
            )
        self.has_critic = bool(self.policy.value_parameters())

    def copy_for_texts(self, texts: bool) -> Self:
        """The same guide for environments that are texts, or that are not; its counts continue."""
        twin = copy.copy(self)
        twin.texts = texts
        return twin

    def check_judge(self) -> None:
        """Raises RequestError if a critic is needed to judge texts and there is none."""
        if self.judge == "critic" and not self.has_critic:
            kind = type(self.agent).__name__
            raise RequestError(
                f"{kind} has no critic to score its completions; give judge: the folder of a "
                "reward model, or verifier"
            )

    @property
    def num_networks(self) -> int:
        """The number of networks that read each text: the policy, and the network that evaluates
        it."""
        return 1 + (not isinstance(self.judge, str) or bool(self.has_critic))

    @torch.inference_mode()
    def estimates(
        self, observations: list[Observation], masks: list[Any] | None = None
    ) -> tuple[Floats, Floats]:
        """π [K, A] and V [K] for K of the environment's observations; a mask [A] for one says which
        actions are allowed, None: all.
        """
        stacked = stack(observations)
        seen, device = self.agent.adapt_observations(stacked), self.agent.parts.device
        if isinstance(seen, dict):
            seen = {name: torch.as_tensor(part).to(device) for name, part in seen.items()}
        else:
            seen = torch.as_tensor(seen, dtype=torch.float32).to(device)
        distribution = self.policy.distribution(seen)
        if not isinstance(distribution, Categorical):
            raise RequestError("a guided search needs a policy over discrete actions")
        probability = distribution.log_probs.double().exp().cpu().numpy()
        if not isinstance(self.judge, str):
            value = np.asarray(self.scores(observations))
        elif self.has_critic:
            value = self.policy.value(seen).double().cpu().numpy()
        else:
            value = np.zeros(len(probability))
        for i, mask in enumerate(masks or []):
            if mask is not None:  # all alike where the policy has nothing left for what is allowed
                allowed = np.array(mask, dtype=bool)
                share = np.where(allowed, probability[i], 0.0)
                some = share.sum() > 0.0
                probability[i] = share / share.sum() if some else allowed / allowed.sum()
        return probability, value

    def admit(
        self,
        trees: list[SearchTree],
        nodes: list[int],
        observations: list[Observation],
        masks: list[Any],
    ) -> None:
        """Stores P, of the k most likely actions only, and V of K new states in their trees.

        Args:
            trees, nodes: [K], where each state is. In the tree of a text an edge is the rank of a
                token, and the node's state notes which token that is.
            observations, masks: as for `estimates`.
        """
        probability, value = self.estimates(observations, masks)
        k = min(self.top_k, probability.shape[1])
        likeliest = (-probability).argsort(axis=1, kind="stable")[:, :k]  # [K, k]
        share = np.take_along_axis(probability, likeliest, axis=1)
        share /= share.sum(axis=1, keepdims=True)
        for i, (found, node) in enumerate(zip(trees, nodes, strict=True)):
            first, best = node * found.num_actions, likeliest[i]
            if self.texts:
                found.met[node].state.choices, best = best, np.arange(k)
            for action, chance in zip(best.tolist(), share[i].tolist(), strict=True):
                found.prior[first + action] = chance
            found.estimate[node] = float(value[i])
        if self.texts:
            self.tokens["read"] += self.num_networks * len(trees)

    def count_prompts(self, prompts: list[Observation]) -> None:
        """Records that the networks have read these prompts, whose last tokens `admit` counts."""
        read = sum(int(prompt["length"]) for prompt in prompts) - len(prompts)
        self.tokens["read"] += self.num_networks * read
        self.tokens["prompts"] += len(prompts)

    def evaluate(self, descents: list[Descent]) -> None:
        """Evaluates the new states that simulations reached with the networks, and the finished
        texts with the judge.
        """
        on = [one for one in descents if one.ending != TERMINATED]
        if on:
            shown, masks = [one.world.obs for one in on], [one.world.allowed for one in on]
            self.admit([one.found for one in on], [one.node for one in on], shown, masks)
        over = [one for one in descents if one.ending == TERMINATED]
        if not (over and self.texts) or self.judge == "verifier":
            return
        if self.judge == "critic":  # V of the text before the token that ended it
            before = [(found, found.tree.path[length - 1]) for found, _, _, length, _, _ in over]
            scores = [found.estimate[edge // found.num_actions] for found, edge in before]
        else:
            scores = self.scores([one.world.obs for one in over])
            self.tokens["read"] += len(over)
        for (found, _, node, length, _, _), score in zip(over, scores, strict=True):
            found.met[node] = found.met[node]._replace(reward=float(score))
            found.tree.rewards[length - 1] = float(score)

    def scores(self, observations: list[Observation]) -> Floats:
        """The reward model's scores of texts, finished or not: [K]."""
        assert not isinstance(self.judge, str)
        texts = stack(observations)
        count = len(texts["tokens"])
        action, over = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
        return self.judge.score_steps(texts, action, texts, over)[0]


def stack(observations: list[Observation]) -> Observation:
    """Observations as [K, ...]."""
    if isinstance(observations[0], dict):
        return {name: np.stack([one[name] for one in observations]) for name in observations[0]}
    return np.stack(observations)


def row(observations: Observation, i: int) -> Observation:
    """One of [N, ...] observations."""
    if isinstance(observations, dict):
        return {name: part[i] for name, part in observations.items()}
    return observations[i]
