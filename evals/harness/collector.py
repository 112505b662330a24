"""Garbage collection that does not stop the client of a measurement.

A client that keeps every frame of several calls has a large heap. A full collection of it stopped the client
of ``evals.latency --capacity`` for 118 ms: at that moment the packets of all its calls seemed late.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from parley.runtime.heap import without_collection


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect first, then not again before the end. For a part of a measurement that takes minutes."""
    gc.collect()
    with without_collection():
        yield
