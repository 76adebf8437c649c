"""A gradient step of SAC with the gradients of its losses written out: no graph is recorded.

The policy's output is computed once for s and s' together. Only the critic that says less in a row
has a part in the policy's gradient there, so each row is backpropagated through one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlbook.algorithms.policy.off_policy.replay_agent import Minibatch
from rlbook.algorithms.policy.off_policy.sac import (
    LOG_STD,
    SACConfig,
    SACNetworks,
    Temperature,
    sac_actor_loss,
    sac_critic_loss,
    sac_update,
)
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast.mlp import Weights, backward_pass, forward_pass, input_gradient, weights_of
from rlbook.fast.modules import is_unmodified, trains_plainly
from rlbook.functional.action_masks import masked_logits
from rlbook.functional.maximum_entropy import expected_soft_value, soft_value
from rlbook.functional.returns import td_target
from rlbook.networks.critics import Critics
from rlbook.networks.distributions import Categorical, SquashedGaussian
from rlbook.networks.mlp import MLP
from rlbook.networks.optimizer import LossOutput, Optimizer
from rlbook.networks.target_network import polyak_update

CUT_AT_THE_BOUNDS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
"""Whether torch's `clamp` has zero gradient at its bounds, too."""


@dataclass(frozen=True)
class SACStep:
    """The data of a gradient step, once it is known that the plain one would use the same."""

    networks: SACNetworks
    critic_optimizer: FlatAdam
    actor_optimizer: FlatAdam
    batch: Minibatch
    config: SACConfig
    activation: str  # of all networks
    actor: Weights  # layer by layer
    critics: list[Weights]
    target: list[Weights]


def update(
    networks: SACNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    config: SACConfig,
    *,
    critic_loss: Callable[..., LossOutput] | None = None,
    actor_loss: Callable[..., LossOutput] | None = None,
) -> dict[str, Tensor]:
    """The fast form of `sac_update`, for ordinary MLPs on the CPU and SAC's own losses."""
    step = None
    if critic_loss in (None, sac_critic_loss) and actor_loss in (None, sac_actor_loss):
        step = _find_step(networks, critic_optimizer, actor_optimizer, batch, config)
    if step is None:
        given = networks, critic_optimizer, actor_optimizer, batch, config
        return sac_update.plain(*given, critic_loss=critic_loss, actor_loss=actor_loss)  # type: ignore[attr-defined]
    with torch.no_grad():
        return _step_discrete(step) if networks.critics.discrete else _step_box(step)


def _find_step(
    networks: SACNetworks,
    critic_optimizer: Optimizer,
    actor_optimizer: Optimizer,
    batch: Minibatch,
    config: SACConfig,
) -> SACStep | None:
    """The step, or None if the networks, their parameters or the rows require more."""
    rows, temperature = batch.rows, networks.temperature
    if (rows.action_mask is None) != (rows.next_action_mask is None):
        return None
    if (
        type(actor_optimizer) is not FlatAdam
        or type(critic_optimizer) is not FlatAdam
        or type(temperature) is not Temperature
    ):
        return None
    actor = weights_of(networks.actor, rows.obs) if is_unmodified(networks.actor) else None
    activation = str(getattr(networks.actor, "activation", ""))
    critics, target = (
        _critic_weights(each, rows.obs, activation) for each in (networks.critics, networks.target)
    )
    if actor is None or critics is None or target is None:
        return None
    trained = [weight for weights in critics for weight in weights]
    if not trains_plainly(trained, critic_optimizer.parameters):
        return None
    if (
        not trains_plainly([*actor, temperature.log_alpha], actor_optimizer.parameters)
        or rows.obs.dtype != rows.reward.dtype
    ):
        return None
    return SACStep(
        networks,
        critic_optimizer,
        actor_optimizer,
        batch,
        config,
        activation,
        actor,
        critics,
        target,
    )


