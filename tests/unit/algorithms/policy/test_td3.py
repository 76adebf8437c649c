"""TD3 and DDPG: their targets by hand, the delay of the policy, and how they meet each other and
SAC."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near
from steps import actor_loss_of, critic_loss_of, next_minibatch

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.policy.off_policy.ddpg import DDPG, DDPGConfig
from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import SAC, SACConfig
from rlbook.algorithms.policy.off_policy.td3 import TD3, TD3Config
from rlbook.data.replay import Transitions
from rlbook.functional.value_losses import smoothed_action
from rlbook.networks.optimizer import LossOutput

Make = Callable[..., Any]
# of a loss: action, Q, y and the sum, 3 terms each
ROUNDED: dict[str, Any] = {
    "dtype": "float32",
    "terms": 12,
}
MAKERS: dict[str, tuple[Any, Any]] = {
    "td3": (TD3, TD3Config),
    "ddpg": (DDPG, DDPGConfig),
    "sac": (SAC, SACConfig),
}


class Spaces:
    """As much of a vector environment as the agents look at."""

    single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_envs = 1


def linear(algorithm: str, weights: dict[str, list[list[float]]], **config: Any) -> Any:
    """An agent of linear networks without bias; the name of a group of networks → their weights,
    one row a network."""
    kind, settings = MAKERS[algorithm]
    env: Any = Spaces()
    agent = kind(
        env, settings(**({"hidden_sizes": (), "buffer_size": 100, "learning_starts": 100} | config))
    )
    with torch.no_grad():
        for name, several in weights.items():
            group = getattr(agent, name)
            for network, row in zip(
                [group] if hasattr(group, "weights") else group.networks, several, strict=True
            ):
                network.weights[0].copy_(torch.tensor(row).reshape(network.weights[0].shape))
                network.weights[1].zero_()
    return agent


def minibatch(
    obs: float,
    action: float,
    reward: float,
    next_obs: float,
    terminated: bool,
    next_noise: float = 0.0,
) -> Minibatch:
    s, a, s2, noise = (torch.tensor([[x]]) for x in (obs, action, next_obs, next_noise))
    return Minibatch(
        Transitions(s, a, torch.tensor([reward]), s2, torch.tensor([terminated])),
        torch.zeros(1, 1),
        noise,
    )


WEIGHTS = {
    "critics": [[1.0, 0.0], [0.0, 1.0]],
    "target": [[2.0, 1.0], [1.0, 3.0]],
    "actor": [[5.0]],
    "actor_target": [[0.5]],
}


@pytest.mark.parametrize(("noise", "reached"), [(1.0, 0.2), (-1.0, -0.2), (9.0, 0.5), (-9.0, -0.5)])
@pytest.mark.parametrize("terminated", [False, True])
def test_the_target_of_td3_is_the_hand_computed_one(
    noise: float, reached: float, terminated: bool
) -> None:
    """σ = 0.2, c = 0.5. a' = tanh(½ s') + clipped noise; Q⁻ = 2 s' + a' and s' + 3 a'. Neither
    online network has a part in y."""
    agent = linear("td3", WEIGHTS, gamma=0.5)
    for s2 in (0.4, 3.0):  # with s' = 3 the action is cut at 1
        a = min(1.0, max(-1.0, math.tanh(0.5 * s2) + reached))
        y = 1.0 if terminated else 1.0 + 0.5 * min(2 * s2 + a, s2 + 3 * a)
        loss, metrics = critic_loss_of(agent, minibatch(1.0, 0.25, 1.0, s2, terminated, noise))
        assert loss.item() == near(0.5 * (1.0 - y) ** 2 + 0.5 * (0.25 - y) ** 2, **ROUNDED)
        assert metrics["q"].item() == near(0.625, **ROUNDED)


def test_the_target_of_ddpg_is_the_hand_computed_one() -> None:
    """y = 1 + ½ (2 s' + tanh(½ s')), Q(s, a) = s = 1, whatever the noise."""
    agent = linear(
        "ddpg",
        {
            "critics": [[1.0, 0.0]],
            "target": [[2.0, 1.0]],
            "actor": [[5.0]],
            "actor_target": [[0.5]],
        },
        gamma=0.5,
    )
    y = 1.0 + 0.5 * (2 * 0.4 + math.tanh(0.2))
    assert critic_loss_of(agent, minibatch(1.0, 0.25, 1.0, 0.4, False, 9.0)).loss.item() == near(
        0.5 * (1 - y) ** 2, size=1.0, **ROUNDED
    )
    assert critic_loss_of(agent, minibatch(1.0, 0.25, 3.0, 0.4, True)).loss.item() == near(
        0.5 * (1 - 3) ** 2, **ROUNDED
    )


@pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
@pytest.mark.parametrize(
    ("terminated", "truncated"), [(True, False), (False, True), (False, False)]
)
def test_only_termination_stops_the_bootstrap(
    algorithm: str, terminated: bool, truncated: bool
) -> None:
    count = 2 if algorithm == "td3" else 1
    critics = {"critics": [[0.0, 0.0]] * count, "target": [[4.0, 0.0]] * count}
    agent = linear(algorithm, critics, gamma=0.9)
    one, ends = np.ones((1, 1), np.float32), (np.array([terminated]), np.array([truncated]))
    agent.learn(
        Step(
            one, np.zeros((1, 1), np.float32), np.ones(1, np.float32), one, *ends, np.array([True])
        )
    )
    y = 1.0 if terminated else 1.0 + 0.9 * 4.0
    assert critic_loss_of(agent, next_minibatch(agent)).loss.item() == near(
        count * 0.5 * y**2, **ROUNDED
    )


def test_the_noise_of_the_target_is_cut_and_so_is_its_action() -> None:
    action, noise = torch.tensor([[0.0, 0.0, 0.9, -0.9]]), torch.tensor([[0.3, -2.0, 0.4, -0.4]])
    assert_near(smoothed_action(action, noise, 0.5), [[0.3, -0.5, 1.0, -1.0]], terms=2)


@pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
def test_the_policy_climbs_the_first_critic(algorithm: str) -> None:
    """L = -Q_1(s, tanh(w s)) with Q_1 = 2 a and Q_2 = -7 a: ∂L/∂w = -2 s (1 - tanh²(w s))."""
    critics = (
        {"critics": [[0.0, 2.0], [0.0, -7.0]]} if algorithm == "td3" else {"critics": [[0.0, 2.0]]}
    )
    agent = linear(algorithm, critics | {"actor": [[0.3]]})
    output = actor_loss_of(agent, minibatch(0.5, 0.0, 0.0, 0.0, False))
    (gradient,) = torch.autograd.grad(output.loss, [agent.actor.weights[0]])
    assert output.loss.item() == near(-2 * math.tanh(0.15), **ROUNDED)
    assert gradient.item() == near(-2 * 0.5 * (1 - math.tanh(0.15) ** 2), **ROUNDED)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_policy_and_the_targets_wait_for_their_turn(stage: Make, delay: int) -> None:
    """12 gradient steps of the critics; in between policy and targets stay to the bit."""
    options = {"hidden_sizes": (4,), "buffer_size": 100, "learning_starts": 0, "batch_size": 4}
    theatre = stage("td3", "Pendulum-v1", num_envs=1, policy_delay=delay, **options)
    agent = theatre.agent
    for update in range(1, 13):
        held = [
            p.clone()
            for part in (agent.actor, agent.target, agent.actor_target)
            for p in part.parameters()
        ]
        metrics = agent.learn(theatre.step())
        now = [
            p for part in (agent.actor, agent.target, agent.actor_target) for p in part.parameters()
        ]
        assert ("policy_loss" in metrics) == (update % delay == 0)
        assert all(map(torch.equal, held, now)) == (update % delay != 0)
    assert (agent.critic_optimizer.steps, agent.actor_optimizer.steps) == (12, 12 // delay)


@pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
def test_both_targets_follow_slowly_what_they_follow(algorithm: str) -> None:
    env: Any = Spaces()
    kind, settings = MAKERS[algorithm]
    agent = kind(
        env,
        settings(
            hidden_sizes=(3,),
            buffer_size=10,
            tau=0.25,
            **({"policy_delay": 1} if algorithm == "td3" else {}),
        ),
    )
    pairs = [(agent.target, agent.critics), (agent.actor_target, agent.actor)]
    before = [[p.clone() for p in target.parameters()] for target, _ in pairs]
    agent.train_on(minibatch(1.0, 0.5, 1.0, -1.0, False))
    for (target, online), olds in zip(pairs, before, strict=True):
        for old, new, fast in zip(olds, target.parameters(), online.parameters(), strict=True):
            assert_near(new, 0.75 * old + 0.25 * fast.detach(), terms=2)


@pytest.mark.parametrize("name", ["critic_loss", "actor_loss"])
@pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
def test_a_loss_of_ones_own_counts(algorithm: str, name: str) -> None:
    """Minus the loss: the first step of Adam goes the other way."""
    kind, settings = MAKERS[algorithm]

    def reversed_loss(*given: Any, **options: Any) -> LossOutput:
        output = getattr(kind, name)(*given, **options)
        return LossOutput(-output.loss, output.metrics)

    own = type("OwnLoss", (kind,), {name: staticmethod(reversed_loss)})
    config = settings(
        hidden_sizes=(3,), buffer_size=10, **({"policy_delay": 1} if algorithm == "td3" else {})
    )
    trained, moved = "critics" if name == "critic_loss" else "actor", []
    env: Any = Spaces()
    for each in (kind, own):
        agent = each(env, config)
        before = torch.cat(
            [p.detach().clone().flatten() for p in getattr(agent, trained).parameters()]
        )
        agent.train_on(minibatch(1.0, 0.5, 1.0, -1.0, False))
        after = torch.cat([p.detach().flatten() for p in getattr(agent, trained).parameters()])
        moved.append((after - before).sign())
    assert torch.equal(moved[0], -moved[1]) and moved[0].any()


def test_td3_without_its_three_repairs_is_ddpg() -> None:
    """Twice the same critic, no delay, no noise in the target: twice the loss, and the same
    policy's."""
    single = {
        "critics": [[0.4, 1.0]],
        "target": [[2.0, 1.0]],
        "actor": [[0.7]],
        "actor_target": [[0.5]],
    }
    double = {
        name: rows * (2 if name in ("critics", "target") else 1) for name, rows in single.items()
    }
    one, other = linear("ddpg", single), linear("td3", double, target_noise=0.0, policy_delay=1)
    batch = minibatch(1.0, 0.25, 1.0, 0.4, False, 1.3)
    assert_near(2 * critic_loss_of(one, batch).loss, critic_loss_of(other, batch).loss, terms=12)
    assert_near(actor_loss_of(one, batch).loss, actor_loss_of(other, batch).loss, terms=12)


