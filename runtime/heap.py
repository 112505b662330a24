"""Memory that goes back to the system: the allocator of the C library, set up and trimmed.

In: nothing but calls, from the process that owns the interpreter. Out: less resident memory. Decides three
bounds of glibc's allocator, which would otherwise raise them by itself with every large block that is
freed, up to 32 MB: from then on large blocks come from the heap, and a block of a call that lasts keeps all
below it. Bounds its arenas as well, of which it makes eight for each processor: every thread that decodes,
synthesises or stores has one, and what is free in one arena is of no use to another. On another C library
nothing happens. Pauses the interpreter's collector while a program starts.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
# A larger block is mapped by itself and goes back when it is freed. Packets and frames are smaller; a second
# of audio for an engine is 64 kB.
MMAP_BYTES = 1_048_576
# So much free at the top of the heap is kept for the next call.
TOP_BYTES = 8_388_608
# One for the interpreter, which one thread holds at a time, and one for native code next to it.
ARENAS = 2


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave garbage alone while modules are imported and engines loaded: all that they make stays.

    The collector looks at it again and again meanwhile, for about a tenth of the processor time of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def bound_heap() -> bool:
    """Set the allocator's bounds, once, at the start; returns whether they hold."""
    library = _libc()
    if library is None:
        return False
    return bool(
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        and library.mallopt(M_TRIM_THRESHOLD, TOP_BYTES)
        and library.mallopt(M_ARENA_MAX, ARENAS)
    )


def trim_heap() -> bool:
    """Give free pages of all arenas back; returns whether there were any.

    Blocks, and holds the locks of the allocator meanwhile: 380 ms for a heap of 1.1 GB of which half was
    free. Only for a process without calls.
    """
    library = _libc()
    return library is not None and bool(library.malloc_trim(0))
