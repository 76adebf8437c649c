"""Agents with a recurrent policy: what was computed a step at a time while they acted is what they
learn from, whole sequences at a time."""

from __future__ import annotations

import copy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, widths
from gymnasium import spaces
from recurrent_rollouts import WORLDS, agent_in, collect
from state_content import content
from torch import Tensor

import rlbook
from rlbook.agent import Agent, Step
from rlbook.algorithms.policy.a2c import A2C
from rlbook.algorithms.policy.policy_agent import PolicyAgent
from rlbook.algorithms.policy.ppo import PPO
from rlbook.algorithms.policy.reinforce import Reinforce
from rlbook.data.rollout import Batch, minibatches
from rlbook.errors import RequestError
from rlbook.interaction.loop import act_step_reset
from rlbook.interaction.player import Player
from rlbook.networks.recurrent import RecurrentPolicy, cut_sequences
from rlbook.plots.films.episode_frames import play_frames
from rlbook.runs.demonstrations import _randomize as sometimes_random
from rlbook.runs.demonstrations import record_episodes

KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])


@torch.no_grad()
def by_hand(agent: Any, rollout: Any) -> tuple[Tensor, Tensor]:
    """V(obs) and V(next_obs) [T, N] along each environment's episodes, from zeros on, one step of
    one environment at a time."""
    policy, steps = agent.policy, rollout.steps
    value, after = (torch.zeros(len(steps), len(steps[0].reward)) for _ in range(2))
    for row in range(value.shape[1]):
        state = policy.initial_state().rows(1)
        for time, step in enumerate(steps):
            _, value[time, row], state = policy.step(
                torch.from_numpy(step.obs[row : row + 1]), state
            )
            seen = torch.from_numpy(step.next_obs[row : row + 1])
            after[time, row] = policy.step(seen, state)[1]
            if step.terminated[row] or step.truncated[row]:
                state = torch.zeros_like(state)
    return value, after


@pytest.mark.parametrize(("length", "later"), [(None, ()), (5, (6, 7))])
@pytest.mark.parametrize("world", WORLDS)
@KINDS
def test_what_is_learned_from_is_what_acted(
    kind: str, world: str, length: int | None, later: tuple[int, ...]
):
    """Before the first gradient step the policy's log-probabilities along the sequences are those of
    the actions when they were drawn: states, resets, masks and order of time all fit."""
    agent, interaction = agent_in(
        world, recurrent=kind, sequence_length=length, post_hidden_sizes=later
    )
    collect(agent, interaction, 17)
    batch = agent.policy.batch(agent.rollout_data)
    rows, longest = (3, 17) if length is None else (3 * 4, 5)
    assert batch.mask.shape == (rows, longest) and batch.mask.sum() == 3 * 17
    assert batch.starts is not None and batch.starts.any()
    with torch.no_grad():
        log_prob, entropy, value = agent.policy.evaluate(batch)
    terms = 17 * widths(agent.policy)
    assert entropy is not None and entropy[batch.mask].isfinite().all()
    assert_near(log_prob[batch.mask], batch.log_prob[batch.mask], terms=terms)
    expected = cut_sequences(agent.policy.values(agent.rollout_data)[0], longest)
    assert value is not None
    assert_near(value[batch.mask], expected[batch.mask], terms=terms)


@pytest.mark.parametrize("shared", [False, True])
@KINDS
def test_values_are_those_of_the_state_that_belongs_to_them(kind: str, shared: bool):
    """The value of a true final observation is that of the episode it ends: after a time limit
    neither that of the next episode's first observation, nor one without memory."""
    agent, interaction = agent_in("discrete", recurrent=kind, separate_networks=not shared)
    collect(agent, interaction, 23)
    rollout = agent.rollout_data
    truncated = rollout.tensor("truncated")
    assert truncated[:-1].any() and not truncated.all(1).any()
    found, expected = agent.policy.values(rollout), by_hand(agent, rollout)
    going = ~rollout.tensor("terminated")
    terms = 23 * widths(agent.policy)
    assert_near(found[0], expected[0], terms=terms)
    assert_near(found[1][going], expected[1][going], terms=terms)


