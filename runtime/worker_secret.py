"""What gateways and workers know, and nobody else: whoever has it may use the workers."""

import os

from core.errors import ConfigError
from protocols.worker_tokens import LEAST_SECRET_BYTES


def secret_in(variable: str) -> bytes:
    """What gateways and workers know, of an environment variable; empty where it is not set.

    Raises:
        ConfigError: it is too short.
    """
    secret = os.environ.get(variable, "").encode()
    if secret and len(secret) < LEAST_SECRET_BYTES:
        raise ConfigError(
            f"the environment variable {variable}: expected a secret of at least {LEAST_SECRET_BYTES} "
            "characters; whoever has it may use the workers"
        )
    return secret
