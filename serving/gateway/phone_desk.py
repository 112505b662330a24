"""What is done with telephone calls from this side: begun, ended, passed on to a person.

In: wishes of a call or of an operator, and Twilio's webhooks about the other call of a transfer. Out: posts
of the REST interface (``Line``), TwiML, and how a transfer came out. A transfer is warm: the person is rung
up while the caller stays with the bot, hears what it is about, and takes the call with a key; only then are
both put into a conference, which ends the caller's stream. Who does not take it, and an answering machine
presses no key, leaves the caller where they are.

A transfer waits ``ring_s`` and ``MOST_OFFER_S`` at most; who cancels it (the caller is gone) has the person's
telephone stop ringing, also where Twilio has not named that call yet. A person who takes the call and is gone
before the conference begins ends the caller's, who would wait in it alone. Owns the posts that nobody waits
for. Of calls that this side began the newest ``MOST_KNOWN`` are known.
"""

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from loguru import logger

from core.errors import EngineError
from core.newest import Newest
from protocols import twiml

# An offer of ``pipelines.phone_control`` is said twice, and a key waited for.
MOST_OFFER_S = 90.0
KEY_S = 8
# A post and its repetitions.
CLOSE_S = 10.0
MOST_KNOWN = 1_000


class Line(Protocol):
    """See ``transports.twilio.rest.TwilioRest``."""

    async def begin(
        self,
        to: str,
        caller: str,
        *,
        twiml: str | None = None,
        address: str | None = None,
        status_address: str = "",
        ring_s: int = 30,
    ) -> str: ...

    async def redirect(self, call_sid: str, twiml: str) -> None: ...

    async def hang_up(self, call_sid: str) -> None: ...

    async def close(self) -> None: ...


class Outcome(StrEnum):
    """Of a transfer."""

    TAKEN = "taken"
    DECLINED = "declined"
    NO_ANSWER = "no-answer"
    BUSY = "busy"
    FAILED = "failed"


# What Twilio says of a call that has ended, and what that is for one that was to be taken.
ENDED = {
    "completed": Outcome.DECLINED,
    "no-answer": Outcome.NO_ANSWER,
    "busy": Outcome.BUSY,
    "failed": Outcome.FAILED,
    "canceled": Outcome.FAILED,
}


@dataclass(eq=False)
class _Transfer:
    """One.

    Attributes:
        call_sid: the caller's.
        conference: unguessable.
        taken: by the person; the caller's redirection may still be on its way.
        gone: the person has hung up.
    """

    call_sid: str
    conference: str
    done: "asyncio.Future[Outcome]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    taken: bool = False
    gone: bool = False


