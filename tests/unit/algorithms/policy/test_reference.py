"""A named reference: what the KL penalty and DPO's ratio are towards, instead of the agent's own
first policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near
from steps import loss_of

import rlbook
from rlbook.agent import Agent, Parts
from rlbook.algorithms.policy.preference_pairs import PairedRows
from rlbook.errors import RequestError
from rlbook.llm.models.sources import small_llama
from rlbook.llm.tokenizers.tokenizer import character_tokenizer
from rlbook.registry import agent_class
from rlbook.runs.parts import agent_of_model
from rlbook.runs.request import Request
from rlbook.runs.storage.state_encoding import encode

Make = Callable[..., Any]
# what the arms pay; π_ref, made by hand
REWARD, TILT = (
    np.array([1.0, 0.0, -1.0]),
    np.array([0.2, 0.7, 0.1]),
)
BETA = 0.5
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("Maze-v0", {"steps": 300, "num_envs": 4, "rollout_steps": 16, "kl_coef": 0.1}),
    "grpo": ("Maze-v0", {"steps": 600, "num_envs": 4, "group_size": 2, "kl_coef": 0.1}),
    "dpo": ("Maze-v0", {"steps": 600, "num_envs": 8}),
    "grpo on tokens": (
        "Addition-v0",
        {
            "steps": 150,
            "num_envs": 8,
            "group_size": 4,
            "kl_coef": 0.1,
            "env_kwargs": {"reward": "edit"},
        },
    ),
    "dpo on tokens": (
        "Addition-v0",
        {"steps": 150, "num_envs": 8, "env_kwargs": {"reward": "edit"}},
    ),
}


def train(name: str, **more: Any) -> rlbook.Run:
    env, options = OPTIONS[name]
    return rlbook.train(name.split()[0], env, seed=0, eval_every=0, **options | more)


def learned(run: rlbook.Run) -> dict[str, bytes]:
    """All but the reference: a run that named one keeps its sha256."""
    return {
        name: array.tobytes()
        for name, array in encode(run.agent.state_dict())[1].items()
        if not name.startswith("/reference")
    }


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_reference_that_is_the_first_policy_changes_no_bit(name: str, tmp_path: Path) -> None:
    """After one step nothing is learned yet, so that run's policy is the first one of every run
    with its seed."""
    train(name, steps=1, out=tmp_path / "first")
    expected = train(name)
    for reference in (tmp_path / "first", rlbook.load(tmp_path / "first")):
        found = train(name, reference=reference)
        assert learned(found) == learned(expected)
        assert found.metrics == expected.metrics


def test_a_reference_of_another_seed_and_shape_is_another_reference(tmp_path: Path) -> None:
    rlbook.train(
        "behavior_cloning",
        "Maze-v0",
        steps=1,
        seed=7,
        hidden_sizes=(8,),
        eval_every=0,
        out=tmp_path / "other",
    )
    run = train("ppo", reference=tmp_path / "other", out=tmp_path / "run")
    assert learned(run) != learned(train("ppo"))
    assert "reference: " in (tmp_path / "run" / "config.yaml").read_text()


# ---- on three arms the best policy is known: π ∝ π_ref exp(r / β)


def learner(
    stage: Make, env: Any, algorithm: str, reference: np.ndarray, policy: np.ndarray, **options: Any
) -> Any:
    """A stage whose agent has the policy `policy`, and a named reference `reference`, both as
    tables of three logits."""
    theatre, other = (stage(algorithm, env, hidden_sizes=(), **options) for _ in range(2))
    with_logits(other.agent, reference)
    theatre.agent = type(theatre.agent)(
        theatre.env, theatre.agent.config, 0, Parts(reference=other.agent)
    )
    with_logits(theatre.agent, policy)
    return theatre


@torch.no_grad()
def with_logits(agent: Any, probabilities: np.ndarray) -> None:
    agent.policy.actor.weights[0].zero_()
    agent.policy.actor.weights[1].copy_(torch.from_numpy(np.log(probabilities)))


def optimum(reference: np.ndarray, beta: float) -> np.ndarray:
    weight = reference * np.exp(REWARD / beta)
    return weight / weight.sum()


def expected_gradient(stage: Make, arms: Make, p: np.ndarray, **options: Any) -> np.ndarray:
    """E[∇ loss] of GRPO in the three logits where π = p: all 27 groups of three pulls, each with
    its probability."""
    groups = np.array(list(itertools.product(range(3), repeat=3)))
    options |= {
        "num_envs": groups.size,
        "group_size": 3,
        "scale": "none",
        "baseline": "leave-one-out",
        "kl_coef": BETA,
    }
    theatre = learner(stage, arms(tuple(REWARD)), "grpo", TILT, p, **options)
    agent, (step,), action = theatre.agent, theatre.round(), groups.reshape(-1)
    agent.rollout_data.steps = [
        step._replace(action=action, reward=REWARD[action].astype(np.float32))
    ]
    agent.rollout_data.log_probs = [np.log(p)[action].astype(np.float32)]
    batch, _ = agent.prepare()
    batch.weight = (
        torch.from_numpy(p[groups].prod(1).repeat(3) / 3).float().reshape(batch.mask.shape)
    )
    (gradient,) = torch.autograd.grad(loss_of(agent, batch)[0], [agent.policy.actor.weights[1]])
    return gradient.double().numpy()


@pytest.mark.parametrize(
    ("where", "estimator"), [("reward", "k1"), ("loss", "k2"), ("loss", "k1+"), ("loss", "k3+")]
)
def test_the_penalty_is_at_rest_where_the_policy_is_the_reference_times_exp_of_the_reward(
    stage: Make, arms: Make, where: str, estimator: str
) -> None:
    """max E[r] - β KL(π ‖ π_ref). With the uniform policy as reference the optimum would be another
    one.

    81 numbers of size 1 are summed, times their probabilities.
    """
    options = {"kl_in": where, "kl_estimator": estimator}
    assert_near(
        expected_gradient(stage, arms, optimum(TILT, BETA), **options),
        np.zeros(3),
        dtype="float32",
        terms=81,
        size=1.0,
    )
    assert (
        np.abs(expected_gradient(stage, arms, optimum(np.full(3, 1 / 3), BETA), **options)).max()
        > 0.02
    )


def test_the_penalty_of_ppo_is_at_rest_there_too(stage: Make, arms: Make) -> None:
    """The reward less β k1 is r - β log(π / π_ref), which is the same for all arms where π ∝ π_ref
    exp(r / β)."""
    p = optimum(TILT, BETA)
    theatre = learner(
        stage,
        arms(tuple(REWARD)),
        "ppo",
        TILT,
        p,
        num_envs=64,
        rollout_steps=1,
        kl_coef=BETA,
        normalize_advantage=False,
    )
    theatre.collect(1)
    batch, _ = theatre.agent.prepare()
    assert set(batch.action.tolist()) >= {0, 1}
    # r - β log p + β log π_ref, for every arm
    expected = BETA * np.log((TILT * np.exp(REWARD / BETA)).sum())
    size = 1.0 + BETA * float(np.abs(np.log(p)).max() + np.abs(np.log(TILT)).max())
    # γ counts for nothing: one step
    assert_near(batch.target, np.full(len(batch), expected), terms=5, size=size)
    uniform = learner(
        stage,
        arms(tuple(REWARD)),
        "ppo",
        np.full(3, 1 / 3),
        p,
        num_envs=64,
        rollout_steps=1,
        kl_coef=BETA,
    )
    uniform.collect(1)
    assert uniform.agent.prepare()[0].target.std() > 0.1


def test_dpo_is_at_rest_there_too(stage: Make, arms: Make) -> None:
    """Preferences by Bradley and Terry: i beats j with probability σ(r_i - r_j). Every pair of
    arms, each with its probability."""

    def gradient(p: np.ndarray) -> np.ndarray:
        theatre = learner(stage, arms(tuple(REWARD)), "dpo", TILT, p, num_envs=64, beta=BETA)
        while set(np.concatenate([step.action for step in theatre.round()])) != {0, 1, 2}:
            theatre.agent.rollout_data.clear()
        agent, total = theatre.agent, np.zeros(3)
        batch = agent.policy.batch(agent.rollout_data, "episode")
        batch.reference_log_prob = agent.reference_log_prob(batch)
        rows = [int((batch.action[:, 0] == arm).nonzero()[0, 0]) for arm in range(3)]
        for i, j in itertools.permutations(range(3), 2):
            better, worse = batch[rows[i] : rows[i] + 1], batch[rows[j] : rows[j] + 1]
            (found,) = torch.autograd.grad(
                loss_of(agent, PairedRows(better, worse).as_minibatch())[0],
                [agent.policy.actor.weights[1]],
            )
            total += found.double().numpy() / (1 + np.exp(REWARD[j] - REWARD[i]))
        return total

    assert_near(gradient(optimum(TILT, BETA)), np.zeros(3), dtype="float32", terms=6 * 3, size=1.0)
    assert np.abs(gradient(optimum(np.full(3, 1 / 3), BETA))).max() > 0.02


# ---- a model's folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rlbook.llm.models.sources import small_llama
    from rlbook.llm.tokenizers.tokenizer import character_tokenizer

    folder = tmp_path_factory.mktemp("models") / "small"
    small_llama(torch.Generator().manual_seed(3), hidden_size=16, feed_forward=16).save_pretrained(
        folder
    )
    character_tokenizer().save_pretrained(folder)
    return folder


def test_a_model_of_a_folder_is_a_reference_and_changes_no_bit_where_it_is_the_first_policy(
    model: Path,
) -> None:
    name = "grpo on tokens"
    options = {
        "temperature": 0.8,
        "steps": 40,
        "env_kwargs": {"reward": "edit", "model": str(model)},
    }
    assert learned(train(name, reference=model, **options)) == learned(train(name, **options))


def test_a_model_that_changed_since_is_noticed(model: Path, tmp_path: Path) -> None:
    import shutil

    moved = Path(shutil.copytree(model, tmp_path / "model"))
    train(
        "grpo on tokens",
        steps=8,
        env_kwargs={"reward": "edit", "model": str(moved)},
        reference=moved,
        out=tmp_path / "run",
    )
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    with pytest.raises(RequestError, match="reference has changed since the run was started"):
        rlbook.load(tmp_path / "run").resume(steps=16)


# ---- what is refused


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rlbook.train("value_iteration", "Maze-v0", gamma=0.9, out=folder / "table")
    rlbook.train("ppo", "CartPole-v1", steps=10, out=folder / "pole", eval_every=0)
    rlbook.train("ppo", "Maze-v0", steps=10, out=folder / "maze", eval_every=0)
    return folder


@pytest.mark.parametrize(
    ("algorithm", "reference", "options", "sentence"),
    [
        (
            "ppo",
            "maze",
            {},
            "reference has no effect where kl_coef is 0; set kl_coef, or leave it out",
        ),
        ("grpo", "maze", {}, "reference has no effect where kl_coef is 0"),
        ("reinforce", "maze", {}, "reinforce has no use for reference"),
        (
            "dpo",
            "maze",
            {"reference_period": 3},
            "reference_period replaces the reference; give only one of them",
        ),
        (
            "dpo",
            "table",
            {},
            "reference must be a run of an agent with a policy network, got one of ValueIteration",
        ),
        (
            "ppo",
            "pole",
            {"kl_coef": 0.1},
            (
                "the reference was made for another environment: its observation space is Box(-inf,"
                " inf, (4,)"
            ),
        ),
        ("ppo", "nowhere", {"kl_coef": 0.1}, "reference: "),
    ],
)
def test_a_reference_without_use_or_fit_is_refused(
    runs: Path,
    tmp_path: Path,
    algorithm: str,
    reference: str,
    options: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(RequestError) as refusal:
        rlbook.train(
            algorithm,
            "Maze-v0",
            steps=10,
            reference=runs / reference,
            out=tmp_path / "run",
            **options,
        )
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_model_as_start_is_told_of_the_option_for_models(model: Path) -> None:
    with pytest.raises(RequestError, match=r"holds a Hugging Face model, not a run; .* --model "):
        train("grpo on tokens", start=model)


def test_models_with_other_tokens_or_without_an_environment_of_tokens_are_refused(
    model: Path, tmp_path: Path
) -> None:
    import shutil

    with pytest.raises(
        RequestError, match="holds a language model, and Maze-v0 is not a token environment"
    ):
        rlbook.train("ppo", "Maze-v0", steps=10, reference=model, kl_coef=0.1)
    other = Path(shutil.copytree(model, tmp_path / "model"))
    (other / "model.safetensors").unlink()
    with pytest.raises(RequestError, match="model has no weights"):
        train("grpo on tokens", reference=other)
    other = Path(shutil.copytree(model, tmp_path / "other"))
    text = (other / "tokenizer.json").read_text().replace('"a"', '"z"')
    (other / "tokenizer.json").write_text(text)
    with pytest.raises(RequestError, match="the reference must have the agent's tokenizer"):
        train("grpo on tokens", reference=other)


def test_a_reference_in_memory_does_for_a_run_in_memory_alone(runs: Path, tmp_path: Path) -> None:
    agent: Agent = rlbook.load(runs / "maze").agent
    assert isinstance(train("ppo", steps=10, reference=agent).agent, agent_class("ppo"))
    with pytest.raises(
        RequestError, match="a run in a folder must be able to reload its reference"
    ):
        train("ppo", steps=10, reference=agent, out=tmp_path / "run")


def test_a_models_folder_samples_at_the_temperature_of_the_run(tmp_path: Path) -> None:
    small_llama(torch.Generator().manual_seed(3)).save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    request = Request.build("grpo", "Addition-v0", hyperparameters={"temperature": 0.5})
    agent: Any = agent_of_model("reference", str(tmp_path), request)
    assert agent.policy.temperature == 0.5
