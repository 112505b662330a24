"""Session of a phone call, found by the number of the caller or by a code that is pressed.

Inputs: numbers as the network reports them, and codes. Output: ids of sessions. The links are kept in the
session store, for all processes of a deployment; a number is kept as a digest. A number identifies no caller
where there is no key, where it is withheld, or where an attestation is required and missing. Such a call gets
a session of its own.
"""

import math
import os
import secrets
import time
from collections.abc import Callable

from parley.core.errors import CapacityError, ConfigError, PeerError
from parley.core.tuning import tuned
from parley.protocols.phone_numbers import is_attested, known_number, number_digest, person_digest
from parley.serving.gateway.limits import Rate, ShareError
from parley.serving.gateway.phone.caller_settings import (
    CALLER_KEY_ENV,
    CallCodeSettings,
    CallCodeTuning,
    CallerSettings,
)
from parley.session_store.people import SessionsOfPeople
from parley.session_store.store import SessionStore

LEAST_KEY_CHARS = 16
# Attempts to draw a code that no other session has at this moment.
ATTEMPTS = 5


def caller_key() -> bytes:
    """Return the key for callers' numbers from the environment.

    Raises:
        ConfigError: it is missing or too short.
    """
    key = os.environ.get(CALLER_KEY_ENV, "").encode()
    if len(key) < LEAST_KEY_CHARS:
        raise ConfigError(
            f"phone.remember_callers: set {CALLER_KEY_ENV} to a key of at least {LEAST_KEY_CHARS} "
            "characters. Keep the key: with another one all known callers are forgotten"
        )
    return key


class CallerDirectory:
    """Links of one process between callers and sessions.

    Args:
        store: open.
        callers: recognition of callers by number; None: there is none.
        codes: settings of codes; None: there are none.
        number: that people call, where there is one.
        draw: returns a code of the given number of digits.
        clock_s: monotonic.

    Raises:
        ConfigError: the key for numbers is missing or too short.
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
        self._store, self._people = store, SessionsOfPeople(store)
        self._draw = draw or _code
        self._key = b"" if callers is None else caller_key()
        wrong = self.codes.wrong_per_minute if self.codes is not None else 1
        self._clock_s = clock_s
        self._open_until_s = -math.inf
        self._wrong = Rate(wrong, "too many wrong codes at this moment", clients=1)

    # Numbers.

    def digest_of(self, caller: str, called: str, *, verstat: str = "") -> str | None:
        """Return the digest that identifies a caller; None for an unknown one.

        Args:
            caller: the number, as the network reports it.
            called: the number that is called.
            verstat: the network's attestation of the caller's number.
        """
        settings, number = self.callers, known_number(caller)
        if settings is None or number is None or (settings.trust == "attested" and not is_attested(verstat)):
            return None
        return number_digest(self._key, number, called)

    async def note(self, session_id: str, number: str, *, verstat: str | None = None) -> None:
        """Note that a person is in a call of a session, so that everything of theirs can be found.

        Args:
            session_id: of the call.
            number: of the person, as the network reports it.
            verstat: the network's attestation of it; None for a number that this server has called.

        Raises:
            StoreError: it cannot be stored.
        """
        settings, person = self.callers, known_number(number)
        if settings is None or person is None:
            return
        if verstat is None or settings.trust == "any" or is_attested(verstat):
            await self._people.note_caller(session_id, person_digest(self._key, person))

    def digests_of_person(self, number: str, called: str | None = None) -> list[str]:
        """Return the digests under which the sessions of a number are found.

        Args:
            number: of the person.
            called: a number that it has called, in addition to that of the deployment; sessions of releases
                that noted no people are found by it alone.

        Raises:
            PeerError: the number identifies no caller, or callers are not recognised here.
        """
        person = known_number(number)
        if self.callers is None or person is None:
            raise PeerError(
                "this server does not recognise callers by their numbers (phone.remember_callers): look for "
                "their sessions, and name one"
                if self.callers is None
                else "number: expected + and the digits of a number that is not withheld"
            )
        lines = dict.fromkeys(line for line in (called, self.number) if line)
        return [
            person_digest(self._key, person),
            *(number_digest(self._key, person, line) for line in lines),
        ]

    async def session_of(self, digest: str) -> str | None:
        """Return the session of a caller; None for a new one.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        assert self.callers is not None
        return await self._store.session_of_caller(digest, within_days=self.callers.days)

    async def called(self, digest: str, session_id: str, *, linked: bool) -> None:
        """Record that a caller is in a call of this session.

        Args:
            digest: of the caller.
            session_id: of the call.
            linked: the number was linked to the session already; its time is then updated.

        Raises:
            StoreError: it cannot be stored.
        """
        assert self.callers is not None
        if linked or self.callers.continues == "calls":
            await self._store.link_caller(session_id, digest, forget_days=self.callers.days)

    async def link(self, session_id: str, caller: str, called: str | None) -> None:
        """Link the next call of a number to a session.

        Raises:
            PeerError: the number identifies no caller, or the called number is unknown.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        called = called or self.number
        number = known_number(caller)
        if self.callers is None or number is None or called is None:
            raise PeerError(
                "this server does not recognise callers by their numbers (phone.remember_callers)"
                if self.callers is None
                else "number: expected + and the digits of a number that is not withheld"
                if number is None
                else "called: the called number is not known. Set phone.number, or send it"
            )
        digest = number_digest(self._key, number, called)
        await self._store.link_caller(session_id, digest, forget_days=self.callers.days)
        await self._people.note_caller(session_id, person_digest(self._key, number))

    # Codes.

    async def new_code(self, session_id: str) -> str:
        """Return a new code for a session, in place of its former one.

        Raises:
            CapacityError: too many codes are valid.
            UnknownSessionError: there is no such session.
            StoreUnavailableError: the database does not answer.
        """
        assert self.codes is not None
        for _ in range(ATTEMPTS):
            code = self._draw(self.codes.digits)
            if await self._store.put_code(session_id, code, for_s=self.codes.expires_s, most=self.codes.most):
                self._open_until_s = self._clock_s() + self.codes.expires_s
                return code
        raise CapacityError("too many codes are in use, try again later", limit=self.codes.most)

    @property
    def has_open_code(self) -> bool:
        """True when a code of this process may be pressed now."""
        return self._clock_s() < self._open_until_s

    async def take_code(self, code: str) -> str | None:
        """Use up a code and return its session; None where it is invalid, or there were too many wrong ones.

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
