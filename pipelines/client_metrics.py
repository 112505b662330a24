"""Metrics of a call for its RTVI client, in the messages that Pipecat's own pipelines send (``metrics``).

Durations are those of Parley's record of a turn, which are sent with it: Pipecat's own would be measured by
the services alone, by the process's clock, and embedded engines would have none. Amounts of work come from
the engines' reports and are sent after each turn of the bot. Processors are named by their stage: clients
learn no names of services and models.
"""

from collections.abc import Iterable
from typing import Any

from pipecat.frames.frames import OutputTransportMessageUrgentFrame
from pipecat.processors.frameworks.rtvi import models as rtvi

from parley.core.call_events import BotTurnEnded, EngineUsed
from parley.core.usage import Stage, Usage
from parley.pipelines.call import Call
from parley.telemetry.turns import TurnRecord

# Span of a turn's record that is the time to the first byte of a stage.
FIRST_BYTE = {"stt": "stt_final", "llm": "llm_first_token", "tts": "tts_first_audio"}


class ClientMetrics:
    """Subscriber that sends the amounts of engines' work; ``send_turns`` sends the durations of turns.

    Args:
        call: the call.
        sends: True when there is a client that reads the messages.
    """

    def __init__(self, call: Call, *, sends: bool) -> None:
        self._call, self._sends = call, sends
        self._used: dict[Stage, Usage] = {}
        if sends:
            call.events.subscribe(EngineUsed, self._on_used)
            call.events.subscribe(BotTurnEnded, self._on_bot_turn_ended)

    def send_turns(self, records: Iterable[TurnRecord]) -> None:
        """Send the times to the first byte of each stage of these turns, in seconds."""
        for record in records:
            spans = record.spans_ms()
            ttfb = [
                {"processor": stage, "value": round(spans[span] / 1000, 4)}
                for stage, span in FIRST_BYTE.items()
                if span in spans
            ]
            if ttfb:
                self._send({"ttfb": ttfb})

    def _on_used(self, event: EngineUsed) -> None:
        self._used[event.stage] = self._used.get(event.stage, Usage()) + event.usage

    def _on_bot_turn_ended(self, _event: BotTurnEnded) -> None:
        used, self._used = self._used, {}
        llm, tts = used.get(Stage.LLM, Usage()), used.get(Stage.TTS, Usage())
        data: dict[str, Any] = {}
        read = llm.prompt_tokens + llm.cached_tokens + llm.cache_write_tokens
        if read or llm.completion_tokens:
            tokens = {
                "prompt_tokens": read,
                "completion_tokens": llm.completion_tokens,
                "total_tokens": read + llm.completion_tokens,
            }
            cached = {"cache_read_input_tokens": llm.cached_tokens} if llm.cached_tokens else {}
            data["tokens"] = [{**tokens, **cached}]
        if tts.characters:
            data["characters"] = [{"processor": Stage.TTS.value, "value": tts.characters}]
        if data:
            self._send(data)

    def _send(self, data: dict[str, Any]) -> None:
        if self._sends:
            message = rtvi.MetricsMessage(data=data).model_dump()
            self._call.live.input.put(OutputTransportMessageUrgentFrame(message=message))