@KINDS
def test_memory_goes_on_from_one_rollout_to_the_next_and_ends_with_the_episode(kind: str):
    agent, interaction = agent_in("discrete", recurrent=kind)
    collect(agent, interaction, 6)
    first = agent.rollout_data
    agent.rollout_data = type(first)(state_size=first.state_size)
    state = copy.deepcopy(agent._acting.state)
    collect(agent, interaction, 9)
    assert torch.equal(agent.rollout_data.states[0], state) and (state != 0).any()
    ended = np.stack([step.terminated | step.truncated for step in agent.rollout_data.steps])
    for time, over in enumerate(ended[:-1]):
        state = agent.rollout_data.states[time + 1]
        assert ((state == 0).all(1).numpy() == over).all()


def test_time_is_not_shuffled_within_a_sequence():
    agent, interaction = agent_in("discrete")
    collect(agent, interaction, 8)
    time = torch.arange(8.0)[:, None].expand(8, 3)
    rows = agent.policy.batch(agent.rollout_data, target=time)
    seen = [batch.target for batch in minibatches(rows, 8, np.random.default_rng(0))]
    assert [len(part) for part in seen if part is not None] == [1, 1, 1]
    assert all(torch.equal(part[0], time[:, 0]) for part in seen if part is not None)


def test_a_minibatch_has_as_many_sequences_as_have_so_many_steps():
    agent, interaction = agent_in("discrete", sequence_length=4)
    collect(agent, interaction, 12)
    rows = agent.policy.batch(agent.rollout_data)
    assert len(rows) == 9  # 3 environments x 12 steps / 4
    for size, sequences in {1: 1, 4: 1, 11: 2, 12: 3, 100: 9}.items():
        first = next(minibatches(rows, size, np.random.default_rng(0)))
        assert len(first) == sequences
    parts = list(minibatches(rows, 12, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [3, 3, 3]
    assert all(part.state is not None and part.state.shape == (3, 16) for part in parts)


def test_sequences_of_a_rollout_are_cut_in_the_order_of_environments_and_of_time():
    value = torch.arange(10).reshape(5, 2)  # 5 steps of 2 environments
    assert cut_sequences(value, 3).tolist() == [[0, 2, 4], [6, 8, 0], [1, 3, 5], [7, 9, 0]]
    assert cut_sequences(value > 0, 3)[1].tolist() == [True, True, False]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (PPO, {"rollout_steps": 16, "batch_size": 16, "sequence_length": 5}),
        (PPO, {"rollout_steps": 16, "micro_batch_size": 1, "average": "sequence"}),
        (PPO, {"rollout_steps": 16, "normalize_observation": True, "normalize_reward": True}),
        (A2C, {"rollout_steps": 16, "separate_networks": False}),
        (Reinforce, {"baseline": "learned"}),
        (Reinforce, {"baseline": "leave-one-out", "normalize_observation": True}),
    ],
)
@pytest.mark.parametrize("world", WORLDS)
def test_they_learn_from_what_they_did(
    world: str, kind: type[PolicyAgent], settings: dict[str, Any]
):
    """All weights move, the cores' among them, and every number in the log is finite."""
    if world == "image" and "normalize_observation" in settings:
        pytest.skip("numbers of images are not standardised")
    agent, interaction = agent_in(world, kind, **settings)
    before = copy.deepcopy(agent.policy.state_dict())
    taken = act_step_reset(interaction, agent.act, agent.learn, agent.begin)
    metrics = [found for found in (next(taken) for _ in range(100)) if found]
    assert metrics and all(np.isfinite(list(found.values())).all() for found in metrics)
    still = [
        name for name, value in agent.policy.named_parameters() if torch.equal(value, before[name])
    ]
    assert not still


def test_standardised_observations_are_those_that_were_seen():
    """Neither padding nor environments that wait for the others count."""
    agent, interaction = agent_in(
        "discrete", Reinforce, normalize_observation=True, sequence_length=4
    )
    seen: list[np.ndarray] = []

    def learn(step: Step) -> dict[str, float]:
        seen.append(step.obs[step.valid])
        return agent.learn(step)

    taken = act_step_reset(interaction, agent.act, learn, agent.begin)
    while not next(taken):
        pass
    assert agent.policy.normalizer.count == len(np.concatenate(seen))
    assert_near(
        agent.policy.normalizer.mean, np.concatenate(seen).mean(0), dtype="float32", terms=len(seen)
    )


