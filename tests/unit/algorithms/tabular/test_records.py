"""Records: named tuples whose fields a subclass adds to."""

from __future__ import annotations

import copy
import gc

import pytest

from rlbook.algorithms.tabular.records import NamedRecord


class Table(NamedRecord):
    q: float


class Traces(NamedRecord):
    trace: float


class TracedTable(Traces, Table):
    pending: int


def test_fields_stand_in_the_order_of_a_dataclass_those_of_the_last_base_first() -> None:
    made = TracedTable(1.0, trace=2.0, pending=3)
    assert made._fields == ("q", "trace", "pending")
    assert tuple(made) == (1.0, 2.0, 3) == (made.q, made.trace, made.pending)
    assert made._asdict() == {"q": 1.0, "trace": 2.0, "pending": 3}
    assert isinstance(made, Table) and isinstance(made, Traces)


def test_what_is_made_from_a_record_is_of_its_kind() -> None:
    made = TracedTable(*Table(1.0), trace=2.0, pending=3)
    for other in (made._replace(), copy.deepcopy(made)):
        assert type(other) is TracedTable and other == made
    assert made._replace(q=5.0).q == 5.0
    assert repr(made) == "TracedTable(q=1.0, trace=2.0, pending=3)"


def test_a_field_that_is_missing_or_too_many_is_refused() -> None:
    with pytest.raises(TypeError):
        TracedTable(1.0, trace=2.0)
    with pytest.raises(TypeError):
        Table(1.0, q=2.0)


@pytest.mark.slow
def test_a_collection_of_garbage_meanwhile_does_no_harm() -> None:
    """The class that the methods are taken from must live until all are taken: here garbage is
    collected before each is set."""

    class Collecting(type):
        def __setattr__(cls, name: str, value: object) -> None:
            gc.collect()
            super().__setattr__(name, value)

    made = Collecting("Made", (Traces,), {"__annotations__": {"pending": int}})
    assert made._fields == ("trace", "pending")
