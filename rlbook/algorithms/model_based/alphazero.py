"""AlphaZero: a network predicts a policy and a value, a tree search improves on them, and the
network is trained on the search's results.

    for each move of an episode, from its state s                              search
        repeat `simulations` times
            from s down the tree until a state is new:
                a ← argmax_a Q(s, a) + c P(s, a) √N(s) / (1 + N(s, a))         Q scaled to [0, 1]
            P(s', ·), v ← network(s');   v ← 0 where the episode terminated
            for each action on the way, from the leaf to the root
                v ← r + γ v                   in self-play: v ← r - γ v
                N(s, a) ← N(s, a) + 1;   Q(s, a) ← Q(s, a) + ( v - Q(s, a) ) / N(s, a)
        π(a) ← N(s, a) / Σ_b N(s, b);   play a with probability ∝ N(s, a)^(1/τ)
    at its end, backwards over its states                                      learning
        z ← r + γ z                           in self-play: z ← r - γ z
        z ← max_a Q(s, a)                     if the move played was not the search's best
        store (s, π, z)
    on minibatches of the buffer, minimise  ½ (z - v)² - Σ_a π(a) log p(a|s)

At the root P is mixed with noise in training, so that every move is tried sometimes. If an
environment `alternates`, the sides take turns and one side's gain is the other's loss; hence the
minus. An agent trained this way searches the game itself (`rules`) against any opponent: it does
not model its opponent. If the environment shows action masks, P is 0 for forbidden actions; if it
has `symmetries`, each state of a minibatch is transformed by a randomly drawn one. The network
learns z standardised by the mean and standard deviation of the buffer, so that rewards may have
any scale.

Source: Silver et al. 2018, doi:10.1126/science.aar6404; 2017, doi:10.1038/nature24270, eq. 1; the
symmetries are the latter's.
Deliberate differences: intermediate rewards and γ, as in MuZero; ½ before the square; the L2
penalty is AdamW's decay; z restarts from the search's value where sampling chose another move than
the search's best (as Watkins's Q(λ) cuts its traces), since the return after a bad move says little
about the value of the state; a fully connected network; one process that plays and learns in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlbook import checks
from rlbook.agent import Metrics, Parts, State, Step
from rlbook.algorithms.model_based.alphazero_config import AlphaZeroConfig
from rlbook.algorithms.model_based.alphazero_search import NetworkSearchAgent
from rlbook.checks import (
    value_at,
)
from rlbook.data.positions import Positions
from rlbook.functional.policy_losses import cross_entropy_loss
from rlbook.functional.value_losses import squared_value_loss
from rlbook.interaction.spaces import as_vector
from rlbook.networks.optimizer import (
    Group,
    LossOutput,
    Optimizer,
    adam,
    gradient_step,
    mean_metrics,
)
from rlbook.networks.policy_value_network import PolicyValueNetwork
from rlbook.seeding import rng_for, rng_state, set_rng_state


def alphazero_targets(
    reward: Sequence[float], search_value: Sequence[float], bootstrap: float, discount: float
) -> list[float]:
    """z of an episode's T states, computed backwards from its end: [T], in reward units.

    Args:
        reward: [T], of each step.
        search_value: [T], max_a Q(s, a) where a move was played that the search likes less, from
            which z restarts; NaN elsewhere.
        bootstrap: what the last state is worth: 0 where the episode terminated.
        discount: γ; against oneself -γ.
    """
    targets, z = [], bootstrap
    for r, value in zip(reversed(reward), reversed(search_value), strict=True):
        z = r + discount * z if math.isnan(value) else value
        targets.append(z)
    return targets[::-1]


def alphazero_update(
    network: PolicyValueNetwork,
    optimizer: Optimizer,
    batches: Iterable[Positions],
    config: AlphaZeroConfig,
    center: float,
    deviation: float,
    loss: Callable[..., LossOutput] | None = None,
) -> Metrics:
    """A gradient step with each minibatch; returns the means of the diagnostics.

    Args:
        network, optimizer: changed in place.
        batches: states with what the search recommended there, π, and what followed, z.
        config: hyper-parameters.
        center, deviation: of the returns that are kept, in reward units.
        loss: of a minibatch; None is `alphazero_loss`.
    """
    step_loss = partial(
        loss or alphazero_loss, network, config=config, center=center, deviation=deviation
    )
    limit = config.max_grad_norm
    steps = [gradient_step(optimizer, step_loss, batch, max_grad_norm=limit) for batch in batches]
    return mean_metrics(steps)


def alphazero_loss(
    network: PolicyValueNetwork,
    batch: Positions,
    *,
    config: AlphaZeroConfig,
    center: float,
    deviation: float,
) -> LossOutput:
    """The loss of v against the standardised z and of p against π; lower is better."""
    logits, value = network(batch.obs)
    value_loss = squared_value_loss(value, (batch.z - center) / deviation)
    policy_loss = cross_entropy_loss(torch.log_softmax(logits, dim=-1), batch.target)
    parts = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
    return LossOutput(policy_loss + config.value_coef * value_loss, parts)


class AlphaZero(NetworkSearchAgent):
    """AlphaZero; see the module docstring."""

    budget = {"episodes": 300, "eval_every": 0}
    Config = AlphaZeroConfig
    loss = staticmethod(alphazero_loss)
    METRICS = {
        "policy_loss": "-Σ π log p, in nats, at least the entropy of π; mean over minibatches",
        "value_loss": "½ (z - v)² of standardised returns; ½ is no better than a constant",
        "grad_norm": "L2 norm of the gradient before clipping",
        "root_value": "largest mean return of an action at the root of the episode's last search, "
        "in reward units",
        "positions": "states in the buffer",
        "deviation": "standard deviation of the returns in the buffer, in reward units",
    }

    def __init__(
        self, env: gymnasium.Env, config: AlphaZeroConfig, seed: int = 0, parts: Parts = Parts()
    ) -> None:
        super().__init__(env, config, seed, parts)
        self.config: AlphaZeroConfig = config
        ways = getattr(env.unwrapped, "symmetries", None) if config.symmetries else None
        self._symmetries = None if ways is None else torch.from_numpy(ways)  # [K, A]
        size = as_vector(env.observation_space, [])[0]
        checks.check_memory("buffer_size", config.buffer_size, 4 * (size + self._num_actions + 1))
        group = Group([self.network], weight_decay=config.weight_decay)
        self.optimizer = adam([group], value_at(config.learning_rate, 0.0))
        self.sampling = rng_for(seed, "minibatches")
        self.kept, self.episodes = Positions.empty(size, self._num_actions), 0
        self._episode: list[tuple[NDArray[np.float32], NDArray[np.float64], float, float]] = []

    def learn(self, step: Step) -> Metrics:
        assert self.tree is not None
        best = self.tree.best_actions()
        value = self.tree.values()[best[0]]
        instead = math.nan if int(step.action) in best else value
        vector = self.estimates.vector(step.obs).numpy()
        self._episode.append((vector, self._recommended, float(step.reward), instead))
        if not (step.terminated or step.truncated):
            return {}
        bootstrap = 0.0 if step.terminated else self.expect(step.next_obs)[1]
        obs, target, reward, search_value = zip(*self._episode, strict=True)
        z = alphazero_targets(reward, search_value, bootstrap, self.discount)
        self.kept = self.kept.append_episode(obs, target, z, self.config.buffer_size)
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
        config = self.config
        self.optimizer.learning_rate = value_at(config.learning_rate, self.progress)
        self.estimates.standardise(self.kept.z)
        batches = (
            self.kept.minibatch(config.batch_size, self.sampling, self._symmetries)
            for _ in range(config.gradient_steps)
        )
        scale = self.estimates.center, self.estimates.deviation
        metrics = alphazero_update(
            self.network, self.optimizer, batches, config, *scale, loss=self.loss
        )
        self.estimates.forget()
        return metrics

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
