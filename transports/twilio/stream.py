"""One media stream for the length of a call: what Twilio says is read, what it is told is written.

In: text messages, each read by ``MediaStream``; audio as one stream without holes, keys and marks go to the
``Listener``. Out: packets and marks of the line, when they are due; ``clear`` at once. Decides what the
other side may do to this process:

* a message that cannot be read, or comes in the wrong order, is logged with the reason and ignored;
  ``MOST_REFUSED`` in a row end the stream
* no ``start`` within ``start_s``, or no audio for ``silent_s``, ends it: a call screener that never
  connects, a carrier that lost the caller
* ``stop`` ends it, whether or not the socket is closed behind it
* a socket that takes no message for ``send_s`` is given up

Owns two tasks, the reader and the writer, from ``open`` to ``close``. Gone: ``gone`` is set, and nothing
that is sent reaches anybody. ``end`` says why.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from protocols.surface import Refusal
from protocols.twilio_media import (
    MOST_REFUSED,
    Audio,
    Digit,
    Event,
    MarkBack,
    MediaStream,
    Started,
    Stopped,
    ToCaller,
)
from runtime.loop_clock import LoopClock
from transports.twilio.caller import CallerLine
from transports.twilio.marks import Back, Marks
from transports.twilio.packets import PACKET_US, Mark, Packet, PacketLine

_US_PER_S = 1_000_000
# A mark is late by the line's delay; so much behind that it is not waited for.
LATE_MARK_MS = 1_000


class PhoneSettings(BaseModel):
    """Bounds and times of one telephone line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lead_ms: int = Field(60, ge=0, le=500, description="a packet leaves so long before it is to be played")
    start_s: float = Field(5.0, gt=0, le=60, description="a stream that has not started by then is over")
    silent_s: float = Field(10.0, gt=0, le=120, description="a stream without audio for so long is over")
    send_s: float = Field(5.0, gt=0, le=60, description="one message may take so long to be taken")
    comfort_noise: bool = Field(
        True, description="a soft noise while the bot is silent, so that nobody takes the line for dead"
    )
    level_dbm0: float | None = Field(
        -17.5,
        ge=-30,
        le=-6,
        description="active level of the bot's speech on the line; null: as loud as its voice is made",
    )
    mark_ms: int = Field(1_000, ge=100, le=10_000, description="a mark so often at least, in speech")


class Peer(Protocol):
    """The other side of a socket; see ``transports.websocket.peer``."""

    async def receive(self) -> str | None: ...

    async def send(self, text: str) -> bool: ...

    async def close(self, code: int, reason: str) -> None: ...


class Listener(Protocol):
    """Who is told what comes from the caller. Nothing here may block."""

    def hear(self, pcm: bytes) -> None:
        """16-bit PCM at 8 kHz."""
        ...

    def key(self, digit: str) -> None:
        """A key was pressed."""
        ...

    def delay(self, delay_ms: int) -> None:
        """How long a packet takes to the ear, by the marks."""
        ...


