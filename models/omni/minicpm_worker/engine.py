"""The omni engine that asks a MiniCPM-o server: one connection for each conversation, one chunk at a time.

In: units of sound and pictures. Out: results, one for each chunk. The address is a worker's, or a gateway's
with a queue in front of its workers.

What the server does, and what is done about it here:

- settings of a conversation stay for the next one that sends none: all of them are sent, every time
- chunks wait in its socket without a bound: the next one is sent behind the result of the one before
- a result may come late, behind an error: what has come before a chunk is sent is no answer to it
- the context fills and is not emptied: ``context_units`` says when; a new one is a new connection
- invalid JSON, a crash and an admin's cancel end the connection without a word: ``EngineError``

Slow: every wait has a deadline. Dead or wrong: the connection is given up, and every call fails until
``cleanup``. An error that the server says is a unit of silence; the third in a row is the engine's.
``stop`` is seen within ``POLL_S`` by whatever waits.
"""

import secrets
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import numpy as np
from loguru import logger
from pydantic import Field, field_validator
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from core.errors import CapacityError, ConfigError, EngineError, PeerError
from models.omni import Preparation, UnitResult, Vote
from models.omni.minicpm_o.saying import Said, Saying
from models.omni.minicpm_o.settings import (
    INPUT_RATE_HZ,
    OUTPUT_RATE_HZ,
    SamplingSettings,
    checked_voice,
    context_units,
    merged,
    read_voice,
    with_history,
)
from models.omni.minicpm_worker import wire
from models.omni.minicpm_worker.settings import ConversationSettings
from models.omni.phases import Call, Phases
from runtime.blocking_socket import connect_for

ENGINE = "minicpm_worker"
# The server takes nothing else: a second, also at the beginning, where it pads itself.
UNIT_MS = 1_000
POLL_S = 0.05
# A result is 130 KB, or 260 KB for two units; larger is no result.
MOST_MESSAGE_BYTES = 1_048_576
CLOSE_S = 1.0
TRY_AGAIN_LATER = 1013
ERRORS_IN_A_ROW = 3
# What the server sends before a chunk is sent and that is no answer to it; more is a flood.
MOST_STALE = 64


