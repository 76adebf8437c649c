"""The sources that a run learns from: an environment, a model or recorded data, behind one
interface.

Each knows how far it is, takes the run's items one by one, and saves where it stands; between two
items everything may be saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from rlbook.agent import Agent, Data, Metrics, State, Totals
from rlbook.interaction.budget import Budget
from rlbook.interaction.guards import seed_note
from rlbook.interaction.loop import LoopClock, loop

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP
    from rlbook.interaction.episodes import Episode
    from rlbook.interaction.single import SingleInteraction
    from rlbook.interaction.vector_envs.vector import VectorInteraction


class Source(ABC):
    """Yields the items of a run and tracks its progress."""

    unit: ClassVar[str]
    """The unit of `steps`, in the plural."""
    reports_each: ClassVar[bool] = False
    """Whether each item is a line of the log, rather than a hundredth of the budget."""
    one_by_one: bool = False
    """Whether each environment step must be an item, even where several could be taken at once."""
    model: TabularMDP | None
    """The environment's exact model, if it is known."""
    clock: LoopClock | None = None
    """The time spent acting and stepping, if there is an environment."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Environment steps, sweeps, or minibatches taken."""

    @property
    def episodes(self) -> int:
        """Training episodes finished."""
        return 0

    @property
    def passes(self) -> float:
        """Passes over recorded data."""
        return 0.0

    @property
    def finished_episodes(self) -> list[Episode]:
        """Training episodes that ended; the reader clears the list."""
        return []

    def cut_short(self, *, whole_rounds: bool) -> int:
        """How many episodes belong to a round that training has cut short; see
        `VectorInteraction.cut_short`."""
        return 0

    def rest_of_round(self, *, whole_rounds: bool) -> int:
        """How many episodes of such a round go on."""
        return 0

    @property
    def notes(self) -> list[str]:
        """Notes added during training."""
        return []

    @abstractmethod
    def items(self, agent: Agent, budget: Budget) -> Iterator[Metrics | Totals]:
        """Yields the agent's reports, item by item, until the budget is used up; `agent.progress`
        is kept up to date."""

    def progress(self, budget: Budget) -> float:
        """The fraction of the budget that is used, in [0, 1]."""
        return budget.progress(self.steps, self.episodes, self.passes)

    @abstractmethod
    def state_dict(self) -> State:
        """All state needed to continue."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`."""

    @abstractmethod
    def load_counts(self, state: State) -> None:
        """Restores only the counters of a saved source, not its environment or data: enough for
        evaluation."""


class EnvironmentSource(Source):
    """Steps in an environment: `agent.act` and `agent.learn`."""

    unit = "steps"

    def __init__(self, interaction: SingleInteraction | VectorInteraction) -> None:
        self.interaction, self.model, self.clock = interaction, interaction.model, LoopClock()

    @property
    def steps(self) -> int:
        return self.interaction.steps

    @property
    def episodes(self) -> int:
        return self.interaction.episodes

    @property
    def finished_episodes(self) -> list[Episode]:
        return self.interaction.finished

    def cut_short(self, *, whole_rounds: bool) -> int:
        return self.interaction.cut_short(whole_rounds=whole_rounds)

    def rest_of_round(self, *, whole_rounds: bool) -> int:
        return self.interaction.rest_of_round(whole_rounds=whole_rounds)

    @property
    def notes(self) -> list[str]:
        env: Any = self.interaction.env
        while env is not None and not hasattr(env, "excursions"):  # within those who give advice
            env = getattr(env, "env", None)
        told = [*([] if env is None else env.excursions), *self.interaction.notes]
        return told + seed_note(self.interaction.env)

    def items(self, agent: Agent, budget: Budget) -> Iterator[Metrics | Totals]:
        return loop(
            agent, self.interaction, budget, in_chunks=not self.one_by_one, clock=self.clock
        )

    def state_dict(self) -> State:
        return self.interaction.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.interaction.load_state_dict(state)

    def load_counts(self, state: State) -> None:
        self.interaction.steps, self.interaction.episodes = (
            int(state["steps"]),
            int(state["episodes"]),
        )


class _CountedSource(Source):
    """Counts its own items, for sources that have no other counter."""

    def __init__(self) -> None:
        self._steps = 0

    @property
    def steps(self) -> int:
        return self._steps

    def _count_steps(
        self, items: Iterator[Metrics], agent: Agent, budget: Budget
    ) -> Iterator[Metrics]:
        agent.progress = self.progress(budget)
        if agent.progress >= 1.0:
            return
        for metrics in items:
            self._steps += 1
            agent.progress = self.progress(budget)
            yield metrics
            if agent.progress >= 1.0:
                return

    def state_dict(self) -> State:
        return {"steps": self._steps}

    def load_state_dict(self, state: State) -> None:
        self.load_counts(state)

    def load_counts(self, state: State) -> None:
        self._steps = int(state["steps"])


class ModelSource(_CountedSource):
    """Sweeps over a model: `agent.plan`."""

    unit, reports_each = "sweeps", True

    def __init__(self, model: TabularMDP, *, exact: bool) -> None:
        super().__init__()
        self.planned_in, self.model = model, model if exact else None

    def items(self, agent: Agent, budget: Budget) -> Iterator[Metrics | Totals]:
        return self._count_steps(agent.plan(self.planned_in), agent, budget)


class DataSource(_CountedSource):
    """Minibatches of recorded data: `agent.fit`."""

    unit = "minibatches"
    _passes = 0.0

    def __init__(self, open_data: Callable[[], Data]) -> None:
        super().__init__()
        self._open_data, self.model = open_data, None

    @cached_property
    def data(self) -> Data:
        """The data set, opened on first use: a run loaded only for evaluation never needs it."""
        return self._open_data()

    @property
    def passes(self) -> float:
        return self.data.passes if "data" in vars(self) else self._passes

    @property
    def notes(self) -> list[str]:
        return list(getattr(self.data, "notes", ()))  # an agent of one's own may have any data

    def items(self, agent: Agent, budget: Budget) -> Iterator[Metrics | Totals]:
        return self._count_steps(agent.fit(self.data), agent, budget)

    def state_dict(self) -> State:
        return super().state_dict() | {"data": self.data.state_dict(), "passes": self.passes}

    def load_counts(self, state: State) -> None:
        super().load_counts(state)
        self._passes = float(state["passes"])

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.data.load_state_dict(state["data"])
