"""Transcript of one source as a session, in the form that ``session_store.transfer`` imports.

Each stretch of one speaker is a turn: of the bot where the speaker is the agent of a recorded call, else of a
person. The session has the time at which its source was written, and an id and keys that follow from the
key of the transcript: the same transcript is the same session, and is imported once. Waits for nothing.
"""

import uuid
from itertools import groupby
from typing import Any

from parley.batch.reading import CALL_SIDES
from parley.batch.transcript import Transcription, TranscriptSegment
from parley.session_store.events import Draft, Kind
from parley.session_store.reading import JsonPage
from parley.session_store.rows import SessionInfo, draft_row, event_text
from parley.session_store.settings import StoreTuning
from parley.session_store.transfer import export_lines

AGENT = CALL_SIDES[1]
# Origin of the turns, in the place of a transport.
TRANSPORT = "recording"
_SPACE = uuid.UUID("6f0f0c4e-2f0b-4d0e-9a44-1f7f6f2d9a51")
_US_PER_MS = 1_000


async def session_export(found: Transcription, began_us: int) -> bytes:
    """Return the export of a session with the turns of a transcript.

    Args:
        found: transcript.
        began_us: time of its beginning, microseconds since the Unix epoch.
    """
    session_id = str(uuid.uuid5(_SPACE, found.key))
    most_bytes = StoreTuning.model_fields["max_payload_bytes"].default
    turns = [
        _turn(list(stretch), began_us, f"{session_id}-{number}")
        for number, (_, stretch) in enumerate(groupby(enumerate(found.segments), key=_stretch))
    ]
    texts = tuple(
        event_text(
            {
                **draft_row(turn, max_payload_bytes=most_bytes),
                "session_id": session_id,
                "seq": seq,
                "epoch": 0,
            },
            with_session=False,
        )
        for seq, turn in enumerate(turns, 1)
    )
    last_us = max([began_us, *(turn.event_us for turn in turns)])
    info = SessionInfo(session_id, "default", 0, len(turns), began_us, last_us)

    async def page(*, after_seq: int) -> JsonPage:
        return JsonPage(texts[after_seq:], (last_us, len(texts)), True)

    lines = [line async for line in export_lines(info, page)]
    return "".join(f"{line}\n" for line in lines).encode()


def _stretch(place: tuple[int, TranscriptSegment]) -> tuple[str | None, int]:
    """Return what is the same in segments of one turn; a segment without a speaker is a turn of its own."""
    number, segment = place
    return segment.speaker, number if segment.speaker is None else 0


def _turn(stretch: list[tuple[int, TranscriptSegment]], began_us: int, key: str) -> Draft:
    segments = [segment for _, segment in stretch]
    speaker = segments[0].speaker
    text = " ".join(segment.text for segment in segments)
    # A turn is over at its end, as in a call.
    ended_us = began_us + max(segment.end_ms for segment in segments) * _US_PER_MS
    payload: dict[str, Any] = {"text": text, "transport": TRANSPORT}
    kind, source = Kind.USER_TURN, "user"
    if speaker == AGENT:
        kind, source = Kind.BOT_TURN, "bot"
        payload |= {"reply_id": key, "truncated": False, "unheard": ""}
    confidence = sum(segment.confidence for segment in segments) / len(segments)
    return Draft(
        kind,
        payload,
        event_us=ended_us,
        arrival_us=ended_us,
        source=source,
        speaker=speaker,
        confidence=round(confidence, 3),
        key=key,
    )
