"""Assignment of a phone call to sessions: the number's own, a new one, or another one by a code.

Input: a stream that has begun. Output: consecutive pipelines over the same stream, each a call of one
session. A caller who presses a code leaves the pipeline of one session and joins that of another; the line
goes on. Decides which call gives way. A code, and a linked or remembered number, take the session over. A
browser's call of it, or an earlier phone call, then ends as if another process had claimed the session.
With ``second_call: apart`` a second call of a number is a session of its own while the first one is alive.

A call that lost its stream goes on in its session over a new one, which ends the old one where this process
still has it. While a call is alive it is linked to its session (``call_links``). The link is removed when
this side ends the call or its caller hangs up, and stays when the stream is lost.

A store that cannot look a number up does not delay the call, which then has a session of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from loguru import logger

from parley.core.errors import StoreError
from parley.pipelines.call import EarlierStreams
from parley.pipelines.earlier_streams import read_earlier_streams
from parley.serving.gateway.phone.call_links import CallLinks, call_digest, new_holder
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.carriers.twilio import TwilioCarrier
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.transports.phone_protocol import CallerStream
from parley.transports.twilio.codes import PressedCodes
from parley.transports.twilio.stream import STOPPED

# Twilio sends 50 messages a second, in silence too: a line without any for this long is dead.
DEAD_MS = 2_000
TAKEN = "continues in a phone call"
# Part of a call's digest that names it in the events of its streams.
LINE_CHARS = 16
# Time in which a call whose stream was lost ends; its caller waits for it.
RECORDED_S = 2.0


class HoldOne(Protocol):
    """Holder of a call of one session, until it ends or ``leaving`` is set as the line goes on elsewhere."""

    async def __call__(
        self, conversation: Conversation, leaving: asyncio.Event, *, earlier: EarlierStreams | None, line: str
    ) -> None: ...


class PhoneSessions:
    """Sessions of the phone calls of one process.

    Args:
        conversations: sessions of the process.
        book: directory of numbers and codes.
        links: sessions of calls that may lose their stream; None: such calls end with it.
    """

    def __init__(
        self, conversations: Conversations, book: CallerDirectory, links: CallLinks | None = None
    ) -> None:
        self._conversations, self._book, self._links = conversations, book, links
        # Streams whose session is in a call here, and the end of that call.
        self._streams: dict[str, tuple[CallerStream, asyncio.Event]] = {}
        # Sessions that are in a call as text here, with the name of its socket.
        self._texts: dict[str, str] = {}

    @property
    def has_open_code(self) -> bool:
        """True when keys may be those of a code."""
        return self._book.has_open_code

    async def hold(self, phone: PhoneCall, stream: CallerStream, hold_one: HoldOne) -> None:
        """Hold a phone call to its end, in one session or several.

        Args:
            phone: the call.
            stream: stream of the caller, open.
            hold_one: holds the call in one session.
        """
        # It is unknown who answers a call placed by us: such a call is a session of its own.
        is_theirs = phone.direction == "inbound" and not phone.session
        digest = (
            self._book.digest_of(phone.caller, phone.called, verstat=phone.verstat) if is_theirs else None
        )
        session_id = await self._session_of(digest) if digest is not None else phone.session or None
        # The call can go on over another stream, in this process or another.
        links = self._links if phone.network == TwilioCarrier.name else None
        holder, line = new_holder(), "" if links is None else call_digest(phone)[:LINE_CHARS]
        earlier = None
        if phone.session:
            if links is not None:
                # Before anything that could end this process: the next loss is then one of this stream.
                await self._link(phone, links, holder, phone.session)
            await self._end_stream(phone)
            earlier = await read_earlier_streams(self._conversations.store, phone.session, line)
        is_apart = digest is not None and session_id is not None and self._keeps(session_id)
        if is_apart:
            session_id, digest = None, None
        codes = _Codes(self._book, stream)
        linked = session_id is not None
        while True:
            if session_id is not None:
                await self._conversations.release(session_id, TAKEN)
            work = [partial(self._note_person, phone)]
            if digest is not None:
                work.append(partial(self._note, digest, linked=linked))
            if links is not None and earlier is None:
                work.append(partial(self._link, phone, links, holder))
            held = partial(hold_one, earlier=earlier, line=line)
            session_id = await self._hold_one(session_id, stream, codes, held, work)
            if session_id is None:
                break
            # Speech of the previous session is not played in this one.
            stream.clear()
            linked, earlier = False, None
        if links is not None and (not stream.gone.is_set() or stream.end[0] == STOPPED):
            # Before the stream is closed: Twilio then asks whether the call goes on.
            await links.over(phone, holder)

    async def hold_text(self, phone: PhoneCall, hold_one: Callable[[Conversation], Awaitable[bool]]) -> None:
        """Hold a phone call whose words come and go as text, in one session.

        Args:
            phone: the call.
            hold_one: holds it; returns whether this side, or the caller, has ended it. A call that lost its
                socket goes on in its session over another one.
        """
        digest = None
        if phone.direction == "inbound" and not phone.session:
            digest = self._book.digest_of(phone.caller, phone.called, verstat=phone.verstat)
        session_id = phone.session or (None if digest is None else await self._session_of(digest))
        if digest is not None and session_id is not None and self._keeps(session_id):
            session_id = digest = None
        holder = new_holder()
        if phone.session and self._links is not None:
            # Before the session is taken: the socket that has lost it does not end the call then.
            await self._link(phone, self._links, holder, phone.session)
        if session_id is not None:
            await self._conversations.release(session_id, TAKEN)
        async with self._conversations.open(session_id, for_call=True) as conversation:
            own_id = conversation.session_id
            self._texts[own_id] = holder
            try:
                if self._links is not None and not phone.session:
                    await self._link(phone, self._links, holder, own_id)
                await self._note_person(phone, own_id)
                if digest is not None:
                    await self._note(digest, own_id, linked=session_id is not None)
                has_ended = await hold_one(conversation)
            finally:
                if self._texts.get(own_id) == holder:
                    del self._texts[own_id]
        if has_ended and self._links is not None:
            await self._links.over(phone, holder)

    async def _hold_one(
        self,
        session_id: str | None,
        stream: CallerStream,
        codes: "_Codes",
        hold_one: Callable[[Conversation, asyncio.Event], Awaitable[None]],
        work: Sequence[Callable[[str], Coroutine[Any, Any, None]]],
    ) -> str | None:
        """Hold the call in one session; return the session with which it goes on, or None when it is over."""
        over = asyncio.Event()
        try:
            return await self._in_session(session_id, stream, over, codes, hold_one, work)
        finally:
            over.set()

    async def _in_session(
        self,
        session_id: str | None,
        stream: CallerStream,
        over: asyncio.Event,
        codes: "_Codes",
        hold_one: Callable[[Conversation, asyncio.Event], Awaitable[None]],
        work: Sequence[Callable[[str], Coroutine[Any, Any, None]]],
    ) -> str | None:
        async with self._conversations.open(session_id, for_call=True) as conversation:
            own_id = conversation.session_id
            held = self._streams[own_id] = stream, over
            leaving = asyncio.Event()
            try:
                async with asyncio.TaskGroup() as tasks:
                    background = [tasks.create_task(codes.watch(own_id, leaving), name="phone.codes")]
                    background += [tasks.create_task(each(own_id), name="phone.caller") for each in work]
                    try:
                        await hold_one(conversation, leaving)
                    finally:
                        for task in background:
                            task.cancel()
            finally:
                if self._streams.get(own_id) is held:
                    del self._streams[own_id]
        return codes.session_id if leaving.is_set() and not stream.gone.is_set() else None

    def _keeps(self, session_id: str) -> bool:
        """Return whether a session is that of a call which no other call may take over."""
        callers, held = self._book.callers, self._streams.get(session_id)
        if callers is None or callers.second_call == "takes_over":
            return False
        if session_id in self._texts:
            # Twilio closes the socket of a caller who is gone; silence says nothing there.
            return True
        if held is None:
            return False
        stream, _ = held
        return not stream.gone.is_set() and stream.quiet_ms < DEAD_MS

    async def _session_of(self, digest: str) -> str | None:
        try:
            return await self._book.session_of(digest)
        except StoreError as error:
            logger.warning(f"cannot look up a caller's number: {error}")
            return None

    async def _end_stream(self, phone: PhoneCall) -> None:
        """End the stream that a reconnected call had before, where its loss has not been noticed here yet.

        Returns when the call over it has recorded what was heard, or after ``RECORDED_S``.
        """
        held = self._streams.get(phone.session)
        if held is None:
            return
        stream, over = held
        if stream.started is None or stream.started.call_sid != phone.call_sid:
            return
        await stream.close("the call goes on over another stream")
        with suppress(TimeoutError):
            async with asyncio.timeout(RECORDED_S):
                await over.wait()

    async def _link(self, phone: PhoneCall, links: CallLinks, holder: str, session_id: str) -> None:
        """Link the call to its session, in which it goes on when its stream is lost."""
        try:
            await links.began(phone, session_id, holder)
        except StoreError as error:
            logger.warning(f"a call cannot go on if its stream is lost: {error}")

    async def _note_person(self, phone: PhoneCall, session_id: str) -> None:
        """Note whose session it is, also where the call has a session of its own."""
        try:
            if phone.direction == "outbound":
                await self._book.note(session_id, phone.called)
            else:
                await self._book.note(session_id, phone.caller, verstat=phone.verstat)
        except StoreError as error:
            logger.warning(f"cannot store whose session it is: {error}")

    async def _note(self, digest: str, session_id: str, *, linked: bool) -> None:
        """Link the number to the session when a call begins, as a caller who is cut off calls again."""
        try:
            await self._book.called(digest, session_id, linked=linked)
        except StoreError as error:
            logger.warning(f"cannot store a caller's number: {error}")


class _Codes:
    """Codes that one caller presses.

    Attributes:
        session_id: session of the last valid code.
    """

    def __init__(self, book: CallerDirectory, stream: CallerStream) -> None:
        self.session_id = ""
        self._book = book
        settings = book.codes
        self._keys = stream.keys
        self._codes: PressedCodes | None = None
        if settings is not None:
            self._codes = PressedCodes(
                digits=settings.digits, pause_ms=round(settings.pause_s * 1000), tries=settings.tries
            )

    async def watch(self, session_id: str, leaving: asyncio.Event) -> None:
        """Set ``leaving`` when a code of another session than this one is pressed; until cancelled."""
        while self._codes is not None and not self._codes.is_over:
            code = self._codes.press(*await self._keys.get())
            if code is None:
                continue
            try:
                found = await self._book.take_code(code)
            except StoreError as error:
                logger.warning(f"cannot look up a call code: {error}")
                continue
            if found is None:
                self._codes.was_wrong()
                logger.info("a caller pressed an unknown call code")
            elif found != session_id:
                self.session_id = found
                leaving.set()
                return
