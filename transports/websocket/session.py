"""Session of one client of a socket, for the length of a call: reads its messages and writes ours.

Input: text messages, each read by the protocol into actions. Speech is converted to the pipeline's rate and
waits in a line until its time. Actions that belong after it wait with it; all others go to ``on_action``.
Output: the messages that the protocol makes of what happens, in order, written by one task. Decides what a
client may do to this process:

* a refused message is answered with the reason, and the call goes on; ``most_refusals`` in a row end it;
* what it may send and cost in a second is bounded (``transports.client_budget``). A message over the rate is
  refused, and a client that is over its bytes or its time on the loop is read more slowly;
* more than ``line_ms`` of speech ahead of the clock is refused;
* a client is given up when none of its messages was accepted within ``open_s``, or for ``idle_s`` after that:
  a line is for a conversation;
* a client that does not read is given up when ``most_unsent_bytes`` wait, or one write takes ``send_s``.

Owns two tasks, the reader and the writer, from ``open`` to ``close``. When the client is gone, ``gone`` is
set, and messages to it are dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from loguru import logger
from pydantic import Field

from parley.core.errors import ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.strict_model import StrictModel
from parley.core.token_bucket import TokenBucket
from parley.core.tuning import tuned
from parley.protocols.client_protocol import (
    BROKEN,
    REFUSED,
    TIMED_OUT,
    UNREAD,
    Action,
    Began,
    Begin,
    ClientProtocol,
    EndAfter,
    EndTurn,
    Happening,
    LeaveSession,
    Message,
    MustListen,
    Pause,
    Pictures,
    ProtocolError,
    QueueUpdate,
    Ready,
    Resume,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    json_text,
)
from parley.runtime.busy_time import Metered
from parley.runtime.loop_clock import LoopClock
from parley.transports.client_budget import ClientBudget, ClientShare
from parley.transports.websocket.codecs import Coded, Decoder
from parley.transports.websocket.paced_sender import SpeechLine

OnAction = Callable[[Action], Awaitable[None]]
Check = Callable[[Action], Action]
# Actions that wait in the line after the speech that they belong to.
IN_LINE = (EndTurn, MustListen, Pause, Resume, Pictures)
# Actions of one client that wait for a pipeline that is being built.
MOST_EARLY = 256
# Burst that a client may send beyond its rate: two recordings of the longest that may wait.
BURST_LINES = 2
# Silence after a turn of a client whose microphone is off: voice activity and recognisers detect its end by
# it.
QUIET_MS = 600


class SocketPeer(Protocol):
    """Other side of a socket."""

    async def receive(self) -> str | None:
        """Return the next message; None when there will be no more.

        Raises:
            ProtocolError: the message cannot be read.
        """
        ...

    async def send(self, text: str) -> bool:
        """Send a text; return whether it was sent."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Close the socket; never raises."""
        ...


class SocketSettings(StrictModel):
    """Deadlines of a client of a socket. What it may send is bounded too (docs/reference/sockets.md)."""

    open_s: float = Field(
        30.0,
        gt=0,
        le=3_600,
        description="time within which a client has to send a message that is accepted, or it is "
        "disconnected; a client that waits for an engine has as long to prepare the conversation, from the "
        "moment it gets one",
    )


class SocketTuning(SocketSettings, ClientShare):
    """Settings, and the values that no deployment sets."""

    most_refusals: int = Field(
        50, ge=1, le=10_000, description="consecutive refused messages after which the client is disconnected"
    )
    audio_s_per_s: float = Field(
        4.0, ge=1, le=1_000, description="speech that a client may send per second, beyond a burst"
    )
    line_ms: int = Field(60_000, ge=1_000, le=600_000, description="speech that may wait to be processed")
    ahead_ms: int = Field(
        200, ge=20, le=2_000, description="lead over the clock up to which speech is processed at once"
    )
    lead_ms: int = Field(
        200, ge=20, le=2_000, description="time by which the bot's speech is sent before it is due"
    )
    most_unsent_bytes: int = Field(4_000_000, ge=10_000, le=100_000_000)
    send_s: float = Field(10.0, gt=0, le=120)
    begin_s: float = Field(
        1.0,
        gt=0,
        le=30,
        description="wait for the first message of a client; after it the session begins with the defaults",
    )
    idle_s: float = Field(
        300.0, gt=0, le=86_400, description="time without a message after which a client is disconnected"
    )


