"""The search state of a token environment: the next state is the text plus the chosen token, so no
environment is copied.

A state's actions are the few tokens that a language model finds likeliest there. The search
says which; their ranks are the edges of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.planning.search.tree import NodeRecord, SearchTree
from rlbook.algorithms.planning.table_model import GOES_ON, TERMINATED
from rlbook.llm.environments.token_rows import TokenRows
from rlbook.seeding import UniformSource


class TextState:
    """A text so far, prompt first, and the candidate tokens that may follow it, once they are
    known."""

    __slots__ = ("choices", "ids")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.choices: NDArray[np.int64] | None = None  # [k], the likeliest first


class TextWorld:
    """Simulates one row of a token environment from its current text, for a tree search. The
    environment is not changed.

    Args:
        rows: the environment's rows.
        row: which of them.
        width: k, how many tokens may follow a text.
        verified: whether a finished text pays what the environment says of it; otherwise it pays 0,
            and whoever searches judges it.
    """

    saves = True
    allowed = root_mask = None  # every token may follow every text

    def __init__(self, rows: TokenRows, row: int, width: int, *, verified: bool) -> None:
        self.rules, self._rows, self._row, self._verified = rows.rules, rows, row, verified
        self.num_actions = min(width, self.rules.codec.vocabulary_size)
        self.state = TextState(())

    def prepare(self, search_tree: SearchTree, rng: np.random.Generator) -> None:
        """Makes the environment's current text the root of the tree."""
        search_tree.met[:1] = [NodeRecord(0.0, GOES_ON, TextState(self._token_ids()))]

    def _token_ids(self) -> tuple[int, ...]:
        return tuple(self._rows.tokens[self._row, : self._rows.lengths[self._row]].tolist())

    @property
    def is_over(self) -> bool:
        """Whether the environment's text is finished."""
        return bool(self._rows.terminated[self._row] or self._rows.truncated[self._row])

    def begin(self, observation: object, rng: UniformSource) -> None:
        """Does nothing: the root is a text, and nothing is random."""

    def to_root(self) -> None:
        """Does nothing: the search restores texts from its own memory."""

    def matches_edge(self, search_tree: SearchTree, edge: int) -> bool:
        """Whether the environment's current text is the one reached by an edge of the root."""
        root: TextState = search_tree.met[0].state
        return (
            root.choices is not None and (*root.ids, int(root.choices[edge])) == self._token_ids()
        )

    def load(self, state: TextState) -> None:
        """Sets the current text."""
        self.state = state

    def save(self) -> TextState:
        """Returns the current text."""
        return self.state

    def show(self, observation: object) -> None:
        """Does nothing: no text is truncated without terminating."""

    def key(self, observation: object, mode: str, ending: int) -> int:
        """The outcome's key; an action has only one."""
        return 0

    def has_drawn(self) -> bool:
        """Does nothing: no outcome is random."""
        return False

    def step(self, action: int) -> tuple[float, int]:
        """Appends the token of this rank. Reaching the limit ends a text as an end-of-text token
        does."""
        assert self.state.choices is not None
        prompt = int(self._rows.prompt[self._row])
        self.state = TextState((*self.state.ids, int(self.state.choices[action])))
        written = np.array(self.state.ids[int(self.rules.prompt_lengths[prompt]) :])
        over = (
            int(written[-1]) in self.rules.codec.ends
            or len(written) >= self.rules.max_new_tokens
            or self.rules.is_stopped(written)
        )
        if not over:
            return 0.0, GOES_ON
        return float(
            self.rules.rewards([self.rules.to_completion(prompt, written)])[0][0]
        ) if self._verified else 0.0, TERMINATED

    @property
    def obs(self) -> Mapping[str, Any]:
        """The current text as the environment's observation."""
        tokens = np.full(self.rules.context_length, self.rules.codec.pad, dtype=np.int64)
        tokens[: len(self.state.ids)] = self.state.ids
        return {"tokens": tokens, "length": np.int64(len(self.state.ids))}
