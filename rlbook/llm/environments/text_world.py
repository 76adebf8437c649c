"""What a search over tokens looks ahead in: the next state is the text with the chosen token behind
it, so no environment is copied.

A state's actions are the few tokens that a language model finds likeliest there. Whoever searches
says which; their ranks are the edges of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.planning.search_tree import Met, SearchTree
from rlbook.algorithms.planning.table_model import GOES_ON, TERMINATED
from rlbook.llm.environments.token_rows import TokenRows
from rlbook.seeding import Uniform


class TextState:
    """A text so far, prompt first, and the tokens that may follow it, once they are known."""

    __slots__ = ("choices", "ids")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.choices: NDArray[np.int64] | None = None  # [k], the likeliest first


class TextWorld:
    """One row of a token environment, searched from where it is. Nothing in the environment
    changes.

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

    def prepare(self, found: SearchTree, rng: np.random.Generator) -> None:
        """The text that the environment shows is the tree's root."""
        found.met[:1] = [Met(0.0, GOES_ON, TextState(self._token_ids()))]

    def _token_ids(self) -> tuple[int, ...]:
        return tuple(self._rows.tokens[self._row, : self._rows.lengths[self._row]].tolist())

    @property
    def is_over(self) -> bool:
        """Whether the environment's text is finished."""
        return bool(self._rows.terminated[self._row] or self._rows.truncated[self._row])

    def begin(self, observation: object, rng: Uniform) -> None:
        """Nothing: the root is a text, and nothing is random."""

    def to_root(self) -> None:
        """Nothing: a search of texts goes from what it remembers."""

    def follows(self, found: SearchTree, edge: int) -> bool:
        """Whether the environment shows what follows an edge of the root."""
        root: TextState = found.met[0].state
        return (
            root.choices is not None and (*root.ids, int(root.choices[edge])) == self._token_ids()
        )

    def load(self, state: TextState) -> None:
        """Moves to a text."""
        self.state = state

    def save(self) -> TextState:
        """The present text."""
        return self.state

    def show(self, observation: object) -> None:
        """Nothing: no text is cut off without an ending."""

    def key(self, observation: object, mode: str, ending: int) -> int:
        """An action has one outcome."""
        return 0

    def drew(self) -> bool:
        """Nothing is random here."""
        return False

    def step(self, action: int) -> tuple[float, int]:
        """Appends the token of this rank. The limit ends a text as an end token does: nothing
        follows it."""
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
        """The present text as the environment would show it."""
        tokens = np.full(self.rules.context_length, self.rules.codec.pad, dtype=np.int64)
        tokens[: len(self.state.ids)] = self.state.ids
        return {"tokens": tokens, "length": np.int64(len(self.state.ids))}
