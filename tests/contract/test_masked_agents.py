"""Agents with networks on an environment that stops whoever takes a forbidden action: they train,
are evaluated and taken up again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from masked_doors import OPEN, Doors
from random_masks import ACTIONS, RandomMasks

import rlbook
from rlbook.algorithms.imitation.behavior_cloning import cloning_loss
from rlbook.algorithms.imitation.dagger import labelled_rows
from rlbook.book.experiments.one_axis import greedy_policy
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.action_masks import UNUSED, mask_table
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.storage.state_encoding import encode

ENV = "tests/RandomMasks-v0"
SMALL: dict[str, Any] = {"hidden_sizes": (8,)}
DQN: dict[str, Any] = SMALL | {
    "learning_starts": 50,
    "batch_size": 16,
    "train_every": 4,
    "buffer_size": 200,
}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", DQN | {"double": False}),
    "double": ("dqn", DQN | {"double": True}),
    "rainbow": (
        "dqn",
        DQN
        | {
            "dueling": True,
            "prioritized": True,
            "n_step": 3,
            "noisy": True,
            "distributional": True,
            "num_atoms": 11,
        },
    ),
    "world_model": (
        "world_model",
        SMALL
        | {
            "learning_starts": 50,
            "train_every": 100,
            "gradient_steps": 5,
            "candidates": 10,
            "elites": 3,
            "iterations": 2,
            "horizon": 3,
        },
    ),
    "ppo": (
        "ppo",
        SMALL | {"rollout_steps": 16, "batch_size": 32, "epochs": 2, "entropy_coef": 0.1},
    ),
    "ppo with a reference": (
        "ppo",
        SMALL | {"rollout_steps": 16, "batch_size": 32, "kl_coef": 0.1, "separate_networks": False},
    ),
    "a2c": ("a2c", SMALL | {"entropy_coef": 0.1}),
    "trpo": ("trpo", SMALL | {"rollout_steps": 32, "cg_iterations": 3, "value_epochs": 2}),
    "reinforce": ("reinforce", SMALL | {"entropy_coef": 0.1, "baseline": "learned"}),
    "grpo": ("grpo", SMALL | {"group_size": 4, "kl_coef": 0.1, "entropy_coef": 0.1, "refill": 2}),
    "sac": (
        "sac",
        SMALL
        | {
            "learning_starts": 50,
            "batch_size": 16,
            "train_every": 4,
            "buffer_size": 200,
            "initial_temperature": 2.0,
        },
    ),
    "mbpo": (
        "mbpo",
        SMALL
        | {
            "learning_starts": 50,
            "batch_size": 16,
            "train_every": 8,
            "model_batch_size": 16,
            "model_steps": 5,
            "model_hidden_sizes": (8,),
        },
    ),
}


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ENV, entry_point=RandomMasks)
    yield
    del gymnasium.registry[ENV]


QUICK = {"rainbow": False, "ppo": False, "grpo": False, "sac": False, "mbpo": False}
"""Of each kind of agent the one that `make test` takes through the plain forms; it takes the others
through the fast ones."""


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("name", "many"),
    [
        pytest.param(name, many, marks=[] if many == QUICK.get(name, True) else pytest.mark.slow)
        for name in AGENTS
        for many in (False, True)
    ],
)
def test_no_forbidden_action_is_taken_in_training_or_evaluation(name: str, many: bool) -> None:
    """One environment and the plain forms, several and the fast ones."""
    algorithm, settings = AGENTS[name]
    few = 4 if name in ("reinforce", "grpo") else 1
    with use_plain_forms(not many):
        run = rlbook.train(
            algorithm,
            ENV,
            steps=520,
            num_envs=max(4, 2 * few) if many else few,
            eval_every=260,
            eval_episodes=3,
            seed=2,
            **settings,
        )
        assert run.steps >= 520 and UNUSED not in run.notes
        assert len(rlbook.evaluate(run, episodes=10).returns) == 10
    _, arrays = encode(run.agent.state_dict())
    assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")


@pytest.mark.parametrize("seen", ["numbers", "states"])
@pytest.mark.parametrize("name", ["semi_gradient_sarsa", "semi_gradient_td", "lstd", "gradient_td"])
def test_agents_with_linear_values_keep_to_the_masks(name: str, seen: str) -> None:
    few = {"tilings": 2, "bins": 4} if name == "lstd" and seen == "numbers" else {}
    run = rlbook.train(
        name, ENV if seen == "numbers" else Doors(), steps=520, eval_every=0, seed=2, **few
    )
    assert UNUSED not in run.notes
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20


@pytest.mark.parametrize("name", ["semi_gradient_sarsa", "semi_gradient_td"])
def test_tables_of_linear_values_are_over_what_the_environments_own_method_allows(
    name: str,
) -> None:
    agent: Any = rlbook.train(name, "Taxi-v4", steps=100, eval_every=0, seed=2).agent
    allowed = mask_table(rlbook.make("Taxi-v4"), range(500))
    assert allowed is not None and not allowed.all()
    policy = agent.own_policy() if name == "semi_gradient_sarsa" else agent.target_policy
    assert (policy > 0).tolist() == allowed.tolist()
    assert allowed[range(500), agent.greedy_policy()].all()


def test_the_greedy_policy_of_a_network_is_over_what_is_allowed() -> None:
    agent = rlbook.train("dqn", "Taxi-v4", steps=50, eval_every=0, seed=2, **SMALL).agent
    allowed = mask_table(rlbook.make("Taxi-v4"), range(500))
    assert allowed is not None
    assert allowed[range(500), greedy_policy(agent, 500, allowed)].all()
    assert not allowed[range(500), greedy_policy(agent, 500)].all()


TEACHERS: dict[str, dict[str, Any]] = {
    "dagger": {"steps": 520, "rollout_steps": 16, "gradient_steps": 2},
    "distillation": {"steps": 520, "num_envs": 4, "divergence": "jsd", "hard_coef": 0.5},
    "gail": {
        "steps": 520,
        "num_envs": 4,
        "rollout_steps": 16,
        "demonstrations": 60,
        "discriminator_steps": 2,
    },
    "behavior_cloning": {"passes": 2, "demonstrations": 60},
}
"""Agents that need somebody who shows them what to do."""


@pytest.fixture(scope="module")
def teacher() -> rlbook.Run:
    return rlbook.train("dqn", ENV, steps=100, seed=1, eval_every=0, **DQN)


@pytest.mark.parametrize("name", TEACHERS)
def test_who_is_taught_and_who_teaches_keep_to_the_masks(name: str, teacher: rlbook.Run) -> None:
    role = "teacher" if name == "distillation" else "expert"
    run = rlbook.train(
        name, ENV, seed=2, eval_every=0, **{role: teacher}, **SMALL, **TEACHERS[name]
    )
    assert UNUSED not in run.notes
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20


def test_dagger_clones_among_the_allowed_actions() -> None:
    """Each state is stored with its own mask, and the likelihood is over that: in room 3 one door
    is open, so that its label costs nothing."""
    expert = rlbook.train("dqn", Doors, steps=100, seed=1, eval_every=0, **DQN)
    settings = SMALL | TEACHERS["dagger"]
    agent: Any = rlbook.train(
        "dagger", Doors, seed=2, eval_every=0, expert=expert, **settings
    ).agent
    obs, labels, allowed = map(np.concatenate, (agent.obs, agent.labels, agent.allowed))
    rooms = obs.argmax(axis=1)
    assert len(rooms) > 300
    assert allowed.tolist() == OPEN[rooms].tolist()
    there = rooms == 3
    masked = labelled_rows(obs[there], labels[there], allowed[there])
    assert float(cloning_loss(agent.policy, masked, config=agent.config).loss.detach()) == 0.0
    free = labelled_rows(obs[there], labels[there])
    assert float(cloning_loss(agent.policy, free, config=agent.config).loss.detach()) > 0.0
    saved, agent.allowed = agent.state_dict(), []
    agent.load_state_dict(saved)
    assert np.concatenate(agent.allowed).tolist() == allowed.tolist()


class LateMasks(RandomMasks):
    """Allows everything at the start of an episode, and says so by showing no mask."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        self.mask = np.ones(ACTIONS, dtype=np.int8)
        return obs, {}


