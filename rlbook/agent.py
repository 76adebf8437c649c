"""The interface: an agent acts, and learns from an environment, from a model, or from recorded
data.

    environment ── Step ─────────►  learn(step)     TD, Monte Carlo, DQN, REINFORCE, PPO, GRPO
    model       ── TabularMDP ───►  plan(model)     value iteration, policy iteration
    data set    ── minibatches ──►  fit(data)       behaviour cloning, reward models, DPO on recorded pairs
                                    act(observation)

Every algorithm of the book is an `Agent` with one or more of the three. The loop in
`rlbook.interaction.loop` calls `act` and `learn` in turn and owns the resets; `plan` and `fit` are
iterators, one item a sweep or a minibatch, and a run takes items until its budget is used.
"""

from __future__ import annotations

import copy
import inspect
import sys
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from rlbook.checks import (
    are_batches,
    batch_error,
    check_arguments,
    check_idle,
    is_one,
    observation_error,
)
from rlbook.errors import RequestError, UnknownName

if TYPE_CHECKING:
    import numpy as np
    from gymnasium.vector import VectorEnv
    from numpy.typing import ArrayLike, NDArray

    from rlbook.envs.space_batches import Elements
    from rlbook.envs.tabular.mdp import TabularMDP

Presets = dict[str, dict[str, Any]]
"""Environment → settings that replace the defaults there: a budget, num_envs, eval_every,
hyper-parameters."""

EXPECTED = "expected"
"""The result that a preset's file claims; see `rlbook.evaluation.verification`."""

ACTION_MASK = "action_mask"
"""The key of a mask in gymnasium's info, and the argument of `act` that takes it."""

OBSERVATIONS = ("index", "numbers", "vector", "network", "policy", "any")
ACTIONS = ("discrete", "discrete only", "any", "scaled", "scaled box")
"""The possible values of `Agent.observations` and `Agent.actions`."""

NO_STATE: Any = "no state"
"""The default of `predict`'s argument `state`; None stands for an episode's start."""

State = dict[str, Any]
"""Nested dicts whose leaves are numpy arrays, torch tensors, numbers, strings, booleans, None, or
lists of those."""


class FrozenPart(dict[str, Any]):
    """A part of a state that training never changes: tensors by name, such as a reference's, or
    frames of a replay buffer.

    A run's folder holds it once, and each checkpoint its sha256.
    """

    sha256: str | None = None
    """The digest, once it is computed: saving this part again need not read it."""


Metrics = dict[str, float]
"""Name → number. A name's unit and meaning are in the algorithm's `METRICS`."""

Totals = dict[str, tuple[float, int]]
"""Name → sum and count over many steps taken at once; the log has the mean."""


class Step(NamedTuple):
    """What followed one action.

    A batched agent (`Agent.batched`) gets arrays with a leading axis N, one row an environment; any
    other agent gets scalars.

    `next_obs` is the true successor, also where the episode ended: the loop resets afterwards.
    `truncated` is never true together with `terminated`: only `terminated` stops bootstrapping.
    `valid` is false for an environment whose episode ended earlier in this round
    (`rollout = "episodes"`); ignore such rows. `info` holds the environment's named numbers, which
    go into the log: what it put under "metrics" in gymnasium's info, such as the parts of a reward,
    name → number or [N] numbers; None where there are none. `action_mask` and `next_action_mask`
    say which actions the environment allows at `obs` and at `next_obs`: bool [A] or [N, A]; None
    where it has shown no mask. See `rlbook.interaction.action_masks`. `final_reward` [N] comes with
    the last step of a round, if the agent awaits it (`Agent.awaits_round`) and the environment
    scores the round's episodes together: what the last step of each of them has earned, in place
    of the 0 that was paid when it ended; `info` then has numbers for all rows. It comes with the
    last step of training, too, with NaN for episodes that have not ended. None otherwise.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    valid: Any = True
    info: Mapping[str, Any] | None = None
    action_mask: Any = None
    next_action_mask: Any = None
    final_reward: Any = None


@dataclass(frozen=True)
class NoHyperparameters:
    """The config of an agent that has none."""


class Sampler(Protocol):
    """Another program that samples actions with the agent's weights."""

    def bind_env(self, env: VectorEnv) -> Sampler:
        """The sampler for a vector environment; see `rlbook.llm.serving.sampler`."""
        ...

    def acting_state(self) -> Any:
        """The acting state of the policy during a round of episodes: it asks the other program for
        them."""
        ...


