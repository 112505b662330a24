"""What a client may say by RTVI, checked before it acts.

Pipecat lets typed text interrupt the bot before anybody looks at it: a blank line would cut an answer off and
have the model answer nothing. Here it gets an ``error-response`` and changes nothing; so does all of it in a
call that has no way in for words, over what may be typed in a minute, and from a client that has used up its
turns. Results of functions are refused: the server runs its tools, and the model could not tell a result that
a client made up from one of theirs. Files are refused: nothing here reads them, and one that is named by its
address would be fetched from inside. No tasks of its own.

A message that a turn is over names which one to the transport (``TURN_END``): it comes later than the end.
"""

from collections.abc import Callable
from typing import Any

from pipecat.frames.frames import OutputTransportMessageUrgentFrame
from pipecat.observers.base_observer import FramePushed
from pipecat.processors.frameworks.rtvi import RTVIObserver, RTVIProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi_models
from pydantic import BaseModel

from processors.pipecat_internals import ClientRequests
from protocols.surface import TURN_END


class TurnNamingObserver(RTVIObserver):
    """Pipecat's RTVI observer that names the frame of the end of a turn beside the message about it."""

    def __init__(self, rtvi: RTVIProcessor, **arguments: Any) -> None:
        super().__init__(rtvi, **arguments)
        self._client = rtvi
        # An observer is given one frame after the other.
        self._frame_id = -1

    async def on_push_frame(self, data: FramePushed) -> None:
        """See the base class."""
        self._frame_id = data.frame.id
        await super().on_push_frame(data)

    async def send_rtvi_message(self, model: BaseModel, exclude_none: bool = True) -> None:
        """See the base class."""
        if not isinstance(model, rtvi_models.UserStoppedSpeakingMessage):
            await super().send_rtvi_message(model, exclude_none)
            return
        frame = OutputTransportMessageUrgentFrame(message=model.model_dump(exclude_none=exclude_none))
        TURN_END.put(frame, self._frame_id)
        await self._client.push_frame(frame)


class CheckedRtvi(ClientRequests, RTVIProcessor):
    """Pipecat's RTVI processor that refuses blank text, and too much of it.

    Args:
        refuses_text: why no text is taken in this call; empty where it is.
        refuses_turn: why none is taken now; empty where it is.
        take_typed: counts a text and returns after how many seconds it may be taken, 0 for now.
        arguments: of Pipecat's.
    """

    def __init__(
        self,
        *,
        refuses_text: str = "",
        refuses_turn: Callable[[], str] | None = None,
        take_typed: Callable[[str], float] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._take_typed = take_typed
        self._refuses_text = refuses_text
        self._refuses_turn = refuses_turn

    def create_rtvi_observer(self, **arguments: Any) -> RTVIObserver:
        """See the base class."""
        return TurnNamingObserver(self, **arguments)

    async def take_text(
        self, data: rtvi_models.SendTextData, message_id: str, user_id: str | None = None
    ) -> None:
        if not data.content.strip():
            await self.refuse(message_id, "the text is empty")
            return
        if self._refuses_text:
            await self.refuse(message_id, self._refuses_text)
            return
        if self._refuses_turn is not None and (refusal := self._refuses_turn()):
            await self.refuse(message_id, refusal)
            return
        wait_s = 0.0 if self._take_typed is None else self._take_typed(data.content)
        if wait_s:
            await self.refuse(message_id, f"too much text, try again in {wait_s:.0f} s")
            return
        await super().take_text(data, message_id, user_id)

    async def take_file(self, data: rtvi_models.SendFileData, message_id: str) -> None:
        await self.refuse(message_id, "files are not taken here")

    async def take_function_result(self, data: rtvi_models.LLMFunctionCallResultData) -> None:
        await self.send_error("results of functions are not taken here")
