"""One media stream for the length of a call: what the network says is read, what it is told is written.

In: messages, each read by the ``StreamProtocol`` of its network; audio as one stream without holes, keys and
marks go to the ``Listener``. Out: packets and marks of the line, when they are due; ``clear`` at once.
Decides what the other side may do to this process:

* a message that cannot be read, or comes in the wrong order, is logged with the reason and ignored;
  ``MOST_REFUSED`` in a row end the stream
* no ``start`` within ``start_s``, one of another call, or no audio for ``silent_s``, ends it: a call
  screener that never connects, somebody else's stream, a carrier that lost the caller
* ``stop`` ends it, whether or not the socket is closed behind it
* a socket that takes no message for ``send_s`` is given up

Also decides what may be taken for played. A packet is told (``Listener.played``) when it has its time, but
not while a mark before it is overdue on a line that sends marks back: a connection that has stalled plays
nothing. And noise is not put behind what such a stall has piled up: it is as long as the time in which it
is sent, so it would keep the pile, and all that is said later would be late by it. While nothing comes from
the caller, or marks are out and came late, there is none; what is there runs dry meanwhile. A ``clear``
would be quicker, and drop words if a mark were believed that should not be.

Owns two tasks, the reader and the writer, from ``open`` to ``close``. Gone: ``gone`` is set, and nothing
that is sent reaches anybody. ``end`` says why.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from loguru import logger
from pydantic import Field

from core.strict_model import StrictModel
from core.tuning import tuned
from protocols.surface import Refusal
from protocols.twilio_media import (
    MOST_REFUSED,
    PACKET_BYTES,
    SILENCE,
    Audio,
    Digit,
    Event,
    MarkBack,
    Started,
    Stopped,
)
from runtime.loop_clock import LoopClock
from session_store.faults import log_failure
from telemetry.seldom import Seldom
from transports.phone_protocol import Message, StreamProtocol
from transports.twilio.caller import CallerLine
from transports.twilio.marks import Back, Marks
from transports.twilio.packets import PACKET_US, Mark, Packet, PacketLine, Sound
from transports.twilio.protocol import TwilioProtocol

_US_PER_S = 1_000_000
# On a line that sends no marks back, speech is over so long behind its time.
LATE_MARK_MS = 1_000
# Audio of a caller comes each 20 ms: nothing for so long, and what is sent may be standing too. Marks of a
# stream vary by less than the other.
HUSH_MS, PILED_MS = 200, 100
# Looked at so often whether there may be noise again.
HUSH_US = 100_000
# Keys of the caller that wait for who reads them.
MOST_KEYS = 64
# Keys that wait to be pressed.
MOST_PRESSED_US = 20 * _US_PER_S


class PhoneSettings(StrictModel):
    """Sound of the bot on a telephone line."""

    comfort_noise: bool = Field(
        True, description="a soft noise while the bot is silent, so that nobody takes the line for dead"
    )
    level_dbm0: float | None = Field(
        -17.5,
        ge=-30,
        le=-6,
        description="active level of the bot's speech on the line; null: as loud as its voice is made",
    )


class PhoneTuning(PhoneSettings):
    """Settings with the values beside them that no deployment sets."""

    lead_ms: int = Field(60, ge=0, le=500, description="a packet leaves so long before it is to be played")
    start_s: float = Field(5.0, gt=0, le=60, description="a stream that has not started by then is over")
    silent_s: float = Field(10.0, gt=0, le=120, description="a stream without audio for so long is over")
    send_s: float = Field(5.0, gt=0, le=60, description="one message may take so long to be taken")
    mark_ms: int = Field(1_000, ge=100, le=10_000, description="a mark so often at least, in speech")


class Peer(Protocol):
    """The other side of a socket; see ``transports.websocket.peer``."""

    async def receive(self) -> Message | None: ...

    async def send(self, message: Message) -> bool: ...

    async def close(self, code: int, reason: str) -> None: ...


class Listener(Protocol):
    """Who is told what comes from the caller, and what gets there. Nothing here may block."""

    def hear(self, pcm: bytes) -> None:
        """16-bit PCM at 8 kHz."""
        ...

    def key(self, digit: str) -> None:
        """A key was pressed."""
        ...

    def delay(self, delay_ms: int, unplayed_ms: int) -> None:
        """How long a packet takes to the ear, and how much is not played at a ``clear``; see ``Marks``."""
        ...

    def played(self, mu_law: bytes) -> None:
        """The speech of a packet is played."""
        ...

    def over(self) -> None:
        """Nothing more comes."""
        ...


def _silence() -> bytes:
    return SILENCE * PACKET_BYTES


class PhoneStream:
    """One stream.

    Args:
        peer: the socket, accepted.
        settings: see the model.
        comfort: the next packet of noise; None for none.
        call_sid: of the only call whose stream this may be; empty: of any.
        protocol: of the network; None: Twilio's.

    Attributes:
        started: how the stream began.
        gone: the other side is.
        end: why, in a word and a sentence.
        marks: what has come back.
        caller: what was heard.
        refused: messages that were ignored.
        keys: that were pressed, with the time on the loop's clock, for one reader; the listener has them too.
    """

    def __init__(
        self,
        peer: Peer,
        settings: PhoneSettings | None = None,
        *,
        comfort: Callable[[], bytes] | None = None,
        call_sid: str = "",
        protocol: StreamProtocol | None = None,
    ) -> None:
        self.settings = tuned(PhoneTuning, settings)
        self.started: Started | None = None
        self.gone = asyncio.Event()
        self.end = "", ""
        self.marks = Marks()
        self.caller = CallerLine()
        self.refused = 0
        self.keys: asyncio.Queue[tuple[str, int]] = asyncio.Queue(MOST_KEYS)
        self._peer = peer
        self._call_sid = call_sid
        self._protocol = protocol or TwilioProtocol()
        if not self.settings.comfort_noise:
            comfort = None
        if comfort is None and self._protocol.is_continuous:
            comfort = _silence
        self._line = PacketLine(lead_ms=self.settings.lead_ms, comfort=comfort)
        self._clock = LoopClock()
        self._listener: Listener | None = None
        self._early: deque[Audio | Digit] = deque(maxlen=500)
        self._begun = asyncio.Event()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        # How often it was cleared; the caller has not been told of the last time.
        self._cleared = 0
        self._owes_clear = False
        # When the last tone that has left will have been played.
        self._tone_until_us = 0
        self._tasks: list[asyncio.Task[None]] = []
        # What has left and is not played: when it is, and the packet.
        self._ahead: deque[tuple[int, bytes]] = deque()
        # By name: whether what was before a mark was played.
        self._waits: dict[str, asyncio.Future[bool]] = {}
        self._owes_probe = True
        self._came_at_s = self._silent_at_s = 0.0
        self._refusals, self._failures = Seldom(), Seldom(10.0)

    async def open(self) -> Started | None:
        """Read from here on; how the stream began, or None: it did not."""
        self._came_at_s = self._now_s()
        self._silent_at_s = self._came_at_s + self.settings.silent_s
        self._tasks = [asyncio.create_task(self._read(), name="phone.reader")]
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.start_s):
                await self._begun.wait()
        if self.started is None:
            self._over("no_start", f"no stream began within {self.settings.start_s:g} s")
            return None
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
            self._tell(self._early.popleft())
        if self.gone.is_set():
            listener.over()

    def stop_listening(self, listener: Listener) -> None:
        """Tell this one nothing more; what comes is kept for the next one."""
        if self._listener is listener:
            self._listener = None

    @property
    def quiet_ms(self) -> int:
        """For how long nothing has come, which of a line that is there is never long."""
        return round((self._now_s() - self._came_at_s) * 1000)

    # What the caller is sent.

    async def say(self, mu_law: bytes) -> bool:
        """More speech; returns when little of it waits. False: it was dropped, or nobody is there."""
        before = self._cleared
        if not self.gone.is_set():
            self._line.push(mu_law)
            self._news.set()
        while self._line.held_us > self.settings.lead_ms * 1000 + PACKET_US:
            if self.gone.is_set() or before != self._cleared:
                break
            self._room.clear()
            await self._room.wait()
        return before == self._cleared and not self.gone.is_set()

    def press(self, mu_law: bytes) -> bool:
        """The tones of a key, behind what was said. False: too many wait, or nobody is there."""
        if self.gone.is_set() or self._line.held_us > MOST_PRESSED_US:
            return False
        self._line.press(mu_law)
        self._news.set()
        return True

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
        now_us = self._clock.now_us()
        self._play(now_us)
        # A key that is being pressed is pressed to its end, whoever speaks: a menu would take it for none.
        is_pressing = self._tone_until_us > now_us
        self._line.clear(plays_on=is_pressing)
        self._answer_all()
        self._cleared += 1
        if not is_pressing:
            self._ahead.clear()
            self.marks.cleared()
            # Nothing is before the next mark: it tells the way alone.
            self._owes_clear = self._owes_probe = True
        self._room.set()
        self._news.set()

    async def played_out(self, within_s: float) -> bool:
        """Whether all that was said has been played: its mark came back.

        On a line that sends no marks back, its time and ``LATE_MARK_MS`` have passed.

        Args:
            within_s: longest wait.
        """
        if self.gone.is_set():
            return False
        self._line.end()
        ends_us = max(self._line.played_us - self._clock.now_us(), 0) + self._line.held_us
        by_time_s = ends_us / _US_PER_S + LATE_MARK_MS / 1000
        # Without marks nobody knows better than its time.
        is_told = self.marks.is_returned or by_time_s > within_s
        name = self.mark()
        waits = self._waits[name] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({waits}, timeout=within_s if is_told else by_time_s)
        finally:
            self._waits.pop(name, None)
        return waits.result() if waits.done() else not is_told

    def _answer_all(self) -> None:
        """What is waited for is not played any more."""
        for waits in self._waits.values():
            if not waits.done():
                waits.set_result(False)

    async def _write(self) -> None:
        try:
            while not self.gone.is_set():
                await self._step()
        except TimeoutError:
            self._over("not_read", "what the caller was sent was not taken")
        except Exception as error:
            # The edge of a caller, as in ``_read``.
            log_failure("a telephone stream failed", error)
            self._over("error", "the stream failed")

    async def _step(self) -> None:
        if self._owes_clear:
            self._owes_clear = False
            await self._send(await self._protocol.clear())
        if self._owes_probe:
            self._owes_probe = False
            await self._send_mark(Mark(self.marks.name(), self._clock.now_us()), is_alone=True)
        while (what := self._due()) is not None:
            if isinstance(what, Mark):
                await self._send_mark(what)
            else:
                if what.is_speech:
                    self._ahead.append((what.plays_us, what.mu_law))
                elif what.sound is Sound.TONE:
                    self._tone_until_us = what.plays_us + PACKET_US
                self._room.set()
                await self._send(await self._protocol.media(what.mu_law))
            if self._owes_clear or self.gone.is_set():
                # Told first: nothing that was said before it follows it.
                return
        self._room.set()
        await self._until_due()

    def _due(self) -> Packet | Mark | None:
        """What leaves now, when what has had its time is told."""
        now_us = self._clock.now_us()
        self._play(now_us)
        self._line.allow_noise(not self._is_piled_up())
        return self._line.take(now_us)

    async def _send_mark(self, mark: Mark, *, is_alone: bool = False) -> None:
        self.marks.sent(mark.name, mark.plays_us, is_alone=is_alone)
        await self._send(await self._protocol.mark(mark.name))

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            async with asyncio.timeout(self.settings.send_s):
                if not await self._peer.send(message):
                    self._over("gone", "the socket is closed")

    def _play(self, now_us: int) -> None:
        if self.marks.overdue(now_us):
            return
        while self._ahead and self._ahead[0][0] <= now_us:
            _, mu_law = self._ahead.popleft()
            if self._listener is not None:
                try:
                    self._listener.played(mu_law)
                except Exception as error:
                    # Books that fail end no call.
                    if self._failures.line("", self._now_s()) is not None:
                        log_failure("what a caller has heard is not noted", error)

    def _is_piled_up(self) -> bool:
        """Whether what is sent may be standing somewhere."""
        is_late = bool(self.marks.out) and self.marks.excess_ms > PILED_MS
        return is_late or self.quiet_ms > HUSH_MS

    async def _until_due(self) -> None:
        now_us = self._clock.now_us()
        dues = [self._line.next_due_us()]
        if self._ahead:
            plays_us = self._ahead[0][0]
            # What has had its time is held back.
            dues.append(plays_us if plays_us > now_us else now_us + PACKET_US)
        if not self._line.is_noisy:
            dues.append(now_us + HUSH_US)
        due_us = min((each for each in dues if each is not None), default=None)
        # A timeout would end each of these waits by an exception, fifty times a second.
        timer = None
        if due_us is not None:
            timer = asyncio.get_running_loop().call_at(due_us / _US_PER_S, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._news.clear()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # What comes from the caller.

    async def _read(self) -> None:
        refused = 0
        try:
            while not self.gone.is_set():
                try:
                    async with asyncio.timeout_at(self._silent_at_s):
                        message = await self._peer.receive()
                    self._came_at_s = self._now_s()
                    if message is None:
                        self._over("gone", "the socket was closed")
                        return
                    event = await self._protocol.read(message)
                except Refusal as refusal:
                    refused = self._refuse(refusal, refused)
                except TimeoutError:
                    self._silent()
                else:
                    refused = 0
                    if event is not None:
                        self._handle(event)
                if self._now_s() >= self._silent_at_s:
                    # Keys, marks and what cannot be read are no sign of a caller.
                    self._silent()
        except Exception as error:
            # The edge of a caller: the call is over, and nobody else's.
            log_failure("a telephone stream failed", error)
            self._over("error", "the stream failed")

    def _silent(self) -> None:
        self._over("silent", f"no audio came for {self.settings.silent_s:g} s")

    def _refuse(self, refusal: Refusal, in_a_row: int) -> int:
        self.refused += 1
        why = f"a message of a telephone stream is ignored: {refusal} ({refusal.code})"
        if (line := self._refusals.line(why, self._now_s())) is not None:
            logger.warning(line)
        if in_a_row + 1 >= MOST_REFUSED:
            self._over("refused", f"{in_a_row + 1} messages in a row could not be read: {refusal}")
        return in_a_row + 1

    def _handle(self, event: Event) -> None:
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Stopped):
            self._over("stopped", "the caller is gone")
        elif isinstance(event, MarkBack):
            self._mark_back(event.name)
        else:
            if isinstance(event, Audio):
                self._silent_at_s = self._now_s() + self.settings.silent_s
            elif not self.keys.full():
                # Full: more than a caller presses in the time that a store takes, or there is no reader.
                self.keys.put_nowait((event.digit, self._clock.now_ms()))
            self._tell(event)

    def _start(self, event: Started) -> None:
        if self._call_sid and event.call_sid != self._call_sid:
            logger.warning("a telephone stream is refused: it is of another call than its token")
            self._over("wrong_call", "the stream is of another call")
            return
        self._silent_at_s = self._now_s() + self.settings.silent_s
        self.started = event
        self._begun.set()

    def _tell(self, event: Audio | Digit) -> None:
        if self._listener is None:
            self._early.append(event)
        elif isinstance(event, Digit):
            self._listener.key(event.digit)
        else:
            before = self.caller.resynchronised
            pcm = self.caller.hear(event.mu_law, event.at_ms)
            if not before and self.caller.resynchronised:
                logger.warning(
                    f"places of a caller's audio are none: {event.at_ms} ms; they are counted anew"
                )
            if pcm:
                self._listener.hear(pcm)

    def _mark_back(self, name: str) -> None:
        back = self.marks.back(name, self._clock.now_us())
        waits = self._waits.get(name)
        if waits is not None and not waits.done():
            waits.set_result(back is Back.PLAYED)
        if back is not Back.PLAYED:
            return
        if self._ahead or not self._line.is_noisy:
            # What was held back may go on.
            self._news.set()
        delay_ms = self.marks.delay_ms
        if self._listener is not None and delay_ms is not None:
            self._listener.delay(delay_ms, self.marks.unplayed_ms)

    def _over(self, reason: str, message: str) -> None:
        if not self.gone.is_set():
            self.end = reason, message
            self.gone.set()
            logger.info(f"a telephone stream is over: {reason} {message}".rstrip())
            self._answer_all()
            if self._listener is not None:
                self._listener.over()
        self._begun.set()
        self._room.set()
        self._news.set()
