"""What a client may say by RTVI, checked before it acts.

Pipecat lets typed text interrupt the bot before anybody looks at it: a blank line would cut an answer off and
have the model answer nothing. Here it gets an ``error-response`` and changes nothing; so does all of it in a
call that has no way in for words. No tasks of its own.
"""

from typing import Any

from pipecat.processors.frameworks.rtvi import RTVIProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi_models


class CheckedRtvi(RTVIProcessor):
    """Pipecat's RTVI processor that refuses blank text.

    Args:
        refuses_text: why no text is taken in this call; empty where it is.
        arguments: of Pipecat's.
    """

    def __init__(self, *, refuses_text: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._refuses_text = refuses_text

    async def _handle_send_text(
        self, data: rtvi_models.SendTextData, message_id: str, user_id: str | None = None
    ) -> None:
        if not data.content.strip():
            await self._send_error_response(message_id, "the text is empty")
            return
        if self._refuses_text:
            await self._send_error_response(message_id, self._refuses_text)
            return
        await super()._handle_send_text(data, message_id, user_id)
