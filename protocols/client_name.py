"""Name that a client of the MiniCPM-o server gives its conversation, in the path of the socket.

The client chooses the name. It is validated, and nothing is opened, stored or looked up by it. The server
generates the ids of sessions and sends them to the client.
"""

import re

from parley.core.errors import PeerError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_name(name: str) -> None:
    """Check the name in the path of a socket.

    Raises:
        PeerError: a name that no such client sends.
    """
    if not NAME.fullmatch(name) or set(name) == {"."}:
        raise PeerError("the name in the path must have 1 to 64 letters, digits, '_', '-' and '.'")
