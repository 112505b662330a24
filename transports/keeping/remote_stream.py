"""Media stream of a call that the media process keeps, as the conversation process sees it.

It has the members of ``PhoneStream`` that a call uses (``CallerStream``). Audio goes out in pieces with the
number of their run, and one message (``discard``) drops all of a run and begins the next. What is reported
about an older run has no effect. ``say`` waits while more than ``AHEAD_MS`` has not been passed on to the
network's packets, so that a reply is as close to its playout as in one process. The caller's turns are
reported to the media process, which keeps their audio until they are committed.

Owns no task. Dead: the media process ends this one with it. Cancelled: ``close`` releases the stream there.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from loguru import logger

from parley.core.call_events import (
    PrivatePauseBegan,
    PrivatePauseEnded,
    ReplyOpened,
    TurnEnded,
    TurnStarted,
)
from parley.core.tuning import tuned
from parley.protocols.facts import from_facts, to_facts
from parley.protocols.kept_streams import (
    AudioSent,
    DelayMeasured,
    KeyPressed,
    MarkQueued,
    PauseBegan,
    PauseEnded,
    PlayedOut,
    ReplyEnded,
    StateMessage,
    StreamEnd,
    StreamOpened,
    TonesQueued,
    TurnBegan,
    TurnSettled,
    read_state,
    state_facts,
)
from parley.protocols.twilio_media import RATE_HZ, Started
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.transports.twilio.stream import MOST_KEYS, MOST_PRESSED_US, Listener, PhoneSettings, PhoneTuning

# Audio that the media process has not passed on yet. It bridges a pause of this process.
AHEAD_MS = 120
AHEAD_BYTES = AHEAD_MS * RATE_HZ // 1000
# A stream begins in the other process, whose answer may be late.
MARGIN_S = 2.0
MOST_EARLY = 500
MOST_PRESSED_BYTES = MOST_PRESSED_US // 1000 * RATE_HZ // 1000

Send = Callable[[EngineMessage, int], None]


class RemoteStream:
    """Media stream of one call in another process.

    Args:
        number: of the call.
        settings: sound of the bot on the line.
        send: sends a message about a call to the media process.
        forget: called with the number when the stream is released.

    Attributes:
        number: as given.
        settings, gone, end, keys: as of ``PhoneStream``.
        call: facts of a call that goes on; None for one that begins.
        paused_by: who began the private pause in which the call goes on; empty where there is none.
    """

    def __init__(
        self,
        number: int,
        settings: PhoneSettings | None,
        *,
        send: Send,
        forget: Callable[[int], None],
    ) -> None:
        self.number = number
        self.settings = tuned(PhoneTuning, settings)
        self.gone = asyncio.Event()
        self.end = "", ""
        self.keys: asyncio.Queue[tuple[str, int]] = asyncio.Queue(MOST_KEYS)
        self.call: dict[str, Any] | None = None
        self.paused_by = ""
        self._started: Started | None = None
        self._send_to, self._forget = send, forget
        self._clock = LoopClock()
        self._came_ms = self._clock.now_ms()
        self._begun = asyncio.Event()
        self._room = asyncio.Event()
        self._run = self._unsent_bytes = self._pressed_bytes = 0
        self._marks, self._questions = count(1), count(1)
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._listener: Listener | None = None
        self._early: deque[bytes | str] = deque(maxlen=MOST_EARLY)
        # Place in the caller's audio, and where their last turn ended that is not known to be committed.
        self._heard_bytes = 0
        self._ended_bytes: int | None = None
        self._is_released = False

    @property
    def started(self) -> Started | None:
        """Beginning of the stream, once it has begun."""
        return self._started

    @property
    def quiet_ms(self) -> int:
        """Time since the last message about the call in milliseconds."""
        return self._clock.now_ms() - self._came_ms

    async def open(self) -> Started | None:
        """Return the beginning of the stream, or None when it did not begin."""
        try:
            async with asyncio.timeout(self.settings.start_s + MARGIN_S):
                await self._begun.wait()
        except TimeoutError:
            self._over("no_start", "the media process reports no stream")
        return self._started

    async def close(self, reason: str = "") -> None:
        """Close the stream and its socket."""
        self._over("closed", reason)
        if not self._is_released:
            self._is_released = True
            self._send(MessageType.RELEASE, to_facts(StreamEnd("closed", reason)))
            self._forget(self.number)

    def follow(self, events: CallEvents, *, keeps_pause: bool = False) -> None:
        """Report the caller's turns in a call, so that audio is kept until it is committed, and its pauses.

        Args:
            events: events of the call.
            keeps_pause: the private pause of the stream goes on in this call; false: it ended before.
        """
        if self.paused_by and not keeps_pause:
            self._pause_ended()
        events.subscribe(PrivatePauseBegan, lambda event: self._pause_began(event.by))
        events.subscribe(PrivatePauseEnded, lambda _event: self._pause_ended())
        events.subscribe(TurnStarted, lambda _event: self._turn_began())
        events.subscribe(TurnEnded, lambda _event: self._turn_ended())
        # The turn before a reply is committed before the model is asked.
        events.subscribe(ReplyOpened, lambda _event: self._turn_settled())

    def listen(self, listener: Listener) -> None:
        """Deliver events to a listener from here on (``PhoneStream``)."""
        self._listener = listener
        while self._early:
            self._deliver(self._early.popleft())
        if self.gone.is_set():
            listener.over()

    def stop_listening(self, listener: Listener) -> None:
        """Deliver no more events to this listener (``PhoneStream``)."""
        if self._listener is listener:
            self._listener = None

    # Audio to the caller.

    async def say(self, mu_law: bytes) -> bool:
        """Send more speech; return when little of it waits (``PhoneStream``)."""
        run = self._run
        if not self.gone.is_set():
            self._unsent_bytes += len(mu_law)
            self._send(MessageType.AUDIO, payload=mu_law, number=run)
        while self._unsent_bytes > AHEAD_BYTES and not self.gone.is_set() and run == self._run:
            self._room.clear()
            await self._room.wait()
        return run == self._run and not self.gone.is_set()

    def press(self, mu_law: bytes) -> bool:
        """Send the tones of a key (``PhoneStream``)."""
        if self.gone.is_set() or len(mu_law) > MOST_PRESSED_BYTES:
            return False
        self._state(TonesQueued())
        self._send(MessageType.AUDIO, payload=mu_law, number=self._run)
        return True

    def mark(self) -> str:
        """Queue a mark after the speech so far (``PhoneStream``)."""
        self._state(MarkQueued())
        return f"m{next(self._marks)}"

    def end_reply(self) -> None:
        """End the reply (``PhoneStream``)."""
        self._state(ReplyEnded())

    def clear(self) -> None:
        """Drop all speech that has not been played (``PhoneStream``)."""
        self._run += 1
        self._unsent_bytes = 0
        self._send(MessageType.DISCARD, number=self._run)
        self._room.set()

    async def played_out(self, within_s: float) -> bool:
        """Return whether all speech has been played (``PhoneStream``)."""
        if self.gone.is_set():
            return False
        number = next(self._questions)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send(MessageType.FINISH, to_facts(PlayedOut(within_s)), number=number)
        try:
            await asyncio.wait({answer}, timeout=within_s + MARGIN_S)
        finally:
            self._answers.pop(number, None)
        return answer.result() if answer.done() else False

    # Messages of the media process.

    def take(self, message: EngineMessage) -> None:
        """Handle a message about the call.

        Raises:
            PeerError: it cannot be read.
        """
        self._came_ms = self._clock.now_ms()
        match message.type:
            case MessageType.AUDIO:
                self._heard_bytes += len(message.payload)
                self._deliver(message.payload)
            case MessageType.PIECE:
                if message.number == self._run and self._listener is not None:
                    self._listener.played(message.payload)
            case MessageType.TAKEN:
                if message.number == self._run:
                    self._unsent_bytes -= from_facts(AudioSent, message.facts).size_bytes
                    self._room.set()
            case MessageType.STATE:
                self._take_state(read_state(message.facts))
            case MessageType.DONE:
                answer = self._answers.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(bool(message.facts.get("is_played")))
            case MessageType.OPEN:
                opened = from_facts(StreamOpened, message.facts)
                self.call, self.paused_by = opened.call, opened.paused_by
                self._started = Started(
                    opened.stream_sid, opened.call_sid, opened.account_sid, opened.parameters
                )
                self._begun.set()
            case MessageType.RELEASE:
                end = from_facts(StreamEnd, message.facts)
                self._is_released = True
                self._forget(self.number)
                self._over(end.reason, end.message)

    def _take_state(self, state: StateMessage) -> None:
        match state:
            case KeyPressed(digit):
                if not self.keys.full():
                    self.keys.put_nowait((digit, self._clock.now_ms()))
                self._deliver(digit)
            case DelayMeasured(delay_ms, unplayed_ms):
                if self._listener is not None:
                    self._listener.delay(delay_ms, unplayed_ms)

    def _deliver(self, what: bytes | str) -> None:
        if self._listener is None:
            self._early.append(what)
        elif isinstance(what, str):
            self._listener.key(what)
        else:
            self._listener.hear(what)

    def _turn_began(self) -> None:
        self._turn_settled()
        self._state(TurnBegan(self._heard_bytes))

    def _turn_ended(self) -> None:
        self._ended_bytes = self._heard_bytes

    def _turn_settled(self) -> None:
        if self._ended_bytes is not None:
            at_bytes, self._ended_bytes = self._ended_bytes, None
            self._state(TurnSettled(at_bytes))

    def _pause_began(self, by: str) -> None:
        self.paused_by = by
        self._state(PauseBegan(by))

    def _pause_ended(self) -> None:
        self.paused_by = ""
        self._state(PauseEnded())

    def _state(self, state: StateMessage) -> None:
        self._send(MessageType.STATE, state_facts(state))

    def _send(
        self, type_: MessageType, facts: dict[str, Any] | None = None, payload: bytes = b"", number: int = 0
    ) -> None:
        if not self.gone.is_set() or type_ is MessageType.RELEASE:
            self._send_to(EngineMessage(type_, number, facts or {}, payload), self.number)

    def _over(self, reason: str, message: str) -> None:
        if not self.gone.is_set():
            self.end = reason, message
            self.gone.set()
            logger.info(f"a kept phone stream has ended: {reason} {message}".rstrip())
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(False)
            if self._listener is not None:
                self._listener.over()
        self._begun.set()
        self._room.set()
