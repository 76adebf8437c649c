"""Guided search: a tree search whose prior is a trained policy and whose leaves are evaluated by a
critic.

    for each move, from its state s
        repeat `simulations` times
            from s down the tree until a state is new:
                a ← argmax_a Q(s, a) + c P(s, a) √N(s) / (1 + N(s, a))         Q scaled to [0, 1]
            P(s', ·) ← the k most likely actions of π(·|s'), renormalised;   v ← V(s')
            if the episode ended, v ← 0, and r comes from the environment or the judge
            for each action on the way, from the leaf to the root
                v ← r + γ v
                N(s, a) ← N(s, a) + 1;   Q(s, a) ← Q(s, a) + ( v - Q(s, a) ) / N(s, a)
        play the action that was tried most often, and keep its subtree

It is AlphaZero's search with networks trained by another algorithm. It learns nothing: all its
computation happens at inference time. Many environments are searched in parallel, one tree each, so
that each simulation evaluates the networks once for all of them.

Texts. An action is a token, and the next state is known: the text with that token appended. The
value of a finished text is unknown, so a judge scores it: the critic (its value of the text before
the last token), a reward model, or the verifier, which knows the correct answer and shows how much
a better judge could improve the search. A reward model also scores unfinished texts, in place of
the critic.

Source: Silver et al. 2018, doi:10.1126/science.aar6404, "Search"; with the actor and the critic of
PPO, over tokens: Liu et al. 2023, arXiv:2309.15028. Deliberate differences: only the k most likely
tokens are considered; a finished text has its judge's score; without a critic unfinished states
have value 0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent, State
from rlbook.algorithms.planning.search.agent import descend, subtree_after
from rlbook.algorithms.planning.search.guide import Descent, Judge, Observation, SearchGuide
from rlbook.algorithms.planning.search.guide import row as row_of
from rlbook.algorithms.planning.search.observation_digest import content
from rlbook.algorithms.planning.search.puct_selection import puct_choice
from rlbook.algorithms.planning.search.simulators import Simulator
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import empty_tree
from rlbook.algorithms.planning.search.world import World, simulator_of
from rlbook.algorithms.planning.table_model import TERMINATED, TableModel
from rlbook.checks import non_negative, positive_int, unit_interval
from rlbook.errors import RequestError
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.spaces import AdaptedVectorEnv


def guided_search(
    searches: Sequence[tuple[SearchTree, World]],
    evaluate: Callable[[list[Descent]], None],
    config: GuidedSearchConfig,
) -> None:
    """Adds simulations to the trees of many environments, side by side, in place.

    Args:
        searches: the tree of each environment, and where its steps are taken.
        evaluate: asks the networks about new states, all at once: P and V into the trees, and what
            finished texts are worth into their rewards.
        config: hyper-parameters.
    """
    choices = [puct_choice(found, world, config.c) for found, world in searches]
    for _ in range(config.simulations):
        descents = [
            Descent(found, world, *descend(found, world, choose))
            for (found, world), choose in zip(searches, choices, strict=True)
        ]
        evaluate([descent for descent in descents if descent.new])
        for found, _, node, length, ending, _ in descents:
            value = 0.0 if ending == TERMINATED else found.estimate[node]
            found.back_up(value, length, config.gamma)


@dataclass(frozen=True)
class GuidedSearchConfig(Hyperparameters):
    simulations: Annotated[int, positive_int] = 32  # simulations per move, at least 1
    # weight of the prior's bonus relative to returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 1.25
    # k, number of most likely actions considered in each state, at least 1
    top_k: Annotated[int, positive_int] = 8
    gamma: Annotated[float, unit_interval] = 1.0  # discount γ per environment step, in [0, 1]


class GuidedSearch(Agent):
    """Searches N environments with the policy, and the critic, of another agent.

    Args:
        guide: the agent that was trained; its policy chooses among discrete actions.
        config: see above.
        judge: what finished texts are worth: "critic", "verifier", or a reward model. Where the
            environment is not a text it pays itself.
        table: the environment as a table, where it is one; None looks for copies of it.

    Raises:
        RequestError: the guide has no policy, or no critic where one is to judge.
    """

    batched = True
    searches = True
    actions = "discrete"
    Config = GuidedSearchConfig

    def __init__(
        self,
        guide: Agent,
        config: GuidedSearchConfig,
        *,
        judge: str | Judge = "critic",
        table: TableModel | None = None,
    ) -> None:
        super().__init__(None, config)
        self.config: GuidedSearchConfig = config
        self.guide = SearchGuide(guide, judge, config.top_k)
        self.judge, self._table = judge, table
        self._worlds: list[Any] = []  # one for each environment
        self.trees: list[Any] = []  # that of the last search, each
        self._seen: list[Any] = []  # what was shown then
        self._played: list[Any] = []  # the edge that was chosen
        self._writes = False
        self._vector: Any = None  # the environments

    @property
    def tokens(self) -> dict[str, int]:
        """For texts, the number of tokens that the networks had to read; see `SearchGuide`."""
        return self.guide.tokens

    @classmethod
    def plays(cls) -> bool:
        return True

    def bind_env(self, env: AdaptedVectorEnv) -> Self:
        """A twin that searches in these environments. This agent is not changed."""
        twin, inner = copy.copy(self), env.unwrapped
        twin._vector = inner
        open_texts = getattr(inner, "text_worlds", None)
        twin._writes = open_texts is not None
        twin.guide = self.guide.copy_for_texts(twin._writes)
        if open_texts is not None:
            twin.guide.check_judge()
            twin._worlds = open_texts(self.config.top_k, verified=self.judge == "verifier")
        elif self._table is not None:
            twin._worlds = [copy.copy(self._table) for _ in range(env.num_envs)]
        else:
            act, space = env.adaptation.act, env.single_action_space
            count = int(space.n)  # type: ignore[attr-defined]
            twin._worlds = [simulator_of(one, act, count) for one in getattr(inner, "envs", ())]
        if len(twin._worlds) != env.num_envs:
            raise RequestError(
                "these environments cannot be searched, because they cannot be copied"
            )
        nothing: list[Any] = [None] * env.num_envs
        twin.trees, twin._seen, twin._played = nothing.copy(), nothing.copy(), nothing.copy()
        return twin

    def act(
        self,
        observation: Observation,
        *,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """The most visited actions: [N]. `explore` makes no difference.

        `action_mask` [N, A] says what is allowed where the searches begin; a forbidden action has
        no prior and is never tried.

        What shows the same as before, an episode that is over among others, is answered as before.
        """
        shown = [content(row_of(observation, row)) for row in range(len(self._worlds))]
        over = getattr(self._vector, "is_over", None)  # whose episode has ended
        if self._writes:
            over = [world.is_over for world in self._worlds]
        changed = [row for row, one in enumerate(shown) if one != self._seen[row]]
        rows = [row for row in changed if over is None or not over[row]]
        self._seen[:] = shown
        self._prepare(rows, observation, action_mask)
        searches = [(self.trees[row], self._worlds[row]) for row in rows]
        guided_search(searches, self.guide.evaluate, self.config)
        for row in rows:
            if self._worlds[row].has_drawn():
                raise RequestError(
                    "outcomes are random here, and there is no table of their probabilities"
                )
            self._played[row] = self.trees[row].best_actions()[0]
        return np.array([self._action(row) for row in range(len(self._worlds))])

    def _action(self, row: int) -> int:
        """The environment's action for the chosen edge; for a text the edge is a token's rank."""
        edge = self._played[row]
        if self._writes and self._worlds[row].is_over:
            return 0
        return int(self.trees[row].met[0].state.choices[edge]) if self._writes else edge

    def _prepare(
        self, rows: list[int], observation: Observation, action_mask: NDArray[np.bool_] | None
    ) -> None:
        """A tree for each of these rows: the subtree below the last move, or a new root."""
        fresh, spare = [], self.config.simulations
        for row in rows:
            shown, world = row_of(observation, row), self._worlds[row]
            rng = np.random.default_rng(0)
            if action_mask is not None and isinstance(world, Simulator):
                world.root_mask = action_mask[row].astype(int).tolist()
            found, edge = self.trees[row], self._played[row]
            if found is not None:  # a text that does not follow is a new one
                follows = not self._writes or self._worlds[row].matches_edge(found, edge)
                found = subtree_after(found, world, edge, shown, spare) if follows else None
            if found is None:
                room, size = spare + 1, world.num_actions
                mode = "chance" if isinstance(world, TableModel) else "closed"
                found = SearchTree(empty_tree(room, size), size, mode)
                found.prior, found.estimate = [0.0] * (room * size), [0.0] * room
                world.prepare(found, rng)
                fresh.append(row)
            world.begin(shown, rng)
            self.trees[row] = found
        if fresh:
            trees = [self.trees[row] for row in fresh]
            masks = [self._worlds[row].root_mask for row in fresh]
            seen = [row_of(observation, row) for row in fresh]
            self.guide.admit(trees, [0] * len(fresh), seen, masks)
            if self._writes:
                self.guide.count_prompts(seen)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Does nothing: it learns nothing."""
