"""Every setting of the agents with networks does something: another value leaves other weights, or
other states of their generators."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlbook
from rlbook.registry import agent_class
from rlbook.runs.request import Request


class Noise(gymnasium.Env):
    """Observations are noise, rewards are noise and depend on the action; an episode ends by
    termination or by truncation."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = (
            spaces.Box(-1.0, 1.0, (2,), np.float32) if continuous else spaces.Discrete(3)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ends = self.np_random.random()
        return (
            self._seen(),
            float(20 * self.np_random.normal() + np.sum(action)),
            ends < 0.15,
            ends > 0.85,
            {},
        )

    def _seen(self) -> np.ndarray:
        return self.np_random.normal(2.0, 3.0, size=3).astype(np.float32)


REPLAY = {
    "env": Noise(True),
    "steps": 24,
    "num_envs": 2,
    "hidden_sizes": (4,),
    "learning_starts": 6,
    "batch_size": 4,
    "buffer_size": 64,
}
MAZE = {"env": "Maze-v0", "passes": 1, "hidden_sizes": (4,), "batch_size": 4}
PPO = {
    "env": Noise(),
    "steps": 48,
    "num_envs": 2,
    "hidden_sizes": (4,),
    "rollout_steps": 8,
    "batch_size": 8,
    "epochs": 3,
    "learning_rate": 0.03,
}
ROUNDS = {"env": Noise(), "num_envs": 8, "steps": 120, "hidden_sizes": (4,)}

SMALLEST: dict[str, dict[str, Any]] = {
    "sac": REPLAY,
    "ddpg": REPLAY,
    "td3": REPLAY | {"target_noise": 3.0},
    "mbpo": REPLAY
    | {
        "model_hidden_sizes": (4,),
        "model_steps": 3,
        "model_batch_size": 4,
        "model_every": 8,
        "gradient_steps": 1,
    },
    "dqn": REPLAY | {"env": Noise(), "train_every": 2, "target_period": 7},
    "a2c": {"env": Noise(), "steps": 32, "num_envs": 2, "hidden_sizes": (4,)},
    "ppo": PPO,
    "trpo": {
        "env": Noise(),
        "steps": 32,
        "num_envs": 2,
        "hidden_sizes": (4,),
        "rollout_steps": 8,
        "batch_size": 8,
    },
    "reinforce": {"env": Noise(), "steps": 48, "num_envs": 2, "hidden_sizes": (4,)},
    "grpo": ROUNDS | {"group_size": 4},
    "dpo": ROUNDS | {"group_size": 4},
    "rejection_sampling": ROUNDS | {"group_size": 4},
    "alphazero": {
        "env": Noise(),
        "episodes": 3,
        "simulations": 4,
        "gradient_steps": 2,
        "batch_size": 8,
        "hidden_sizes": (4,),
        "c": 0.5,
    },
    "fitted_q": MAZE | {"walks": 3, "target_period": 2},
    "cql": MAZE | {"walks": 3, "target_period": 2},
    "iql": MAZE | {"walks": 3, "tau": 0.1},
    "behavior_cloning": MAZE | {"demonstrations": 12},
    "rce": MAZE | {"walks": 12, "candidates": 3, "batch_size": 2},
    "reward_model": MAZE | {"walks": 12, "batch_size": 2},
    "dagger": {
        "env": "Maze-v0",
        "steps": 32,
        "num_envs": 2,
        "hidden_sizes": (4,),
        "rollout_steps": 4,
        "gradient_steps": 2,
        "batch_size": 4,
    },
    "gail": PPO | {"env": "Maze-v0", "steps": 32, "demonstrations": 20, "discriminator_steps": 2},
}
"""Algorithm → where it is trained, and how little of it shows what a setting does."""


