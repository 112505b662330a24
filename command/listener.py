"""Address on which a server listens, and at which a browser reaches it."""

import socket

from parley.core.errors import ConfigError

EVERY_ADDRESS = ("0.0.0.0", "::")


def claim_port(host: str, port: int) -> socket.socket:
    """Bind before anything is loaded, so that a port in use is reported at once.

    Raises ConfigError when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --port"
        ) from error
    return listener


def address_of(host: str, port: int) -> str:
    """Return the address at which a browser on this machine reaches a server that listens on ``host``."""
    if host in ("127.0.0.1", *EVERY_ADDRESS):
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
