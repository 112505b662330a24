"""End a call by turns of which a stage has failed for good, or pass its caller on to a person.

Silence reads as a dropped line, so a voice says one sentence first. The rest of the reply is dropped: a
caller who is about to leave needs no half of an answer.
"""

from collections.abc import Mapping
from types import MappingProxyType

from pipecat.frames.frames import InterruptionFrame, TTSSpeakFrame

from parley.core.call_events import EnginesGivenUp
from parley.core.usage import Stage
from parley.pipelines.call import Call
from parley.pipelines.stages.omni_ends import end_soon

# What a person is given as the reason.
REASONS: Mapping[Stage | None, str] = MappingProxyType(
    {
        Stage.STT: "The agent cannot hear the caller any more, because of a technical fault.",
        Stage.LLM: "The agent cannot answer any more, because of a technical fault.",
        Stage.TTS: "The agent cannot speak any more, because of a technical fault.",
    }
)


class LastEngineEnd:
    """Subscriber to the failure of the last engine of a stage.

    Args:
        call: the call.
        phrase: sentence that is said before the call ends; empty for none.
    """

    def __init__(self, call: Call, phrase: str) -> None:
        self._call, self._phrase, self._is_over = call, phrase, False
        call.events.subscribe(EnginesGivenUp, self._on_engines_given_up)

    def _on_engines_given_up(self, event: EnginesGivenUp) -> None:
        # Several stages may fail by the same cause.
        if self._is_over:
            return
        self._is_over = True
        call, stage = self._call, event.stage
        call.live.input.put(InterruptionFrame())
        if call.phone.pass_on(REASONS.get(stage, REASONS[Stage.TTS])):
            return
        if self._phrase:
            call.live.input.put(TTSSpeakFrame(self._phrase, append_to_context=True))
        end_soon(call, "error", f"no engine of the stage {stage or 'tts'} is left for the call")
