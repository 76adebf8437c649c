"""How close two floating-point results have to be: a bound that is derived, not fitted to the
machine of whoever wrote the test.

A sum of n rounded terms is off by at most λ √n u Σ|terms|, where u is half the dtype's eps (Higham
& Mary 2019, SIAM J. Sci. Comput. 41, A2815, theorem 2.4: with probability at least 1 - 2 n
exp(-λ²/2), whatever the order of the sum, and so on every processor). Both sides of a comparison
are rounded, and their inputs were; with λ = 8 the bound is

    8 √terms · eps(dtype) · size

`terms` counts what is added up on the longest way from the inputs to the result: for a matrix
product the inner width, for a network the sum of the widths of its layers (`widths`), for a chain
of updates how many there are. `size` is Σ|terms|, which for a mean is the size of the numbers and
where nothing cancels the size of the result; where large numbers cancel to a small one the call has
to say so, since the result does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

LAMBDA = 8.0
EPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def rounding_bound(dtype: Any, *, terms: float = 1, size: float = 1.0) -> float:
    """How far apart two orders of the same arithmetic may be, in the unit of `size`.

    Args:
        dtype: of torch, of numpy, or its name: the coarsest that the numbers went through on their
            way.
        terms: how many rounded numbers are added up on the longest way to a result.
        size: Σ|terms|, the sum of their absolute values.
    """
    return LAMBDA * math.sqrt(max(terms, 1)) * EPS[_name(dtype)] * size


def near(
    expected: Any,
    *,
    dtype: Any = None,
    terms: float = 1,
    size: float | None = None,
    decimals: int | None = None,
) -> Any:
    """What `==` compares with: `assert loss.item() == near(2.5, dtype="float32", terms=12)`.

    Args:
        expected: a number, a list or mapping of numbers, an array or a tensor.
        dtype: of the arithmetic; None is that of `expected` if it is an array or a tensor, and
            float64 otherwise. A number that came out of a float32 tensor needs dtype="float32": the
            number itself does not show it.
        terms, size: as in `rounding_bound`; None for size is the largest absolute value in
            `expected`.
        decimals: with how many `expected` is printed where it comes from; half a unit of the last
            is added to the bound.
    """
    expected = _plain(expected)
    dtype = dtype or getattr(expected, "dtype", "float64")
    bound = rounding_bound(dtype, terms=terms, size=_size(expected) if size is None else size)
    return pytest.approx(expected, rel=0.0, abs=bound + _half_a_unit(decimals))


def assert_near(
    actual: Any,
    expected: Any,
    *,
    dtype: Any = None,
    terms: float = 1,
    size: float | None = None,
    decimals: int | None = None,
) -> None:
    """Two arrays or tensors of one shape are the same but for rounding.

    Args:
        actual, expected: arrays, tensors, or sequences of them.
        dtype: of the arithmetic; None is the coarser of the two.
        terms, size: as in `rounding_bound`; None for size is the largest absolute value on either
            side.
        decimals: as in `near`.
    """
    if isinstance(actual, list | tuple) and any(hasattr(one, "shape") for one in actual):
        for one, other in zip(actual, expected, strict=True):
            assert_near(one, other, dtype=dtype, terms=terms, size=size, decimals=decimals)
        return
    actual, expected = _plain(actual), _plain(expected)
    dtype = dtype or max((_dtype(actual), _dtype(expected)), key=EPS.__getitem__)
    if size is None:
        size = max(_size(actual), _size(expected))
    bound = rounding_bound(dtype, terms=terms, size=size) + _half_a_unit(decimals)
    np.testing.assert_array_equal(np.shape(actual), np.shape(expected), "the shapes differ")
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=0.0, atol=bound
    )


def widths(module: torch.nn.Module) -> int:
    """The sum of the widths of a network's layers: its `terms`. Biases and norms count as layers,
    which is more than enough.

    A convolution is as wide as its kernel has weights for an output.
    """
    shapes = [parameter.shape for parameter in module.parameters() if parameter.dim()]
    return sum(math.prod(shape[1:]) if len(shape) == 4 else shape[-1] for shape in shapes)


def largest(tensors: Iterable[Any]) -> float:
    """The largest absolute value in several: the `size` of gradients that one backward pass
    gave."""
    return max(_size(_plain(tensor)) for tensor in tensors)


def _half_a_unit(decimals: int | None) -> float:
    """Half of the last decimal's unit."""
    return 0.0 if decimals is None else 0.5 * 10.0**-decimals


def _plain(value: Any) -> Any:
    """A tensor as an array; bfloat16, which numpy lacks, as float32 (say its dtype in the call)."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()


def _size(value: Any) -> float:
    """The largest finite absolute value."""
    numbers = np.asarray(
        [list(value.values())] if isinstance(value, Mapping) else value, np.float64
    )
    finite = np.abs(numbers[np.isfinite(numbers)])
    return float(finite.max()) if finite.size else 0.0


def _dtype(value: Any) -> str:
    name = _name(getattr(value, "dtype", "float64"))
    return name if name in EPS else "float64"


def _name(dtype: Any) -> str:
    return getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