class SocketCall:
    """Session of one client.

    Args:
        peer: the client's socket.
        protocol: of the client.
        settings: bounds.
        rate_hz: rate of the pipeline's input.
        check: raises ProtocolError for an action that this deployment does not support for this client,
            before it has any effect; returns the action to perform.
        on_first_word: called when the client no longer counts as holding a line in silence; may be called
            again.

    Attributes:
        line: the client's speech.
        lead_ms: time by which the bot's audio leaves before it is due.
        requested: all settings that the client has requested, merged.
        gone: set when the other side is gone.
        ended: reason with which this side ended the call, and a sentence for readers; None: it did not.
        began: set when the client has sent all that it requires before the conversation begins.
    """

    def __init__(
        self,
        peer: SocketPeer,
        protocol: ClientProtocol,
        *,
        settings: SocketSettings | None = None,
        rate_hz: int,
        check: Check | None = None,
        on_first_word: Callable[[], None] | None = None,
    ) -> None:
        self.settings = tuned(SocketTuning, settings)
        self.protocol = protocol
        self.line = SpeechLine(rate_hz, ahead_ms=self.settings.ahead_ms, most_ms=self.settings.line_ms)
        self.lead_ms = max(protocol.lead_ms, self.settings.lead_ms)
        self.requested = SessionUpdate()
        self.gone = asyncio.Event()
        self.ended: tuple[str, str] | None = None
        self.began = asyncio.Event()
        # Set when something new is in the line.
        self.spoke = asyncio.Event()
        self.on_action: OnAction | None = None
        self._receives_at_once = False
        self._checks = [] if check is None else [check]
        self._quiet = bytes(rate_hz * QUIET_MS // 1000 * PCM_BYTES_PER_SAMPLE)
        self._early: deque[Action] = deque()
        self._decoder = Decoder(rate_hz)
        self._peer = peer
        self._clock = LoopClock()
        self._began_us = self._clock.now_us()
        self._outbox: deque[str] = deque()
        self._unsent_bytes = 0
        self._unsent = asyncio.Event()
        # True until the message about the session's beginning, where that has to be the first.
        self._is_held = protocol.announces
        self._close: tuple[int, str] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._budget = ClientBudget(self.settings)
        self._audio_ms = TokenBucket(self.settings.audio_s_per_s * 1000, BURST_LINES * self.settings.line_ms)
        self._refusals = 0
        self._is_end_reported = False
        self._expected: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._on_first_word = on_first_word
        self._has_spoken = False
        # In the queue for a line: the client need not send anything.
        self._is_queued = False
        # Time at which the last message of the client was accepted, and at which it last took part: there
        # messages to it count as well.
        self._accepted_us = self._spoke_us = self._began_us
        self._quiet_timer: asyncio.TimerHandle | None = None

    @property
    def now_ms(self) -> int:
        """Time since the client came, in milliseconds."""
        return (self._clock.now_us() - self._began_us) // 1000

    @property
    def quiet_ms(self) -> int:
        """Time since the last accepted message of the client."""
        return (self._clock.now_us() - self._accepted_us) // 1000

    def hear_at_once(self) -> None:
        """Pass on speech that was said before (``Speech.is_whole``) faster than at the pace of speech."""
        self._receives_at_once = True

    def open(self) -> None:
        """Begin to read and write."""
        self._tasks = [
            asyncio.create_task(self._read(), name="socket.reader"),
            asyncio.create_task(self._write(), name="socket.writer"),
        ]
        self._look_for_words()

    def _look_for_words(self) -> None:
        """Give up a client that holds a line and sends nothing."""
        now_us, limit_s = self._clock.now_us(), self.settings.idle_s
        if not self._has_spoken:
            limit_s = self.settings.open_s
            if self.protocol.wants_units:
                # It waits for an engine, and has to prepare the conversation then: see ``placed``.
                self._spoke_us = now_us
        if self._is_queued:
            self._spoke_us = now_us
        left_s = limit_s - (now_us - self._spoke_us) / 1_000_000
        if left_s <= 0:
            message = f"nothing was said for {limit_s:g} s"
            self.over("timeout", message)
            self._hang_up(("timeout", message))
        elif not self.gone.is_set():
            # One timer for the length of a call, instead of one for each message.
            self._quiet_timer = asyncio.get_running_loop().call_later(left_s, self._look_for_words)

    def note_words(self) -> None:
        """Note that the client has sent something: a message that was accepted, or sound by another way."""
        self._spoke_us = self._accepted_us = self._clock.now_us()
        if not self._has_spoken:
            self._has_spoken = True
            self._give_place_back()

    def _give_place_back(self) -> None:
        """Stop counting the client as one that holds a line and sends nothing."""
        if self._on_first_word is not None:
            self._on_first_word()

    async def close(self, reason: str = "stopped") -> None:
        """Send the last messages, close the socket and end both tasks."""
        if self._expected is not None:
            self._expected.cancel()
        if not self.gone.is_set():
            self.over(reason)
        for timer in (self._limit, self._quiet_timer):
            if timer is not None:
                timer.cancel()
        reader, writer = self._tasks
        # Messages that the client still sends are ignored.
        reader.cancel()
        self.on_action = None
        # A check may refer to this session: a call is freed at once, without a garbage collection.
        self._checks.clear()
        self.line.clear()
        self._close = self._close or self.protocol.goodbye(reason)
        self._unsent.set()
        try:
            await asyncio.wait({writer}, timeout=self.settings.send_s)
        finally:
            writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)

    def over(self, reason: str, message: str = "") -> None:
        """Report to the client, once, that the conversation is over."""
        if not self._is_end_reported:
            self._is_end_reported = True
            self.happen(SessionEnded(reason, message))
            self._close = self._close or self.protocol.goodbye(reason)

    def queued(self, place: QueueUpdate) -> None:
        """Report the client's position in the queue for a line; 0 when it has one."""
        self._is_queued = place.position > 0
        if self._is_queued or not self.protocol.wants_units:
            # A client that wants units waits for an engine now, and is notified when it has one: see
            # ``placed``.
            self._report(place)
        self._spoke_us = self._clock.now_us()

    def placed(self) -> None:
        """Report that an engine is ready; the client has to prepare the conversation within ``open_s``."""
        self.happen(QueueUpdate(0))
        if not self.began.is_set() and self._expected is None:
            loop = asyncio.get_running_loop()
            self._expected = loop.call_later(self.settings.open_s, self._late)

    def _late(self) -> None:
        if not self.began.is_set():
            message = f"nothing was prepared within {self.settings.open_s:g} s"
            self.over("timeout", message)
            self._hang_up(("timeout", message))

    async def leave(self) -> None:
        """End the call as if the client had left: it goes on over another connection."""
        self._hang_up()

    def _hang_up(self, why: tuple[str, str] | None = None) -> None:
        """Send the messages that are queued for the client, and accept nothing more.

        Args:
            why: reason of this side for the end, as ``ended``; the first end decides.
        """
        if not self.gone.is_set():
            self.ended = why
        self._is_held = False
        self.gone.set()
        self.spoke.set()
        self.began.set()
        self._unsent.set()

    def happen(self, happening: Happening) -> None:
        """Report an event to the client by its protocol, in order. Never blocks."""
        if isinstance(happening, Ready) and happening.by_arrival:
            # Each unit is taken when it is complete, and the speech made in it leaves with it.
            self.line.set_ahead_ms(2 * happening.unit_ms)
            self.lead_ms = 4 * happening.unit_ms
        if isinstance(happening, QueueUpdate):
            # Its protocol has the client send nothing until an engine is ready.
            self._give_place_back()
        self._report(happening)

    def _report(self, happening: Happening) -> None:
        try:
            messages = self.protocol.messages_for(happening, self.now_ms)
        except Exception as error:
            # The boundary of one client: its call ends, and the code that reports to it goes on.
            logger.opt(exception=error).error(f"a client of {self.protocol.name}: {type(error).__name__}")
            self._close = (1011, "an event could not be reported to the client")
            self._hang_up(BROKEN)
        else:
            if messages and self._has_spoken:
                # A client that receives messages takes part; for one that has never sent any, the first
                # deadline holds.
                self._spoke_us = self._clock.now_us()
            self._post(messages, is_first=self._is_held and isinstance(happening, Began))
            if isinstance(happening, (Began, SessionEnded)):
                self._is_held = False

    async def attend(self, on_action: OnAction) -> None:
        """Perform actions from here on, beginning with those that came before any handler."""
        while self._early:
            action = self._early.popleft()
            try:
                await on_action(action)
            except ProtocolError as refusal:
                self.refuse(refusal)
        self.on_action = on_action

    def _post(self, messages: Sequence[Message], *, is_first: bool = False) -> None:
        if self.gone.is_set():
            return
        texts = [json_text(message) for message in messages]
        self._unsent_bytes += sum(map(len, texts))
        if is_first:
            self._outbox.extendleft(reversed(texts))
        else:
            self._outbox.extend(texts)
        if self._unsent_bytes > self.settings.most_unsent_bytes:
            logger.warning(f"a client of {self.protocol.name} does not read, disconnecting it")
            self._outbox.clear()
            self._close = (1013, "what you were sent was not read")
            self._hang_up(UNREAD)
        self._unsent.set()

    # Messages from the client.

    async def _read(self) -> None:
        try:
            while not self.gone.is_set():
                try:
                    text = await self._peer.receive()
                    if text is None:
                        return
                    await self._take(text)
                    self.note_words()
                    self._refusals = 0
                except ProtocolError as refusal:
                    self.refuse(refusal)
                # The message is not kept during the wait for the next one.
                text = None
                await self._rest()
        except Exception as error:
            # The boundary of one client: its call ends, and no other one does.
            logger.opt(exception=error).error(f"a client of {self.protocol.name}: {type(error).__name__}")
            self._close = (1011, "the message could not be handled")
            self._hang_up(BROKEN)
        finally:
            self._hang_up()

    async def _take(self, text: str) -> None:
        # A character is one byte or a few: the bound applies to the text that is parsed.
        if not self._budget.take(len(text), self._clock.now_us()):
            raise ProtocolError(
                f"over {self.settings.messages_per_s:g} messages per second: send longer ones",
                code="rate_limited",
            )
        handling = Metered(self._handle(text))
        try:
            await handling
        finally:
            self._budget.spend(handling.busy_us, self._clock.now_us())

    async def _handle(self, text: str) -> None:
        for action in self.protocol.read(text, self.now_ms):
            await self._do(action)

    async def _rest(self) -> None:
        """Read nothing from the client for as long as it is over its share."""
        wait_us = self._budget.wait_us(self._clock.now_us())
        if wait_us:
            await asyncio.sleep(wait_us / 1_000_000)

    def add_check(self, check: Check) -> None:
        """Check all further actions by this too, such as of a session that was opened since."""
        self._checks.append(check)

    def refuse(self, refusal: ProtocolError) -> None:
        """Send the reason for refusing a message; hang up after ``most_refusals`` in a row."""
        self._refusals += 1
        self._post(self.protocol.refused(refusal))
        if self._refusals >= self.settings.most_refusals:
            self._close = (1008, f"{self._refusals} messages in a row were refused: {refusal}")
            self._hang_up(REFUSED)

    async def _do(self, action: Action) -> None:
        # Pictures that come with the sound of a unit are for engines with vision; others take the sound
        # alone.
        if not (isinstance(action, Pictures) and self.protocol.wants_units):
            for check in self._checks:
                action = check(action)
        match action:
            case Send(message):
                self._post([message])
            case Begin():
                self.began.set()
            case Speech(data, is_whole):
                self.line.speak(self._opened(data), at_once=is_whole and self._receives_at_once)
                self.spoke.set()
            case EndAfter(limit_ms):
                if self._limit is not None:
                    self._limit.cancel()
                self._limit = asyncio.get_running_loop().call_later(limit_ms / 1000, self._time_out)
            case LeaveSession(code, reason):
                self.over("stopped")
                self._close = (code, reason)
                self._hang_up()
            case Pictures(are_shown=True):
                # Before the turn that the client asks for next.
                await self.act(action)
            case _ if isinstance(action, IN_LINE):
                if isinstance(action, EndTurn) and action.is_quiet:
                    self.line.speak(self._quiet, at_once=self._receives_at_once)
                self.line.want(action)
                self.spoke.set()
            case _:
                if isinstance(action, SessionUpdate):
                    self.requested = _merged(self.requested, action)
                await self.act(action)

    def _opened(self, data: bytes) -> Coded:
        """Return the client's speech, undecoded; refuse it where there is no room for it."""
        try:
            coded = self._decoder.open(data, self.protocol.input_format)
        except ShapeError as error:
            raise _unreadable(error) from error
        self.line.check_room(coded.length_us / 1000)
        if not self._audio_ms.take(coded.length_us / 1000, self._clock.now_us()):
            raise ProtocolError(
                f"over {self.settings.audio_s_per_s:g} s of speech per second: send it in real time",
                code="too_fast",
                param="audio",
            )
        return coded

    def take(self) -> bytes | Action | None:
        """Return what of the line goes on now, PCM or an action; None when nothing is due."""
        while isinstance(taken := self.line.take(self._clock.now_us()), Coded):
            try:
                pcm = taken.decode()
            except ShapeError as error:
                self.refuse(_unreadable(error))
                continue
            # A header has no sound, and a resampler holds its first samples back.
            if pcm:
                return pcm
        return taken

    def _time_out(self) -> None:
        self.over("timeout")
        if not self.gone.is_set():
            self.ended = TIMED_OUT
        # After the last message: nothing is sent to a client that is gone.
        self.gone.set()
        self.spoke.set()

    async def act(self, action: Action) -> None:
        """Perform an action, now or once a handler attends.

        Raises:
            ProtocolError: too much waits.
        """
        if self.on_action is not None:
            await self.on_action(action)
        elif len(self._early) >= MOST_EARLY:
            raise ProtocolError("the conversation has not begun yet: wait for it", code="not_ready")
        elif not isinstance(action, SessionUpdate):
            self._early.append(action)

    # Messages to the client.

    async def _write(self) -> None:
        try:
            while True:
                await self._unsent.wait()
                self._unsent.clear()
                while self._outbox and not self._is_held:
                    text = self._outbox.popleft()
                    self._unsent_bytes -= len(text)
                    async with asyncio.timeout(self.settings.send_s):
                        if not await self._peer.send(text):
                            return
                if self._close is not None:
                    return
                if self.gone.is_set():
                    return
        except TimeoutError:
            self._close = (1013, "what you were sent was not read")
            self._hang_up(UNREAD)
        finally:
            self._hang_up()
            code, reason = self._close or (1000, "")
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.send_s):
                    await self._peer.close(code, reason)


def _unreadable(error: ShapeError) -> ProtocolError:
    return ProtocolError(str(error), code="invalid_payload", param="audio")


def _merged(old: SessionUpdate, new: SessionUpdate) -> SessionUpdate:
    return SessionUpdate(
        instructions=old.instructions if new.instructions is None else new.instructions,
        notes=old.notes if new.notes is None else new.notes,
        tools=old.tools if new.tools is None else new.tools,
        choice=old.choice if new.choice is None else new.choice,
        answers=old.answers if new.answers is None else new.answers,
        patience=old.patience if new.patience is None else new.patience,
        voice=old.voice if new.voice is None else new.voice,
        reference_voice=old.reference_voice if new.reference_voice is None else new.reference_voice,
        allow_recording=old.allow_recording if new.allow_recording is None else new.allow_recording,
        llm_ref_audio=old.llm_ref_audio if new.llm_ref_audio is None else new.llm_ref_audio,
        tts_ref_audio=old.tts_ref_audio if new.tts_ref_audio is None else new.tts_ref_audio,
        settings={**old.settings, **new.settings},
        mcp=old.mcp if new.mcp is None else new.mcp,
    )
