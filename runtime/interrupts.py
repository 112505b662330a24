"""Ctrl-C while a command cannot stop in order yet.

Python raises ``KeyboardInterrupt`` wherever the main thread is. In the first seconds of a command that is
inside the imports of other packages. There it becomes a traceback of forty lines or an ImportError, or it is
lost where a callback of C code cannot pass it on, and the server starts nevertheless. A command therefore
begins with ``end_at_once``. What has something to stop runs within ``stopping_in_order``.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130
# File name of the frames of the import system.
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def end_at_once() -> None:
    """Let Ctrl-C end this process at once with status 130; nothing is cleaned up.

    A process that ignores Ctrl-C, such as one that a shell runs in the background, still does.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def end_at_once_during_imports() -> None:
    """Let Ctrl-C end this process at once while a module is imported, and raise KeyboardInterrupt otherwise.

    For work without an event loop, which removes what it has begun. It follows ``end_at_once``, and changes
    nothing in another process.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _end_or_raise)


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """Let Ctrl-C interrupt the work within: the first one cancels the task of ``asyncio.run``.

    asyncio handles Ctrl-C only where Python's own handler is installed.
    """
    before = signal.getsignal(signal.SIGINT)
    if before not in (_end, _end_or_raise):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            # Its reader is gone, or the signal arrived while this thread was writing to it.
            continue
    os._exit(EXIT_INTERRUPTED)


def _end_or_raise(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            _end(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt
