"""Which session a telephone call is a part of, while it lasts: the number's own, a new one, another one by a
code.

In: a stream that has begun. Out: one pipeline after the other over the same stream, each a call of one
session: a caller who presses a code leaves the pipeline of the one and is in that of the other, and hears
the line go on. Decides who gives way. A code, and a linked or remembered number, take the session over: a
browser's call of it, or an earlier telephone call, ends as if another process had claimed the session. With
``second_call: apart`` a second call of a number is a session of its own while the first one is alive.

A store that cannot say whose number it is delays nobody: the call is a session of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from loguru import logger

from core.errors import StoreError
from pipelines.call import Call
from pipelines.engines import Engines
from pipelines.phone import Run, hold_phone
from pipelines.phone_control import Desk, PhoneFacts
from runtime.loop_clock import LoopClock
from serving.gateway.caller_book import CallerBook
from serving.gateway.phone_routes import PhoneCall
from serving.gateway.phone_settings import PhoneRoutesSettings
from session_store.conversation import Conversations
from transports.twilio.codes import PressedCodes
from transports.twilio.stream import PhoneStream

# Twilio sends 50 messages a second, in silence too: a line without any for so long is dead.
DEAD_MS = 2_000
MOST_KEYS = 64
TAKEN = "goes on in a telephone call"


class PhoneSessions:
    """Of one process.

    Args:
        engines: of the process.
        conversations: of the process.
        book: whose number and whose code it is.
        on_call: told each call that begins; must not block.
    """

    def __init__(
        self,
        engines: Engines,
        conversations: Conversations,
        book: CallerBook,
        *,
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        self._engines, self._conversations, self._book = engines, conversations, book
        self._on_call = on_call
        # Streams whose session is in a call here.
        self._streams: dict[str, PhoneStream] = {}

    async def hold(
        self,
        phone: PhoneCall,
        stream: PhoneStream,
        *,
        run: Run,
        desk: Desk,
        settings: PhoneRoutesSettings,
    ) -> None:
        """Hold a telephone call to its end, in one session or several.

        Args:
            phone: the call.
            stream: of the caller, open.
            run: the pipeline.
            desk: what can be done with it.
            settings: of telephone calls.
        """
        started = stream.started
        facts = PhoneFacts(
            phone.call_sid or (started.call_sid if started is not None else ""),
            phone.caller,
            phone.called,
            phone.direction,
        )
        holding = partial(hold_phone, self._engines, facts=facts, desk=desk, settings=settings)
        digest = self._book.digest_of(phone.caller, phone.called, verstat=phone.verstat)
        session_id = None if digest is None else await self._session_of(digest)
        is_apart = session_id is not None and self._keeps(session_id)
        if is_apart:
            session_id, digest = None, None
        codes = _Codes(self._book, stream)
        linked = session_id is not None
        while True:
            if session_id is not None:
                await self._conversations.release(session_id, TAKEN)
            session_id = await self._hold_one(
                session_id, digest, stream, codes, holding, run=run, linked=linked
            )
            if session_id is None:
                return
            # What was said of the session before is not played in this one.
            stream.clear()
            linked = False

    async def _hold_one(
        self,
        session_id: str | None,
        digest: str | None,
        stream: PhoneStream,
        codes: "_Codes",
        holding: Callable[..., Awaitable[None]],
        *,
        run: Run,
        linked: bool,
    ) -> str | None:
        """Hold the call in one session; which one it goes on with, or None: it is over."""
        async with self._conversations.open(session_id) as conversation:
            own_id = conversation.session_id
            self._streams[own_id] = stream
            leaving = asyncio.Event()
            try:
                async with asyncio.TaskGroup() as tasks:
                    beside = [tasks.create_task(codes.watch(own_id, leaving), name="phone.codes")]
                    if digest is not None:
                        noting = self._note(digest, own_id, linked=linked)
                        beside.append(tasks.create_task(noting, name="phone.caller"))
                    try:
                        await holding(conversation, stream, run=run, leaving=leaving, on_call=self._on_call)
                    finally:
                        for task in beside:
                            task.cancel()
            finally:
                if self._streams.get(own_id) is stream:
                    del self._streams[own_id]
        return codes.session_id if leaving.is_set() and not stream.gone.is_set() else None

    def _keeps(self, session_id: str) -> bool:
        """Whether a session is that of a call which no other one may take over."""
        callers, stream = self._book.callers, self._streams.get(session_id)
        if callers is None or callers.second_call == "takes_over" or stream is None:
            return False
        return not stream.gone.is_set() and stream.quiet_ms < DEAD_MS

    async def _session_of(self, digest: str) -> str | None:
        try:
            return await self._book.session_of(digest)
        except StoreError as error:
            logger.warning(f"a caller is not known by the number: {error}")
            return None

    async def _note(self, digest: str, session_id: str, *, linked: bool) -> None:
        """At the beginning of a call: a caller who is cut off calls again."""
        try:
            await self._book.called(digest, session_id, linked=linked)
        except StoreError as error:
            logger.warning(f"a caller's number is not kept: {error}")


class _Codes:
    """The codes that one caller presses.

    Attributes:
        session_id: that the last one stands for.
    """

    def __init__(self, book: CallerBook, stream: PhoneStream) -> None:
        self.session_id = ""
        self._book = book
        settings = book.codes
        self._keys: asyncio.Queue[tuple[str, int]] = asyncio.Queue(MOST_KEYS)
        self._codes: PressedCodes | None = None
        if settings is not None:
            self._codes = PressedCodes(
                digits=settings.digits, pause_ms=round(settings.pause_s * 1000), tries=settings.tries
            )
            self._clock = LoopClock()
            stream.on_key = self._press

    def _press(self, key: str) -> None:
        # Full: nobody presses so many in the time that a store takes.
        if not self._keys.full():
            self._keys.put_nowait((key, self._clock.now_ms()))

    async def watch(self, session_id: str, leaving: asyncio.Event) -> None:
        """Set ``leaving`` when a code of another session than this one is pressed; until cancelled."""
        while self._codes is not None and not self._codes.is_over:
            code = self._codes.press(*await self._keys.get())
            if code is None:
                continue
            try:
                found = await self._book.take_code(code)
            except StoreError as error:
                logger.warning(f"a code that was pressed is not looked up: {error}")
                continue
            if found is None:
                self._codes.was_wrong()
                logger.info("a caller pressed a code that stands for nothing")
            elif found != session_id:
                self.session_id = found
                leaving.set()
                return
