"""Outbound calls, hang-up and warm transfer through Twilio's REST API.

Inputs: requests of a call or of an operator, and Twilio's webhooks about the other call of a transfer.
Outputs: posts of the REST API (``CarrierClient``), TwiML, and the outcome of a transfer. A transfer is warm.
The person is called while the caller stays with the bot, hears a description of the call, and accepts it with
a key. Only then are both put into a conference, which ends the caller's stream: when the caller has heard
that they are being connected, ``ANNOUNCED_S`` after the key at the latest. When the person does not accept
(an answering machine presses no key), the caller stays with the bot.

A transfer waits ``ring_s`` and ``MOST_OFFER_S`` at most. When it is cancelled (the caller has left), the
person's phone stops ringing, even where Twilio has not named that call yet. When the person accepts and
leaves before the conference begins, the caller's call is ended, because the caller would wait there alone. So
is the call of a caller who has left the stream while it is unknown whether Twilio has redirected them.
Owns the background tasks of its posts. The states of the newest ``MOST_KNOWN`` outbound calls are kept.
"""

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import EngineError
from parley.protocols import twiml

# An offer of ``pipelines.phone.control`` is spoken twice, followed by a wait for the key.
MOST_OFFER_S = 90.0
KEY_S = 8
# Longest wait of a person who has accepted, until the caller has heard that they are being connected.
ANNOUNCED_S = 4.0
# Time for a post and its retries.
CLOSE_S = 10.0
MOST_KNOWN = 1_000


class CarrierClient(Protocol):
    """Interface of ``transports.twilio.rest.TwilioRest``."""

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


class TransferOutcome(StrEnum):
    """Outcome of a transfer."""

    TAKEN = "taken"
    DECLINED = "declined"
    NO_ANSWER = "no-answer"
    BUSY = "busy"
    FAILED = "failed"


# Twilio's state of an ended call to the outcome of a transfer that was not accepted.
ENDED = {
    "completed": TransferOutcome.DECLINED,
    "no-answer": TransferOutcome.NO_ANSWER,
    "busy": TransferOutcome.BUSY,
    "failed": TransferOutcome.FAILED,
    "canceled": TransferOutcome.FAILED,
}


@dataclass(eq=False)
class _Transfer:
    """Transfer in progress.

    Attributes:
        call_sid: of the caller's call.
        conference: unguessable name.
        done: its outcome.
        announced: set when the caller has heard that they are being connected.
        taken: the person has accepted; the caller's redirection may still be in progress.
        gone: the person has hung up.
    """

    call_sid: str
    conference: str
    announced: asyncio.Event
    done: "asyncio.Future[TransferOutcome]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    taken: bool = False
    gone: bool = False


