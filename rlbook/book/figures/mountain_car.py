"""An underpowered car in a valley, learned by semi-gradient SARSA with 8 tilings of 8 x 8 tiles, ε
= 0 and γ = 1.

Weights of 0 are optimistic, as every step costs 1, and make the agent explore. The book's episodes
have no time limit.

Source: Sutton & Barto 2018, example 10.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

from rlbook.algorithms.value.semi_gradient_sarsa import SemiGradientSarsa, SemiGradientSarsaConfig
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.seeding import rng_for

NAME = "MountainCar-v0"


def drive(
    seed: int, episodes: int, longest: int, **config: Any
) -> Iterator[tuple[SemiGradientSarsa, SingleInteraction]]:
    """The agent and its interaction after each step of one run. No episode takes more than
    `longest` steps."""
    settings = SemiGradientSarsaConfig(
        **{"gamma": 1.0, "epsilon": 0.0, "tilings": 8, "bins": 8, **config}
    )
    raw = gymnasium.make(NAME, max_episode_steps=longest, disable_env_checker=True)
    env = AdaptedEnv(raw, adapt_to(SemiGradientSarsa, raw, settings))
    agent, interaction = (
        SemiGradientSarsa(env, settings, seed),
        SingleInteraction(env, rng_for(seed, "environment")),
    )
    for _ in loop(agent, interaction, Budget(None, episodes)):
        yield agent, interaction
