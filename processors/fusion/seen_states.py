"""Turn what single frames show into statements about what lasted: from when to when.

Input: one ``VisionPayload`` for each frame, in the order of capture. Output: ``SeenStatement``s for the
sequencer. A state that says something (a gesture, a look away, several people) is reported with the frame in
which it begins and stays open: its stretch reaches ``OPEN_US`` into the future. When it ends, a revision of
the statement has the true end. So words are compared with the state at their own time, whenever they are
committed, and a call stores a statement for each change and not for each frame. A state that says nothing is
reported as a moment, which hides no other program's report about the same time.

A gesture counts from its first frame and ends with the second frame without it: a moving hand is blurred in
one of them. Faces and their look change when all frames of ``AGREED_US`` agree, and then from the first one.
An expression of the face takes ``LASTING_US``, because a mouth that speaks passes through others; it ends at
once with a face that is gone or looks away.

Pure: frames come in with their times.
"""

from dataclasses import dataclass, replace

from parley.core.timeline import VisionPayload

# How far an open statement reaches, and how long before that it is reported again.
OPEN_US, RENEWED_US = 10_000_000, 2_000_000
# Time for which faces have to stay as they are. A specialist may look for them less often than for hands
# (``models.specialists.vision.FACES_EVERY_US``): a later frame was judged anew.
AGREED_US = 350_000
# The same for an expression: a syllable has 200 ms.
LASTING_US = 700_000
# Way of a finger tip, in parts of the picture, from which it points at something else.
MOVED = 0.15


@dataclass(frozen=True, slots=True)
class SeenStatement:
    """Statement of the vision stream.

    Attributes:
        identity: names the statement.
        revision: counts up from 0.
        payload: what was seen, with its stretch.
        event_us: capture of the frame that gave rise to the report.
        confidence: 0..1.
        final: True when it will not be revised.
    """

    identity: str
    revision: int
    payload: VisionPayload
    event_us: int
    confidence: float
    final: bool


@dataclass(frozen=True, slots=True)
class _Face:
    """Statement about faces; ``since_us`` is the first frame that showed it."""

    faces: int | None = None
    looking: str | None = None
    since_us: int = 0

    def is_like(self, other: "_Face") -> bool:
        return (self.faces, self.looking) == (other.faces, other.looking)


class SeenStates:
    """States of one camera."""

    def __init__(self) -> None:
        self._number = 0
        # The last report, and its state.
        self._last: SeenStatement | None = None
        self._gesture: VisionPayload | None = None
        # The gesture was not in the last frame, which was captured then.
        self._is_missing_gesture, self._missed_us = False, 0
        self._face: _Face | None = None
        self._next_face: _Face | None = None
        self._affect: str | None = None
        # First of the frames in a row with another expression than that; None without one.
        self._other_affect: VisionPayload | None = None
        self._seen_us = 0

    def take(self, seen: VisionPayload, confidence: float) -> list[SeenStatement]:
        """Return the reports to which a frame gives rise."""
        at_us = seen.start_us
        face, face_since_us = self._faces_of(seen, at_us)
        gesture, gesture_since_us = self._gesture_of(seen, at_us)
        affect_since_us = self._note_affect(seen, at_us)
        if self._affect is not None and (face.faces == 0 or face.looking == "away"):
            # It ends with the face that had it, and does not outlast it until its own end is certain.
            self._affect, affect_since_us = None, face_since_us
        state = VisionPayload(
            at_us,
            at_us,
            ref=None if gesture is None else gesture.ref,
            gesture=None if gesture is None else gesture.gesture,
            facial_affect=self._affect,
            faces=face.faces,
            looking=face.looking,
            at=None if gesture is None else gesture.at,
        )
        last = self._last
        if last is not None and _without_times(last.payload) == _without_times(state):
            reports = self._renewed(last, at_us, confidence)
        else:
            changed_us = (
                at_us if last is None else min(face_since_us, gesture_since_us, affect_since_us, at_us)
            )
            # Not before what was reported last.
            changed_us = max(changed_us, 0 if last is None else last.payload.start_us)
            reports = [*self._closed(changed_us, at_us), self._opened(state, changed_us, at_us, confidence)]
        self._seen_us = at_us
        return reports

    def end(self, ended_us: int | None = None) -> list[SeenStatement]:
        """Return the reports for a camera that shows nothing more.

        Args:
            ended_us: since when; None: since its last frame.
        """
        reports = self._closed(self._seen_us if ended_us is None else ended_us, self._seen_us)
        self._last = self._gesture = self._face = self._next_face = self._affect = self._other_affect = None
        self._is_missing_gesture = False
        return reports

    def _faces_of(self, seen: VisionPayload, at_us: int) -> tuple[_Face, int]:
        """Return what counts about faces, and since when."""
        found = _Face(seen.faces, seen.looking, at_us)
        if self._face is None:
            self._face = found
        elif found.is_like(self._face):
            self._next_face = None
            # Unchanged: it gives no time of a change.
            return self._face, at_us
        elif self._next_face is not None and found.is_like(self._next_face):
            if at_us - self._next_face.since_us < AGREED_US:
                return self._face, at_us
            self._face, self._next_face = self._next_face, None
        else:
            self._next_face = found
            return self._face, at_us
        return self._face, self._face.since_us

    def _note_affect(self, seen: VisionPayload, at_us: int) -> int:
        """Note the expression that counts; return since when it does, or now without a change."""
        if seen.facial_affect == self._affect:
            self._other_affect = None
            return at_us
        other = self._other_affect
        if other is None or other.facial_affect != seen.facial_affect:
            self._other_affect = other = seen
        if at_us - other.start_us < LASTING_US:
            return at_us
        self._affect, self._other_affect = seen.facial_affect, None
        return other.start_us

    def _gesture_of(self, seen: VisionPayload, at_us: int) -> tuple[VisionPayload | None, int]:
        """Return the frame whose gesture counts, None without one, and since when."""
        before = self._gesture
        if seen.gesture is not None:
            self._is_missing_gesture = False
            if before is None or before.gesture != seen.gesture or _has_moved(before, seen):
                self._gesture = seen
            return self._gesture, at_us
        if before is None:
            return None, at_us
        if not self._is_missing_gesture:
            self._is_missing_gesture, self._missed_us = True, at_us
            return before, at_us
        self._gesture, self._is_missing_gesture = None, False
        return None, self._missed_us

    def _opened(self, state: VisionPayload, since_us: int, at_us: int, confidence: float) -> SeenStatement:
        """Report a new state."""
        self._number += 1
        says = _says_something(state)
        made = SeenStatement(
            f"seen.{self._number}",
            0,
            replace(state, start_us=since_us, end_us=at_us + OPEN_US if says else since_us),
            at_us,
            confidence,
            final=not says,
        )
        self._last = made
        return made

    def _renewed(self, last: SeenStatement, at_us: int, confidence: float) -> list[SeenStatement]:
        """Report an open statement again before it runs out."""
        if last.final or at_us < last.payload.end_us - RENEWED_US:
            return []
        payload = replace(last.payload, end_us=at_us + OPEN_US)
        self._last = replace(
            last,
            revision=last.revision + 1,
            payload=payload,
            event_us=at_us,
            confidence=max(confidence, last.confidence),
        )
        return [self._last]

    def _closed(self, ended_us: int, at_us: int) -> list[SeenStatement]:
        """Report the true end of the open statement."""
        last = self._last
        if last is None or last.final:
            return []
        payload = replace(last.payload, end_us=max(last.payload.start_us, ended_us))
        return [replace(last, revision=last.revision + 1, payload=payload, event_us=at_us, final=True)]


def _says_something(state: VisionPayload) -> bool:
    """Return whether a state is more than one person who looks here, or an empty picture."""
    return bool(
        state.gesture
        or state.ref
        or state.facial_affect
        or state.looking == "away"
        or (state.faces is not None and state.faces > 1)
    )


def _has_moved(before: VisionPayload, seen: VisionPayload) -> bool:
    """Return whether a finger points from another place than before."""
    if before.at is None or seen.at is None:
        return before.at is not seen.at
    return max(abs(one - other) for one, other in zip(before.at, seen.at, strict=True)) > MOVED


def _without_times(payload: VisionPayload) -> VisionPayload:
    return replace(payload, start_us=0, end_us=0)
