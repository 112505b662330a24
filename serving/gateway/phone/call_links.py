"""Links of phone calls to their sessions, by which a call that lost its stream goes on in its session.

Input: the begin of a call in a session, its end, and a request to connect it again. Output: the session, and
whether the call may be connected once more. A link is stored for all processes of a deployment, so that it
outlives the process that held the call. A call without a link is over: this side has ended it, or its caller
has hung up. The links are rows of callers (``session_store.callers``), by a digest of the call's id; each
reconnection is a row of its own, so that a process that dies at once cannot be called for ever. Owns no task.
"""

import hashlib

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import StoreError
from parley.serving.gateway.phone.caller_settings import CallerSettings, ReconnectSettings
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.session_store.store import SessionStore

# A call of Twilio lasts 24 hours at most.
CALL_DAYS = 1.0
S_PER_DAY = 86_400.0
# Ended calls whose link may remain because the store did not answer.
MOST_OVER = 1_000


class CallLinks:
    """Sessions of phone calls that may lose their stream.

    Args:
        store: open.
        settings: of reconnections.
        callers: recognition of callers by number, whose rows are deleted later; None: there is none.
    """

    def __init__(
        self, store: SessionStore, settings: ReconnectSettings, callers: CallerSettings | None = None
    ) -> None:
        self._store, self._settings = store, settings
        self._forget_days = CALL_DAYS if callers is None else max(CALL_DAYS, callers.days)
        self._over: BoundedDict[str, None] = BoundedDict(MOST_OVER)

    async def began(self, call: PhoneCall, session_id: str) -> None:
        """Link a call to the session that it is in from now on.

        Raises:
            StoreError: it cannot be stored.
        """
        await self._store.link_caller(session_id, _digest(call), forget_days=self._forget_days)

    async def over(self, call: PhoneCall) -> None:
        """Record that a call has ended: it is not connected again."""
        digest = _digest(call)
        self._over[digest] = None
        try:
            await self._store.unlink_caller(digest)
        except StoreError as error:
            logger.warning(f"cannot store the end of a phone call: {error}")

    async def session_of(self, call: PhoneCall) -> str | None:
        """Return the session of a call that is not over; None for any other call.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        digest = _digest(call)
        if not call.call_sid or digest in self._over:
            return None
        return await self._store.session_of_caller(digest, within_days=CALL_DAYS)

    async def take(self, call: PhoneCall, session_id: str) -> bool:
        """Count a reconnection of a call; return False when it has had as many as it may.

        Raises:
            StoreError: it cannot be stored.
        """
        within_days = self._settings.within_s / S_PER_DAY
        for number in range(self._settings.most):
            digest = _digest(call, f".{number}")
            if await self._store.session_of_caller(digest, within_days=within_days) is None:
                await self._store.link_caller(session_id, digest, forget_days=self._forget_days)
                return True
        return False


def _digest(call: PhoneCall, part: str = "") -> str:
    """Return the digest of a call; its id has 128 random bits, and needs no key."""
    return hashlib.sha256(f"call.{call.network}.{call.call_sid}{part}".encode()).hexdigest()
