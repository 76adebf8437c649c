"""out += M x for some rows of a CSR matrix, without a new array for each product.

`matrix @ vector` calls the same function of scipy, which is private; where it is missing or has
changed, the public product stands in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy import sparse

AddProduct = Callable[[int, int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]

try:
    from scipy.sparse import _sparsetools

    _private: AddProduct | None = _sparsetools.csr_matvec
except (ImportError, AttributeError):  # pragma: no cover - a later scipy
    _private = None


def add_product(
    starts: np.ndarray, indices: np.ndarray, data: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """out[i] += Σ_k data[k] x[indices[k]] over k from starts[i] to starts[i + 1] - 1.

    Args:
        starts: [R + 1] int, for R rows; it need not begin with 0.
        indices, data: columns and numbers of the whole matrix.
        x: [C] float64. out: [R] float64, changed in place.
    """
    if _private is not None:
        _private(len(out), len(x), starts, indices, data, x, out)
        return
    part = slice(starts[0], starts[-1])
    out += (
        sparse.csr_array((data[part], indices[part], starts - starts[0]), shape=(len(out), len(x)))
        @ x
    )


@functools.cache
def runs_in_place() -> bool:
    """Whether `out` may be the beginning of `x`, so that each row sees what the rows before it have
    written."""
    x = np.array([0.0, 0.0, 1.0])
    add_product(
        np.array([0, 1, 2], np.int32), np.array([2, 0], np.int32), np.array([3.0, 5.0]), x, x[:2]
    )
    return bool((x == [3.0, 3.0 * 5.0, 1.0]).all())
