"""The bot's side of the context, limited to what was heard according to the playout clock.

Pipecat's aggregator collects the words that the output released. This one leaves out the words that the
playout clock has recorded. Instead it takes the text that arrives with the frame that ends the reply: an
interruption, the end of a response, the end of the call. An interruption overtakes everything that waits in
the aggregator's queue, so the text travels in the frame itself. The text of a dropped frame is repeated by
the interruption that dropped it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipecat.frames.frames import Frame, TextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMAssistantAggregator,
    LLMAssistantAggregatorParams,
    LLMUserAggregator,
)
from pipecat.processors.frame_processor import FrameDirection

from parley.core.frame_facts import FrameFact
from parley.processors.pipecat_internals import CollectedText, add_words, paired_with

# The frame is recorded by the playout clock.
HEARD_LATER = FrameFact[bool]("heard_later")


@dataclass(slots=True)
class HeardText:
    """The heard part of a reply, on its way into the context.

    Attributes:
        text: the words.
        taken: True when the aggregator has it.
    """

    text: str
    taken: bool = False


# The heard part of the replies that a frame ends.
_HEARD_TEXTS = FrameFact[tuple[HeardText, ...]]("heard_texts")


def heard_texts(frame: Frame, texts: Sequence[HeardText]) -> None:
    """Attach texts to a frame, for the aggregator."""
    if texts:
        _HEARD_TEXTS.put(frame, tuple(texts))


class HeardAssistantAggregator(CollectedText, LLMAssistantAggregator):
    """Replacement of the assistant half of ``LLMContextAggregatorPair``.

    Args:
        context: shared with the user half.
        user: the user half; None where another component makes the turns.
        params: Pipecat's parameters.
    """

    def __init__(
        self,
        context: LLMContext,
        user: LLMUserAggregator | None,
        *,
        params: LLMAssistantAggregatorParams | None = None,
    ) -> None:
        super().__init__(context, params=params, **paired_with(user))

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        for heard in _HEARD_TEXTS.take(frame) or ():
            if not heard.taken:
                heard.taken = True
                if heard.text:
                    add_words(self, heard.text)
        await super().process_frame(frame, direction)

    async def collect(self, frame: TextFrame) -> None:
        if not HEARD_LATER.is_on(frame):
            await super().collect(frame)
