"""End of a call whose last voice has failed: the caller is passed on to a person, or the call ends.

Silence reads as a dropped line, so an embedded voice says one sentence first. The rest of the reply is
dropped: a caller who is about to leave needs no half of an answer.
"""

from pipecat.frames.frames import InterruptionFrame, TTSSpeakFrame

from parley.core.call_events import EnginesGivenUp
from parley.pipelines.call import Call
from parley.pipelines.stages.omni_ends import end_soon

REASON = "The agent cannot speak any more, because of a technical fault."


class VoicelessEnd:
    """Subscriber to the failure of the last voice of a call by turns.

    Args:
        call: the call.
        phrase: sentence that is said before the call ends; empty for none.
    """

    def __init__(self, call: Call, phrase: str) -> None:
        self._call, self._phrase = call, phrase
        call.events.subscribe(EnginesGivenUp, self._on_engines_given_up)

    def _on_engines_given_up(self, _event: EnginesGivenUp) -> None:
        call = self._call
        call.live.input.put(InterruptionFrame())
        if call.phone.pass_on(REASON):
            return
        if self._phrase:
            call.live.input.put(TTSSpeakFrame(self._phrase, append_to_context=True))
        end_soon(call, "error", "no voice is left for the call")