OTHER: dict[str, Any] = {
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "learning_rate": 0.02,
    "adam_eps": 1.0,
    "max_grad_norm": 1e-3,
    "hidden_sizes": (3,),
    "batch_size": 3,
    "tau": 0.5,
    "hold": 2,
    "learning_starts": 9,
    "train_every": 5,
    "gradient_steps": 3,
    "epochs": 2,
    "rollout_steps": 6,
    "temperature": 2.0,
    "entropy_coef": 0.5,
    "value_coef": 3.0,
    "initial_temperature": 2.0,
    "target_entropy": 0.5,
    "exploration_noise": 0.5,
    "target_noise": 1.0,
    "target_noise_clip": 0.1,
    "policy_delay": 3,
    "model_ratio": 0.5,
    "horizon": 2,
    "members": 2,
    "model_hidden_sizes": (3,),
    "model_learning_rate": 0.02,
    "model_batch_size": 3,
    "model_every": 4,
    "model_steps": 2,
    "optimizer": "rmsprop",
    "target_period": 3,
    "epsilon": 0.5,
    "n_step": 3,
    "buffer_size": 8,
    "max_kl": 0.1,
    "cg_iterations": 1,
    "cg_damping": 1.0,
    "value_epochs": 3,
    "baseline": "mean",
    "group_size": 2,
    "scale": "none",
    "credit": "reward-to-go",
    "importance_cap": 0.5,
    "average": "sequence",
    "kl_coef": 0.5,
    "advantage_clip": 0.1,
    "beta": 0.3,
    "preference_loss": "hinge",
    "label_smoothing": 0.2,
    "nll_coef": 1.0,
    "reference_period": 1,
    "keep": 2,
    "threshold": 0.0,
    "simulations": 6,
    "c": 3.0,
    "noise_fraction": 0.9,
    "noise_alpha": 9.0,
    "weight_decay": 3.0,
    "warmup_steps": 3,
    "walks": 5,
    "demonstrations": 9,
    "conservative_coef": 3.0,
    "expectile": 0.2,
    "inverse_temperature": 9.0,
    "max_weight": 0.1,
    "candidates": 2,
    "score_temperature": 0.5,
    "margin": 1.0,
    "center_coef": 1.0,
    "held_out": 0.4,
    "reward": "hurry",
    "discriminator_steps": 1,
    "discriminator_rate": 0.1,
    "gradient_penalty": 9.0,
    "clip": 0.01,
    "clip_high": 0.01,
    "dual_clip": 1.0,
    "clip_value": 0.01,
    "target_kl": 1e-9,
    "normalize_over": "rollout",
    "truncation": "terminal",
}
"""Setting → another value than the default, where that is no boolean."""

