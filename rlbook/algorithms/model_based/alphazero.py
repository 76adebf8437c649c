"""AlphaZero: a network says which moves look good and what a state is worth; a tree search improves
on it; the network learns what the search found.

    for each move of an episode, from its state s                              search
        repeat `simulations` times
            from s down the tree until a state is new:
                a ← argmax_a Q(s, a) + c P(s, a) √N(s) / (1 + N(s, a))         Q scaled to [0, 1]
            P(s', ·), v ← network(s');   v ← 0 where the episode terminated
            for each action on the way, from the leaf to the root
                v ← r + γ v                   against oneself: v ← r - γ v
                N(s, a) ← N(s, a) + 1;   Q(s, a) ← Q(s, a) + ( v - Q(s, a) ) / N(s, a)
        π(a) ← N(s, a) / Σ_b N(s, b);   play a with probability ∝ N(s, a)^(1/τ)
    at its end, backwards over its states                                      learning
        z ← r + γ z                           against oneself: z ← r - γ z
        z ← max_a Q(s, a)                     where a move was played that the search likes less
        keep (s, π, z)
    on minibatches of what is kept, minimise  ½ (z - v)² - Σ_a π(a) log p(a|s)

At the root P is mixed with noise while training, so that every move is tried at times. Where an
environment `alternates`, each step belongs to the other side than the one before, and what one side
gains the other loses; hence the minus. An agent trained so searches the game itself (`rules`)
whoever it plays: it does not look into its opponent. Where the environment shows action masks, P
is 0 for forbidden actions; where it has `symmetries`, each state of a minibatch is seen
under one of them, drawn anew. The network learns z standardised by the mean and deviation of what
is kept, so that rewards may have any scale.

Source: Silver et al. 2018, doi:10.1126/science.aar6404; 2017, doi:10.1038/nature24270, eq. 1; the
symmetries are the latter's.
Deliberate differences: intermediate rewards and γ, as MuZero has them; ½ before the square; the L2
penalty is AdamW's decay; z starts anew from the search's value where chance chose another move than
the search's best (as Watkins's Q(λ) cuts its traces), since what follows a bad move tells how good
the state is only to one who plays it; a fully connected network; one process that plays and learns
in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rlbook import checks
from rlbook.agent import Metrics, State, Step
from rlbook.algorithms.planning.network_estimates import NetworkEstimates
from rlbook.algorithms.planning.search_agent import SearchAgent, World, descend
from rlbook.algorithms.planning.search_tree import (
    SearchTree,
    back_up,
    select_puct,
    visit_policy,
    with_noise,
)
from rlbook.algorithms.planning.simulators import Snapshots
from rlbook.algorithms.planning.table_model import TERMINATED, TableModel
from rlbook.checks import (
    at,
    at_least,
    bound,
    non_negative,
    one_of,
    positive,
    positive_int,
    positive_ints,
    unit_interval,
)
from rlbook.data.positions import Positions
from rlbook.functional.policy_losses import cross_entropy_loss
from rlbook.functional.schedules import Schedule
from rlbook.functional.value_losses import squared_value_loss
from rlbook.hyperparameters import Hyperparameters
from rlbook.interaction.spaces import as_vector
from rlbook.networks.optimizer import Group, LossOutput, adam, gradient_step, mean_metrics
from rlbook.networks.policy_value_network import PolicyValueNetwork
from rlbook.seeding import rng_for, rng_state, set_rng_state, torch_generator


@dataclass(frozen=True)
class AlphaZeroConfig(Hyperparameters):
    gamma: Annotated[float, unit_interval] = 0.99  # discount γ per environment step, in [0, 1]
    # simulations for each move in training, at least 1
    simulations: Annotated[int, positive_int] = 32
    # the same for each move without exploration
    greedy_simulations: Annotated[int, positive_int] = 64
    # weight of the prior against returns scaled to [0, 1], at least 0
    c: Annotated[float, non_negative] = 1.25
    # share of the noise in P at the root, in [0, 1]
    noise_fraction: Annotated[float, unit_interval] = 0.25
    # the noise is Dirichlet(α, …, α): small α favours single actions
    noise_alpha: Annotated[float, positive] = 1.0
    # τ of the moves played in training; 0 is the most visited
    temperature: Annotated[float | Schedule, non_negative] = 1.0
    # random outcomes: "chance" nodes, "open-loop", or "auto" as in mcts
    stochastic: Annotated[str, one_of("auto", "chance", "open-loop")] = "auto"
    buffer_size: Annotated[int, positive_int] = 5_000  # states kept, the last ones
    batch_size: Annotated[int, positive_int] = 64  # states of a minibatch
    train_every: Annotated[int, positive_int] = 1  # episodes between updates
    gradient_steps: Annotated[int, positive_int] = 16  # minibatches of an update
    learning_rate: Annotated[float | Schedule, positive] = 2e-3  # Adam's step size, > 0
    # share of the weights taken off per unit of learning rate
    weight_decay: Annotated[float, non_negative] = 1e-4
    symmetries: bool = True  # learn from states turned and mirrored, where the environment says how
    value_coef: Annotated[float, non_negative] = 1.0  # weight of ½ (z - v)²; 2 is the paper's
    max_grad_norm: Annotated[float, bound] = 10.0  # the gradient's L2 norm is clipped to this
    hidden_sizes: Annotated[tuple[int, ...], positive_ints] = (64, 64)  # units of each hidden layer
    action_bins: Annotated[int, at_least(2)] = 5  # values per dimension of a continuous action, ≥ 2


class AlphaZero(SearchAgent):
    """AlphaZero; see the module docstring."""

    budget = {"episodes": 300, "eval_every": 0}
    Config = AlphaZeroConfig
    METRICS = {
        "policy_loss": "-Σ π log p, in nats: at least the entropy of π; mean of the minibatches",
        "value_loss": "½ (z - v)², of standardised returns; ½ is no better than a constant",
        "grad_norm": "L2 norm of the gradient before clipping",
        "root_value": "largest mean return of an action at the root of the episode's last search, "
        "in reward units",
        "positions": "states that are kept",
        "deviation": "standard deviation of the returns that are kept, in reward units",
    }

    def __init__(self, env: gymnasium.Env, config: AlphaZeroConfig, seed: int = 0) -> None:
        self.alternates = bool(getattr(env.unwrapped, "alternates", False))
        super().__init__(env, config, seed)
        self.config: AlphaZeroConfig = config
        ways = getattr(env.unwrapped, "symmetries", None) if config.symmetries else None
        self._symmetries = None if ways is None else torch.from_numpy(ways)  # [K, A]
        size, encode = as_vector(env.observation_space, [])
        checks.check_memory("buffer_size", config.buffer_size, 4 * (size + self._num_actions + 1))
        generator = torch_generator(rng_for(seed, "initialisation"))
        hidden = tuple(config.hidden_sizes)
        self.network = PolicyValueNetwork(size, self._num_actions, hidden, generator)
        self.estimates = NetworkEstimates(self.network, encode)
        group = Group([self.network], weight_decay=config.weight_decay)
        self.optimizer = adam([group], at(config.learning_rate, 0.0))
        self.sampling = rng_for(seed, "minibatches")
        self.discount = -config.gamma if self.alternates else config.gamma
        """What the next state's value counts for the side that moves."""
        self.kept, self.episodes = Positions.none(size, self._num_actions), 0
        self._noise: NDArray[np.float64] | None = None  # [A], at the root of the next search
        self._recommended = np.zeros(self._num_actions)  # [A], π of the last search
        self._episode: list[tuple[NDArray[np.float32], NDArray[np.float64], float, float]] = []

    def look_into(self, env: gymnasium.Env) -> World:
        game: Any = env.unwrapped
        if self.alternates and not game.alternates:  # somebody else replies there
            return Snapshots(game, None, self._num_actions, game.rules())
        return super().look_into(env)

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
        chances = visit_policy(self.tree.counts(), at(self.config.temperature, self.progress))
        return int(self.rng.choice(self._num_actions, p=chances))

    def grow(
        self, found: SearchTree, observation: object, simulations: int, rng: np.random.Generator
    ) -> None:
        """Adds simulations to a root, in place."""
        self._world.begin(observation, rng)
        prior = self.expect(observation, self._world.root_mask)[0]
        if self._noise is not None:
            prior = with_noise(prior, self._noise, self.config.noise_fraction)
        found.prior = prior + [0.0] * (len(found.tree.count) - len(prior))
        found.estimate = [0.0] * len(found.tree.key)
        for _ in range(simulations):
            self.simulate(found)

    def simulate(self, found: SearchTree) -> None:
        """One simulation: selection, expansion, evaluation, backup."""
        _, _, visits, _, count, mean, used, bounds, path, rewards = found.tree
        num_actions, prior, world = found.num_actions, found.prior, self._world
        open_loop = found.mode == "open-loop"
        # whether the mask is looked at when an action is chosen, since a node may have several
        masked_later = found.mode != "closed" and not isinstance(world, TableModel)

        def choose(node: int) -> int:
            allowed = world.allowed if masked_later else None
            return select_puct(
                node, num_actions, count, mean, prior, bounds, self.config.c, allowed
            )

        node, length, ending, new = descend(found, world, choose)
        if new and (ending != TERMINATED or open_loop):
            first = node * num_actions
            allowed = [1] * num_actions if masked_later else world.allowed
            share, found.estimate[node] = self.expect(world.obs, allowed)
            prior[first : first + num_actions] = share
        value = 0.0 if ending == TERMINATED else found.estimate[node]
        back_up(
            value,
            length,
            path,
            rewards,
            num_actions,
            visits,
            count,
            mean,
            used,
            bounds,
            self.discount,
        )

    def expect(
        self, observation: object, allowed: ArrayLike | None = None
    ) -> tuple[list[float], float]:
        """What the network says of one observation: P [A], 0 where not `allowed`, and V in reward
        units. None: what the environment's own method allows, or everything.
        """
        if allowed is None and self._mask_of is not None:
            mask = np.asarray(self._mask_of(observation), dtype=bool)
            allowed = mask if mask.any() else None
        return self.estimates(observation, allowed)

    def value(self, observations: ArrayLike) -> NDArray[np.float32]:
        """V of the environment's observations, to the side to move: [N, ...] → [N]."""
        return self.estimates.values(observations)

    def learn(self, step: Step) -> Metrics:
        assert self.tree is not None
        best = self.tree.best_actions()
        value = self.tree.values()[best[0]]
        instead = math.nan if int(step.action) in best else value
        vector = self.estimates.vector(step.obs).numpy()
        self._episode.append((vector, self._recommended, float(step.reward), instead))
        if not (step.terminated or step.truncated):
            return {}
        z, after = [], 0.0 if step.terminated else self.expect(step.next_obs)[1]
        for _, _, reward, instead in reversed(self._episode):
            after = reward + self.discount * after if math.isnan(instead) else instead
            z.append(after)
        obs, target, *_ = zip(*self._episode, strict=True)
        self.kept = self.kept.followed_by(obs, target, z[::-1], self.config.buffer_size)
        self._episode, self.episodes = [], self.episodes + 1
        if self.episodes % self.config.train_every:
            return {}
        return self.update() | {
            "root_value": value,
            "positions": len(self.kept),
            "deviation": self.estimates.deviation,
        }

    def update(self) -> Metrics:
        """Several minibatches; returns the mean of the diagnostics."""
        self.optimizer.learning_rate = at(self.config.learning_rate, self.progress)
        self.estimates.standardise(self.kept.z)
        metrics = []
        for _ in range(self.config.gradient_steps):
            size = self.config.batch_size
            batch = self.kept.minibatch(size, self.sampling, self._symmetries)
            limit = self.config.max_grad_norm
            metrics.append(gradient_step(self.optimizer, self.loss, batch, max_grad_norm=limit))
        self.estimates.forget()
        return mean_metrics(metrics)

    def loss(self, batch: Positions) -> LossOutput:
        """How far p is from π, and v from z."""
        logits, value = self.network(batch.obs)
        policy_loss = cross_entropy_loss(torch.log_softmax(logits, dim=-1), batch.target)
        value_loss = squared_value_loss(
            value, (batch.z - self.estimates.center) / self.estimates.deviation
        )
        parts = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return LossOutput(policy_loss + self.config.value_coef * value_loss, parts)

    def begin(self) -> None:
        self._episode = []

    def state_dict(self) -> State:
        return {
            "network": dict(self.network.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "kept": self.kept._asdict(),
            "random": self._random,
            "episodes": self.episodes,
            "standard": [self.estimates.center, self.estimates.deviation],
            "rngs": [rng_state(self.rng), rng_state(self.sampling)],
            "episode": [list(item) for item in self._episode],
        }

    def load_state_dict(self, state: State) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.kept, self._random = Positions(**state["kept"]), bool(state["random"])
        if {len(rows) for rows in self.kept} != {len(self.kept.obs)}:
            needed = "an observation, a target and an outcome each"
            raise ValueError(f"the kept positions must have {needed}")
        self.estimates.center, self.estimates.deviation = state["standard"]
        self.episodes = state["episodes"]
        for rng, saved in zip((self.rng, self.sampling), state["rngs"], strict=True):
            set_rng_state(rng, saved)
        self._episode = [(*item,) for item in state["episode"]]
        self.estimates.forget()
