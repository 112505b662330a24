"""Links of phone calls to their sessions, by which a call that lost its stream goes on in its session.

Input: the begin of a stream of a call in a session, its end, and a request to connect the call again. Output:
the session, and whether the call may be connected once more. A link is stored for all processes of a
deployment, so that it outlives the process that held the call. It belongs to the stream that wrote it last:
a process that has lost the call to another one does not end it there. A call without a link is over: this
side has ended it, or its caller has hung up. The links are rows by a digest of the call's id
(``session_store.call_links``), and so is each lost stream. Owns no task.
"""

import hashlib
import secrets

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import StoreError, StoreUnavailableError
from parley.core.tuning import tuned
from parley.serving.gateway.phone.caller_settings import ReconnectSettings, ReconnectTuning
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.session_store.call_links import CallLink
from parley.session_store.store import SessionStore

# A call of Twilio lasts 24 hours at most.
CALL_DAYS = 1.0
# Ended calls that are remembered here, because the store may not have their end.
MOST_OVER = 1_000
# Another request for a stream that is lost already repeats the first one within this time: the stream that
# its answer announces would have come by then (``tokens.TOKEN_S``).
REPEATED_S = 30.0


def new_holder() -> str:
    """Return a name for a stream that is about to hold a call."""
    return secrets.token_hex(16)


def call_digest(call: PhoneCall, part: str = "") -> str:
    """Return the digest of a call; its id has 128 random bits, and needs no key."""
    return hashlib.sha256(f"call.{call.network}.{call.call_sid}{part}".encode()).hexdigest()


class CallLinks:
    """Sessions of phone calls that may lose their stream.

    Args:
        store: open.
        settings: of reconnections.
    """

    def __init__(self, store: SessionStore, settings: ReconnectSettings) -> None:
        self._store, self._settings = store, tuned(ReconnectTuning, settings)
        # Digest of an ended call to the stream that held it.
        self._over: BoundedDict[str, str] = BoundedDict(MOST_OVER)

    async def began(self, call: PhoneCall, session_id: str, holder: str) -> None:
        """Link a call to the session that it is in from now on.

        Args:
            call: the call.
            session_id: of the session.
            holder: name of the stream (``new_holder``).

        Raises:
            StoreError: it cannot be stored.
        """
        await self._store.link_call(call_digest(call), CallLink(session_id, holder), forget_days=CALL_DAYS)

    async def over(self, call: PhoneCall, holder: str) -> None:
        """Record that a call has ended over this stream: it is not connected again.

        Has no effect on a call that another stream holds by now.
        """
        digest = call_digest(call)
        self._over[digest] = holder
        try:
            if not await self._store.unlink_call(digest, holder):
                self._over.pop(digest, None)
        except StoreError as error:
            logger.warning(f"cannot store the end of a phone call: {error}")

    async def link_of(self, call: PhoneCall) -> CallLink | None:
        """Return the link of a call that is not over; None for any other call.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        if not call.call_sid:
            return None
        digest = call_digest(call)
        holder = self._over.get(digest)
        try:
            link = await self._store.call_link(digest, within_days=CALL_DAYS)
        except StoreUnavailableError:
            if holder is None:
                raise
            return None
        return None if link is None or link.holder == holder else link

    async def take(self, call: PhoneCall, link: CallLink) -> bool:
        """Count the stream that a call has lost; return False when it has lost as many as it may.

        A request that repeats for the same stream is counted once.

        Raises:
            StoreError: it cannot be stored.
        """
        places = [call_digest(call, f".{number}") for number in range(self._settings.most)]
        within_s = self._settings.within_s
        return await self._store.count_lost_stream(
            places, link, within_s=within_s, same_s=min(REPEATED_S, within_s)
        )
