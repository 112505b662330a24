"""Host that takes no connection and refuses none, as one whose firewall drops what comes."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def silent_host() -> Iterator[int]:
    """Hold a port of this machine, on all of its addresses, to which no connection is made; return it.

    The queue of connections that wait to be accepted is full: the system drops the packets of others.
    """
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("", 0))
        listening.listen(0)
        port = int(listening.getsockname()[1])
        # One more than the queue is said to hold.
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
