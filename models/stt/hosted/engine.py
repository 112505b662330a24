"""The recogniser that runs in a worker: this side of the worker link.

In: audio of one caller at a time in each stream. Out: partials and final transcripts, as the worker's engine
makes them. The worker has the engine, of whatever kind, with its weights and its Python environment. A stream
is a conversation with the worker, with a lease of its own, from ``open_stream`` to ``close``: what the engine
learns of a caller's channel stays with the caller.

Every call waits for the worker's answer, at most ``request_timeout_s``: streams that the loop uses have a
thread each (``runtime.stream_threads``). Full: ``EngineBusyError``. Dead, hung or wrong: ``EngineError``, and
the stream is over; another one goes to another worker, or to the same when it is there again.
"""

from contextlib import suppress
from typing import Any

from core.errors import AgentError, EngineError, PeerError, ShapeError
from core.media import PCM_BYTES_PER_SAMPLE
from models.hosted.link import ConversationLink
from models.hosted.speech import to_transcript
from models.hosted.streams import StreamLeasing, StreamLimits, open_link
from models.hosted.worker import OneWorker, WorkerAddress, loaded_engine
from models.stt import Transcript
from runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "worker"


class WorkerSttSettings(WorkerAddress, StreamLimits):
    """One worker with a recogniser."""


class HostedStt:
    """A recogniser in workers. Thread-safe; one stream is not.

    Args:
        leasing: says which worker.
        limits: deadlines.
        rate_hz: of the workers' engines.
    """

    def __init__(self, leasing: StreamLeasing, limits: StreamLimits, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._leasing = leasing
        self._limits = limits

    def open_stream(self) -> "HostedStream":
        """A new caller. Blocks until a worker has taken the stream.

        Raises:
            EngineBusyError: every worker is full.
            EngineError: none is reached.
        """
        return HostedStream(open_link(self._leasing, self._limits, ENGINE), self._limits)


class WorkerStt(HostedStt):
    """The recogniser of one worker.

    Args:
        settings: see the model.

    Raises:
        ConfigError: there is no secret, or the worker has no recogniser.
        EngineError: it is not reached, or its model does not load, or not in time.
    """

    def __init__(self, settings: WorkerSttSettings) -> None:
        loaded = loaded_engine(
            settings, ENGINE, "stt", open_s=settings.open_timeout_s, write_s=settings.request_timeout_s
        )
        super().__init__(OneWorker(settings), settings, int(loaded["rate_hz"]))


class HostedStream:
    """One caller; see ``SpeechStream``."""

    def __init__(self, link: ConversationLink, limits: StreamLimits) -> None:
        self._link = link
        self._within_s = limits.request_timeout_s
        self._is_open = False

    def start(self) -> None:
        """See ``SpeechStream``.

        Raises:
            EngineBusyError: the worker's engine has no room for an utterance.
            EngineError: the worker fails.
        """
        self._is_open = False
        self._ask(MessageType.START)
        self._is_open = True

    def feed(self, pcm: bytes) -> Transcript | None:
        """See ``SpeechStream``.

        Raises:
            EngineError: outside an utterance, or the worker fails.
            ShapeError: an odd number of bytes.
        """
        self._check_open()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not whole 16-bit samples")
        if not pcm:
            return None
        facts = self._ask(MessageType.AUDIO, pcm).facts
        return self._read(facts["partial"]) if facts.get("partial") is not None else None

    def finish(self) -> Transcript:
        """See ``SpeechStream``.

        Raises:
            EngineError: outside an utterance, or the worker fails.
        """
        self._check_open()
        self._is_open = False
        return self._read(self._ask(MessageType.FINISH).facts.get("transcript"))

    def discard(self) -> None:
        """See ``SpeechStream``."""
        if self._is_open:
            self._is_open = False
            self._ask(MessageType.DISCARD)

    def close(self) -> None:
        """See ``SpeechStream``: returns when the worker has what the stream held, or does not answer."""
        self._is_open = False
        with suppress(AgentError):
            self._ask(MessageType.RELEASE)
        self._link.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)

    def _ask(self, type_: MessageType, payload: bytes = b"") -> EngineMessage:
        answer = self._link.ask(type_, payload=payload, within_s=self._within_s)
        # Nothing of it is stopped.
        assert answer is not None
        return answer

    def _read(self, facts: Any) -> Transcript:
        try:
            return to_transcript(facts)
        except PeerError as error:
            raise self._link.given_up(str(error)) from error
