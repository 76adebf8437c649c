"""RLHF with four models on `ppo`: what each option computes, on the maze and on texts, and what is
refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from gymnasium.vector import SyncVectorEnv

import rlbook
from rlbook.algorithms.policy import ppo
from rlbook.algorithms.policy.ppo import PPOConfig, standardize_advantages
from rlbook.errors import RequestError
from rlbook.functional.advantages import whiten
from rlbook.functional.divergences import adapted_kl_coef
from rlbook.interaction.learned_reward import LearnedRewardVectorEnv
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.state_encoding import encode

ADAPTIVE: dict[str, Any] = {
    "kl_coef": 0.1,
    "kl_target": 0.01,
    "kl_horizon": 200,
    "normalize_over": "rollout",
    "whiten_reward": True,
}
FAST: dict[str, Any] = {"eval_every": 0, "num_envs": 8}


def arrays_of(run: rlbook.Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in encode(run.agent.state_dict())[1].items()}


# ---- whitening

X, MASK = (
    torch.tensor([[1.0, 2.0], [3.0, 100.0]], dtype=torch.float64),
    torch.tensor([[True, True], [True, False]]),
)


def test_whitening_is_trls() -> None:
    """Mean 2, variance (1 + 0 + 1) / 2 = 1: x - 2 over √(1 + 1e-8); and 0 outside the mask."""
    scale = (1 + 1e-8) ** -0.5
    assert_near(whiten(X, MASK), [[-scale, 0.0], [scale, 0.0]], terms=3, size=3.0)
    assert_near(
        whiten(X, MASK, shift=False), [[2 - scale, 2.0], [2 + scale, 0.0]], terms=3, size=3.0
    )
    # variance 2/3
    assert whiten(X, MASK, ddof=0)[1, 0].item() == near((2 / 3 + 1e-8) ** -0.5, terms=3, size=3.0)
    assert_near(whiten(X), (X - X.mean()) * (X.var() + 1e-8).rsqrt(), terms=4, size=100 / 49)
    assert whiten(X, MASK.new_zeros(2, 2)).eq(0).all()


@pytest.mark.parametrize("env", ["Maze-v0", "Addition-v0"])
def test_the_rollouts_advantages_are_whitened_once_and_the_minibatches_are_left_alone(
    env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    run = Run(
        Request.build(
            "ppo",
            env,
            hyperparameters={"normalize_over": "rollout", "batch_size": 8, "epochs": 1},
            **FAST,
        )
    )
    agent: Any = run.agent
    update = agent.update
    agent.update = lambda batch: (seen.append(batch.advantage[batch.mask]), update(batch))[1]

    def counted(rows: Any, policy: Any, config: Any) -> Any:
        before, after = rows.advantage.clone(), standardize_advantages(rows, policy, config)
        seen.append((after.advantage - before).abs().sum())
        return after

    monkeypatch.setattr(ppo, "standardize_advantages", counted)
    source: Any = run._source
    source.interaction.start()
    agent.begin()
    while not seen:
        step = source.interaction.step(agent.act(source.interaction.obs))
        agent.learn(step)
        if source.interaction.reset_finished():
            agent.begin()
    advantage = seen[0]
    assert advantage.mean().item() == near(
        0.0, dtype="float32", terms=len(advantage), size=float(advantage.abs().max())
    )
    assert seen[1:] and not any(seen[1:])


# ---- the adaptive penalty


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.3, 0.5 * (1 + 0.2 * 0.1)),  # KL / target - 1 = 2, clipped to .2
        (0.11, 0.5 * (1 + 0.1 * 0.1)),  # 10 % above the target
        (0.1, 0.5),
        (-1.0, 0.5 * (1 - 0.2 * 0.1)),  # an estimate may be negative
    ],
)
def test_the_penalty_moves_by_a_fifth_at_most(kl: float, expected: float) -> None:
    """100 samples of a horizon of 1 000."""
    assert adapted_kl_coef(0.5, kl, target=0.1, share=0.1, low=0.0, high=9.0) == near(
        expected, terms=4
    )


def test_without_bounds_the_penalty_would_run_away() -> None:
    beta = {9.0: 1.0, float("inf"): 1.0}
    for _ in range(200):
        beta = {
            high: adapted_kl_coef(value, 1.0, target=0.1, share=1.0, low=0.0, high=high)
            for high, value in beta.items()
        }
    assert beta[9.0] == 9.0 and beta[float("inf")] == near(1.2**200, terms=2 * 200)


@pytest.mark.parametrize("env", ["Maze-v0", "Addition-v0"])
def test_the_penalty_follows_its_target_and_a_cut_run_goes_on_bit_for_bit(
    env: str, tmp_path: Path
) -> None:
    steps = {"Maze-v0": 400, "Addition-v0": 120}[env]
    options = FAST | ADAPTIVE | ({"rollout_steps": 10} if env == "Maze-v0" else {})
    whole = rlbook.train("ppo", env, steps=steps, anneal_learning_rate=False, **options)
    logged = [
        (report["kl_coef"], report["reference_kl"])
        for report in whole.metrics
        if "kl_coef" in report
    ]
    assert logged[0][0] == 0.1
    rows = 80 if env == "Maze-v0" else 8
    if env == "Maze-v0" and len(logged) > 1 and whole.metrics[0].get("step") == 80:
        expected = adapted_kl_coef(
            0.1, logged[0][1], target=0.01, share=rows / 200, low=1e-4, high=10.0
        )
        assert logged[1][0] == near(expected, terms=4)
    rlbook.train(
        "ppo", env, steps=steps // 2, anneal_learning_rate=False, out=tmp_path / "run", **options
    )
    cut: Any = rlbook.load(tmp_path / "run").resume(steps=steps)
    assert cut.agent.penalty.coef == whole.agent.penalty.coef != 0.1  # type: ignore[attr-defined]
    assert arrays_of(cut) == arrays_of(whole)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"kl_target": 0.1},
            (
                "kl_coef must be a number from kl_coef_min to kl_coef_max where kl_target changes"
                " it, got 0.0"
            ),
        ),
        (
            {"kl_target": 0.1, "kl_coef": "linear(1, 0)"},
            "kl_coef must be a number from kl_coef_min",
        ),
        ({"kl_horizon": 5}, "kl_horizon has no effect without kl_target"),
        ({"kl_coef_max": 5.0}, "kl_coef_max has no effect without kl_target"),
        ({"kl_target": -1.0}, "kl_target"),
        ({"normalize_over": "batch"}, "normalize_over"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        rlbook.train("ppo", "Maze-v0", steps=1, **settings)
    assert PPOConfig().kl_target is None


# ---- the four models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model of texts, and a clone of the right answers; both after two minibatches."""
    where = tmp_path_factory.mktemp("models")
    rlbook.train(
        "reward_model",
        "Addition-v0",
        steps=2,
        batch_size=8,
        learning_rate=1e-2,
        out=where / "reward",
    )
    rlbook.train("sft", "Addition-v0", steps=2, batch_size=8, eval_every=0, out=where / "sft")
    rlbook.train("reward_model", "Maze-v0", steps=3, walks=10, out=where / "maze reward")
    rlbook.train("sft", "Maze-v0", steps=3, eval_every=0, out=where / "maze sft")
    return where


