"""Publish what services report about their use as events.

Pipecat's services report it in ``MetricsFrame``, which passes down the pipeline. The stage before the output
calls ``publish`` with each: a separate processor would cost every frame another hop.
"""

from pipecat.frames.frames import MetricsFrame
from pipecat.metrics.metrics import (
    LLMTokenUsage,
    LLMUsageMetricsData,
    MetricsData,
    STTUsageMetricsData,
    TTSUsageMetricsData,
)

from parley.core.call_events import EngineUsed
from parley.core.usage import Stage, Usage
from parley.runtime.event_stream import CallEvents


class UsageEvents:
    """Translator of measurements into events.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events

    def publish(self, frame: MetricsFrame) -> None:
        """Publish an event for each report of use in a frame; other measurements are ignored."""
        for data in frame.data:
            if (used := usage_of(data)) is not None:
                stage, usage = used
                self._events.publish(EngineUsed(self._events.now_ms(), stage, data.model or "", usage))


def usage_of(data: MetricsData) -> tuple[Stage, Usage] | None:
    """Return the stage and the amounts of a report of use; None for another measurement."""
    match data:
        case LLMUsageMetricsData(value=tokens):
            return Stage.LLM, _of_tokens(tokens)
        case STTUsageMetricsData(value=heard):
            return Stage.STT, Usage(heard_ms=1000 * heard.audio_seconds)
        case TTSUsageMetricsData(value=characters):
            return Stage.TTS, Usage(characters=characters)
    return None


def _of_tokens(tokens: LLMTokenUsage) -> Usage:
    """Return the tokens by kind, each counted once.

    Anthropic reports the prompt without its cached part, OpenAI with it; ``total_tokens`` has all of it in
    both cases.
    """
    cached, written = tokens.cache_read_input_tokens or 0, tokens.cache_creation_input_tokens or 0
    audio, cached_audio = tokens.input_audio_tokens or 0, tokens.cache_read_input_audio_tokens or 0
    spoken = tokens.output_audio_tokens or 0
    read = max(tokens.total_tokens - tokens.completion_tokens, tokens.prompt_tokens)
    new_audio = max(0, audio - cached_audio)
    return Usage(
        prompt_tokens=max(0, read - cached - written - new_audio),
        cached_tokens=cached,
        cache_write_tokens=written,
        completion_tokens=max(0, tokens.completion_tokens - spoken),
        audio_prompt_tokens=new_audio,
        audio_completion_tokens=spoken,
    )