@dataclass(frozen=True)
class Parts:
    """What an agent is given besides its environment. The user names folders; the run loads
    them."""

    expert: Agent | None = None
    """The expert from which demonstrations are recorded, if they are needed."""
    teacher: Agent | None = None
    """The teacher whose probabilities are learned."""
    reference: Agent | None = None
    """The reference policy of a KL penalty, instead of the agent's own initial policy."""
    start: Agent | None = None
    """The agent whose policy initialises this one's, such as a cloned one."""
    reward_model: Agent | None = None
    """The reward model that replaces the environment's reward, for an agent whose critic may be
    initialised from it."""
    model: object = None
    """The initial model of the networks and which of its parts are trained, as parsed by
    `rlbook.networks.model_spec.ModelSpec.from_value`. A folder may be the environment's argument
    `model` instead, whose tokenizer determines the observations."""
    device: str = "cpu"
    """The networks' device: "cpu", "cuda" or "cuda:N"."""
    sampler: Sampler | None = None
    """Samples completions in training instead of the agent; None: the agent does."""
    advice: Callable[..., NDArray[Any]] | None = None
    """The expert's actions in the environments' current states: [N] or [N, A], in the agent's
    format. For an agent that `uses` it; the expert is the named one, or the exact policy."""
    replay_folder: Path | None = None
    """The folder of a replay buffer's frames, mapped into memory; None: in memory."""
    demonstrations: Callable[[], Data] | None = None
    """Opens recorded `Episodes` for an agent that `uses` them while it acts itself: the named data,
    or the expert's demonstrations."""


class Data(Protocol):
    """What `fit` learns from: rows that come back shuffled, pass after pass; see `rlbook.data`."""

    @property
    def passes(self) -> float:
        """Passes over all rows so far."""
        ...

    def __len__(self) -> int: ...

    def shuffle(self, rng: np.random.Generator) -> None: ...

    def minibatches(self, size: int) -> Iterator[Any]: ...

    def hold_out(self, share: float, rng: np.random.Generator) -> NDArray[np.int64]: ...

    def __getitem__(self, rows: NDArray[np.int64]) -> Any: ...

    def digest(self) -> str: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class PresetsDescriptor:
    """The presets of one of the book's algorithms, read from its files in `presets`."""

    def __get__(self, agent: object, kind: type) -> Presets:
        return {
            env: {name: value for name, value in settings.items() if name != EXPECTED}
            for path in preset_files(kind)
            for env, settings in read_presets(path).items()
        }


def preset_files(kind: type) -> list[Path]:
    """The files with the presets of one of the book's algorithms; for an environment that occurs in
    several, the last one counts.

    The last one is its own, or that of the nearest of its bases. Before it come those of the bases
    that hold what a family shares and are not algorithms, so that a file need not repeat them.
    """
    found = [(base, path) for base in kind.__mro__ if (path := preset_file(base)) is not None]
    families = [path for base, path in found[1:] if "Config" not in vars(base)]
    return [*reversed(families), *(path for _, path in found[:1])]


def preset_file(kind: type) -> Path | None:
    """The YAML file in `presets` beside the module of one of the book's algorithms, where there is one."""
    if not kind.__module__.startswith("rlbook.algorithms."):
        return None
    module = Path(str(sys.modules[kind.__module__].__file__))
    path = module.parent / "presets" / f"{module.stem}.yaml"
    return path if path.is_file() else None


