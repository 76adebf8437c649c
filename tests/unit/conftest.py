"""Agents on a stage, an agent and its environments, to be played and taught step by step; and a
language model that knows nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlbook.agent import Metrics, Step
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.interaction.vector_envs.vector import VectorInteraction
from rlbook.registry import agent_class
from rlbook.seeding import rng_for


class Stage:
    """An agent and the environments it acts in."""

    def __init__(
        self, algorithm: str, env: Any, *, num_envs: int = 4, seed: int = 0, **config: Any
    ) -> None:
        made = agent_class(algorithm)
        settings = made.Config(**config)
        self.env = adapted_vector(made, EnvRecipe.from_env(env), num_envs, settings)
        self.agent: Any = made(self.env, settings, seed)
        environment = rng_for(seed, "environment")
        self.interaction = VectorInteraction(
            self.env, environment, rollout=self.agent.rollout, group_size=self.agent.group_size
        )
        self.interaction.start()
        self.agent.begin()

    def step(self) -> Step:
        """One vector step, with the resets that follow; the agent does not learn from it."""
        step = self.interaction.step(self.agent.act(self.interaction.obs))
        if self.interaction.reset_finished():
            self.agent.begin()
        return step

    def collect(self, steps: int) -> list[Step]:
        """Steps into the agent's rollout."""
        played = []
        for _ in range(steps):
            step = self.interaction.step(self.agent.act(self.interaction.obs))
            self.agent.rollout_data.add(step, self.agent._log_prob)
            if self.interaction.reset_finished():
                self.agent.begin()
            played.append(step)
        return played

    def round(self) -> list[Step]:
        """Whole episodes into the agent's rollout, until the last one has ended."""
        played = self.collect(1)
        while not self.agent.round_over(played[-1]):
            played += self.collect(1)
        return played

    def learn(self, updates: int) -> list[Metrics]:
        """Plays and learns until so many updates were made; returns what they logged."""
        logged: list[Metrics] = []
        while len(logged) < updates:
            step = self.interaction.step(self.agent.act(self.interaction.obs))
            metrics = self.agent.learn(step)
            if self.interaction.reset_finished():
                self.agent.begin()
            logged += [metrics] if metrics else []
        return logged


class Scripted(gymnasium.Env):
    """Observations and rewards are noise, of which every action uses up its own share, so that
    streams from one seed part ways. An episode of 1 to 9 steps ends by termination, by truncation,
    or by both at once."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = (
            spaces.Box(-1.0, 1.0, (2,), np.float32) if continuous else spaces.Discrete(3)
        )
        self.taken: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.kind = 9, int(self.np_random.integers(3))
        return self._noise(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.taken.append(copy.copy(action))
        self.np_random.random(int(7 * np.abs(action).sum()) % 10)
        self.left -= 1
        over = self.left == 0 or bool(self.np_random.random() < 0.25)
        return (
            self._noise(),
            float(self.np_random.normal()),
            over and self.kind != 0,
            over and self.kind != 1,
            {},
        )

    def _noise(self) -> np.ndarray:
        return self.np_random.normal(size=3).astype(np.float32)


class Arms(gymnasium.Env):
    """Three arms, one pull an episode, one state: the smallest world in which a policy is a table
    of three logits."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(3)

    def __init__(self, rewards: tuple[float, float, float] = (1.0, 0.0, -1.0)) -> None:
        self.rewards = rewards

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, self.rewards[int(action)], True, False, {}


@pytest.fixture
def stage() -> Callable[..., Stage]:
    """Makes an agent with its environments: stage(algorithm, env, num_envs=4, seed=0,
    **hyperparameters)."""
    return Stage


@pytest.fixture
def scripted() -> Callable[..., gymnasium.Env]:
    """Makes an environment whose episodes end in every way there is; `continuous` picks its
    actions."""
    return Scripted


@pytest.fixture
def arms() -> Callable[..., gymnasium.Env]:
    """Makes a bandit with three arms."""
    return Arms


@pytest.fixture
def fingerprint() -> Callable[[torch.nn.Module], list[bytes]]:
    """The bytes of a module's parameters and buffers."""
    return lambda module: [
        value.detach().numpy().tobytes() for value in module.state_dict().values()
    ]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a small language model that knows nothing: it needs no warm-up, and writes a
    bit of everything."""
    from rlbook.llm.models.sources import small_llama
    from rlbook.llm.tokenizers.tokenizer import character_tokenizer

    folder = tmp_path_factory.mktemp("model")
    small_llama(torch.Generator().manual_seed(0)).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return str(folder)
