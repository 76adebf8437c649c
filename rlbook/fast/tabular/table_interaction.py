"""Interactions of agents with a table, many steps at a time: with the tables of a model, or with
any environment.

They do what `SingleInteraction` and the loop do together, and leave the same table: see
`rlbook.fast.tabular.simulation`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rlbook.agent import Agent, State, Step, Totals
from rlbook.algorithms.tabular.records import Memory, NamedRecord
from rlbook.algorithms.tabular.tabular_agent import TableAgent, is_mask_of_state
from rlbook.checks import ENDLESS
from rlbook.envs.tabular.outcomes import Outcomes, draw, standard_normal
from rlbook.errors import TrainingError
from rlbook.fast.compiled import announce_compilation, available, link_globals
from rlbook.fast.tabular.simulation import (
    CHUNK,
    EPISODES,
    BufferedUniforms,
    SimulationClock,
    World,
    interact,
    simulate,
    skip,
)
from rlbook.fast_forms import is_plain_only
from rlbook.interaction.action_masks import Mask, mask_table, shows_action_mask
from rlbook.interaction.budget import Budget
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.episodes import Episode, draw_seed, episode_table, episodes_of
from rlbook.interaction.guards import failure, named_numbers, totals
from rlbook.interaction.image_preprocessing import ClippedEnv, EpisodicLife
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv
from rlbook.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

LARGEST_LISTS = 200_000
"""The number of table entries beyond which converting arrays to lists and back costs more than
lists save."""
PLAIN_WRAPPERS = (AdaptedEnv, ResumableEnv, TimeLimit, OrderEnforcing, PassiveEnvChecker)


class ChunkedInteraction(SingleInteraction, ABC):
    """An interaction advanced by many steps at once; `marks` is the number of parts of the budget,
    and no chunk crosses the end of one."""

    marks = 100
    limit = ENDLESS

    def takes_over(self, agent: Agent) -> bool:
        """False if the plain code is requested, or for an agent with its own `act` and `learn`,
        which are called at every step."""
        return not is_plain_only() and isinstance(agent, TableAgent) and _is_the_books(agent)

    def advance(self, agent: TableAgent, budget: Budget) -> Totals:
        """Acts and learns up to the next mark of the budget, or for `CHUNK` steps. Returns what was
        logged: name → (total, count)."""
        before, clock = self.steps, self._clock(budget, agent.progress)
        agent.make_room(clock.last_step - before)
        error, updates = self._run(agent, clock)
        agent.progress = budget.progress(self.steps, self.episodes)
        taken = self.steps - before
        rates: Totals = {name: (value * taken, taken) for name, value in agent.rates().items()}
        return (
            rates
            | ({"td_error": (error, updates)} if updates else {})
            | self._environments_numbers()
        )

    def _environments_numbers(self) -> Totals:
        """Sums and counts of the environment's metrics in this chunk."""
        return {}

    def _clock(self, budget: Budget, progress: float) -> SimulationClock:
        mark = math.floor(progress * self.marks) + 1
        last_step = min(self.steps + CHUNK, _reaching(mark, self.marks, budget.steps))
        last_episode = min(self.episodes + EPISODES, _reaching(mark, self.marks, budget.episodes))
        budgets = float(budget.steps or math.inf), float(budget.episodes or math.inf)
        return SimulationClock(
            self.steps,
            self.episodes,
            last_step,
            last_episode,
            *budgets,
            self.limit,
            self.noisy,
            self.sure,
        )

    noisy, sure = False, False

    @abstractmethod
    def _run(self, agent: TableAgent, clock: SimulationClock) -> tuple[float, int]:
        """Takes the steps. Returns Σ |δ| and the number of steps."""


