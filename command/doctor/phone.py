"""Check of the phone line by a synthetic call: a signed webhook, the stream, and the bot's first sound.

The call is that of a withheld number, so that no session is remembered for it. It ends as soon as the bot is
heard, and leaves a session with its greeting.
"""

import os
from collections.abc import Mapping, Sequence

from parley.command.doctor.results import CheckResult, fail, good, warn
from parley.configs.deployment import Deployment
from parley.core.errors import PeerError
from parley.protocols.twilio_signature import Algorithm, signature
from parley.serving.gateway.phone.carriers.twilio import (
    AUTH_TOKEN_ENV,
    SHARED_KEY_ENV,
    SIGNATURE,
    SIGNATURE_SETTINGS,
    TwilioCarrier,
)
from parley.transports.twilio.simulated_caller import Caller, SimulatedCall

WITHHELD = "+266696687"
SOUND_MS = 10_000


async def check_call(deployment: Deployment, server: str) -> Sequence[CheckResult]:
    """Place a call at a server.

    Args:
        deployment: of the server.
        server: address at which it is reached.
    """
    phone = deployment.phone
    if phone is None or TwilioCarrier.name not in phone.carriers:
        return []
    caller = Caller(
        number=WITHHELD,
        called=phone.number or "+15550199",
        patience_ms=SOUND_MS,
        limit_ms=SOUND_MS,
        listens_only=True,
    )
    call = SimulatedCall(
        server,
        b"",
        caller=caller,
        sign=_sign if phone.signatures else None,
        public_url=phone.public_url,
    )
    try:
        heard = await call.hold()
    except PeerError as error:
        return [fail(f"a call at {server}: {error}", _step_for(str(error)))]
    if heard.violations:
        return [fail(f"a call at {server}: {heard.violations[0]}", "report this as a fault of Parley")]
    if heard.voice_at_ms is not None:
        return [good(f"a call at {server} hears the bot after {heard.voice_at_ms} ms")]
    if not deployment.bot.greeting:
        return [
            warn(f"a call at {server} is connected; the bot has no greeting", "set bot.greeting to hear it")
        ]
    if heard.ended == "server":
        return [fail(f"a call at {server} is ended at once by the server", "read the server's log")]
    return [
        fail(
            f"a call at {server} hears nothing for {SOUND_MS / 1000:g} s",
            "check the voice: parley doctor without --server loads it; the server's log has its errors",
        )
    ]


def _sign(address: str, form: Mapping[str, str]) -> Mapping[str, str]:
    """Return Twilio's headers of a request."""
    fields = {name: [value] for name, value in form.items()}
    if token := os.environ.get(AUTH_TOKEN_ENV, ""):
        return {SIGNATURE: signature(token, address, fields)}
    key = os.environ.get(SHARED_KEY_ENV, "")
    return {
        SIGNATURE: signature(key, address, fields, Algorithm.SHA256),
        SIGNATURE_SETTINGS: f"algorithm={Algorithm.SHA256.value}",
    }


def _step_for(error: str) -> str:
    if "403" in error:
        return f"{AUTH_TOKEN_ENV} or phone.public_url differs between this command and the server"
    if "did not answer" in error:
        return "start the server, or name it with --server URL; a public address needs its proxy or tunnel"
    if "refused the call" in error:
        return "wait for a free line; with no call in progress the server's log has the reason"
    return "the proxy must pass WebSockets on; the server's log has the reason"
