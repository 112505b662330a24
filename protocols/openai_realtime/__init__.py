"""OpenAI's realtime protocol (GA event names): a voice conversation by events.

Supported parts:

* the session and its updates, of conversations and of transcription alone;
* audio input, with turn detection by the server or with commits by the client;
* typed and recorded messages, and pictures;
* responses with their items, parts and deltas in the order that clients rely on;
* cancelling a response, and truncating it at the heard millisecond;
* tools that the client runs;
* audio as PCM of 24 kHz or G.711, in events of a WebSocket; or by the tracks of a WebRTC connection, whose
  data channel has the events. The server then knows itself what was played.

Anything else is refused by name (``docs/reference/openai_realtime.md``).

    shapes    fields of events, read and written
    state     one conversation: its settings, its items, the active response
    reading   events of the client to actions
    telling   events of the call to events for the client

Source: the API reference and the events of the official client (openai-python, ``types/realtime``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.protocols.client_protocol import (
    SHUTDOWN,
    STOPPING,
    Action,
    Format,
    Happening,
    Message,
    ProtocolError,
    json_text,
)
from parley.protocols.openai_realtime.client_events import Reader
from parley.protocols.openai_realtime.server_events import ServerEventWriter
from parley.protocols.openai_realtime.shapes import REALTIME, TRANSCRIPTION, Faults, error_event
from parley.protocols.openai_realtime.state import RealtimeState

__all__ = ["OpenAIRealtime"]


def _no_faults(_schema: Mapping[str, Any]) -> Sequence[str]:
    return ()


class OpenAIRealtime:
    """OpenAI's realtime protocol, as a ``ClientProtocol``.

    ``read`` is a generator that changes the state only after the action that the change depends on was
    accepted; a refused action ends it.

    Args:
        model: name that the client requested.
        schema_faults: returns the faults in the schema of a tool's arguments.
        is_transcription: the session begins as one of transcription alone.
        has_tracks: sound goes by tracks of WebRTC in both directions, and not by events.
    """

    name = "openai"
    # The protocol has no event for a queue: its clients receive a 503 with Retry-After.
    queues = False
    wants_units = False
    greets = False
    prompts = False
    hums = False
    announces = True
    # OpenAI's server sends speech as fast as it is made, and its clients have a player for that: they drop
    # what they hold when the caller begins to speak, and report what was played. So much survives a stall of
    # either side. More would be sent in vain when the caller interrupts.
    lead_ms = 2_000

    def __init__(
        self,
        model: str,
        *,
        schema_faults: Callable[[Mapping[str, Any]], Sequence[str]] = _no_faults,
        is_transcription: bool = False,
        has_tracks: bool = False,
    ) -> None:
        kind = TRANSCRIPTION if is_transcription else REALTIME
        # Its clients play a response that they have not requested, as after a turn. One that only
        # transcribes has no voice.
        self.speaks_announcements = not is_transcription
        self._state = RealtimeState(model, kind=kind, has_tracks=has_tracks)
        faults: Faults = schema_faults
        self._reader = Reader(self._state, faults)
        self._writer = ServerEventWriter(self._state)

    @property
    def input_format(self) -> Format:
        """Format of the caller's audio; an update may change it."""
        return self._state.input_format

    @property
    def output_format(self) -> Format:
        """Format of the bot's audio; an update may change it."""
        return self._state.settings.output_format

    def hear(self, pcm: bytes, rate_hz: int) -> bool:
        """Take audio of the caller's track; return whether the call is to hear it now.

        Without turn detection it is kept, and heard when the client commits it.
        """
        return self._state.hear_track(pcm, rate_hz)

    def speaks(self, reply_id: str) -> bool:
        """Return whether a reply is to be heard, and not only read."""
        item = self._state.items.of_reply(reply_id)
        return (self._state.settings.modality if item is None else item.modality) == "audio"

    def created(self) -> str:
        """Return the event about the session as it is, for a further connection of its call."""
        return json_text(self._state.created())

    def read(self, text: str, at_ms: int) -> Iterator[Action]:
        """Return the actions of an event (``ClientProtocol.read``)."""
        return self._reader.read(text)

    def refused(self, refusal: ProtocolError) -> Sequence[Message]:
        """Return the error event for a refusal (``ClientProtocol.refused``)."""
        return [error_event(str(refusal), refusal.code, refusal.param, event_id=self._reader.event_id)]

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the events for an event of the call (``ClientProtocol.messages_for``)."""
        return self._writer.messages_for(happening)

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set whether the client's instructions are followed, and its voices (``ClientProtocol.permit``)."""
        self._state.permit(instructions=instructions, voices=voices)

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame (``ClientProtocol.goodbye``)."""
        if reason == SHUTDOWN:
            return STOPPING
        return (1011, reason) if reason == "error" else (1000, reason)
