"""Client of the part of Twilio's REST interface that a phone call needs: begin, redirect and end a call.

Inputs: numbers, TwiML, addresses. Output: form posts to ``/2010-04-01/Accounts/{sid}/Calls``, with the
account's key as HTTP basic authentication (https://www.twilio.com/docs/voice/api/call-resource). Decides
which posts are repeated. An update is idempotent, so it is tried ``TRIES`` times. The post that begins a call
is sent once, because a call whose answer was lost may be ringing.

Slow: each post has ``timeout_s``. Unreachable, refused or over its limit: raises ``EngineError``, with
Twilio's own message and error number, never with the secret. Holds one HTTP session from its first use until
``close``. A cancelled post is given up.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from loguru import logger

from parley.core.errors import EngineError

ENGINE = "twilio"
API = "https://api.twilio.com"
VERSION = "2010-04-01"
TRIES, AGAIN_S = 3, 0.3
# Twilio is over its own limit, or is unavailable for the moment.
BUSY = frozenset({429, 500, 502, 503, 504})
# Error number of a call that has ended already: there is nothing to end (21220: not in progress).
OVER = 21220
MOST_ANSWER_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Account:
    """Account whose calls are made.

    Attributes:
        sid: AC and 32 hexadecimal digits.
        user, secret: an API key and its secret, or the account's sid and its auth token.
        api: address of the interface; not the default for Twilio's regions, or for a server on this machine.
    """

    sid: str
    user: str
    secret: str
    api: str = API


class TwilioRest:
    """Client of one account.

    Args:
        account: account whose calls are made.
        timeout_s: limit of one post.
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
        """Place a call. When it is answered, it follows the TwiML, or the TwiML that the address returns.

        Args:
            to: number, or a SIP address.
            caller: number shown to the called party: one of the account's own.
            twiml: instructions for the answered call.
            address: requested for the instructions instead.
            status_address: is notified when the call rings, is answered and ends.
            ring_s: time after which the call counts as not answered.

        Returns:
            The call's sid.

        Raises:
            EngineError: the call was refused, or it is unknown whether it rings.
        """
        form: list[tuple[str, str]] = [("To", to), ("From", caller), ("Timeout", str(ring_s))]
        form += [("Twiml", twiml)] if twiml is not None else [("Url", address or "")]
        if status_address:
            form.append(("StatusCallback", status_address))
            form += [("StatusCallbackEvent", event) for event in ("ringing", "answered", "completed")]
        answer = await self._post("Calls.json", form, tries=1)
        sid = answer.get("sid")
        if not isinstance(sid, str) or not sid:
            raise EngineError(f"{ENGINE}: the answer has no sid of the call", engine=ENGINE)
        return sid

    async def redirect(self, call_sid: str, twiml: str) -> None:
        """Give a call new instructions, which ends its stream.

        Raises:
            EngineError: the call is over, or Twilio refuses the instructions.
        """
        await self._post(f"Calls/{call_sid}.json", [("Twiml", twiml)], tries=TRIES)

    async def hang_up(self, call_sid: str) -> None:
        """End a call. Has no effect on a call that is over.

        Raises:
            EngineError: Twilio refuses the request.
        """
        try:
            await self._post(f"Calls/{call_sid}.json", [("Status", "completed")], tries=TRIES)
        except TwilioError as error:
            if error.number != OVER:
                raise

    async def close(self) -> None:
        """Close the HTTP session; a later post opens it again."""
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
                logger.warning(f"{error}; trying again")
            await asyncio.sleep(AGAIN_S)
        raise AssertionError("unreachable")

    async def _once(self, path: str, form: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
        account = self._account
        if self._http is None:
            self._http = aiohttp.ClientSession(
                headers={"Authorization": aiohttp.encode_basic_auth(account.user, account.secret)},
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
    """Refusal by Twilio.

    Attributes:
        number: Twilio's number of the reason; 0 without one.
    """

    def __init__(self, message: str, *, number: int, retryable: bool) -> None:
        super().__init__(f"{message} ({number})" if number else message, engine=ENGINE, retryable=retryable)
        self.number = number


async def _read(content: aiohttp.StreamReader) -> bytes:
    """Return a whole answer, which comes in any number of pieces; the beginning of one that is too long."""
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
