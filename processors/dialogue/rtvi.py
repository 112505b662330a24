"""What a client may say by RTVI, checked before it acts.

Pipecat lets typed text interrupt the bot before anybody looks at it: a blank line would cut an answer off and
have the model answer nothing. Here it gets an ``error-response`` and changes nothing. No state, no tasks of
its own.
"""

from pipecat.processors.frameworks.rtvi import RTVIProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi_models


class CheckedRtvi(RTVIProcessor):
    """Pipecat's RTVI processor that refuses blank text."""

    async def _handle_send_text(
        self, data: rtvi_models.SendTextData, message_id: str, user_id: str | None = None
    ) -> None:
        if not data.content.strip():
            await self._send_error_response(message_id, "the text is empty")
            return
        await super()._handle_send_text(data, message_id, user_id)
