"""Guided search: a tree search that looks where a trained policy would go, and asks a critic what
it finds there.

    for each move, from its state s
        repeat `simulations` times
            from s down the tree until a state is new:
                a ← argmax_a Q(s, a) + c P(s, a) √N(s) / (1 + N(s, a))         Q scaled to [0, 1]
            P(s', ·) ← the k likeliest actions of π(·|s'), made to add up to 1;   v ← V(s')
            where the episode ended, v ← 0, and r is what the world, or the judge, pays
            for each action on the way, from the leaf to the root
                v ← r + γ v
                N(s, a) ← N(s, a) + 1;   Q(s, a) ← Q(s, a) + ( v - Q(s, a) ) / N(s, a)
        play the action that was tried most often, and keep what was found under it

It is AlphaZero's search with networks that another algorithm has trained, and it learns nothing:
what it adds is computed while it acts. Many environments are searched side by side, one tree each,
so that each simulation asks the networks once for all of them.

Texts. An action is a token, and the next state is known: the text with that token behind it. What a
finished text is worth is not known, or nobody would have to search. So a judge says it: the critic
(its value of the text before the last token), a reward model, or the verifier, which knows the
right answer and shows how far a better judge could bring the search. A reward model also says what
unfinished texts are worth, in place of the critic.

Source: Silver et al. 2018, doi:10.1126/science.aar6404, "Search"; with the actor and the critic of
PPO, over tokens: Liu et al. 2023, arXiv:2309.15028. Deliberate differences: the k likeliest tokens
alone; a finished text is worth what its judge says of it; without a critic unfinished states are
worth 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rlbook.agent import Agent, State
from rlbook.algorithms.planning.search_agent import World, descend
from rlbook.algorithms.planning.search_tree import (
    SearchTree,
    back_up,
    empty_tree,
    find_child,
    select_puct,
)
from rlbook.algorithms.planning.simulators import Simulator, content, simulator_of
from rlbook.algorithms.planning.table_model import GOES_ON, TERMINATED, TableModel
from rlbook.checks import non_negative, positive_int, unit_interval
from rlbook.errors import RequestError
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.spaces import AdaptedVectorEnv
from rlbook.networks.distributions import Categorical
from rlbook.networks.policy import Policy

Floats = NDArray[np.float64]
Shown = Any
"""What environments show, one of them or many: numbers, an array, or the parts of a text."""


@dataclass(frozen=True)
class GuidedSearchConfig(Hyperparameters):
    simulations: Annotated[int, positive_int] = 32  # simulations for each move, at least 1
    # weight of the prior against returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 1.25
    # k, how many of the likeliest actions of a state are considered, at least 1
    top_k: Annotated[int, positive_int] = 8
    gamma: Annotated[float, unit_interval] = 1.0  # discount γ per environment step, in [0, 1]


class Judge(Protocol):
    """A reward model; see `rlbook.algorithms.imitation.reward_model`."""

    def score_steps(
        self, obs: Shown, action: NDArray[np.int64], next_obs: Shown, over: NDArray[np.bool_]
    ) -> tuple[Floats, Floats | None]: ...


class Walk(NamedTuple):
    """One simulation of one tree, down to its end."""

    row: int
    node: int
    length: int
    ending: int
    new: bool


class GuidedSearch(Agent):
    """Searches N environments with the policy, and the critic, of another agent.

    Args:
        guide: the agent that was trained; its policy chooses among discrete actions.
        config: see above.
        judge: what finished texts are worth: "critic", "verifier", or a reward model. Where the
            environment is no text it pays itself.
        table: the environment as a table, where it is one; None looks for copies of it.

    Raises:
        RequestError: the guide has no policy, or no critic where one is to judge.
    """

    batched = True
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
        self.guide: Any = guide
        self._policy: Any = getattr(guide, "policy", None)
        kind = type(guide).__name__
        if not isinstance(self._policy, Policy):
            raise RequestError(f"a search is guided by a policy network, and {kind} has none")
        if getattr(guide, "reward_scale", None) is not None:
            raise RequestError(
                f"the critic of this {kind} learned rewards divided by their deviation "
                "(normalize_reward), and a search adds it to rewards as they are"
            )
        self._critic = bool(self._policy.value_parameters())
        self.judge, self._table = judge, table
        self._worlds: list[Any] = []  # one for each environment
        self.trees: list[Any] = []  # that of the last search, each
        self._seen: list[Any] = []  # what was shown then
        self._played: list[Any] = []  # the edge that was chosen
        self._writes = False
        self._vector: Any = None  # the environments
        self.tokens = {"read": 0, "prompts": 0}
        """Of texts: how many tokens the networks would have to read with a KV cache, each counted
        once for each network, and how many prompts that were."""

    @classmethod
    def plays(cls) -> bool:
        return True

    def bind_env(self, env: AdaptedVectorEnv) -> Self:
        """A twin that searches in these environments. Nothing of this agent changes with it."""
        twin, inner = copy.copy(self), env.unwrapped
        twin._vector = inner
        open_texts = getattr(inner, "text_worlds", None)
        twin._writes = open_texts is not None
        if open_texts is not None:
            twin._check_judge()
            twin._worlds = open_texts(self.config.top_k, verified=self.judge == "verifier")
        elif self._table is not None:
            twin._worlds = [copy.copy(self._table) for _ in range(env.num_envs)]
        else:
            act, space = env.adaptation.act, env.single_action_space
            count = int(space.n)  # type: ignore[attr-defined]
            twin._worlds = [simulator_of(one, act, count) for one in getattr(inner, "envs", ())]
        if len(twin._worlds) != env.num_envs:
            raise RequestError("these environments cannot be searched: they can not be copied")
        nothing: list[Any] = [None] * env.num_envs
        twin.trees, twin._seen, twin._played = nothing.copy(), nothing.copy(), nothing.copy()
        return twin

    def _check_judge(self) -> None:
        if self.judge == "critic" and not self._critic:
            kind = type(self.guide).__name__
            raise RequestError(
                f"{kind} has no critic that could judge what it writes; give judge: the folder of "
                "a reward model, or verifier"
            )

    def act(
        self,
        observation: Shown,
        *,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """The actions that were tried most often: [N]. `explore` makes no difference.

        `action_mask` [N, A] says what is allowed where the searches begin; a forbidden action has
        no prior and is never tried.

        What shows the same as before, an episode that is over among others, is answered as before.
        """
        rows = [i for i in range(len(self._worlds)) if self._changed(i, _row(observation, i))]
        rows = [row for row in rows if not self._is_over(row)]
        self._prepare(rows, observation, action_mask)
        for _ in range(self.config.simulations):
            walks = [self._descend(row) for row in rows]
            self._evaluate([walk for walk in walks if walk.new])
            for walk in walks:
                self._back_up(walk)
        for row in rows:
            if self._worlds[row].drew():
                raise RequestError("what follows an action is random here, and not in a table")
            self._played[row] = self.trees[row].best_actions()[0]
        return np.array([self._action(row) for row in range(len(self._worlds))])

    def _is_over(self, row: int) -> bool:
        """Whether a row's episode has ended, so that nothing is to be chosen there."""
        if self._writes:
            return self._worlds[row].over
        over = getattr(self._vector, "over", None)
        return over is not None and bool(over[row])

    def _changed(self, row: int, observation: object) -> bool:
        """Whether a row shows something else than when its last action was chosen."""
        before, self._seen[row] = self._seen[row], content(observation)
        return before != self._seen[row]

    def _action(self, row: int) -> int:
        """The environment's action for the edge that was chosen; on a text it is a token's rank."""
        edge = self._played[row]
        if self._writes and self._worlds[row].over:
            return 0
        return int(self.trees[row].met[0].state.choices[edge]) if self._writes else edge

    def _prepare(
        self, rows: list[int], observation: Shown, action_mask: NDArray[np.bool_] | None
    ) -> None:
        """A tree for each of these rows: what was found under the last move, or a new root."""
        fresh = []
        for row in rows:
            shown, world, rng = _row(observation, row), self._worlds[row], np.random.default_rng(0)
            if action_mask is not None and isinstance(world, Simulator):
                world.root_mask = action_mask[row].astype(int).tolist()
            found = self._kept(row, shown)
            if found is None:
                found = self._root(world)
                world.prepare(found, rng)
                fresh.append(row)
            world.begin(shown, rng)
            self.trees[row] = found
        if fresh:
            shown = [_row(observation, row) for row in fresh]
            masks = [self._worlds[row].root_mask for row in fresh]
            self._admit(fresh, [0] * len(fresh), shown, masks)
            if self._writes:
                read = sum(int(_row(observation, row)["length"]) for row in fresh)
                self.tokens["read"] += self._networks * (read - len(fresh))
                self.tokens["prompts"] += len(fresh)

    def _root(self, world: World) -> SearchTree:
        """A tree of one node."""
        room, size = self.config.simulations + 1, world.num_actions
        mode = "chance" if isinstance(world, TableModel) else "closed"
        found = SearchTree(empty_tree(room, size), size, mode)
        found.prior, found.estimate = [0.0] * (room * size), [0.0] * room
        return found

    def _kept(self, row: int, shown: object) -> SearchTree | None:
        """What is known from here on; None where the episode is a new one."""
        found, world = self.trees[row], self._worlds[row]
        if found is None or (self._writes and not world.follows(found, self._played[row])):
            return None
        tree, key = found.tree, world.key(shown, found.mode, GOES_ON)
        node = find_child(self._played[row], key, tree.child, tree.sibling, tree.key)
        return None if node < 0 else found.below(node, spare=self.config.simulations)

    def _descend(self, row: int) -> Walk:
        found, size = self.trees[row], self._worlds[row].num_actions
        count, mean, bounds = found.tree.count, found.tree.mean, found.tree.bounds

        def choose(node: int) -> int:
            return select_puct(node, size, count, mean, found.prior, bounds, self.config.c)

        return Walk(row, *descend(found, self._worlds[row], choose))

    def _evaluate(self, walks: list[Walk]) -> None:
        """Asks the networks about new states, and the judge about finished texts."""
        on = [walk for walk in walks if walk.ending != TERMINATED]
        if on:
            rows = [walk.row for walk in on]
            worlds = [self._worlds[row] for row in rows]
            shown, masks = [one.obs for one in worlds], [one.allowed for one in worlds]
            self._admit(rows, [walk.node for walk in on], shown, masks)
        over = [walk for walk in walks if walk.ending == TERMINATED]
        if not (over and self._writes) or self.judge == "verifier":
            return
        if self.judge == "critic":
            scores = [self._before(walk) for walk in over]
        else:
            scores = self._scores(_stacked([self._worlds[walk.row].obs for walk in over]))
            self.tokens["read"] += len(over)
        for walk, score in zip(over, scores, strict=True):
            found = self.trees[walk.row]
            found.met[walk.node] = found.met[walk.node]._replace(reward=float(score))
            found.tree.rewards[walk.length - 1] = float(score)

    def _before(self, walk: Walk) -> float:
        """V of the text before the token that ended it."""
        found = self.trees[walk.row]
        return found.estimate[found.tree.path[walk.length - 1] // found.num_actions]

    def _admit(
        self, rows: list[int], nodes: list[int], observations: list[Any], masks: list[Any]
    ) -> None:
        """Notes P and V of new states, [K] of them; a mask [A] of one says what is allowed there,
        None: everything.
        """
        probability, value = self._expect(_stacked(observations))
        for i, mask in enumerate(masks):
            if mask is not None:
                probability[i] = _among_allowed(probability[i], np.array(mask, dtype=bool))
        k = min(self.config.top_k, probability.shape[1])
        likeliest = (-probability).argsort(axis=1, kind="stable")[:, :k]  # [K, k]
        share = np.take_along_axis(probability, likeliest, axis=1)
        share /= share.sum(axis=1, keepdims=True)
        for i, (row, node) in enumerate(zip(rows, nodes, strict=True)):
            found = self.trees[row]
            first, best = node * found.num_actions, likeliest[i]
            if self._writes:
                found.met[node].state.choices, best = best, np.arange(k)
            for action, chance in zip(best.tolist(), share[i].tolist(), strict=True):
                found.prior[first + action] = chance
            found.estimate[node] = float(value[i])
        if self._writes:
            self.tokens["read"] += self._networks * len(rows)

    @property
    def _networks(self) -> int:
        """How many networks read each text: the policy, and what values it."""
        return 1 + (not isinstance(self.judge, str) or bool(self._critic))

    @torch.inference_mode()
    def _expect(self, observations: Shown) -> tuple[Floats, Floats]:
        """π [K, A] and V [K] of the environment's observations."""
        seen = self.guide.adapted(observations)
        seen = _tensors(seen, self.guide.parts.device)
        distribution = self._policy.distribution(seen)
        if not isinstance(distribution, Categorical):
            raise RequestError("a search is guided by a policy over discrete actions")
        probability = distribution.log_probs.double().exp().cpu().numpy()
        if not isinstance(self.judge, str):
            return probability, np.asarray(self._scores(observations))
        if not self._critic:
            return probability, np.zeros(len(probability))
        return probability, self._policy.value(seen).double().cpu().numpy()

    def _scores(self, observations: Shown) -> Floats:
        """What the reward model says of texts, finished or not: [K]."""
        assert not isinstance(self.judge, str)
        count = len(observations["tokens"])
        action = np.zeros(count, dtype=np.int64)
        over = np.ones(count, dtype=bool)
        return self.judge.score_steps(observations, action, observations, over)[0]

    def _back_up(self, walk: Walk) -> None:
        found = self.trees[walk.row]
        _, _, visits, _, count, mean, used, bounds, path, rewards = found.tree
        value = 0.0 if walk.ending == TERMINATED else found.estimate[walk.node]
        back_up(
            value,
            walk.length,
            path,
            rewards,
            found.num_actions,
            visits,
            count,
            mean,
            used,
            bounds,
            self.config.gamma,
        )

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing: it learns nothing."""


def _among_allowed(probability: Floats, mask: NDArray[np.bool_]) -> Floats:
    """π [A] over the allowed actions; all alike where the policy has nothing left for them."""
    share = np.where(mask, probability, 0.0)
    return share / share.sum() if share.sum() > 0.0 else mask / mask.sum()


def _row(observations: Shown, i: int) -> Shown:
    """One of [N, ...] observations."""
    if isinstance(observations, dict):
        return {name: part[i] for name, part in observations.items()}
    return observations[i]


def _stacked(observations: list[Shown]) -> Shown:
    """Observations as [K, ...]."""
    if isinstance(observations[0], dict):
        return {name: np.stack([one[name] for one in observations]) for name in observations[0]}
    return np.stack(observations)


def _tensors(seen: Shown, device: str) -> Any:
    if isinstance(seen, dict):
        return {name: torch.as_tensor(part).to(device) for name, part in seen.items()}
    return torch.as_tensor(seen, dtype=torch.float32).to(device)
