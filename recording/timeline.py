"""Read ``recording.json``: the fields that are used, checked, from a file that may come from anywhere."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from parley.core.errors import MediaError
from parley.recording.at_rest import AlteredFileError, RecordingKeyError
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, FRAMES, CallRecording
from parley.recording.track import MOST_SEAMS
from parley.runtime.object_store import ObjectStoreError

# Of the file, where a server reads it for a client: ten times that of a call of an hour.
SERVED_BYTES = 4_000_000
# A day: what claims to have happened later did not.
MOST_MS = 86_400_000
_MS = Field(0, ge=0, le=MOST_MS)


def _events(given: Any) -> Any:
    """Return the events that have a name and a time; others cannot be shown."""
    if not isinstance(given, list):
        return given
    return [each for each in given if _is_event(each)]


def _is_event(given: Any) -> bool:
    if not isinstance(given, dict) or not isinstance(given.get("event"), str):
        return False
    at_ms = given.get("at_ms")
    return isinstance(at_ms, int) and abs(at_ms) <= MOST_MS


class LostAudio(BaseModel):
    """Stretch of one side that was lost."""

    length_ms: int = _MS


class RecordedSide(BaseModel):
    """Facts of one side.

    Attributes:
        rate_hz: of its audio; 0 without any.
        first_sample: place of its first sample; None without any.
        first_piece: number of samples of the first piece in which it came.
        seams: places at which its samples do not follow each other (``SideTrack``).
        lost: stretches that were lost.
    """

    rate_hz: int = Field(0, ge=0, le=192_000)
    first_sample: int | None = Field(None, ge=0)
    first_piece: int = Field(0, ge=0, le=1_000_000)
    seams: Annotated[list[tuple[int, int]], Field(max_length=MOST_SEAMS)] = []
    lost: list[LostAudio] = []


class RecordedTimeline(BaseModel):
    """Timeline of a recorded call.

    Attributes:
        is_over: its end was written; False too for a call that was killed.
        had_pause: the call had a private pause, also one before it was recorded.
        duration_ms: length of the recording.
        caller, bot: facts of the two sides.
        pictures: times of the camera's pictures.
        events: of the call, each with ``at_ms`` and ``event``.
    """

    model_config = ConfigDict(populate_by_name=True)

    is_over: bool = False
    had_pause: bool = False
    duration_ms: int = _MS
    caller: RecordedSide = Field(RecordedSide(), alias=CALLER_AUDIO)
    bot: RecordedSide = Field(RecordedSide(), alias=BOT_AUDIO)
    pictures: list[Annotated[int, Field(ge=0, le=MOST_MS)]] = Field([], alias=FRAMES)
    events: Annotated[list[dict[str, Any]], BeforeValidator(_events)] = []

    @property
    def arrival_ms(self) -> float:
        """Time at which the caller arrived; where that was before the recording, its first sample."""
        for event in self.events:
            if event["event"] == "CallerJoined":
                return float(event["at_ms"])
        return self.first_sample_ms

    @property
    def first_sample_ms(self) -> float:
        """Time of the caller's first sample."""
        return (self.caller.first_sample or 0) * 1_000 / (self.caller.rate_hz or 1)

    @property
    def lost_ms(self) -> int:
        """Length of the audio that was lost, of both sides."""
        return sum(lost.length_ms for side in (self.caller, self.bot) for lost in side.lost)


def timeline_of(recording: CallRecording, *, most_bytes: int | None = None) -> RecordedTimeline:
    """Return the timeline of a recording; an empty one where it is missing, broken or too large.

    The audio is there nevertheless.

    Raises:
        RecordingKeyError: it is encrypted with another key.
        AlteredFileError: it is encrypted, and was altered.
        ObjectStoreError: it is in a bucket that does not answer.
    """
    try:
        found = recording.timeline() if most_bytes is None else recording.timeline(most_bytes=most_bytes)
        return RecordedTimeline.model_validate(found)
    except (RecordingKeyError, AlteredFileError, ObjectStoreError):
        raise
    except (MediaError, ValidationError):
        return RecordedTimeline()