def test_actor_and_reference_start_from_sft_and_the_critic_from_the_reward_model(
    folder: Path,
) -> None:
    request = Request.build(
        "ppo",
        "Addition-v0",
        start=folder / "sft",
        reward_model=folder / "reward",
        hyperparameters={"critic_start": "reward_model", "kl_coef": 0.1},
        **FAST,
    )
    agent: Any = Run(request).agent
    cloned: Any = rlbook.load(folder / "sft").agent
    model: Any = rlbook.load(folder / "reward").agent
    for policy in (agent.policy, agent.reference):
        for ours, theirs in zip(
            policy.model.parameters(), cloned.policy.model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)
    ours, theirs = agent.policy.critic.state_dict(), model.network.score.state_dict()
    assert ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )
    assert not {value.data_ptr() for value in ours.values()} & {
        value.data_ptr() for value in theirs.values()
    }
    text = {"tokens": np.array([[1, 5, 14, 6, 15, 7, 2, 0, 0, 0, 0, 0]]), "length": np.array([7])}
    worth, spread = model.score_steps(text, np.array([2]), text, np.array([True]))
    # h ≈ ±1
    terms, size = (
        widths(agent.policy.model),
        float(agent.policy.critic.weight.detach().norm()),
    )
    assert (
        agent.value(text) == near(worth, dtype="float32", terms=terms, size=size) and spread is None
    )