MOVES = {"learning_rate": 0.1, "epochs": 3}
"""With more than one step on the same rows the policy leaves the one that acted."""
AFTER: dict[str, tuple[dict[str, Any], Any]] = {
    "kl_target": ({"kl_coef": 0.5}, 1e-6),
    "kl_horizon": ({"kl_coef": 0.5, "kl_target": 1e-6}, 100),
    "kl_coef_min": ({"kl_coef": 0.5, "kl_target": 1e3, "kl_horizon": 1}, 0.49),
    "kl_coef_max": (
        {
            "kl_coef": 0.5,
            "kl_target": 1e-6,
            "kl_horizon": 1,
            "kl_coef_min": 0.5,
            "kl_estimator": "k2",
        },
        0.51,
    ),
    "kl_estimator": ({"kl_coef": 0.5}, "k2"),
    "kl_clamp": ({"kl_coef": 0.5, "kl_estimator": "k2"}, 1e-9),
    "priority_exponent": ({"prioritized": True}, 0.1),
    "importance_exponent": ({"prioritized": True}, 0.0),
    "noise_scale": ({"noisy": True}, 2.0),
    "num_atoms": ({"distributional": True}, 11),
    "v_min": ({"distributional": True}, -5.0),
    "v_max": ({"distributional": True}, 5.0),
    "action_bins": ({"env": Noise(True)}, 3),
    "average_divisor": ({"average": "constant"}, 3),
    "simpo_margin": ({"preference_loss": "simpo"}, 2.0),
    "good_weight": ({"preference_loss": "kto"}, 3.0),
    "line_search_steps": (
        {"max_kl": 0.01, "cg_damping": 0.0, "cg_iterations": 1, "learning_rate": 0.1},
        1,
    ),
    "line_search_decay": (
        {"max_kl": 0.01, "cg_damping": 0.0, "cg_iterations": 1, "learning_rate": 0.1},
        0.1,
    ),
    "double": ({"learning_rate": 0.1}, False),
    "recurrent": ({}, "gru"),
    "sequence_length": ({"recurrent": "gru"}, 2),
    "post_hidden_sizes": ({"recurrent": "gru"}, (3,)),
    "overlap": ({"recurrent": "gru"}, 1),
    "burn_in": ({"recurrent": "gru", "learning_rate": 0.1}, 1),
    "stochastic": ({}, "chance"),
}
"""Setting → the other settings without which it has no effect, and another value of it."""
OF: dict[str, dict[str, tuple[dict[str, Any], Any]]] = {
    "sac": {"temperature": ({}, 0.5)},
    "mbpo": {"temperature": ({}, 0.5)},
    "dqn": {"sequence_length": ({"recurrent": "gru", "overlap": 1}, 2)},
    "ppo": {"kl_in": ({"kl_coef": 0.5, "kl_estimator": "k2"}, "loss")},
    "reinforce": {"baseline": ({}, "none"), "value_coef": ({"baseline": "learned"}, 3.0)},
    "grpo": {
        "clip": (MOVES, 0.01),
        "clip_high": (MOVES, 0.01),
        "dual_clip": (MOVES, 1.0),
        "ratio": (MOVES, "sequence"),
        "baseline": ({"scale": "none"}, "leave-one-out"),
        "credit": ({"baseline": "batch", "scale": "batch"}, "reward-to-go"),
        "min_spread": ({"steps": 1_000}, 0.99),
        "kl_in": ({"kl_coef": 0.5}, "reward"),
        "kl_band": ({"kl_coef": 0.5}, (1e-9, 1e-8)),
        "kl_factor": ({"kl_coef": 0.5, "kl_band": (1e-9, 1e-8)}, 2.0),
        "kl_coef_min": ({"kl_coef": 0.5, "kl_band": (10.0, 20.0)}, 0.49),
        "kl_coef_max": ({"kl_coef": 0.5, "kl_band": (1e-9, 1e-8)}, 0.51),
    },
    "alphazero": {"temperature": ({}, 0.1), "buffer_size": ({}, 2)},
    "rejection_sampling": {"batch_size": ({}, 1)},
    "reward_model": {"members": ({"center_coef": 1.0}, 2)},
}
"""The same of one algorithm's settings."""
ELSEWHERE = {
    "micro_batch_size": "memory alone: unit/test_flat_adam.py",
    "matmul_precision": "precision alone: unit/test_sac.py",
    "greedy_simulations": "evaluations alone: unit/test_alphazero.py",
    "symmetries": "for environments that have some: unit/test_alphazero.py",
    "packing": "for texts: unit/test_packing.py",
    "critic_start": "needs a reward model: unit/test_reward_model.py",
    "refill": "where all rewards of a group are equal: unit/test_grpo.py",
    "episode_reward": "for texts: unit/test_answer_probability.py",
    "importance_of": "where another program has sampled: unit/test_grpo.py",
    **dict.fromkeys(
        ("top", "top_share", "score_temperatures"), "for recorded groups: unit/test_kl_control.py"
    ),
}
"""Setting → why it changes no weights here, and where it is tested."""
TEXTS_ALONE = {
    "ppo": ("average", "average_divisor"),
    "behavior_cloning": ("average",),
    "grpo": ("held_out",),
}
"""Algorithm → its settings that change something of episodes of texts, or of recorded groups,
alone."""
PARENTS = {"mbpo": "sac", "gail": "ppo", "cql": "fitted_q"}
"""Algorithm → the one whose settings it has, too."""


