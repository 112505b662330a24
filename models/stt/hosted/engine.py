"""Client of a recogniser that runs in a worker.

Input: audio of one caller at a time in each stream. Output: partials and final transcripts, as the worker's
engine makes them. The worker has the engine, of whatever kind, with its weights and its Python environment. A
stream is a conversation with the worker, with a lease of its own, from ``open_stream`` to ``close``. An
adaptation of the engine to a caller's channel stays with the caller.

Every call waits for the worker's answer, at most ``request_timeout_s``; streams that the loop uses have a
thread each (``runtime.stream_threads``). Full: ``EngineBusyError``. Dead, hung or in violation of the
protocol: ``EngineError``, and the stream is over. The next stream goes to another worker, or to the same one
when it is available again.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from parley.core.errors import AgentError, EngineError, PeerError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.usage import Stage
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.speech import to_transcript
from parley.models.hosted.streams import StreamLeasing, StreamLimits, open_link
from parley.models.hosted.worker import OneWorker, WorkerAddress, loaded_engine
from parley.models.stt import Transcript
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.trace_context import call_trace

ENGINE = "worker"


class WorkerSttSettings(WorkerAddress, StreamLimits):
    """Worker with a recogniser, and deadlines for it."""


class HostedStt:
    """Recogniser in workers. Thread-safe; one stream is not.

    Args:
        leasing: chooses the worker.
        limits: deadlines.
        rate_hz: rate of the workers' engines.
    """

    def __init__(self, leasing: StreamLeasing, limits: StreamLimits, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._leasing = leasing
        self._limits = limits

    def open_stream(self) -> "HostedStream":
        """Return a stream for a new caller. Blocks until a worker has accepted it.

        Raises:
            EngineBusyError: every worker is full.
            EngineError: no worker is reached.
        """
        return HostedStream(open_link(self._leasing, self._limits, ENGINE), self._limits)


class WorkerStt(HostedStt):
    """Recogniser of one worker.

    Args:
        settings: address and deadlines.

    Raises:
        ConfigError: the secret is not set, or the worker has no recogniser.
        EngineError: the worker is not reached, or its model does not load, or not in time.
    """

    def __init__(self, settings: WorkerSttSettings) -> None:
        loaded = loaded_engine(
            settings, ENGINE, "stt", open_s=settings.open_timeout_s, write_s=settings.request_timeout_s
        )
        super().__init__(OneWorker(settings), settings, int(loaded["rate_hz"]))


class HostedStream:
    """Stream of one caller; implements ``SpeechStream``."""

    def __init__(self, link: ConversationLink, limits: StreamLimits) -> None:
        self._link = link
        self._within_s = limits.request_timeout_s
        self._is_open = False
        # A stream belongs to one call, whose thread need not work for it when an utterance ends.
        self._trace = call_trace()

    def start(self) -> None:
        """Begin an utterance, as ``SpeechStream.start``.

        Raises:
            EngineBusyError: the worker's engine has no room for an utterance.
            EngineError: the worker fails.
        """
        self._is_open = False
        self._ask(MessageType.START)
        self._is_open = True

    def feed(self, pcm: bytes) -> Transcript | None:
        """Send audio, as ``SpeechStream.feed``.

        Raises:
            EngineError: outside an utterance, or the worker fails.
            ShapeError: an odd number of bytes.
        """
        self._check_open()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        if not pcm:
            return None
        facts = self._ask(MessageType.AUDIO, pcm).facts
        return self._read(facts["partial"]) if facts.get("partial") is not None else None

    def finish(self) -> Transcript:
        """Return the final transcript, as ``SpeechStream.finish``.

        Raises:
            EngineError: outside an utterance, or the worker fails.
        """
        self._check_open()
        self._is_open = False
        traced = {} if self._trace is None else self._trace.facts(Stage.STT)
        return self._read(self._ask(MessageType.FINISH, facts=traced).facts.get("transcript"))

    def discard(self) -> None:
        """End the utterance without a transcript, as ``SpeechStream.discard``."""
        if self._is_open:
            self._is_open = False
            self._ask(MessageType.DISCARD)

    def close(self) -> None:
        """Release the stream; return when the worker has released it, or does not answer in time."""
        self._is_open = False
        with suppress(AgentError):
            self._ask(MessageType.RELEASE)
        self._link.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)

    def _ask(
        self, type_: MessageType, payload: bytes = b"", facts: Mapping[str, str] | None = None
    ) -> EngineMessage:
        answer = self._link.ask(type_, facts, payload, within_s=self._within_s)
        # None would mean a stop, which this stream never requests.
        assert answer is not None
        return answer

    def _read(self, facts: Any) -> Transcript:
        try:
            return to_transcript(facts)
        except PeerError as error:
            raise self._link.given_up(str(error)) from error