class TableInteraction(ChunkedInteraction):
    """Episodes sampled from a `TabularMDP`; compiled where numba is installed.

    Args:
        model: with states numbered as the agent sees them.
        rng: draws the seed.
        time_limit: of an episode, in steps; None for none.
        compiled: None where numba is installed.
        masks: [S, A] bool, which actions are allowed in each state; None: all. The agent's tables
            say so from the beginning.
    """

    def __init__(
        self,
        model: TabularMDP,
        rng: np.random.Generator,
        time_limit: int | None = None,
        *,
        compiled: bool | None = None,
        masks: Mask | None = None,
    ) -> None:
        env = gymnasium.Env()
        env.observation_space, env.action_space = (
            spaces.Discrete(model.num_states),
            spaces.Discrete(model.num_actions),
        )
        super().__init__(env, rng)
        self.masks = masks
        self.model, self.limit, self.compiled = (
            model,
            time_limit or ENDLESS,
            available() if compiled is None else compiled,
        )
        how = "by compiled code" if self.compiled else "in plain Python; rlbook[fast] compiles it"
        how = "one at a time, as RLBOOK_PLAIN asks" if is_plain_only() else how
        self.note = (
            f"training steps are sampled from the model's tables of probabilities, {how}; the "
            "results are the same, but faster"
        )
        self.world_rng = np.random.default_rng(0)
        outcomes = self._outcomes = model.outcomes
        self.noisy = bool((outcomes.reward_std > 0).any())
        self.sure = (
            len(outcomes.successor) == len(outcomes.first) - 1
            and len(outcomes.start_state) == 1
            and not self.noisy
        )
        self._tables: Any = outcomes if self.compiled else _as_lists(outcomes)
        # of episodes that end
        self._rows: Any = (
            np.empty((EPISODES, 3)) if self.compiled else [[0.0, 0.0, 0] for _ in range(EPISODES)]
        )

    def start(self) -> None:
        assert self.rng is not None
        self.world_rng, _ = np_random(draw_seed(self.rng))
        self._reset()

    def _reset(self) -> None:
        starts = self._outcomes.start_state
        self.obs = int(starts[draw(self._outcomes.start_cumulative, 0, self.world_rng)])
        self._read_mask()

    def _read_mask(self) -> None:
        if self.masks is not None and self.obs is not None:
            self.action_mask = self.masks[self.obs]

    def step(self, action: int) -> Step:
        """One step, sampled from the model: the plain form of `simulate`."""
        world, rng, state, mask = self._outcomes, self.world_rng, self.obs, self.action_mask
        first = int(world.first[state * world.num_actions + action])
        outcome = draw(world.cumulative, first, rng)
        reward, terminated = float(world.reward[outcome]), bool(world.ends[outcome])
        if self.noisy and world.reward_std[outcome] > 0.0:
            reward += float(world.reward_std[outcome]) * standard_normal(rng.random(), rng.random())
        self.obs = int(world.successor[outcome])
        self.steps += 1
        self._length += 1
        self._return += reward
        self._over = terminated or self._length >= self.limit
        self._read_mask()
        truncated = self._over and not terminated
        return Step(
            state,
            action,
            reward,
            self.obs,
            terminated,
            truncated,
            action_mask=mask,
            next_action_mask=self.action_mask,
        )

    def _run(self, agent: TableAgent, clock: SimulationClock) -> tuple[float, int]:
        choose, update = agent.functions()
        here = (self.obs, self._return, self._length, clock)
        if self.compiled:
            loop = link_globals(simulate, "compiled", choose=choose, update=update)
            with (
                nullcontext()
                if loop.overloads
                else announce_compilation(f"the loop of {type(agent).__name__}")
            ):
                out = loop(
                    self._tables,
                    agent.memory,
                    agent.settings,
                    agent.rng,
                    self.world_rng,
                    *here,
                    self._rows,
                )
        else:
            how, memory = _lists(agent.memory)
            loop = link_globals(simulate, how, choose=choose, update=update)
            rng, world_rng = BufferedUniforms(agent.rng), BufferedUniforms(self.world_rng)
            out = loop(
                self._tables, memory, _Fields(agent.settings), rng, world_rng, *here, self._rows
            )
            _write_back(memory, agent.memory)
            rng.put_back()
            world_rng.put_back()
        self.obs, self._return, self._length, steps, episodes, error, updates, _ = out
        self._read_mask()
        if self.sure:
            skip(self.world_rng, steps - self.steps + episodes - self.episodes)
        self.steps = steps
        self.finished += episodes_of(self._rows[: episodes - self.episodes])
        self.episodes = episodes
        return error, updates

    def state_dict(self) -> State:
        assert self.rng is not None
        return {
            "obs": self.obs,
            "return": self._return,
            "length": self._length,
            "steps": self.steps,
            "episodes": self.episodes,
            "rng": rng_state(self.rng),
            "world_rng": rng_state(self.world_rng),
            "finished": episode_table(self.finished),
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`. Raises ValueError where the state does not fit this
        model."""
        assert self.rng is not None
        self._load_counts(state)
        self._read_mask()
        set_rng_state(self.rng, state["rng"])
        set_rng_state(self.world_rng, state["world_rng"])


class EnvInteraction(ChunkedInteraction):
    """Any environment, its steps taken in one plain loop.

    Where no wrapper changes what happens, the loop steps the environment itself, and the wrappers
    are told afterwards.
    """

    def __init__(self, env: AdaptedEnv, rng: np.random.Generator, longest: int = ENDLESS) -> None:
        super().__init__(env, rng, longest=longest)
        chain = list(_wrappers(env))
        self._named: Totals = {}  # sums and counts of the environment's named numbers in this chunk
        plain = all(type(item) in PLAIN_WRAPPERS and not _is_overridden(item) for item in chain)
        self._bare = plain and env.adaptation.act is None and env.adaptation.observe is None
        self._limits = [item for item in chain if isinstance(item, TimeLimit)]
        self._recorder: Any = next(item for item in chain if isinstance(item, ResumableEnv))
        self.limit = min(longest, (_time_limit(env) or ENDLESS) if self._bare else ENDLESS)

    def _run(self, agent: TableAgent, clock: SimulationClock) -> tuple[float, int]:
        choose, update = agent.functions()
        if self.action_mask is not None:
            agent.forbid(self.obs, self.action_mask)
        how, memory = _lists(agent.memory)
        loop = link_globals(interact, how, choose=choose, update=update)
        rng = BufferedUniforms(agent.rng)
        finished: list[Episode] = []
        here = (self.obs, self._return, self._length, clock, finished)
        try:
            out = loop(
                self._world(finished, agent, memory, clock),
                memory,
                _Fields(agent.settings),
                rng,
                *here,
            )
        except TrainingError:
            raise
        except Exception as error:
            since = finished[-1][0] if finished else self.steps - self._length
            raise failure(error, since + len(self._recorder.actions)) from error
        finally:
            _write_back(memory, agent.memory)
            rng.put_back()
        (
            self.obs,
            self._return,
            self._length,
            self.steps,
            self.episodes,
            size,
            updates,
            self._over,
        ) = out
        self.finished += finished
        if self._bare:
            self._recorder.obs = self.obs
            for item in self._limits:
                item._elapsed_steps = self._length
        return size, updates

    def _world(
        self, finished: list[Episode], agent: TableAgent, memory: Any, clock: SimulationClock
    ) -> World:
        """The functions of the environment that the loop needs; a reset follows the last episode in
        `finished`. Allowed actions go into the tables of `memory`, for a first state when its
        action is chosen.
        """

        def next_episode() -> int:
            self.steps = finished[-1][0]
            self._reset()
            acts = (
                self.steps < clock.last_step and clock.episodes + len(finished) < clock.last_episode
            )
            if acts and self.action_mask is not None:
                agent.forbid(self.obs, self.action_mask, memory)
            return self.obs

        def allow(state: int, info: dict[str, Any], terminated: bool, truncated: bool) -> None:
            self.action_mask = self._masks.read_mask(
                info, self.action_mask, done=terminated or truncated
            )
            mask = self.action_mask
            if mask is not None and is_mask_of_state(mask, terminated, truncated):
                agent.forbid(state, mask, memory)

        noted = allow, self.action_mask is not None
        num_states = int(self.env.observation_space.n)  # type: ignore[attr-defined]
        if self._bare:
            return World(
                self.env.unwrapped.step,
                next_episode,
                self._recorder.actions.append,
                self._note,
                *noted,
                num_states,
            )
        return World(
            self.env.step, next_episode, deque(maxlen=0).append, self._note, *noted, num_states
        )

    def _environments_numbers(self) -> Totals:
        named, self._named = self._named, {}
        return named

    def _note(self, info: dict[str, Any]) -> None:
        """Adds a step's metrics to those of the chunk."""
        for name, (total, count) in totals(named_numbers(info) or {}, True).items():
            before = self._named.get(name, (0.0, 0))
            self._named[name] = before[0] + total, before[1] + count


def _reaching(mark: int, marks: int, budget: int | None) -> int:
    """The first count at which the progress, as `Budget` computes it, reaches `mark` of `marks`
    parts."""
    if budget is None:
        return ENDLESS
    count = max(0, mark * budget // marks - 1)
    while count / budget * marks < mark and count < budget:
        count += 1
    return count


def interaction_for(
    agent: Agent,
    env: AdaptedEnv,
    recipe: EnvRecipe,
    rng: np.random.Generator,
    longest: int = ENDLESS,
) -> SingleInteraction:
    """The fastest interaction for this agent: with the environment's model, in chunks, or step by
    step.

    An episode is cut after `longest` steps, or by the time limit before.
    """
    numbered = agent.observations in ("index", "numbers") and isinstance(
        env.observation_space, spaces.Discrete
    )
    model = _sampled_model(env) if numbered else None
    if model is not None and model.num_states != env.observation_space.n:  # type: ignore[attr-defined]
        model = None
    found = SingleInteraction(env, rng, longest=longest)
    # the loops know neither a second reward nor lives
    marked = any(isinstance(item, ClippedEnv | EpisodicLife) for item in _wrappers(env))
    if isinstance(agent, TableAgent) and not marked:
        masks = None if model is None else _masks(env, model.num_states)
        if masks is not None:
            for state in np.flatnonzero(~masks.all(axis=1)):
                agent.forbid(int(state), masks[state])
        if masks is None and model is not None and shows_action_mask(env.unwrapped):
            model = None  # which knows nothing of them
        unseen = env.unwrapped.render_mode is None  # steps that are to be shown are taken
        sampled = agent.sampled_model(model if agent.config.simulate and unseen else None)
        limit = min(longest, _time_limit(env) or recipe.time_limit or ENDLESS)
        found = (
            EnvInteraction(env, rng, longest)
            if sampled is None
            else TableInteraction(sampled, rng, limit, masks=masks)
        )
    found.model = model
    return found


def _masks(env: AdaptedEnv, num_states: int) -> Mask | None:
    """The allowed actions in each of the model's states, [S, A], according to the environment's own
    method; None if it has none."""
    inner: Any = env.unwrapped
    if isinstance(inner.observation_space, spaces.Discrete):
        first = int(inner.observation_space.start)
        return mask_table(inner, range(first, first + num_states))
    views, observe = getattr(inner, "views", None), env.adaptation.observe
    if (
        views is None
        or observe is None
        or not np.array_equal(observe(views), np.arange(num_states))
    ):
        return None
    return mask_table(inner, views)


WAYS = ("act", "learn", "begin", "functions", "make_room", "choose", "update", "forbid")
"""The methods that an agent calls at every step."""


def _is_the_books(agent: TableAgent) -> bool:
    """Whether the agent acts and learns by functions of this package alone, so that they can be
    linked into the loops."""
    kind: Any = type(agent)
    if (kind.act, kind.learn) != (TableAgent.act, TableAgent.learn) or any(
        name in vars(agent) for name in WAYS
    ):
        return False
    ways = [*(getattr(kind, name) for name in WAYS if hasattr(kind, name)), *agent.functions()]
    return all(getattr(way, "__module__", "").split(".")[0] == "rlbook" for way in ways)


def _time_limit(env: gymnasium.Env) -> int | None:
    """The steps that the wrappers allow an episode; None without a limit."""
    return min(
        (item._max_episode_steps for item in _wrappers(env) if isinstance(item, TimeLimit)),
        default=None,
    )


def _wrappers(env: gymnasium.Env) -> Iterator[gymnasium.Wrapper]:
    """From the outermost to the innermost."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _sampled_model(env: AdaptedEnv) -> TabularMDP | None:
    """A model that is equivalent to the environment step by step; None if there is none, or a
    wrapper may change what happens."""
    inner: Any = env.unwrapped
    if any(
        type(item) not in PLAIN_WRAPPERS or _is_overridden(item) for item in _wrappers(env)
    ) or _is_overridden(inner):
        return None
    if not _model_is_of_its_step(type(inner)) or not (
        callable(getattr(inner, "model", None)) or hasattr(inner, "P")
    ):
        return None
    from rlbook.envs.tabular.mdp import TabularMDP

    try:
        model = TabularMDP.from_env(inner)
    except ValueError:
        return None
    return model if model.observable and env.adaptation.act is None else None


def _is_overridden(env: gymnasium.Env) -> bool:
    """Whether this object's `step` or `reset` is not its class's."""
    return "step" in vars(env) or "reset" in vars(env)


def _model_is_of_its_step(kind: type) -> bool:
    """Whether no subclass has overridden `step` or `reset` without also defining the model, as a
    method or as toy text's table `P`."""
    step, reset, model = (_place(kind, name) for name in ("step", "reset", "model"))
    changed = min(step, reset)
    if model < len(kind.__mro__):
        return model <= changed
    return gymnasium.Env in kind.__mro__[changed].__bases__


def _place(kind: type, name: str) -> int:
    """How many bases of a class come before the one that has this attribute."""
    return next(
        (place for place, base in enumerate(kind.__mro__) if name in vars(base)), len(kind.__mro__)
    )


def _as_lists(tables: Outcomes) -> Outcomes:
    return Outcomes._make(
        item.tolist() if isinstance(item, np.ndarray) else item for item in tables
    )


class _Fields:
    """A record's fields as plain attributes, which Python reads several times faster."""

    def __init__(self, fields: NamedRecord) -> None:
        for name in fields._fields:
            setattr(self, name, getattr(fields, name))


def _lists(memory: Memory) -> tuple[str, Memory | _Fields]:
    """The tables as lists, which are several times faster than arrays when single entries are
    accessed from Python; and how to link."""
    if any(table.size > LARGEST_LISTS for table in memory):
        return "arrays", memory
    return "lists", _Fields(type(memory)(*(table.tolist() for table in memory)))


def _write_back(lists: Memory | _Fields, arrays: Memory) -> None:
    for name in arrays._fields:
        source, target = getattr(lists, name), getattr(arrays, name)
        if source is not target:
            target[...] = source
