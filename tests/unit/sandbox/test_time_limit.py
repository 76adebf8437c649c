"""A time limit ends what is inside, in any thread, and nothing behind it."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from rlbook.sandbox.time_limit import time_limit


def endless() -> None:
    while True:
        pass


def test_endless_code_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError), time_limit(0.1):
        endless()
    assert time.monotonic() - begun < 5.0


def test_it_holds_in_another_thread() -> None:
    found: list[type] = []

    def work() -> None:
        try:
            with time_limit(0.1):
                endless()
        except TimeoutError as error:
            found.append(type(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10.0)
    assert found == [TimeoutError]


def test_what_is_quick_is_left_alone() -> None:
    for _ in range(200):  # on a busy machine some take longer than that, and none is told later
        with contextlib.suppress(TimeoutError), time_limit(0.01):
            pass
    with time_limit(5.0):
        kept = sum(range(1000))
    time.sleep(0.05)
    assert kept == 499_500


def test_a_call_that_ends_too_late_is_reported_all_the_same() -> None:
    with pytest.raises(TimeoutError), time_limit(0.05):
        time.sleep(0.3)


def test_the_error_of_what_is_inside_comes_through() -> None:
    with pytest.raises(KeyError), time_limit(5.0):
        raise KeyError
