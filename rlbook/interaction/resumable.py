"""An environment that can be resumed in another process, in the middle of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import ArrayLike

from rlbook.agent import State
from rlbook.checks import saved_array, saved_count
from rlbook.envs.space_batches import is_equal
from rlbook.errors import TrainingError
from rlbook.interaction.episodes import draw_seed
from rlbook.interaction.guards import unpack_reset, unpack_step
from rlbook.interaction.held_generators import HeldGenerators
from rlbook.interaction.image_preprocessing import (
    FORGETFUL,
    REMEMBERING,
    restore_wrapper_states,
    wrapper_states,
)
from rlbook.interaction.observed_masks import ObservedMask
from rlbook.seeding import can_save, rng_state, set_rng_state

WRAPPERS = "wrappers"
"""The key of the wrappers' states in a snapshot."""
HELD = "generators"
"""The key in a snapshot of the states of an environment's further generators."""
SEEDED = "seeded"
"""The key in a snapshot of the last seed that the caller gave, and how many resets ago, for an
environment that is given a seed at every reset."""
PLAIN = (TimeLimit, OrderEnforcing, PassiveEnvChecker, ObservedMask, *FORGETFUL, *REMEMBERING)
"""Wrappers whose state, if any, is saved along with a snapshot."""


class ResumableEnv(gymnasium.Wrapper):
    """Records the seed and the actions of the episode in progress, so that it can be replayed.

    Where the environment has `snapshot` and `restore`, those are used. Otherwise the episode is
    replayed: from the generators' states (or the seed) at the reset, with the actions since. What
    an environment carries from one episode to the next beside its generators (`held_generators`) is
    lost. What gymnasium's wrappers of images remember is saved in both cases
    (`image_preprocessing.wrapper_states`).

    Some environments make a new generator at each reset without a seed, from the operating system's
    entropy: nothing would repeat their episodes. Those are given a seed at every reset, which the
    last one that the caller gave determines.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.obs: Any = None  # the current observation
        self.actions: list[Any] = []  # since the reset
        self._start: State = {}
        self._held = HeldGenerators(env.unwrapped)
        # the seed that the caller gave last, and the resets since; whether those need seeds, too
        self._given, self._since, self._needs_seeds = 0, 0, False
        self._limits = _limits_beside_a_snapshot(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.actions.clear()
        answer = (
            self._reset_to_replay(seed, options)
            if self._limits is None
            else self.env.reset(seed=seed, options=options)
        )
        self.obs, info = unpack_reset(answer)
        return self.obs, info

    def _reset_to_replay(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """A reset whose episode can be replayed."""
        self._given, self._since = (self._given, self._since + 1) if seed is None else (seed, 0)
        if seed is None and self._needs_seeds:
            return self._reset_seeded(options)
        self._held.keep()
        own = self._own_generator()
        self._start = {
            "seed": seed,
            "rng": rng_state(own) if seed is None and can_save(own) else None,
            **self._saved_wrappers(),
        }
        if seed is not None:
            return self.env.reset(seed=seed, options=options)
        before = self._generators()
        answer = self.env.reset(options=options)
        if self._generators() == before or self._is_repeated(options):
            return answer
        self._needs_seeds = True
        return self._reset_seeded(options)

    def _reset_seeded(self, options: dict[str, Any] | None) -> Any:
        seed = draw_seed(np.random.default_rng((self._given, self._since)))
        self._held.keep()
        self._start = {
            "seed": seed,
            "rng": None,
            SEEDED: [self._given, self._since],
            **self._saved_wrappers(),
        }
        return self.env.reset(seed=seed, options=options)

    def _is_repeated(self, options: dict[str, Any] | None) -> bool:
        """Whether one more reset, from the same states as the last one, leaves the generators in
        the same states."""
        after = self._states()
        try:
            self._put_back(self._start | {HELD: self._held.states()})
        except ValueError:  # the generators are others now
            return False
        self.env.reset(options=options)
        return is_equal(self._states(), after)

    def _generators(self) -> tuple[Any, ...]:
        """The environment's generators; a generator equals only itself."""
        return self._own_generator(), *self._held.current_generators()

    def _own_generator(self) -> Any:
        """gymnasium's generator, which a package may have replaced by one of an older kind."""
        return getattr(self.unwrapped, "np_random", None)

    def _states(self) -> tuple[State, ...]:
        return tuple(
            map(
                rng_state,
                filter(can_save, [self._own_generator(), *self._held.current_generators()]),
            )
        )

    def step(self, action: ArrayLike) -> Any:
        self.actions.append(action)
        result = unpack_step(self.env.step(action))
        self.obs = result[0]
        return result

    def snapshot(self) -> State:
        """All state that `restore` needs."""
        if self._limits is None:
            held = self._held.states()
            return {
                "obs": self.obs,
                **self._start,
                **({HELD: held} if held else {}),
                "actions": np.array(self.actions),
            }
        env: Any = self.unwrapped
        return {
            "obs": self.obs,
            "env": env.snapshot(),
            "elapsed": [limit._elapsed_steps for limit in self._limits],
            **self._saved_wrappers(),
        }

    def _saved_wrappers(self) -> State:
        states = wrapper_states(self.env)
        return {WRAPPERS: states} if states else {}

    def restore(self, state: State) -> None:
        """Restores the state that `snapshot` saved.

        Raises:
            TrainingError: the replayed episode led elsewhere, so the environment is not what its
                generator and the actions make it.
        """
        self.obs, self.actions = state["obs"], []
        if self._limits is None or "env" not in state:
            return self._replay(state)
        env: Any = self.unwrapped
        self.env.reset()
        env.restore(state["env"])
        for limit, elapsed in zip(self._limits, state["elapsed"], strict=True):
            limit._elapsed_steps = saved_count("elapsed steps", elapsed)
        restore_wrapper_states(self.env, state.get(WRAPPERS, ()))
        self._clear_drawn_seed()

    def _clear_drawn_seed(self) -> None:
        """Marks the seed as unknown, as gymnasium does (-1). It drew one for a generator whose
        state has been restored since, so the draw has no effect."""
        env: Any = self.unwrapped
        if getattr(env, "_np_random_seed", None) is not None:
            env._np_random_seed = -1

    def _replay(self, state: State) -> None:
        kept = ("seed", "rng", SEEDED, WRAPPERS)
        self._start = {name: state[name] for name in kept if name in state}
        self.actions = _saved_actions(state["actions"], self.env.action_space)
        self._needs_seeds = SEEDED in state
        if self._needs_seeds:
            self._given, self._since = (saved_count(SEEDED, number) for number in state[SEEDED])
        elif state["seed"] is not None:
            self._given = saved_count("seed", state["seed"])
        try:
            self._put_back(state)
        except ValueError:
            self.env.reset(seed=0)  # some make their generators only here
            self._put_back(state)
        if state["rng"] is not None:
            self._clear_drawn_seed()
        obs, _ = self.env.reset(seed=state["seed"])
        for action in self.actions:
            obs = self.env.step(action)[0]
        if not is_equal(obs, self.obs):
            others = (
                ", or a global one that the run's other environments (num_envs) draw from"
                if self._held.draws_globally()
                else ""
            )
            raise TrainingError(
                "the episode in progress cannot be resumed: replaying its actions led to a "
                "different observation, so the environment depends on more than its seed and "
                f"its random generators{others}; with methods snapshot() and restore(state) it "
                "could be resumed"
            )

    def _put_back(self, state: State) -> None:
        """Restores generators and wrappers to their states before the reset. Raises ValueError if
        the environment does not hold such generators."""
        self._held.restore(state.get(HELD, ()))
        if WRAPPERS in state:
            restore_wrapper_states(self.env, state[WRAPPERS])
        if state["rng"] is not None:
            set_rng_state(self.unwrapped.np_random, state["rng"])


def _limits_beside_a_snapshot(env: gymnasium.Env) -> list[TimeLimit] | None:
    """The time limits to save along with a snapshot; None if the episode must be replayed (no
    snapshot, or wrappers that may hold state)."""
    if not hasattr(env.unwrapped, "snapshot") or not hasattr(env.unwrapped, "restore"):
        return None
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in PLAIN:
            return None
        limits += [env] if isinstance(env, TimeLimit) else []
        env = env.env
    return limits


def _saved_actions(saved: Any, space: spaces.Space) -> list[Any]:
    """The actions of the episode in progress, as the environment takes them. Raises ValueError
    where they are none of a discrete space."""
    if not isinstance(space, spaces.Discrete):
        return list(saved)
    start = int(space.start)
    # as Python's integers, since some environments refuse numpy's
    if not len(saved):
        return []
    end = start + int(space.n)
    return saved_array("actions", saved, np.int64, low=start, high=end).tolist()
