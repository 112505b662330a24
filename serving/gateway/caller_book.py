"""Which session a telephone call is part of: of the number that calls, or of a code that is pressed.

In: numbers as the network says them, and codes. Out: ids of sessions. Kept in the session store, so that
every process of a deployment knows them; a number is kept as a digest. A number without a key, a withheld
one, and one for which nobody vouches where that is asked for are nobody's: such a call is a session of its
own.
"""

import math
import os
import secrets
import time
from collections.abc import Callable

from core.errors import CapacityError, ConfigError, PeerError
from core.tuning import tuned
from protocols.phone_numbers import is_attested, known_number, number_digest
from serving.gateway.caller_settings import CALLER_KEY_ENV, CallCodeSettings, CallCodeTuning, CallerSettings
from serving.gateway.limits import Rate, ShareError
from session_store.store import SessionStore

LEAST_KEY_CHARS = 16
# Of a code that another session has at this moment.
ATTEMPTS = 5


class CallerBook:
    """Of one process.

    Args:
        store: open.
        callers: how callers are known; None: by no number.
        codes: of codes; None: there are none.
        number: that people call, where there is one.
        draw: a code of so many digits.
        clock_s: monotonic.

    Raises:
        ConfigError: there is no key for numbers, or it is too short to be one.
    """

    def __init__(
        self,
        store: SessionStore,
        callers: CallerSettings | None = None,
        codes: CallCodeSettings | None = None,
        *,
        number: str | None = None,
        draw: Callable[[int], str] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.callers, self.number = callers, number
        self.codes = None if codes is None else tuned(CallCodeTuning, codes)
        self._store = store
        self._draw = draw or _code
        self._key = b"" if callers is None else os.environ.get(CALLER_KEY_ENV, "").encode()
        if callers is not None and len(self._key) < LEAST_KEY_CHARS:
            raise ConfigError(
                f"phone.remember_callers: set {CALLER_KEY_ENV} to a key of at least {LEAST_KEY_CHARS} "
                "characters; with another one every caller is unknown again"
            )
        wrong = self.codes.wrong_per_minute if self.codes is not None else 1
        self._clock_s = clock_s
        self._open_until_s = -math.inf
        self._wrong = Rate(wrong, "too many wrong codes at this moment", clients=1)

    # Numbers.

    def digest_of(self, caller: str, called: str, *, verstat: str = "") -> str | None:
        """By which a caller is known; None for one who is not.

        Args:
            caller: the number, as the network says it.
            called: the number that is called.
            verstat: what the network says of the caller's number.
        """
        settings, number = self.callers, known_number(caller)
        if settings is None or number is None or (settings.trust == "attested" and not is_attested(verstat)):
            return None
        return number_digest(self._key, number, called)

    async def session_of(self, digest: str) -> str | None:
        """The session of a caller; None for a new one. Raises StoreUnavailableError."""
        assert self.callers is not None
        return await self._store.session_of_caller(digest, within_days=self.callers.days)

    async def called(self, digest: str, session_id: str, *, linked: bool) -> None:
        """A caller is in a call of this session.

        Args:
            digest: of the caller.
            session_id: of the call.
            linked: the number was linked to it already. One that is linked is seen again.

        Raises:
            StoreError: it cannot be kept.
        """
        assert self.callers is not None
        if linked or self.callers.continues == "calls":
            await self._store.link_caller(session_id, digest, forget_days=self.callers.days)

    async def link(self, session_id: str, caller: str, called: str | None) -> None:
        """Have the next call of a number be part of a session.

        Raises:
            PeerError: that number is nobody's, or nobody can tell which number is called.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        called = called or self.number
        number = known_number(caller)
        if self.callers is None or number is None or called is None:
            raise PeerError(
                "callers are not known by their numbers here (phone.remember_callers)"
                if self.callers is None
                else "number: expected + and the digits of a number that is not withheld"
                if number is None
                else "called: which number is called? Set phone.number, or name it"
            )
        digest = number_digest(self._key, number, called)
        await self._store.link_caller(session_id, digest, forget_days=self.callers.days)

    # Codes.

    async def new_code(self, session_id: str) -> str:
        """A code that stands for a session, in place of the one that it had.

        Raises:
            CapacityError: too many codes are out.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        assert self.codes is not None
        for _ in range(ATTEMPTS):
            code = self._draw(self.codes.digits)
            if await self._store.put_code(session_id, code, for_s=self.codes.expires_s, most=self.codes.most):
                self._open_until_s = self._clock_s() + self.codes.expires_s
                return code
        raise CapacityError(
            "too many codes are waiting to be pressed, try again later", limit=self.codes.most
        )

    @property
    def has_open_code(self) -> bool:
        """Whether a code that this process gave may be pressed now."""
        return self._clock_s() < self._open_until_s

    async def take_code(self, code: str) -> str | None:
        """The session that a code stands for; None where it stands for none, or there was too much guessing.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        try:
            self._wrong.check("")
        except ShareError:
            return None
        found = await self._store.take_code(code)
        if found is None:
            try:
                self._wrong.take("")
            except ShareError:
                return None
        return found


def _code(digits: int) -> str:
    return f"{secrets.randbelow(10**digits):0{digits}d}"