def _critic_weights(critics: nn.Module, x: Tensor, activation: str) -> list[Weights] | None:
    """The weights of both critics, or None."""
    if (
        type(critics) is not Critics
        or not is_unmodified(critics)
        or critics.filters is not None
        or len(critics.networks) != 2
        or not is_unmodified(critics.networks)
    ):
        return None
    found = [
        weights_of(each, x)
        for each in critics.networks
        if type(each) is MLP and is_unmodified(each) and each.activation == activation
    ]
    known = [weights for weights in found if weights is not None]
    return known if len(known) == 2 else None


def _critic_step(
    step: SACStep, x: Tensor, target: Tensor, action: Tensor | None
) -> dict[str, Tensor]:
    """One step of both critics on inputs x; ∂L/∂Q_k(s, a) = (Q_k - y) / B. `action`: which of the
    outputs, where there are several."""
    optimizer = step.critic_optimizer
    optimizer.clear_gradient()
    loss, mean, share = 0.0, 0.0, len(optimizer.views) // 2
    for number, weights in enumerate(step.critics):
        *seen, q = forward_pass(x, step.activation, weights)
        chosen = q[:, 0] if action is None else q.gather(1, action[:, None])[:, 0]
        error = chosen - target
        loss, mean = loss + 0.5 * torch.dot(error, error) / len(error), mean + 0.5 * chosen.mean()
        slope = (error / len(error))[:, None]
        delta = slope if action is None else torch.zeros_like(q).scatter_(1, action[:, None], slope)
        backward_pass(
            delta,
            seen,
            weights,
            step.activation,
            optimizer.views[number * share : (number + 1) * share],
        )
    optimizer.descend()
    return {"critic_loss": torch.as_tensor(loss), "q": torch.as_tensor(mean)}


def _actor_step(
    step: SACStep, delta: Tensor, seen: list[Tensor], value: Tensor, entropy: Tensor
) -> dict[str, Tensor]:
    """One step of the policy, with ∂L/∂output `delta`, and of log α, whose gradient is mean H - H̄;
    then one of the target networks."""
    networks, optimizer, loss, mean = (
        step.networks,
        step.actor_optimizer,
        -value.mean(),
        entropy.mean(),
    )
    metrics = {"policy_loss": loss, "entropy": mean}
    if math.isfinite(loss):
        optimizer.clear_gradient()
        backward_pass(delta, seen, step.actor, step.activation, optimizer.views)
        if step.config.temperature is None:
            optimizer.views[-1].fill_(
                mean - networks.temperature.target_entropy(step.batch.rows.action_mask)
            )
        metrics["temperature"] = torch.as_tensor(networks.temperature.alpha).reshape(()).to(loss)
        optimizer.descend()
    else:  # which rows are to blame, the book's own step knows
        with torch.enable_grad():
            output = sac_actor_loss(networks, step.batch, config=step.config)
            optimizer.step(output.loss)
        metrics = output.metrics
    polyak_update(networks.target, networks.critics, step.config.tau)
    return metrics


