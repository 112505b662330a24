"""Pipecat's OpenAI Realtime service, deaf to what is still on its way when the caller interrupts it.

The provider cancels a response when it hears a voice, and audio of it that has left already comes behind that
news. Pipecat takes the first such piece for another reply: the interruption that follows from the voice then
has the provider shorten it once more, to the few milliseconds since, and the model goes on as if nothing of
its reply had been heard. No tasks of its own.
"""

from typing import Any

from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService


class InterruptedRealtimeService(OpenAIRealtimeLLMService):
    """Drops audio between the beginning of a voice and the next response."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._is_cut = False

    async def _handle_evt_speech_started(self, evt: Any) -> None:
        self._is_cut = True
        await super()._handle_evt_speech_started(evt)

    async def _handle_evt_response_created(self, evt: Any) -> None:
        self._is_cut = False
        await super()._handle_evt_response_created(evt)

    async def _handle_evt_audio_delta(self, evt: Any) -> None:
        if not self._is_cut:
            await super()._handle_evt_audio_delta(evt)
