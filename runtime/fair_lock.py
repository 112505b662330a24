"""A lock that goes to whoever has waited longest.

``threading.Lock`` may be taken again by the thread that gives it back, for as long as it likes: two answers
of a language model, which take turns a token at a time, would come one after the other.
"""

import threading
from collections import deque


class FairLock:
    """See the module. Not reentrant."""

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self._is_held = False
        # One closed gate for each thread that waits, the longest first. Bounded by how many there are.
        self._gates: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._inner:
            if not self._is_held:
                self._is_held = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        # Opened by whoever hands it over.
        gate.acquire()

    def __exit__(self, *_error: object) -> None:
        with self._inner:
            if self._gates:
                self._gates.popleft().release()
            else:
                self._is_held = False