def _step_box(step: SACStep) -> dict[str, Tensor]:
    """With a = tanh u, u = μ + σ ε:   ∂L/∂u = (2 α a - (1 - a²) ∂Q/∂a) / B,   ∂L/∂μ = ∂L/∂u,   ∂L/∂log σ = σ ε ∂L/∂u - α /
    B."""
    batch, rows, alpha, count = (
        step.batch,
        step.batch.rows,
        step.networks.temperature.alpha,
        len(step.batch.rows.reward),
    )
    *seen, output = forward_pass(torch.cat([rows.obs, rows.next_obs]), step.activation, step.actor)
    mean, raw = output.chunk(2, -1)
    log_std = raw.clamp(*LOG_STD)
    noise = torch.cat([batch.noise, batch.next_noise])
    action, log_prob = SquashedGaussian(mean, log_std).transform(noise)

    x = torch.cat([rows.next_obs, action[count:]], 1)
    first, second = (forward_pass(x, step.activation, weights)[-1][:, 0] for weights in step.target)
    next_value = soft_value(torch.minimum(first, second), log_prob[count:], alpha)
    target = td_target(rows.reward, rows.terminated, next_value, step.config.gamma)
    metrics = _critic_step(step, torch.cat([rows.obs, rows.action], 1), target, None)

    action, log_prob, log_std, noise = (
        action[:count],
        log_prob[:count],
        log_std[:count],
        batch.noise,
    )
    value, slope = _lower(step, torch.cat([rows.obs, action], 1), action.shape[1])
    value = soft_value(value, log_prob, alpha)
    for_u = (2.0 * alpha * action - (1.0 - action * action) * slope) / count
    for_log_std = for_u * noise * log_std.exp() - alpha / count
    for_log_std.masked_fill_(_is_cut(raw[:count]), 0.0)
    seen, delta = [each[:count] for each in seen], torch.cat([for_u, for_log_std], 1)
    return metrics | _actor_step(step, delta, seen, value, -log_prob)


def _is_cut(raw: Tensor) -> Tensor:
    """Where the clamp of log σ has zero gradient."""
    low, high = LOG_STD
    if CUT_AT_THE_BOUNDS:
        return (raw <= low) | (raw >= high)
    return (raw < low) | (raw > high)


def _lower(step: SACStep, x: Tensor, actions: int) -> tuple[Tensor, Tensor]:
    """The lower of both critics on x [B, in]: [B]; and its gradient in the last `actions` columns,
    half from each where both agree."""
    passes = [forward_pass(x, step.activation, weights) for weights in step.critics]
    values = [each[-1][:, 0] for each in passes]
    gradient = torch.zeros(len(x), actions, dtype=x.dtype)
    parts = zip(step.critics, passes, values, values[::-1], strict=True)
    for weights, (*seen, _), own, other in parts:
        chosen = torch.nonzero(own <= other)[:, 0]
        delta = torch.ones(len(chosen), 1, dtype=x.dtype).masked_fill_(
            (own == other)[chosen][:, None], 0.5
        )
        some = [each[chosen] for each in seen]
        gradient.index_add_(
            0, chosen, input_gradient(delta, some, weights, step.activation)[:, -actions:]
        )
    return torch.minimum(*values), gradient


def _step_discrete(step: SACStep) -> dict[str, Tensor]:
    """∂L/∂logit_a = -π(a) (f(a) - V) / B, with f = min Q - α log π and V = Σ π f."""
    rows, alpha, count = (
        step.batch.rows,
        step.networks.temperature.alpha,
        len(step.batch.rows.reward),
    )
    *seen, logits = forward_pass(torch.cat([rows.obs, rows.next_obs]), step.activation, step.actor)
    if rows.action_mask is not None and rows.next_action_mask is not None:  # both, or neither
        logits = masked_logits(logits, torch.cat([rows.action_mask, rows.next_action_mask]))
    log_probs = logits.log_softmax(-1)
    first, second = (
        forward_pass(rows.next_obs, step.activation, weights)[-1] for weights in step.target
    )
    next_value = expected_soft_value(torch.minimum(first, second), log_probs[count:], alpha)
    target = td_target(rows.reward, rows.terminated, next_value, step.config.gamma)
    metrics = _critic_step(step, rows.obs, target, rows.action)

    first, second = (
        forward_pass(rows.obs, step.activation, weights)[-1] for weights in step.critics
    )
    q, log_probs = torch.minimum(first, second), log_probs[:count]
    value = expected_soft_value(q, log_probs, alpha)
    delta = (
        log_probs.exp()
        * (value[:, None] - q + alpha * log_probs.masked_fill(log_probs == -math.inf, 0.0))
        / count
    )
    entropy = Categorical(logits[:count]).entropy()
    return metrics | _actor_step(step, delta, [each[:count] for each in seen], value, entropy)
