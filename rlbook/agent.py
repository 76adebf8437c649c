"""The interface: an agent acts, and learns from the step that followed.

              action
   ┌───────┐ ─────────► ┌─────────────┐
   │ Agent │            │ Environment │
   └───────┘ ◄───────── └─────────────┘
       Step(obs, action, reward, next_obs, terminated, truncated, valid)

Every algorithm of the book is an `Agent`. The loop in `rlbook.training` calls `act` and `learn` in turn and owns the resets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

State = dict[str, Any]
"""Nested dicts whose leaves are numpy arrays, torch tensors, numbers, strings, booleans, None, or lists of those."""

Metrics = dict[str, float]
"""Name → number. A name's unit and meaning stand in the algorithm's `METRICS`."""

Totals = dict[str, tuple[float, int]]
"""Name → sum and count, where many steps were taken at once; what is logged is the mean."""


class Step(NamedTuple):
    """What followed one action.

    A batched agent (`Agent.batched`) gets arrays with a leading axis N, one row a stream; any other agent gets scalars.

    `next_obs` is the true successor, also where the episode ended: the loop resets afterwards.
    `truncated` is never true together with `terminated`: only `terminated` stops bootstrapping.
    `valid` is false for a stream whose episode ended earlier in this round (`rollout = "episodes"`); ignore such rows.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    valid: Any = True


class Agent(ABC):
    """Acts, and learns from the step that followed. See the module docstring."""

    Config: ClassVar[type]
    """A frozen dataclass: every hyper-parameter, with unit and meaning in the comment behind it."""
    METRICS: ClassVar[dict[str, str]] = {}
    """What each number in the log means, with its unit."""
    batched: ClassVar[bool] = False
    """True: acts in a VectorEnv with N streams, arrays [N, ...]. False: acts in one Env, scalars."""
    observations: ClassVar[str] = "any"
    """What observations are turned into: "index" (one integer), "vector" (float32 [O]), "policy" (what the policy takes), "any"."""
    actions: ClassVar[str] = "any"
    """What the environment's actions must look like: "discrete" or "any" (discrete or a bounded box)."""
    default_num_envs: ClassVar[int] = 1
    """Streams side by side where the user names no number."""
    rollout: str = "steps"
    """"episodes": all N streams start together, and a finished one waits (`step.valid` is false) until the last one ends."""
    group_size: int = 1
    """With `rollout = "episodes"`: this many neighbouring streams start from the same reset seed."""
    seeks_return: bool = True
    """False: learns the values of a policy that it was given, so that playing it tells nothing."""
    progress: float = 0.0
    """Fraction of the training budget used so far, in [0, 1]; the loop sets it before each `act`. Schedules read it."""

    def __init__(self, env: Any, config: Any, seed: int = 0) -> None:
        """`env` has been fitted by `rlbook.interaction.spaces`; read its spaces, do not step it."""
        self.config = config
        self.adaptation = getattr(env, "adaptation", None)

    def adapted(self, observations: Any) -> Any:
        """The environment's own observations [N, ...] as this agent sees them."""
        return observations if self.adaptation is None or self.adaptation.observe is None else self.adaptation.observe(observations)

    @abstractmethod
    def act(self, observation: Any, *, explore: bool = True) -> Any:
        """The action to take. `explore=False` is the greedy action and changes nothing in the agent, its RNGs included."""

    @abstractmethod
    def learn(self, step: Step) -> Metrics:
        """Learns from the step that followed the last `act`. Returns {} when nothing was learned."""

    def bind_env(self, env: Any) -> Agent:
        """The agent to ask for actions in another environment than the one it was made for: itself, unless it looks into it."""
        return self

    def begin(self) -> None:
        """All streams start afresh: whatever the agent remembers of the episodes in progress is dropped."""

    @abstractmethod
    def state_dict(self) -> State:
        """Everything that resuming needs, RNGs and half-filled rollouts included."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`: afterwards the agent goes on bit for bit as the saved one would have."""


class Planner(Agent):
    """An agent that computes its policy from a model of the environment before the first step."""

    def check_model(self, model: Any) -> None:
        """Raises ValueError where planning in `model` is of no use to this agent."""

    @abstractmethod
    def plan(self, model: Any) -> Iterator[Metrics]:
        """Plans in `model` (a `rlbook.envs.TabularMDP`); one item a sweep. Picks up where `load_state_dict` left off."""
