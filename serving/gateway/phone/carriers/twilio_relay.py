"""Twilio's ConversationRelay: calls as text, over the same signed webhooks and sockets as its media streams.

No row of ``CARRIERS``, because it carries no audio: ``phone.relay`` adds it to Twilio's routes.
"""

from fastapi import Request

from parley.protocols import twiml
from parley.serving.gateway.phone.caller_settings import RelayVoice
from parley.serving.gateway.phone.carriers.carrier import CallDocument, CallRequest, PhoneCall, field_of
from parley.serving.gateway.phone.carriers.twilio import OVER, RECONNECT, TwilioCarrier

# Network of such calls, and the path of their routes.
RELAY = "twilio_relay"
# Text of an ``end`` after which the caller is passed on to a person.
TO_PERSON = {"to": "person"}
HANDED_TO_PERSON = '"person"'


class TwilioRelay(TwilioCarrier):
    """ConversationRelay, as a ``Carrier``. Constructed as ``TwilioCarrier``."""

    name = RELAY

    async def request_of(self, request: Request) -> CallRequest:
        """Return the request of a webhook (``Carrier.request_of``)."""
        fields = await self.form(request)
        return CallRequest(
            self.call_of_fields(fields),
            is_answered=self.is_in_progress(fields),
            handoff=field_of(fields, "HandoffData"),
            # Also asked after a caller has hung up.
            is_over=field_of(fields, "CallStatus") in OVER,
        )

    def connect(self, base: str, media: str, call: PhoneCall) -> CallDocument:
        """Return the answer that connects a call (``Carrier.connect``)."""
        relay = self._phone.relay
        assert relay is not None
        given = {
            "language": relay.language,
            "transcriptionLanguage": relay.transcription_language,
            **_voice(relay),
        }
        attributes = {name: value for name, value in given.items() if value is not None}
        action = f"{base}/{self.name}{RECONNECT}"
        languages = {code: _voice(voice) for code, voice in relay.languages.items()}
        return CallDocument(twiml.relay(media, action, {"dtmfDetection": "true", **attributes}, languages))


def _voice(voice: RelayVoice) -> dict[str, str]:
    """Return the attributes of a voice and its recogniser."""
    given = {
        "voice": voice.voice,
        "ttsProvider": voice.tts_provider,
        "transcriptionProvider": voice.transcription_provider,
    }
    return {name: value for name, value in given.items() if value is not None}
