"""End of a child process with its parent, also when the parent was killed."""

import ctypes
import signal
import sys

# Option of Linux's prctl: the signal that this process gets when its parent dies.
PR_SET_PDEATHSIG = 1


def die_with_the_parent() -> None:
    """Let the kernel kill this process when the parent dies; Linux only.

    For a process that is inside a long call and does not look at its connection. The kernel refers to the
    thread of the parent that started this process. A parent that died before this call is noticed at the
    connection.

    Raises:
        OSError: the kernel refuses.
    """
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) failed")
