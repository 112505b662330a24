"""Reports of a client about the latency that its user hears.

The page of a call measures each answer in its audio thread (``web/shared/latency.js``) and sends an RTVI
``client-message`` of type ``latency``; the page of a full-duplex model sends a message of its socket
(``LatencyMeasured``). The report belongs to the newest turn whose answer has left. It is
published with what the server measured of the same turn (``LatencyHeard``), for the recording of the call and
for observers. Nothing of the call depends on it: a report that is invalid, late, repeated or too frequent is
dropped.
"""

from loguru import logger
from pipecat.pipeline.worker import PipelineWorker
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.core.call_events import LatencyHeard
from parley.core.token_bucket import TokenBucket
from parley.pipelines.call import LiveCall
from parley.pipelines.client_messages import on_client_message
from parley.runtime.loop_clock import LoopClock

TYPE = "latency"
# Answers of a quick exchange; a client that reports more is broken or hostile.
REPORTS_PER_S, BURST = 1, 5
_MS = Field(ge=0, le=60_000)


class LatencyReport(BaseModel):
    """Latency of one answer as a client has measured it, in milliseconds."""

    model_config = ConfigDict(extra="forbid")

    heard_ms: int = _MS
    round_trip_ms: int = _MS
    jitter_buffer_ms: int = _MS
    output_ms: int = _MS


class LatencyReports:
    """Receiver of the reports of one call.

    Args:
        live: its live parts.
    """

    def __init__(self, live: LiveCall) -> None:
        self._turns, self._events = live.turns, live.events
        self._clock = LoopClock()
        self._rate = TokenBucket(REPORTS_PER_S, BURST)
        self._last_turn = 0

    def listen(self, worker: PipelineWorker) -> None:
        """Receive the messages of the client of a pipeline."""
        on_client_message(worker, TYPE, self.take)

    def take(self, data: object) -> None:
        """Publish a report with the turn that it is about, or drop it."""
        if not self._rate.take(1, self._clock.now_us()):
            return
        try:
            report = LatencyReport.model_validate(data)
        except ValidationError as error:
            logger.debug(f"a report about latency was dropped: {error.error_count()} faults")
            return
        record = self._turns.answered
        if record is None or record.turn <= self._last_turn:
            return
        self._last_turn = record.turn
        server_ms = max(0, record.marks_us["playout"] - record.marks_us["speech_end"]) // 1000
        self._events.publish(
            LatencyHeard(
                self._events.now_ms(),
                turn=record.turn,
                server_ms=server_ms,
                stages_ms=tuple(record.spans_ms().items()),
                **report.model_dump(),
            )
        )
