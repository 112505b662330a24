"""Omni engine on a MiniCPM-o server: one connection for each conversation, one chunk at a time.

Input: units of audio and pictures. Output: results, one for each chunk. The address is a worker's, or that of
a gateway with a queue.

Behaviour of the server, and how this client handles it:

- Settings of a conversation stay for the next one that sends none. All of them are sent, every time.
- Chunks wait in its socket without a bound. The next one is sent after the result of the previous one.
- A result may come late, after an error. Messages that arrive before a chunk is sent are dropped.
- The context fills and is not emptied. ``context_units`` reports when; a new one needs a new connection.
- Invalid JSON, a crash and an admin's cancel end the connection without a reason: ``EngineError``.

Slow: every wait has a deadline. Dead or in violation of the protocol: the connection is abandoned, and every
call fails until ``cleanup``. An error that the server reports becomes a unit of silence; the third in a row
is an error of the engine. ``stop`` is noticed by any wait within ``POLL_S``.
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

from parley.core.call_choices import CLONING
from parley.core.errors import CapacityError, ConfigError, EngineError, PeerError
from parley.core.units import Vote
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.minicpm_o.settings import (
    INPUT_RATE_HZ,
    OUTPUT_RATE_HZ,
    SamplingSettings,
    checked_voice,
    context_units,
    merged,
    read_voice,
    with_history,
)
from parley.models.omni.minicpm_o.word_aligner import TurnAssembler, UnitOutput
from parley.models.omni.minicpm_worker import wire
from parley.models.omni.minicpm_worker.settings import RemoteConversationSettings
from parley.models.omni.phases import EngineCall, Phases
from parley.runtime.blocking_socket import connect_for, tls_for

ENGINE = "minicpm_worker"
# The server takes only units of a second, also at the beginning, where it pads the unit itself.
UNIT_MS = 1_000
POLL_S = 0.05
# A result is 130 KB, or 260 KB for two units; a larger message is invalid.
MOST_MESSAGE_BYTES = 1_048_576
CLOSE_S = 1.0
TRY_AGAIN_LATER = 1013
ERRORS_IN_A_ROW = 3
# Limit for messages that arrive before a chunk is sent and do not answer it; more is a flood.
MOST_STALE = 64


class MiniCpmWorkerSettings(RemoteConversationSettings):
    """Server of MiniCPM-o, or a single worker of it."""

    url: str = Field(
        description="ws:// or wss:// address of the duplex socket; {session} is replaced by the session's id"
    )
    sessions: int = Field(
        1, ge=1, le=1_000, description="concurrent conversations: the number of workers that the gateway has"
    )
    queue_timeout_s: float = Field(20, gt=0, le=3_600, description="longest wait in the gateway's queue")

    @field_validator("url")
    @classmethod
    def _is_a_socket(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError("expected a ws:// or wss:// address")
        return url


class MiniCpmWorkerHost:
    """Host of the conversations with one server. Thread-safe.

    Args:
        settings: address, sampling and deadlines.

    Raises:
        ConfigError: the voice or the certificate cannot be read.
    """

    client_settings = frozenset(SamplingSettings.model_fields)
    choices = CLONING

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
        """Return an engine, as ``OmniHost.open_engine``; ``sees`` allows pictures, if the settings do."""
        with self._lock:
            self._check_room()
            self._opened += 1
            return MiniCpmWorkerEngine(self, self._opened, sees=sees)

    def claim(self, number: int) -> None:
        """Reserve a place for the conversation of an engine.

        Raises:
            CapacityError: the limit of conversations is reached.
        """
        with self._lock:
            self._check_room()
            self._busy.add(number)

    def release(self, number: int) -> None:
        """Release the place of a conversation."""
        with self._lock:
            self._busy.discard(number)

    def close(self) -> None:
        """Do nothing: the weights are the server's."""

    def _check_room(self) -> None:
        if len(self._busy) >= self.sessions:
            raise CapacityError(
                f"{ENGINE}: all {self.sessions} conversations are in use", limit=self.sessions
            )


