"""The end of a process, past the interpreter's own.

Native threads call into Python whenever they like: the library of the audio processing module logs from a
thread of its own, at its end too. A thread that does so while the interpreter is being torn down is ended
inside its native frames, and that aborts the process after all has been done and written. And threads that
load or hang in native code would be waited for. So a command that has closed what it opened leaves here.
"""

import logging
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End the process now: logs and streams are written out, and nothing else of Python runs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Who read it is gone; there is nobody to tell.
            status = status or 1
    os._exit(status)