def test_without_a_reward_model_the_critics_trunk_is_that_of_the_start(folder: Path) -> None:
    agent: Any = Run(Request.build("ppo", "Addition-v0", start=folder / "sft", **FAST)).agent
    below = agent.policy.model.model.state_dict()
    assert all(
        torch.equal(value, below[name])
        for name, value in agent.policy.critic.trunk.state_dict().items()
    )


def test_the_maze_starts_from_a_clone_too_and_refuses_a_critic_of_steps(folder: Path) -> None:
    agent: Any = Run(Request.build("ppo", "Maze-v0", start=folder / "maze sft", **FAST)).agent
    cloned: Any = rlbook.load(folder / "maze sft").agent
    assert all(
        torch.equal(*pair)
        for pair in zip(
            agent.policy.actor.parameters(), cloned.policy.actor.parameters(), strict=True
        )
    )
    with pytest.raises(
        RequestError,
        match="critic_start must be 'policy' here, got 'reward_model': that model rewards each step",
    ):
        rlbook.train(
            "ppo", "Maze-v0", reward_model=folder / "maze reward", critic_start="reward_model"
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"critic_start": "reward_model"},
            "critic_start 'reward_model' needs a reward_model, but none is given",
        ),
        ({"start": "nowhere"}, "start: nowhere"),
        ({"start": "maze sft"}, "the start was made for another environment"),
        (
            {"start": "reward"},
            "start must be a run of an agent with a policy network, got one of RewardModel",
        ),
        (
            {"start": "sft", "model": {"hidden_size": 8}},
            "start must be a run of the same networks; its policy has no",
        ),
        (
            {"reward_caution": 1.0},
            "reward_caution needs a reward_model and must be at least 0, got 1",
        ),
        (
            {"reward_caution": 1.0, "reward_model": "reward"},
            "reward_caution needs an ensemble, but the reward model has one member; got 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    folder: Path, options: dict[str, Any], sentence: str
) -> None:
    named = {
        name: folder / value if (folder / str(value)).is_dir() else value
        for name, value in options.items()
    }
    with pytest.raises(RequestError, match=sentence):
        rlbook.train("ppo", "Addition-v0", steps=1, **named)


def test_a_start_has_no_meaning_for_a_table() -> None:
    with pytest.raises(RequestError, match="q_learning has no use for start"):
        rlbook.train("q_learning", "Maze-v0", start="x")


# ---- what the environment would have paid


class Constant:
    """A reward model of two members that pay 2 and 4 for every step: mean 3, standard deviation
    √2."""

    def adapt_observations(self, observations: Any) -> Any:
        return observations

    def score_steps(self, obs: Any, action: Any, next_obs: Any, over: Any) -> tuple[Any, Any]:
        return np.full(len(action), 3.0), np.full(len(action), 2**0.5)


class ThreeSteps(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left = 3
        return 0, {}

    def step(self, action: int) -> Any:
        self.left -= 1
        return 1, float(action), self.left == 0, False, {}


def test_the_environments_own_return_is_in_the_log_when_an_episode_ends() -> None:
    env = LearnedRewardVectorEnv(SyncVectorEnv([ThreeSteps] * 2), Constant(), caution=0.5)
    env.reset(seed=[0, 1])
    logged = [env.step(np.array([1, 0]))[4]["metrics"] for _ in range(3)]
    assert all(np.isnan(numbers["true_return"]).all() for numbers in logged[:2])
    assert logged[2]["true_return"].tolist() == [3.0, 0.0]
    assert logged[2]["disagreement"].tolist() == [2**0.5] * 2
    env.reset(options={"reset_mask": np.array([True, True])})
    assert env.step(np.array([1, 1]))[1].tolist() == near([3 - 0.5 * 2**0.5] * 2, terms=2)
    kept = env._true_return.copy()
    assert kept.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("algorithm", "more"), [("q_learning", {}), ("ppo", {"num_envs": 3, "rollout_steps": 16})]
)
def test_a_paid_run_logs_the_true_return_beside_the_paid_one(
    folder: Path, algorithm: str, more: dict[str, Any]
) -> None:
    """On the maze's shortest episode the true return is at most 3."""
    run = rlbook.train(
        algorithm, "Maze-v0", steps=600, reward_model=folder / "maze reward", eval_every=0, **more
    )
    logged = [report["true_return"] for report in run.metrics if "true_return" in report]
    assert (
        logged
        and max(logged) <= 3.0
        and logged != [report["return"] for report in run.metrics if "true_return" in report]
    )