@KINDS
def test_predict_hands_the_state_in_and_out(kind: str):
    """One observation at a time, or a batch: the actions of an evaluation, which remembers."""
    run = rlbook.train(
        "ppo",
        "TMaze-v0",
        steps=64,
        recurrent=kind,
        rollout_steps=32,
        num_envs=2,
        eval_every=0,
        quiet=True,
    )
    env = rlbook.make("TMaze-v0", length=4)
    agent, rows = run.agent, []
    memory = agent.new_memory()
    state, (obs, _) = None, env.reset(seed=0)
    for _ in range(12):
        action, state = run.predict(obs, state=state)
        expected = agent._act_in_env(np.array([obs]), False, None, memory)
        assert action == expected[0] and state.shape == ((128 if kind == "gru" else 256),)
        assert np.array_equal(state, memory.as_array()[0])
        rows.append((obs, state))
        obs = env.step(action)[0]
    last, before = rows[-1][0], np.stack([rows[-2][1], rows[3][1]])
    actions, states = agent.predict(np.array([last, last]), state=before)
    assert actions.shape == (2,)
    assert_near(states[0], rows[-1][1], terms=widths(agent.policy))
    _, anew = agent.predict(np.array([last, last]), state=before, episode_start=[True, False])
    assert_near(anew[0], agent.predict(last, state=None)[1], terms=widths(agent.policy))
    assert_near(anew[1], states[1], terms=widths(agent.policy))
    with pytest.raises(ValueError, match="remembers its episode: call action, state ="):
        run.predict(obs)
    with pytest.raises(ValueError, match="row for each of 3 observations, got 2"):
        run.predict(np.array([0, 1, 2]), state=before)
    with pytest.raises(ValueError, match="as predict returned it"):
        run.predict(obs, state=np.zeros(3))


def test_predict_of_an_agent_without_a_memory_has_no_state_to_hand_out():
    run = rlbook.train("q_learning", "Maze-v0", steps=50, quiet=True)
    assert run.predict(0, state=None) == (run.predict(0), None)


def test_exploring_predictions_leave_the_agent_as_it_is():
    agent, interaction = agent_in("discrete")
    collect(agent, interaction, 5)
    before = copy.deepcopy(agent.state_dict())
    state = None
    for _ in range(5):
        _, state = agent.predict(np.zeros((3, 3), np.float32), state=state, explore=True)
    after = agent.state_dict()
    assert torch.equal(before["acting"]["state"], after["acting"]["state"])
    assert before["rngs"] == after["rngs"]


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "said"),
    [
        ("ppo", "Addition-v0", {}, "recurrent has no effect here, because a language model"),
        ("ppo", "TMaze-v0", {"kl_coef": 0.1}, "kl_coef must be 0 where recurrent is 'gru'"),
        (
            "ppo",
            "TMaze-v0",
            {"recurrent": "rnn"},
            "recurrent must be one of 'gru', 'lstm', or none",
        ),
        ("trpo", "TMaze-v0", {}, "recurrent"),
        ("q_learning", "TMaze-v0", {}, "recurrent"),
    ],
)
def test_what_recurrence_cannot_do_is_refused(
    algorithm: str, env: str, settings: dict[str, Any], said: str
):
    with pytest.raises(RequestError, match=said):
        rlbook.train(algorithm, env, steps=10, quiet=True, **{"recurrent": "gru", **settings})


@pytest.mark.parametrize("setting", [{"sequence_length": 8}, {"post_hidden_sizes": [4]}])
def test_a_setting_of_a_memory_without_a_memory_is_refused(setting: dict[str, Any]):
    (name,) = setting
    with pytest.raises(RequestError, match=f"{name} has no effect without recurrent"):
        rlbook.train("ppo", "TMaze-v0", steps=10, quiet=True, **setting)


def test_a_value_map_of_what_is_remembered_is_refused():
    agent, _ = agent_in("discrete")
    with pytest.raises(RequestError, match="remembers what it saw before"):
        agent.value(np.zeros((2, 3), np.float32))
    with pytest.raises(RequestError, match="remembers what it saw before"):
        agent.act(np.zeros((3, 3), np.float32), explore=False)


