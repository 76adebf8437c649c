"""DQN: its targets, its table-sized special case, and the clocks of the target network and of ε."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near, widths
from flat_parameters import flat_gradient, flat_weights
from steps import next_minibatch, train_on

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.value.dqn import DQN, DQNConfig
from rlbook.data.replay import Transitions
from rlbook.functional.schedules import Constant, Linear
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop

Make = Callable[..., Any]


class Spaces:
    """As much of a vector environment as DQN looks at."""

    def __init__(self, size: int, num_actions: int, num_envs: int = 1) -> None:
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space, self.num_envs = gymnasium.spaces.Discrete(num_actions), num_envs


def linear(table: Any, target: Any = None, **config: Any) -> DQN:
    """A DQN without hidden layers on one-hot states: its weights are a table, Q(s, a) = W[a, s].
    `target`: the target network's."""
    q = torch.tensor(table, dtype=torch.float32)
    env: Any = Spaces(*q.shape)
    agent = DQN(env, DQNConfig(hidden_sizes=(), max_grad_norm=1e9, **config))
    with torch.no_grad():
        for network, values in (
            (agent.q, q),
            (agent.target, q if target is None else torch.tensor(target, dtype=torch.float32)),
        ):
            network.weights[0].copy_(values.T)
            network.weights[1].zero_()
    return agent


def transitions(size: int, rows: list[tuple[int, int, float, int, bool]]) -> Transitions:
    """(s, a, r, s', terminated) with one-hot states."""
    s, a, r, s2, over = zip(*rows, strict=True)
    eye = torch.eye(size)
    return Transitions(
        eye[list(s)],
        torch.tensor(a),
        torch.tensor(r, dtype=torch.float32),
        eye[list(s2)],
        torch.tensor(over),
    )


def train_on_rows(agent: Any, batch: Transitions) -> list[float]:
    agent.replay.size, agent.replay.rows_at = len(batch.reward), lambda places: batch
    metrics = train_on(agent, next_minibatch(agent))
    return [float(metrics[name]) for name in ("td_loss", "q", "grad_norm")]


@pytest.mark.parametrize(
    ("double", "huber", "name"),
    [
        (False, True, "huber_loss"),
        (True, True, "huber_double"),
        (False, False, "mse"),
    ],
)
def test_the_loss_is_the_hand_computed_one(
    fixtures: Any, double: bool, huber: bool, name: str
) -> None:
    """States 0 to 2 lead to states 3 to 5; there the online and the target network disagree about
    the best action."""
    case = fixtures["losses"]["dqn"]
    agent = linear(
        case["q"] + case["q_online_next"],
        case["q"] + case["q_target_next"],
        gamma=case["gamma"],
        double=double,
        huber=huber,
    )
    rows = [(i, case["a"][i], case["r"][i], 3 + i, bool(case["terminated"][i])) for i in range(3)]
    loss, q, _ = train_on_rows(agent, transitions(6, rows))
    half = 0.5 if name == "mse" else 1.0  # as Huber's
    assert loss == near(case[name] * half, dtype="float32", terms=6, size=40.0)
    assert q == near((2.0 + 0.5 + 3.0) / 3, dtype="float32", terms=3)


def test_the_network_is_not_asked_where_chance_chooses_for_all() -> None:
    """And the actions are those of an agent that asks it: chance is drawn from one generator."""
    asked, unasked = (linear([[0.0, 1.0]], epsilon=Constant(1.0)) for _ in range(2))
    obs = np.ones((50, 1), np.float32)
    expected = asked.act(obs)
    assert {*expected.tolist()} == {0, 1}
    unasked.q = None  # type: ignore[assignment]
    assert np.array_equal(unasked.act(obs), expected)
    with pytest.raises(TypeError):
        unasked.act(obs, explore=False)


def test_one_hot_states_without_hidden_layers_are_a_table(fixtures: Any) -> None:
    """Batches of one, squared error, the target network always fresh: the gradient of the table is
    minus the TD error, at one entry.

    So plain gradient steps with step size α are tabular Q-learning, and end at its recorded table.
    """
    script = fixtures["scripted_updates"]
    agent = linear(script["init_Q"], gamma=script["gamma"], double=False, huber=False)
    table = np.array(script["init_Q"])
    for s, a, r, s2, _, over in script["transitions(s,a,r,s',a',terminated)"]:
        before = agent.q.weights[0].detach().clone()
        train_on_rows(agent, transitions(3, [(s, a, r, s2, over)]))
        gradient = flat_gradient(agent.optimizer)[:6].view(2, 3)  # ∂L/∂W
        error = r + (0.0 if over else script["gamma"] * table[s2].max()) - table[s, a]
        expected = np.zeros((2, 3))
        expected[a, s] = -error
        assert_near(gradient, expected, terms=4, size=10.0)
        with torch.no_grad():  # a plain step in Adam's place
            agent.q.weights[0].copy_(before - script["alpha"] * gradient)
            agent.q.weights[1].zero_()
        agent.target.load_state_dict(agent.q.state_dict())
        table[s, a] += script["alpha"] * error
    assert_near(agent.q.weights[0].T, script["q"], terms=4 * 4, size=10.0)