class MiniCpmWorkerSettings(ConversationSettings):
    """One server, or one worker of it."""

    url: str = Field(description="ws:// or wss:// of the duplex socket; {session} becomes the id")
    sessions: int = Field(1, ge=1, le=1_000, description="conversations at a time: the workers behind it")
    queue_timeout_s: float = Field(20, gt=0, le=3_600, description="longest wait in the gateway's queue")

    @field_validator("url")
    @classmethod
    def _is_a_socket(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError("not a ws:// or wss:// address")
        return url


class MiniCpmWorkerHost:
    """The conversations with one server. Thread-safe.

    Args:
        settings: see the model.

    Raises:
        ConfigError: the voice or the certificate cannot be read.
    """

    client_settings = frozenset(SamplingSettings.model_fields)

    def __init__(self, settings: MiniCpmWorkerSettings) -> None:
        self.settings = settings
        self.sessions = settings.sessions
        self.takes_frames = settings.sees
        self.voice = read_voice(settings.voice) if settings.voice is not None else None
        self.tls = _tls(settings)
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._opened = 0

    def open_engine(self, *, sees: bool = True) -> "MiniCpmWorkerEngine":
        """See ``OmniHost``; ``sees``: whether this conversation has pictures, where the settings say so."""
        with self._lock:
            self._check_room()
            self._opened += 1
            return MiniCpmWorkerEngine(self, self._opened, sees=sees)

    def claim(self, number: int) -> None:
        """An engine begins a conversation.

        Raises:
            CapacityError: as many are on as there may be.
        """
        with self._lock:
            self._check_room()
            self._busy.add(number)

    def release(self, number: int) -> None:
        """It is over."""
        with self._lock:
            self._busy.discard(number)

    def close(self) -> None:
        """See ``OmniHost``: the weights are the server's."""

    def _check_room(self) -> None:
        if len(self._busy) >= self.sessions:
            raise CapacityError(f"{ENGINE}: {self.sessions} conversations are on", limit=self.sessions)


class MiniCpmWorkerEngine:
    """One conversation; see ``OmniEngine``."""

    unit_ms = first_unit_ms = UNIT_MS
    input_rate_hz = INPUT_RATE_HZ
    output_rate_hz = OUTPUT_RATE_HZ

    def __init__(self, host: MiniCpmWorkerHost, number: int, *, sees: bool = True) -> None:
        self._host, self._number = host, number
        self._settings = host.settings
        self.takes_frames = self._settings.sees and sees
        self._phases = Phases()
        self._exit = ExitStack()
        self._connection: ClientConnection | None = None
        self._forget(self._settings.sampling)

    def _forget(self, sampling: SamplingSettings) -> None:
        self._sampling = sampling
        self._saying = Saying(UNIT_MS, engine=ENGINE)
        self._unit: tuple[np.ndarray, tuple[np.ndarray, ...]] | None = None
        self._errors = 0
        self._is_begun = False
        self.context_units: int | None = context_units(
            self._settings.context_tokens,
            max_slice_nums=sampling.max_slice_nums,
            frames_per_unit=self._settings.frames_per_unit if self.takes_frames else 0,
        )

    def reach(self) -> None:
        """Connect already: a worker is taken by whoever connects first, and not by who prepares.

        Raises:
            EngineError: it is not reached, or refuses.
        """
        if self._connection is None:
            self._connection = self._connect()

    def prepare(self, preparation: Preparation) -> None:
        """See ``OmniEngine``; the settings are those of ``SamplingSettings``.

        Raises:
            CapacityError: the server, or its queue, is full.
        """
        sampling = merged(self._settings.sampling, preparation.settings, engine=ENGINE)
        llm = preparation.llm_ref_audio if preparation.llm_ref_audio is not None else self._host.voice
        tts = preparation.tts_ref_audio if preparation.tts_ref_audio is not None else llm
        voices = [checked_voice(voice) if voice is not None else None for voice in (llm, tts)]
        before = self._phases.phase
        self._phases.enter(Call.PREPARE)
        try:
            self._host.claim(self._number)
            self._forget(sampling)
            first = wire.prepare(
                with_history(preparation.system_prompt, preparation.history, self._settings.history_chars),
                sampling.model_dump(exclude={"max_slice_nums"}),
                llm_ref_audio=voices[0],
                tts_ref_audio=voices[1],
                max_slice_nums=sampling.max_slice_nums,
            )
            self._begin(first)
            self._is_begun = True
        except Exception:
            self._break_off()
            self._host.release(self._number)
            self._phases.take_back(Call.PREPARE, before)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """See ``OmniEngine``. The server hears and answers in one step: it is sent with ``generate``."""
        samples = UNIT_MS * INPUT_RATE_HZ // 1000
        unit = self._phases.enter_prefill(
            audio, frames, samples, engine=ENGINE, takes_frames=self.takes_frames
        )
        if unit is not None:
            heard, seen = unit
            # Frames alone are refused by the server, and would take a second from its clock of sound.
            self._unit = (heard if len(heard) else np.zeros(samples, np.float32)), seen

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """See ``OmniEngine``."""
        if not self._phases.enter(Call.GENERATE) or self._unit is None:
            return self._silence()
        (audio, frames), self._unit = self._unit, None
        try:
            result = self._asked(audio, frames, force_listen)
            if result is None:
                return self._silence()
            return self._saying.result(self._said(result), forced=force_listen)
        except EngineError:
            self._break_off()
            raise

    def finalize(self) -> None:
        """See ``OmniEngine``: the server does it, behind its result."""
        self._phases.enter(Call.FINALIZE)

    def stop(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.STOP)

    def cleanup(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.CLEANUP)
        if self._connection is not None:
            with suppress(WebSocketException, OSError):
                self._connection.send(wire.STOP)
        self._give_up()
        self._forget(self._settings.sampling)
        self._host.release(self._number)

    # The connection.

    def _connect(self) -> ClientConnection:
        settings = self._settings
        # The gateway tells the kinds by the beginning of the id; whoever guesses the rest has the recording.
        url = settings.url.replace(
            "{session}", f"{'omni' if self.takes_frames else 'adx'}_{secrets.token_hex(16)}"
        )
        try:
            return self._exit.enter_context(
                connect(
                    url,
                    sock=connect_for(url, open_s=settings.connect_timeout_s, write_s=settings.unit_timeout_s),
                    ssl=self._host.tls,
                    open_timeout=settings.connect_timeout_s,
                    close_timeout=CLOSE_S,
                    max_size=MOST_MESSAGE_BYTES,
                    compression=None,
                )
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise self._error(f"the server refuses with HTTP {status}: not ready, or switched off") from error
        except (OSError, WebSocketException) as error:
            raise self._error(f"no connection: {type(error).__name__}") from error

    def _begin(self, first: str) -> None:
        """Connect, wait in the queue, begin."""
        settings = self._settings
        self.reach()
        self._send(first)
        deadline_s = time.monotonic() + settings.prepare_timeout_s
        queue_deadline_s = time.monotonic() + settings.queue_timeout_s
        while not isinstance(message := self._next(deadline_s, "begin"), wire.Prepared | None):
            if isinstance(message, wire.Waiting):
                if message.estimated_wait_s > settings.queue_timeout_s:
                    raise CapacityError(
                        f"{ENGINE}: {message.position} in the queue, for {message.estimated_wait_s:.0f} s",
                        limit=self._host.sessions,
                    )
                deadline_s = queue_deadline_s
            elif isinstance(message, wire.Assigned):
                deadline_s = time.monotonic() + settings.prepare_timeout_s
            elif isinstance(message, wire.Refused):
                self._refused(message)

    def _refused(self, refusal: wire.Refused) -> None:
        """An error before the beginning: the server closes behind it when it means that it is full."""
        try:
            while self._next(time.monotonic() + CLOSE_S, "begin") is not None:
                pass
        except EngineError:
            # It stays open, or ends otherwise: the error was about the beginning itself, and is raised below.
            pass
        raise self._error(f"the server refuses: {refusal.message}")

    def _asked(self, audio: np.ndarray, frames: tuple[np.ndarray, ...], forced: bool) -> wire.Result | None:
        """The result of a chunk; None: stopped."""
        self._drop_stale()
        chunk = wire.audio_chunk(
            audio, frames, force_listen=forced, max_slice_nums=self._sampling.max_slice_nums
        )
        self._send(chunk)
        deadline_s = time.monotonic() + self._settings.unit_timeout_s
        while (message := self._next(deadline_s, "answer")) is not None:
            if isinstance(message, wire.Result):
                self._errors = 0
                return message
            if isinstance(message, wire.Refused):
                self._errors += 1
                logger.warning(f"{ENGINE}: a chunk was refused: {message.message}")
                if self._errors >= ERRORS_IN_A_ROW:
                    raise self._error(f"{self._errors} chunks were refused: {message.message}")
                return _NOTHING
        return None

    def _drop_stale(self) -> None:
        """What came since the last result answers nothing that will be asked."""
        connection = self._connected()
        for _ in range(MOST_STALE):
            try:
                message = self._parsed(connection.recv(timeout=0))
            except TimeoutError:
                return
            except ConnectionClosed as error:
                raise self._ended(error) from error
            if isinstance(message, wire.Over):
                raise self._error(f"the server ended the conversation: {message.reason}")
        raise self._error("a flood of messages that nobody asked for")

    def _next(self, deadline_s: float, what: str) -> wire.Message | None:
        """The next message; None: stopped.

        Raises:
            EngineError: none by then, no message, or the connection is over.
            CapacityError: it was closed because the server is full.
        """
        connection = self._connected()
        while not self._phases.is_stopped:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._error(f"the server does not {what} in time")
            try:
                message = self._parsed(connection.recv(timeout=min(left_s, POLL_S)))
            except TimeoutError:
                continue
            except ConnectionClosed as error:
                raise self._ended(error) from error
            if isinstance(message, wire.Over):
                raise self._error(f"the server ended the conversation: {message.reason}")
            return message
        return None

    def _parsed(self, data: str | bytes) -> wire.Message:
        try:
            return wire.parse(data)
        except PeerError as error:
            raise self._error(f"the server sent {error}") from error

    def _send(self, message: str) -> None:
        try:
            self._connected().send(message)
        except ConnectionClosed as error:
            raise self._ended(error) from error
        except (OSError, WebSocketException) as error:
            raise self._error(f"the server does not take a message: {type(error).__name__}") from error

    def _connected(self) -> ClientConnection:
        if self._connection is None:
            raise self._error("the connection is gone")
        return self._connection

    def _break_off(self) -> None:
        """It failed: a peer that hangs is not waited for, as a closing handshake would for ``CLOSE_S``."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._give_up()

    def _give_up(self) -> None:
        self._connection = None
        # Whatever a broken connection says about its own end changes nothing.
        with suppress(OSError, WebSocketException):
            self._exit.close()

    def _ended(self, closed: ConnectionClosed) -> EngineError | CapacityError:
        code = closed.rcvd.code if closed.rcvd is not None else None
        if code == TRY_AGAIN_LATER and not self._is_begun:
            return CapacityError(f"{ENGINE}: the server is full", limit=self._host.sessions)
        return self._error(
            "the connection ended" + (f" with {code}" if code is not None else " without a word")
        )

    @staticmethod
    def _error(message: str) -> EngineError:
        return EngineError(f"{ENGINE}: {message}", engine=ENGINE)

    # Results.

    def _said(self, result: wire.Result) -> Said:
        prefill_ms = max(0.0, result.wall_clock_ms - result.cost_all_ms) if result.cost_all_ms else 0.0
        return Said(
            is_listen=result.is_listen,
            text=result.text,
            audio=result.audio,
            end_of_turn=result.end_of_turn,
            n_tokens=result.n_tokens,
            n_tts_tokens=result.n_tts_tokens,
            # The server tells no cost of hearing: its whole time without that of saying.
            cost_prefill_ms=prefill_ms,
            cost_llm_ms=result.cost_llm_ms,
            cost_tts_ms=result.cost_tts_ms,
            kv_tokens=result.kv_tokens,
        )

    def _silence(self) -> UnitResult:
        return UnitResult(Vote.LISTEN, end_of_turn=self._saying.is_open)


_NOTHING = wire.Result(
    is_listen=True,
    text="",
    audio=np.zeros(0, np.float32),
    end_of_turn=False,
    n_tokens=0,
    n_tts_tokens=0,
    cost_llm_ms=0.0,
    cost_tts_ms=0.0,
    cost_all_ms=0.0,
    wall_clock_ms=0.0,
    kv_tokens=0,
)


def _tls(settings: MiniCpmWorkerSettings) -> ssl.SSLContext | None:
    if urlsplit(settings.url).scheme != "wss":
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise ConfigError(f"{ENGINE}: no certificate can be read: {error}") from error
