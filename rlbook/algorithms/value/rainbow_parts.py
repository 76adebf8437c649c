"""The parts of Rainbow, which DQN's config switches on one by one.

    double          the target of `rlbook.functional.value_losses.double_q_target`
    dueling         two streams in the network, `rlbook.networks.q_network`
    noisy           noise on the network's weights, `rlbook.networks.noisy_linear`
    distributional  atoms in the network, and the loss of `distributional_loss`
    prioritized     how the buffer samples transitions, `rlbook.data.prioritized_replay`
    n_step          steps of reward in a transition, `rlbook.data.n_step`
    recurrent       not Rainbow's: a memory in the network, `rlbook.networks.recurrent_q`, and
                    sequences in the buffer, `rlbook.data.sequence_replay`

Source: Hessel et al. 2018, arXiv:1710.02298; the parts name their own sources.
"""

from __future__ import annotations

from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from rlbook.agent import Parts
from rlbook.algorithms.value.dqn_config import DQNConfig
from rlbook.data.frame_store import frame_store
from rlbook.data.rainbow_replay import RainbowReplay
from rlbook.data.sequence_replay import SequenceReplay
from rlbook.networks.q_network import QSettings
from rlbook.networks.recurrent_q import RecurrentQ


def network_parts(config: DQNConfig) -> QSettings:
    """The settings of the network parts beyond an MLP: dueling, noisy, distributional."""
    return QSettings(
        dueling=config.dueling,
        noise_scale=config.noise_scale if config.noisy else None,
        support=(config.v_min, config.v_max, config.num_atoms) if config.distributional else None,
        recurrent=config.recurrent,
        post_hidden_sizes=tuple(config.post_hidden_sizes),
    )


def replay_with_parts(
    config: DQNConfig, env: VectorEnv, parts: Parts, q: object = None
) -> RainbowReplay | SequenceReplay:
    """An empty buffer for some environments: prioritised, n-step, or of sequences for a recurrent
    network `q`."""
    observations = env.single_observation_space
    assert isinstance(observations, Box)
    frames = frame_store(env, config.buffer_size, parts.replay_folder)
    if isinstance(q, RecurrentQ):
        return SequenceReplay(
            config.buffer_size,
            observations,
            parts.device,
            frames=frames,
            num_envs=env.num_envs,
            length=config.sequence_length,
            overlap=config.overlap,
            burn_in=config.burn_in,
            state_size=q.state_size,
            n_step=config.n_step,
            gamma=config.gamma,
        )
    return RainbowReplay(
        config.buffer_size,
        observations,
        parts.device,
        frames=frames,
        num_envs=env.num_envs,
        n_step=config.n_step,
        gamma=config.gamma,
        priority_exponent=config.priority_exponent if config.prioritized else None,
    )
