"""MBPO: its imagined steps by hand, with a model whose answers are known; without them it is
SAC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, near

import rlbook
from rlbook.algorithms.model_based.mbpo import imagine, imagined_step
from rlbook.algorithms.model_based.world_model import world_model_loss, world_model_update
from rlbook.algorithms.policy.off_policy.sac import SAC, sac_critic_loss
from rlbook.data.replay import Transitions
from rlbook.networks.dynamics import Prediction, WorldModel, model_errors
from rlbook.networks.optimizer import Group, adam

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "model_hidden_sizes": (8,),
    "learning_starts": 40,
    "batch_size": 16,
    "model_every": 30,
    "model_steps": 3,
    "gradient_steps": 2,
    "eval_every": 0,
    "learning_rate": 1e-3,
    "tau": 0.01,
    "train_every": 1,
    "target_entropy": 0.3,
}


def agent_in(env: str = "Pendulum-v1", **config: Any) -> Any:
    return rlbook.train("mbpo", env, **({"steps": 41} | SMALL | config)).agent


class Known(torch.nn.Module):
    """Member k says s' = s + a + 10 (k + 1), r = sum of s; it terminates where the first number of
    s' is above `end`."""

    def __init__(self, end: float = math.inf, members: int = 1) -> None:
        super().__init__()
        self.end, self.members = end, members

    def encode_action(self, action: torch.Tensor) -> torch.Tensor:
        return action.float() if action.is_floating_point() else action[..., None].float()

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> Prediction:
        more = 10.0 * torch.arange(1, len(obs) + 1)[:, None, None]
        after = obs + actions + more
        return Prediction(after, obs.sum(-1), after[..., 0] - self.end)


def imagined(agent: Any, count: int) -> Transitions:
    """Steps that an agent imagines."""
    act, starts = agent.imagined_action, agent.stored_states
    return imagine(agent.model, act, starts, count, agent.config.horizon)


def in_a_stored_state(agent: Any, obs: torch.Tensor) -> torch.Tensor:
    """[B]: whether each row is the state of a stored step."""
    stored = agent.replay.rows_at(agent.replay.newest_indices(agent.replay.size)).obs
    return (obs[:, None] == stored).all(-1).any(1)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_an_imagined_step_is_what_the_members_say_of_the_policys_action(env: str) -> None:
    """Four rows of two members: the first two rows by the first, 10 further, the others by the
    second, 20 further."""
    agent = agent_in(env, members=2)
    agent.model = Known(end=15.0, members=2)
    stored = agent.replay.rows_at(np.arange(4)).obs
    found = imagined_step(agent.model, agent.imagined_action, stored)
    acted = agent.model.encode_action(found.action)
    expected = stored + acted + torch.tensor([10.0, 10.0, 20.0, 20.0])[:, None]
    assert_near(found.next_obs, expected, terms=3)
    size = stored.abs().sum(-1).max().item()
    assert_near(found.reward, stored.sum(-1), terms=stored.shape[1], size=size)
    assert found.terminated.tolist() == [False, False, True, True]
    assert torch.equal(found.obs, stored) and found.action.dtype == agent.replay.rows.action.dtype
    assert (
        found.reward.dtype == agent.replay.rows.reward.dtype
        and found.terminated.dtype == torch.bool
    )


def test_a_termination_is_imagined_where_it_is_likelier_than_not() -> None:
    agent = agent_in("CartPole-v1", members=1)
    agent.model = Known()
    stored = agent.replay.rows_at(np.arange(1)).obs
    after = agent.model.forward(
        stored,
        agent.model.encode_action(imagined_step(agent.model, agent.imagined_action, stored).action),
    ).next_obs[..., 0]
    for log_odds in (-0.3, 0.3):  # the action is 0 or 1, by chance
        agent.model.end = after.item() - log_odds
        found = [imagined_step(agent.model, agent.imagined_action, stored) for _ in range(12)]
        odds = [one.next_obs[0, 0].item() - agent.model.end for one in found]
        assert any(abs(each) < 0.4 for each in odds) and [
            bool(one.terminated) for one in found
        ] == [each > 0 for each in odds]


def test_the_actions_are_the_policys_and_not_the_stored_ones() -> None:
    """A policy that is sure of action 0.5: tanh u = 0.5 and σ = e^-20."""
    agent = agent_in(members=1)
    with torch.no_grad():
        for weight in agent.actor.weights:
            weight.zero_()
        agent.actor.weights[-1].copy_(torch.tensor([math.atanh(0.5), -30.0]))
    assert_near(imagined(agent, 8).action, torch.full((8, 1), 0.5), terms=3)


def test_rollouts_begin_in_stored_states_and_follow_their_own_predictions() -> None:
    """Nine steps, three in a row from each of three states."""
    agent = agent_in(members=1, horizon=3)
    agent.model = Known()
    found = imagined(agent, 9)
    assert in_a_stored_state(agent, found.obs).tolist() == [True] * 3 + [False] * 6
    assert torch.equal(found.obs[3:], found.next_obs[:6])


def test_behind_a_termination_a_rollout_begins_anew() -> None:
    """Numbers of the pendulum's states are at most 8, so that each step of +10 terminates and none
    of -10 does."""
    agent = agent_in(members=1, horizon=3)
    agent.model = Known(end=0.0)
    found = imagined(agent, 9)
    assert found.terminated.all() and in_a_stored_state(agent, found.obs).all()


