"""Lock that is granted in order of arrival.

``threading.Lock`` may be taken again and again by the thread that releases it. Two answers of a language
model, which take turns a token at a time, would then run one after the other.
"""

import threading
from collections import deque


class FairLock:
    """Lock that is granted to the thread that has waited longest. Not reentrant."""

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self._is_held = False
        # One closed gate for each waiting thread, the longest wait first. Bounded by the number of threads.
        self._gates: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._inner:
            if not self._is_held:
                self._is_held = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        # The gate is opened by the thread that hands the lock over.
        gate.acquire()

    def __exit__(self, *_error: object) -> None:
        with self._inner:
            if self._gates:
                self._gates.popleft().release()
            else:
                self._is_held = False