def changes(algorithm: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each setting of an algorithm's own, the other settings that it needs, and another value of
    it."""
    fields = {item.name: item.default for item in dataclasses.fields(agent_class(algorithm).Config)}
    if algorithm in PARENTS:
        shared = {
            item.name: item.default
            for item in dataclasses.fields(agent_class(PARENTS[algorithm]).Config)
        }
        fields = {name: default for name, default in fields.items() if name not in shared}
    for name, default in fields.items():
        if name in ELSEWHERE or name in TEXTS_ALONE.get(algorithm, ()):
            continue
        other = {**OTHER, "activation": "relu" if default == "tanh" else "tanh"}
        needs, value = (
            OF.get(algorithm, {}).get(name)
            or AFTER.get(name)
            or ({}, not default if isinstance(default, bool) else other[name])
        )
        yield name, needs, value


def learned(algorithm: str, options: dict[str, Any]) -> str:
    """A digest of what the agent is after a short run."""
    env, options = options["env"], {name: value for name, value in options.items() if name != "env"}
    run = rlbook.train(algorithm, env, eval_every=0, **options)
    sha256 = hashlib.sha256()
    _feed(sha256, run.agent.state_dict())
    return sha256.hexdigest()


def _feed(sha256: Any, part: Any) -> None:
    if isinstance(part, dict):
        for name, item in part.items():
            sha256.update(str(name).encode())
            _feed(sha256, item)
    elif isinstance(part, list | tuple):
        for item in part:
            _feed(sha256, item)
    elif dataclasses.is_dataclass(part):
        _feed(sha256, vars(part))
    else:
        sha256.update(
            np.asarray(part).tobytes()
            if isinstance(part, np.ndarray | torch.Tensor)
            else repr(part).encode()
        )


IDLE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("alphazero", {"noise_fraction": 0.0}, {"noise_alpha": 0.3}, "without noise_fraction"),
    *(
        ("mbpo", {"model_ratio": 0.0}, {name: value}, "where model_ratio is 0")
        for name, value in {
            "horizon": 2,
            "members": 2,
            "model_hidden_sizes": (3,),
            "model_learning_rate": 0.02,
            "model_batch_size": 3,
            "model_every": 4,
            "model_steps": 2,
        }.items()
    ),
    ("mcts", {"leaf": "value"}, {"rollout_depth": 3}, "unless leaf is rollout"),
    ("sac", {"temperature": 0.2}, {"target_entropy": 0.1}, "unless temperature is none"),
    ("mbpo", {"temperature": 0.0}, {"initial_temperature": 2.0}, "unless temperature is none"),
    ("dqn", {}, {"priority_exponent": 0.1}, "without prioritized"),
    ("dqn", {}, {"importance_exponent": 0.1}, "without prioritized"),
    ("dqn", {}, {"noise_scale": 0.1}, "without noisy"),
    *(
        ("dqn", {}, {name: value}, "without distributional")
        for name, value in {"num_atoms": 11, "v_min": 0.0, "v_max": 1.0}.items()
    ),
    ("ppo", {}, {"average_divisor": 2}, "unless average is constant"),
    ("grpo", {"average": "sequence"}, {"average_divisor": 2}, "unless average is constant"),
]
"""Algorithm, the other settings, a setting that nothing reads beside them, and why."""


@pytest.mark.parametrize(("algorithm", "others", "idle", "why"), IDLE)
def test_a_setting_that_nothing_reads_is_refused(
    algorithm: str, others: dict[str, Any], idle: dict[str, Any], why: str
) -> None:
    config = agent_class(algorithm).Config
    (name,) = idle
    assert getattr(config(**others), name) == getattr(config, name)
    with pytest.raises(ValueError, match=f"^{name} has no effect {why}; leave it out$"):
        config(**others, **idle)


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "said"),
    [
        ("ppo", "Maze-v0", {"steps": 8, "average": "sequence"}, "average has no effect on rows"),
        (
            "behavior_cloning",
            "Maze-v0",
            {"passes": 1, "average": "sequence"},
            "average has no effect on rows",
        ),
    ],
)
def test_an_average_of_episodes_is_refused_where_the_rows_are_steps(
    algorithm: str, env: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(rlbook.RequestError, match=said):
        rlbook.train(algorithm, env, **options)


def test_a_run_that_holds_a_setting_which_nothing_reads_is_still_read() -> None:
    """Older versions did not refuse it."""
    text = Request.build("sac", "Maze-v0", hyperparameters={"temperature": 0.2}).as_yaml()
    old = text.replace("target_entropy: null", "target_entropy: 0.5")
    assert old != text and Request.from_yaml(old).as_yaml() == text


def test_what_a_preset_sets_gives_way_to_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAC's preset of the maze has a target entropy, which a fixed temperature leaves unread; what
    the user says is refused."""
    sac = agent_class("sac")
    monkeypatch.setattr(sac, "presets", {"Maze-v0": {"steps": 50, "target_entropy": 0.4}})
    assert Request.build("sac", "Maze-v0").config.target_entropy == 0.4
    fixed = {"temperature": 0.2}
    config = Request.build("sac", "Maze-v0", hyperparameters=fixed).config
    assert config.target_entropy is None and config.temperature == 0.2
    with pytest.raises(rlbook.RequestError, match="target_entropy has no effect"):
        Request.build("sac", "Maze-v0", hyperparameters=fixed | {"target_entropy": 0.4})


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", SMALLEST)
def test_every_setting_changes_what_is_learned(algorithm: str) -> None:
    small = SMALLEST[algorithm]
    plain = learned(algorithm, small)
    assert learned(algorithm, small) == plain
    idle = []
    for name, needs, value in changes(algorithm):
        before = learned(algorithm, small | needs) if needs else plain
        if learned(algorithm, small | needs | {name: value}) == before:
            idle.append(name)
    assert idle == []