class MiniCpmWorkerEngine:
    """Engine of one conversation with the server; implements ``OmniEngine``."""

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
        self._saying = TurnAssembler(UNIT_MS, engine=ENGINE)
        self._unit: tuple[np.ndarray, tuple[np.ndarray, ...]] | None = None
        self._errors = 0
        self._is_begun = False
        self.context_units: int | None = context_units(
            self._settings.context_tokens,
            max_slice_nums=sampling.max_slice_nums,
            frames_per_unit=self._settings.frames_per_unit if self.takes_frames else 0,
        )

    def reach(self) -> None:
        """Connect before ``prepare``: the server assigns a worker at the connection.

        Raises:
            EngineError: the server is not reached, or refuses.
        """
        if self._connection is None:
            self._connection = self._connect()

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation, as ``OmniEngine.prepare``; the settings are those of ``SamplingSettings``.

        Raises:
            CapacityError: the server, or its queue, is full.
        """
        sampling = merged(self._settings.sampling, preparation.settings, engine=ENGINE)
        llm = preparation.llm_ref_audio if preparation.llm_ref_audio is not None else self._host.voice
        tts = preparation.tts_ref_audio if preparation.tts_ref_audio is not None else llm
        voices = [checked_voice(voice) if voice is not None else None for voice in (llm, tts)]
        before = self._phases.phase
        self._phases.enter(EngineCall.PREPARE)
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
            self._phases.take_back(EngineCall.PREPARE, before)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Keep a unit for ``generate``, because the server reads and answers in one step."""
        samples = UNIT_MS * INPUT_RATE_HZ // 1000
        unit = self._phases.enter_prefill(
            audio, frames, samples, engine=ENGINE, takes_frames=self.takes_frames
        )
        if unit is not None:
            heard, seen = unit
            # The server refuses frames alone, which would also miss a second in its clock of audio.
            self._unit = (heard if len(heard) else np.zeros(samples, np.float32)), seen

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Send the unit and return its result, as ``OmniEngine.generate``."""
        if not self._phases.enter(EngineCall.GENERATE) or self._unit is None:
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
        """End the unit, as ``OmniEngine.finalize``; the server does so itself after its result."""
        self._phases.enter(EngineCall.FINALIZE)

    def stop(self) -> None:
        """Stop the conversation, as ``OmniEngine.stop``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """End the conversation and the connection, as ``OmniEngine.cleanup``."""
        self._phases.enter(EngineCall.CLEANUP)
        if self._connection is not None:
            with suppress(WebSocketException, OSError):
                self._connection.send(wire.STOP)
        self._give_up()
        self._forget(self._settings.sampling)
        self._host.release(self._number)

    # Connection.

    def _connect(self) -> ClientConnection:
        settings = self._settings
        # The gateway distinguishes the modes by the prefix of the id. The rest is unguessable, because it
        # gives access to the recording.
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
            raise self._error(
                f"the server refuses with HTTP {status}: it is not ready, or the endpoint is disabled"
            ) from error
        except (OSError, WebSocketException) as error:
            raise self._error(f"cannot connect: {type(error).__name__}") from error

    def _begin(self, first: str) -> None:
        """Connect, wait in the queue, and begin the conversation."""
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
            elif isinstance(message, wire.ServerError):
                self._refused(message)

    def _refused(self, refusal: wire.ServerError) -> None:
        """Raise the error for a refusal at the beginning; a full server closes the connection after it."""
        try:
            while self._next(time.monotonic() + CLOSE_S, "begin") is not None:
                pass
        except EngineError:
            # The connection stays open or ends otherwise: the refusal was about the request itself.
            pass
        raise self._error(f"the server refuses: {refusal.message}")

    def _asked(self, audio: np.ndarray, frames: tuple[np.ndarray, ...], forced: bool) -> wire.Result | None:
        """Return the result of a chunk; None when stopped."""
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
            if isinstance(message, wire.ServerError):
                self._errors += 1
                logger.warning(f"{ENGINE}: a chunk was refused: {message.message}")
                if self._errors >= ERRORS_IN_A_ROW:
                    raise self._error(f"{self._errors} chunks were refused: {message.message}")
                return _NOTHING
        return None

    def _drop_stale(self) -> None:
        """Drop messages since the last result, which answer no later chunk."""
        connection = self._connected()
        for _ in range(MOST_STALE):
            try:
                message = self._parsed(connection.recv(timeout=0))
            except TimeoutError:
                return
            except ConnectionClosed as error:
                raise self._ended(error) from error
            if isinstance(message, wire.ServerEnded):
                raise self._error(f"the server ended the conversation: {message.reason}")
        raise self._error("the server sent too many unrequested messages")

    def _next(self, deadline_s: float, what: str) -> wire.Message | None:
        """Return the next message; None when stopped.

        Raises:
            EngineError: no message in time, an invalid one, or the connection is over.
            CapacityError: the connection was closed because the server is full.
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
            if isinstance(message, wire.ServerEnded):
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
            raise self._error(f"cannot send a message to the server: {type(error).__name__}") from error

    def _connected(self) -> ClientConnection:
        if self._connection is None:
            raise self._error("the connection is lost")
        return self._connection

    def _break_off(self) -> None:
        """Abort a failed connection without the closing handshake, which would wait ``CLOSE_S`` for a hung
        peer.
        """
        if self._connection is not None:
            with suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._give_up()

    def _give_up(self) -> None:
        self._connection = None
        # Errors of a broken connection while it closes are irrelevant.
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

    def _said(self, result: wire.Result) -> UnitOutput:
        prefill_ms = max(0.0, result.wall_clock_ms - result.cost_all_ms) if result.cost_all_ms else 0.0
        return UnitOutput(
            is_listen=result.is_listen,
            text=result.text,
            audio=result.audio,
            end_of_turn=result.end_of_turn,
            n_tokens=result.n_tokens,
            n_tts_tokens=result.n_tts_tokens,
            # The server does not report the cost of reading: its total time less that of speaking.
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
    try:
        return tls_for(settings.url, settings.ca_file)
    except OSError as error:
        raise ConfigError(f"{ENGINE}: cannot read the certificate: {error}") from error
