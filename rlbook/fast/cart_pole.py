"""`SyncVector.advance` for several of gymnasium's cart poles: their dynamics in arrays [N], where
gymnasium steps one pole after the other.

The states stay in the environments. They are read before each step and written back after it, so
whoever looks at one of the environments, resets it or steps it alone finds what the plain form
leaves. The first steps are taken by the plain form and compared, so that another gymnasium's
dynamics are noticed.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from rlbook.interaction.vector_envs.sync_vector import SyncVector, VectorStep

FEWEST = 6
"""The number of poles below which array arithmetic takes longer than Python's."""
COMPARED = 8
"""The number of steps that are computed in both forms and compared."""
CONSTANTS = (
    "gravity",
    "masspole",
    "total_mass",
    "length",
    "polemass_length",
    "force_mag",
    "tau",
    "theta_threshold_radians",
    "x_threshold",
    "kinematics_integrator",
    "_sutton_barto_reward",
    "render_mode",
    "steps_beyond_terminated",
)
"""The attributes of a pole that its step depends on, besides its state."""
FLOAT64 = np.dtype(np.float64)
_constants = attrgetter(*CONSTANTS)
_plain = SyncVector.advance.plain  # type: ignore[attr-defined]


class Poles:
    """N cart poles and their wrappers.

    Args:
        envs: N environments, each a pole in gymnasium's own wrappers.
    """

    def __init__(self, envs: list[gymnasium.Env]) -> None:
        self.poles: list[Any] = [env.unwrapped for env in envs]
        self.limits = [_layer(env, TimeLimit) for env in envs]
        self.checkers: list[Any] = [_layer(env, PassiveEnvChecker) for env in envs]
        self.rows, self.compared = list(range(len(envs))), 0

    def is_checked(self) -> bool:
        """Whether gymnasium's checks of the first steps are done."""
        return all(
            checker is None or (checker.checked_step and checker.checked_data_reuse)
            for checker in self.checkers
        )


class PoleStep(NamedTuple):
    """The result of a step of n poles."""

    states: NDArray[np.float64]  # [n, 4]
    rewards: NDArray[np.float64]  # [n]
    terminated: NDArray[np.bool_]  # [n]


def advance(vector: SyncVector, actions: NDArray[Any]) -> VectorStep:
    """See `SyncVector.advance`."""
    if not hasattr(vector, "poles"):
        vector.poles = _poles_of(vector)  # type: ignore[attr-defined]
    poles: Poles | None = vector.poles  # type: ignore[attr-defined]
    if poles is None:
        return _plain(vector, actions)
    rows, chosen, playing = poles.rows, actions.tolist(), slice(None)
    over = vector.is_over
    if over.any():
        rows = np.flatnonzero(~over).tolist()
        playing = rows
    elapsed = [poles.limits[i]._elapsed_steps for i in rows]
    if not rows or None in elapsed:
        return _plain(vector, actions)
    step = step_poles([poles.poles[i] for i in rows], actions[playing])
    if step is None:
        return _plain(vector, actions)
    if poles.compared < COMPARED:
        answer = _plain(vector, actions)
        found = np.array([poles.poles[i].state for i in rows])
        poles.compared += poles.is_checked()
        if not (
            found.tobytes() == step.states.tobytes()
            and np.array_equal(answer.rewards[playing], step.rewards)
            and np.array_equal(answer.terminated[playing], step.terminated)
        ):
            vector.poles = None  # type: ignore[attr-defined]
        return answer
    rewards, terminated, truncated = (
        np.zeros(vector.num_envs),
        vector._terminated.copy(),
        vector._truncated.copy(),
    )
    rewards[playing], terminated[playing] = step.rewards, step.terminated
    observations = step.states.astype(np.float32)
    for i, steps, state, row in zip(rows, elapsed, step.states, observations, strict=True):
        recorder, limit = vector.envs[i], poles.limits[i]
        recorder.actions.append(chosen[i])
        recorder.obs, poles.poles[i].state, limit._elapsed_steps = row, state, steps + 1
        if steps + 1 >= limit._max_episode_steps:
            truncated[i] = True
    if step.terminated.any():
        for i in np.flatnonzero(terminated & ~over).tolist():
            poles.poles[i].steps_beyond_terminated = 0
    vector._terminated, vector._truncated = terminated, truncated
    seen = [recorder.obs for recorder in vector.envs]
    return VectorStep(seen, rewards, terminated, truncated, {}, {}, {})


def step_poles(poles: list[Any], actions: NDArray[Any]) -> PoleStep | None:
    """The next states of n poles, by gymnasium's equations in gymnasium's order; None where the
    poles differ, have fallen, are drawn on a screen, or an action is neither 0 nor 1."""
    constants = _constants(poles[0])
    states = [pole.state for pole in poles]
    if (
        constants[-2:] not in ((None, None), ("rgb_array", None))
        or actions.dtype.kind not in "iu"
        or any(_constants(pole) != constants for pole in poles)
        or any(type(state) is not np.ndarray or state.dtype is not FLOAT64 for state in states)
        or not {0, 1}.issuperset(actions.tolist())
    ):
        return None
    gravity, masspole, total_mass, length, polemass_length, force_mag, tau = constants[:7]
    widest_angle, farthest, integrator, punishes = constants[7:11]
    x, x_dot, theta, theta_dot = np.array(states).T
    force = np.where(actions == 1, force_mag, -force_mag)
    cosine, sine = np.cos(theta), np.sin(theta)
    pushed = (force + polemass_length * np.square(theta_dot) * sine) / total_mass
    theta_acc = (gravity * sine - cosine * pushed) / (
        length * (4.0 / 3.0 - masspole * np.square(cosine) / total_mass)
    )
    x_acc = pushed - polemass_length * theta_acc * cosine / total_mass
    if integrator == "euler":
        x, x_dot = x + tau * x_dot, x_dot + tau * x_acc
        theta, theta_dot = theta + tau * theta_dot, theta_dot + tau * theta_acc
    else:
        x_dot, theta_dot = x_dot + tau * x_acc, theta_dot + tau * theta_acc
        x, theta = x + tau * x_dot, theta + tau * theta_dot
    fallen = (x < -farthest) | (x > farthest) | (theta < -widest_angle) | (theta > widest_angle)
    rewards = np.where(fallen, -1.0, 0.0) if punishes else np.ones(len(poles))
    return PoleStep(np.array((x, x_dot, theta, theta_dot)).T.copy(), rewards, fallen)


def _poles_of(vector: SyncVector) -> Poles | None:
    """The poles of a vector environment; None where one of its environments is anything else."""
    envs = [recorder.env for recorder in vector.envs]
    return Poles(envs) if len(envs) >= FEWEST and all(map(_is_pole, envs)) else None


def _is_pole(env: gymnasium.Env) -> bool:
    """Whether this is gymnasium's cart pole, inside only gymnasium's time limit and checks."""
    limits = 0
    while type(env) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        limits += type(env) is TimeLimit
        env = env.env  # type: ignore[attr-defined]
    return type(env) is CartPoleEnv and "step" not in vars(env) and limits == 1


def _layer(env: gymnasium.Env, kind: type[gymnasium.Wrapper]) -> Any:
    """The wrapper of this kind; None where there is none."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) is kind:
            return env
        env = env.env
    return None
