"""Bounds on memory: configures and trims the allocator of the C library, and pauses garbage collection.

Called by the process that owns the interpreter; reduces its resident memory. Sets two thresholds of glibc's
allocator. Otherwise glibc raises them with every large block that is freed, up to 32 MB. From then on large
blocks come from the heap, and a block of a long call keeps all memory below it.

The number of arenas is bounded as well. By default there are eight for each processor. Every thread that
decodes, synthesises or stores has one, and free memory in one arena is of no use to another. Has no effect
with another C library. ``without_collection`` pauses the interpreter's garbage collector while a program
starts.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Constants of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
# A larger block is mapped by itself and returned when it is freed. Packets and frames are smaller; a second
# of audio for an engine is 64 kB.
MMAP_BYTES = 1_048_576
# Free memory at the top of the heap that is kept for the next call.
TOP_BYTES = 8_388_608
# One arena for the interpreter, which one thread holds at a time, and one for native code.
ARENAS = 2


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection while modules are imported and engines loaded.

    All objects that they create remain. The collector would scan them again and again, for about a tenth of
    the processor time of a start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def bound_heap() -> bool:
    """Set the allocator's bounds, once, at the start; return whether they are in force."""
    library = _libc()
    if library is None:
        return False
    return bool(
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        and library.mallopt(M_TRIM_THRESHOLD, TOP_BYTES)
        and library.mallopt(M_ARENA_MAX, ARENAS)
    )


def trim_heap() -> bool:
    """Return free pages of all arenas to the system; return whether there were any.

    Blocks, and holds the locks of the allocator meanwhile: 380 ms for a heap of 1.1 GB of which half was
    free. Only for a process without calls.
    """
    library = _libc()
    return library is not None and bool(library.malloc_trim(0))
