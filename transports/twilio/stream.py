"""Media stream of one phone call: reads the network's messages and writes ours.

Input: messages, each read by the ``StreamProtocol`` of its network. Audio, as one stream without gaps, keys
and marks go to the ``Listener``. Output: packets and marks of the line when they are due; ``clear`` at once.
Decides what the other side may do to this process:

* a message that cannot be read, or comes in the wrong order, is logged with the reason and ignored;
  ``MOST_REFUSED`` in a row end the stream
* the stream ends when no ``start`` comes within ``start_s`` (a call screener that never connects), or when
  the start is that of another call (a foreign stream)
* it ends when no audio comes for ``silent_s``: the carrier has lost the caller
* ``stop`` ends it, whether or not the socket is closed afterwards
* a socket that accepts no message for ``send_s`` is given up

Also decides what may be taken for played. A packet is told (``Listener.played``) when it has its time, but
not while a mark before it is overdue on a line that sends marks back: a connection that has stalled plays
nothing. And noise is not put behind what such a stall has piled up: it is as long as the time in which it
is sent, so it would keep the pile, and all that is said later would be late by it. While nothing comes from
the caller, or marks are out and came late, there is none; what is there runs dry meanwhile. A ``clear``
would be quicker, and drop words if a mark were believed that should not be.

Owns two tasks, the reader and the writer, from ``open`` to ``close``. When the other side is gone, ``gone``
is set, nothing more is sent, and ``end`` gives the reason.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from loguru import logger
from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import (
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
from parley.runtime.loop_clock import LoopClock
from parley.session_store.faults import log_failure
from parley.telemetry.log_throttle import LogThrottle
from parley.transports.phone_protocol import Message, StreamProtocol
from parley.transports.twilio.caller import CallerLine
from parley.transports.twilio.marks import Back, Marks
from parley.transports.twilio.packets import PACKET_US, Mark, Packet, PacketLine, PacketSound
from parley.transports.twilio.protocol import TwilioProtocol

_US_PER_S = 1_000_000
# On a line that sends no marks back, speech counts as played this long after its due time.
LATE_MARK_MS = 1_000
# A caller's audio comes every 20 ms. After ``HUSH_MS`` without any, the audio we send may have stalled too.
# Marks of a healthy stream vary by less than ``PILED_MS``.
HUSH_MS, PILED_MS = 200, 100
# Interval at which the line checks whether noise is allowed again.
HUSH_US = 100_000
# Reason of the end of a stream after its ``stop``.
STOPPED = "stopped"
# Keys of the caller that wait for their reader.
MOST_KEYS = 64
# Keys that wait to be pressed.
MOST_PRESSED_US = 20 * _US_PER_S


class PhoneSettings(StrictModel):
    """Sound of the bot on a phone line."""

    comfort_noise: bool = Field(
        True, description="a soft noise while the bot is silent, so that the line does not seem dead"
    )
    level_dbm0: float | None = Field(
        -17.5,
        ge=-30,
        le=-6,
        description="active level of the bot's speech on the line; null: the level at which the voice "
        "produces it",
    )


class PhoneTuning(PhoneSettings):
    """Settings, and the values that no deployment sets."""

    lead_ms: int = Field(
        60, ge=0, le=500, description="time by which a packet is sent before it is to be played"
    )
    start_s: float = Field(
        5.0, gt=0, le=60, description="time within which a stream has to start, or it is closed"
    )
    silent_s: float = Field(
        10.0, gt=0, le=120, description="time without audio after which a stream is closed"
    )
    send_s: float = Field(5.0, gt=0, le=60, description="longest time to send one message")
    mark_ms: int = Field(
        1_000, ge=100, le=10_000, description="longest interval between two marks during speech"
    )


class PhonePeer(Protocol):
    """Other side of a socket; see ``transports.websocket.peer``."""

    async def receive(self) -> Message | None: ...

    async def send(self, message: Message) -> bool: ...

    async def close(self, code: int, reason: str) -> None: ...


class Listener(Protocol):
    """Receiver of what a phone stream reports. No method may block."""

    def hear(self, pcm: bytes) -> None:
        """Receive 16-bit PCM at 8 kHz."""
        ...

    def key(self, digit: str) -> None:
        """Receive a key that was pressed."""
        ...

    def delay(self, delay_ms: int, unplayed_ms: int) -> None:
        """Receive the delay of a packet to the ear, and the audio that a ``clear`` leaves unplayed
        (``Marks``).
        """
        ...

    def played(self, mu_law: bytes) -> None:
        """The speech of a packet is played."""
        ...

    def over(self) -> None:
        """Receive the end: nothing more comes."""
        ...


def _silence() -> bytes:
    return SILENCE * PACKET_BYTES


class PhoneStream:
    """Media stream of one call.

    Args:
        peer: the socket, accepted.
        settings: sound of the bot on the line; the defaults when None.
        comfort: returns the next packet of noise; None for none.
        call_sid: the only call whose stream this may be; empty for any.
        protocol: messages of the network; Twilio's when None.

    Attributes:
        started: beginning of the stream, once it has begun.
        gone: set when the other side is gone.
        end: the reason, as a word and a sentence.
        marks: marks sent and returned.
        caller: audio of the caller.
        refused: number of messages ignored.
        keys: pressed keys with their times on the loop's clock, for one reader; the listener receives them
            too.
    """

    def __init__(
        self,
        peer: PhonePeer,
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
        # Number of clears so far; true while the last one has not been sent to the caller.
        self._cleared = 0
        self._owes_clear = False
        # Time at which the last tone that has left will have been played.
        self._tone_until_us = 0
        self._tasks: list[asyncio.Task[None]] = []
        # Packets that have left and are not played yet: the time at which each is played, and its audio.
        self._ahead: deque[tuple[int, bytes]] = deque()
        # By name of a mark: resolves to whether the audio before it was played.
        self._waits: dict[str, asyncio.Future[bool]] = {}
        self._owes_probe = True
        self._came_at_s = self._silent_at_s = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self._refusals, self._failures = LogThrottle(), LogThrottle(10.0)

    async def open(self) -> Started | None:
        """Begin to read; return the beginning of the stream, or None when it did not begin."""
        self._came_at_s = self._now_s()
        self._silent_at_s = self._came_at_s + self.settings.silent_s
        self._watch_silence()
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
        """Close the socket and end both tasks; Twilio goes on with the instructions after the stream."""
        self._over("closed", reason)
        if self._silence is not None:
            self._silence.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.send_s):
                await self._peer.close(1000, reason)

    def listen(self, listener: Listener) -> None:
        """Deliver events to a listener from here on, beginning with those received since the start."""
        self._listener = listener
        while self._early:
            self._deliver(self._early.popleft())
        if self.gone.is_set():
            listener.over()

    def stop_listening(self, listener: Listener) -> None:
        """Deliver no more events to this listener; events are kept for the next one."""
        if self._listener is listener:
            self._listener = None

    @property
    def quiet_ms(self) -> int:
        """Time since the last message in milliseconds; a healthy line is never quiet for long."""
        return round((self._now_s() - self._came_at_s) * 1000)

    # Audio to the caller.

    async def say(self, mu_law: bytes) -> bool:
        """Queue more speech; return when little of it waits. False: it was dropped, or the caller is gone."""
        before = self._cleared
        self.queue(mu_law)
        while self._line.held_us > self.settings.lead_ms * 1000 + PACKET_US:
            if self.gone.is_set() or before != self._cleared:
                break
            self._room.clear()
            await self._room.wait()
        return before == self._cleared and not self.gone.is_set()

    def queue(self, mu_law: bytes) -> None:
        """Queue more speech, of any length; its producer bounds it."""
        if not self.gone.is_set():
            self._line.push(mu_law)
            self._news.set()

    def press(self, mu_law: bytes) -> bool:
        """Queue the tones of a key after the speech so far. False: too many wait, or the caller is gone."""
        if self.gone.is_set() or self._line.held_us > MOST_PRESSED_US:
            return False
        self._line.press(mu_law)
        self._news.set()
        return True

    def mark(self) -> str:
        """Queue a mark after the speech so far; return its name."""
        name = self.marks.name()
        self._line.mark(name)
        self._news.set()
        return name

    def end_reply(self) -> None:
        """End the reply: the speech that follows belongs to another one."""
        self._line.end()
        self._news.set()

    def clear(self) -> None:
        """Drop all speech that has not been played."""
        now_us = self._clock.now_us()
        self._play(now_us)
        # A key that is being pressed is pressed to its end, even over an interruption: a menu would reject a
        # shorter tone.
        is_pressing = self._tone_until_us > now_us
        self._line.clear(plays_on=is_pressing)
        self._answer_all()
        self._cleared += 1
        if not is_pressing:
            self._ahead.clear()
            self.marks.cleared()
            # Nothing is before the next mark: it measures the round trip alone.
            self._owes_clear = self._owes_probe = True
        self._room.set()
        self._news.set()

    async def played_out(self, within_s: float) -> bool:
        """Return whether all speech has been played: its mark came back.

        On a line that sends no marks back, its due time and ``LATE_MARK_MS`` have passed.

        Args:
            within_s: longest wait.
        """
        if self.gone.is_set():
            return False
        self._line.end()
        ends_us = max(self._line.played_us - self._clock.now_us(), 0) + self._line.held_us
        by_time_s = ends_us / _US_PER_S + LATE_MARK_MS / 1000
        # Without marks, the due time is the best estimate.
        is_told = self.marks.is_returned or by_time_s > within_s
        name = self.mark()
        waits = self._waits[name] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({waits}, timeout=within_s if is_told else by_time_s)
        finally:
            self._waits.pop(name, None)
        return waits.result() if waits.done() else not is_told

    def _answer_all(self) -> None:
        """Resolve all waits for marks: the audio is not played any more."""
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
            # The boundary of one call, as in ``_read``.
            log_failure("a phone stream failed", error)
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
                elif what.sound is PacketSound.TONE:
                    self._tone_until_us = what.plays_us + PACKET_US
                self._room.set()
                await self._send(await self._protocol.media(what.mu_law))
            if self._owes_clear or self.gone.is_set():
                # Send the ``clear`` first: nothing queued before it may follow it.
                return
        self._room.set()
        await self._until_due()

    def _due(self) -> Packet | Mark | None:
        """Return what leaves now, after reporting the packets that were due."""
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
                    # A playout record that fails must not end the call.
                    if self._failures.line("", self._now_s()) is not None:
                        log_failure("recording how much a caller has heard failed", error)

    def _is_piled_up(self) -> bool:
        """Return whether the audio sent may be stalled somewhere."""
        is_late = bool(self.marks.out) and self.marks.excess_ms > PILED_MS
        return is_late or self.quiet_ms > HUSH_MS

    async def _until_due(self) -> None:
        now_us = self._clock.now_us()
        dues = [self._line.next_due_us()]
        if self._ahead:
            plays_us = self._ahead[0][0]
            # A packet that was due is held back.
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
        return self._clock.now_us() / _US_PER_S

    # Messages from the caller.

    async def _read(self) -> None:
        refused = 0
        try:
            while not self.gone.is_set():
                try:
                    message = await self._peer.receive()
                    self._came_at_s = self._now_s()
                    if message is None:
                        self._over("gone", "the socket was closed")
                        return
                    event = await self._protocol.read(message)
                except ProtocolError as refusal:
                    refused = self._refuse(refusal, refused)
                else:
                    refused = 0
                    if event is not None:
                        self._handle(event)
                if self._now_s() >= self._silent_at_s:
                    # Keys, marks and unreadable messages do not show that a caller is present.
                    self._silent()
        except Exception as error:
            # The boundary of one call, which ends; other calls are unaffected.
            log_failure("a phone stream failed", error)
            self._over("error", "the stream failed")

    def _watch_silence(self) -> None:
        """End the stream when audio has been missing for too long; each piece of audio moves that time."""
        if self._now_s() >= self._silent_at_s:
            self._silent()
        elif not self.gone.is_set():
            # One timer for seconds of audio: a deadline for each message is two for every packet.
            loop = asyncio.get_running_loop()
            self._silence = loop.call_at(self._silent_at_s, self._watch_silence)

    def _silent(self) -> None:
        self._over("silent", f"no audio came for {self.settings.silent_s:g} s")

    def _refuse(self, refusal: ProtocolError, in_a_row: int) -> int:
        self.refused += 1
        why = f"a message of a phone stream is ignored: {refusal} ({refusal.code})"
        if (line := self._refusals.line(why, self._now_s())) is not None:
            logger.warning(line)
        if in_a_row + 1 >= MOST_REFUSED:
            self._over("refused", f"{in_a_row + 1} messages in a row could not be read: {refusal}")
        return in_a_row + 1

    def _handle(self, event: Event) -> None:
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Stopped):
            self._over(STOPPED, "the caller has hung up")
        elif isinstance(event, MarkBack):
            self._mark_back(event.name)
        else:
            if isinstance(event, Audio):
                self._silent_at_s = self._now_s() + self.settings.silent_s
            elif not self.keys.full():
                # Full: more keys than a caller presses in the time that a store takes, or there is no reader.
                self.keys.put_nowait((event.digit, self._clock.now_ms()))
            self._deliver(event)

    def _start(self, event: Started) -> None:
        if self._call_sid and event.call_sid != self._call_sid:
            logger.warning("refusing a phone stream whose token belongs to another call")
            self._over("wrong_call", "the stream is of another call")
            return
        self._silent_at_s = self._now_s() + self.settings.silent_s
        self.started = event
        self._begun.set()

    def _deliver(self, event: Audio | Digit) -> None:
        if self._listener is None:
            self._early.append(event)
        elif isinstance(event, Digit):
            self._listener.key(event.digit)
        else:
            before = self.caller.resynchronised
            pcm = self.caller.hear(event.mu_law, event.at_ms)
            if not before and self.caller.resynchronised:
                logger.warning(
                    f"a caller's audio has the implausible timestamp {event.at_ms} ms; timestamps are "
                    "counted anew"
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
            # Packets that were held back may go on.
            self._news.set()
        delay_ms = self.marks.delay_ms
        if self._listener is not None and delay_ms is not None:
            self._listener.delay(delay_ms, self.marks.unplayed_ms)

    def _over(self, reason: str, message: str) -> None:
        if not self.gone.is_set():
            self.end = reason, message
            self.gone.set()
            logger.info(f"a phone stream has ended: {reason} {message}".rstrip())
            self._answer_all()
            if self._listener is not None:
                self._listener.over()
        self._begun.set()
        self._room.set()
        self._news.set()
