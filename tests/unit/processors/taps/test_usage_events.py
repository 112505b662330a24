"""Reports of services about their use, as events of the call."""

from pipecat.frames.frames import MetricsFrame
from pipecat.metrics.metrics import (
    LLMTokenUsage,
    LLMUsageMetricsData,
    STTUsage,
    STTUsageMetricsData,
    TTFBMetricsData,
    TTSUsageMetricsData,
)

from parley.core.call_events import EngineUsed
from parley.core.usage import Stage, Usage
from parley.processors.taps.usage_events import UsageEvents
from parley.runtime.event_stream import CallEvents
from tests import virtual_time


def published(*data: object) -> list[EngineUsed]:
    async def scenario() -> list[EngineUsed]:
        events, found = CallEvents(), list[EngineUsed]()
        events.subscribe(EngineUsed, found.append)
        UsageEvents(events).publish(MetricsFrame(data=list(data)))
        return found

    return virtual_time.run(scenario())


def tokens_of(usage: LLMTokenUsage) -> Usage:
    [used] = published(LLMUsageMetricsData(processor="llm", model="m", value=usage))
    assert (used.stage, used.model) == (Stage.LLM, "m")
    return used.usage


def test_a_cached_token_counts_once_whether_or_not_the_provider_counts_it_in_the_prompt():
    cached = {"cache_read_input_tokens": 700, "cache_creation_input_tokens": 100}
    net = LLMTokenUsage(prompt_tokens=200, completion_tokens=50, total_tokens=1_050, **cached)
    gross = LLMTokenUsage(prompt_tokens=1_000, completion_tokens=50, total_tokens=1_050, **cached)
    expected = Usage(prompt_tokens=200, cached_tokens=700, cache_write_tokens=100, completion_tokens=50)
    assert tokens_of(net) == tokens_of(gross) == expected


def test_audio_tokens_are_counted_apart_from_those_of_text():
    used = LLMTokenUsage(
        prompt_tokens=500,
        completion_tokens=90,
        total_tokens=590,
        cache_read_input_tokens=100,
        input_audio_tokens=300,
        output_audio_tokens=80,
        cache_read_input_audio_tokens=60,
    )
    assert tokens_of(used) == Usage(
        prompt_tokens=160,
        cached_tokens=100,
        completion_tokens=10,
        audio_prompt_tokens=240,
        audio_completion_tokens=80,
    )


def test_heard_audio_and_spoken_characters_are_published_and_other_measurements_are_not():
    found = published(
        STTUsageMetricsData(processor="stt", value=STTUsage(audio_seconds=2.5)),
        TTFBMetricsData(processor="stt", value=0.2),
        TTSUsageMetricsData(processor="tts", model="sonic", value=42),
    )
    assert [(each.stage, each.model, each.usage) for each in found] == [
        (Stage.STT, "", Usage(heard_ms=2_500)),
        (Stage.TTS, "sonic", Usage(characters=42)),
    ]
