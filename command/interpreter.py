"""Interpreter of a server, configured for calls."""

import gc
import sys

SWITCH_S = 0.001


def settle() -> None:
    """Configure the interpreter for calls, after everything is loaded."""
    # Loaded objects stay: full collections need not visit them again during calls.
    gc.collect()
    gc.freeze()
    # A full collection in the middle of a call stops the audio of all calls (12 ms were seen while calls
    # started). So they are rare here, and the gateway requests one when no call is held. A call that ends
    # needs none: reference counting frees it (``pipelines.release``).
    gc.set_threshold(2_000, 10, 500)
    # Threads (the session store's, voice activity's) hold the interpreter for this long until the loop has it
    # back. The default is 5 ms each time, and a call that starts reads and writes its session.
    sys.setswitchinterval(SWITCH_S)
