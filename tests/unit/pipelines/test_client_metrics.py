"""Metrics for an RTVI client, in Pipecat's own messages, from what happens in a call."""

from pathlib import Path
from typing import Any

from pipecat.frames.frames import Frame, OutputTransportMessageUrgentFrame
from pipecat.metrics.metrics import LLMTokenUsage, TTFBMetricsData, TTSUsageMetricsData
from pipecat.processors.frameworks.rtvi import models as rtvi

from parley.core.call_events import BotTurnEnded, EngineUsed
from parley.core.usage import Stage, Usage
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.client_metrics import ClientMetrics
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.telemetry.turns import TurnRecord

MARKS = {"speech_end": 0, "transcript": 120_000, "endpoint": 300_000, "llm_first_token": 800_000}
LATER = {"first_clause": 900_000, "tts_first_audio": 1_150_000, "playout": 1_200_000}


async def sent(folder: Path, *, sends: bool) -> list[dict[str, Any]]:
    """Return the data of the messages of one turn."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    opened = Conversations(store, compactor=Compactor())
    found: list[dict[str, Any]] = []

    async def take(frame: Frame) -> None:
        assert isinstance(frame, OutputTransportMessageUrgentFrame)
        rtvi.MetricsMessage.model_validate(frame.message)
        found.append(frame.message["data"])

    try:
        async with opened.open() as conversation:
            call = Call(conversation, "websocket", LiveCall(conversation.clock))
            metrics = ClientMetrics(call, sends=sends)
            call.live.input.open(take)
            used = Usage(prompt_tokens=10, cached_tokens=5, completion_tokens=3)
            call.events.publish(EngineUsed(1, Stage.LLM, "a-secret-model", used))
            call.events.publish(EngineUsed(2, Stage.LLM, "a-secret-model", Usage(completion_tokens=1)))
            call.events.publish(EngineUsed(3, Stage.TTS, "", Usage(characters=40)))
            call.events.publish(BotTurnEnded(4, "It costs five euros.", interrupted=False))
            # Nothing was used since.
            call.events.publish(BotTurnEnded(5, "Goodbye.", interrupted=False))
            metrics.send_turns([TurnRecord(turn=1, marks_us={**MARKS, **LATER}), TurnRecord(turn=2)])
            await call.live.input.flush()
            assert call.events.failures == 0
    finally:
        await opened.close()
        await store.close()
    return found


async def test_amounts_and_durations_are_those_that_pipecats_clients_read(tmp_path: Path):
    amounts, durations = await sent(tmp_path, sends=True)
    tokens = LLMTokenUsage.model_validate(amounts["tokens"][0])
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.total_tokens) == (15, 4, 19)
    assert tokens.cache_read_input_tokens == 5
    [characters] = [TTSUsageMetricsData.model_validate(each) for each in amounts["characters"]]
    assert (characters.processor, characters.value) == ("tts", 40)
    ttfb = [TTFBMetricsData.model_validate(each) for each in durations["ttfb"]]
    # In seconds.
    assert {each.processor: each.value for each in ttfb} == {"stt": 0.12, "llm": 0.5, "tts": 0.25}
    assert "secret" not in str(amounts)


async def test_a_call_without_such_a_client_sends_none(tmp_path: Path):
    assert await sent(tmp_path, sends=False) == []