def test_dagger_allows_everything_until_the_first_mask(teacher: rlbook.Run) -> None:
    settings = SMALL | TEACHERS["dagger"]
    agent: Any = rlbook.train(
        "dagger", LateMasks, seed=2, eval_every=0, expert=teacher, num_envs=3, **settings
    ).agent
    labels, allowed = map(np.concatenate, (agent.labels, agent.allowed))
    assert allowed.shape == (len(labels), ACTIONS)
    assert allowed[:3].all() and not allowed.all()
    assert allowed[np.arange(len(labels)), labels].all()


@pytest.mark.parametrize("name", ["fitted_q", "cql", "iql", "rce"])
def test_who_learns_from_random_walks_keeps_to_the_masks(name: str) -> None:
    run = rlbook.train(name, ENV, passes=2, walks=20, seed=2, eval_every=0, **SMALL)
    assert len(rlbook.evaluate(run, episodes=20).returns) == 20


def test_an_expert_that_knows_no_masks_is_refused_where_it_breaks_one(
    monkeypatch: pytest.MonkeyPatch, teacher: rlbook.Run
) -> None:
    act = type(teacher.agent).act
    monkeypatch.setattr(
        type(teacher.agent),
        "act",
        lambda agent, obs, *, explore=True: act(agent, obs, explore=explore),
    )
    with pytest.raises(
        rlbook.TrainingError,
        match=r"the expert would take action \d, which the environment forbids",
    ):
        rlbook.train("dagger", ENV, steps=520, seed=2, eval_every=0, expert=teacher, **SMALL)


def interrupt(run: rlbook.Run) -> None:
    if run.steps >= 244:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", ["rainbow", "ppo with a reference", "grpo", "sac"])
def test_a_run_with_masks_that_is_taken_up_again_has_the_same_bytes(
    name: str, tmp_path: Path
) -> None:
    algorithm, settings = AGENTS[name]
    chosen: dict[str, Any] = {"steps": 480, "num_envs": 4, "seed": 3, "eval_every": 0} | settings
    whole = rlbook.train(algorithm, ENV, **chosen)
    with pytest.raises(Interrupted):
        rlbook.train(algorithm, ENV, out=tmp_path / "parts", on_report=interrupt, **chosen)
    resumed = rlbook.load(tmp_path / "parts")
    assert 0 < resumed.steps < 480
    resumed = resumed.resume()
    assert resumed.steps == whole.steps == 480
    (one, arrays), (other, others) = (encode(run.agent.state_dict()) for run in (whole, resumed))
    assert one == other
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: array.tobytes() for name, array in others.items()
    }