@pytest.mark.parametrize(
    ("terminated", "truncated", "target"),
    [
        (True, False, 1.0),
        (False, True, 1.0 + 0.9 * 4.0),
        (False, False, 1.0 + 0.9 * 4.0),
    ],
)
def test_only_termination_stops_the_bootstrap(
    terminated: bool, truncated: bool, target: float
) -> None:
    """Both at once reach the agent as terminated alone."""
    agent = linear(
        [[0.0, 0.0], [3.0, 4.0]], gamma=0.9, huber=False, batch_size=1, learning_starts=100
    )
    one, two = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
    agent.learn(
        Step(
            one,
            np.array([0]),
            np.ones(1, np.float32),
            two,
            np.array([terminated]),
            np.array([truncated]),
            np.array([True]),
        )
    )
    loss = float(train_on(agent, next_minibatch(agent))["td_loss"])
    assert loss == near(0.5 * target**2, dtype="float32", terms=3)


def test_the_networks_start_equal_and_share_nothing() -> None:
    env: Any = Spaces(3, 2)
    agent = DQN(env, DQNConfig())
    for left, right in zip(agent.q.parameters(), agent.target.parameters(), strict=True):
        assert torch.equal(left, right) and left.data_ptr() != right.data_ptr()
    before = [p.clone() for p in agent.target.parameters()]
    with torch.no_grad():
        agent.q.weights[0].add_(1.0)
    assert all(map(torch.equal, before, agent.target.parameters()))
    assert not torch.equal(agent.q(torch.ones(1, 3)), agent.target(torch.ones(1, 3)))


# ---- clocks


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_the_target_network_is_copied_when_its_period_is_over_and_stays_in_between(
    stage: Make, scripted: Make, num_envs: int
) -> None:
    """With three environments, the multiples of 20 are passed between two vector steps: at 21, 42,
    60, …"""
    options = {
        "learning_starts": 0,
        "train_every": 1,
        "batch_size": 8,
        "hidden_sizes": (8,),
        "buffer_size": 100,
    }
    theatre = stage("dqn", scripted(), num_envs=num_envs, target_period=20, **options)
    agent, held = theatre.agent, None
    for count in range(num_envs, 200, num_envs):
        held = [p.clone() for p in agent.target.parameters()] if held is None else held
        agent.learn(theatre.step())
        if count // 20 > (count - num_envs) // 20:
            held = [p.clone() for p in agent.q.parameters()]
        else:
            assert not all(map(torch.equal, agent.q.parameters(), held))
        assert all(map(torch.equal, agent.target.parameters(), held))


def test_the_target_network_takes_over_the_weights_that_learn_and_not_the_other_way_round(
    stage: Make, scripted: Make
) -> None:
    theatre = stage(
        "dqn", scripted(), learning_starts=100, target_period=20, hidden_sizes=(8,), buffer_size=100
    )
    agent = theatre.agent
    with torch.no_grad():
        for weight in agent.q.parameters():
            weight += 1.0
    learned = [weight.clone() for weight in agent.q.parameters()]
    while agent.steps < 20:  # without an update
        agent.learn(theatre.step())
    assert all(map(torch.equal, agent.q.parameters(), learned))
    assert all(map(torch.equal, agent.target.parameters(), learned))