def test_sacs_target_without_entropy_and_deviation_is_td3s_without_noise() -> None:
    critics = {name: WEIGHTS[name] for name in ("critics", "target")}
    sac = linear("sac", critics | {"actor": [[0.5, -100.0]]}, temperature=0.0)  # log σ = -20
    td3 = linear("td3", critics | {"actor_target": [[0.5]]}, target_noise=0.0)
    batch = minibatch(1.0, 0.25, 1.0, 0.4, False, 1.3)
    # σ = 2e-9 is below their rounding
    assert_near(critic_loss_of(sac, batch).loss, critic_loss_of(td3, batch).loss, terms=12)


@pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
def test_exploring_adds_normal_noise_within_the_box_and_evaluating_none(algorithm: str) -> None:
    count = 20_000
    kind, settings = MAKERS[algorithm]
    env: Any = Spaces()
    env.num_envs = count
    agent = kind(
        env, settings(hidden_sizes=(), buffer_size=count, learning_starts=0, exploration_noise=0.3)
    )
    with torch.no_grad():
        agent.actor.weights[0].fill_(0.4)
        agent.actor.weights[1].zero_()
    seen = np.ones((count, 1), np.float32)
    assert np.unique(agent.act(seen, explore=False)) == near(
        math.tanh(0.4), dtype="float32", terms=2
    )
    noisy = agent.act(seen)
    assert noisy.max() == 1.0 and noisy.dtype == np.float32  # 2 % lie beyond
    # within 4 standard errors of a quantile
    for probability, scores in (
        (0.5, 0.0),
        (0.1587, -1.0),
    ):
        error = math.sqrt(probability * (1 - probability) / count) / (
            math.exp(-0.5 * scores**2) / math.sqrt(2 * math.pi) / 0.3
        )
        # 4 standard errors
        assert np.quantile(noisy, probability) == pytest.approx(
            math.tanh(0.4) + 0.3 * scores, rel=0, abs=4 * error
        )


def test_a_bound_of_noise_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="target_noise_clip has no effect without target_noise"):
        TD3Config(target_noise=0.0, target_noise_clip=0.1)
    assert TD3Config(target_noise=0.1, target_noise_clip=0.1).target_noise_clip == 0.1


def test_discrete_actions_are_refused() -> None:
    import rlbook

    with pytest.raises(
        rlbook.RequestError,
        match=r"td3 does not train on CartPole-v1: needs continuous actions \(Box\), got Discrete",
    ):
        rlbook.train("td3", "CartPole-v1", steps=10)


@pytest.mark.parametrize("algorithm", ["td3", "ddpg", "sac"])
def test_an_exploring_evaluation_may_play_more_episodes_at_once_than_training_did(
    algorithm: str,
) -> None:
    run = rlbook.train(
        algorithm, "Pendulum-v1", steps=60, num_envs=2, hold=7, learning_starts=20, eval_every=0
    )
    held = run.agent.held.copy()  # type: ignore[attr-defined]
    assert len(rlbook.evaluate(run, episodes=5, explore=True).returns) == 5
    assert (run.agent.held == held).all()  # type: ignore[attr-defined]
