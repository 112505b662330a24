"""Process exit that skips the interpreter's own shutdown.

Native threads may call into Python at any time: the library of the audio processing module logs from a thread
of its own, also at its end. A thread that does so during the interpreter's shutdown is ended inside its
native frames, which aborts the process after all work has been done and written. The interpreter would also
wait for threads that load or hang in native code. A command that has closed its resources therefore exits
through ``exit_process``.
"""

import logging
import os
import sys
from typing import NoReturn


def exit_process(status: int) -> NoReturn:
    """Flush logs and standard streams and end the process; no other Python code runs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # The reader of the stream is gone, so the error cannot be reported.
            status = status or 1
    os._exit(status)
