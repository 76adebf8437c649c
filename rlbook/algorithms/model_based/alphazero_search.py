"""AlphaZero's search: descend by PUCT, evaluate each new state with the network, and back its value
up to the root; and an agent that plays by this search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Parts
from rlbook.algorithms.model_based.alphazero_config import AlphaZeroConfig
from rlbook.algorithms.planning.search.agent import SearchAgent, descend
from rlbook.algorithms.planning.search.network_estimates import NetworkEstimates
from rlbook.algorithms.planning.search.puct_selection import (
    masks_vary,
    mix_noise,
    puct_choice,
    visit_policy,
)
from rlbook.algorithms.planning.search.simulators import SnapshotSimulator
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.world import World
from rlbook.algorithms.planning.table_model import TERMINATED
from rlbook.checks import value_at
from rlbook.interaction.spaces import as_vector
from rlbook.networks.build import plain_spec
from rlbook.networks.policy_value_network import PolicyValueNetwork
from rlbook.seeding import rng_for, torch_generator


def simulate(
    search_tree: SearchTree,
    world: World,
    choose: Callable[[int], int],
    estimate: Callable[[object, Any], tuple[list[float], float]],
    discount: float,
) -> None:
    """One simulation: selection, expansion, evaluation, backup.

    Args:
        search_tree: the tree so far, with room for one more node, and the prior of its nodes.
        world: where steps are taken.
        choose: from a node to one of its edges; see `puct_choice`.
        estimate: the network: from an observation and what is allowed there, [A], to P [A], which
            is 0 where not allowed, and V, in reward units.
        discount: what the next state's value counts for the side that moves: γ; against oneself -γ.
    """
    num_actions = search_tree.num_actions
    node, length, ending, new = descend(search_tree, world, choose)
    if new and (ending != TERMINATED or search_tree.mode == "open-loop"):
        first = node * num_actions
        allowed = [1] * num_actions if masks_vary(search_tree, world) else world.allowed
        share, search_tree.estimate[node] = estimate(world.obs, allowed)
        search_tree.prior[first : first + num_actions] = share
    value = 0.0 if ending == TERMINATED else search_tree.estimate[node]
    search_tree.back_up(value, length, discount)


class NetworkSearchAgent(SearchAgent):
    """Searches at every move with a network, using AlphaZero's hyper-parameters; learns nothing."""

    uses = ("model",)

    def __init__(
        self, env: gymnasium.Env, config: AlphaZeroConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        self.alternates = bool(getattr(env.unwrapped, "alternates", False))
        super().__init__(env, config, seed, parts)
        self.config: AlphaZeroConfig = config
        size, encode = as_vector(env.observation_space, [])
        generator = torch_generator(rng_for(seed, "initialisation"))
        hidden = tuple(config.hidden_sizes)
        own = plain_spec(parts.model, spaces.Box(-np.inf, np.inf, (size,))).network
        self.network = PolicyValueNetwork(size, self._num_actions, hidden, generator, own)
        self.estimates = NetworkEstimates(self.network, encode)
        self.discount = -config.gamma if self.alternates else config.gamma
        """The factor of the next state's value for the side that moves."""
        self._noise: NDArray[np.float64] | None = None  # [A], at the root of the next search
        self._recommended = np.zeros(self._num_actions)  # [A], π of the last search

    def simulator_for(self, env: gymnasium.Env) -> World:
        game: Any = env.unwrapped
        if self.alternates and not game.alternates:  # somebody else replies there
            return SnapshotSimulator(game, None, self._num_actions, game.rules())
        return super().simulator_for(env)

    def act(
        self,
        observation: object,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        if not explore:
            rng, simulations = self.fixed_rng(observation), self.config.greedy_simulations
            found = self.search(observation, rng, simulations=simulations, action_mask=action_mask)
            return found.best_actions()[0]
        self._noise = self.rng.dirichlet(np.full(self._num_actions, self.config.noise_alpha))
        self.tree = self.search(observation, self.rng, action_mask=action_mask)
        self._noise, self._random = None, self.tree.mode != "closed"
        self._recommended = visit_policy(self.tree.counts())
        chances = visit_policy(self.tree.counts(), value_at(self.config.temperature, self.progress))
        return int(self.rng.choice(self._num_actions, p=chances))

    def grow(
        self, tree: SearchTree, observation: object, simulations: int, rng: np.random.Generator
    ) -> None:
        """Adds simulations to a root, in place."""
        self._world.begin(observation, rng)
        prior = self.expect(observation, self._world.root_mask)[0]
        if self._noise is not None:
            prior = mix_noise(prior, self._noise, self.config.noise_fraction)
        tree.prior = prior + [0.0] * (len(tree.tree.count) - len(prior))
        tree.estimate = [0.0] * len(tree.tree.key)
        choose = puct_choice(tree, self._world, self.config.c)
        for _ in range(simulations):
            simulate(tree, self._world, choose, self.expect, self.discount)

    def expect(
        self, observation: object, allowed: ArrayLike | None = None
    ) -> tuple[list[float], float]:
        """The network's output for one observation: P [A], 0 where not `allowed`, and V in reward
        units. None: what the environment's own method allows, or everything.
        """
        if allowed is None and self._mask_of is not None:
            mask = np.asarray(self._mask_of(observation), dtype=bool)
            allowed = mask if mask.any() else None
        return self.estimates(observation, allowed)

    def value(self, observations: ArrayLike) -> NDArray[np.float32]:
        """V of the environment's observations, to the side to move: [N, ...] → [N]."""
        return self.estimates.values(observations)
