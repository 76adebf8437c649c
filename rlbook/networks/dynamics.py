"""A learned model of an environment: an ensemble of networks that predict the next step.

Shapes: K members, B rows, O observation, A action components (or actions, one-hot).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlbook.checks import check_memory
from rlbook.data.replay import Transitions

MODEL_METRICS = {
    "model_loss": "mean over the last model update of ½ the summed squared errors of the "
    "standardised differences and rewards, plus the cross-entropy of the terminations",
    "one_step_error": "RMS error of s' on the steps since the last model update, before training "
    "on them, in standard deviations of s' - s; 1 is no better than the mean",
    "reward_error": "RMS error of the predicted reward on those steps, in reward units",
    "rollout_error": "RMS error of the state after `horizon` predicted steps with the actions "
    "that were taken, on those steps, in standard deviations of s",
    "grad_norm": "L2 norm of the model's gradient before clipping",
}
"""The metrics computed in this file, by name."""


class Prediction(NamedTuple):
    """Each member's prediction of the next step."""

    next_obs: Tensor  # [K, B, O]
    reward: Tensor  # [K, B], in reward units
    terminated: Tensor  # [K, B], log-odds of the episode's termination


class BatchedEnsemble(nn.Module):
    """K networks of the same architecture with separate weights: [K, B, in] → [K, B, out].

    All K run as one product of stacks of matrices. SiLU between the layers, since the function to
    be learned is smooth.
    """

    def __init__(self, members: int, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        weights = members * sum((i + 1) * o for i, o in pairwise(sizes))
        check_memory("hidden_sizes: the number of weights", weights, 16)
        self.weight, self.bias = nn.ParameterList(), nn.ParameterList()
        for i, o in pairwise(sizes):
            bound = i**-0.5
            weight, bias = torch.empty(members, i, o), torch.empty(members, 1, o)
            self.weight.append(nn.Parameter(weight.uniform_(-bound, bound, generator=generator)))
            self.bias.append(nn.Parameter(bias.uniform_(-bound, bound, generator=generator)))

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.weight) - 1
        for layer, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = x if layer == last else nn.functional.silu(x)
        return x


class WorldModel(nn.Module):
    """Predicts s' - s, r and the log-odds of termination from s and a; each ensemble member gives
    its own prediction.

    The networks see and predict standardised numbers: differences of the observation rather than
    the next observation, because most of it stays as it is from one step to the next.

    Args:
        observation_size: O.
        action_size: A.
        members: K.
        hidden_sizes: units in each hidden layer.
        generator: draws the initial weights.
    """

    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        members: int,
        hidden_sizes: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.members, self.observation_size = members, observation_size
        self.action_size = action_size
        inputs, outputs = observation_size + action_size, observation_size + 1
        self.ensemble = BatchedEnsemble(members, (inputs, *hidden_sizes, outputs + 1), generator)
        for name, size in (("input", inputs), ("output", outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))

    @torch.no_grad()
    def standardise(self, rows: Transitions, actions: Tensor) -> None:
        """Sets means and standard deviations from all B stored transitions; actions are [B, A]."""
        inputs = torch.cat([rows.obs.float(), actions], dim=-1)
        for name, numbers in (("input", inputs), ("output", _outputs(rows))):
            std, mean = torch.std_mean(numbers.double(), dim=0, correction=0)
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_std").copy_(torch.where(std > 1e-6, std, 1.0))

    def outputs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Standardised state difference and reward, then the log-odds of termination: [K, B, O +
        2].

        Args:
            obs: [K, B, O], or [B, O] for all members.
            actions: [K, B, A], or [B, A].
        """
        seen = (torch.cat([obs, actions], dim=-1) - self.input_mean) / self.input_std
        return self.ensemble(seen.expand(self.members, -1, -1))

    def forward(self, obs: Tensor, actions: Tensor) -> Prediction:
        """The expected next step, in the environment's units; shapes as in `outputs`."""
        out = self.outputs(obs, actions)
        numbers = out[..., :-1] * self.output_std + self.output_mean
        return Prediction(obs + numbers[..., :-1], numbers[..., -1], out[..., -1])

    def targets(self, rows: Transitions) -> Tensor:
        """The regression targets for the first components of `outputs`, difference and reward:
        [..., O + 1]."""
        return (_outputs(rows) - self.output_mean) / self.output_std

    def encode_action(self, action: Tensor) -> Tensor:
        """Actions in the networks' input format: integers one-hot, [..., A]; others unchanged."""
        whole = not action.is_floating_point()
        return F.one_hot(action, self.action_size).float() if whole else action.float()


