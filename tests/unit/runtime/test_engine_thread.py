"""A thread for an engine whose call may never return."""

import subprocess
import sys
import threading

import pytest

from parley.runtime.engine_thread import EngineThread

HANGS = """
import time
from parley.runtime.engine_thread import EngineThread
EngineThread("engine").submit(time.sleep, 600)
print("ends")
"""


def test_work_is_done_in_order_by_one_thread() -> None:
    thread = EngineThread("engine")
    names = [thread.submit(lambda: threading.current_thread().name) for _ in range(3)]
    assert [name.result(5) for name in names] == ["engine"] * 3
    done: list[int] = []
    for place in range(100):
        thread.submit(done.append, place)
    thread.shutdown()
    assert done == list(range(100))
    with pytest.raises(RuntimeError):
        thread.submit(print)


def test_an_error_is_told_to_a_caller_who_waits_and_the_next_is_done() -> None:
    thread = EngineThread("engine")
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 // 0).result(5)
    assert thread.submit(lambda: 2).result(5) == 2
    thread.shutdown()


def test_what_has_not_begun_can_be_left_out() -> None:
    thread, began, goes_on = EngineThread("engine"), threading.Event(), threading.Event()
    first = thread.submit(lambda: (began.set(), goes_on.wait(5)))
    began.wait(5)
    second = thread.submit(lambda: 2)
    thread.shutdown(wait=False, cancel_futures=True)
    goes_on.set()
    assert first.result(5) and second.cancelled()
    thread.shutdown()


def test_an_engine_that_hangs_does_not_keep_the_process() -> None:
    received = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30)
    assert received.stdout == "ends\n" and received.returncode == 0
