"""Settings of a TURN server, whose credentials are made for each call."""

from typing import Annotated

from pydantic import Field

from parley.core.strict_model import StrictModel

# Time in which the credentials of a call open a path. A path that is open stays open after it, so that it
# bounds what stolen credentials are good for, and no call.
EXPIRES_S = 3_600
# Variable of the environment with the secret that this server shares with the TURN server.
TURN_SECRET_ENV = "PARLEY_TURN_SECRET"
TurnUrl = Annotated[str, Field(pattern=r"^turns?:[A-Za-z0-9.\-\[\]:]+(\?transport=(udp|tcp))?$")]


class TurnSettings(StrictModel):
    """TURN server for browsers whose network lets no other way through."""

    urls: tuple[TurnUrl, ...] = Field(
        min_length=1,
        max_length=8,
        description="addresses, as turn:host:port, turns:host:port, or with ?transport=tcp. The secret that "
        "the TURN server has too (coturn: static-auth-secret) is in PARLEY_TURN_SECRET",
    )
