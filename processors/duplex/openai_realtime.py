"""Pipecat's OpenAI Realtime service with three corrections: late audio, typed words, and a silent end.

The provider cancels a response when it detects a voice, and audio of it that has already left arrives after
that notice. Pipecat takes the first such piece for another reply. The interruption that follows from the
voice then has the provider shorten it once more, to the few milliseconds since. The model continues as if
nothing of its reply had been heard. This service drops such audio. Pipecat passes typed words of a caller on
as the application's (``system``), which the model would follow as instructions. This service sends them as
the caller's. Pipecat stops reading, without a report, when the provider closes its socket or sends what is no
message of the protocol. This service reports both as an error. It owns no task.
"""

from typing import Any

from pipecat.frames.frames import LLMMessagesAppendFrame
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from websockets.exceptions import ConnectionClosed

from parley.processors.dialogue.engine_llm import text_of
from parley.processors.pipecat_internals import RealtimeEvents


class InterruptedRealtimeService(RealtimeEvents, OpenAIRealtimeLLMService):
    """Service that drops audio between a voice and the next response; typed words are the caller's."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._is_cut = False

    async def voice_started(self, event: Any) -> None:
        self._is_cut = True
        await super().voice_started(event)

    async def response_created(self, event: Any) -> None:
        self._is_cut = False
        await super().response_created(event)

    async def audio_came(self, event: Any) -> None:
        if not self._is_cut:
            await super().audio_came(event)

    async def messages_ended(self, error: Exception | None) -> None:
        # The caller's audio has no reader any more. An error that was reported ends the reading as well; a
        # second report has no effect. What the provider sent may hold words, so only its error is named.
        is_closed = error is None or isinstance(error, ConnectionClosed)
        why = "its connection is closed" if is_closed else f"a message cannot be read: {type(error).__name__}"
        await self.push_error(error_msg=why)

    async def append_messages(self, frame: LLMMessagesAppendFrame) -> None:
        theirs = [each for each in frame.messages if isinstance(each, dict) and each.get("role") == "user"]
        others = [each for each in frame.messages if each not in theirs]
        if others:
            await super().append_messages(LLMMessagesAppendFrame(messages=others))
        if not self.takes_messages:
            return
        for message in theirs:
            text = text_of(message.get("content"))
            if text:
                await self.send_callers_words(text)
