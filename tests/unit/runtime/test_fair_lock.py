"""Threads that take turns."""

import threading
import time

from parley.runtime.fair_lock import FairLock

WITHIN_S = 5


def test_a_caller_who_gives_it_back_is_after_those_who_wait() -> None:
    lock, order = FairLock(), list[str]()

    def take(name: str) -> None:
        with lock:
            order.append(name)

    threads = [threading.Thread(target=take, args=(name,), daemon=True) for name in ("one", "other")]
    with lock:
        for waiting, thread in enumerate(threads, start=1):
            thread.start()
            until_s = time.monotonic() + WITHIN_S
            while len(lock._gates) < waiting and time.monotonic() < until_s:
                pass
    take("again")
    for thread in threads:
        thread.join(WITHIN_S)
    assert order == ["one", "other", "again"]


def test_an_error_inside_gives_it_back() -> None:
    lock, taken = FairLock(), 0
    for _ in range(2):
        try:
            with lock:
                taken += 1
                raise ValueError
        except ValueError:
            pass
    assert taken == 2