class PhoneDesk:
    """Of one gateway.

    Args:
        line: the REST interface; None without an account: nothing can be begun or passed on.
        ring_s: longest ringing.
    """

    def __init__(self, line: Line | None, *, ring_s: int = 30) -> None:
        self._line = line
        self._ring_s = ring_s
        self._transfers: dict[str, _Transfer] = {}
        # Those that were taken: their person may still go before the conference begins.
        self._taken: Newest[str, str] = Newest(MOST_KNOWN)
        self._tasks: set[asyncio.Task[None]] = set()
        # Twilio's word of calls, by sid.
        self._states: Newest[str, str] = Newest(MOST_KNOWN)
        # Calls that Twilio is asked for and has not named.
        self._unnamed = 0
        # Callers, by sid; from the moment in which the person presses the key.
        self._put_through: Newest[str, None] = Newest(MOST_KNOWN)
        self._address = ""

    def serve_at(self, address: str) -> None:
        """Have webhooks asked for at this address of the routes."""
        self._address = address

    @property
    def can_call(self) -> bool:
        """Whether there is an account."""
        return self._line is not None

    async def hang_up(self, call_sid: str) -> None:
        """End a call; without an account the closed stream ends it.

        A caller who was put through to a person is not ours any more: their call goes on.
        """
        if self._line is not None and call_sid not in self._put_through:
            try:
                await self._line.hang_up(call_sid)
            except EngineError as error:
                # Its stream is closed behind this, and nothing stands behind the stream.
                logger.warning(f"a call was not ended by Twilio: {error}")

    async def call(self, to: str, caller: str, answer: str) -> str:
        """Ring somebody up; the call's sid.

        Args:
            to: number.
            caller: one of the account's own.
            answer: TwiML for when they answer.

        Raises:
            EngineError: there is no account, or Twilio refuses.
        """
        if self._line is None:
            raise EngineError("there is no account of Twilio to call with", engine="twilio", retryable=False)
        status = f"{self._address}/call-status"
        self._unnamed += 1
        try:
            sid = await self._line.begin(to, caller, twiml=answer, status_address=status, ring_s=self._ring_s)
            # What was said of it may have come before its name did.
            if sid not in self._states:
                self._states[sid] = "queued"
        finally:
            self._unnamed -= 1
        return sid

    def told(self, call_sid: str, state: str) -> None:
        """Twilio says how a call stands that was begun here, or may have been. An end is the last word."""
        known = self._states.get(call_sid)
        if known in ENDED or (known is None and not self._unnamed):
            return
        self._states[call_sid] = state

    def state_of(self, call_sid: str) -> str | None:
        """What Twilio said last; None for a call that is not known."""
        return self._states.get(call_sid)

    # Transfers.

    async def transfer(self, call_sid: str, to: str, caller: str, words: str) -> Outcome:
        """Pass a call on, and say how that came out. The caller stays on the stream until it is taken.

        Args:
            call_sid: the caller's.
            to: number of the person.
            caller: that the person sees.
            words: what the call is about.
        """
        if self._line is None:
            return Outcome.FAILED
        token = secrets.token_urlsafe(32)
        transfer = self._transfers[token] = _Transfer(call_sid, f"parley-{secrets.token_hex(16)}")
        mine = f"{self._address}/transfer/{token}"
        outcome = Outcome.FAILED
        beginning = asyncio.ensure_future(
            self._line.begin(
                to,
                caller,
                twiml=twiml.offer(words, f"{mine}/answer", wait_s=KEY_S),
                status_address=f"{mine}/status",
                ring_s=self._ring_s,
            )
        )
        try:
            await asyncio.shield(beginning)
            async with asyncio.timeout(self._ring_s + MOST_OFFER_S):
                # What became of it is still to be noted where nobody waits for it any more.
                outcome = await asyncio.shield(transfer.done)
        except TimeoutError:
            outcome = Outcome.NO_ANSWER
        except EngineError as error:
            logger.warning(f"a call is not passed on: {error}")
        finally:
            if transfer.done.done() or not transfer.taken:
                self._transfers.pop(token, None)
            if outcome is not Outcome.TAKEN and not transfer.taken:
                # Also where the caller is gone and a telephone only about to ring; whoever is cancelled twice
                # does not stop it.
                self._own(self._stop_ringing(beginning))
        return outcome

    async def answered(self, token: str, key: str) -> str | None:
        """The person has pressed a key: what is done with their call. None: nothing is known of it."""
        transfer = self._transfers.get(token)
        if transfer is None or self._line is None:
            return None
        if not key or transfer.taken or transfer.done.done():
            return twiml.end()
        transfer.taken = True
        conference = twiml.confer(transfer.conference)
        self._put_through[transfer.call_sid] = None
        try:
            await self._line.redirect(transfer.call_sid, conference)
        except EngineError as error:
            logger.warning(f"a caller was not put through: {error}")
            self._put_through.pop(transfer.call_sid, None)
            self._over(transfer, Outcome.FAILED)
            return twiml.end("The caller is not there any more.")
        finally:
            # Whoever waited for it may be gone with the stream.
            self._transfers.pop(token, None)
        self._over(transfer, Outcome.TAKEN)
        if transfer.gone:
            self._own(self._end(transfer.call_sid))
        else:
            self._taken[token] = transfer.call_sid
        return conference

    def ended(self, token: str, state: str) -> None:
        """The person's call stands so; see ``ENDED``."""
        outcome = ENDED.get(state)
        if outcome is None:
            return
        transfer = self._transfers.get(token)
        if transfer is not None:
            transfer.gone = True
            if not transfer.taken:
                self._over(transfer, outcome)
        if (call_sid := self._taken.pop(token, None)) is not None:
            self._own(self._end(call_sid))

    async def _end(self, call_sid: str) -> None:
        """Nobody is in the conference with this caller, if they are still in it."""
        self._put_through.pop(call_sid, None)
        await self.hang_up(call_sid)

    async def _stop_ringing(self, beginning: "asyncio.Future[str]") -> None:
        with suppress(EngineError):
            await self.hang_up(await beginning)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="phone.desk")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _over(transfer: _Transfer, outcome: Outcome) -> None:
        if not transfer.done.done():
            transfer.done.set_result(outcome)

    async def close(self) -> None:
        """Finish what is under way, and close connections."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        if self._line is not None:
            await self._line.close()