def test_agents_without_the_option_have_no_memory():
    assert (
        Agent.new_memory(rlbook.train("q_learning", "Maze-v0", steps=5, quiet=True).agent) is None
    )
    agent, _ = agent_in("discrete", recurrent=None)
    assert agent.new_memory() is None and not isinstance(agent.policy, RecurrentPolicy)
    assert Batch.__dataclass_fields__["starts"].default is None


SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_steps": 16,
    "batch_size": 32,
    "hidden_sizes": (8,),
    "anneal_learning_rate": False,
    "eval_every": 0,
    "quiet": True,
    "seed": 3,
}


@pytest.mark.thorough
@KINDS
def test_a_run_that_stopped_within_episodes_and_a_rollout_goes_on_bit_for_bit(
    kind: str, tmp_path: Path
):
    settings = {**SMALL, "recurrent": kind}
    whole = rlbook.train("ppo", "CartPole-v1", steps=400, **settings)
    part = rlbook.train("ppo", "CartPole-v1", steps=172, out=tmp_path / "run", **settings)
    assert 0 < len(part.agent.rollout_data.steps) < 16 and (part.agent._acting.state != 0).any()
    on = rlbook.load(tmp_path / "run").resume(steps=400)
    assert content(on.agent.state_dict()) == content(whole.agent.state_dict())
    assert on.episode_returns == whole.episode_returns


@pytest.mark.thorough
def test_environments_in_processes_of_their_own_give_the_same_run(tmp_path: Path):
    settings = {**SMALL, "recurrent": "lstm"}
    one = rlbook.train("ppo", "CartPole-v1", steps=200, **settings)
    two = rlbook.train("ppo", "CartPole-v1", steps=200, workers=2, out=tmp_path / "run", **settings)
    assert content(one.agent.state_dict()) == content(two.agent.state_dict())


def test_whoever_plays_forgets_an_episode_when_it_ends():
    """Also where it ends in the middle of the others'."""
    agent, interaction = agent_in("discrete")
    player, befores, ends = Player(agent), [], []

    def observe(step: Step) -> None:
        befores.append(player.memory.before)
        ends.append(step.terminated | step.truncated)
        player.observe(step)

    taken = act_step_reset(interaction, player.act, observe, player.begin)
    for _ in range(20):
        next(taken)
    assert np.any(ends[:-1])
    for over, before in zip(ends[:-1], befores[1:], strict=True):
        assert ((before == 0).all(1).numpy() == over).all()
    player.begin()
    assert (player.memory.rows(3) == 0).all()


def test_films_and_recordings_remember_as_a_loop_of_ones_own_does():
    """Each plays the actions that `predict` gives along its observations, from nothing on at the
    start of each episode."""
    settings = {**SMALL, "learning_rate": 0.03, "env_kwargs": {"length": 2}}
    run = rlbook.train("ppo", "TMaze-v0", steps=1280, recurrent="gru", **settings)
    recipe = run.request.recipe
    recorded = islice(record_episodes(run.agent, recipe, 7, longest=20), 4)
    episodes = [(episode.observations, episode.actions) for episode in recorded]
    seen, frames = [], play_frames(run.agent, recipe, None, episodes=4, seed=7)
    for frame in frames:
        if frame.action is None:
            seen.append(([frame.obs], []))
        else:
            seen[-1][0].append(frame.obs)
            seen[-1][1].append(frame.action)
    assert len(episodes) == len(seen) == 4
    for observations, actions in [*episodes, *seen]:
        state = None
        for obs, action in zip(observations, actions, strict=False):
            expected, state = run.predict(int(obs), state=state)
            assert int(action) == expected


def test_a_random_share_of_actions_leaves_no_hole_in_the_memory():
    """What is seen before an action that is drawn at random is remembered, too."""
    agent, _ = agent_in("discrete")
    player, rng = Player(agent), np.random.default_rng(0)
    space = spaces.Discrete(4)
    act = sometimes_random(player.act, space, 1.0, rng, batched=True, looks=True)
    obs = np.ones((1, 3), np.float32)
    act(obs)
    once = player.memory.state
    act(obs)
    assert once is not None and (once != 0).any() and not torch.equal(player.memory.state, once)
