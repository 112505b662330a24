"""Secret that gateways and workers share; any client that holds it may use the workers."""

import os

from parley.core.errors import ConfigError
from parley.protocols.worker_tokens import LEAST_SECRET_BYTES


def secret_in(variable: str) -> bytes:
    """Return the shared secret from an environment variable; empty when it is not set.

    Raises:
        ConfigError: the secret is too short.
    """
    secret = os.environ.get(variable, "").encode()
    if secret and len(secret) < LEAST_SECRET_BYTES:
        raise ConfigError(
            f"the environment variable {variable} needs a secret of at least {LEAST_SECRET_BYTES} "
            "characters; every process that has the secret may use the workers"
        )
    return secret
