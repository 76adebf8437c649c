"""One seed feeds independent generators, one for each purpose; nothing touches a global
generator."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

PURPOSES = (
    "environment",
    "exploration",
    "initialisation",
    "minibatches",
    "evaluation",
    "data",
    "pairs",
    "held out",
    "noise",
    "discriminator",
    "comparisons",
    "planning",
    "model",
    "peer",
    "bonus",
)


class Uniform(Protocol):
    """Where uniform random numbers come from, such as a numpy Generator."""

    def random(self) -> float:
        """The next number, in [0, 1)."""
        ...


def fresh_seed() -> int:
    """A seed below 2³² from the operating system's entropy, another one at each call."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def rng_for(seed: int, purpose: str) -> np.random.Generator:
    """The generator for one purpose; the generators of one seed are independent of each other."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose),)))


def torch_generator(rng: np.random.Generator) -> Any:
    """A torch generator whose seed is drawn from `rng`, for initialising weights."""
    import torch

    return torch.Generator().manual_seed(int(rng.integers(2**63 - 1)))


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """A generator's state as plain JSON types."""
    return dict(rng.bit_generator.state)


_WORDS = {"state": 2**128, "inc": 2**128}
_HALF = {"has_uint32": 2, "uinteger": 2**32}  # half a word that was drawn and not used


def check_rng_state(state: object) -> None:
    """Raises ValueError unless this is a state of PCG64; numpy itself takes texts, fractions and
    -1."""
    words = state.get("state") if isinstance(state, dict) else None
    fits = (
        isinstance(state, dict)
        and state.keys() == {"bit_generator", "state", *_HALF}
        and state["bit_generator"] == "PCG64"
        and isinstance(words, dict)
        and words.keys() == _WORDS.keys()
        and all(_is_below(words[name], end) for name, end in _WORDS.items())
        and all(_is_below(state[name], end) for name, end in _HALF.items())
        and words["inc"] % 2 == 1
    )
    if not fits:
        raise ValueError("the saved state of a random generator is damaged")


def _is_below(number: object, end: int) -> bool:
    return type(number) is int and 0 <= number < end


def set_rng_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """The inverse of `rng_state`. Raises ValueError where it is no generator's state."""
    check_rng_state(state)
    rng.bit_generator.state = state
