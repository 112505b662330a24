"""Voiceprints of a session: those of earlier calls for a new one, and those of this call for later ones.

Only where the specialist ``speakers`` keeps voiceprints (``voiceprints`` of its row). Input: ``VoicesLearnt``
of the call. Output: events of the session (``Kind.VOICES``), which are deleted with it; before the first one
of a call that the deployment has asked for it (``Kind.CONSENT``). A voice is written when it is new and when
its speech has doubled, so that a call of hours writes a dozen events. Nothing waits for the writes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parley.core.call_events import VoicesLearnt
from parley.core.timeline import KnownVoice
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation
from parley.session_store.events import Kind

VOICEPRINTS = "voiceprints"
# More than a specialist takes, and numbers of an embedding.
MOST_VOICES, MOST_NUMBERS = 32, 1_024


class VoiceprintRecords:
    """Writer of the voiceprints of one call.

    Args:
        conversation: the session.
        events: events of the call.
        call_id: identifies the call.
    """

    def __init__(self, conversation: Conversation, events: CallEvents, call_id: str) -> None:
        self._conversation, self._call_id = conversation, call_id
        self._written_s: dict[str, float] = {}
        events.subscribe(VoicesLearnt, self._on_voices_learnt)

    def _on_voices_learnt(self, event: VoicesLearnt) -> None:
        if all(voice.seconds < 2 * self._written_s.get(voice.speaker_id, 0.0) for voice in event.voices):
            return
        conversation, call_id = self._conversation, self._call_id
        drafts = []
        if not self._written_s:
            drafts.append(
                conversation.draft(Kind.CONSENT, "system", to=VOICEPRINTS, by="deployment", call_id=call_id)
            )
        self._written_s = {voice.speaker_id: voice.seconds for voice in event.voices}
        voices = [
            {"speaker": voice.speaker_id, "embedding": list(voice.embedding), "seconds": voice.seconds}
            for voice in event.voices
        ]
        drafts.append(conversation.draft(Kind.VOICES, "diar", call_id=call_id, voices=voices))
        conversation.record(*drafts)


async def recall_voices(conversation: Conversation) -> Sequence[KnownVoice]:
    """Return the voices of earlier calls of a session; what is not readable is left out.

    Raises:
        StoreError: the store cannot be read.
    """
    event = await conversation.read_newest(Kind.VOICES)
    stored = event.payload.get("voices") if event is not None else None
    if not isinstance(stored, Sequence):
        return ()
    read = [_voice(each) for each in stored[:MOST_VOICES] if isinstance(each, Mapping)]
    return tuple(voice for voice in read if voice is not None)


def _voice(stored: Mapping[str, Any]) -> KnownVoice | None:
    speaker, embedding, seconds = (stored.get(name) for name in ("speaker", "embedding", "seconds"))
    numbers = [*embedding, seconds] if isinstance(embedding, Sequence) else []
    if not isinstance(speaker, str) or not 1 < len(numbers) <= MOST_NUMBERS + 1:
        return None
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return None
    *values, length_s = map(float, numbers)
    return KnownVoice(speaker, tuple(values), length_s) if length_s > 0 else None
