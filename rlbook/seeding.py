"""One seed feeds independent generators, one for each purpose; nothing draws from a global
generator except environments that do so themselves. Their states are saved as plain data, including
those of environments' generators."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias, TypeGuard

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
    "globals",
)


class UniformSource(Protocol):
    """A source of uniform random numbers, such as a numpy Generator."""

    def random(self) -> float:
        """The next number, in [0, 1)."""
        ...


def fresh_seed() -> int:
    """A new seed below 2³² from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def rng_for(seed: int, purpose: str) -> np.random.Generator:
    """The generator for one purpose; the generators of one seed are independent of each other."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose),)))


def torch_generator(rng: np.random.Generator) -> Any:
    """A torch generator whose seed is drawn from `rng`, for initialising weights."""
    import torch

    return torch.Generator().manual_seed(int(rng.integers(2**63 - 1)))


Rng: TypeAlias = "np.random.Generator | np.random.RandomState | random.Random"
"""A random generator: one of numpy's two interfaces, or Python's."""


def rng_state(rng: Rng) -> dict[str, Any]:
    """A generator's state as plain data: the name of its algorithm, numbers and arrays of words."""
    if isinstance(rng, np.random.Generator):
        return dict(rng.bit_generator.state)
    if isinstance(rng, np.random.RandomState):
        return dict(rng.get_state(legacy=False))  # type: ignore[call-overload]
    words, gauss = rng.getstate()[1:]
    key = np.array(words[:-1], np.uint32)
    return {"bit_generator": PYTHONS, "state": {"key": key, "pos": words[-1]}, "gauss": gauss}


class GlobalGenerators:
    """The states of Python's and numpy's global generators for one run or evaluation, whose
    environments may draw from them; the caller's own states are not affected."""

    def __init__(self, seed: int) -> None:
        first, second = rng_for(seed, "globals").integers(2**32, size=2).tolist()
        own = random.Random(first), np.random.RandomState(second)
        self._states = [rng_state(rng) for rng in own]

    @contextlib.contextmanager
    def swap_states(self) -> Iterator[None]:
        """Within the context, replaces the caller's states by these, and stores the new ones at the
        end."""
        callers = [rng_state(rng) for rng in GLOBAL_RNGS]
        self._set(self._states)
        try:
            yield
        finally:
            self._states = [rng_state(rng) for rng in GLOBAL_RNGS]
            self._set(callers)

    @staticmethod
    def _set(states: list[dict[str, Any]]) -> None:
        for rng, state in zip(GLOBAL_RNGS, states, strict=True):
            set_rng_state(rng, state)


GLOBAL_RNGS: tuple[Rng, Rng] = (
    random.random.__self__,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
)
"""The generators behind the module-level functions of Python's `random` and of numpy."""


PYTHONS = "random.Random"
"""The name of Python's algorithm in a state, as numpy's have names."""


def _integer_below(end: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value < end


def _array_of_words(dtype: type[np.unsignedinteger[Any]], count: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == (count,)
    )


def _is_twister(key: Any) -> bool:
    """Whether these are the words of a Mersenne Twister. Only one bit of the first word counts; if
    no other bit were set, it would return zeros forever, for which some draws wait without end."""
    return _array_of_words(np.uint32, 624)(key) and bool(key[1:].any() or key[0] >> 31)


def _is_name(value: object) -> bool:
    """Whether this is text; which one was checked before."""
    return isinstance(value, str)


def _is_gauss(value: object) -> bool:
    """Whether this is a normal number that was drawn and not used."""
    return type(value) is float and math.isfinite(value)


_HALF = {
    "has_uint32": _integer_below(2),
    "uinteger": _integer_below(2**32),
}  # half a word, drawn and not used
_PCG64 = {
    "bit_generator": _is_name,
    "state": {
        "state": _integer_below(2**128),
        "inc": lambda inc: _integer_below(2**128)(inc) and inc % 2 == 1,
    },
    **_HALF,
}
_MT19937 = {"bit_generator": _is_name, "state": {"key": _is_twister, "pos": _integer_below(625)}}
_LEGACY = {"has_gauss": _integer_below(2), "gauss": _is_gauss}  # what a RandomState has besides
_FORMS: dict[str, dict[str, Any]] = {
    "PCG64": _PCG64,
    "PCG64DXSM": _PCG64,
    "MT19937": _MT19937,
    "Philox": {
        "bit_generator": _is_name,
        "state": {"counter": _array_of_words(np.uint64, 4), "key": _array_of_words(np.uint64, 2)},
        "buffer": _array_of_words(np.uint64, 4),
        "buffer_pos": _integer_below(5),
        **_HALF,
    },
    "SFC64": {
        "bit_generator": _is_name,
        "state": {"state": _array_of_words(np.uint64, 4)},
        **_HALF,
    },
    PYTHONS: _MT19937 | {"gauss": lambda value: value is None or _is_gauss(value)},
}
"""The name of an algorithm → the parts of its state, and the allowed values of each."""


def can_save(value: object) -> TypeGuard[Rng]:
    """Whether this is a random generator whose state `rng_state` can save."""
    if isinstance(value, random.Random):  # those of the operating system have no state
        return type(value).getstate is random.Random.getstate
    if isinstance(value, np.random.RandomState):
        return _name_of(value) in _FORMS
    return isinstance(value, np.random.Generator) and _name_of(value) in _FORMS


def _name_of(rng: Rng) -> str:
    """The name of a generator's algorithm."""
    if isinstance(rng, np.random.Generator):
        return type(rng.bit_generator).__name__
    if isinstance(rng, np.random.RandomState):
        return type(rng._bit_generator).__name__  # its state has the name, too, and takes longer
    return PYTHONS


def check_rng_state(state: object) -> None:
    """Raises ValueError unless this is a state of a random generator; numpy itself accepts texts,
    fractions and -1, and reads beyond the words of a Mersenne Twister."""
    name = state.get("bit_generator") if isinstance(state, dict) else None
    form = _FORMS.get(name) if isinstance(name, str) else None
    if form is not None and "has_gauss" in state:  # type: ignore[operator]
        form = form | _LEGACY
    if form is None or not _fits(state, form):
        raise ValueError("the saved state of a random generator is damaged")


def _fits(value: object, form: dict[str, Any]) -> bool:
    """Whether a value has the parts of a form, each with an allowed value."""
    return (
        isinstance(value, dict)
        and value.keys() == form.keys()
        and all(
            part(value[name]) if callable(part) else _fits(value[name], part)
            for name, part in form.items()
        )
    )


def set_rng_state(rng: Rng, state: dict[str, Any]) -> None:
    """The inverse of `rng_state`. Raises ValueError if it is not a state of such a generator."""
    check_rng_state(state)
    legacy = isinstance(rng, np.random.RandomState)
    if state["bit_generator"] != _name_of(rng) or legacy != ("has_gauss" in state):
        raise ValueError("the saved state of a random generator is that of another kind")
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = state
    elif isinstance(rng, np.random.RandomState):
        rng.set_state(state)
    else:
        words = (*state["state"]["key"].tolist(), state["state"]["pos"])
        rng.setstate((random.Random.VERSION, words, state["gauss"]))
