"""A recorded data set: minibatches for any number of passes, in an order that a resumed run
continues.

    data.shuffle(rng)
    for batch in data.minibatches(64):       # without end; between two minibatches everything may be saved
        train_on(batch)

What a row is, and what a batch looks like, is the subclass's business: see `rlbook.data.episodes`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.seeding import rng_state, set_rng_state

Batch_ = TypeVar("Batch_")
Rows = NDArray[np.int64]


class DataSet(ABC, Generic[Batch_]):
    """Rows 0 … n - 1. Position, pass and order are its state; the rows never change."""

    notes: tuple[str, ...] = ()
    """What is worth saying about the rows."""

    def __init__(self, digest: str | None = None) -> None:
        self._digest = digest  # None before it is computed
        self._rng: np.random.Generator | None = None
        # the generator's state before this pass's order was drawn
        self._before: State | None = None
        self._order: Rows | None = None  # of this pass; None before it is drawn
        # passes finished, and rows of this one that have been handed out
        self._pass = self._position = 0
        self._held_out = 0  # rows that no pass has
        self._kept: Rows | None = None  # those that a pass has; None: all

    def fresh_copy(self) -> Self:
        """The same rows for another run: no pass has begun, and none are held out."""
        other = copy.copy(self)
        DataSet.__init__(other, self._digest)
        return other

    @abstractmethod
    def __len__(self) -> int:
        """n, the number of rows."""

    def __repr__(self) -> str:
        rows = f"{len(self):,} row{'s' if len(self) != 1 else ''}"
        return f"<{type(self).__name__}: {rows}, {self.passes:.4g} passes>"

    @abstractmethod
    def __getitem__(self, rows: Rows) -> Batch_:
        """The rows with indices [B], as one batch."""

    def digest(self) -> str:
        """The sha256 of the content in hexadecimal; equal digests mean equal rows."""
        if self._digest is None:
            self._digest = self._compute_digest()
        return self._digest

    @abstractmethod
    def _compute_digest(self) -> str:
        """The digest, from all rows."""

    @property
    def passes(self) -> float:
        """The number of passes (epochs) so far: 1.5 is one full pass and half of the next."""
        return self._pass + self._position / self._rows_of_a_pass

    @property
    def _rows_of_a_pass(self) -> int:
        return len(self) - self._held_out

    def hold_out(self, share: float, rng: np.random.Generator) -> Rows:
        """Holds out a share of the rows, drawn with `rng`, from the minibatches; at least one row
        stays.

        Returns:
            The indices of the rows held out, in ascending order.
        """
        order = rng.permutation(len(self))
        self._held_out = min(round(share * len(self)), len(self) - 1)
        self._kept = np.sort(order[self._held_out :])
        return np.sort(order[: self._held_out])

    def shuffle(self, rng: np.random.Generator) -> None:
        """Shuffles the rows again in each pass with `rng`, which the data set owns from now on.

        Raises:
            ValueError: a pass has begun.
        """
        if self._order is not None or self._position:
            raise ValueError(
                "shuffle before the first minibatch: the order of this pass is already set"
            )
        self._rng = rng

    def minibatches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[Batch_]:
        """Yields minibatches of `size` rows forever, each row once per pass; the last minibatch of
        a pass may be smaller.

        Args:
            size: rows of a minibatch, at least 1.
            rng: as in `shuffle`. Without a generator, here and there, each pass has the rows in
                their own order.
        """
        if rng is not None:
            self.shuffle(rng)
        while True:
            order = self._current_order()
            while self._position < self._rows_of_a_pass:
                rows = order[self._position : self._position + size]
                self._position += len(rows)
                yield self[rows]
            self._pass, self._position, self._order = self._pass + 1, 0, None

    def _current_order(self) -> Rows:
        if self._order is None:
            self._before = None if self._rng is None else rng_state(self._rng)
            kept = np.arange(len(self)) if self._kept is None else self._kept
            self._order = kept if self._rng is None else kept[self._rng.permutation(len(kept))]
        return self._order

    def state_dict(self) -> State:
        """The position within the passes. The order is not saved but drawn again, so that the state
        does not grow with the data set."""
        state: State = {
            "rows": len(self),
            "held_out": self._held_out,
            "pass": self._pass,
            "position": self._position,
            "rng": self._before,
        }
        if self._order is None and self._rng is not None:
            state["rng"] = rng_state(self._rng)
        return state

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`: the next minibatch continues where the saved one stopped.

        Raises:
            ValueError: the state is of a data set with another number of rows.
        """
        if state["rows"] != len(self):
            raise ValueError(
                f"the data set has {len(self)} rows, but the saved position belongs to "
                f"{state['rows']}"
            )
        if (
            not 0 <= state["position"] <= len(self)
            or state["pass"] < 0
            or not 0 <= state["held_out"] < len(self)
        ):
            raise ValueError(
                f"the saved position is row {state['position']} of pass {state['pass']} in"
                f" {len(self)} rows"
            )
        self._pass, self._position, self._order = int(state["pass"]), int(state["position"]), None
        self._held_out = int(state["held_out"])
        if state["rng"] is not None:
            self._rng = np.random.default_rng() if self._rng is None else self._rng
            set_rng_state(self._rng, state["rng"])