@cache
def read_presets(path: Path) -> Presets:
    """The content of a presets file, `expected` included. A list of numbers becomes a tuple, as in
    a `Config`.

    Raises:
        RequestError: the file is not what such a file should be, in one sentence.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not all(
        isinstance(settings, dict) for settings in content.values()
    ):
        raise RequestError(
            f"{path} must hold settings by environment, such as 'Maze-v0: {{steps: 1000}}'"
        )
    return {
        env: {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings.items()
        }
        for env, settings in content.items()
    }


OF_AN_AGENT = {
    "save": "run.save(folder) saves the agent with its run, and agent.state_dict() has its weights",
    "load": "rlbook.load(folder).agent is the agent of a run that was saved",
    "train": "rlbook.train(…) trains it, and run.train(steps=1000) continues training",
    "evaluate": "rlbook.evaluate(agent, env) plays it",
    **dict.fromkeys(
        ("select_action", "get_action", "compute_single_action"),
        "agent.predict(observation) gives the action",
    ),
    "eval": "agent.predict(observation) acts greedily and learns nothing",
    "to": 'rlbook.train(…, device="cuda") chooses where the networks are',
    **dict.fromkeys(("observation_space", "action_space"), "run.make_env() has it"),
    "parameters": "the weights are agent.state_dict(); those of a policy are"
    " agent.policy.parameters()",
}
"""Names that an agent does not have → what to use instead."""


OF_PREDICT: dict[str, str] = dict.fromkeys(
    ("deterministic", "greedy", "stochastic", "training", "train", "eval", "epsilon"),
    "it acts greedily, with explore=True as in training, and returns the action alone",
)
"""Arguments that `predict` does not have → what to use instead."""


class _ConstructorSignature:
    """The signature of a class is its constructor's, not that of its metaclass's `__call__`."""

    def __get__(self, made: type | None, kind: type) -> inspect.Signature:
        if made is None:  # asked of the type itself, which has its own
            raise AttributeError("__signature__")
        _, *rest = inspect.signature(made.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(rest)


class AgentType(ABCMeta):
    """The metaclass of agents. It answers calls in the style of other libraries, such as
    `PPO("MlpPolicy", "CartPole-v1")`, `PPO(gamma=0.9)` or `PPO.load(folder)`, with an error that
    says what to write instead."""

    if not TYPE_CHECKING:  # which knows the constructors and the attributes better

        def __call__(cls, *args: object, **named: object) -> Any:
            """Raises RequestError if the environment is given by its name, or is missing."""
            alone = len(args) < 2 and not _fits(cls, *args, **named)
            if alone or (args and isinstance(args[0], str)):
                raise RequestError(
                    f"agents are created by training: rlbook.train({cls.__name__}, "
                    f"'CartPole-v1'); {cls.__name__}(env, config, seed) takes an environment "
                    "whose spaces are adapted"
                )
            return super().__call__(*args, **named)

        __signature__ = _ConstructorSignature()

        def __getattr__(cls, name: str) -> Any:
            if name in OF_AN_AGENT:
                raise UnknownName(f"{cls.__name__} has no {name!r}; {OF_AN_AGENT[name]}")
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


def _fits(made: type, *args: object, **named: object) -> bool:
    """Whether the constructor takes these arguments."""
    try:
        inspect.signature(made.__init__).bind(None, *args, **named)  # type: ignore[misc]
    except TypeError:
        return False
    return True


class Agent(metaclass=AgentType):
    """Acts, and learns in one or more of three ways. See the module docstring."""

    Config: ClassVar[type] = NoHyperparameters
    """A frozen dataclass: every hyper-parameter, with unit and meaning in the comment beside it."""
    METRICS: ClassVar[dict[str, str]] = {}
    """The meaning of each logged metric, with its unit."""
    budget: ClassVar[dict[str, int]] = {"steps": 100_000}
    """The default training budget: "steps", "episodes" or "passes"; and "eval_every", if it
    matters."""
    presets: ClassVar[Presets] = PresetsDescriptor()  # type: ignore[assignment]  # read on first use
    """Environment → settings that replace the defaults there: a budget, num_envs, eval_every,
    hyper-parameters. Those of the book's own algorithms are in YAML files, those of `ppo.py` in
    `presets/ppo.yaml` beside it; a user's class has a dict, or inherits one."""
    batched: ClassVar[bool] = False
    """True: acts in a VectorEnv of N environments, arrays [N, ...]. False: acts in one Env,
    scalars."""
    observations: ClassVar[str] = "any"
    """The form of the observations: "index" (one integer), "numbers" (an integer, or a vector with
    its bounds), "vector" (float32 [O]), "network" (an image unchanged, otherwise a vector),
    "policy" (the policy's input), "any"."""
    actions: ClassVar[str] = "any"
    """The required form of the environment's actions: "discrete" (for a box, a few values),
    "discrete only" (no box); "any" (discrete or a box); "scaled" (discrete, or a bounded box, which
    becomes [-1, 1]); "scaled box" (such a box only)."""
    default_num_envs: ClassVar[int] = 1
    """The default number of parallel environments."""
    uses: ClassVar[tuple[str, ...]] = ()
    """The fields of `Parts` that this agent uses. If there are any, the run passes `parts` to its
    constructor; a part that the agent does not use is refused."""
    data_kinds: ClassVar[tuple[str, ...]] = ()
    """The classes of `rlbook.data` that `fit` accepts, by name: "Episodes", "Steps", "Pairs",
    "LabelledEpisodes" or "Groups". Without a data set, "Steps" are those of `walks` (a
    hyper-parameter) random walks."""
    idle_on_data: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters without effect on learning from recorded data: they are refused there."""
    idle_on_groups: ClassVar[tuple[str, ...]] = ()
    """The same on ranked `Groups`."""
    prefers: ClassVar[bool] = False
    """True: without a data set, pairs are made for it: `walks` (a hyper-parameter) random walks,
    ranked by their return, or on a token task reference answers against those of other prompts."""
    rollout: str = "steps"
    """"episodes": all N environments start together, and a finished one waits (`step.valid` is
    false) until the last one ends."""
    group_size: int = 1
    """With `rollout = "episodes"`: this many neighbouring environments start from the same reset
    seed."""
    awaits_round: bool = False
    """With `rollout = "episodes"`: reads `step.final_reward`, so that an environment may score the
    episodes of a round together. False: each reward comes with its step."""
    seeks_return: bool = True
    """False: learns something other than maximising return (the values of a given policy, a
    reward), so that its returns are not meaningful."""
    may_be_best: bool = True
    """False: a current evaluation must not be marked as the best, for example because the policy
    has left its KL bounds."""
    knows_env: bool = True
    """False: looks into its environment while acting, but has not been given one by `bind_env`."""
    searches: ClassVar[bool] = False
    """Whether each action requires a search, so that playing takes longer than learning."""
    progress: float = 0.0
    """Fraction of the training budget used so far, in [0, 1]; the run sets it before each item.
    Schedules read it."""

    def __init__(self, env: Any, config: Any, seed: int = 0, parts: Parts = Parts()) -> None:
        """`env` has been adapted by `rlbook.interaction.spaces`; read its spaces, do not step
        it."""
        self.config, self.parts = config, parts
        self.adaptation = getattr(env, "adaptation", None)
        self._row_space = getattr(env, "single_observation_space", None)
        self._space = getattr(env, "observation_space", None)
        self._action_space = getattr(env, "single_action_space", getattr(env, "action_space", None))
        self._prediction_rngs: dict[str, Any] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in OF_AN_AGENT and not hasattr(type(self), name):
                raise UnknownName(f"an agent has no {name!r}; {OF_AN_AGENT[name]}")
            return object.__getattribute__(self, name)  # raises what a property inside raised, too

    def __repr__(self) -> str:
        """The class with the hyper-parameters that differ from its defaults."""
        changed = [
            f"{item.name}={getattr(self.config, item.name)!r}"
            for item in fields(self.config)
            if getattr(self.config, item.name) != _default_of(item)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def can_checkpoint(self) -> bool:
        """Whether this is a good moment to report and save. Where a state in the middle of an
        episode is large, only between rounds."""
        return True

    @classmethod
    def sources(cls) -> tuple[str, ...]:
        """The sources that this class learns from, among "environment", "model" and "data": those
        whose method it defines."""
        ways = {"environment": "learn", "model": "plan", "data": "fit"}
        return tuple(
            source for source, way in ways.items() if getattr(cls, way) is not getattr(Agent, way)
        )

    @classmethod
    def plays(cls) -> bool:
        """Whether it can act at all; a reward model cannot."""
        return cls.act is not Agent.act

    def adapt_observations(self, observations: Any) -> Any:
        """The environment's own observations [N, ...] as this agent sees them."""
        return (
            observations
            if self.adaptation is None or self.adaptation.observe is None
            else self.adaptation.observe(observations)
        )

    def check_batch(self, observations: Any) -> None:
        """Checks the arguments of a batched agent's `act`.

        Args:
            observations: [N, ...] as this agent sees them, or a dict of such arrays.

        Raises:
            ValueError: they have another shape, such as that of one observation.
        """
        space: Any = self._row_space
        shape = getattr(observations, "shape", ())
        if space is None or (len(shape) > 0 and shape[1:] == space.shape):
            return
        if not are_batches(observations, space):
            adapts = self.adaptation is not None and self.adaptation.observe is not None
            raise ValueError(batch_error(observations, space, adapts=adapts))

    def check_one(self, observation: Any) -> None:
        """Checks the arguments of `act` of an agent that is not batched.

        Raises:
            ValueError: this is not one observation as the agent sees it.
        """
        if not is_one(observation, self._space):
            adapts = self.adaptation is not None and self.adaptation.observe is not None
            raise ValueError(observation_error(observation, self._space, adapts=adapts))

    def act(self, observation: Any, *, explore: bool = True) -> Any:
        """The action to take. `explore=False` is the greedy action and changes nothing in the
        agent, its RNGs included.

        An agent that can keep to an action mask has a third argument, `action_mask` [A] or [N, A]
        bool, None where there is none. One that remembers its episodes has a fourth, `memory`:
        outside training, what `new_memory` gave.
        """
        raise TypeError(f"{type(self).__name__} does not act")

    def new_memory(self) -> Any:
        """The memory that an agent with a recurrent network acts with outside training, from the
        start of an episode: a `rlbook.networks.recurrent_memory.RecurrentMemory`. None: it acts on
        the current observation alone."""
        return None

    @check_arguments("agent.predict(observation)", OF_PREDICT)
    def predict(
        self,
        observation: Elements,
        *,
        state: Any = NO_STATE,
        episode_start: ArrayLike = False,
        explore: bool = False,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Any:
        """Returns the action for one of the environment's own observations, or the actions for a
        batch of them, as the environment takes them.

            obs, reward, terminated, truncated, info = env.step(agent.predict(obs))

        It is the action alone, where Stable-Baselines3 returns a pair. The agent is left unchanged,
        so training continues as if this had not been called. With a `state` it returns the next
        one, too, which an agent with a memory needs (the option `recurrent`), and for any other is
        None:

            action, state = agent.predict(obs, state=state)

        Args:
            observation: as the environment shows it, or N of them as a vector environment does: an
                array with one axis more, a dict or a tuple of such arrays. The space tells the two
                apart. An agent with a language model also takes a prompt as text, or a list of
                them, and completes it.
            state: what the agent remembers of the episode: None at its start, later what the call
                before has returned. [S], or [N, S] for a batch.
            episode_start: bool, or [N]: where an episode starts, and the state is of another one.
            explore: act as in training, with generators of its own that go on from call to call.
            action_mask: [A] or [N, A] bool, the actions that are allowed, such as
                `info["action_mask"]`. Where the observation holds one, that is it.

        Returns:
            An action that `env.step` takes, or a batch of N; with a `state`, a pair of it and the
            next state.

        Raises:
            ValueError: neither one observation nor a batch; an agent that does not act, or one that
                looks ahead and was not told where it is (`bind_env`); no state for an agent with a
                memory, or one of another shape.
        """
        from rlbook.envs.space_batches import is_batch

        observation, action_mask = self._split_mask(observation, action_mask)
        memory = self.new_memory()
        if memory is None or state is NO_STATE:
            if memory is not None:
                raise ValueError(
                    f"this {type(self).__name__} remembers its episode: call action, state ="
                    " predict(observation, state=state), with state=None at an episode's start"
                )
            action = self._predict(observation, explore, action_mask)
            return action if state is NO_STATE else (action, None)
        if state is not None:
            memory.from_array(state)
            memory.forget(episode_start)
        many = is_batch(self._env_spaces()[0], observation)
        action = self._predict(observation, explore, action_mask, memory)
        after = memory.as_array()
        return action, after if many else after[0]

    def _predict(
        self,
        observation: Elements,
        explore: bool,
        action_mask: NDArray[np.bool_] | None,
        memory: Any = None,
    ) -> Any:
        """The action of `predict`, and the memory after it for an agent that has one."""
        from rlbook.envs.space_batches import (
            as_arrays,
            as_batch,
            is_batch,
            plain,
            rows_of,
        )

        shown, taken = self._env_spaces()
        many, masks = is_batch(shown, observation), self._mask_argument(action_mask)
        agent = self._exploring_copy() if explore else self
        observation = as_arrays(shown, observation)
        if self.batched:
            if many:
                return agent._act_in_env(observation, explore, masks, memory)
            one_mask = None if masks is None else masks[None]
            actions = agent._act_in_env(as_batch(shown, [observation]), explore, one_mask, memory)
            return plain(rows_of(taken, actions)[0])
        if not many:
            return plain(agent._act_in_env(observation, explore, masks))
        if not type(self).knows_env:
            raise ValueError(
                f"{type(self).__name__} searches from where one environment is, so it predicts one"
                " action at a time"
            )
        rows = rows_of(shown, observation)
        every = [None] * len(rows) if masks is None else [*masks]
        pairs = zip(rows, every, strict=True)
        return as_batch(taken, [agent._act_in_env(row, explore, mask) for row, mask in pairs])

    def _act_in_env(
        self,
        observation: Elements,
        explore: bool,
        action_mask: NDArray[np.bool_] | None,
        memory: Any = None,
    ) -> Any:
        """`act` from the environment's own observations to its own actions."""
        given: dict[str, Any] = {} if action_mask is None else {ACTION_MASK: action_mask}
        if memory is not None:
            given["memory"] = memory
        action = self.act(self.adapt_observations(observation), explore=explore, **given)
        return action if self.adaptation is None else self.adaptation.adapt_action(action)

    def _env_spaces(self) -> tuple[Any, Any]:
        """The environment's own observation and action space.

        Raises:
            ValueError: there is nothing to predict, or it is not known where.
        """
        check_initialised(self)
        name = type(self).__name__
        if not self.plays():
            raise ValueError(f"{name} does not act, so it has no action to predict")
        if not self.knows_env:
            raise ValueError(
                f"{name} looks ahead in the environment, so it must know which one: "
                "agent.bind_env(env).predict(observation)"
            )
        adaptation: Any = self.adaptation
        if adaptation is not None and adaptation.env_observation_space is not None:
            return adaptation.env_observation_space, adaptation.env_action_space
        shown = self._space if self._row_space is None else self._row_space
        if shown is None:
            raise ValueError(f"{name} was made without an environment; call act instead of predict")
        return shown, self._action_space

    def _split_mask(
        self, observation: Elements, action_mask: NDArray[np.bool_] | None
    ) -> tuple[Elements, NDArray[np.bool_] | None]:
        """What the agent sees of an observation that holds an action mask, and that mask, unless
        another one is given."""
        from rlbook.envs.masked_observations import is_masked_observation, split_observation

        if not is_masked_observation(observation, self._env_spaces()[0]):
            return observation, action_mask
        shown, held = split_observation(observation)  # type: ignore[arg-type]
        if action_mask is None and takes_action_mask(self.act):
            action_mask = held
        return shown, action_mask

    def _mask_argument(self, action_mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        if action_mask is None:
            return None
        if not takes_action_mask(self.act) or not hasattr(self._env_spaces()[1], "n"):
            raise ValueError(f"{type(self).__name__} does not use action masks, but got one")
        import numpy as np

        mask, count = np.asarray(action_mask), int(self._env_spaces()[1].n)
        if mask.shape[-1:] != (count,) or not np.isin(mask, (0, 1)).all():
            raise ValueError(
                f"action_mask must hold 1 for allowed and 0 for forbidden actions, {count} entries,"
                f" got shape {mask.shape}: {mask.tolist()!r:.60}"
            )
        return mask.astype(bool)

    def _exploring_copy(self) -> Self:
        """A copy that shares what was learned and has random generators of its own."""
        import numpy as np

        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.random.Generator):
                rng = self._prediction_rngs.setdefault(name, copy.deepcopy(value))
                setattr(twin, name, rng)
        return twin

    def learn(self, step: Step) -> Metrics:
        """Learns from the step that followed the last `act`. Returns {} when nothing was
        learned."""
        raise TypeError(f"{type(self).__name__} does not learn from an environment")

    def plan(self, model: TabularMDP) -> Iterator[Metrics]:
        """Plans in `model`; one item a sweep. Goes on where `load_state_dict` left it."""
        raise TypeError(f"{type(self).__name__} does not plan in a model")

    def fit(self, data: Data) -> Iterator[Metrics]:
        """Learns from recorded data; one item a minibatch, without end. Goes on where
        `load_state_dict` left it and the data."""
        raise TypeError(f"{type(self).__name__} does not learn from recorded data")

    def check_data(self, data: Data) -> None:
        """Raises ValueError if the agent's settings do not fit these recorded data; a run checks
        this before it writes anything."""
        if type(data).__name__ == "Groups":
            for name in self.idle_on_groups:
                check_idle(self.config, name, "on ranked groups")
        for name in self.idle_on_data:
            value = getattr(self.config, name)
            if value != getattr(type(self.config), name):
                raise ValueError(
                    f"{name} has no effect on recorded data; got {value!r}, leave it out"
                )

    def bind_env(self, env: Any) -> Agent:
        """The agent to ask for actions in `env`: this one, or, if it looks into its environment,
        one that looks into `env`."""
        return self

    def begin(self) -> None:
        """All environments start new episodes: the agent drops what it remembers of the episodes in
        progress."""

    def state_dict(self) -> State:
        """Everything needed to resume, including RNG states and partial rollouts. An agent that is
        never saved does not need it."""
        raise TypeError(f"{type(self).__name__} has no state_dict, so it cannot be saved")

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`: afterwards the agent continues bit for bit as the saved one
        would have."""
        raise TypeError(f"{type(self).__name__} has no load_state_dict, so it cannot be restored")


def _default_of(item: Field[Any]) -> object:
    """The default of a config's field."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def check_initialised(agent: Agent) -> None:
    """Raises RequestError if the `__init__` of an agent class did not call that of `Agent`."""
    if "_prediction_rngs" not in vars(agent):
        raise RequestError(
            f"{type(agent).__name__}.__init__ must begin with super().__init__(env, config, "
            "seed), which stores the config and the spaces"
        )


def takes_action_mask(act: Callable[..., Any]) -> bool:
    """Whether a way to act has an argument `action_mask`."""
    try:
        taken = inspect.signature(act).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return False
    return any(item.name == ACTION_MASK or item.kind is item.VAR_KEYWORD for item in taken)


class Planner(Agent, ABC):
    """An agent that computes its policy from a model of the environment before the first step."""

    budget = {"steps": 10_000}

    def check_model(self, model: TabularMDP) -> None:
        """Raises ValueError if this agent cannot use `model`."""

    @abstractmethod
    def plan(self, model: TabularMDP) -> Iterator[Metrics]:
        """Plans in `model`; one item a sweep. Goes on where `load_state_dict` left it."""
