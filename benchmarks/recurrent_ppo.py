"""PPO with an LSTM beside sb3-contrib's RecurrentPPO: one thread, all of training.

The same environments, networks (one hidden layer, an LSTM for the actor and another for the critic,
output layers) and hyper-parameters. On CartPole-v1 without its velocities episodes last some dozen
steps; in the T-maze eleven are enough. sb3-contrib goes through a sequence one step at a time where
an episode starts within its minibatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformObservation

import rlbook
from benchmarks.timing import Comparison, run_in_turn, seconds

ROUNDS, UNITS, STEPS = 5, 64, 4_096
SETTINGS: dict[str, Any] = {"num_envs": 8, "rollout_steps": 128, "batch_size": 256, "epochs": 4}


def without_velocities() -> gymnasium.Env:
    """CartPole-v1, of which only the position and the angle are seen."""
    env = gymnasium.make("CartPole-v1")
    space: Any = env.observation_space
    seen = gymnasium.spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)
    return TransformObservation(env, lambda obs: obs[::2], seen)


def t_maze() -> gymnasium.Env:
    return rlbook.make("TMaze-v0")


def ours(make: Callable[[], gymnasium.Env], steps: int = STEPS) -> float:
    """Environment steps per second."""
    return steps / seconds(
        lambda: rlbook.train(
            "ppo",
            "TMaze-v0" if make is t_maze else make(),
            steps=steps,
            recurrent="lstm",
            hidden_sizes=(UNITS,),
            learning_rate=3e-4,
            anneal_learning_rate=False,
            eval_every=0,
            quiet=True,
            **SETTINGS,
        )
    )


def theirs(make: Callable[[], gymnasium.Env], steps: int = STEPS) -> float:
    model = peer(make)
    return steps / seconds(lambda: model.learn(steps))


def peer(make: Callable[[], gymnasium.Env]) -> Any:
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Torso(BaseFeaturesExtractor):
        """The hidden layer, which they would put behind the LSTM."""

        def __init__(self, space: Any) -> None:
            inputs = gymnasium.spaces.flatdim(space)
            super().__init__(space, UNITS)
            self.layers = torch.nn.Sequential(torch.nn.Linear(inputs, UNITS), torch.nn.Tanh())

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.layers(obs.flatten(1))

    return RecurrentPPO(
        "MlpLstmPolicy",
        DummyVecEnv([make] * SETTINGS["num_envs"]),
        n_steps=SETTINGS["rollout_steps"],
        batch_size=SETTINGS["batch_size"],
        n_epochs=SETTINGS["epochs"],
        learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        vf_coef=0.5,
        policy_kwargs={
            "lstm_hidden_size": UNITS,
            "net_arch": [],
            "features_extractor_class": Torso,
            "share_features_extractor": False,
        },
        device="cpu",
        seed=0,
    )


def compare() -> list[Comparison]:
    lines = []
    for name, make in (("CartPole without velocities", without_velocities), ("TMaze", t_maze)):
        rates = run_in_turn(
            {"ours": lambda m=make: ours(m), "peer": lambda m=make: theirs(m)}, ROUNDS
        )
        lines.append(
            Comparison(
                f"PPO with an LSTM, {name}, against sb3-contrib",
                "env steps/s",
                rates["ours"],
                rates["peer"],
                1.0,
            )
        )
    return lines