class PhoneStream:
    """One stream.

    Args:
        peer: the socket, accepted.
        settings: see the model.
        comfort: the next packet of noise; None for none.

    Attributes:
        on_played: told the speech of each packet when it is played; must not block.
        on_key: told each key that is pressed, beside the listener; must not block.
        started: how the stream began.
        gone: the other side is.
        end: why, in a word and a sentence.
        marks: what has come back.
        caller: what was heard.
        refused: messages that were ignored.
    """

    def __init__(
        self,
        peer: Peer,
        settings: PhoneSettings | None = None,
        *,
        comfort: Callable[[], bytes] | None = None,
    ) -> None:
        self.settings = settings or PhoneSettings()
        self.started: Started | None = None
        self.gone = asyncio.Event()
        self.end = "", ""
        self.marks = Marks()
        self.caller = CallerLine()
        self.refused = 0
        self.on_played: Callable[[bytes], None] | None = None
        self.on_key: Callable[[str], None] | None = None
        self._peer = peer
        self._stream = MediaStream()
        self._line = PacketLine(
            lead_ms=self.settings.lead_ms, comfort=comfort if self.settings.comfort_noise else None
        )
        self._to_caller: ToCaller | None = None
        self._clock = LoopClock()
        self._came_us = self._clock.now_us()
        self._listener: Listener | None = None
        self._early: deque[Audio | Digit] = deque(maxlen=500)
        self._begun = asyncio.Event()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        # How often it was cleared; the caller has not been told of the last time.
        self._cleared = 0
        self._owes_clear = False
        self._tasks: list[asyncio.Task[None]] = []
        # What has left and is not played: when it is, and the packet.
        self._ahead: deque[tuple[int, bytes]] = deque()
        self._returned: dict[str, asyncio.Event] = {}

    async def open(self) -> Started | None:
        """Read from here on; how the stream began, or None: it did not."""
        self._tasks = [asyncio.create_task(self._read(), name="phone.reader")]
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.start_s):
                await self._begun.wait()
        if self.started is None:
            self._over("no_start", f"no stream began within {self.settings.start_s:g} s")
            return None
        self._to_caller = ToCaller(self.started.stream_sid)
        self._tasks.append(asyncio.create_task(self._write(), name="phone.writer"))
        return self.started

    async def close(self, reason: str = "") -> None:
        """Close the socket and end both tasks: Twilio goes on with what stands behind the stream."""
        self._over("closed", reason)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.send_s):
                await self._peer.close(1000, reason)

    def listen(self, listener: Listener) -> None:
        """Tell somebody what comes from here on, and first what came since the start."""
        self._listener = listener
        while self._early:
            self._tell(listener, self._early.popleft())

    def stop_listening(self, listener: Listener) -> None:
        """Tell this one nothing more; what comes is kept for the next one."""
        if self._listener is listener:
            self._listener = None

    @property
    def quiet_ms(self) -> int:
        """For how long nothing has come, which of a line that is there is never long."""
        return (self._clock.now_us() - self._came_us) // 1000

    # What the caller is sent.

    async def say(self, mu_law: bytes) -> bool:
        """More speech; returns when little of it waits. False: it was dropped, or nobody is there."""
        self._line.push(mu_law)
        self._news.set()
        before = self._cleared
        while self._line.held_us > self.settings.lead_ms * 1000 + PACKET_US:
            self._room.clear()
            await self._room.wait()
        return before == self._cleared and not self.gone.is_set()

    def mark(self) -> str:
        """Behind what was said so far; returns its name."""
        name = self.marks.name()
        self._line.mark(name)
        self._news.set()
        return name

    def end_reply(self) -> None:
        """What is said next is another reply."""
        self._line.end()
        self._news.set()

    def clear(self) -> None:
        """Nothing that was said and is not played is played any more."""
        self._line.clear()
        self._ahead.clear()
        self.marks.cleared()
        self._cleared += 1
        self._owes_clear = True
        self._room.set()
        self._news.set()

    async def heard(self, name: str, within_s: float) -> bool:
        """Whether a mark comes back in time, as played."""
        back = self._returned.setdefault(name, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await back.wait()
        self._returned.pop(name, None)
        return back.is_set()

    async def played_out(self, within_s: float) -> bool:
        """Whether all that was said has been played: its mark came back, or its time and the line's have passed.

        Args:
            within_s: longest wait.
        """
        self._line.end()
        name = self.mark()
        back = self._returned.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(within_s):
                while not (back.is_set() or self.gone.is_set() or self._is_played_by_time(name)):
                    await asyncio.sleep(PACKET_US / _US_PER_S)
        except TimeoutError:
            return False
        finally:
            self._returned.pop(name, None)
        return not self.gone.is_set()

    def _is_played_by_time(self, name: str) -> bool:
        """Whether a mark that never comes back would have by now."""
        plays_us = self.marks.plays_us(name)
        slack_us = (LATE_MARK_MS + (self.marks.delay_ms or 0)) * 1000
        return plays_us is not None and self._clock.now_us() > plays_us + slack_us

    async def _write(self) -> None:
        assert self._to_caller is not None
        try:
            while not self.gone.is_set():
                if self._owes_clear:
                    self._owes_clear = False
                    await self._send(self._to_caller.clear)
                now_us = self._clock.now_us()
                self._play(now_us)
                what = self._line.take(now_us)
                if what is None:
                    self._room.set()
                    await self._until_due()
                elif isinstance(what, Packet):
                    if what.is_speech:
                        self._ahead.append((what.plays_us, what.mu_law))
                    self._room.set()
                    await self._send(self._to_caller.media(what.mu_law))
                else:
                    await self._send_mark(what)
        except TimeoutError:
            self._over("not_read", "what the caller was sent was not taken")

    async def _send_mark(self, mark: Mark) -> None:
        assert self._to_caller is not None
        self.marks.sent(mark.name, mark.plays_us)
        await self._send(self._to_caller.mark(mark.name))

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(self.settings.send_s):
            if not await self._peer.send(text):
                self._over("gone", "the socket is closed")

    def _play(self, now_us: int) -> None:
        while self._ahead and self._ahead[0][0] <= now_us:
            _, mu_law = self._ahead.popleft()
            if self.on_played is not None:
                self.on_played(mu_law)

    async def _until_due(self) -> None:
        dues = [self._line.next_due_us(), self._ahead[0][0] if self._ahead else None]
        due_us = min((each for each in dues if each is not None), default=None)
        left_s = None if due_us is None else max(0.0, (due_us - self._clock.now_us()) / _US_PER_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._news.wait()
        self._news.clear()

    # What comes from the caller.

    async def _read(self) -> None:
        refused = 0
        try:
            while not self.gone.is_set():
                try:
                    async with asyncio.timeout(self.settings.silent_s):
                        text = await self._peer.receive()
                except TimeoutError:
                    self._over("silent", f"nothing came for {self.settings.silent_s:g} s")
                    return
                except Refusal as refusal:
                    refused = self._refuse(refusal, refused)
                    continue
                if text is None:
                    self._over("gone", "the socket was closed")
                    return
                self._came_us = self._clock.now_us()
                try:
                    event = self._stream.read(text)
                except Refusal as refusal:
                    refused = self._refuse(refusal, refused)
                    continue
                refused = 0
                if event is not None:
                    self._handle(event)
        except Exception as error:
            # The edge of a caller: the call is over, and nobody else's.
            logger.opt(exception=error).error("a telephone stream failed")
            self._over("error", "the stream failed")

    def _refuse(self, refusal: Refusal, in_a_row: int) -> int:
        self.refused += 1
        logger.warning(f"a message of a telephone stream is ignored: {refusal} ({refusal.code})")
        if in_a_row + 1 >= MOST_REFUSED:
            self._over("refused", f"{in_a_row + 1} messages in a row could not be read: {refusal}")
        return in_a_row + 1

    def _handle(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = event
            self._begun.set()
            return
        if isinstance(event, Stopped):
            self._over("stopped", "the caller is gone")
            return
        if isinstance(event, MarkBack):
            self._mark_back(event.name)
            return
        if isinstance(event, Digit) and self.on_key is not None:
            self.on_key(event.digit)
        if self._listener is None:
            self._early.append(event)
        else:
            self._tell(self._listener, event)

    def _tell(self, listener: Listener, event: Audio | Digit) -> None:
        if isinstance(event, Digit):
            listener.key(event.digit)
            return
        pcm = self.caller.hear(event.mu_law, event.at_ms)
        if pcm:
            listener.hear(pcm)

    def _mark_back(self, name: str) -> None:
        back = self.marks.back(name, self._clock.now_us())
        if back is not Back.PLAYED:
            return
        if name in self._returned:
            self._returned[name].set()
        delay_ms = self.marks.delay_ms
        if self._listener is not None and delay_ms is not None:
            self._listener.delay(delay_ms)

    def _over(self, reason: str, message: str) -> None:
        if not self.gone.is_set():
            self.end = reason, message
            self.gone.set()
        self._begun.set()
        self._room.set()
        self._news.set()
