"""Drop the words of a model that was asked before a human was fetched or took over (``core.tiers``).

A human may take the session while a model writes. An interruption ends that response; this stage makes sure
that none of its later words reach the voice, whatever queue they wait in.
"""

from pipecat.frames.frames import Frame, LLMFullResponseStartFrame, LLMTextFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.session_store.conversation import Conversation


class EpochGuard(FrameProcessor):
    """Processor between the model and the voice. Phrases that no model wrote pass.

    Args:
        conversation: the session, with its tier.
    """

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(enable_direct_mode=True)
        self._conversation = conversation
        self._holds = conversation.tier.holds

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        tier = self._conversation.tier
        if isinstance(frame, LLMFullResponseStartFrame):
            self._holds = tier.holds
        elif isinstance(frame, LLMTextFrame) and (tier.is_held or tier.holds != self._holds):
            return
        await self.push_frame(frame, direction)
