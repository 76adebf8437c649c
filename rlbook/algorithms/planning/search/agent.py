"""What tree searches share: the descent from the root to a leaf, and an agent that searches before
every move in a simulated copy of its environment.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbook.agent import Agent, Parts
from rlbook.algorithms.planning.search.observation_digest import content, repeats
from rlbook.algorithms.planning.search.tree import NodeRecord, SearchTree
from rlbook.algorithms.planning.search.tree_arrays import add_child, empty_tree, find_child
from rlbook.algorithms.planning.search.world import World, simulator_of
from rlbook.algorithms.planning.table_model import GOES_ON, STUCK, TERMINATED, TableModel
from rlbook.interaction.action_masks import mask_method
from rlbook.interaction.observed_masks import wrap_observed_mask
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.seeding import rng_for


def descend(
    search_tree: SearchTree, world: World, choose: Callable[[int], int]
) -> tuple[int, int, int, bool]:
    """One simulation's selection and expansion: from the root to a node that is new, or an ending.

    Args:
        search_tree: the tree so far, with room for one more node. Edges and rewards of the way are
            left in its `path` and `rewards`. In a deterministic world (`mode` "closed") a known
            child is entered by what is remembered of it, and only the leaf's step is taken;
            otherwise every step is.
        world: where steps are taken.
        choose: from a node to one of its edges.

    Returns:
        The node, how many edges lead to it, what the last step led to (see `table_model`), and
        whether the node is new.
    """
    keys, sibling, visits, child, _, _, used, _, path, rewards = search_tree.tree
    met, num_actions = search_tree.met, search_tree.num_actions
    closed = search_tree.mode == "closed"
    node, length, ending, new = 0, 0, GOES_ON, False
    if not closed:
        world.to_root()
    while not new and ending == GOES_ON:
        edge = choose(node)
        known = child[edge] if closed else -1
        if known >= 0:
            after, reward, ending = known, met[known].reward, met[known].ending
            if ending == STUCK:
                world.show(met[known].state)
        else:
            if closed:
                world.load(met[node].state)
            reward, ending = world.step(edge - node * num_actions)
            key = world.key(world.obs, search_tree.mode, ending)
            after = find_child(edge, key, child, sibling, keys)
            if after < 0:
                new, after = True, add_child(edge, key, child, sibling, keys, used)
                remember(search_tree, world, reward, ending)
        path[length], rewards[length] = edge, reward
        node, length = after, length + 1
    if ending != GOES_ON and search_tree.mode != "open-loop":
        visits[node] += 1
    return node, length, ending, new


def remember(search_tree: SearchTree, world: World, reward: float, ending: int) -> None:
    """Records what led to a new node; in a table, nothing needs recording."""
    if search_tree.met:
        state: object = None
        if search_tree.mode == "closed" and ending != TERMINATED:
            state = world.save() if ending == GOES_ON else copy.deepcopy(world.obs)
        search_tree.met.append(NodeRecord(reward, ending, state, world.allowed))


def allowed_at(search_tree: SearchTree, world: World, node: int) -> Any:
    """[A], 1 for each action allowed in the state of a node on the way down; None: all are."""
    return search_tree.met[node].mask if search_tree.mode == "closed" else world.allowed


def subtree_after(
    search_tree: SearchTree, world: World, action: int, observation: object, spare: int
) -> SearchTree | None:
    """The part of the last search below an action that was taken at its root and led to
    `observation`, with room for `spare` more nodes; None if the search did not reach that state.
    """
    tree, key = search_tree.tree, world.key(observation, search_tree.mode, GOES_ON)
    node = find_child(action, key, tree.child, tree.sibling, tree.key)
    return None if node < 0 else search_tree.subtree(node, spare)


class SearchAgent(Agent):
    """Searches from where its environment is. Its config has `simulations` and `stochastic`.

    Raises:
        ValueError: an environment that cannot be copied.
    """

    actions = "discrete"
    knows_env = False

    def __init__(
        self, env: gymnasium.Env, config: Any, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.rng, self._seed = rng_for(seed, "exploration"), seed
        assert isinstance(env.action_space, spaces.Discrete)
        self._num_actions = int(env.action_space.n)
        self._repeats = repeats(env.observation_space)
        # whether the environment was found to be random
        self._random = False
        self.tree: SearchTree | None = None
        """The result of the last search for a move in training."""
        self._mask_of = mask_method(env)
        self._world = self.simulator_for(env)

    def simulator_for(self, env: gymnasium.Env) -> World:
        """The simulator for a search from the current state of `env`."""
        act = None if self.adaptation is None else self.adaptation.act
        return simulator_of(env, act, self._num_actions)

    def bind_env(self, env: gymnasium.Env) -> Self:
        """A twin that searches from the current state of `env`, as `rlbook.make` or
        `gymnasium.make` made it. This agent is not changed."""
        if not hasattr(env, "adaptation"):
            env = wrap_observed_mask(env)
            env = AdaptedEnv(env, adapt_to(type(self), env, self.config))
        twin = copy.copy(self)
        twin.knows_env = True
        twin._world, twin.tree, twin._mask_of = self.simulator_for(env), None, mask_method(env)
        return twin

    def fixed_rng(self, observation: object) -> np.random.Generator:
        """A generator for an observation when nothing is to be explored: derived from the seed and
        the observation, so that the same state gives the same action.
        """
        return np.random.default_rng([self._seed, content(observation) % 2**60])

    def search(
        self,
        observation: object,
        rng: np.random.Generator,
        reused_tree: SearchTree | None = None,
        *,
        simulations: int | None = None,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> SearchTree:
        """The tree grown by simulations from the environment's current state.

        Args:
            observation: what the environment shows there.
            rng: decides what is tried.
            reused_tree: a tree to go on with, whose root is that state.
            simulations: how many; None: as the config says.
            action_mask: [A], what the environment allows there; None: what its own method
                `action_mask` says, or everything.
        """
        self.check_one(observation)
        self._show_mask(observation, action_mask)
        count = self.config.simulations if simulations is None else simulations
        found = self.prepare(rng, reused_tree, room=count)
        self.grow(found, observation, count, rng)
        if found.mode == "closed" and self._world.has_drawn():
            # not deterministic after all: what was remembered is worth nothing
            found = self.prepare(rng, random=True, room=count)
            self.grow(found, observation, count, rng)
        return found

    def _show_mask(self, observation: object, action_mask: NDArray[np.bool_] | None) -> None:
        """Passes the allowed actions at the root to the simulator. A table knows them."""
        if isinstance(self._world, TableModel):
            return
        if action_mask is None and self._mask_of is not None:
            action_mask = np.asarray(self._mask_of(observation), dtype=bool)
        self._world.root_mask = None
        if action_mask is not None and action_mask.any():
            self._world.root_mask = action_mask.astype(int).tolist()

    def prepare(
        self,
        rng: np.random.Generator,
        reused_tree: SearchTree | None = None,
        *,
        random: bool = False,
        room: int | None = None,
    ) -> SearchTree:
        """A tree to grow: a new root, or the subtree that was kept.

        Args:
            random: the environment is known to be random.
            room: for how many simulations; None: as the config says.
        """
        mode = self._mode(random or self._random)
        found = reused_tree
        if found is None:
            nodes = 1 + (self.config.simulations if room is None else room)
            found = SearchTree(empty_tree(nodes, self._num_actions), self._num_actions, mode)
        self._world.prepare(found, rng)
        return found

    def _mode(self, random: bool) -> str:
        if self.config.stochastic != "auto" or isinstance(self._world, TableModel):
            return "open-loop" if self.config.stochastic == "open-loop" else "chance"
        return ("chance" if self._repeats else "open-loop") if random else "closed"

    @abstractmethod
    def grow(
        self, tree: SearchTree, observation: object, simulations: int, rng: np.random.Generator
    ) -> None:
        """Adds simulations to a prepared tree, in place."""
