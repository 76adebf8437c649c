"""Deep recurrent Q-learning, as in R2D2: the loss of a Q-network with a memory.

    stored: the recurrent state that acted before the burn-in, and what followed
    h ← burn-in of the stored state through o_{t-B} … o_{t-1}, by the weights of today, no gradient
    Q, Q⁻ ← the two networks through o_t … o_{t+L}
    for each step k of the sequence, m ≤ n steps before its end:
        y_k = r_k + … + γᵐ⁻¹ r_{k+m-1} + γᵐ Q⁻(h_{k+m}, argmax_a Q(h_{k+m}, a))   with `double`
    minimise  mean over the steps that count of  huber(Q(h_k, a_k) - y_k)

The stored state is stale: older weights computed it. Without a burn-in the network is trained to
act on states that it would not have itself.

Source: Kapturowski et al. 2019 (R2D2), OpenReview r1lyTjAqYX, sections 2.3 and 3; Hausknecht &
Stone 2015 (DRQN), arXiv:1507.06527. Differences: the rewards are not rescaled; sequences are
drawn uniformly; neither the last action nor the last reward is read.
"""

from __future__ import annotations

import torch
from numpy.random import Generator
from torch import Tensor

from rlbook.algorithms.value.dqn_config import DQNConfig
from rlbook.data.sequence_replay import SequenceMinibatch
from rlbook.functional.averages import weighted_sum
from rlbook.functional.value_losses import double_q_target, huber_loss, q_target, squared_value_loss
from rlbook.networks.optimizer import LossOutput
from rlbook.networks.policy import to_full_precision
from rlbook.networks.recurrent_q import RecurrentQ
from rlbook.networks.values import ActionValue


def recurrent_loss(
    q: ActionValue, batch: SequenceMinibatch, *, config: DQNConfig, noise: Generator | None = None
) -> LossOutput:
    """The error of Q(h, a) against its target in some sequences; lower is better.

    Args:
        q: a `RecurrentQ`.
        batch: B sequences of L steps, with the target network's values.
        config: hyper-parameters.
        noise: of no use here.
    """
    assert isinstance(q, RecurrentQ)
    values = to_full_precision(q(batch.sequences))  # [B, L + 1, A]
    value = values[:, :-1].gather(2, batch.action[..., None]).squeeze(2)  # [B, L]
    target = recurrent_target(values.detach(), batch, double=config.double)
    value_loss = huber_loss if config.huber else squared_value_loss
    loss = value_loss(value, target, mask=batch.mask, average=batch.average)
    mean_value = weighted_sum(value.detach(), batch.mask, batch.average)
    return LossOutput(loss, {"td_loss": loss.detach(), "q": mean_value})


@torch.no_grad()
def recurrent_target(online: Tensor, batch: SequenceMinibatch, *, double: bool) -> Tensor:
    """y of every step: [B, L], in reward units.

    Args:
        online: [B, L + 1, A], of the network that is trained, without gradient.
        batch: the sequences.
        double: the online network chooses the action, the target network evaluates it.
    """
    steps = torch.arange(batch.reward.shape[1], device=batch.ahead.device) + batch.ahead
    every = torch.arange(len(batch), device=batch.ahead.device)[:, None]
    last = steps.clamp(max=batch.reward.shape[1])  # of a masked step, whose target is of no use
    mask = None if batch.action_mask is None else batch.action_mask[every, last]
    reward, over, gamma, next_q = (
        batch.reward,
        batch.terminated,
        batch.discount,
        batch.next_q[every, last],
    )
    if not double:
        return q_target(reward, over, next_q, gamma, mask)
    return double_q_target(reward, over, next_q, online[every, last], gamma, mask)
