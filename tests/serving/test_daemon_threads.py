import threading
from concurrent.futures import CancelledError

import pytest

from maskwright.serving.daemon_threads import DaemonThreads


def test_results_and_what_is_raised_come_back() -> None:
    threads = DaemonThreads("test", 1)
    assert threads.submit(max, 1, 2).result(10) == 2
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(10)
    threads.shutdown()


def test_a_call_that_was_cancelled_before_its_turn_is_not_made() -> None:
    threads, go, calls = DaemonThreads("test", 1), threading.Event(), list[int]()
    first = threads.submit(go.wait, 10)
    second = threads.submit(calls.append, 2)
    assert second.cancel()
    go.set()
    assert first.result(10)
    threads.submit(calls.append, 3).result(10)
    with pytest.raises(CancelledError):
        second.result()
    assert calls == [3]
    threads.shutdown()


def test_they_are_stuck_when_none_is_free() -> None:
    threads, go = DaemonThreads("test", 2), threading.Event()
    barrier = threading.Barrier(3)

    def wait() -> None:
        barrier.wait(10)
        go.wait(10)

    first = threads.submit(wait)
    assert threads.stuck_seconds == 0
    second = threads.submit(wait)
    barrier.wait(10)
    assert threads.stuck_seconds > 0
    go.set()
    for future in (first, second):
        future.result(10)
    assert threads.stuck_seconds == 0
    threads.shutdown()
