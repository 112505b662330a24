"""A specialist in a child process: the messages of both sides, and the child's side.

The parent's side is ``processors.fusion.voice_specialists`` through ``runtime.engine_process``. One question
carries a stretch of voice, its answer the findings.
"""

from parley.core.errors import EngineError, PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.core.strict_model import StrictModel
from parley.models.specialists import (
    SPECIALISTS,
    Finding,
    VoiceSpecialist,
    VoiceSpecialistStream,
    VoiceStretch,
)
from parley.protocols.facts import from_rows, to_rows
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage, EngineSpec, MessageType

ENGINE = "specialist"
# Longest stretch of a question: more than any caller of this module sends.
MOST_STRETCH_S = 10
# One stretch is about one person or one manner; a few at most.
MOST_FINDINGS = 16


class SpecialistSettings(StrictModel):
    """Specialist that the child process loads."""

    specialist: EngineSpec


def load_specialist(settings: SpecialistSettings) -> "HostedSpecialist":
    """Load the specialist of the child process.

    Raises:
        AgentError: it does not load.
    """
    spec = settings.specialist
    return HostedSpecialist(SPECIALISTS.create(spec.factory, spec.read_settings()))


class HostedSpecialist:
    """Specialist in the child; implements ``runtime.engine_host.RequestEngine``."""

    def __init__(self, specialist: VoiceSpecialist) -> None:
        self._specialist = specialist

    @property
    def rate_hz(self) -> int:
        return self._specialist.rate_hz

    def open_stream(self) -> "HostedSpecialistStream":
        """Return a stream for a new caller."""
        return HostedSpecialistStream(self._specialist.open_stream(), self.rate_hz)


class HostedSpecialistStream:
    """Stream of one caller in the child."""

    def __init__(self, stream: VoiceSpecialistStream, rate_hz: int) -> None:
        self._stream = stream
        self._most_bytes = MOST_STRETCH_S * rate_hz * PCM_BYTES_PER_SAMPLE

    def ask(self, question: EngineMessage) -> Answer:
        """Answer a question of ``ask_judgement``; ``read_findings`` decodes the answer.

        Raises:
            AgentError: the specialist failed, or the question is not valid.
        """
        pcm, facts = question.payload, question.facts
        start_us, end_us = facts.get("start_us"), facts.get("end_us")
        if not isinstance(start_us, int) or not isinstance(end_us, int):
            raise EngineError("the stretch has no times", engine=ENGINE, retryable=False)
        if not pcm or len(pcm) % PCM_BYTES_PER_SAMPLE or len(pcm) > self._most_bytes:
            raise EngineError(f"{len(pcm)} bytes are no stretch of voice", engine=ENGINE, retryable=False)
        found = self._stream.judge(VoiceStretch(pcm16_to_float(pcm), start_us, end_us))
        return {"findings": to_rows(found)}, b""

    def close(self) -> None:
        """Forget the caller."""
        self._stream.close()


def ask_judgement(pcm: bytes, start_us: int, end_us: int) -> EngineMessage:
    """Return the question about a stretch: 16-bit mono PCM at the specialist's rate."""
    return EngineMessage(MessageType.MEASURE, facts={"start_us": start_us, "end_us": end_us}, payload=pcm)


def read_findings(answer: EngineMessage) -> tuple[Finding, ...]:
    """Return the findings of an answer.

    Raises:
        EngineError: they are not valid.
    """
    try:
        found = from_rows(Finding, answer.facts.get("findings"))
    except PeerError as error:
        raise EngineError(f"the findings are not valid: {error}", engine=ENGINE) from error
    if len(found) > MOST_FINDINGS:
        raise EngineError(f"{len(found)} findings about one stretch", engine=ENGINE)
    for each in found:
        if (each.prosody is None) == (each.speaker is None) or not 0 <= each.confidence <= 1:
            raise EngineError("a finding has no payload, or a confidence outside of 0 to 1", engine=ENGINE)
    return found
