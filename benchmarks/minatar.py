"""What DQN and PPO have learned in two of MinAtar's games after 300 000 steps, beside
Stable-Baselines3: mean greedy and sampled returns of 100 episodes, five seeds.

Both sides have the same filters, layers and hyper-parameters, those of the presets, but for one:
DQN is double in Breakout here, and Stable-Baselines3's never is. The games, and curves of DQN over
five million frames: Young and Tian 2019, arXiv:1903.03176. Two hours on one core: run by name only.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import rlbook
from benchmarks.timing import Comparison

GAMES, SEEDS, STEPS, EPISODES = ("Breakout", "Asterix"), range(10, 15), 300_000, 100
PPO_SETTINGS = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01}
DQN_SETTINGS = {
    "train_freq": 4,
    "gradient_steps": 1,
    "batch_size": 64,
    "learning_rate": 5e-4,
    "buffer_size": 100_000,
    "learning_starts": 5_000,
    "target_update_interval": 1_000,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.05,
}


class ChannelsFirst(gymnasium.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """[10, 10, C] of booleans as [C, 10, 10] of float32, which torch's convolutions take."""

    def __init__(self, env: gymnasium.Env[np.ndarray, Any]) -> None:
        super().__init__(env)
        height, width, channels = env.observation_space.shape or ()
        self.observation_space = gymnasium.spaces.Box(0, 1, (channels, height, width), np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.moveaxis(observation, -1, 0).astype(np.float32)


def ours(algorithm: str, game: str, seed: int) -> tuple[float, float]:
    """Mean returns, greedy and sampled."""
    run = rlbook.train(algorithm, f"MinAtar/{game}-v1", seed=seed, eval_every=0, quiet=True)
    greedy, sampled = (
        rlbook.evaluate(run, episodes=EPISODES, explore=explore).mean for explore in (False, True)
    )
    return greedy, sampled


def theirs(algorithm: str, game: str, seed: int) -> tuple[float, float]:
    """Mean returns, greedy and sampled."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import Tensor, nn

    class SmallFilters(BaseFeaturesExtractor):
        """Ours, see `rlbook.networks.cnn.SMALL_FILTERS`."""

        def __init__(self, space: gymnasium.spaces.Box) -> None:
            super().__init__(space, 32 * 3 * 3)
            self.filters = nn.Sequential(
                *(nn.Conv2d(space.shape[0], 16, 3, 2, 1), nn.ReLU()),
                *(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()),
            )

        def forward(self, observations: Tensor) -> Tensor:
            return self.filters(observations)

    def make(count: int, first: int) -> Any:
        return make_vec_env(
            f"MinAtar/{game}-v1", n_envs=count, seed=first, wrapper_class=ChannelsFirst
        )

    shape: dict[str, Any] = {
        "features_extractor_class": SmallFilters,
        "net_arch": [128],
        "activation_fn": nn.Tanh if algorithm == "ppo" else nn.ReLU,
    }
    settings: dict[str, Any] = dict(PPO_SETTINGS if algorithm == "ppo" else DQN_SETTINGS)
    if algorithm == "ppo":
        shape["share_features_extractor"] = False
        settings["learning_rate"] = lambda left: 1e-3 * left
    model = getattr(stable_baselines3, algorithm.upper())(
        "MlpPolicy",
        make(16 if algorithm == "ppo" else 1, seed),
        seed=seed,
        device="cpu",
        policy_kwargs=shape,
        **settings,
    )
    model.learn(STEPS)
    held_out = make(1, seed + 10_000)
    greedy, sampled = (
        float(np.mean(evaluate_policy(model, held_out, EPISODES, deterministic)[0]))
        for deterministic in (True, False)
    )
    return greedy, sampled


def compare() -> list[Comparison]:
    import minatar.gym

    minatar.gym.register_envs()
    lines = []
    for game in GAMES:
        for algorithm in ("dqn", "ppo"):
            mine = [ours(algorithm, game, seed) for seed in SEEDS]
            peers = [theirs(algorithm, game, seed) for seed in SEEDS]
            lines += [
                Comparison(
                    f"{algorithm.upper()}, {game}, {how}, against SB3",
                    "return",
                    [means[which] for means in mine],
                    [means[which] for means in peers],
                    1.0,
                )
                for which, how in enumerate(("greedy", "sampled"))
            ]
    return lines