class CallManager:
    """Phone calls of one gateway.

    Args:
        line: the REST API; None without an account: no call can be placed or transferred.
        ring_s: longest ringing.
    """

    def __init__(self, line: CarrierClient | None, *, ring_s: int = 30) -> None:
        self._line = line
        self._ring_s = ring_s
        self._transfers: dict[str, _Transfer] = {}
        # Accepted transfers, whose person may still leave before the conference begins.
        self._taken: BoundedDict[str, str] = BoundedDict(MOST_KNOWN)
        self._tasks: set[asyncio.Task[None]] = set()
        # Twilio's state of calls, by sid.
        self._states: BoundedDict[str, str] = BoundedDict(MOST_KNOWN)
        # Number of calls that were requested and have no sid yet.
        self._unnamed = 0
        # Callers, by sid, from the moment in which they are redirected.
        self._put_through: BoundedDict[str, None] = BoundedDict(MOST_KNOWN)
        # Callers whose redirection failed, but may have been carried out; and those who left their stream.
        self._unclear: BoundedDict[str, None] = BoundedDict(MOST_KNOWN)
        self._left: BoundedDict[str, None] = BoundedDict(MOST_KNOWN)
        self._address = ""

    def serve_at(self, address: str) -> None:
        """Set the address of the routes, to which webhooks are sent."""
        self._address = address

    @property
    def can_call(self) -> bool:
        """True when there is an account."""
        return self._line is not None

    async def hang_up(self, call_sid: str) -> None:
        """End a call; without an account the closed stream ends it.

        A caller who was connected to a person no longer belongs to the bot: their call continues.
        """
        if self._line is not None and call_sid not in self._put_through:
            try:
                await self._line.hang_up(call_sid)
            except EngineError as error:
                # Its stream is closed after this, and no instruction follows the stream.
                logger.warning(f"Twilio did not end a call: {error}")

    def is_put_through(self, call_sid: str) -> bool:
        """Return whether the caller is being connected, or was connected, to a person."""
        return call_sid in self._put_through

    async def leave(self, call_sid: str) -> None:
        """Record that a caller has left the stream: nothing more of this side is heard on the call.

        Ends the call where it may be waiting in a conference that no person joins.
        """
        self._left[call_sid] = None
        if call_sid in self._unclear:
            del self._unclear[call_sid]
            await self.hang_up(call_sid)

    async def call(self, to: str, caller: str, answer: str) -> str:
        """Place a call; return its sid.

        Args:
            to: number.
            caller: one of the account's own numbers.
            answer: TwiML for the answered call.

        Raises:
            EngineError: there is no account, or Twilio refuses.
        """
        if self._line is None:
            raise EngineError(
                "outbound calls need a Twilio account, which is not configured",
                engine="twilio",
                retryable=False,
            )
        status = f"{self._address}/call-status"
        self._unnamed += 1
        try:
            sid = await self._line.begin(to, caller, twiml=answer, status_address=status, ring_s=self._ring_s)
            # A state of the call may have arrived before its sid.
            if sid not in self._states:
                self._states[sid] = "queued"
        finally:
            self._unnamed -= 1
        return sid

    def record_state(self, call_sid: str, state: str) -> None:
        """Record Twilio's state of a call that was, or may have been, placed here. An end is final."""
        known = self._states.get(call_sid)
        if known in ENDED or (known is None and not self._unnamed):
            return
        self._states[call_sid] = state

    def state_of(self, call_sid: str) -> str | None:
        """Return Twilio's last state of a call; None for an unknown one."""
        return self._states.get(call_sid)

    # Transfers.

    async def transfer(
        self, call_sid: str, to: str, caller: str, words: str, *, announced: asyncio.Event
    ) -> TransferOutcome:
        """Transfer a call; return the outcome. The caller stays on the stream until the person accepts.

        Args:
            call_sid: of the caller's call.
            to: number of the person.
            caller: number that the person sees.
            words: description of the call.
            announced: set when the caller has heard that they are being connected.
        """
        if self._line is None:
            return TransferOutcome.FAILED
        token = secrets.token_urlsafe(32)
        transfer = self._transfers[token] = _Transfer(call_sid, f"parley-{secrets.token_hex(16)}", announced)
        mine = f"{self._address}/transfer/{token}"
        outcome = TransferOutcome.FAILED
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
                # The outcome must still be recorded when the waiting task is cancelled.
                outcome = await asyncio.shield(transfer.done)
        except TimeoutError:
            outcome = TransferOutcome.NO_ANSWER
            if transfer.taken:
                # At the last moment: ``answered`` has deadlines of its own.
                outcome = await asyncio.shield(transfer.done)
        except EngineError as error:
            logger.warning(f"cannot transfer a call: {error}")
        finally:
            if transfer.done.done() or not transfer.taken:
                self._transfers.pop(token, None)
            if outcome is not TransferOutcome.TAKEN and not transfer.taken:
                # Also where the caller has left and the phone is only about to ring. A second
                # cancellation does not stop it.
                self._own(self._stop_ringing(beginning))
        return outcome

    async def answered(self, token: str, key: str) -> str | None:
        """Return the TwiML for a person who has pressed a key; None when the transfer is unknown."""
        transfer = self._transfers.get(token)
        if transfer is None or self._line is None:
            return None
        if not key or transfer.taken or transfer.done.done():
            return twiml.end()
        transfer.taken = True
        conference = twiml.confer(transfer.conference)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCED_S):
                    await transfer.announced.wait()
            if transfer.gone:
                self._over(transfer, TransferOutcome.DECLINED)
                return twiml.end()
            self._put_through[transfer.call_sid] = None
            await self._line.redirect(transfer.call_sid, conference)
            self._over(transfer, TransferOutcome.TAKEN)
        except EngineError as error:
            logger.warning(f"cannot connect a caller: {error}")
            self._fail(transfer, is_unclear=error.retryable)
            return twiml.end("The caller is not there any more.")
        finally:
            # The task that waited for it may have ended with the stream.
            self._transfers.pop(token, None)
            if not transfer.done.done():
                # The request was given up.
                self._fail(transfer, is_unclear=True)
        if transfer.gone:
            self._own(self._end(transfer.call_sid))
        else:
            self._taken[token] = transfer.call_sid
        return conference

    def ended(self, token: str, state: str) -> None:
        """Record the state of the person's call (see ``ENDED``)."""
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
        """End the call of a caller who is alone in the conference."""
        self._put_through.pop(call_sid, None)
        await self.hang_up(call_sid)

    def _fail(self, transfer: _Transfer, *, is_unclear: bool) -> None:
        """Note that the caller was not redirected, as far as that is known."""
        self._put_through.pop(transfer.call_sid, None)
        if is_unclear:
            self._own(self._end_unclear(transfer.call_sid))
        self._over(transfer, TransferOutcome.FAILED)

    async def _end_unclear(self, call_sid: str) -> None:
        """End a call that may have been redirected, now or when it leaves its stream."""
        if call_sid in self._left:
            await self.hang_up(call_sid)
        else:
            self._unclear[call_sid] = None

    async def _stop_ringing(self, beginning: "asyncio.Future[str]") -> None:
        with suppress(EngineError):
            await self.hang_up(await beginning)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="phone.desk")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _over(transfer: _Transfer, outcome: TransferOutcome) -> None:
        if not transfer.done.done():
            transfer.done.set_result(outcome)

    async def close(self) -> None:
        """Finish the pending posts, and close connections."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        if self._line is not None:
            await self._line.close()
