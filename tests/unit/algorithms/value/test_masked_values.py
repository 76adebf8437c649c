"""Action masks where values are learned with a network: targets, the replay buffer and
exploration."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near
from gymnasium import spaces
from masked_doors import ENDS, GAMMA, LEADS_TO, OPEN, PAYS, Doors, exact_action_values
from steps import loss_of

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.model_based.cross_entropy import CategoricalPlans
from rlbook.algorithms.value.dqn import DQN, DQNConfig, dqn_target
from rlbook.algorithms.value.gradient_td import GradientTD
from rlbook.algorithms.value.semi_gradient_sarsa import SemiGradientSarsa, SemiGradientSarsaConfig
from rlbook.data.rainbow_replay import RainbowMinibatch, RainbowReplay
from rlbook.data.replay import ReplayBuffer, Transitions
from rlbook.functional.rainbow import best_next_distribution
from rlbook.functional.schedules import Constant
from rlbook.functional.value_losses import double_q_target, q_target
from rlbook.interaction.action_masks import nth_allowed
from rlbook.networks.q_network import predict

MASK = torch.tensor([[True, False, True]])
NEXT_Q, ONLINE = torch.tensor([[1.0, 5.0, 2.0]]), torch.tensor([[4.0, 9.0, 3.0]])


def test_targets_are_over_the_allowed_actions() -> None:
    """Without the mask both would be 3 + ½ · 5: the second action looks best to either network."""
    reward, going_on, ended = torch.tensor([3.0]), torch.tensor([False]), torch.tensor([True])
    assert q_target(reward, going_on, NEXT_Q, 0.5, MASK).tolist() == [3.0 + 0.5 * 2.0]
    assert double_q_target(reward, going_on, NEXT_Q, ONLINE, 0.5, MASK).tolist() == [
        3.0 + 0.5 * 1.0
    ]
    assert q_target(reward, ended, NEXT_Q, 0.5, MASK).tolist() == [3.0]
    assert q_target(reward, going_on, NEXT_Q, 0.5).tolist() == [3.0 + 0.5 * 5.0]


def test_the_best_next_distribution_is_of_an_allowed_action() -> None:
    prob = torch.tensor([[[0.1, 0.9], [0.2, 0.8], [0.6, 0.4]]])
    chosen = best_next_distribution(prob.log(), ONLINE, torch.tensor([[False, False, True]]))
    assert chosen[0].tolist() == near([0.6, 0.4], dtype="float32", terms=2)


class Spaces:
    """As much of a vector environment as DQN looks at."""

    def __init__(self, size: int, num_actions: int, num_envs: int = 1) -> None:
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space, self.num_envs = gymnasium.spaces.Discrete(num_actions), num_envs


ROOM, DOOR = np.nonzero(OPEN)
BOTTOMLESS = 50.0  # what both networks say of closed doors


def doors(double: bool, distributional: bool = False) -> tuple[Any, Transitions]:
    """A DQN whose table is the exact one, but for the closed doors, of which it thinks the world;
    and every step that there is."""
    settings: dict[str, Any] = (
        {"distributional": True, "v_min": -10.0, "v_max": 10.0} if distributional else {}
    )
    agent: Any = DQN(
        Spaces(len(OPEN), 3), DQNConfig(hidden_sizes=(), gamma=GAMMA, double=double, **settings)
    )  # type: ignore[arg-type]
    if not distributional:
        exact = torch.tensor(np.where(OPEN, exact_action_values(), BOTTOMLESS), dtype=torch.float32)
        for network in (agent.q, agent.target):
            with torch.no_grad():
                network.weights[0].copy_(exact.T)
                network.weights[1].zero_()
    eye, after = torch.eye(len(OPEN)), LEADS_TO[ROOM, DOOR]
    ended, allowed = (
        torch.tensor(np.isin(after, ENDS)),
        torch.tensor(OPEN | ~OPEN.any(axis=1, keepdims=True)),
    )
    paid = torch.tensor(PAYS[ROOM, DOOR], dtype=torch.float32)
    rows = Transitions(
        eye[ROOM], torch.tensor(DOOR), paid, eye[after], ended, allowed[ROOM], allowed[after]
    )
    return agent, rows


@pytest.mark.parametrize("double", [False, True])
def test_the_exact_action_values_are_the_targets_fixed_point(double: bool) -> None:
    agent, rows = doors(double)
    batch = RainbowMinibatch(rows, predict(agent.target, rows.next_obs).detach())
    exact = exact_action_values()[ROOM, DOOR]
    assert_near(
        dqn_target(agent.q, batch, config=agent.config),
        exact,
        dtype="float32",
        terms=len(OPEN) + 2,
        size=BOTTOMLESS,
    )
    assert float(loss_of(agent, batch).metrics["td_loss"]) == near(
        0.0, dtype="float32", terms=len(OPEN) + 2, size=BOTTOMLESS
    )


@pytest.mark.parametrize("double", [False, True])
def test_a_distributional_target_does_not_depend_on_what_is_said_of_closed_doors(
    double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, rows = doors(double, distributional=True)
    closed = torch.tensor(~OPEN | ~OPEN.any(axis=1, keepdims=True))

    def loss(push: float) -> float:
        """`push`: what is added to the logits of the largest atom of closed doors."""

        def pushed(network: Any, obs: torch.Tensor, rng: None = None) -> torch.Tensor:
            logits = network.log_prob(obs).clone()
            logits[..., -1] += push * closed[obs.argmax(-1)]
            return logits.log_softmax(-1)

        monkeypatch.setattr("rlbook.algorithms.value.distributional_loss.predict", pushed)
        return float(
            loss_of(
                agent, RainbowMinibatch(rows, pushed(agent.target, rows.next_obs).detach())
            ).loss.detach()
        )

    assert loss(0.0) == loss(30.0)


def test_exploring_draws_every_allowed_action_alike_and_no_other() -> None:
    agent: Any = DQN(Spaces(2, 4), DQNConfig())  # type: ignore[arg-type]
    mask = np.tile(np.array([[True, False, True, True]]), (3_000, 1))
    taken = agent.act(np.zeros((3_000, 2), np.float32), action_mask=mask)  # ε is 1 at first
    counts = np.bincount(taken, minlength=4)
    assert counts[1] == 0
    deviation = np.sqrt(3_000 * (1 / 3) * (2 / 3))
    assert np.abs(counts[[0, 2, 3]] - 1_000).max() < 5 * deviation
    greedy = agent.act(np.zeros((1, 2), np.float32), explore=False)[0]
    forbidden = np.arange(4) != greedy
    assert (
        agent.act(np.zeros((1, 2), np.float32), explore=False, action_mask=forbidden[None])[0]
        != greedy
    )


def test_the_nth_allowed_action_has_n_before_it() -> None:
    mask = np.array([[0, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=bool)
    assert nth_allowed(mask, np.array([0, 1, 1])).tolist() == [1, 2, 2]
    assert nth_allowed(None, np.array([0, 1, 2])).tolist() == [0, 1, 2]


def step(
    number: int, mask: list[bool] | None, next_mask: list[bool] | None, over: bool = False
) -> Step:
    """A vector step of one environment whose numbers are all `number`."""
    obs, flag = np.full((1, 2), number, np.float32), np.zeros(1, bool)
    masks = (None if one is None else np.array([one]) for one in (mask, next_mask))
    return Step(
        obs,
        np.array([0]),
        np.full(1, number, np.float32),
        obs + 1,
        flag | over,
        flag,
        ~flag,
        None,
        *masks,
    )


def test_a_replay_keeps_masks_from_the_first_one_on() -> None:
    replay = ReplayBuffer(3, 2)
    replay.add(step(0, None, None))
    assert set(replay.state_dict()["rows"]) == {"obs", "action", "reward", "next_obs", "terminated"}
    replay.add(step(1, None, [True, False]))
    replay.add(step(2, [True, False], [False, True]))
    rows = replay.rows_at(np.arange(3))
    assert rows.action_mask.tolist() == [[True, True], [True, True], [True, False]]
    assert rows.next_action_mask.tolist() == [[True, True], [True, False], [False, True]]
    replay.add(step(3, [False, True], [True, True]))  # over the oldest
    assert replay.rows_at(np.array([0])).action_mask.tolist() == [[False, True]]
    replay.add(step(4, None, None))
    assert replay.rows_at(np.array([1])).next_action_mask.tolist() == [[True, True]]

    other = ReplayBuffer(3, 2)
    other.load_state_dict(replay.state_dict())
    for one, both in zip(other.rows_at(np.arange(3)), replay.rows_at(np.arange(3)), strict=True):
        assert torch.equal(one, both)


def test_a_replay_keeps_both_masks_where_the_first_step_shows_only_the_second() -> None:
    replay = ReplayBuffer(3, 2)
    replay.add(step(0, None, [True, False]))
    replay.add(step(1, [True, False], [False, True]))
    rows = replay.rows_at(np.arange(2))
    assert rows.action_mask.tolist() == [[True, True], [True, False]]
    assert rows.next_action_mask.tolist() == [[True, False], [False, True]]


def test_a_saved_mask_that_allows_nothing_is_refused() -> None:
    replay = ReplayBuffer(3, 2)
    replay.add(step(0, [True, False], [True, False]))
    state = replay.state_dict()
    state["rows"]["next_action_mask"] = torch.zeros(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="allow an action in every row"):
        ReplayBuffer(3, 2).load_state_dict(state)


def test_n_step_targets_look_at_the_mask_of_the_state_they_end_in() -> None:
    space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    replay = RainbowReplay(8, space, n_step=3, gamma=0.5)
    masks = [[True, False], [False, True], [True, True], [True, False], [False, True]]
    for number in range(4):
        replay.add(step(number, masks[number], masks[number + 1], over=number == 3))
    assert replay.ahead is not None
    rows, _ = replay.ahead.rows_at(np.arange(4))
    assert rows.action_mask.tolist() == masks[:4]
    assert rows.next_action_mask.tolist() == [masks[3], masks[4], masks[4], masks[4]]


def test_minibatches_carry_their_rows_masks() -> None:
    space = gymnasium.spaces.Box(-99, 99, (2,), np.float32)
    replay = RainbowReplay(40, space, num_envs=1)
    for number in range(40):
        replay.add(step(number, [number % 2 == 0, True], [number % 3 == 0, True]))
    for batch in replay.minibatches(
        3, 5, lambda obs: torch.zeros(len(obs), 2), np.random.default_rng(0)
    ):
        number = batch.rows.reward.long()
        assert len(batch) == 5 and torch.equal(batch.rows.action_mask[:, 0], number % 2 == 0)
        assert torch.equal(batch.rows.next_action_mask[:, 0], number % 3 == 0)


def test_sarsas_next_action_and_its_value_are_allowed() -> None:
    """A state with q = (-2, 5, -1), of which the second is forbidden: r + γ max over the others is
    1 - ½ · 1, and ε = 0 takes it."""
    config = SemiGradientSarsaConfig(gamma=0.5, alpha=Constant(1.0), epsilon=Constant(0.0))
    agent: Any = SemiGradientSarsa(Doors(), config)
    agent.weights[1] = [-2.0, 5.0, -1.0]
    mask = np.array([True, False, True])
    agent.learn(Step(0, 0, 1.0, 1, False, False, True, None, np.ones(3, bool), mask))
    assert agent.weights[0].tolist() == [0.5, 0.0, 0.0]
    assert agent.act(1, action_mask=mask) == 2
    assert agent.act(1, explore=False, action_mask=mask) == 2 and agent.act(1, explore=False) == 1


def test_the_importance_ratio_is_of_policies_over_the_allowed_actions() -> None:
    """π = (0.8, 0.1, 0.1) and b uniform, without the second action: (8/9, 0, 1/9) over (1/2, 0,
    1/2)."""
    config = GradientTD.Config(policy=(0,) * 6, epsilon=0.3)
    agent: Any = GradientTD(Doors(), config)
    mask = np.array([True, False, True])
    for action, ratio in ((0, 16 / 9), (2, 2 / 9)):
        told = agent.learn(Step(0, action, 1.0, 1, False, False, True, None, mask, mask))
        assert told["ratio"] == near(ratio, terms=6)
    assert agent.learn(Step(0, 0, 1.0, 1, False, False))["ratio"] == near(2.4, terms=6)


def test_plans_start_with_an_allowed_action_however_often_they_are_refitted() -> None:
    allowed = torch.ones(1, 2, 3, dtype=torch.bool)
    allowed[0, 0] = torch.tensor([False, True, True])
    plans = CategoricalPlans(torch.tensor([[[0.8, 0.1, 0.1], [1.0, 0.0, 0.0]]]), allowed=allowed)
    assert plans.probability[0].tolist() == [
        near([0.0, 0.5, 0.5], dtype="float32", terms=3),
        [1.0, 0.0, 0.0],
    ]
    # an elite that begins with the forbidden one
    first = torch.eye(3)[None, None, :1].expand(1, 1, 2, 3)
    again = plans.refit(first)
    assert again.probability[0, 0].tolist() == near([0.0, 0.5, 0.5], dtype="float32", terms=3)
    assert again.probability[0, 1, 0] > 0.98
    drawn = again.sample(200, np.random.default_rng(0))
    assert not drawn[..., 0, 0].any()


class StartsAtFive(gymnasium.Env):
    """States 5, 6 and 7; action 1 is allowed in state 6 alone."""

    observation_space = spaces.Discrete(3, start=5)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.int64(5), {}

    def step(self, action: Any) -> Any:
        return np.int64(7), 0.0, True, False, {}

    def action_mask(self, state: int) -> np.ndarray:
        return np.array([True, state == 6])


def test_the_masks_of_states_are_those_of_the_environments_own_numbers() -> None:
    agent: Any = rlbook.train("semi_gradient_sarsa", StartsAtFive(), steps=2).agent
    assert agent.allowed.tolist() == [[True, False], [True, True], [True, False]]
