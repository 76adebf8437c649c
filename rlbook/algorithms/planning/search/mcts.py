"""Monte Carlo tree search: simulate before each move, favouring the actions with high returns.

    tree ← a root: the state of the environment
    repeat `simulations` times
        s ← the root's state
        while all actions of s have been tried                          selection
            a ← argmax_a Q(s, a) + c √( ln N(s) / N(s, a) )             Q scaled to [0, 1]
            s ← the next state in the simulated environment
        try an action of s that was not tried before                    expansion: one new node
        G ← the return of `rollout_depth` random moves, or V(s')        evaluation
        for each action a on the way, from the leaf to the root         backup
            G ← r + γ G
            N(s, a) ← N(s, a) + 1;   Q(s, a) ← Q(s, a) + ( G - Q(s, a) ) / N(s, a)
    play the action that was tried most often at the root

Nothing is learned from one episode to the next: the tree is a plan for the current state. The real
environment is read, never stepped. If outcomes are random, an action has one child per outcome
("chance" nodes), or one for all outcomes ("open-loop": the tree holds sequences of actions, and
every simulation steps through the environment again). If the environment shows action masks, only
allowed actions are tried, in the tree and in rollouts.

Ends. Where an episode terminates, G is 0. Gymnasium's `TimeLimit` does not end a simulation: Q is
the value without that limit. Where the environment itself truncates, the simulation cannot
continue, and G is V(s') of the value function that was passed in, or 0 without one; the same holds
at the end of a random rollout.

Source: Kocsis & Szepesvári 2006, doi:10.1007/11871842_29 (UCT); Sutton & Barto 2018, section
8.11. Deliberate differences: returns are scaled by the range of those seen so far, so that c
does not depend on the scale of the rewards; the constant is c, where UCB1 has √2; one node is added
per simulation; the most visited action is played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Metrics, State, Step
from rlbook.algorithms.planning.search.agent import SearchAgent, allowed_at, descend, subtree_after
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.ucb_selection import draw_allowed, select, select_allowed
from rlbook.algorithms.planning.search.world import World
from rlbook.algorithms.planning.table_model import GOES_ON, TERMINATED, TableModel
from rlbook.checks import non_negative, one_of, positive_int, unit_interval
from rlbook.errors import RequestError
from rlbook.fast_forms import has_fast_form
from rlbook.hyperparameters import Hyperparameters
from rlbook.seeding import rng_state, set_rng_state


@has_fast_form
def grow(
    tree: SearchTree,
    world: World,
    observation: object,
    simulations: int,
    config: MCTSConfig,
    rng: np.random.Generator,
) -> None:
    """Adds simulations from the state that `observation` shows to a prepared tree, in place."""
    world.begin(observation, rng)
    for _ in range(simulations):
        simulate(tree, world, config, rng)


def simulate(tree: SearchTree, world: World, config: MCTSConfig, rng: np.random.Generator) -> None:
    """One simulation: selection, expansion, evaluation, backup.

    Args:
        tree: the tree so far, with room for one more node.
        world: where steps are taken.
        config: c, γ, and how leaves are evaluated.
        rng: its `random()` chooses.
    """
    num_actions, arrays = tree.num_actions, tree.tree
    visits, count, mean, bounds = arrays.visits, arrays.count, arrays.mean, arrays.bounds

    def choose(node: int) -> int:
        allowed = allowed_at(tree, world, node)
        if allowed is None:
            return select(node, num_actions, visits, count, mean, bounds, config.c, rng)
        return select_allowed(node, num_actions, count, mean, bounds, config.c, rng, allowed, 0)

    _, length, ending, _ = descend(tree, world, choose)
    G = leaf_value(world, ending, config, rng)
    tree.back_up(G, length, config.gamma)


def leaf_value(world: World, ending: int, config: MCTSConfig, rng: np.random.Generator) -> float:
    """G at the end of a path: 0 where the episode terminated, otherwise the return of a random
    rollout followed by the value function.
    """
    total, discount, steps = 0.0, 1.0, config.depth
    while ending == GOES_ON and steps > 0:
        allowed, size = world.allowed, world.num_actions
        action = draw_allowed(allowed, 0, size, rng) if allowed else int(rng.random() * size)
        reward, ending = world.step(action)
        total += discount * reward
        discount *= config.gamma
        steps -= 1
    return total if ending == TERMINATED else total + discount * world.estimate()


@dataclass(frozen=True)
class MCTSConfig(Hyperparameters):
    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # simulations per move, at least 1
    simulations: Annotated[int, positive_int] = 50
    # weight of exploration relative to returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 0.7
    # how a new node is evaluated: by a random "rollout", or by the "value" function (0 without one)
    leaf: Annotated[str, one_of("rollout", "value")] = "rollout"
    # random moves per rollout, at least 1
    rollout_depth: Annotated[int, positive_int] = 10
    idle_unless = {"rollout_depth": ("leaf", "rollout")}
    # random outcomes: "chance" nodes, "open-loop", or "auto": open-loop if outcomes rarely repeat
    stochastic: Annotated[str, one_of("auto", "chance", "open-loop")] = "auto"
    # keep the subtree of the move that was played for the next search
    reuse_tree: bool = False
    # discrete values per dimension of a continuous action, at least 1
    action_bins: Annotated[int, positive_int] = 5

    @property
    def depth(self) -> int:
        """The number of random moves after a new node."""
        return self.rollout_depth if self.leaf == "rollout" else 0


class MCTS(SearchAgent):
    """UCT in a simulated copy of the environment. Searches at every move; learns nothing.

    Args:
        value: what an observation is worth where a simulation stops, in reward units; None: 0. It
            is not kept in checkpoints.

    Raises:
        ValueError: an environment whose states cannot be copied, or, for `reuse_tree`, be kept.
    """

    budget = {"episodes": 10, "eval_every": 0}
    Config = MCTSConfig
    METRICS: ClassVar[dict[str, str]] = {
        "simulations": "simulations per move, including those kept from the previous move",
        "nodes": "nodes of the search tree",
        "depth": "depth of the deepest node, in actions from the root",
        "root_value": "largest mean return of an action at the root, discounted, in reward units",
    }

    def __init__(
        self,
        env: gymnasium.Env,
        config: MCTSConfig,
        seed: int = 0,
        value: Callable[[Any], float] | None = None,
    ) -> None:
        self._value = value
        super().__init__(env, config, seed)
        self._kept: SearchTree | None = None  # what of it the next one starts from

    def simulator_for(self, env: gymnasium.Env) -> World:
        world = super().simulator_for(env)
        if self.config.reuse_tree and not world.saves:
            raise ValueError(
                "reuse_tree needs an environment with snapshot() and restore(), but this one has "
                "neither."
            )
        world.set_value(self._value)
        return world

    def bind_env(self, env: gymnasium.Env) -> Self:
        twin = super().bind_env(env)
        twin._kept = None
        return twin

    def act(
        self,
        observation: object,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        """The most visited action; ties go to the higher value, then to chance.

        Without exploration the search has a generator of its own (`fixed_rng`), and ties that
        remain go to the lowest number.
        """
        if not explore:
            rng = self.fixed_rng(observation)
            return self.search(observation, rng, action_mask=action_mask).best_actions()[0]
        self.tree = self.search(observation, self.rng, self._kept, action_mask=action_mask)
        self._random = self.tree.mode != "closed"
        best = self.tree.best_actions()
        return best[0] if len(best) == 1 else best[int(self.rng.random() * len(best))]

    def grow(
        self, tree: SearchTree, observation: object, simulations: int, rng: np.random.Generator
    ) -> None:
        """Adds simulations to a prepared tree, in place."""
        grow(tree, self._world, observation, simulations, self.config, rng)

    def learn(self, step: Step) -> Metrics:
        """Learns nothing; keeps the subtree below the move for the next search."""
        found = self.tree
        if found is None:
            return {}
        self._kept = None
        if self.config.reuse_tree:
            action, spare = int(step.action), self.config.simulations
            self._kept = subtree_after(found, self._world, action, step.next_obs, spare)
        tried = [q for q, n in zip(found.values(), found.counts(), strict=True) if n > 0]
        size = {"simulations": found.simulations, "nodes": found.num_nodes, "depth": found.depth}
        return size | {"root_value": max(tried)}

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action of `act` in each state without exploration; one search per state."""
        return np.array([self.act(state, explore=False) for state in self._states()])

    def values(self) -> np.ndarray:
        """[S]: the mean return of that action in those searches, discounted, in reward units."""
        trees = [self.search(state, self.fixed_rng(state)) for state in self._states()]
        return np.array([tree.values()[tree.best_actions()[0]] for tree in trees])

    def _states(self) -> range:
        if not isinstance(self._world, TableModel):
            where = "only if the environment is a table of states"
            raise RequestError(f"mcts can return a policy for every state {where}")
        return self._world.observations

    def begin(self) -> None:
        """A new episode: the kept subtree is discarded."""
        self._kept = None

    def state_dict(self) -> State:
        return {
            "rng": rng_state(self.rng),
            "random": self._random,
            "kept": None if self._kept is None else self._kept.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        set_rng_state(self.rng, state["rng"])
        self._random = bool(state["random"])
        self._kept = None if state["kept"] is None else SearchTree.from_state(state["kept"])
