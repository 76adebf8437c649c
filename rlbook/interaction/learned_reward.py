"""Environments whose reward comes from a reward model, alone or added to the environment's own.
Everything else is unchanged.

What the environment itself would have paid is in the log: `true_return`, of each training episode
when it ends. Beside the paid `return` it shows whether the model still rewards what it was meant to
reward. Where the model is an ensemble, `disagreement` is the standard deviation of its members.

Beside it: where the environment has a `model_weight` w, a step earns what the environment says and
w times what the model says, which is logged as `reward/model` where an episode ends.

An exploration bonus (`rlbook.interaction.exploration_bonus`) pays in the same way, beside the
environment's own reward. It learns from the steps that it scores, so its state is saved with the
environment's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent, State
from rlbook.checks import saved_array, saved_number
from rlbook.errors import RequestError
from rlbook.interaction.guards import METRICS
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.round_rewards import Scored, round_scorer
from rlbook.interaction.spaces import (
    Observations,
    adapt_to,
    encode_actions,
    length_free_space,
    outermost_snapshot_env,
)
from rlbook.interaction.vector_envs.sync_vector import stack_observations

LOGGED = "reward/model"


class LearnedReward(Protocol):
    """The interface of a reward model; see `rlbook.algorithms.imitation.reward_model`."""

    def adapt_observations(self, observations: Observations) -> Any:
        """The environment's own observations [N, ...] converted to the model's format."""
        ...

    def score_steps(
        self,
        obs: NDArray[Any],
        action: NDArray[Any],
        next_obs: NDArray[Any],
        done: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The rewards [N] of N steps, and the disagreement of the ensemble's members [N]; `done`
        marks steps that ended their episode."""
        ...


class LearnedRewardEnv(gymnasium.Wrapper):
    """One environment rewarded by a model. The wrapped environment keeps the latest observation.

    Args:
        env: the environment, which keeps its last observation.
        model: pays.
        caution: λ ≥ 0; what is paid is the mean of an ensemble minus λ times its standard
            deviation.
        added: whether it is a bonus, which is added to the environment's reward.
    """

    def __init__(
        self,
        env: ResumableEnv | LearnedRewardEnv,
        model: LearnedReward,
        caution: float = 0.0,
        *,
        added: bool = False,
    ) -> None:
        super().__init__(env)
        self.model, self.caution, self.added = model, caution, added
        self._true_return = 0.0  # of the episode in progress, in the environment's own reward

    @property
    def obs(self) -> Any:
        """The latest observation."""
        return self.env.obs  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._true_return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: ArrayLike) -> Any:
        before = self._row(self.obs)
        after, own, terminated, truncated, info = self.env.step(action)
        over = np.array([terminated or truncated])
        chosen = np.asarray(action)[None]
        reward, spread = _model_rewards(
            self.model,
            before,
            chosen,
            self._row(after),
            over,
            self.env.action_space,
            self.caution,
            np.ones(1, dtype=bool),
        )
        self._true_return += float(own)  # type: ignore[arg-type]
        named = {name: float(value[0]) for name, value in spread.items()}
        if over[0]:
            named["true_return"] = self._true_return
        paid, weight = float(reward[0]), model_weight(self.env)
        if self.added:
            paid = float(own) + paid  # type: ignore[arg-type]
        elif weight is not None:
            named |= {LOGGED: paid} if over[0] else {}
            paid = float(own) + weight * paid  # type: ignore[arg-type]
        return after, paid, terminated, truncated, _add_metrics(info, named)

    def snapshot(self) -> State:
        """All state needed to continue."""
        return {
            "env": self.env.get_wrapper_attr("snapshot")(),
            "true_return": self._true_return,
            **_model_state(self.model),
        }

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        self.env.get_wrapper_attr("restore")(state["env"])
        _load_model(self.model, state)
        self._true_return = saved_number("true_return", state["true_return"])

    def _row(self, obs: Observations) -> Any:
        """One observation as a batch of size 1."""
        return stack_observations(self.env.observation_space, [obs])


