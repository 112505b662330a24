"""Secret that a pool shares with its workers."""

import secrets

from parley.core.errors import ConfigError
from parley.runtime.worker_secret import secret_in
from parley.serving.pool.settings import PoolTuning


def pool_secret(settings: PoolTuning) -> bytes:
    """Return the secret that the workers share with this process; a new one where all are started here.

    Raises:
        ConfigError: a worker that runs elsewhere needs one, and the environment has none.
    """
    given = secret_in(settings.secret_env)
    if not given:
        others = [
            spec.name
            for spec in settings.workers
            if spec.ray is not None or (spec.url is not None and not spec.is_minicpm_server)
        ]
        if others:
            raise ConfigError(
                f"{settings.secret_env} is not set: {', '.join(others)} cannot be reached without the "
                "secret that they share"
            )
        given = secrets.token_hex(32).encode()
    return given