@pytest.mark.parametrize(
    ("num_envs", "train_every", "starts", "updates"),
    [(1, 4, 0, 25), (1, 1, 50, 50), (4, 4, 20, 20), (8, 4, 0, 12)],
)
def test_updates_come_on_time(
    stage: Make, scripted: Make, num_envs: int, train_every: int, starts: int, updates: int
) -> None:
    """100 environment steps (96 of eight environments, which pass two multiples of 4 at once and
    make one update of it)."""
    options = {
        "learning_starts": starts,
        "train_every": train_every,
        "batch_size": 4,
        "gradient_steps": 3,
    }
    theatre = stage("dqn", scripted(), num_envs=num_envs, **options)
    logged = [theatre.agent.learn(theatre.step()) for _ in range(100 // num_envs)]
    assert sum(bool(metrics) for metrics in logged) == updates
    assert theatre.agent.optimizer.steps == 3 * updates


def epsilons(theatre: Any, budget: Budget, stop: int | None = None) -> list[float]:
    found = []
    for metrics in loop(theatre.agent, theatre.interaction, budget):
        found.append(metrics["epsilon"])
        if len(found) == stop:
            break
    return found


@pytest.mark.thorough
def test_epsilon_falls_with_the_steps_of_the_run_also_after_resuming(
    stage: Make, scripted: Make, fixtures: Any
) -> None:
    """Linear from 1 to 0.05 over the first tenth of 1000 steps; a fresh agent takes over at step
    60."""
    case = fixtures["losses"]["linear_eps"]
    options = {
        "epsilon": Linear(case["start"], case["end"], case["fraction"]),
        "learning_starts": 0,
        "train_every": 1,
        "batch_size": 2,
    }
    budget = Budget(case["total"], None)
    whole = stage("dqn", scripted(), num_envs=1, hidden_sizes=(4,), **options)
    found = epsilons(whole, budget)
    assert len(found) == 1000
    for step in (0, 50, 100, 999):
        expected = case[f"eps_at_step{step}" if step == 0 else f"eps_at_{step}"]
        assert found[step] == near(expected, terms=3, size=1.0)
    first, second = (
        stage("dqn", scripted(), num_envs=1, hidden_sizes=(4,), seed=seed, **options)
        for seed in (0, 1)
    )
    assert epsilons(first, budget, stop=60) == found[:60]
    second.agent.load_state_dict(first.agent.state_dict())
    second.interaction.load_state_dict(first.interaction.state_dict())
    assert epsilons(second, budget) == found[60:]
    assert all(map(torch.equal, second.agent.q.parameters(), whole.agent.q.parameters()))


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_an_action_is_random_as_often_as_epsilon_says(epsilon: float) -> None:
    agent = linear([[0.0, 0.0, 9.0, 0.0]], epsilon=Constant(epsilon))
    count = 20_000
    share = np.bincount(agent.act(np.ones((count, 1), np.float32)), minlength=4) / count
    expected = np.array([epsilon / 4, epsilon / 4, 1 - epsilon + epsilon / 4, epsilon / 4])
    # standard errors
    assert (np.abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / count)).all()


def test_without_exploring_the_best_action_is_taken_and_no_noise_is_used_up() -> None:
    agent = linear([[0.0, 1.0], [5.0, 1.0]], epsilon=Constant(1.0))
    state = agent.exploration.bit_generator.state
    assert agent.act(np.eye(2, dtype=np.float32), explore=False).tolist() == [1, 0]
    assert agent.exploration.bit_generator.state == state


# ---- switches


def test_double_takes_the_online_networks_choice_at_the_target_networks_price() -> None:
    """Online prefers action 0, worth 1 to the target network; the target network's own best is
    worth 10."""
    for double, target in ((True, 0.5 * 1.0), (False, 0.5 * 10.0)):
        agent = linear(
            [[0.0, 0.0], [2.0, 1.0]],
            [[0.0, 0.0], [1.0, 10.0]],
            gamma=0.5,
            double=double,
            huber=False,
        )
        assert train_on_rows(agent, transitions(2, [(0, 0, 0.0, 1, False)]))[0] == near(
            0.5 * target**2, dtype="float32", terms=2
        )


def test_no_gradient_flows_into_the_target() -> None:
    """The successor's own values stay, however much they would lower the loss."""
    for double in (True, False):
        agent = linear([[0.0, 0.0], [2.0, 1.0]], gamma=0.9, double=double)
        train_on_rows(agent, transitions(2, [(0, 0, 1.0, 1, False)]))
        gradient = flat_gradient(agent.optimizer)[:4].view(2, 2)
        assert gradient[0, 0] != 0 and not gradient[:, 1].any()


def test_the_gradient_is_cut_and_the_step_size_annealed() -> None:
    agent = linear(
        [[0.0, 0.0], [0.0, 0.0]], huber=False, learning_rate=1e-2, anneal_learning_rate=True
    )
    agent.config = DQNConfig(**{**vars(agent.config), "max_grad_norm": 0.5, "gradient_steps": 1})
    agent.progress = 0.75
    rows = transitions(2, [(0, 0, 100.0, 1, True)])
    agent.replay.size, agent.replay.rows_at = 1, lambda places: rows
    before = flat_weights(agent.optimizer)
    metrics = agent.update()
    rounded: dict[str, Any] = {"dtype": "float32", "terms": 4}
    assert metrics["grad_norm"] == near(100.0 * 2**0.5, **rounded)  # the weight's and the bias's
    assert flat_gradient(agent.optimizer).norm().item() == near(0.5, **rounded)
    each = 0.5 / 2**0.5
    moved = (flat_weights(agent.optimizer) - before).abs().max().item()
    assert moved == near(0.25e-2 * each / (each + agent.config.adam_eps), **rounded)


def test_action_values_are_the_networks(stage: Make) -> None:
    theatre = stage("dqn", "rlbook/Maze-v0", num_envs=2)
    size = theatre.agent.q.weights[0].shape[1]
    found, expected = (
        theatre.agent.action_values(np.array([3, 0])),
        theatre.agent.q(torch.eye(size)[[3, 0]]),
    )
    assert_near(found, expected, terms=widths(theatre.agent.q))


def test_a_buffer_smaller_than_one_vector_step_is_refused() -> None:
    env: Any = Spaces(3, 2, num_envs=8)
    with pytest.raises(ValueError, match="buffer_size must be at least num_envs 8, got 7"):
        DQN(env, DQNConfig(buffer_size=7))


@pytest.mark.parametrize("parts", [{}, {"dueling": True}, {"noisy": True}])
def test_every_form_of_the_network_has_the_activation_that_is_asked_for(
    parts: dict[str, bool],
) -> None:
    run = rlbook.train("dqn", "CartPole-v1", steps=1, activation="tanh", **parts)
    assert run.agent.q.activation == "tanh"  # type: ignore[attr-defined]
