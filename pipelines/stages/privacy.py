"""Stage that hides personal data in the caller's words, with private pauses, where a deployment has them."""

from collections.abc import Sequence

from pipecat.processors.frame_processor import FrameProcessor

from parley.core.call_events import UtteranceRead
from parley.language.turn_redaction import TurnRedaction
from parley.models.tools import Tool
from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import Reveal
from parley.pipelines.private_pause import PrivatePauses
from parley.processors.perception.caller_redaction import CallerRedaction
from parley.processors.perception.private_words import PrivateWords


class CallPrivacy:
    """Parts of one call that hide words.

    Attributes:
        stage: follows the recogniser; empty where nothing is hidden.
        background: tasks of the call.
        tools: tools of the model.
        reveal: puts words of a pause into questions; None where the model gets none.
    """

    def __init__(self, engines: Engines, call: Call) -> None:
        settings, redactor = engines.deployment.privacy, engines.deployment.redactor()
        pause = settings.pause
        private = PrivateWords(model_hears=pause is not None and pause.model_hears)
        self.stage: list[CallerRedaction] = []
        self.background: Background = ()
        self.tools: Sequence[Tool] = ()
        self.reveal: Reveal | None = private.reveal if pause is not None and pause.model_hears else None
        if redactor is not None or pause is not None:
            words = (
                None
                if redactor is None or not settings.redact
                else TurnRedaction(redactor, call.conversation.note_hidden)
            )
            self.stage = [CallerRedaction(words, private, call.events)]
        if pause is not None:
            pauses = PrivatePauses(
                pause, call.conversation, call.events, private, paused_by=call.resumption.paused_by
            )
            self.background, self.tools = [pauses.run], pauses.tools()

    def words_of_turn(self, shown: str) -> str:
        """Return the words of a turn that is over, from its transcripts as they left the stage."""
        return self.stage[0].words_of_turn(shown) if self.stage else shown

    def utterance(self, read: UtteranceRead) -> UtteranceRead:
        """Return the record of an utterance as it may be kept."""
        return self.stage[0].utterance(read) if self.stage else read

    def unseen(self, stt: FrameProcessor) -> list[FrameProcessor]:
        """Return the stages whose frames no client is shown: they come again, redacted."""
        return [stt] if self.stage else []
