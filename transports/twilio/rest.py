"""Twilio's REST interface, as much as a telephone call needs: begin a call, redirect it, end it.

In: numbers, TwiML, addresses. Out: form posts to ``/2010-04-01/Accounts/{sid}/Calls``, with the account's
key as HTTP basic authentication (https://www.twilio.com/docs/voice/api/call-resource). Decides what may be
asked again: an update says the same thing twice, so it is tried ``TRIES`` times; a call is begun once,
because nobody knows whether one whose answer was lost is ringing.

Slow: each post has ``timeout_s``. Dead, refused or full: ``EngineError``, with Twilio's own words and its
error number, never with the secret. Holds one HTTP session from its first use until ``close``; cancelled, a
post is given up.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from loguru import logger

from core.errors import EngineError

ENGINE = "twilio"
API = "https://api.twilio.com"
VERSION = "2010-04-01"
TRIES, AGAIN_S = 3, 0.3
# Twilio is over its own limit, or for the moment not there.
BUSY = frozenset({429, 500, 502, 503, 504})
# Of a call that has ended already: there is nothing to end (21220: not in progress).
OVER = 21220
MOST_ANSWER_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Account:
    """Whose calls.

    Attributes:
        sid: AC and 32 hexadecimal digits.
        user, secret: an API key and its secret, or the account's sid and its auth token.
        api: where the interface is; another one than Twilio's for its regions, or on this machine.
    """

    sid: str
    user: str
    secret: str
    api: str = API


class TwilioRest:
    """See the module.

    Args:
        account: whose calls.
        timeout_s: of one post.
    """

    def __init__(self, account: Account, *, timeout_s: float = 5.0) -> None:
        self._account = account
        self._timeout_s = timeout_s
        self._http: aiohttp.ClientSession | None = None

    async def begin(
        self,
        to: str,
        caller: str,
        *,
        twiml: str | None = None,
        address: str | None = None,
        status_address: str = "",
        ring_s: int = 30,
    ) -> str:
        """Ring somebody up; what they hear when they answer is the TwiML, or what the address answers.

        Args:
            to: number, or a SIP address.
            caller: the number that they see: one of the account's own.
            twiml: what to do then.
            address: asked for that, instead.
            status_address: is told when it rings, is answered and ends.
            ring_s: before it counts as not answered.

        Returns:
            The call's sid.

        Raises:
            EngineError: it does not ring, or nobody knows.
        """
        form: list[tuple[str, str]] = [("To", to), ("From", caller), ("Timeout", str(ring_s))]
        form += [("Twiml", twiml)] if twiml is not None else [("Url", address or "")]
        if status_address:
            form.append(("StatusCallback", status_address))
            form += [("StatusCallbackEvent", event) for event in ("ringing", "answered", "completed")]
        answer = await self._post("Calls.json", form, tries=1)
        sid = answer.get("sid")
        if not isinstance(sid, str) or not sid:
            raise EngineError(f"{ENGINE}: an answer without the call's sid", engine=ENGINE)
        return sid

    async def redirect(self, call_sid: str, twiml: str) -> None:
        """Have a call do something else, which ends its stream.

        Raises:
            EngineError: the call is over, or Twilio does not take it.
        """
        await self._post(f"Calls/{call_sid}.json", [("Twiml", twiml)], tries=TRIES)

    async def hang_up(self, call_sid: str) -> None:
        """End a call; one that is over already is over.

        Raises:
            EngineError: Twilio does not take it.
        """
        try:
            await self._post(f"Calls/{call_sid}.json", [("Status", "completed")], tries=TRIES)
        except TwilioError as error:
            if error.number != OVER:
                raise

    async def close(self) -> None:
        """Close what is open; a later post opens it again."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _post(self, path: str, form: Sequence[tuple[str, str]], *, tries: int) -> Mapping[str, Any]:
        for left in reversed(range(tries)):
            try:
                return await self._once(path, form)
            except EngineError as error:
                if not left or not error.retryable:
                    raise
                logger.warning(f"{error}; it is tried again")
            await asyncio.sleep(AGAIN_S)
        raise AssertionError("unreachable")

    async def _once(self, path: str, form: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
        account = self._account
        if self._http is None:
            self._http = aiohttp.ClientSession(
                auth=aiohttp.BasicAuth(account.user, account.secret),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        url = f"{account.api}/{VERSION}/Accounts/{account.sid}/{path}"
        try:
            async with self._http.post(url, data=form, allow_redirects=False) as response:
                status = response.status
                body = await _read(response.content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            raise EngineError(f"{ENGINE}: {path.split('/')[0]}: {reason}", engine=ENGINE) from error
        answer = _object(body)
        if 200 <= status < 300:
            return answer
        number = answer.get("code")
        raise TwilioError(
            f"{ENGINE}: {status}: {str(answer.get('message', 'no reason'))[:300]}",
            number=number if isinstance(number, int) else 0,
            retryable=status in BUSY,
        )


class TwilioError(EngineError):
    """Twilio answered, and refused.

    Attributes:
        number: Twilio's own, of the reason; 0 without one.
    """

    def __init__(self, message: str, *, number: int, retryable: bool) -> None:
        super().__init__(f"{message} ({number})" if number else message, engine=ENGINE, retryable=retryable)
        self.number = number


async def _read(content: aiohttp.StreamReader) -> bytes:
    """All of an answer, which comes in any number of pieces; of one that is too long the beginning."""
    body = bytearray()
    while len(body) < MOST_ANSWER_BYTES and (piece := await content.read(MOST_ANSWER_BYTES - len(body))):
        body += piece
    return bytes(body)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}
