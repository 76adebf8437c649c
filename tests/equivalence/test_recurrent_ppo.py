"""A recurrent PPO has the numbers of sb3-contrib's RecurrentPPO on the same weights and the same
rollout: log-probabilities, values, advantages, the loss and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, near, widths
from recurrent_rollouts import WORLDS, agent_in, collect
from torch import Tensor, nn

from rlbook.algorithms.policy.ppo import ppo_loss, ppo_rows, standardize_advantages
from rlbook.fast_forms import use_plain_forms

pytest.importorskip("sb3_contrib")

STEPS, ENVS, UNITS = 17, 3, 8


def peer_of(agent: Any, world: str) -> Any:
    """Their algorithm, with the hidden layers of ours in front of their LSTMs, and our weights."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Torso(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            super().__init__(space, UNITS)
            self.layer = nn.Linear(space.shape[0], UNITS)

        def forward(self, obs: Tensor) -> Tensor:
            return torch.tanh(self.layer(obs))

    config = agent.config
    model = RecurrentPPO(
        "MlpLstmPolicy",
        DummyVecEnv([WORLDS[world]] * ENVS),
        n_steps=STEPS,
        batch_size=STEPS * ENVS,
        n_epochs=1,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        ent_coef=config.entropy_coef,
        vf_coef=config.value_coef / 2,  # they leave out the ½ before the square
        max_grad_norm=1e9,
        policy_kwargs={
            "lstm_hidden_size": UNITS,
            "net_arch": list(config.post_hidden_sizes),
            "features_extractor_class": Torso,
            "share_features_extractor": False,
        },
        device="cpu",
    )
    with torch.no_grad():
        for name, weight in ours_by_their_names(agent).items():
            model.policy.get_parameter(name).copy_(weight)
    return model


def ours_by_their_names(agent: Any) -> dict[str, nn.Parameter]:
    policy, found = agent.policy, {}
    for network, core, short, head, lstm in (
        (policy.actor, policy.cores[0], "pi", "action_net", "lstm_actor"),
        (policy.critic, policy.cores[1], "vf", "value_net", "lstm_critic"),
    ):
        first, *later, last = network.layers
        places = {f"{short}_features_extractor.layer": first, head: last} | {
            f"mlp_extractor.{'policy' if short == 'pi' else 'value'}_net.{2 * i}": layer
            for i, layer in enumerate(later)
        }
        for place, layer in places.items():
            found |= {f"{place}.weight": layer.weight, f"{place}.bias": layer.bias}
        found |= {
            f"{lstm}.weight_ih_l0": core.input_weight,
            f"{lstm}.weight_hh_l0": core.state_weight,
            f"{lstm}.bias_ih_l0": core.input_bias,
            f"{lstm}.bias_hh_l0": core.state_bias,
        }
    return found if policy.log_std is None else {**found, "log_std": policy.log_std}


def states_of(state: Tensor) -> Any:
    """Our state [N, S] as theirs: h and c [1, N, H] of the actor and of the critic."""
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    h, c, critic_h, critic_c = (part.detach().clone()[None] for part in state.chunk(4, -1))
    return RNNStates((h, c), (critic_h, critic_c))


def fill(model: Any, agent: Any) -> None:
    """Their buffer with our rollout, as their `collect_rollouts` fills it."""
    rollout, buffer, states = agent.rollout_data, model.rollout_buffer, agent.rollout_data.states
    buffer.reset()
    start = np.zeros(ENVS, dtype=np.float32)
    for time, step in enumerate(rollout.steps):
        obs, before = torch.from_numpy(step.obs), states_of(states[time])
        starts = torch.from_numpy(start)
        with torch.no_grad():
            _, value, _, after = model.policy(obs, before, starts)
            reward = step.reward.copy()
            for row in np.flatnonzero(step.truncated):
                last = tuple(part[:, row : row + 1].contiguous() for part in after.vf)
                seen = torch.from_numpy(step.next_obs[row : row + 1])
                value_there = model.policy.predict_values(seen, last, torch.zeros(1))
                reward[row] += model.gamma * value_there.item()
        action = step.action if step.action.ndim > 1 else step.action[:, None]
        log_prob = torch.from_numpy(rollout.log_probs[time])
        buffer.add(step.obs, action, reward, start, value, log_prob, lstm_states=before)
        start = (step.terminated | step.truncated).astype(np.float32)
    last_obs = torch.from_numpy(rollout.steps[-1].next_obs)
    with torch.no_grad():
        value = model.policy.predict_values(last_obs, after.vf, torch.from_numpy(start))
    buffer.compute_returns_and_advantage(last_values=value, dones=start.astype(bool))


def their_loss(model: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """Their loss, and in their weights its gradient, of one minibatch with the whole rollout. Where they cut it at a
    random step, which stops the gradient through time there, they cut it at its beginning."""
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: 0)
    monkeypatch.setattr(model.policy.optimizer, "step", lambda: None)
    logged: dict[str, float] = {}

    class Kept:
        def record(self, name: str, value: float, **_: object) -> None:
            logged[name] = value

    model._logger = Kept()
    model.train()
    return logged["train/loss"]


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])
@pytest.mark.parametrize("later", [(), (5, 6)], ids=["outputs", "hidden"])
@pytest.mark.parametrize("world", ["discrete", "continuous"])
def test_a_rollout_a_loss_and_a_gradient_are_those_of_sb3_contrib(
    world: str, later: tuple[int, ...], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, interaction = agent_in(
        world,
        recurrent="lstm",
        num_envs=ENVS,
        hidden_sizes=(UNITS,),
        post_hidden_sizes=later,
        entropy_coef=0.01,
    )
    with torch.no_grad():  # by the first weights all actions are alike
        agent.policy.actor.layers[-1].weight.mul_(100)
    collect(agent, interaction, 5)  # so that the rollout begins in the middle of episodes
    agent.rollout_data.clear()
    collect(agent, interaction, STEPS)
    ends = [agent.rollout_data.tensor(name) for name in ("terminated", "truncated")]
    assert all(end[:-1].any() for end in ends)
    model = peer_of(agent, world)
    fill(model, agent)
    with use_plain_forms(plain):
        rows, _ = ppo_rows(agent.policy, agent.rollout_data, agent.rewards(), agent.config)
        found = agent.policy.evaluate(rows)
        terms, buffer = STEPS * widths(agent.policy), model.rollout_buffer
        pairs = (
            (rows.log_prob, buffer.log_probs),
            (rows.value, buffer.values),
            (rows.advantage, buffer.advantages),
            (rows.target, buffer.returns),
            (found[0], buffer.log_probs),
            (found[2], buffer.values),
        )
        for ours, theirs in pairs:
            assert ours is not None
            assert_near(ours.detach().numpy(), theirs.T, terms=terms)
        batch = standardize_advantages(rows, agent.policy, agent.config)
        loss = ppo_loss(agent.policy, batch, config=agent.config).loss
        names = ours_by_their_names(agent)
        slopes = dict(zip(names, torch.autograd.grad(loss, [*names.values()]), strict=True))
    terms *= STEPS * ENVS
    assert loss.item() == near(their_loss(model, monkeypatch), dtype="float32", terms=terms)
    theirs = {name: model.policy.get_parameter(name).grad for name in names}
    size = largest(theirs.values())
    for name, slope in slopes.items():
        assert_near(slope, theirs[name], terms=terms, size=size)
