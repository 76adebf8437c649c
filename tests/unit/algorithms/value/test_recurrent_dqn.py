"""DQN with a memory, as R2D2 trains it: its loss in a plain loop, its burn-in, what it remembers."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound
from steps import next_minibatch
from torch import Tensor

from rlbook.agent import Step
from rlbook.algorithms.value.dqn import DQN
from rlbook.algorithms.value.dqn_config import DQNConfig
from rlbook.algorithms.value.recurrent_loss import recurrent_loss
from rlbook.data.sequence_replay import SequenceMinibatch
from rlbook.errors import RequestError

NUM_ENVS, SIZE, ACTIONS = 2, 3, 4


class Spaces:
    """As much of a vector environment as DQN looks at."""

    single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    single_action_space, num_envs = gymnasium.spaces.Discrete(ACTIONS), NUM_ENVS


def agent_with(**settings: Any) -> Any:
    chosen: dict[str, Any] = {
        "recurrent": "gru",
        "hidden_sizes": (6, 5),
        "sequence_length": 4,
        "overlap": 2,
        "burn_in": 3,
        "n_step": 2,
        "gamma": 0.9,
        "learning_starts": 10**6,
    }
    env: Any = Spaces()
    return DQN(env, DQNConfig(**(chosen | settings)), seed=1)


def play(agent: Any, steps: int, seed: int = 0) -> list[list[dict[str, Any]]]:
    """Random observations, rewards and ends; what happened in each environment."""
    rng, rows = np.random.default_rng(seed), [[] for _ in range(NUM_ENVS)]
    obs, left = rng.normal(size=(NUM_ENVS, SIZE)), rng.integers(1, 12, NUM_ENVS)
    age = np.zeros(NUM_ENVS, int)
    for _ in range(steps):
        action = agent.act(obs.astype(np.float32))
        over = left == 1
        cut, after = over & (rng.random(NUM_ENVS) < 0.5), rng.normal(size=(NUM_ENVS, SIZE))
        step = Step(
            obs.astype(np.float32),
            action,
            rng.normal(size=NUM_ENVS).astype(np.float32),
            after.astype(np.float32),
            over & ~cut,
            cut,
        )
        agent.learn(step)
        for env in range(NUM_ENVS):
            found = {name: getattr(step, name)[env] for name in step._fields[:6]}
            rows[env].append(found | {"age": age[env], "over": over[env]})
        left = np.where(over, rng.integers(1, 12, NUM_ENVS), left - 1)
        age = np.where(over, 0, age + 1)
        # the next episode begins elsewhere
        obs = np.where(over[:, None], rng.normal(size=(NUM_ENVS, SIZE)), after)
    return rows


def test_hidden_layers_follow_the_memory_where_they_are_asked_for() -> None:
    head = agent_with(post_hidden_sizes=(4, 3)).q.head
    assert [list(weight.shape) for weight in head.parameters() if weight.ndim == 2] == [
        [4, 5],
        [3, 4],
        [ACTIONS, 3],
    ]


def plain_loss(agent: Any, batch: SequenceMinibatch) -> Tensor:
    """The loss, one sequence and one step after the other."""
    config, terms = agent.config, []
    for number in range(len(batch)):
        part = batch.sequences
        online, target = (
            plain_values(q, part.obs[number], part.starts[number], part.state[number], part.burn_in)
            for q in (agent.q, agent.target)
        )
        count = int(batch.mask[number].sum())
        for k in range(count):
            m, over = int(batch.ahead[number, k]), bool(batch.terminated[number, k])
            y = batch.reward[number, k].double()
            if not over:
                with torch.no_grad():
                    chooser = online[k + m] if config.double else target[k + m]
                    y = y + config.gamma**m * target[k + m][chooser.argmax()]
            error = (online[k][batch.action[number, k]] - y).abs()
            terms.append(torch.where(error <= 1, 0.5 * error**2, error - 0.5))
    return torch.stack(terms).mean()


def plain_values(q: Any, obs: Tensor, starts: Tensor, state: Tensor, burn_in: int) -> list[Tensor]:
    """Q after each observation that is not of the burn-in."""
    state, values = state[None].double(), []
    for place, (seen, start) in enumerate(zip(obs.double(), starts, strict=True)):
        if start:
            state = torch.zeros_like(state)
        if place < burn_in:
            with torch.no_grad():
                _, state = q.step(seen[None], state)
        else:
            value, state = q.step(seen[None], state)
            values.append(value[0])
    return values


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"burn_in": 0},
        {"recurrent": "lstm"},
        {"double": False},
        {"n_step": 1},
        {"dueling": True},
        {"dueling": True, "post_hidden_sizes": (4, 3)},
        {"hidden_sizes": (5,)},
    ],
    ids=str,
)
def test_the_loss_is_what_a_plain_loop_finds(settings: dict[str, Any]) -> None:
    agent = agent_with(**settings)
    play(agent, 60)
    agent.q.double()
    agent.target.double()
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(0)))
    batch = next_minibatch(agent)
    found = recurrent_loss(agent.q, batch, config=agent.config).loss
    expected = plain_loss(agent, batch)
    # float32 rewards and discounts; sums over units and steps of numbers of the size of 1
    terms = (agent.config.burn_in + agent.config.sequence_length) * 6
    assert found.item() == near(expected.item(), dtype="float32", terms=terms, size=1.0)
    parameters = [*agent.q.parameters()]
    gradients = torch.autograd.grad(found, parameters)
    for one, other in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        assert_near(one, other, dtype="float32", terms=terms, size=1.0)


def values_at(agent: Any, batch: SequenceMinibatch) -> Tensor:
    with torch.no_grad():
        return agent.q(batch.sequences)


def test_a_burn_in_by_the_weights_that_acted_arrives_at_the_stored_state() -> None:
    """So with B = 0 and with B = 3 the values are the same, as long as nothing was learned."""
    found = []
    for burn_in in (0, 3):
        agent = agent_with(burn_in=burn_in)
        play(agent, 60)
        batch = agent.replay.sequences_at(agent.replay.sequence_starts(), agent.target)
        values = values_at(agent, batch)
        assert values.shape == (len(batch), 5, ACTIONS)
        found.append(values[:, :-1][batch.mask])
    # the same steps, in the same order; float32 sums of 6 and 5 units, three steps further back
    assert_near(found[0], found[1], terms=10 * (6 + 5), size=1.0)


def test_a_burn_in_replaces_a_stale_state_by_that_of_todays_weights() -> None:
    """The burn-in reaches back to the start of every episode, so the values are those of an agent
    that has just played it. Without one they come from the state that older weights computed."""
    errors = []
    for burn_in in (0, 12):
        agent = agent_with(burn_in=burn_in)
        rows = play(agent, 60)
        with torch.no_grad():
            agent.q.core.state_weight.mul_(-1.0)  # it has learned in between
        batch = agent.replay.sequences_at(agent.replay.sequence_starts(), agent.target)
        values, error = values_at(agent, batch), 0.0
        for number, first in enumerate(batch.sequences.obs[:, burn_in].numpy()):
            env, begin = next(
                (env, time)
                for env in range(NUM_ENVS)
                for time, row in enumerate(rows[env])
                if np.array_equal(row["obs"], first)
            )
            age = rows[env][begin]["age"]
            seen = np.stack([row["obs"] for row in rows[env][begin - age : begin + 1]])
            memory = agent.new_memory()
            for obs in seen:
                agent.act(obs[None], explore=False, memory=memory)
            with torch.no_grad():
                expected = agent.q.head(memory.state[:, :5])
            error = max(error, float((values[number, 0] - expected).abs().max()))
        errors.append(error)
    stale, fresh = errors
    assert fresh <= rounding_bound("float32", terms=12 * (6 + 5))
    assert stale > 0.01  # 0.03 to 0.14 on ten seeds


def test_nothing_before_the_start_of_an_episode_counts() -> None:
    agent = agent_with()
    play(agent, 60)
    batch = agent.replay.sequences_at(agent.replay.sequence_starts(), agent.target)
    part = batch.sequences
    begins = part.starts[:, part.burn_in]
    assert 0 < int(begins.sum()) < len(batch)
    obs, state = part.obs.clone(), part.state.clone()
    obs[:, : part.burn_in] = 100.0
    state += 100.0
    other = dataclasses.replace(part, obs=obs, state=state)
    with torch.no_grad():
        before, after = agent.q(part), agent.q(other)
    assert torch.equal(before[begins], after[begins])
    assert (before[~begins] != after[~begins]).any(-1).any(-1).all()


def test_acting_greedily_changes_nothing_and_goes_on_with_the_memory_it_is_given() -> None:
    agent = agent_with(epsilon=0.0)
    play(agent, 20)
    obs = np.random.default_rng(5).normal(size=(6, 1, SIZE)).astype(np.float32)
    before = agent.memory.state.clone()
    memory = agent.new_memory()
    for seen in obs:
        agent.act(seen, explore=False, memory=memory)
    assert torch.equal(agent.memory.state, before)
    state = torch.zeros(1, agent.q.state_size)
    with torch.no_grad():
        for seen in obs:
            _, state = agent.q.step(torch.from_numpy(seen), state)
    assert torch.equal(memory.state, state)
    with pytest.raises(RequestError, match="remembers"):
        agent.act(obs[0], explore=False)


def test_an_episode_that_ended_is_forgotten() -> None:
    agent = agent_with()
    rows = play(agent, 40)
    beginnings = [row["age"] == 0 for row in rows[0]]
    assert sum(beginnings) > 2
    replay = agent.replay
    assert not replay.states[0].any()  # the state of a sequence that begins an episode
    ended = [time for time, row in enumerate(rows[0][:-1]) if row["over"]]
    agent = agent_with()
    for time, (left, right) in enumerate(zip(*rows, strict=True)):
        obs = np.stack([left["obs"], right["obs"]])
        agent.act(obs)
        remembered = agent.memory.before[0]
        assert bool(remembered.any()) == (time > 0 and time - 1 not in ended)
        over = np.array([left["over"], right["over"]])
        flags = np.zeros(NUM_ENVS, bool)
        agent.learn(Step(obs, np.zeros(2, int), np.zeros(2, np.float32), obs, over, flags))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"prioritized": True}, "prioritized does not work with recurrent; double, dueling and"),
        ({"noisy": True}, "noisy does not work with recurrent"),
        ({"distributional": True}, "distributional does not work with recurrent"),
        ({"overlap": 4}, "overlap must be below sequence_length 4, got 4"),
        ({"recurrent": "rnn"}, "recurrent must be"),
        ({"recurrent": None}, "sequence_length has no effect without recurrent"),
        ({"hidden_sizes": ()}, "hidden_sizes must name a layer with recurrent, got none"),
        ({"buffer_size": 15}, "buffer_size must be at least 16 to hold a sequence of each of 2"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        agent_with(**settings)
