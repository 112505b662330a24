"""The name that a client of the MiniCPM-o server gives its conversation, in the path of the socket.

It is the client's own: it is checked, and then nothing is opened, stored or found by it. Sessions have ids of
the server's making, which are told.
"""

import re

from core.errors import PeerError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_name(name: str) -> None:
    """Raises PeerError for one that no such client makes."""
    if not NAME.fullmatch(name) or set(name) == {"."}:
        raise PeerError("the name in the path: 1 to 64 letters, digits, '_', '-' and '.'")
