"""Validate the RTVI requests of a client before they take effect.

Pipecat lets typed text interrupt the bot before it is validated: a blank line would cut an answer off and
have the model answer nothing. Here a blank line gets an ``error-response`` and changes nothing. The same
holds for all text in a call that has no input for words. It also holds for text over the limit per minute,
and for text of a client that has used up its turns. Results of functions are refused: the server runs its
tools, and the model could not distinguish a result that a client made up from one of theirs. A file is a
picture for the next turn, where the model sees; any other is refused, and one given by its address, which
would be fetched from inside. The module owns no task.

A message that a turn is over names the frame of the end to the transport (``TURN_END``): it comes later than
the end.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from pipecat.frames.frames import OutputTransportMessageUrgentFrame
from pipecat.observers.base_observer import FramePushed
from pipecat.processors.frameworks.rtvi import RTVIObserver, RTVIProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi_models
from pydantic import BaseModel

from parley.core.errors import CapacityError, MediaError, OversizedError, StoreError
from parley.core.pictures import MEDIA_TYPES, PictureFile
from parley.processors.pipecat_internals import ClientRequests
from parley.protocols.client_protocol import TURN_END

# Takes a picture for the next turn; raises a ``MediaError`` or a ``CapacityError`` for one that is not taken.
ShowPicture = Callable[[PictureFile], Awaitable[None]]


class TurnNamingObserver(RTVIObserver):
    """Pipecat's RTVI observer that attaches the frame of the end of a turn to the message about it."""

    def __init__(self, rtvi: RTVIProcessor, **arguments: Any) -> None:
        super().__init__(rtvi, **arguments)
        self._client = rtvi
        # An observer receives one frame after the other.
        self._frame_id = -1

    async def on_push_frame(self, data: FramePushed) -> None:
        """Note the frame; see the base class."""
        self._frame_id = data.frame.id
        await super().on_push_frame(data)

    async def send_rtvi_message(self, model: BaseModel, exclude_none: bool = True) -> None:
        """Send a message, with the frame where it ends a turn; see the base class."""
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
        refuses_turn: returns why none is taken now; empty where it is.
        take_typed: counts a text and returns after how many seconds it may be taken, 0 for now; raises an
            ``OversizedError`` for one that may never be.
        show: takes a picture for the next turn; None where no model sees it.
        arguments: arguments of Pipecat's processor.
    """

    def __init__(
        self,
        *,
        refuses_text: str = "",
        refuses_turn: Callable[[], str] | None = None,
        take_typed: Callable[[str], float] | None = None,
        show: ShowPicture | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._take_typed = take_typed
        self._show = show
        self._refuses_text = refuses_text
        self._refuses_turn = refuses_turn

    def create_rtvi_observer(self, **arguments: Any) -> RTVIObserver:
        """Create the observer; see the base class."""
        return TurnNamingObserver(self, **arguments)

    async def take_text(
        self, data: rtvi_models.SendTextData, message_id: str, user_id: str | None = None
    ) -> None:
        if refusal := self._refusal_of(data.content):
            await self.refuse(message_id, refusal)
            return
        await super().take_text(data, message_id, user_id)

    def _refusal_of(self, text: str) -> str:
        """Count a text; return why it is not taken, empty where it is."""
        if not text.strip():
            return "the text is empty"
        if refusal := self._refuses_text or ("" if self._refuses_turn is None else self._refuses_turn()):
            return refusal
        try:
            wait_s = 0.0 if self._take_typed is None else self._take_typed(text)
        except OversizedError as error:
            return str(error)
        return f"too much text, try again in {wait_s:.0f} s" if wait_s else ""

    async def take_file(self, data: rtvi_models.SendFileData, message_id: str) -> None:
        if refusal := await self._refusal_of_file(data):
            await self.refuse(message_id, refusal)

    async def _refusal_of_file(self, data: rtvi_models.SendFileData) -> str:
        """Take a picture for the next turn; return why it is not taken, empty where it is."""
        if self._show is None:
            return "files are not taken here: the model of this call sees no pictures"
        source = data.file.source
        if not isinstance(source, rtvi_models.FileBytes) or data.file.format not in MEDIA_TYPES:
            return f"a file is a picture, sent as its bytes: one of {', '.join(MEDIA_TYPES)}"
        if data.content.strip():
            # A refused text would leave its picture for the words that come next.
            return "the text of a picture is sent after it, with send-text"
        if self._refuses_turn is not None and (refusal := self._refuses_turn()):
            return refusal
        try:
            await self._show(PictureFile(source.bytes, data.file.format))
        except (MediaError, CapacityError, StoreError) as error:
            return str(error)
        return ""

    async def take_function_result(self, data: rtvi_models.LLMFunctionCallResultData) -> None:
        await self.send_error("results of functions are not taken here")


def typed_message(text: str) -> dict[str, Any]:
    """Return a text as an RTVI client's message: it passes the same checks the same way."""
    return {
        "label": "rtvi-ai",
        "type": "send-text",
        "id": uuid.uuid4().hex,
        "data": {"content": text, "options": {"run_immediately": True, "audio_response": True}},
    }