class LearnedRewardVectorEnv(VectorWrapper):
    """N environments rewarded by a model; environments whose episode has ended receive no reward.
    Arguments as for `LearnedRewardEnv`."""

    def __init__(
        self, env: VectorEnv, model: LearnedReward, caution: float = 0.0, *, added: bool = False
    ) -> None:
        super().__init__(env)
        self.model, self.caution, self.added = model, caution, added
        # of the episodes in progress, in the environment's own reward
        self._true_return = np.zeros(env.num_envs)
        self._obs: Any = None  # [N, ...], before the next step
        self._over = np.zeros(env.num_envs, dtype=bool)
        self._deferred = False  # whether rewards wait for `score_round`

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        self._obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        mask = (options or {}).get("reset_mask")
        begun = np.ones_like(self._over) if mask is None else np.asarray(mask)
        self._over, self._true_return = self._over & ~begun, np.where(begun, 0.0, self._true_return)
        return self._obs, info

    def step(self, actions: ArrayLike) -> Any:
        before, waiting = self._obs, self._over
        self._obs, own, terminated, truncated, info = self.env.step(actions)
        self._over = terminated | truncated
        if self._deferred:
            return self._obs, np.zeros(self.num_envs), terminated, truncated, info
        ended, space = self._over & ~waiting, self.env.single_action_space
        reward, named = _model_rewards(
            self.model, before, actions, self._obs, ended, space, self.caution, ~waiting
        )
        self._true_return += np.where(waiting, 0.0, own)
        named["true_return"] = np.where(ended, self._true_return, np.nan)
        reward, weight = np.where(waiting, 0.0, reward), model_weight(self.env)
        if self.added:
            reward = own + reward
        elif weight is not None:
            named[LOGGED] = np.where(ended, reward, np.nan)
            reward = own + weight * reward
        return self._obs, reward, terminated, truncated, _add_metrics(info, named)

    def defer_rewards(self, deferred: bool) -> bool:
        """Rewards can wait if the environment's can, and the model judges whole episodes
        (`judges_episodes`)."""
        scorer = round_scorer(self.env)
        if scorer is None or not getattr(self.model, "judges_episodes", False):
            return not deferred
        self._deferred = deferred and scorer.defer_rewards(True)
        if not self._deferred:
            scorer.defer_rewards(False)
        return self._deferred == deferred

    def score_round(self) -> Scored:
        """The rewards [N] of the episodes that have ended, from one call of the model."""
        scorer, ended = round_scorer(self.env), self._over
        assert scorer is not None
        own, named = scorer.score_round()
        space = self.env.single_action_space
        actions = np.zeros(self.num_envs, dtype=np.int64)
        reward, spread = _model_rewards(
            self.model, self._obs, actions, self._obs, ended, space, self.caution, ended
        )
        named = {**named, **spread, "true_return": np.where(ended, own, np.nan)}
        reward, weight = np.where(ended, reward, 0.0), model_weight(self.env)
        if weight is None:
            return reward, named
        return own + weight * reward, {**named, LOGGED: np.where(ended, reward, np.nan)}

    def snapshot(self) -> State:
        """All state needed to continue."""
        return {
            "env": outermost_snapshot_env(self.env).snapshot(),
            "obs": self._obs,
            "over": self._over,
            "true_return": self._true_return,
            **_model_state(self.model),
        }

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        outermost_snapshot_env(self.env).restore(state["env"])
        _load_model(self.model, state)
        shape = self._over.shape
        self._obs, self._over = state["obs"], saved_array("over", state["over"], np.bool_, shape)
        self._true_return = saved_array("true_return", state["true_return"], np.float64, shape)


def check_readable(model: Agent, env: gymnasium.Env | VectorEnv, name: str) -> None:
    """Raises RequestError unless a reward model can read the steps of an environment, called `name`
    in the message. Texts may be longer or shorter than those it was trained on, up to what its
    language model reads."""
    found, made = adapt_to(type(model), env, model.config), model.adaptation
    for what in ("observation_space", "action_space"):
        here, there = (length_free_space(getattr(one, what, None)) for one in (found, made))
        if here != there:
            ours, theirs = (
                f"a vocabulary of {one} tokens"
                if isinstance(one, int)
                else f"the {what.replace('_', ' ')} {str(one)[:60]}"
                for one in (here, there)
            )
            raise RequestError(
                f"the reward model was made for another environment: it has {theirs}, but {name} "
                f"has {ours}"
            )
    codec, other = getattr(model, "codec", None), getattr(env.unwrapped, "codec", None)
    if codec is None or other is None:
        return
    if codec.backend.to_str() != other.backend.to_str():
        raise RequestError(
            f"the reward model must have the tokenizer of {name}, but has another one"
        )
    longest = int(found.observation_space["length"].n) - 1  # type: ignore[index]
    if longest > codec.limit:
        raise RequestError(
            f"the reward model reads at most {codec.limit} tokens, but a text of {name} can have "
            f"{longest}; lower max_new_tokens by {longest - codec.limit}"
        )


def model_weight(env: gymnasium.Env | VectorEnv) -> float | None:
    """The weight of the model's reward when it is added to the environment's own; None if it
    replaces it."""
    return getattr(env.unwrapped, "model_weight", None)


def _model_rewards(
    model: LearnedReward,
    obs: Observations,
    actions: ArrayLike,
    next_obs: Observations,
    done: NDArray[np.bool_],
    space: spaces.Space,
    caution: float,
    active: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """The model's rewards [N] for steps in the environment's own spaces, and the numbers to log;
    NaN where there is none. A model that learns is told which of the steps were taken, `active`."""
    chosen = encode_actions(np.asarray(actions), space)
    taken = {"active": active} if _learns(model) else {}
    reward, spread = model.score_steps(
        model.adapt_observations(obs), chosen, model.adapt_observations(next_obs), done, **taken
    )
    if spread is None:
        return reward, {}
    return reward - caution * np.nan_to_num(spread), {"disagreement": spread}


def _learns(model: LearnedReward) -> bool:
    """Whether the model changes with the steps that it scores, as a bonus does."""
    return getattr(model, "learns", False)


def _model_state(model: LearnedReward) -> State:
    """The model's state to save; nothing for one that does not learn."""
    return {"bonus": model.state_dict()} if _learns(model) else {}  # type: ignore[attr-defined]


def _load_model(model: LearnedReward, state: State) -> None:
    if _learns(model):
        model.load_state_dict(state["bonus"])  # type: ignore[attr-defined]


def _add_metrics(info: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """`info` with further metrics for the log; those of a nested model stay."""
    within = info.get(METRICS, {})
    return {**info, METRICS: {**within, **named, **within}}