def test_a_minibatch_has_its_share_of_imagined_steps() -> None:
    """ρ = 0.75 of 16 rows: the first 12 follow a model whose states are all above 2, the last 4
    happened."""
    agent = agent_in(members=1, model_ratio=0.75)
    agent.model = Known()
    seen: list[Any] = []
    agent.critic_loss = lambda networks, batch, config: (
        seen.append(batch) or sac_critic_loss(networks, batch, config=config)
    )
    SAC.update(agent)
    batch = seen[0]
    assert len(batch.rows.reward) == 16 and batch.noise.shape == (16, 1)
    assert (batch.rows.next_obs[:, 0] > 2).tolist() == [True] * 12 + [False] * 4


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_without_imagined_steps_it_is_sac_bit_for_bit(env: str) -> None:
    """And the model is never trained. With them it is something else."""
    sac = {name: value for name, value in SMALL.items() if not name.startswith("model")}
    plain: Any = rlbook.train("sac", env, steps=80, **sac).agent
    expected = [weight for network in plain.networks().values() for weight in network.parameters()]
    for options, same in (
        (sac | {"model_ratio": 0.0}, True),
        (SMALL | {"model_ratio": 0.5}, False),
    ):
        agent: Any = rlbook.train("mbpo", env, steps=80, **options).agent
        found = [weight for network in agent.networks().values() for weight in network.parameters()]
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True)) == same
        assert (agent.fitted_at == 0) == same and agent.updates == plain.updates > 0


def test_the_model_is_trained_before_the_first_update_and_then_every_so_often() -> None:
    """40 random steps, the first update at step 41, then at 71 and 101."""
    agent = agent_in(steps=120)
    assert (
        agent.fitted_at == 101
        and int(agent.model_optimizer.state_dict()["steps"]) == 3 * SMALL["model_steps"]
    )


def test_an_agent_that_was_saved_trains_its_model_when_the_first_one_does() -> None:
    """At step 41 for the first time and again at 71, which is 30 later: a copy made in between
    isn't due either."""
    agent, other = agent_in(steps=50), agent_in(steps=20, seed=1)
    other.load_state_dict(agent.state_dict())
    for one in (agent, other):
        assert one.fitted_at == 41
        one.update()
        assert (
            one.fitted_at == 41
            and int(one.model_optimizer.state_dict()["steps"]) == SMALL["model_steps"]
        )
    for ours, theirs in zip(agent.actor.parameters(), other.actor.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_models_loss_by_hand() -> None:
    """Two members with an output of 0 each: they say that nothing changes, pays or ends. Over one
    row each, s' - s = (1, 3) and r = 2: ½ (1 + 9 + 4) + ln 2, and ½ 0 + ln 2; the sum over the
    members is twice the mean."""
    model = WorldModel(2, 1, 2, (4,), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    obs, after = torch.zeros(2, 2), torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    batch = Transitions(
        obs, torch.zeros(2, 1), torch.tensor([2.0, 0.0]), after, torch.tensor([True, False])
    )
    found = world_model_loss(model, batch)
    assert found.metrics["model_loss"].item() == near(
        (0.5 * 14 + 0.0) / 2 + math.log(2), dtype="float32", terms=6
    )
    assert found.loss.item() == near(0.5 * 14 + 2 * math.log(2), dtype="float32", terms=6)


def test_errors_are_measured_on_whole_moments() -> None:
    """Five stored rows of two environments: the oldest has lost its neighbour, and does not
    count."""
    model = WorldModel(1, 1, 1, (4,), torch.Generator().manual_seed(0))
    state = torch.tensor([[900.0], [0.0], [1.0], [2.0], [3.0]])
    rows = Transitions(
        state, torch.zeros(5, 1), torch.zeros(5), state, torch.zeros(5, dtype=torch.bool)
    )
    whole = rows.map_fields(lambda field: field[1:])
    assert model_errors(model, rows, 2, 1) == model_errors(model, whole, 2, 1)


def test_a_linear_world_is_learned() -> None:
    """s' = 0.9 s + 0.5 a and r = s + a; terminated where s > 1.

    On ten seeds 400 gradient steps leave a mean error of at most .012 in s' and .036 in r, and at
    most 1.4 % of the ends are wrong.
    """
    from rlbook.agent import Step
    from rlbook.data.replay import ReplayBuffer

    rng, replay = np.random.default_rng(0), ReplayBuffer(500, 1)
    s, a = (rng.uniform(-2, 2, size=(500, 1)).astype(np.float32) for _ in range(2))
    replay.add(Step(s, a, (s + a)[:, 0], 0.9 * s + 0.5 * a, s[:, 0] > 1, np.zeros(500, bool)))
    model = WorldModel(1, 1, 2, (32,), torch.Generator().manual_seed(0))
    loss = world_model_update(
        model, adam([Group([model])], 3e-3), replay, rng, batch_size=64, gradient_steps=400
    )
    rows = replay.rows_at(np.arange(500))
    found = model(rows.obs, rows.action)
    assert loss.keys() == {"model_loss", "grad_norm"}
    assert (found.next_obs - rows.next_obs).abs().mean() < 0.05 and (
        found.reward - rows.reward
    ).abs().mean() < 0.05
    assert ((found.terminated > 0) == rows.terminated).float().mean() > 0.97


@pytest.mark.parametrize(
    ("name", "value"),
    [("model_ratio", 1.5), ("horizon", 0), ("members", 0), ("model_every", 0), ("model_steps", 0)],
)
def test_what_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(rlbook.RequestError, match=f"{name} must be"):
        rlbook.train("mbpo", "Pendulum-v1", steps=10, **{name: value})  # type: ignore[arg-type]
