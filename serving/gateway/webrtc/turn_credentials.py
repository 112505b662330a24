"""Credentials for a TURN server that expire, by the convention of coturn's REST interface.

The user is ``EXPIRY:NAME``, where the expiry is Unix time, and the password the HMAC-SHA1 of the user under a
secret that both servers have, in base64. The TURN server needs no list of users, and a user that leaks is of
no use after its expiry. Pure except for its clock.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parley.core.errors import ConfigError
from parley.serving.gateway.webrtc.turn_settings import EXPIRES_S, TURN_SECRET_ENV, TurnSettings

LEAST_SECRET_CHARS = 16


@dataclass(frozen=True, slots=True)
class TurnCredentials:
    """Credentials of one call.

    Attributes:
        user: with the time of its expiry.
        password: that goes with it.
    """

    user: str
    password: str


def turn_credentials(secret: str, expires_s: int, name: str) -> TurnCredentials:
    """Return the credentials of a user.

    Args:
        secret: that the TURN server has too.
        expires_s: Unix time of the expiry.
        name: of the user; the TURN server shows it in its log.
    """
    user = f"{expires_s}:{name}"
    digest = hmac.new(secret.encode(), user.encode(), hashlib.sha1).digest()
    return TurnCredentials(user, base64.b64encode(digest).decode())


class TurnServer:
    """TURN server of a deployment.

    Args:
        settings: of the deployment.
        environment: that holds the secret; None: that of the process.
        wall_s: Unix time.

    Raises:
        ConfigError: the secret is missing or too short.
    """

    def __init__(
        self,
        settings: TurnSettings,
        *,
        environment: Mapping[str, str] | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._wall_s = settings, wall_s
        self._secret = (os.environ if environment is None else environment).get(TURN_SECRET_ENV, "")
        if len(self._secret) < LEAST_SECRET_CHARS:
            raise ConfigError(
                f"server.turn: set {TURN_SECRET_ENV} to the secret of the TURN server (coturn: "
                f"static-auth-secret), of at least {LEAST_SECRET_CHARS} characters"
            )

    def credentials(self) -> TurnCredentials:
        """Return new credentials, whose name is random: the TURN server learns nothing about the client."""
        return turn_credentials(self._secret, int(self._wall_s()) + EXPIRES_S, secrets.token_hex(6))

    def ice_server(self) -> dict[str, object]:
        """Return the server with new credentials, as a member of ``RTCConfiguration.iceServers``."""
        made = self.credentials()
        return {"urls": list(self._settings.urls), "username": made.user, "credential": made.password}
