"""Semi-gradient updates of linear weights: towards n-step targets, or by eligibility traces.

    n-step      w ← w + α [ G_{t:t+n} - v(s_t) ] ∇v(s_t)         n steps later
    λ           z ← z + α ∇v(s_t);  w ← w + δ_t z;  z ← γ λ z     at once

The gradient of a linear value is x(s), in the column of the action taken. It is a semi-gradient,
because the target depends on w too and its derivative is ignored. With binary features, replacing
traces set the components of the active ones to α instead of adding α.

Both handle an episode's end as with a table (see `windows` and `traces`): the remaining n-step
targets are all computed before the first of them is learned, and traces are reset with the episode.

Source: Sutton & Barto 2018, eq. 9.15 and 12.5 to 12.7; replacing traces: the box on page 305.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.algorithms.value.linear import LinearAgent, LinearConfig
from rlbook.checks import one_of, positive_int, saved_array, unit_interval
from rlbook.interaction.features import add, linear


def semi_gradient_update(
    weights: NDArray[np.float64], features: NDArray, target: float, step_size: float
) -> float:
    """w ← w + α [ G - v(s) ] ∇v(s), in place on w [d], one column of weights.

    Args:
        features: x(s), whose components v(s) = w·x(s) adds up.
        target: G, in reward units.
        step_size: α, that of a weight.

    Returns:
        |δ| in reward units.
    """
    error = target - float(linear(weights, features))
    add(weights, features, step_size * error)
    return abs(error)


def trace_update(
    weights: NDArray[np.float64],
    traces: NDArray[np.float64],
    features: NDArray,
    column: int,
    target: float,
    step_size: float,
    *,
    decay: float,
    replacing: bool = False,
) -> float:
    """z ← z + α ∇v(s);  w ← w + δ z;  z ← γ λ z, in place on w and z, [d, 1] or [d, A].

    Args:
        features, column: x(s), and where in w its values are.
        target: r + γ v(s'), in reward units.
        step_size: α, that of a weight.
        decay: γ λ; 0 where the episode ends.
        replacing: whether the visited components of z become α and do not grow by it.

    Returns:
        |δ| in reward units.
    """
    error = target - float(linear(weights[:, column], features))
    if replacing:
        traces[features, column] = step_size
    else:
        add(traces[:, column], features, step_size)
    weights += error * traces
    traces *= decay
    return abs(error)


ACCUMULATING, REPLACING = TRACES = ("accumulating", "replacing")


@dataclass(frozen=True)
class SemiGradientConfig(LinearConfig):
    """Multi-step learning: by n-step targets, or by eligibility traces."""

    # n, steps of reward in a target, at least 1; longer than an episode: Monte Carlo
    n: Annotated[int, positive_int] = 1
    # λ of the eligibility traces, in [0, 1]
    trace_decay: Annotated[float, unit_interval] = 0.0
    # kind of traces: accumulating or replacing
    traces: Annotated[str, one_of(*TRACES)] = ACCUMULATING

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n > 1 and self.trace_decay > 0:
            raise ValueError(
                f"n must be 1 with trace_decay above 0, got {self.n}; use one of the two"
            )


class SemiGradientAgent(LinearAgent):
    """A linear agent whose config is a `SemiGradientConfig`."""

    def __init__(self, env: gymnasium.Env, config: SemiGradientConfig, seed: int = 0) -> None:
        """Raises ValueError if the traces cannot be replacing."""
        super().__init__(env, config, seed)
        if config.traces == REPLACING and config.trace_decay > 0 and not self.features.binary:
            raise ValueError(
                f"traces 'replacing' need binary features, and {config.features!r} are dense"
            )
        self.window: list[tuple[NDArray, int, float]] = []
        """Features, column and reward of the last steps of the episode, at most n."""
        self.traces = np.zeros(self.weights.shape if config.trace_decay > 0 else (0, 0))
        """z, with the step size included: [d, 1] or [d, A], if there are traces."""

    def begin(self) -> None:
        self.window.clear()
        self.traces[:] = 0.0

    def update(
        self, features: NDArray, column: int, reward: float, next_value: float, done: bool
    ) -> float | None:
        """Learns from a step.

        Args:
            features: x(s), of the state before the step.
            column: 0, or the action.
            reward: in reward units.
            next_value: what follows is worth, undiscounted; 0 where the episode terminated.
            done: whether the episode ends here.

        Returns:
            |δ| in reward units, of several updates the mean; None where none was made.
        """
        if len(self.traces):
            config = self.config
            return trace_update(
                self.weights,
                self.traces,
                features,
                column,
                reward + config.gamma * next_value,
                self.step_size,
                decay=0.0 if done else config.gamma * config.trace_decay,
                replacing=config.traces == REPLACING,
            )
        self.window.append((features, column, reward))
        if not done and len(self.window) < self.config.n:
            return None
        targets = self._returns(next_value)
        learned = self.window if done else self.window[:1]
        sizes = [
            semi_gradient_update(self.weights[:, column], features, target, self.step_size)
            for (features, column, _), target in zip(learned, targets, strict=False)
        ]
        self.window = self.window[len(learned) :]
        return sum(sizes) / len(sizes)

    def _returns(self, total: float) -> list[float]:
        """The return from each step of the window to its end, where `total` follows."""
        found = []
        for _, _, reward in reversed(self.window):
            total = reward + self.config.gamma * total
            found.append(total)
        return found[::-1]

    def state_dict(self) -> State:
        features, columns, rewards = zip(*self.window, strict=True) if self.window else ((), (), ())
        kind, width = self._features_are()
        window = {
            "features": np.array(features, dtype=kind).reshape(-1, width),
            "columns": np.array(columns, dtype=np.int64),
            "rewards": np.array(rewards, dtype=np.float64),
        }
        return super().state_dict() | {"window": window, "traces": self.traces.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.traces = saved_array("traces", state["traces"], np.float64, self.traces.shape)
        saved, count = state["window"], len(state["window"]["rewards"])
        if count >= self.config.n:
            raise ValueError(f"the saved window must have fewer than {self.config.n} steps")
        rewards = saved_array("rewards", saved["rewards"], np.float64)
        columns = saved_array(
            "columns", saved["columns"], np.int64, (count,), low=0, high=self.columns()
        )
        kind, width = self._features_are()
        low, high = (0, len(self.weights)) if self.features.binary else (-np.inf, np.inf)
        features = saved_array(
            "features", saved["features"], kind, (count, width), low=low, high=high
        )
        self.window = list(zip(features, columns.tolist(), rewards.tolist(), strict=True))

    def _features_are(self) -> tuple[type, int]:
        """The format of x(s): its dtype, and how many entries there are, K or d."""
        if self.features.binary:
            return np.int64, self.features.num_active
        return np.float64, self.features.num_features
