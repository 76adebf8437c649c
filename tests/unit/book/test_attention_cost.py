"""A layer costs what the formula says: multiplications and bytes, exactly."""

from __future__ import annotations

import numpy as np

from rlbook.book.experiments.language_models import attention_cost


def test_the_multiplications_and_bytes_are_those_of_the_formulas() -> None:
    lengths = (8, 16, 24, 32)
    found = attention_cost.run(runs=1, lengths=lengths, written=18)
    n, d, f = np.array(lengths), attention_cost.WIDTH, attention_cost.FEED_FORWARD
    assert (found.products["matrices"] == n * (4 * d**2 + 3 * d * f)).all()
    assert (found.products["attention"] == 2 * n**2 * d).all()
    # floats of the attention weights, and a byte of the mask, for each pair of tokens
    pairs = attention_cost.HEADS * attention_cost.FLOAT + 1
    assert (np.diff(found.kept, 2) == pairs * 2 * 8**2).all()
    assert found.cache_bytes == 2 * d * attention_cost.FLOAT  # a key and a value
    numbers = attention_cost.measurements(found)
    assert numbers["length at which both are equal"] == (4 * d + 3 * f) / 2 == 832
    attention_cost.draw(found)


def test_one_length_grows_beside_no_other() -> None:
    numbers = attention_cost.measurements(attention_cost.run(runs=1, lengths=(8,), written=2))
    assert not [name for name in numbers if "beside half of it" in name]
    assert "ms a token, the last 16 of 2, without" in numbers