def _outputs(rows: Transitions) -> Tensor:
    difference = rows.next_obs.float() - rows.obs.float()
    return torch.cat([difference, rows.reward.float()[..., None]], dim=-1)


def model_errors(
    model: WorldModel, rows: Transitions, num_envs: int, horizon: int
) -> dict[str, float]:
    """The model's prediction errors: `one_step_errors` and `rollout_errors`.

    Args:
        model, num_envs, horizon: as there.
        rows: stored steps in their order; of the oldest moment some environments may be missing.
    """
    first = len(rows.reward) % num_envs
    rows = rows.map_fields(lambda field: field[first:])
    actions = model.encode_action(rows.action)
    rolled = rollout_errors(model, rows, actions, num_envs, horizon)
    return one_step_errors(model, rows, actions) | rolled


@torch.no_grad()
def one_step_errors(model: WorldModel, rows: Transitions, actions: Tensor) -> dict[str, float]:
    """The error of the ensemble's mean prediction for B recorded steps.

    Returns:
        "one_step_error", the RMS error of s' in standard deviations of s' - s, over all components;
        "reward_error", that of r, in reward units.
    """
    predicted = model(rows.obs.float(), actions)
    error = (predicted.next_obs.mean(0) - rows.next_obs) / model.output_std[:-1]
    reward = predicted.reward.mean(0) - rows.reward
    return {
        "one_step_error": float(error.square().mean().sqrt()),
        "reward_error": float(reward.square().mean().sqrt()),
    }


@torch.no_grad()
def rollout_errors(
    model: WorldModel,
    rows: Transitions,
    actions: Tensor,
    num_envs: int,
    horizon: int,
    *,
    unit: Tensor | None = None,
) -> dict[str, float]:
    """The error of multi-step predictions, in which the model's output is its next input.

    Args:
        model: each member predicts from its own last prediction; their mean is compared.
        rows: T · N steps, the N environments of one moment side by side.
        actions: [T N, A], what was done.
        num_envs: N.
        horizon: H, steps that are predicted in a row.
        unit: [O], divides the errors; None: the standard deviations of s over the steps that the
            model has learned from.

    Returns:
        "rollout_error", the RMS error of the state after H steps in that unit; {} where no H steps
        in a row lie within one episode.
    """
    # [T, N, ·]
    obs, next_obs, acted = (
        x.float().unflatten(0, (-1, num_envs)) for x in (rows.obs, rows.next_obs, actions)
    )
    starts = len(obs) - horizon + 1
    if starts < 1:
        return {}
    goes_on = (next_obs[:-1] == obs[1:]).all(-1)  # [T-1, N]
    inside = goes_on.new_ones(starts, num_envs)
    for step in range(horizon - 1):
        inside = inside & goes_on[step : step + starts]
    if not inside.any():
        return {}
    state = obs[:starts][inside].expand(model.members, -1, -1)
    for step in range(horizon):
        taken = acted[step : step + starts][inside]
        state = model(state, taken.expand(model.members, -1, -1)).next_obs
    reached = next_obs[horizon - 1 :][inside]
    unit = model.input_std[: model.observation_size] if unit is None else unit
    error = (state.mean(0) - reached) / unit
    return {"rollout_error": float(error.square().mean().sqrt())}
